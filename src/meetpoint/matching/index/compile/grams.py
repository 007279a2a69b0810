"""Tables by which the patterns that fit a text are found from three, two or one of its bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meetpoint.language.filters.like import ANY_CHAR, Pattern
from meetpoint.matching.index.compile.rows import runs, starts_of
from meetpoint.matching.index.kernels.patterns import ANY_CHAR as ANY_SYMBOL
from meetpoint.matching.index.kernels.patterns import GRAMS, GRAMS3, PERCENT, Grams, file_patterns
from meetpoint.matching.index.lines import Array

__all__ = ["build_grams", "is_substring"]

_ANY_BYTE, _PERCENT_BYTE = b"\xff", b"\xfe"
"""Bytes that no text has in UTF-8."""
_ANY_CHAR = ANY_CHAR.encode("utf-8", "surrogatepass")
_WORD_BITS = 64


def is_substring(pattern: Pattern) -> bool:
    """Whether a pattern is of the sort SUBSTRING, found in less time than what the sort is."""
    pieces = pattern.pieces
    return len(pieces) == 3 and not pieces[0] and not pieces[2] and ANY_CHAR not in pieces[1]


def build_grams(patterns: Sequence[tuple[str, Pattern]]) -> dict[str, Grams]:
    """Tables for each attribute."""
    by_attribute: dict[str, list[int]] = {}
    for number, (attribute, _) in enumerate(patterns):
        by_attribute.setdefault(attribute, []).append(number)
    return {
        attribute: _tables([patterns[n][1] for n in numbers], numbers) for attribute, numbers in by_attribute.items()
    }


def _tables(patterns: list[Pattern], numbers: list[int]) -> Grams:
    plain = np.fromiter(map(is_substring, patterns), np.bool_, count=len(patterns))
    start, symbol = _symbols(patterns, plain)
    place = np.zeros(len(patterns), np.int64)
    record = np.zeros((len(patterns), 4), np.uint64)
    has_size = np.zeros(4, np.bool_)
    file_patterns(
        start, symbol, plain, np.array(numbers, np.int64), np.zeros(GRAMS3, np.int32), place, record, has_size
    )
    order = np.argsort(place, kind="stable")
    found, begin = np.unique(place[order], return_index=True)
    found, begin = found[found < GRAMS], np.append(begin, len(place))[: (found < GRAMS).sum() + 1]
    words = -(-GRAMS // _WORD_BITS)
    seen = np.zeros(words, np.uint64)
    np.bitwise_or.at(seen, found // _WORD_BITS, np.uint64(1) << (found % _WORD_BITS).astype(np.uint64))
    in_word = np.bincount(found // _WORD_BITS, minlength=words)
    return Grams(
        starts_of(np.diff(start)[order]),
        symbol[runs(start[:-1][order], start[1:][order])[1]],
        record[order],
        np.flatnonzero(has_size[1:]) + 1,
        seen,
        np.cumsum(in_word) - in_word,
        begin,
    )


def _symbols(patterns: list[Pattern], plain: Array) -> tuple[Array, Array]:
    """What patterns are made of, one after the other, and where each begins."""
    spelled = [
        pattern.pieces[1].encode() if is_plain else _spelled(pattern)
        for pattern, is_plain in zip(patterns, plain.tolist(), strict=True)
    ]
    symbol = np.frombuffer(b"".join(spelled), np.uint8).astype(np.uint16)
    symbol[symbol == ord(_ANY_BYTE)] = ANY_SYMBOL
    symbol[symbol == ord(_PERCENT_BYTE)] = PERCENT
    return starts_of(np.fromiter(map(len, spelled), np.int64, count=len(spelled))), symbol


def _spelled(pattern: Pattern) -> bytes:
    pieces = (piece.encode("utf-8", "surrogatepass") for piece in pattern.pieces)
    return _PERCENT_BYTE.join(pieces).replace(_ANY_CHAR, _ANY_BYTE)
