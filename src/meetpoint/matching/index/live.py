"""The index: subscriptions that come and go while events are matched.

Filters wait in a short list, where every one of them is tried, until there are enough to compile a segment: in a hurry,
if there are others already. Segments are never changed: a subscription that goes leaves a mark by which its matches are
dropped, and a thread in the background merges segments so that there are few, the larger ones older, the marked ones
gone, and all compiled well. Whoever matches takes the list of segments as it is at that moment, and never waits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from time import sleep
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.errors import EventError, MeetpointError, SchemaError
from meetpoint.language.filters.filter import Filter
from meetpoint.language.schema.schema import Schema
from meetpoint.matching.index.events import JsonEvents
from meetpoint.matching.index.serials import Serials
from meetpoint.matching.index.state import (
    LINES_MAX,
    Arrivals,
    Held,
    Pairs,
    State,
    Young,
    arrow_ids,
    can_compile,
    checked_path,
    ids_at,
    ids_by_event,
    joined,
    joined_ids,
    match_parts,
    need_compiler,
    one_column,
    orders_of,
    to_join,
    to_merge,
    young_ids,
)
from meetpoint.matching.tables.column_match import Columns

if TYPE_CHECKING:
    from meetpoint.matching.index.segment import Sample, Segment

__all__ = ["Index"]

Id = TypeVar("Id", bound=Hashable)
Array = Any

BATCH = 10_240
"""Events that are matched at a time: the more, the more of them meet a bucket; their ranks should stay in a cache."""
SMALL = 256
"""Subscriptions up to which nothing is compiled; `WAITING` where something already is."""
WAITING = 64
HURRIED = 8192
"""Subscriptions up to which a segment is compiled in a hurry where there are others."""
_BREATH = 2048
"""Subscriptions after which other threads get their turn."""
_PATIENCE_S = 0.25
_PATIENT_TIMES = 8
"""How long the thread in the background waits for more to merge, and how often while there are changes."""


class Index(Generic[Id]):
    """A Matcher for millions of subscriptions.

    It files each under the constraint that the fewest events satisfy: `sample` are events like those to come, as for
    `pairs`, by which it tells; a `schema` with bounds helps where there are none.
    """

    def __init__(self, *, sample: Any = None, schema: Schema | None = None) -> None:
        if schema is not None and not isinstance(schema, Schema):
            raise SchemaError(f"schema: given an object of class {type(schema).__name__}; give a Schema")
        if isinstance(sample, str | bytes | Mapping) or not (sample is None or isinstance(sample, _SAMPLES)):
            given = f"an object of class {type(sample).__name__}"
            raise EventError(f"sample: given {given}; give events: a table, batches, a list of rows, or JsonEvents")
        self._sample_source = sample
        self._schema = schema
        self._sample: Sample | None = None
        self._state = State()
        self._serials: Serials | None = Serials()
        self._next_serial = 0
        self._write = threading.RLock()
        self._merger: threading.Thread | None = None
        self._merging: frozenset[int] = frozenset()
        self._hurry = threading.Event()
        self._failure: BaseException | None = None

    # -- making and keeping --------------------------------------------------------------------------------------------

    @staticmethod
    def from_filters(
        filters: Iterable[tuple[Id, Filter]], *, sample: Any = None, schema: Schema | None = None
    ) -> Index[Id]:
        """An index of parsed filters under their ids."""
        index: Index[Id] = Index(sample=sample, schema=schema)
        index.add_many(filters)
        return index

    @staticmethod
    def from_columns(table: pa.Table, *, sample: Any = None) -> Index[Any]:
        """An index of constraints in columns: see `longform.gather_columns`."""
        need_compiler()
        from meetpoint.matching.index.compile.longform import gather_columns

        index: Index[Any] = Index(sample=sample)
        rows, ids = gather_columns(table)
        serials = np.arange(rows.subscriptions)
        index._next_serial = rows.subscriptions
        index._serials = None
        index._state = State((Held.of(index._compile(rows), ids, serials, None),)) if len(ids) else State()
        return index

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file from which `open` maps the index; everything is merged first."""
        need_compiler()
        from meetpoint.matching.index.storage import save

        state, sample = self._settled(compiled=True)
        save(os.fspath(path), [(h.segment, h.ids, h.serials, h.orders) for h in state.held], sample)

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Index[Any]:
        """A saved index, mapped from its file: processes share one copy. It may be changed; the file is not."""
        need_compiler()
        from meetpoint.matching.index.storage import load

        index: Index[Any] = Index()
        held, index._sample = load(os.fspath(path))
        index._state = State(tuple(Held.of(*parts) for parts in held))
        index._next_serial = max((int(h.serials[-1]) for h in index._state.held), default=-1) + 1
        index._serials = None
        return index

    def compact(self) -> None:
        """Merge everything now, and leave no trace of what was removed. Waits for what runs in the background."""
        self._settled(compiled=False)

    def _settled(self, *, compiled: bool) -> tuple[State, Sample | None]:
        """The state at one moment, in one segment; what is not compiled yet is, if that is wanted."""
        while True:
            self._wait()
            with self._write:
                if self._merger is not None and self._merger.is_alive():
                    continue  # another merge began meanwhile
                if compiled and self._state.young:
                    self._state = State((*self._state.held, self._compile_some(Arrivals.of(self._state.young))))
                held = self._state.held
                if len(held) > 1 or any(h.dead_count or h.segment.flat for h in held):
                    self._merge(held)
                return self._state, self._sampled() if compiled else None

    def _wait(self) -> None:
        merger = self._merger
        if merger is not None and merger is not threading.current_thread():
            self._hurry.set()
            merger.join()
            self._hurry.clear()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    @property
    def nbytes(self) -> int:
        """Bytes of all that is compiled."""
        return sum(held.nbytes for held in self._state.held)

    @property
    def segments(self) -> int:
        """How many compiled parts there are at the moment."""
        return len(self._state.held)

    def __len__(self) -> int:
        state = self._state
        return sum(map(len, state.held)) + len(state.young)

    def __contains__(self, id_: object) -> bool:
        with self._write:
            return id_ in self._known()

    # -- change --------------------------------------------------------------------------------------------------------

    def add(self, subscription: Id, filter_: Filter) -> None:
        """Hold a filter under a new id; KeyError where the id is taken."""
        self.add_many([(subscription, filter_)])

    def add_many(self, filters: Iterable[tuple[Id, Filter]]) -> None:
        """The same for many: all of them, or none where one of the ids is taken."""
        ids, forms = _checked_filters(filters)
        with self._write:
            known = self._known()
            serials = self._numbered(len(ids))
            if not known.add(ids, serials):
                raise KeyError(
                    f"subscription {known.first_wrong(ids, known=True)!r} is held already; update it instead"
                )
            try:
                self._publish(self._with(self._state, Arrivals(ids, forms, serials, serials)))
            except BaseException:
                known.forget(ids, cast(list[int], known.places(ids)))
                raise

    def remove(self, subscription: Id) -> None:
        """Forget an id; KeyError where it is unknown."""
        self.remove_many([subscription])

    def remove_many(self, subscriptions: Iterable[Id]) -> None:
        """The same for many: all of them, or none where one is unknown or named twice."""
        ids = list(subscriptions)
        with self._write:
            state, _, places = self._without(self._state, ids, "")
            self._publish(state)
            self._known().forget(ids, places.tolist())

    def update(self, subscription: Id, filter_: Filter) -> None:
        """Replace the filter of a known id; KeyError where it is unknown."""
        self.update_many([(subscription, filter_)])

    def update_many(self, filters: Iterable[tuple[Id, Filter]]) -> None:
        """The same for many. Whoever matches sees the old filters or the new ones, never none and never both."""
        ids, forms = _checked_filters(filters)
        with self._write:
            state, orders, places = self._without(self._state, ids, "; add it first")
            serials = self._numbered(len(ids))
            self._publish(self._with(state, Arrivals(ids, forms, serials, orders)))
            self._known().put(places, serials)

    def _numbered(self, count: int) -> Array:
        first = self._next_serial
        self._next_serial += count
        return np.arange(first, first + count)

    def _known(self) -> Serials:
        """The serial of each id; made when it is first asked for, a little at a time, since other threads match."""
        if self._serials is None:
            known = Serials()
            for held in self._state.held:
                for at in range(0, len(held.serials), _BREATH):
                    ids = held.ids[at : at + _BREATH]
                    serials = held.serials[at : at + _BREATH]
                    known.add(ids.to_pylist() if isinstance(ids, pa.Array) else ids, serials)
                    sleep(0)
            self._serials = known
        return self._serials

    def _with(self, state: State, more: Arrivals) -> State:
        """A state with more subscriptions, compiled if they are many."""
        waiting = len(state.young) + len(more.ids)
        if waiting <= (WAITING if state.held else SMALL) or not can_compile():
            return msgspec.structs.replace(state, young=(*state.young, *more.young()))
        some = more.after(state.young)
        held = (*state.held, self._compile_some(some, hurried=bool(state.held) and waiting <= HURRIED))
        while few := to_join(held, self._merging):  # there are threads that match, and each segment takes their time
            one = self._merged(few, [~h.gone for h in few], hurried=True)
            held = held[: -len(few)] if one is None else (*held[: -len(few)], one)
        return State(held)

    def _without(self, state: State, ids: list[Id], hint: str) -> tuple[State, Array, Array]:
        """A state with some subscriptions gone, when those were first added, and the places of their ids."""
        known = self._known()
        found = known.places(ids)
        if None in found or len(set(found)) < len(found):
            id_ = known.first_wrong(ids, known=False)
            raise KeyError(f"subscription {id_!r} is {'named twice' if id_ in known else f'not held{hint}'}")
        places = np.array(found, np.int64)
        wanted = known.at(places)
        orders = np.zeros(len(ids), np.int64)
        young: list[Young] = []
        place_of = {serial: at for at, serial in enumerate(wanted.tolist())} if state.young else {}
        for one in state.young:
            if one.serial in place_of:
                orders[place_of[one.serial]] = one.order
            else:
                young.append(one)
        by_serial = np.argsort(wanted)
        rising = wanted[by_serial]
        held: list[Held] = []
        begins = np.searchsorted(rising, [part.serials[0] for part in state.held]).tolist()
        ends = np.searchsorted(rising, [part.serials[-1] for part in state.held], "right").tolist()
        for part, begin, end in zip(state.held, begins, ends, strict=True):
            if begin < end:
                numbers = np.searchsorted(part.serials, rising[begin:end])
                found_here = part.serials[numbers] == rising[begin:end]
                numbers = numbers[found_here]
                orders[by_serial[begin:end][found_here]] = part.first_added[numbers]
                part = part.without(numbers) if len(numbers) else part
            if len(part):
                held.append(part)
        return State(tuple(held), tuple(young)), orders, places

    def _publish(self, state: State) -> None:
        state.prepare_as(self._state)
        self._state = state
        running = self._merger is not None and self._merger.is_alive()  # a fork has no threads but one
        if not running and to_merge(state.held):
            # no daemon: Python ends such threads in the middle of Arrow's code, which then ends the process
            self._merger = threading.Thread(target=self._merge_in_background, name="meetpoint-merge")
            self._merger.start()

    # -- compiling and merging -----------------------------------------------------------------------------------------

    def _compile(self, rows: Any) -> Segment:
        need_compiler()
        from meetpoint.matching.index.segment import Segment

        return Segment.of_rows(rows, self._sampled())

    def _compile_some(self, some: Arrivals, *, hurried: bool = False) -> Held:
        from meetpoint.matching.index.compile.gather import gather
        from meetpoint.matching.index.segment import Segment

        rows = gather(some.filters)
        segment = Segment.flat_of(rows) if hurried and len(rows.lines) < LINES_MAX else self._compile(rows)
        return Held.of(segment, some.ids, some.serials, some.orders)

    def _sampled(self) -> Sample | None:
        from meetpoint.matching.index.events import guess_of, sample_of

        if self._sample_source is not None:
            self._sample, self._sample_source = sample_of(self._sample_source), None
        if self._sample is None and self._schema is not None:
            self._sample = guess_of(self._schema)
        return self._sample

    def _merge_in_background(self) -> None:
        try:
            while True:
                self._wait_for_quiet()
                with self._write:
                    some = to_merge(self._state.held)
                    self._merging = frozenset(id(held.segment) for held in some)
                    if not some or not threading.main_thread().is_alive():  # where it has ended, so does the process
                        self._merger = None
                        return
                self._merge(some)
        except BaseException as error:  # told to whoever compacts or saves next; matching goes on without the merge
            with self._write:
                self._failure, self._merger, self._merging = error, None, frozenset()

    def _wait_for_quiet(self) -> None:
        """A merge takes time from those who change and match, so it waits for the end of a burst, but not forever."""
        for _ in range(_PATIENT_TIMES):
            state = self._state
            if self._hurry.wait(_PATIENCE_S) or state is self._state:
                return

    def _merged(self, some: tuple[Held, ...], kept: list[Array], *, hurried: bool = False) -> Held | None:
        """Those that are kept of neighbouring segments as one, compiled well or in a hurry; None for none."""
        from meetpoint.matching.index.compile.rows import keep, merge
        from meetpoint.matching.index.segment import Segment

        if not any(k.any() for k in kept):
            return None
        pairs = list(zip(some, kept, strict=True))
        rows = merge([keep(h.segment.rows.unpacked(), k) for h, k in pairs])
        segment = Segment.flat_of(rows) if hurried else self._compile(rows)
        serials = np.concatenate([h.serials[k] for h, k in pairs])
        orders = np.concatenate([h.first_added[k] for h, k in pairs])
        plain = [h.plain[k] for h, k in pairs if h.plain is not None]
        ids = joined_ids([h.ids for h in some], kept)
        return Held.of(segment, ids, serials, orders, joined(plain) if len(plain) == len(pairs) else None)

    def _merge(self, some: tuple[Held, ...]) -> None:
        """Replace neighbouring segments by one that holds what is left of them."""
        kept = [~held.gone for held in some]
        merged = self._merged(some, kept)
        with self._write:
            now = {id(h.segment): h for h in self._state.held}
            if merged is not None:  # some of it may have gone meanwhile
                gone = [
                    now[id(h.segment)].gone[k] if id(h.segment) in now else k[k]
                    for h, k in zip(some, kept, strict=True)
                ]
                numbers = np.flatnonzero(np.concatenate(gone))
                merged = merged.without(numbers) if len(numbers) else merged
            replaced = {id(h.segment) for h in some}
            held: list[Held] = []
            for one in self._state.held:
                if id(one.segment) not in replaced:
                    held.append(one)
                elif merged is not None:
                    held.append(merged)
                    merged = None
            state = msgspec.structs.replace(self._state, held=tuple(h for h in held if len(h)))
            state.prepare_as(self._state)
            self._state = state
            self._merging = frozenset()

    # -- matching ------------------------------------------------------------------------------------------------------

    def pairs(self, events: Any, *, path: str = "auto", batch: int = BATCH) -> Iterator[Pairs]:
        """All matches of events, some at a time, in no particular order within a batch of events.

        Events are an Arrow table, batch or reader, rows of clean attributes, or `JsonEvents`.
        """
        from meetpoint.matching.index.events import batches_of

        state = self._state
        path = checked_path(path)
        for some in batches_of(events, state.batch(batch)):
            for _, pairs in match_parts(state, some, path):
                yield pairs

    def match(self, attributes: Mapping[str, object]) -> list[Id]:
        """The ids of all filters that accept one event, in the order in which they were first added."""
        if not isinstance(attributes, Mapping):
            raise EventError(f"event: given an object of class {type(attributes).__name__}; give a dict of attributes")
        return self.match_batch([attributes])[0]

    def match_batch(self, events: Iterable[Mapping[str, object]]) -> list[list[Id]]:
        """The same for each of several events, in their order."""
        from meetpoint.matching.index.events import batches_of

        state = self._state
        path = checked_path("auto")
        answers: list[list[Id]] = []
        for some in batches_of(list(events), state.batch(BATCH)):
            answers += ids_by_event(state, some, path)
        return answers

    def match_columns(self, columns: Columns) -> tuple[Array, Array]:
        """Row numbers and ids, which must be integers, of all matches of one batch: by row, and by order of adding."""
        from meetpoint.matching.index.events import EventBatch

        state = self._state
        found = list(match_parts(state, EventBatch(0, columns), checked_path("auto")))
        rows = joined([pairs.events for _, pairs in found]).astype(np.int64)
        orders = joined([orders_of(state, at)[pairs.subscriptions] for at, pairs in found])
        ids = joined([np.asarray(ids_at(pairs.ids, pairs.subscriptions), np.int64) for _, pairs in found])
        in_order = np.lexsort((orders, rows))
        return rows[in_order], ids[in_order]

    def table(self, events: Any, *, path: str = "auto") -> pa.Table:
        """All matches as one table with the columns event (row numbers) and subscription (ids)."""
        tables = [pairs.table() for pairs in self.pairs(events, path=path)]
        if not tables:
            return pa.table({"event": pa.array([], pa.int32()), "subscription": pa.array([], pa.null())})
        one_column([table["subscription"].chunk(0).dictionary[:0] for table in tables])
        return pa.concat_tables(tables).unify_dictionaries()

    def lists(self, events: Any, *, path: str = "auto") -> pa.ChunkedArray:
        """For each event the list of ids that match it, in no particular order; ids are a dictionary."""
        from meetpoint.matching.index.events import batches_of

        state, path = self._state, checked_path(path)
        ids = one_column([arrow_ids(held.ids) for held in state.held] + young_ids(state))
        firsts = np.cumsum([0, *(len(held.serials) for held in state.held)])
        chunks: list[pa.Array] = []
        for some in batches_of(events, state.batch(BATCH)):
            found = [(p.events, p.subscriptions + firsts[at]) for at, p in match_parts(state, some, path)]
            of = joined([e - np.int32(some.first) for e, _ in found])
            order = np.argsort(of, kind="stable")
            numbers = joined([n for _, n in found])[order].astype(np.int32)
            starts = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=some.events))])
            values = pa.DictionaryArray.from_arrays(pa.array(numbers), ids)
            chunks.append(pa.ListArray.from_arrays(pa.array(starts, pa.int32()), values))
        return pa.chunked_array(chunks, pa.list_(pa.dictionary(pa.int32(), ids.type)))

    def each_batch(self, events: Any, callback: Callable[[Pairs], object], *, path: str = "auto") -> int:
        """Hand all matches to a callback, some at a time; how many they are."""
        total = 0
        for pairs in self.pairs(events, path=path):
            callback(pairs)
            total += len(pairs.events)
        return total

    def counts(self, events: Any, *, path: str = "auto") -> Array:
        """For each event how many subscriptions match it."""
        from meetpoint.matching.index.events import batches_of

        state, path = self._state, checked_path(path)
        counts = [np.zeros(0, np.int64)]
        for some in batches_of(events, state.batch(BATCH)):
            mine = np.zeros(some.events, np.int64)
            for _, pairs in match_parts(state, some, path):
                mine += np.bincount(pairs.events - some.first, minlength=some.events)
            counts.append(mine)
        return np.concatenate(counts)


_SAMPLES = (Iterable, Columns, JsonEvents, pa.Table, pa.RecordBatch, pa.RecordBatchReader)


def _checked_filters(filters: Iterable[tuple[Any, Filter]]) -> tuple[list[Any], list[Filter]]:
    items = list(filters)
    ids, forms = [id_ for id_, _ in items], [filter_ for _, filter_ in items]
    if set(map(type, forms)) - {Filter}:
        id_, bad = next((id_, filter_) for id_, filter_ in items if type(filter_) is not Filter)
        raise MeetpointError(
            f"subscription {id_!r}: the filter is of class {type(bad).__name__}; parse it with parse_filter"
        )
    return ids, forms
