"""The encoder of events for one segment: ranks on its lines, and the patterns that fit.

That is the first step of a match. The patterns on an attribute are found by tables of grams: three, two or one of their
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from meetpoint.language.filters.like import ANY_CHAR, Pattern
from meetpoint.matching.index.kernels.jit import suited
from meetpoint.matching.index.kernels.patterns import ANY_CHAR as ANY_SYMBOL
from meetpoint.matching.index.kernels.patterns import (
    FEW_FITS,
    GRAMS,
    GRAMS3,
    PERCENT,
    Grams,
    file_patterns,
    fitting_patterns,
    sort_runs,
)
from meetpoint.matching.index.kernels.ranks import TextCache, double_ranks, line_ranks, text_ranks
from meetpoint.matching.index.lines import Array, LineKey, LineSort, RankLine, Thresholds, read_only
from meetpoint.matching.index.rank_form import runs, starts_of
from meetpoint.matching.index.small_batch import AddressTable, PartKey
from meetpoint.matching.tables.columns import ColumnPart, ColumnParts, PartSort

__all__ = ["Encoded", "Encoder", "Scratch", "build_grams", "is_substring", "read_only", "ready"]


_ANY_BYTE, _PERCENT_BYTE = b"\xff", b"\xfe"
"""Bytes that no text has in UTF-8."""
_ANY_CHAR = ANY_CHAR.encode("utf-8", "surrogatepass")
_WORD_BITS = 64


def is_substring(pattern: Pattern) -> bool:
    """Return whether a pattern is of the sort SUBSTRING; that is quicker than `pattern.sort`."""
    pieces = pattern.pieces
    return len(pieces) == 3 and not pieces[0] and not pieces[2] and ANY_CHAR not in pieces[1]


def build_grams(patterns: Sequence[tuple[str, Pattern]]) -> dict[str, Grams]:
    """Return the tables of grams for each attribute."""
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
    """Return the symbols of all patterns, one pattern after the other, and where each pattern begins."""
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


_CACHE_TEXTS = 1 << 15
_CACHE_BYTES = 1 << 20
_OUTPUTS_MAX = 8
_ROOM = 64
"""Room for fitting patterns of an event, to begin with, over a batch."""


_NO_LINE = RankLine(LineKey("", LineSort.TEXT))
_TextCuts: TypeAlias = tuple[int, int, tuple[Array, ...]]
"""The slots of a line of texts and of one backwards (-1: none), and the offsets and data of both."""


class Encoded(NamedTuple):
    """A batch of events for one segment."""

    ranks: Array  # int32[events, slots]
    fit_start: Array  # int64[events + 1] where the patterns that fit each event begin
    fit: Array  # int32, those of each event in order


class Scratch:
    """Caches and buffers that one segment keeps between batches. One match uses them at a time."""

    def __init__(self, patterns: int) -> None:
        self.texts: dict[str, TextCache] = {}
        self.tried = np.zeros(max(patterns, 1), np.int64)
        self.mark = 0
        self.arrays: dict[str, Array] = {}
        self._outputs: list[Array] = []

    def array(self, name: str, length: int, dtype: Any) -> Array:
        """Return an array of at least this length, with any contents; it is the same one as long as it suffices."""
        held = self.arrays.get(name)
        if held is None or len(held) < length:
            held = self.arrays[name] = np.empty(max(length, 64) * 5 // 4, dtype)
        return held

    def output(self, length: int) -> Array:
        """Return an array of this length for results; it belongs to the holders of its parts.

        An array that nobody holds is used again.
        """
        for held in self._outputs:
            if len(held) >= length and getrefcount(held) == _UNHELD:
                return held[:length]
        made = np.empty(length, np.int32)
        if len(self._outputs) < _OUTPUTS_MAX:
            self._outputs.append(made)
        return made[:length]


class Encoder:
    """An encoder of events into ranks on the lines of one segment; a line's slot is its number."""

    def __init__(self, lines: Sequence[RankLine], grams: dict[str, Grams], patterns: int) -> None:
        self.slots = max(-(-len(lines) // 16) * 16, 16)
        self._patterns = patterns
        self._grams = grams
        self._lines: dict[str, dict[LineSort, tuple[int, RankLine]]] = {}
        self._always: list[int] = []
        for slot, line in enumerate(lines):
            if line.key.sort is LineSort.ALWAYS:
                self._always.append(slot)
            else:
                self._lines.setdefault(line.key.attribute, {})[line.key.sort] = slot, line
        for attribute in grams:
            self._lines.setdefault(attribute, {})
        self.names = tuple(self._lines)  # the attributes that matter
        self.odd_names = tuple(name for name, held in self._lines.items() if LineSort.ODD_NUMBER in held)
        self._cuts: dict[str, _TextCuts] = {}
        for attribute, of_sort in self._lines.items():
            slot, line = of_sort.get(LineSort.TEXT, (-1, _NO_LINE))
            back_slot, back_line = of_sort.get(LineSort.TEXT_BACK, (-1, _NO_LINE))
            if slot >= 0 or back_slot >= 0:
                cuts = (line.offsets, line.data, back_line.offsets, back_line.data)
                self._cuts[attribute] = slot, back_slot, tuple(map(read_only, cuts))

    def scratch(self) -> Scratch:
        return Scratch(self._patterns)

    def address_table(self, common: AddressTable, key: PartKey, flat: bool) -> AddressTable:
        """Return the address table of a segment for events with certain parts."""
        return common.of(key, self._lines, self._always, self._grams, flat)

    def encode(self, parts: ColumnParts, events: int, scratch: Scratch) -> Encoded:
        """Return the ranks of events, and the patterns that fit them."""
        ranks = scratch.array("ranks", events * self.slots, np.int32)[: events * self.slots].reshape(events, self.slots)
        ranks.fill(-1)
        for slot in self._always:
            ranks[:, slot] = 0
        starts, fit = _join(self._find(parts, ranks, scratch), events)
        if len(fit) > FEW_FITS:
            suited(sort_runs, events)(starts, fit)
        return Encoded(ranks, starts, fit)

    def _find(self, parts: ColumnParts, ranks: Array, scratch: Scratch) -> list[tuple[Array, Array]]:
        """Set the ranks line by line; return the patterns that fit by attribute."""
        fits: list[tuple[Array, Array]] = []
        for attribute, lines in self._lines.items():
            held = parts.get(attribute, ())
            presence = lines.get(LineSort.PRESENCE)
            if presence is not None:
                ranks[:, presence[0]] = 0
            for part in held:
                valid = read_only(np.ones(len(ranks), np.bool_) if part.valid is None else part.valid)
                if presence is not None:
                    ranks[valid, presence[0]] = 1
                if part.sort is PartSort.TEXT:
                    found = self._encode_text(attribute, part, valid, ranks, scratch)
                    if found is not None:
                        fits.append(found)
                else:
                    _encode_line(lines, part, valid, ranks)
        return fits

    def _encode_text(
        self,
        attribute: str,
        part: ColumnPart,
        valid: Array,
        ranks: Array,
        scratch: Scratch,
    ) -> tuple[Array, Array] | None:
        texts = _texts_of(part)
        if (cuts := self._cuts.get(attribute)) is not None:
            slot, back_slot, arrays = cuts
            cache = scratch.texts.get(attribute)
            if cache is None:
                cache = scratch.texts[attribute] = _new_cache()
            suited(text_ranks, len(valid))(*texts, valid, *arrays, cache, ranks, slot, back_slot)
        grams = self._grams.get(attribute)
        return None if grams is None else self._fitting(attribute, grams, part, valid, scratch)

    def _fitting(
        self, attribute: str, grams: Grams, part: ColumnPart, valid: Array, scratch: Scratch
    ) -> tuple[Array, Array]:
        """Return how many patterns fit each event, and which."""
        texts = _texts_of(part)
        counts = np.zeros(len(valid), np.int64)
        out = scratch.array(f"fits {attribute}", _ROOM + 4 * len(valid), np.int32)
        while True:
            mark, scratch.mark = scratch.mark, scratch.mark + len(valid)
            found = suited(fitting_patterns, len(valid))(*texts, valid, grams, scratch.tried, mark, out, counts)
            if found <= len(out):
                return counts, out[:found]
            out = scratch.array(f"fits {attribute}", found, np.int32)


def _encode_line(lines: dict[LineSort, tuple[int, RankLine]], part: ColumnPart, valid: Array, ranks: Array) -> None:
    match part.sort:
        case PartSort.BOOLEAN:
            if (found := lines.get(LineSort.BOOLEAN)) is not None:
                ranks[valid, found[0]] = part.values[valid]
        case PartSort.INSTANT:
            if (found := lines.get(LineSort.INSTANT)) is not None:
                _rank(part.values, valid, found[1].instants, ranks, found[0])
        case PartSort.FLOAT | PartSort.INTEGER | PartSort.DECIMAL | PartSort.EXACT:
            for sort in (LineSort.NUMBER, LineSort.ODD_NUMBER):
                if (found := lines.get(sort)) is not None:
                    _encode_number(part, valid, *found, ranks)


def _encode_number(part: ColumnPart, valid: Array, slot: int, line: RankLine, ranks: Array) -> None:
    if part.sort is PartSort.FLOAT:
        cuts = line.floats
        suited(double_ranks, len(valid))(
            read_only(part.values), valid, cuts.keys, cuts.cuts, cuts.grid, cuts.first, cuts.shift, cuts.least,
            cuts.scale, cuts.base, ranks, slot,
        )  # fmt: skip
    elif part.sort is PartSort.EXACT:
        for row in np.flatnonzero(valid).tolist():
            ranks[row, slot] = line.rank_exact(part.values[row])
    else:
        _rank(part.values, valid, line.scaled(part.scale), ranks, slot)


def _rank(keys: Array, valid: Array, cuts: Thresholds, ranks: Array, slot: int) -> None:
    suited(line_ranks, len(valid))(
        read_only(keys), valid, cuts.keys, cuts.cuts, cuts.grid, cuts.first, cuts.shift, cuts.base, ranks, slot
    )  # fmt: skip


def _texts_of(part: ColumnPart) -> tuple[Array, Array, Array]:
    assert part.starts is not None
    assert part.ends is not None
    return read_only(part.values), read_only(part.starts), read_only(part.ends)


def ready(parts: ColumnParts, events: int) -> ColumnParts:
    """Return the same parts as every encoder wants them, so that they are converted once for all segments."""
    every = read_only(np.ones(events, np.bool_))
    return {name: [_ready(part, every) for part in some] for name, some in parts.items()}


def _ready(part: ColumnPart, every: Array) -> ColumnPart:
    return ColumnPart(
        part.sort,
        every if part.valid is None else read_only(part.valid),
        read_only(part.values),
        None if part.starts is None else read_only(part.starts),
        None if part.ends is None else read_only(part.ends),
        part.scale,
    )


def _join(fits: list[tuple[Array, Array]], events: int) -> tuple[Array, Array]:
    """Return several attributes' fitting patterns as one run per event."""
    starts = np.zeros(events + 1, np.int64)
    if not fits:
        return starts, np.zeros(0, np.int32)
    np.cumsum(sum(counts for counts, _ in fits), out=starts[1:])
    if len(fits) == 1:
        return starts, fits[0][1]
    owner = np.concatenate([np.repeat(np.arange(events), counts) for counts, _ in fits])
    joined = np.concatenate([numbers for _, numbers in fits])
    return starts, joined[np.argsort(owner, kind="stable")]


def _new_cache() -> TextCache:
    return TextCache(np.zeros(2, np.int64), np.zeros((_CACHE_TEXTS, 4), np.uint64), np.zeros(_CACHE_BYTES, np.uint8))


def _unheld() -> int:
    """Return the references to an array that is held by one list only; versions of Python differ."""
    arrays = [np.empty(1)]
    for held in arrays:
        return getrefcount(held)
    return 0


_UNHELD = _unheld()
