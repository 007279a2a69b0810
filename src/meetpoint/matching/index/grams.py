"""Tables by which the patterns that fit a text are found from three, two or one of its bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meetpoint.language.like import ANY_CHAR, Pattern, PatternSort
from meetpoint.matching.index.kernels.patterns import ANY_CHAR as ANY_SYMBOL
from meetpoint.matching.index.kernels.patterns import GRAMS2, GRAMS3, PERCENT, Grams
from meetpoint.matching.index.lines import Array

__all__ = ["build_grams"]


def build_grams(patterns: Sequence[tuple[str, Pattern]], frequency: dict[str, Array] | None = None) -> dict[str, Grams]:
    """Tables for each attribute. `frequency` says how often the hash of three bytes occurs in its texts."""
    by_attribute: dict[str, list[int]] = {}
    for number, (attribute, _) in enumerate(patterns):
        by_attribute.setdefault(attribute, []).append(number)
    return {
        attribute: _tables([patterns[n][1] for n in numbers], numbers, (frequency or {}).get(attribute))
        for attribute, numbers in by_attribute.items()
    }


def _tables(patterns: list[Pattern], numbers: list[int], frequency: Array | None) -> Grams:
    symbols: list[int] = []
    starts = [0]
    plain = np.ones(len(patterns), np.int32)
    head = np.full(GRAMS3 + GRAMS2 + 256, -1, np.int32)
    sizes: set[int] = set()
    following = np.full(len(patterns), -1, np.int32)
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
        runs = [run.encode() for piece in pattern.pieces for run in piece.split(ANY_CHAR) if run]
        if not runs:
            always.append(p)
            continue
        run = max(runs, key=len)
        size = min(len(run), 3)
        at = _rarest(run, frequency) if size == 3 else 0
        gram = run[at : at + size]
        place = _place(gram)
        if is_plain:
            plain[p] = -at
        following[p] = head[place]
        head[place] = p
        sizes.add(size)
    return Grams(
        np.array(starts, np.int32),
        np.array(symbols, np.uint16),
        plain,
        np.array(sorted(sizes), np.int64),
        np.packbits(head >= 0, bitorder="little"),
        head,
        following,
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


def _rarest(run: bytes, frequency: Array | None) -> int:
    """Where in a run of bytes the rarest three begin."""
    if frequency is None or len(run) == 3:
        return 0
    return min(range(len(run) - 2), key=lambda at: int(frequency[_hash3(run[at : at + 3])]))
