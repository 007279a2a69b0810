"""How loops are compiled: when they are first called, with the code kept on disk, and the GIL released.

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
from numba import njit, types
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

__all__ = ["address_of", "byte_at", "inlined", "kernel", "long_at", "piece", "word_at"]

_Function: TypeAlias = Callable[..., Any]

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_NO_WRAPPERS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_FILES = (
    "building", "compiling", "json_scan", "json_tokens", "patterns", "ranks", "results", "scanning", "simd",
)  # fmt: skip


def _source_hash() -> str:
    digest = sha256()
    for name in _FILES:
        digest.update(get_data(__package__, f"{name}.py") or b"")
    return digest.hexdigest()


_SOURCE_HASH = _source_hash()


class _Cache(FunctionCache):  # type: ignore[misc]  # numba has no types
    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return super()._index_key(sig, codegen), _SOURCE_HASH


def kernel(function: _Function) -> _Function:
    """A function that Python calls: compiled when it is first called, and the code is kept on disk if it can be."""
    compiled = njit(**_OPTIONS)(function)
    with suppress(RuntimeError):  # there is no directory to write to
        compiled._cache = _Cache(function)
    return cast(_Function, compiled)


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
