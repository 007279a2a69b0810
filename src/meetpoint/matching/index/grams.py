"""Tables by which the patterns that fit a text are found from three, two or one of its bytes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from meetpoint.language.like import ANY_CHAR, Pattern, PatternSort
from meetpoint.matching.index.kernels.patterns import ANY_CHAR as ANY_SYMBOL
from meetpoint.matching.index.kernels.patterns import GRAMS2, GRAMS3, MASK, NEXT, PERCENT, PLACE, WORD, Grams

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
    symbols: list[int] = []
    starts = [0]
    record = np.zeros((len(patterns), 4), np.uint64)
    head = np.full(GRAMS3 + GRAMS2 + 256, -1, np.int32)
    sizes: set[int] = set()
    load = [0] * GRAMS3
    always: list[int] = []
    for p, pattern in enumerate(patterns):
        is_plain = pattern.sort is PatternSort.SUBSTRING
        if is_plain:
            symbols += pattern.pieces[1].encode()
        else:
            for at, piece in enumerate(pattern.pieces):
                symbols += [PERCENT] if at else []
                for c in piece:
                    symbols += [ANY_SYMBOL] if c == ANY_CHAR else c.encode()
        starts.append(len(symbols))
        record[p, NEXT] = numbers[p]
        runs = [run.encode() for piece in pattern.pieces for run in piece.split(ANY_CHAR) if run]
        if not runs:
            always.append(p)
            continue
        run = max(runs, key=len)
        size = min(len(run), 3)
        at = _rarest(run, load) if size == 3 else 0
        gram = run[at : at + size]
        place = _place(gram)
        if is_plain:
            first = run[:8]
            record[p, WORD] = int.from_bytes(first, sys.byteorder)
            record[p, MASK] = int.from_bytes(b"\xff" * len(first) + bytes(8 - len(first)), sys.byteorder)
            record[p, PLACE] = len(run) << 32 | at
        if size == 3:
            load[place] += 1
        record[p, NEXT] = int(head[place] + 1) << 32 | numbers[p]
        head[place] = p
        sizes.add(size)
    return Grams(
        np.array(starts, np.int32),
        np.array(symbols, np.uint16),
        record,
        np.array(sorted(sizes), np.int64),
        np.packbits(head >= 0, bitorder="little"),
        head,
        np.array(always, np.int32),
        np.array(numbers, np.int32),
    )


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
