"""The scheme `meet`: every conjunction lies, whole, under its most selective key, and events come to it.

- The conjunctions of a subscription are placed under their meet keys (`entries`), at the homes that own these.
- An event is matched at the homes that own keys it has. Summaries say which keys are in use (`summaries`); where there
  is no summary, all keys that the event could have count. All keys at one home are one request.
- The home that matches checks every conjunction whose key the event has, brings the event to the homes of those that
  accept it, and answers when they have it. Nothing but true matches travels.
- A key with many entries is *crowded*: further entries lie under its children. Events ask there too, but for children
  at homes whose summary says that the key is not in use there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message, Reply
from meetpoint.language.filters.filter import Filter
from meetpoint.matching.keys.feedback import Feedback
from meetpoint.matching.keys.key_plan import KeyPlan
from meetpoint.node.cluster.directory import Entry as DirectoryEntry
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.home.subscription_table import attributes_of
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.placement.base import PlacementScheme
from meetpoint.placement.dissemination.dissemination import PublishAttempt
from meetpoint.placement.dissemination.fanout import SingleFlight
from meetpoint.placement.key_range import KeyRange
from meetpoint.placement.messages import BucketFull, Entry, Stored, read_attributes
from meetpoint.placement.ownership.range_store import OwnedRanges
from meetpoint.schemes.meet.entries import PATH_MAX, child_entry, crowded_mark, entries_of, read_key_entry
from meetpoint.schemes.meet.entry_tables import KeyTables
from meetpoint.schemes.meet.messages import (
    KeySummary,
    MatchPending,
    MatchReply,
    MatchRequest,
    SummaryUpdate,
    SummaryUpdateAck,
)
from meetpoint.schemes.meet.summaries import SummaryCache
from meetpoint.wording import counted

__all__ = ["Meet", "MeetSettings"]


MATCH_US: Final = 2 * SECOND_US
"""How long a match at a home may take before it is asked for again."""
PAUSE_US: Final = SECOND_US // 4
"""How long to wait before the next step, where the last one led nowhere."""


MOVED_MAX: Final = 50
MOVE_US: Final = 50_000
"""After `tune`, so many subscriptions are placed anew in so long a time."""


class MeetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of `meet`, the same for all nodes of a network."""

    lease_us: int = 10 * SECOND_US
    """How long a summary is good for. A subscription may wait so long for a broker that was lost with one."""
    crowded: int = 256
    """How many entries lie under one key at one node; further ones go to its children."""
    children: int = 8
    """Among how many further keys the entries of a crowded one are spread."""
    plan: bytes = b""
    """A `matching.KeyPlan` as bytes: which constraint of a filter is the most selective. Empty: by a guess."""


class _MatchProgress:
    """The progress of one attempt to publish an event: where it was matched, and where it has still to be."""

    __slots__ = ("asked", "attempt", "done_at", "paused", "places", "silent", "slow", "stepping", "tried", "wanted")

    def __init__(
        self,
        attempt: PublishAttempt,
        wanted: dict[HomeId, tuple[KeyRange, ...]],
        places: Iterable[bytes],
        silent: Sequence[KeyRange] = (),
    ) -> None:
        self.attempt = attempt
        self.silent = silent
        """Ranges in which none of the event's keys is in use, as summaries said when the attempt began."""
        self.wanted = wanted
        """Homes to ask, as their summaries say, and the ranges that these speak of."""
        self.places: dict[bytes, HomeId | None] = dict.fromkeys(places)
        """Places of keys that no summary speaks of, and the home that is asked for each."""
        self.done_at: dict[HomeId, tuple[KeyRange, ...]] = {}
        """Homes where the event was matched, and the ranges that they owned then."""
        self.asked: dict[HomeId, None] = {}
        self.tried: dict[HomeId, None] = {}
        """Homes that have answered, whatever they said."""
        self.slow: dict[HomeId, tuple[tuple[KeyRange, ...], tuple[HomeId, ...]]] = {}
        """Homes whose match is pending: the ranges that they owned then, and the homes that the event is for."""
        self.paused = False
        self.stepping = False

    def may_reach(self, home: HomeId) -> bool:
        """Return whether the event may still come to a home.

        It does not where all homes that are still asked have said that they bring it to others.
        """
        held = [arc for arcs, _ in self.slow.values() for arc in arcs]
        return (
            not self.slow
            or any(each not in self.slow for each in self.wanted)
            or any(not any(arc.holds(place) for arc in held) for place in self.places)
            or any(home in homes for _, homes in self.slow.values())
        )

    def has_matched(self, home: HomeId, arcs: tuple[KeyRange, ...]) -> None:
        """Note that the event was matched at a home, which is done with all keys in its ranges."""
        self.done_at[home] = arcs
        self.slow.pop(home, None)
        self.wanted.pop(home, None)
        for place, asked in list(self.places.items()):
            if any(arc.holds(place) for arc in arcs):
                del self.places[place]
            elif asked == home:
                self.places[place] = None

    def add_children(self, places: Iterable[bytes]) -> None:
        """Add the children of a crowded key; a child is of no use where the key itself is not in use."""
        self.add(place for place in places if not any(arc.holds(place) for arc in self.silent))

    def add(self, places: Iterable[bytes]) -> None:
        """Add further places to ask at."""
        for place in places:
            if place not in self.places and not any(
                arc.holds(place) for arcs in self.done_at.values() for arc in arcs
            ):  # fmt: skip
                self.places[place] = None


class Meet(PlacementScheme):
    """The scheme `meet` at one node."""

    def __init__(
        self, runtime: Runtime, overlay: Overlay, home_manager: HomeManager, node: NodeSettings, settings: MeetSettings
    ) -> None:
        self._settings = settings
        self._plan = KeyPlan.from_bytes(settings.plan) if settings.plan else KeyPlan()
        self._tables = KeyTables(runtime, home_manager, settings.lease_us, settings.children)
        super().__init__(runtime, overlay, home_manager, node, self._tables, straight=True)
        self._tables.ownership = self._ownership
        self._summaries = SummaryCache(runtime, self._plan, settings.lease_us)
        self._single_flight: SingleFlight[tuple[HomeId, EventKey, int]] = SingleFlight(self._fanout.bring)
        self._matching: dict[EventKey, _MatchProgress] = {}
        self._tunings = 0
        home_manager.directory.listen(self._directory_changed)

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of the scheme's messages."""
        own = {
            MatchRequest: self._match_request,
            MatchPending: self._match_pending,
            SummaryUpdate: self._summary_update,
        }
        return {**own, **super().handlers()}  # type: ignore[dict-item]

    def home_started(self, home: Home) -> None:
        """Start a home; the ranges of a home here are known without a summary."""
        self._summaries.forget(home.id)
        super().home_started(home)

    def _directory_changed(self, entries: list[DirectoryEntry]) -> None:
        for entry in entries:
            if entry.gone:
                self._summaries.forget(entry.home)

    # -- what events are like ------------------------------------------------------------------------------------------

    def tune(self, feedback: Feedback) -> None:
        """Place conjunctions under the constraints that fewest events satisfy, as was measured.

        The keys of an event do not depend on the plan, so that brokers need not do this at the same time. A conjunction
        that moves to another key is placed there before it is removed from the old one, some at a time.
        """
        old = self._plan
        self._plan = KeyPlan(feedback.statistics, old.schema, names=old.names, cells_max=old.cells_max)
        self._tunings += 1
        todo = deque((home, name) for home in self._home_manager.homes.values() for name in home.filters)
        self._runtime.observe("tuned")
        self._move_some(self._tunings, todo)

    def _move_some(self, tuning: int, todo: deque[tuple[Home, str]]) -> None:
        if tuning != self._tunings:
            return  # another one began meanwhile
        for _ in range(min(MOVED_MAX, len(todo))):
            home, name = todo.popleft()
            if self._home_manager.homes.get(home.id) is home:
                self._placement.place(home, name)
        if todo:
            self._runtime.after(MOVE_US, lambda: self._move_some(tuning, todo))

    # -- placing -------------------------------------------------------------------------------------------------------

    def _entries(self, home: HomeId, number: int, filter_: Filter, at: int) -> list[Entry]:
        return entries_of(self._runtime.ring, self._plan, number, filter_, at)

    def _accept(self, home: Home, name: str, entry: Entry, answer: Callable[[Message], None]) -> None:
        """Place an entry at a home here, or name a child of its key where that is crowded."""
        read = read_key_entry(entry.body)
        if read is None or not read.text or not self._ownership.is_stable(home.id):
            self._runtime.observe("entry_malformed" if read is None else "entry_early")
            return
        table = self._tables.at[home.id]

        def when_met(word: Message) -> Callable[[object], None]:
            """Return a callback that answers when no publisher skips this key: what lies under its children is found
            from here.
            """

            def safe(_: object) -> None:
                if self._tables.at.get(home.id) is table:
                    table.leases.when_known(lambda: answer(word))

            return safe

        is_new = name not in self._ownership.entries[home.id]
        if is_new and len(read.path) < PATH_MAX and table.count(read.key, read.path) >= self._settings.crowded:
            at = child_entry(self._runtime.ring, name, read, self._settings.children)
            mark, marked = crowded_mark(self._runtime.ring, read)
            self._ownership.put(home, mark, marked).then(when_met(BucketFull(at)))
        else:
            self._ownership.put(home, name, entry).then(when_met(Stored()))

    # -- carrying events -----------------------------------------------------------------------------------------------

    def _begin(self, attempt: PublishAttempt) -> None:
        attributes = attributes_of(attempt.content)
        wanted = {home: self._summaries.arcs(home) for home in self._summaries.homes_for(attributes)}
        silent = self._summaries.arcs_without(wanted)
        here = self._arcs_here()  # to look costs no message, and less than to tell whether it is worth while
        wanted.update(here)
        places = self._summaries.places_for(attributes, [arc for arcs in here.values() for arc in arcs])
        progress = self._matching[attempt.event] = _MatchProgress(attempt, wanted, places, silent)
        attempt.may_reach = progress.may_reach
        attempt.on_end = partial(self._forget, attempt.event)
        self._step(progress)

    def _arcs_here(self) -> dict[HomeId, tuple[KeyRange, ...]]:
        return {
            home: arcs
            for home in self._home_manager.homes
            if self._ownership.is_stable(home) and (arcs := self._ownership.owned_ranges[home].arcs)
        }

    def _forget(self, event: EventKey) -> None:
        self._matching.pop(event, None)

    def _step(self, progress: _MatchProgress) -> None:
        """Ask the homes that are still to be asked; when there are none, the attempt is complete."""
        if progress.stepping or not progress.attempt.alive:
            return  # a home here has answered at once; the caller looks again
        progress.stepping = True
        while progress.attempt.alive and (next_ones := self._next_ones(progress)):
            for home in next_ones:
                self._ask(progress, home)
        stuck = None in progress.places.values()
        progress.stepping = False
        if stuck:
            self._pause(progress)  # a key is on its way from one home to another
        elif not (progress.places or progress.wanted) and progress.attempt.alive:
            self._runtime.observe("homes_visited", len(progress.done_at))
            progress.attempt.complete()

    def _next_ones(self, progress: _MatchProgress) -> list[HomeId]:
        """Return the homes to ask now."""
        wanted = dict.fromkeys(progress.wanted)
        for place, asked in progress.places.items():
            home = self._holder(place, progress) if asked is None else asked
            if home is not None:
                progress.places[place] = home
                wanted[home] = None
        return [] if progress.paused else [home for home in wanted if home not in progress.asked]

    def _holder(self, place: bytes, progress: _MatchProgress) -> HomeId | None:
        here = self._ownership.holder(place)
        return self._owner_cache.guess(place, progress.tried) if here is None else here.id

    def _pause(self, progress: _MatchProgress) -> None:
        if not progress.paused:
            progress.paused = True

            def go_on() -> None:
                progress.paused = False
                self._step(progress)

            self._runtime.after(PAUSE_US, go_on)

    def _ask(self, progress: _MatchProgress, home: HomeId) -> None:
        attempt = progress.attempt
        progress.asked[home] = None
        host = self._home_manager.directory.host(home)
        asked_at = self._runtime.now
        if host is None:
            self._answered(progress, home, asked_at, (), None)
        elif host.id == self._runtime.me.id:
            holding = self._ownership.owned_ranges.get(home)
            arcs = () if holding is None else holding.arcs
            then = partial(self._matched_here, progress, home, holding)
            slow = partial(self._is_slow, progress, home, arcs)
            self._match(home, attempt.event, attempt.floor, attempt.content, then, slow)
        else:
            base, serial, version = self._summaries.known(home)
            arcs = self._summaries.arcs(home)
            self._runtime.ask(
                host,
                MatchRequest(0, home, attempt.event, attempt.floor, base, serial, version, attempt.content),
                MATCH_US,
            ).then(lambda reply: self._answered(progress, home, asked_at, arcs, reply))

    def _matched_here(
        self, progress: _MatchProgress, home: HomeId, before: OwnedRanges | None, done: bool, more: tuple[bytes, ...]
    ) -> None:
        """Note that a home here has matched; ranges that it got meanwhile do not count."""
        holding = self._ownership.owned_ranges.get(home)
        arcs = () if holding is None else holding.arcs
        self._has_matched(progress, home, arcs, done and before is not None and arcs == before.arcs, more)

    def _answered(
        self, progress: _MatchProgress, home: HomeId, asked_at: int, known: tuple[KeyRange, ...], reply: Reply | None
    ) -> None:
        """Take the answer of a home, None where it did not come in time; `known` are the ranges it was known to own."""
        if not isinstance(reply, MatchReply):
            progress.asked.pop(home, None)
            self._pause(progress)  # what it holds it holds, until it answers
            return
        arcs = known if reply.arcs is None else reply.arcs
        if home not in self._home_manager.homes:  # else it has come here meanwhile
            self._summaries.learn(home, asked_at, reply.version, reply.arcs, reply.summary)
        self._has_matched(progress, home, arcs, reply.done, reply.more)

    def _has_matched(
        self, progress: _MatchProgress, home: HomeId, arcs: tuple[KeyRange, ...], done: bool, more: tuple[bytes, ...]
    ) -> None:
        """Note what a home said: it is done with the event in these ranges, or does not know yet."""
        progress.asked.pop(home, None)
        progress.tried[home] = None
        self._owner_cache.learn(home, arcs)
        if not done:
            for place, asked in progress.places.items():
                if asked == home:
                    progress.places[place] = None  # another home may know
            self._pause(progress)
            return
        gone = self._gone_from(progress, home, arcs)
        progress.has_matched(home, arcs)
        progress.add(gone)  # summaries may have come since the attempt began: they do not count for it
        progress.add_children(more)
        self._step(progress)

    def _gone_from(self, progress: _MatchProgress, home: HomeId, arcs: tuple[KeyRange, ...]) -> list[bytes]:
        """Return the places that a home's summary spoke of and that it does not own: their entries may be with another
        home.
        """
        believed = progress.wanted.get(home, arcs)
        if believed == arcs:
            return []
        places = self._summaries.all_places(attributes_of(progress.attempt.content))
        gone = [place for place in places if any(arc.holds(place) for arc in believed)]
        return [place for place in gone if not any(arc.holds(place) for arc in arcs)]

    def _match_pending(self, source: Peer, message: MatchPending) -> None:
        progress = self._matching.get(message.event)
        if progress is not None:
            self._is_slow(progress, message.home, message.arcs, message.more, message.homes)

    def _is_slow(
        self,
        progress: _MatchProgress,
        home: HomeId,
        arcs: tuple[KeyRange, ...],
        more: tuple[bytes, ...],
        to: tuple[HomeId, ...],
    ) -> None:
        """Note that a home waits for others; the further keys that it named are of use by now."""
        if home not in progress.done_at and progress.attempt.alive:
            progress.slow[home] = (arcs, to)
            progress.add(self._gone_from(progress, home, arcs))
            progress.add_children(more)
            self._step(progress)

    # -- being visited -------------------------------------------------------------------------------------------------

    def _match_request(self, source: Peer, question: MatchRequest) -> None:
        holding = self._ownership.owned_ranges.get(question.home)
        if holding is None or not self._ownership.is_stable(question.home):
            self._runtime.send(source, MatchReply(question.request, False, 0, (), None, ()))
            return

        def answer(done: bool, more: tuple[bytes, ...]) -> None:
            now = self._ownership.owned_ranges.get(question.home)
            if not done or now is None or now.version != holding.version:
                return  # it will be asked again
            summary: KeySummary | None = None
            table = self._tables.at.get(question.home)
            if table is not None:
                summary = table.leases.grant(source, question.base, question.serial)
            arcs = None if question.version == holding.version else holding.arcs
            self._runtime.send(source, MatchReply(question.request, True, holding.version, arcs, summary, more))

        def slow(more: tuple[bytes, ...], to: tuple[HomeId, ...]) -> None:
            self._runtime.send(source, MatchPending(question.home, question.event, holding.arcs, more, to))

        self._match(question.home, question.event, question.settled, question.content, answer, slow)

    def _match(
        self,
        home: HomeId,
        event: EventKey,
        settled: int,
        content: bytes,
        then: Callable[[bool, tuple[bytes, ...]], None],
        slow: Callable[[tuple[bytes, ...], tuple[HomeId, ...]], None],
    ) -> None:
        """Bring an event to all whose conjunctions at a home here it satisfies."""
        table = self._tables.at.get(home)
        if table is None or not self._ownership.is_stable(home):
            then(False, ())
            return
        attributes = read_attributes(self._runtime, content)
        if attributes is None:
            return
        matched, marks = table.find(attributes)
        more = self._tables.children_of(marks)
        if self._runtime.tracing:
            told = f"its keys here have matches of {counted(len(matched), 'home')}"
            self._runtime.trace(event, "visited", home, detail=told)
        key = (home, event, self._ownership.owned_ranges[home].version)

        def delivered(well: bool) -> None:
            then(well, more)

        def is_slow(to: tuple[HomeId, ...]) -> None:
            slow(more, to)

        if not self._single_flight.join(key, delivered, is_slow):
            self._single_flight.begin(key, event, settled, content, matched, delivered, is_slow)

    def _summary_update(self, source: Peer, question: SummaryUpdate) -> None:
        if question.home not in self._home_manager.homes:
            self._summaries.note(question.home, question.version, question.summary)
        self._runtime.send(source, SummaryUpdateAck(question.request, question.summary.base, question.summary.serial))
