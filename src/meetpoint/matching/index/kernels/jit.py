"""How loops are compiled: when they are first called, with the code kept on disk, and the GIL released.

For a few events the GIL is kept: whoever lets go of it waits for its turn again behind every thread that computes, and
one event takes a dozen loops.

Numba binds code on disk to the file of the function that was called. What it calls may lie in other files of this
package, so that the code is bound to all of them here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pkgutil import get_data
from typing import Any, TypeAlias, cast

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

__all__ = [
    "FEW_EVENTS",
    "address_of",
    "array_at",
    "byte_at",
    "inlined",
    "kernel",
    "long_at",
    "piece",
    "suited",
    "word_at",
]

_Function: TypeAlias = Callable[..., Any]

_OPTIONS: dict[str, Any] = {"error_model": "numpy"}
FEW_EVENTS = 32
_NO_WRAPPERS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_FILES = (
    "bucket_scan", "build", "few_scan", "filter_scan", "jit", "json_scan", "json_tokens", "line_up", "patterns",
    "ranks", "results", "simd",
)  # fmt: skip


def _source_hash() -> str:
    digest = sha256()
    for name in _FILES:
        digest.update(get_data(__package__, f"{name}.py") or b"")
    return digest.hexdigest()


_SOURCE_HASH = _source_hash()


class _Cache(FunctionCache):  # type: ignore[misc]  # numba has no types
    def __init__(self, function: _Function, nogil: bool) -> None:
        super().__init__(function)
        self._nogil = nogil

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return super()._index_key(sig, codegen), _SOURCE_HASH, self._nogil


def kernel(function: _Function) -> _Function:
    """A function that Python calls: compiled when it is first called, and the code is kept on disk if it can be."""
    compiled = _compiled(function, nogil=True)
    compiled.brief = _compiled(function, nogil=False)
    return cast(_Function, compiled)


def _compiled(function: _Function, *, nogil: bool) -> Any:
    compiled = njit(nogil=nogil, **_OPTIONS)(function)
    with suppress(RuntimeError):  # there is no directory to write to
        compiled._cache = _Cache(function, nogil)
    return compiled


def suited(compiled: Any, events: int) -> _Function:
    """A kernel as it suits so many events: for a few of them it keeps the GIL."""
    return cast(_Function, compiled.brief if events < FEW_EVENTS else compiled)


def piece(function: _Function) -> _Function:
    """A function that only kernels call."""
    return cast(_Function, njit(**_OPTIONS, **_NO_WRAPPERS)(function))


def inlined(function: _Function) -> _Function:
    """One that is compiled into those that call it, since a call would take as long as what it does."""
    return cast(_Function, njit(forceinline=True, **_OPTIONS, **_NO_WRAPPERS)(function))


@inlined
def address_of(array: Any) -> Any:
    """The address of an array's data; signed, since numba makes a float of a signed and an unsigned word."""
    return np.int64(array.ctypes.data)


def _loader(bits: int) -> Any:
    """An intrinsic that reads a word of so many bits from any address."""
    word = ir.IntType(bits)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        loaded = builder.load(builder.inttoptr(args[0], word.as_pointer()), typ=word, align=1)
        return loaded if bits == 64 else builder.zext(loaded, ir.IntType(64))

    return intrinsic(lambda typing, address: (types.uint64(types.int64), generate))


long_at = _loader(64)
word_at = _loader(32)
byte_at = _loader(8)


@intrinsic
def _pointer(typing: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


@inlined
def array_at(address: Any, length: Any, dtype: Any) -> Any:
    """The array at an address, which somebody else keeps: a kernel takes a table of them sooner than the arrays."""
    return carray(_pointer(address), (length,), dtype)
