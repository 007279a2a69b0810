"""What there is to match against at one moment: compiled segments, and filters that are not compiled yet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib.util import find_spec
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.errors import MeetpointError, SetupError
from meetpoint.language.filters.filter import Filter
from meetpoint.matching.index.arrays import arrow_bits
from meetpoint.matching.tables.prepared_columns import WORD

if TYPE_CHECKING:
    from meetpoint.matching.index.events import EventBatch
    from meetpoint.matching.index.few import Found, Together
    from meetpoint.matching.index.segment import Segment

__all__ = [
    "LINES_MAX",
    "PATHS",
    "PATH_VARIABLE",
    "Arrivals",
    "Held",
    "Pairs",
    "State",
    "Young",
    "arrow_ids",
    "can_compile",
    "checked_path",
    "ids_at",
    "ids_by_event",
    "joined",
    "joined_ids",
    "match_parts",
    "need_compiler",
    "one_column",
    "orders_of",
    "to_join",
    "to_merge",
    "young_ids",
]

Array = Any
LINES_MAX = 1 << 16
"""Lines of segments up to which they are merged."""

PATHS = ("auto", "avx512", "portable")
PATH_VARIABLE = "MEETPOINT_KERNEL"
_RANKS_MAX = 1 << 22
"""Ranks of a batch of events."""
_JOINED = 24
_JOINED_MAX = 1 << 15
"""Segments compiled in a hurry that are joined, and their subscriptions up to which they are."""
_SOME_IDS = 1 << 14
_DEAD_PART = 0.2
"""The part of a segment that is gone from which on it is compiled anew."""


class Pairs(msgspec.Struct, frozen=True):
    """Some matches: row numbers of events, and numbers of subscriptions within `ids`, pair by pair."""

    events: Array  # int32
    subscriptions: Array  # int32
    ids: Any  # the ids of a segment's subscriptions, by number

    def table(self) -> pa.Table:
        """The pairs as columns event and subscription; ids are a dictionary."""
        column = pa.DictionaryArray.from_arrays(pa.array(self.subscriptions), arrow_ids(self.ids))
        return pa.table({"event": pa.array(self.events), "subscription": column})


class Held(msgspec.Struct, frozen=True, dict=True):
    """A segment, whose subscriptions it has, and a bit for each of them that is gone."""

    segment: Segment
    ids: Any
    serials: Array  # ascending
    orders: Array | None  # when the id was first added; None: the same as the serials
    dead: Array
    dead_count: int = 0
    plain: Array | None = None  # int64: the ids, if they are such integers

    @staticmethod
    def of(segment: Segment, ids: Any, serials: Array, orders: Array | None, plain: Array | None = None) -> Held:
        if orders is not None and np.array_equal(orders, serials):
            orders = None
        dead = np.zeros(len(serials) // 8 + 1, np.uint8)
        return Held(segment, ids, serials, orders, dead, plain=_plain(ids) if plain is None else plain)

    def __len__(self) -> int:
        return len(self.serials) - self.dead_count

    def without(self, numbers: Array) -> Held:
        """The same with some subscriptions gone."""
        _load_drop_dead()
        dead = self.dead.copy()
        np.bitwise_or.at(dead, numbers >> 3, np.left_shift(1, numbers & 7).astype(np.uint8))
        return msgspec.structs.replace(self, dead=dead, dead_count=self.dead_count + len(numbers))

    @property
    def first_added(self) -> Array:
        """The orders in any case."""
        return self.serials if self.orders is None else self.orders

    @cached_property
    def own_places(self) -> list[int]:
        """What a card has of this beside the segment: where the dead, the orders and the ids are."""
        places: list[int] = []
        for array in (self.dead if self.dead_count else None, self.first_added, self.plain):
            places += (0, 0) if array is None else (array.ctypes.data, len(array))
        return places

    @property
    def gone(self) -> Array:
        """Which subscriptions are gone."""
        bits: Array = np.unpackbits(self.dead, count=len(self.serials), bitorder="little").astype(np.bool_)
        return bits

    @property
    def nbytes(self) -> int:
        ids = self.ids.nbytes if isinstance(self.ids, pa.Array) else 8 * len(self.ids)
        ids += 0 if self.plain is None or isinstance(self.ids, pa.Array) else self.plain.nbytes
        orders = 0 if self.orders is None else self.orders.nbytes
        return int(self.segment.nbytes + ids + orders + self.serials.nbytes + self.dead.nbytes)


def _plain(ids: Any) -> Array | None:
    """Ids as an array, if they are integers of 64 bits; some at a time, so that other threads get their turn."""
    if isinstance(ids, pa.Array):
        return np.asarray(ids) if ids.type == pa.int64() and not ids.null_count else None
    arrays: list[Array] = []
    for at in range(0, len(ids), _SOME_IDS):
        some = ids[at : at + _SOME_IDS]
        if set(map(type, some)) != {int} or min(some) < WORD[0] or max(some) > WORD[1]:
            return None
        arrays.append(np.array(some, np.int64))
    return joined(arrays)


@cache
def _load_drop_dead() -> None:
    """Load the code that is first needed when a subscription has gone: here, and not in the next match."""
    from meetpoint.matching.index.kernels.results import drop_dead

    drop_dead(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.uint8))


class Young(msgspec.Struct, frozen=True):
    """A subscription that is not compiled yet."""

    id: Any
    serial: int
    order: int
    filter: Filter


class Arrivals(NamedTuple):
    """Subscriptions to be compiled, as columns: there may be many."""

    ids: list[Any]
    filters: list[Filter]
    serials: Array  # int64
    orders: Array

    @staticmethod
    def of(young: Sequence[Young]) -> Arrivals:
        return Arrivals(
            [y.id for y in young],
            [y.filter for y in young],
            np.array([y.serial for y in young], np.int64),
            np.array([y.order for y in young], np.int64),
        )

    def after(self, young: Sequence[Young]) -> Arrivals:
        """The same behind some that came before."""
        if not young:
            return self
        first = Arrivals.of(young)
        serials, orders = np.concatenate([first.serials, self.serials]), np.concatenate([first.orders, self.orders])
        return Arrivals(first.ids + self.ids, first.filters + self.filters, serials, orders)

    def young(self) -> Iterator[Young]:
        return map(Young, self.ids, self.serials.tolist(), self.orders.tolist(), self.filters)


class State(msgspec.Struct, frozen=True, dict=True):
    """What there is to match against at one moment."""

    held: tuple[Held, ...] = ()
    young: tuple[Young, ...] = ()

    @cached_property
    def together(self) -> Together:
        """All segments, for a few events at a time."""
        from meetpoint.matching.index.few import Together

        return Together(self.held)

    def prepare_as(self, before: State) -> None:
        """Make now what those who match single events made of the state before: nobody should wait for it then."""
        if self.held and "together" in before.__dict__:
            self.together.prepare_as(before.together)

    def batch(self, wanted: int) -> int:
        """How many events to match at a time: fewer where each has thousands of ranks."""
        slots = max((held.segment.encoder.slots for held in self.held), default=0)
        return min(wanted, max(_RANKS_MAX // slots, 32)) if slots else wanted


def joined(arrays: list[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate([np.zeros(0, np.int64), *arrays])


def orders_of(state: State, part: int) -> Array:
    """When the subscriptions of a part of a state, the young ones last, were first added."""
    if part == len(state.held):
        return np.array([y.order for y in state.young], np.int64)
    return state.held[part].first_added


def ids_by_event(state: State, some: EventBatch, path: str) -> list[list[Any]]:
    """The ids of the matches of each event of a batch, in the order in which they were first added."""
    only = some.only
    if only is not None and some.good is None:
        if not state.held:  # the young alone, which column by column take longer
            return [[y.id for y in sorted(_young_of_one(state, only), key=attrgetter("order"))]]
        few = _match_few(state, some, path)
        if few is not None:
            return [_ids_of_one(state, few, only)]
    parts = list(match_parts(state, some, path))
    of = joined([pairs.events - np.int32(some.first) for _, pairs in parts])
    orders = joined([orders_of(state, at)[pairs.subscriptions] for at, pairs in parts])
    found: list[Any] = []
    for _, pairs in parts:
        found += ids_at(pairs.ids, pairs.subscriptions)
    ids = list(map(found.__getitem__, np.lexsort((orders, of)).tolist()))
    ends = np.cumsum(np.bincount(of, minlength=some.events)).tolist()
    return [ids[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _ids_of_one(state: State, few: Found, attributes: Mapping[str, object]) -> list[Any]:
    """The ids of the matches of one event: those in segments, and the young."""
    young = _young_of_one(state, attributes)
    if not young and len(few.ids) == len(few.numbers):
        in_order: list[Any] = few.ids[np.argsort(few.orders)].tolist()
        return in_order
    found: list[tuple[int, Any]] = [(y.order, y.id) for y in young]
    for held, begin, end in zip(state.held, [0, *few.ends], few.ends, strict=False):
        if begin < end:
            found += zip(few.orders[begin:end].tolist(), ids_at(held.ids, few.numbers[begin:end]), strict=True)
    return [id_ for _, id_ in sorted(found, key=itemgetter(0))]


def _young_of_one(state: State, attributes: Mapping[str, object]) -> list[Young]:
    return [y for y in state.young if y.filter.accepts(attributes)]


def match_parts(state: State, some: EventBatch, path: str) -> Iterator[tuple[int, Pairs]]:
    """The matches of one batch with each part of a state, the young ones last."""
    for at, pairs in _match_all(state, some, path):
        if some.good is None:
            yield at, pairs
        else:  # a row that is no event has no attributes, which some filters accept
            kept = some.good[pairs.events - some.first]
            yield at, Pairs(pairs.events[kept], pairs.subscriptions[kept], pairs.ids)


def _match_all(state: State, some: EventBatch, path: str) -> Iterator[tuple[int, Pairs]]:
    if state.held:
        from meetpoint.matching.index.kernels.jit import FEW_EVENTS

        few = _match_few(state, some, path) if some.events < FEW_EVENTS else None
        if few is None:
            yield from _match_many(state, some, path)
        else:
            for at, (held, begin, end) in enumerate(zip(state.held, [0, *few.ends], few.ends, strict=False)):
                if begin < end:
                    yield at, Pairs(few.events[begin:end], few.numbers[begin:end], held.ids)
    if state.young:
        columns = some.columns
        accepted = [columns.accepted(y.filter) for y in state.young]
        numbers = np.repeat(np.arange(len(accepted), dtype=np.int32), [len(rows) for rows in accepted])
        if len(numbers):
            events = np.concatenate(accepted).astype(np.int32) + np.int32(some.first)
            yield len(state.held), Pairs(events, numbers, [y.id for y in state.young])


def _match_few(state: State, some: EventBatch, path: str) -> Found | None:
    """The matches of a few events with all segments by one call; None where that cannot be."""
    from meetpoint.matching.index.few import Few, match_few

    together = state.together
    few = None if some.only is None else Few.of_one(some.only, together)
    if few is None:
        few = Few.of(some.parts(name for name, _ in together.paths), some.events)
    return None if few is None else match_few(together, few, some.first, _use_vectors(path))


def _match_many(state: State, some: EventBatch, path: str) -> Iterator[tuple[int, Pairs]]:
    from meetpoint.matching.index.encode import ready
    from meetpoint.matching.index.kernels.jit import suited
    from meetpoint.matching.index.kernels.results import drop_dead

    vector = _use_vectors(path)
    parts = ready(some.parts(name for name, _ in state.together.paths), some.events)
    for at, held in enumerate(state.held):
        for found in held.segment.match(parts, some.events, some.first, vector):
            kept = len(found.numbers)
            if held.dead_count:
                kept = suited(drop_dead, some.events)(found.numbers, found.events, held.dead)
            if kept:
                yield at, Pairs(found.events[:kept], found.numbers[:kept], held.ids)


def checked_path(path: str) -> str:
    """The path that is asked for, by the caller or the environment."""
    if path not in PATHS:
        raise MeetpointError(f"path is {path!r}; use {', '.join(PATHS)}")
    if path == "auto":
        path = os.environ.get(PATH_VARIABLE, "auto")
        if path not in PATHS:
            raise SetupError(f"{PATH_VARIABLE} is {path!r}; use {', '.join(PATHS)}, or unset it")
    return path


def _use_vectors(path: str) -> bool:
    from meetpoint.matching.index.kernels.simd import has_avx512

    if path == "avx512" and not has_avx512():
        raise SetupError("this processor has no AVX-512; use the path auto or portable")
    return path != "portable" and has_avx512()


@cache
def can_compile() -> bool:
    """Whether there is a compiler; without one every filter is tried on every event, column by column."""
    return find_spec("numba") is not None


def need_compiler() -> None:
    if not can_compile():
        raise SetupError("numba is not installed, which compiles the index; run: pip install 'meetpoint[fast]'")


def to_join(held: tuple[Held, ...], busy: frozenset[int]) -> tuple[Held, ...]:
    """Which of the youngest segments to join in a hurry: those like the last or smaller, once they are a few.

    To join them is a fifth of the work of compiling, and whoever matches one event takes no longer for one that is
    eight times as large. Those that are `busy` are being merged already.
    """
    run: list[Held] = []
    total = lines = 0
    for one in reversed(held):
        total += len(one)
        lines += len(one.segment.rows.lines)
        alike = len(one) < _JOINED * max(len(held[-1]), 1)
        if not (one.segment.flat and alike and total <= _JOINED_MAX and lines < LINES_MAX) or id(one.segment) in busy:
            break
        run.append(one)
    return tuple(reversed(run)) if len(run) >= _JOINED else ()


def to_merge(held: tuple[Held, ...]) -> tuple[Held, ...]:
    """Which neighbours to merge: all from the oldest on that was compiled in a hurry or that the younger ones outweigh.

    As many as a segment has lines for. Then whatever has lost a good part of its subscriptions.
    """
    begin = len(held)
    younger = 0
    for at in range(len(held) - 1, -1, -1):
        if held[at].segment.flat or len(held[at]) <= younger:
            begin = at
        younger += len(held[at])
    chosen = held[begin:]
    while sum(len(one.segment.rows.lines) for one in chosen) > LINES_MAX:
        chosen = chosen[1:]
    if len(chosen) > 1 or (chosen and chosen[0].segment.flat):
        return chosen
    worn = next((one for one in held if one.dead_count > _DEAD_PART * len(one.serials)), None)
    return () if worn is None else (worn,)


def joined_ids(ids: list[Any], kept: list[Array]) -> Any:
    if all(isinstance(some, pa.Array) for some in ids) and len({some.type for some in ids}) == 1:
        return pa.concat_arrays([some.filter(arrow_bits(k)) for some, k in zip(ids, kept, strict=True)])
    joined: list[Any] = []
    for some, k in zip(ids, kept, strict=True):
        joined += ids_at(some, np.flatnonzero(k))
    return joined


def ids_at(ids: Any, numbers: Array) -> list[Any]:
    if isinstance(ids, pa.Array):
        if pa.types.is_integer(ids.type) and ids.null_count == 0:
            return np.asarray(ids)[numbers].tolist()  # type: ignore[no-any-return]
        return ids.take(pa.array(numbers)).to_pylist()  # type: ignore[no-any-return]
    return list(map(ids.__getitem__, numbers.tolist()))


def arrow_ids(ids: Any) -> pa.Array:
    """Ids as a column; MeetpointError where no type of Arrow holds all of them as they are."""
    if isinstance(ids, pa.Array):
        return ids
    try:
        array = pa.array(ids)
        if array.to_pylist() == list(ids):
            return array
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    raise MeetpointError(
        "the ids of the subscriptions are of different types, or of one that Arrow does not have; "
        "make all of them strings, or all integers of 64 bits"
    )


def one_column(arrays: list[pa.Array]) -> pa.Array:
    """Columns of ids as one."""
    if len({array.type for array in arrays}) > 1:
        raise MeetpointError(
            "the ids of the subscriptions are of different types; make all of them strings, or integers"
        )
    return pa.concat_arrays(arrays)


def young_ids(state: State) -> list[pa.Array]:
    if state.held and not state.young:
        return []
    return [arrow_ids([y.id for y in state.young])]
