"""Tables by which the patterns that fit a text are found from three, two or one of its bytes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from meetpoint.language.like import ANY_CHAR, Pattern, PatternSort
from meetpoint.matching.index.kernels.patterns import ANY_CHAR as ANY_SYMBOL
from meetpoint.matching.index.kernels.patterns import GRAMS2, GRAMS3, PERCENT, Grams

__all__ = ["build_grams"]

_TRIED = 12
"""Places of a pattern that are looked at for its gram."""


def build_grams(patterns: Sequence[tuple[str, Pattern]]) -> dict[str, Grams]:
    """Tables for each attribute."""
    by_attribute: dict[str, list[int]] = {}
    for number, (attribute, _) in enumerate(patterns):
        by_attribute.setdefault(attribute, []).append(number)
    return {
        attribute: _tables([patterns[n][1] for n in numbers], numbers) for attribute, numbers in by_attribute.items()
    }


def _tables(patterns: list[Pattern], numbers: list[int]) -> Grams:
    grams = GRAMS3 + GRAMS2 + 256
    sizes: set[int] = set()
    load = [0] * GRAMS3
    places: list[int] = []
    records: list[tuple[int, int, int, int]] = []
    for number, pattern in zip(numbers, patterns, strict=True):
        runs = [run.encode() for piece in pattern.pieces for run in piece.split(ANY_CHAR) if run]
        if not runs:
            places.append(grams)
            records.append((0, 0, 0, number))
            continue
        run = max(runs, key=len)
        size = min(len(run), 3)
        at = _rarest(run, load) if size == 3 else 0
        place = _place(run[at : at + size])
        if size == 3:
            load[place] += 1
        sizes.add(size)
        places.append(place)
        if pattern.sort is PatternSort.SUBSTRING:
            first = run[:8]
            word = int.from_bytes(first, sys.byteorder)
            mask = int.from_bytes(b"\xff" * len(first) + bytes(8 - len(first)), sys.byteorder)
            records.append((word, mask, len(run) << 32 | at, number))
        else:
            records.append((0, 0, 0, number))
    order = np.argsort(places, kind="stable")
    symbols = [_symbols(patterns[at]) for at in order.tolist()]
    found, begin = np.unique(np.array(places)[order], return_index=True)
    found, begin = found[found < grams], np.append(begin, len(places))[: (found < grams).sum() + 1]
    bits = np.zeros(-(-grams // 64) * 64, np.bool_)
    bits[found] = True
    seen = np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64)
    return Grams(
        np.concatenate([[0], np.cumsum([len(some) for some in symbols])]).astype(np.int32),
        np.array([one for some in symbols for one in some], np.uint16),
        np.array(records, np.uint64)[order],
        np.array(sorted(sizes), np.int64),
        seen,
        (np.cumsum(bits.reshape(-1, 64).sum(axis=1)) - bits.reshape(-1, 64).sum(axis=1)).astype(np.int64),
        begin.astype(np.int64),
    )


def _symbols(pattern: Pattern) -> list[int]:
    if pattern.sort is PatternSort.SUBSTRING:
        return list(pattern.pieces[1].encode())
    symbols: list[int] = []
    for at, piece in enumerate(pattern.pieces):
        symbols += [PERCENT] if at else []
        for c in piece:
            symbols += [ANY_SYMBOL] if c == ANY_CHAR else c.encode()
    return symbols


def _hash3(gram: bytes) -> int:
    """The same as the kernel's `gram_hash`."""
    word = gram[0] | gram[1] << 8 | gram[2] << 16
    return (word * 0x9E3779B1 & 0xFFFFFFFF) >> 16


def _place(gram: bytes) -> int:
    if len(gram) == 3:
        return _hash3(gram)
    return GRAMS3 + gram[0] + (gram[1] << 8) if len(gram) == 2 else GRAMS3 + GRAMS2 + gram[0]


def _rarest(run: bytes, load: list[int]) -> int:
    """Where in a run of bytes the three begin that the fewest patterns were filed under so far.

    Many patterns may begin alike, and what they have in common would lead to all of them.
    """
    last = len(run) - 3
    places = range(last + 1) if last < _TRIED else (*range(_TRIED // 3), *range(last - 2 * _TRIED // 3, last + 1))
    return min(places, key=lambda at: (load[_hash3(run[at : at + 3])], run.count(run[at : at + 3]) if last > 32 else 0))
