"""Events as ranks: the first step of matching, for one segment."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from meetpoint.matching.index.few import Card, Key
from meetpoint.matching.index.kernels.jit import suited
from meetpoint.matching.index.kernels.patterns import FEW_FITS, Grams, fitting_patterns, sort_runs
from meetpoint.matching.index.kernels.ranks import TextCache, double_ranks, line_ranks, text_ranks
from meetpoint.matching.index.lines import Array, Line, LineKey, LineSort, Thresholds, read_only
from meetpoint.matching.tables.column_parts import Part, Parts, PartSort

__all__ = ["Encoded", "Encoder", "Scratch", "read_only", "ready"]

_CACHE_TEXTS = 1 << 15
_CACHE_BYTES = 1 << 20
_OUTPUTS_MAX = 8
_ROOM = 64
"""Room for this many fitting patterns of an event, to begin with, over a batch."""


_NO_LINE = Line(LineKey("", LineSort.TEXT))
_TextCuts: TypeAlias = tuple[int, int, tuple[Array, ...]]
"""The slots of a line of texts and of one backwards, -1 where there is none, and the offsets and data of both."""


class Encoded(NamedTuple):
    """A batch of events for one segment."""

    ranks: Array  # int32[events, slots]
    fit_start: Array  # int64[events + 1] where the patterns that fit each event begin
    fit: Array  # int32, those of each event in order


class Scratch:
    """What is kept between batches of one segment: caches and buffers. One match uses it at a time."""

    def __init__(self, patterns: int) -> None:
        self.texts: dict[str, TextCache] = {}
        self.tried = np.zeros(max(patterns, 1), np.int64)
        self.mark = 0
        self.arrays: dict[str, Array] = {}
        self._outputs: list[Array] = []

    def array(self, name: str, length: int, dtype: Any) -> Array:
        """An array of at least this length, whose contents mean nothing; the same one as long as it suffices."""
        held = self.arrays.get(name)
        if held is None or len(held) < length:
            held = self.arrays[name] = np.empty(max(length, 64) * 5 // 4, dtype)
        return held

    def output(self, length: int) -> Array:
        """An array of this length for results, which belongs to whoever holds a part of it.

        One that nobody holds is used again.
        """
        for held in self._outputs:
            if len(held) >= length and getrefcount(held) == _UNHELD:
                return held[:length]
        made = np.empty(length, np.int32)
        if len(self._outputs) < _OUTPUTS_MAX:
            self._outputs.append(made)
        return made[:length]


class Encoder:
    """Turns events into ranks on the lines of one segment; a line's slot is its number."""

    def __init__(self, lines: Sequence[Line], grams: dict[str, Grams], patterns: int) -> None:
        self.slots = max(-(-len(lines) // 16) * 16, 16)
        self._patterns = patterns
        self._grams = grams
        self._lines: dict[str, dict[LineSort, tuple[int, Line]]] = {}
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

    def card(self, plain: Card, key: Key, hurried: bool) -> Card:
        """The card of a segment for events with certain parts."""
        return plain.of(key, self._lines, self._always, self._grams, hurried)

    def encode(self, parts: Parts, events: int, scratch: Scratch) -> Encoded:
        """The ranks of events, and the patterns that fit them."""
        ranks = scratch.array("ranks", events * self.slots, np.int32)[: events * self.slots].reshape(events, self.slots)
        ranks.fill(-1)
        for slot in self._always:
            ranks[:, slot] = 0
        starts, fit = _join(self._find(parts, ranks, scratch), events)
        if len(fit) > FEW_FITS:
            suited(sort_runs, events)(starts, fit)
        return Encoded(ranks, starts, fit)

    def _find(self, parts: Parts, ranks: Array, scratch: Scratch) -> list[tuple[Array, Array]]:
        """Ranks line by line; the patterns that fit by attribute."""
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
        part: Part,
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

    def _fitting(self, attribute: str, grams: Grams, part: Part, valid: Array, scratch: Scratch) -> tuple[Array, Array]:
        """How many patterns fit each event, and which."""
        texts = _texts_of(part)
        counts = np.zeros(len(valid), np.int64)
        out = scratch.array(f"fits {attribute}", _ROOM + 4 * len(valid), np.int32)
        while True:
            mark, scratch.mark = scratch.mark, scratch.mark + len(valid)
            found = suited(fitting_patterns, len(valid))(*texts, valid, grams, scratch.tried, mark, out, counts)
            if found <= len(out):
                return counts, out[:found]
            out = scratch.array(f"fits {attribute}", found, np.int32)


def _encode_line(lines: dict[LineSort, tuple[int, Line]], part: Part, valid: Array, ranks: Array) -> None:
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


def _encode_number(part: Part, valid: Array, slot: int, line: Line, ranks: Array) -> None:
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


def _texts_of(part: Part) -> tuple[Array, Array, Array]:
    assert part.starts is not None
    assert part.ends is not None
    return read_only(part.values), read_only(part.starts), read_only(part.ends)


def ready(parts: Parts, events: int) -> Parts:
    """The same parts as every encoder wants them, so that not each of several segments has to see to it."""
    every = read_only(np.ones(events, np.bool_))
    return {name: [_ready(part, every) for part in some] for name, some in parts.items()}


def _ready(part: Part, every: Array) -> Part:
    return Part(
        part.sort,
        every if part.valid is None else read_only(part.valid),
        read_only(part.values),
        None if part.starts is None else read_only(part.starts),
        None if part.ends is None else read_only(part.ends),
        part.scale,
    )


def _join(fits: list[tuple[Array, Array]], events: int) -> tuple[Array, Array]:
    """Several attributes' fitting patterns as one run per event."""
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
    """References to an array in a list, and nowhere else, while a loop looks at it: versions of Python differ."""
    arrays = [np.empty(1)]
    for held in arrays:
        return getrefcount(held)
    return 0


_UNHELD = _unheld()
