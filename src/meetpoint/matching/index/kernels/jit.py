"""The compiler of kernels, and the vector instructions that they use.

A kernel is compiled when it is first called; its code is kept on disk, and it releases the GIL. For a few events it
keeps the GIL: a thread that releases it waits behind every thread that computes, and one event takes a dozen kernels.

Numba binds code on disk to the file of the function that was called. That function may call others of this package, so
the code is bound to all files here.

Vectors hold sixteen entries of a bucket: AVX-512 instructions, and vectors for any machine. Addresses are plain
integers, since numba's arrays know no vectors. Nothing here checks a bound: arrays that are read or written sixteen at
a time are padded by `PADDING` entries.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pkgutil import get_data
from typing import Any, TypeAlias, cast

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

__all__ = [
    "FEW_EVENTS",
    "PADDING",
    "address_of",
    "array_at",
    "at_most8",
    "byte_at",
    "compress16",
    "fetch_test16",
    "fetch_wide_test16",
    "gather_test16",
    "has_avx512",
    "inlined",
    "kernel",
    "long_at",
    "lowest",
    "ones",
    "permute_test16",
    "piece",
    "splat16",
    "splat_test16",
    "suited",
    "word_at",
]


_Function: TypeAlias = Callable[..., Any]

_OPTIONS: dict[str, Any] = {"error_model": "numpy"}
FEW_EVENTS = 32
_NO_WRAPPERS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_FILES = (
    "bucket_scan", "build", "few_scan", "filter_scan", "jit", "json_scan", "json_tokens", "patterns", "ranks",
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
    """Return a kernel, which Python calls; it is compiled on its first call, its code kept on disk if possible."""
    compiled = _compiled(function, nogil=True)
    compiled.brief = _compiled(function, nogil=False)
    return cast(_Function, compiled)


def _compiled(function: _Function, *, nogil: bool) -> Any:
    compiled = njit(nogil=nogil, **_OPTIONS)(function)
    with suppress(RuntimeError):  # there is no directory to write to
        compiled._cache = _Cache(function, nogil)
    return compiled


def suited(compiled: Any, events: int) -> _Function:
    """Return a kernel as it suits so many events: for a few of them it keeps the GIL."""
    return cast(_Function, compiled.brief if events < FEW_EVENTS else compiled)


def piece(function: _Function) -> _Function:
    """Return a function that only kernels call."""
    return cast(_Function, njit(**_OPTIONS, **_NO_WRAPPERS)(function))


def inlined(function: _Function) -> _Function:
    """Return a function that is compiled into its callers, since a call would take as long as its work."""
    return cast(_Function, njit(forceinline=True, **_OPTIONS, **_NO_WRAPPERS)(function))


@inlined
def address_of(array: Any) -> Any:
    """Return the address of an array's data; signed, since numba makes a float of a signed and an unsigned word."""
    return np.int64(array.ctypes.data)


def _loader(bits: int) -> Any:
    """Return an intrinsic that reads a word of so many bits from any address."""
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
    """Return the array at an address; its owner must keep it. A table of addresses is quicker to pass than arrays."""
    return carray(_pointer(address), (length,), dtype)


PADDING = 64
"""Entries by which an array that is read or written sixteen at a time exceeds its contents."""

_BIT, _BYTE, _HALF, _WORD, _LONG = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
_WORDS, _EIGHT, _LONGS = ir.VectorType(_WORD, 16), ir.VectorType(_WORD, 8), ir.VectorType(_LONG, 8)
_BYTES = ir.VectorType(_BYTE, 16)
_BITS = ir.VectorType(_BIT, 16)


@cache
def has_avx512() -> bool:
    """Return whether this processor has the instructions."""
    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know the processor
        return False
    return all(features.get(name, False) for name in ("avx512f", "avx512vl", "avx512bw", "avx512dq"))


def _load(builder: Any, address: Any, type_: Any, align: int) -> Any:
    value = builder.load(builder.inttoptr(address, type_.as_pointer()))
    value.align = align
    return value


def _store(builder: Any, value: Any, address: Any) -> None:
    stored = builder.store(value, builder.inttoptr(address, value.type.as_pointer()))
    stored.align = 4


def _call(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    type_ = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, type_, name), arguments)


def _within(builder: Any, ranks: Any, low: Any, width: Any) -> Any:
    """Return a bit per lane: the rank is within `width` of `low`, counting upwards and around."""
    offset = builder.sub(ranks, _load(builder, low, _WORDS, 4))
    inside = builder.icmp_unsigned("<=", offset, _load(builder, width, _WORDS, 4))
    return builder.zext(builder.bitcast(inside, _HALF), _LONG)


@intrinsic
def permute_test16(typing: Any, slot: Any, low: Any, width: Any, event: Any) -> Any:
    """Return sixteen tests of an event with sixteen slots: one register holds them all."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        slots = builder.zext(_load(builder, args[0], _BYTES, 1), _WORDS)
        event = _load(builder, args[3], _WORDS, 4)
        ranks = _call(builder, "llvm.x86.avx512.permvar.si.512", _WORDS, [event, slots])
        return _within(builder, ranks, args[1], args[2])

    return types.int64(types.int64, types.int64, types.int64, types.int64), code


@intrinsic
def gather_test16(typing: Any, slot: Any, low: Any, width: Any, event: Any) -> Any:
    """Return sixteen tests of an event with any number of slots, up to 256."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        slots = builder.zext(_load(builder, args[0], _BYTES, 1), _WORDS)
        base = builder.inttoptr(args[3], _BYTE.as_pointer())
        every = ir.Constant(_BITS, [1] * 16)
        none = ir.Constant(_WORDS, [0] * 16)
        ranks = _call(
            builder, "llvm.x86.avx512.mask.gather.dpi.512", _WORDS, [none, base, slots, every, ir.Constant(_WORD, 4)]
        )
        return _within(builder, ranks, args[1], args[2])

    return types.int64(types.int64, types.int64, types.int64, types.int64), code


def _fetching_test(slot_type: Any) -> Any:
    """Return an intrinsic for sixteen tests on any processor, with ranks fetched one by one."""
    size = slot_type.width // 8

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        ranks = ir.Constant(_WORDS, ir.Undefined)
        for lane in range(16):
            slot = _load(builder, builder.add(args[0], _LONG(lane * size)), slot_type, 1)
            offset = builder.shl(builder.zext(slot, _LONG), _LONG(2))
            rank = _load(builder, builder.add(args[3], offset), _WORD, 4)
            ranks = builder.insert_element(ranks, rank, _WORD(lane))
        return _within(builder, ranks, args[1], args[2])

    return intrinsic(
        lambda typing, slot, low, width, event: (types.int64(types.int64, types.int64, types.int64, types.int64), code)
    )


fetch_test16 = _fetching_test(_BYTE)
fetch_wide_test16 = _fetching_test(_HALF)


@intrinsic
def splat_test16(typing: Any, rank: Any, low: Any, width: Any) -> Any:
    """Return sixteen tests of one rank, on any processor."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _within(builder, _splat(builder, builder.trunc(args[0], _WORD)), args[1], args[2])

    return types.int64(types.int64, types.int64, types.int64), code


def _splat(builder: Any, word: Any) -> Any:
    one = builder.insert_element(ir.Constant(_WORDS, ir.Undefined), word, _WORD(0))
    lanes = ir.Constant(ir.VectorType(_WORD, 16), [0] * 16)
    return builder.shuffle_vector(one, ir.Constant(_WORDS, ir.Undefined), lanes)


@intrinsic
def compress16(typing: Any, source: Any, target: Any, mask: Any) -> Any:
    """Write those of sixteen words whose bit is set, side by side; return how many they are."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wanted = builder.trunc(args[2], _HALF)
        words = _load(builder, args[0], _WORDS, 4)
        none = ir.Constant(_WORDS, [0] * 16)
        lanes = builder.bitcast(wanted, _BITS)
        packed = _call(builder, "llvm.x86.avx512.mask.compress.v16i32", _WORDS, [words, none, lanes])
        _store(builder, packed, args[1])  # all sixteen, which is quicker; what follows is overwritten next
        return builder.zext(_call(builder, "llvm.ctpop.i16", _HALF, [wanted]), _LONG)

    return types.int64(types.int64, types.int64, types.int64), code


@intrinsic
def splat16(typing: Any, target: Any, word: Any) -> Any:
    """Write one word sixteen times."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _store(builder, _splat(builder, builder.trunc(args[1], _WORD)), args[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


@intrinsic
def at_most8(typing: Any, source: Any, key: Any) -> Any:
    """Return how many of eight long words are at most a key, on any processor."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one = builder.insert_element(ir.Constant(_LONGS, ir.Undefined), args[1], _WORD(0))
        keys = builder.shuffle_vector(one, ir.Constant(_LONGS, ir.Undefined), ir.Constant(_EIGHT, [0] * 8))
        below = builder.icmp_signed("<=", _load(builder, args[0], _LONGS, 8), keys)
        return builder.zext(_call(builder, "llvm.ctpop.i8", _BYTE, [builder.bitcast(below, _BYTE)]), _LONG)

    return types.int64(types.int64, types.int64), code


@intrinsic
def lowest(typing: Any, mask: Any) -> Any:
    """Return the number of the lowest bit that is set; the mask is not 0."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _call(builder, "llvm.cttz.i64", _LONG, [args[0], _BIT(1)])

    return types.int64(types.int64), code


@intrinsic
def ones(typing: Any, word: Any) -> Any:
    """Return how many bits of a long word are set."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _call(builder, "llvm.ctpop.i64", _LONG, [args[0]])

    return types.int64(types.uint64), code
