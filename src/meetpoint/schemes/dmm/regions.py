"""The regions whose keys homes here own: what they answer to walks, and to the commands of their parents.

A region is asked at the owner of its key (`Ownership`): at every moment at most one home. It answers what its record
says (`rules`), and whatever it acknowledges is safe by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from meetpoint.api.ids import EventKey, HomeId, Key
from meetpoint.api.messages import Message
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.dissemination.fanout import Bring, SingleFlight
from meetpoint.placement.entries.entry_table import NUMBER_MAX
from meetpoint.placement.messages import Entry, read_attributes
from meetpoint.placement.ownership.keyed_rpc import KeyedRpc, Reached
from meetpoint.placement.ownership.ownership import Ownership
from meetpoint.schemes.dmm import rules
from meetpoint.schemes.dmm.entries import (
    RegionStore,
    StoredRegion,
    key_of,
    read_body,
    read_name,
    region_entry_name,
    region_name,
)
from meetpoint.schemes.dmm.messages import (
    AddEntry,
    CloseHalf,
    CloseReply,
    CommandReply,
    DissolveHalf,
    EntryReply,
    LoadQuery,
    LoadReply,
    MatchPending,
    MatchReply,
    MatchRequest,
    OpenHalf,
    Preload,
    RegionCommand,
    RegionEntry,
    RemoveEntry,
)
from meetpoint.schemes.dmm.rules import DmmSettings, RegionRecord, RegionState, Verdict
from meetpoint.schemes.dmm.space import ROOT, Code, Space
from meetpoint.wording import counted

if TYPE_CHECKING:
    from meetpoint.schemes.dmm.scheme import Dmm

__all__ = ["PAGE_BYTES_MAX", "PAGE_MAX", "Regions", "pages"]

PAGE_BYTES_MAX: Final = 128 << 10
"""About how many bytes of entries travel from one region to another at one time."""
PAGE_MAX: Final = 500
KEYS_MAX: Final = 8_192
"""Regions of which a node remembers the keys."""

Answer = Callable[[Message], None]


class Regions:
    """All regions that homes here own."""

    def __init__(
        self,
        runtime: Runtime,
        ownership: Ownership,
        rpc: KeyedRpc,
        store: RegionStore,
        space: Space,
        settings: DmmSettings,
        bring: Bring,
        scheme: Dmm,
    ) -> None:
        self._runtime = runtime
        self._ownership = ownership
        self._rpc = rpc
        self._store = store
        self._settings = settings
        self._single_flight: SingleFlight[tuple[HomeId, Code, EventKey]] = SingleFlight(bring)
        self._scheme = scheme
        self.space = space
        self.key: Callable[[Code], Key] = lru_cache(KEYS_MAX)(partial(key_of, runtime.ring, space))
        """Returns where a region lies on the ring."""
        self.changed: Callable[[Home, Code], None] = lambda home, code: None
        """Called when the record of a region has changed, or it has more or fewer entries."""
        rpc.do(MatchRequest, self._match_request)
        rpc.do(AddEntry, self._add_entry)
        rpc.do(RemoveEntry, self._remove_entry)
        rpc.do(LoadQuery, self._load_query)
        for command, obey in (
            (Preload, self._preload),
            (OpenHalf, self._open),
            (CloseHalf, self._close),
            (DissolveHalf, self._dissolve),
        ):
            rpc.do(command, obey)

    # -- asking others -------------------------------------------------------------------------------------------------

    def ask(self, code: Code, message: Message, then: Callable[[Message], None]) -> int:
        """Send a request to the owner of a region's key; `then` gets the answer. The number returned stops it."""
        answers: list[Message] = []
        key = self.key(code)
        return self._rpc.run(
            key,
            key,
            message,
            lambda: then(answers[0]),
            answered=lambda answer, _: answers.append(answer),
            straight=self.holder(code) is not None,
        )

    def stop_asking(self, number: int) -> None:
        """Stop a request: its answer is of no use any more."""
        self._rpc.stop(number)

    # -- what is kept --------------------------------------------------------------------------------------------------

    def holder(self, code: Code) -> Home | None:
        """Return the home here that owns a region's key; None where there is none."""
        return self._ownership.holder(self.key(code))

    def at(self, home: Home, code: Code) -> StoredRegion:
        """Return a region at a home; look again after each change."""
        return self._store.region(home.id, code)

    def write(self, home: Home, code: Code, record: RegionRecord, then: Callable[[], None] | None = None) -> None:
        """Write the record of a region; `then` when it is safe."""
        self._put(home, region_name(code), code, msgspec.msgpack.encode(record), then)
        self.changed(home, code)

    def forget(self, home: Home, code: Code) -> None:
        """Remove the record of a region of which nothing need be known any more."""
        self._ownership.remove(home, region_name(code))

    def put(self, home: Home, code: Code, items: Iterable[RegionEntry]) -> None:
        """Keep entries in a region, but for those that are known to be withdrawn."""
        for item in items:
            name = region_entry_name(item.home, item.number, code)
            if name not in self.at(home, code).withdrawn:
                self._put(home, name, code, item.body, None)

    def drop(self, home: Home, names: Iterable[str]) -> None:
        """Forget entries by their names."""
        for name in list(names):
            self._ownership.remove(home, name)

    def drop_all(self, home: Home, code: Code) -> None:
        """Forget all entries of a region."""
        region = self.at(home, code)
        self.drop(home, (*region.items, *region.withdrawn))

    def when_safe(self, home: Home, then: Callable[[], None]) -> None:
        """Call `then` when all that a home was to keep by now is safe."""
        home.replicator.commit().then(lambda _: then())

    def items(self, home: Home, code: Code) -> list[RegionEntry]:
        """Return all entries of a region as they travel, in the order of names, with those that were withdrawn."""
        region = self.at(home, code)
        entries = self._ownership.entries[home.id]
        found = []
        for name in sorted((*region.items, *region.withdrawn)):
            named = read_name(name, self.space)
            assert named is not None, "what is stored was read"
            found.append(RegionEntry(named[0], named[1], entries[name].body))
        return found

    def _put(self, home: Home, name: str, code: Code, body: bytes, then: Callable[[], None] | None) -> None:
        key = bytes(self.key(code))
        safe = self._ownership.put(home, name, Entry(key, key, body))
        if then is not None:
            safe.then(lambda _: then())

    # -- walks ---------------------------------------------------------------------------------------------------------

    def _reached(self, home: Home, reached: Reached, code: str) -> StoredRegion | None:
        """Return the region that a request is for; None where it has come to another's key."""
        if self.space.is_code(code) and reached.key == self.key(Code(code)):
            return self.at(home, Code(code))
        self._runtime.observe("region_malformed")
        return None

    def _to_change(self, home: Home, reached: Reached, code: str, answer: Answer) -> StoredRegion | None:
        """Return the region that a request is for, if it takes changes; else answer that it does not."""
        region = self._reached(home, reached, code)
        if region is None:
            return None
        verdict = _verdict(region.record, is_change=True)
        if verdict is not Verdict.SERVED:
            answer(EntryReply(verdict))
            return None
        return region

    def _add_entry(self, home: Home, reached: Reached, add: AddEntry, answer: Answer) -> None:
        region = self._to_change(home, reached, add.code, answer)
        if region is None:
            return
        item = add.item
        read = read_body(item.body, self.space)
        if read is None or not 0 <= item.number < NUMBER_MAX or not self.space.meets(region.code, read.place):
            self._runtime.observe("entry_malformed")
            return
        name = region_entry_name(item.home, item.number, region.code)
        if name in region.withdrawn:
            self._runtime.observe("entry_late")
            answer(EntryReply(Verdict.SERVED))
            return
        self._put(home, name, region.code, item.body, lambda: answer(EntryReply(Verdict.SERVED)))
        self.changed(home, region.code)

    def _remove_entry(self, home: Home, reached: Reached, remove: RemoveEntry, answer: Answer) -> None:
        region = self._to_change(home, reached, remove.code, answer)
        if region is None:
            return
        if not 0 <= remove.number < NUMBER_MAX:
            self._runtime.observe("entry_malformed")
            return
        name = region_entry_name(remove.home, remove.number, region.code)
        self._put(home, name, region.code, b"", lambda: answer(EntryReply(Verdict.SERVED)))
        self.changed(home, region.code)

    def _match_request(self, home: Home, reached: Reached, match: MatchRequest, answer: Answer) -> None:
        region = self._reached(home, reached, match.code)
        if region is None:
            return
        verdict = _verdict(region.record, is_change=False)
        if verdict is not Verdict.SERVED:
            answer(MatchReply(verdict))
            return
        key = (home.id, region.code, match.event)

        def slow(to: tuple[HomeId, ...]) -> None:
            self._scheme.tell_pending(match.origin, MatchPending(match.attempt, to))

        def delivered(well: bool) -> None:
            if well:  # else it is asked again
                answer(MatchReply(Verdict.SERVED))

        if self._single_flight.join(key, delivered, slow):
            return
        attributes = read_attributes(self._runtime, match.content)
        if attributes is None:
            return
        matched = region.match(attributes)
        if self._runtime.tracing:
            told = f"region {region.code or 'of all'} has matches of {counted(len(matched), 'home')}"
            self._runtime.trace(match.event, "visited", home.id, detail=told)
        self._single_flight.begin(key, match.event, match.settled, match.content, matched, delivered, slow)

    # -- as a child ----------------------------------------------------------------------------------------------------

    def _commanded(self, home: Home, reached: Reached, command: RegionCommand) -> StoredRegion | None:
        region = self._reached(home, reached, command.code)
        if region is not None and (not region.code or not 0 < command.epoch < rules.EPOCH_MAX):
            self._runtime.observe("region_malformed")  # the root has no parent
            return None
        return region

    def _preload(self, home: Home, reached: Reached, command: Preload, answer: Answer) -> None:
        region = self._commanded(home, reached, command)
        if region is None:
            return
        code, before = region.code, region.record
        after = rules.preload(before, command.epoch)
        if after is None:
            answer(CommandReply(False, 0 if before is None else before.parent_epoch))
            return
        if after.state is RegionState.EMBRYO:
            if after != before:
                self.drop_all(home, code)
                self.write(home, code, after)
            self.put(home, code, self._well_formed(command.items))
        self.when_safe(home, lambda: answer(CommandReply(True, command.epoch)))

    def _well_formed(self, items: tuple[RegionEntry, ...]) -> list[RegionEntry]:
        """Return the entries of a peer that are well formed."""
        found = [
            item
            for item in items
            if 0 <= item.number < NUMBER_MAX and (not item.body or read_body(item.body, self.space) is not None)
        ]
        if len(found) < len(items):
            self._runtime.observe("entry_malformed", len(items) - len(found))
        return found

    def _open(self, home: Home, reached: Reached, command: OpenHalf, answer: Answer) -> None:
        region = self._commanded(home, reached, command)
        if region is not None:
            if region.record is None:
                self._runtime.observe("region_lost")
            self._obey(home, region, rules.open_(region.record, command.epoch), command.epoch, answer)

    def _dissolve(self, home: Home, reached: Reached, command: DissolveHalf, answer: Answer) -> None:
        region = self._commanded(home, reached, command)
        if region is not None:
            after = rules.dissolve(region.record, command.epoch)
            self._obey(home, region, after, command.epoch, answer)
            if after is not None:
                self.drop_all(home, region.code)

    def _obey(self, home: Home, region: StoredRegion, after: RegionRecord | None, epoch: int, answer: Answer) -> None:
        if after is None:
            before = region.record
            answer(CommandReply(False, 0 if before is None else before.parent_epoch))
            return
        self.write(home, region.code, after, lambda: answer(CommandReply(True, epoch)))

    def _close(self, home: Home, reached: Reached, close: CloseHalf, answer: Answer) -> None:
        region = self._commanded(home, reached, close)
        if region is None:
            return
        before = region.record
        after = rules.close(before, close.epoch)
        few = len(region.items) <= self._settings.threshold // 2
        if after is None or (before != after and not few):
            answer(CloseReply(None, False, 0 if before is None else before.parent_epoch))
            return
        if before != after:
            self.write(home, region.code, after)
        items = self.items(home, region.code)
        left = [item for item in items if region_entry_name(item.home, item.number, region.code) > close.after]
        page = next(pages(left))
        closed = CloseReply(tuple(page), len(page) < len(left), close.epoch)
        self.when_safe(home, lambda: answer(closed))

    def _load_query(self, home: Home, reached: Reached, query: LoadQuery, answer: Answer) -> None:
        region = self._reached(home, reached, query.code)
        if region is not None:
            known = region.record is not None
            weight = len(region.items) if region.record is not None and region.record.is_at_rest else None
            answer(LoadReply(weight, self._runtime.me.id, self._store.load, known))

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def held(self) -> list[tuple[str, int, bool]]:
        """Return the regions that serve or are split, owned here, the largest first.

        Each has its code, its number of entries, and whether it is split.
        """
        found: dict[Code, tuple[str, int, bool]] = {}
        if self.holder(ROOT) is not None:
            found[ROOT] = (ROOT, 0, False)  # also where nothing was ever said of it
        for home, region in self._store.regions():
            record, holder = region.record, self.holder(region.code)
            if record is not None and holder is not None and holder.id == home and (record.serves or record.is_split):
                found[region.code] = (region.code, len(region.items), record.is_split)
        return sorted(found.values(), key=lambda each: (len(each[0]), each[0]))

    def check(self) -> None:
        """Assert what must hold at all times."""
        serving: list[Code] = []
        for home, region in self._store.regions():
            assert not (region.items.keys() & region.withdrawn.keys()), "withdrawn, and there"
            if region.record is not None and region.record.serves:
                holder = self.holder(region.code)
                if holder is not None and holder.id == home:
                    serving.append(region.code)
        serving.sort()  # what lies around another comes right before the first of those
        for code, following in pairwise(serving):
            assert not following.startswith(code), f"both {code!r} and {following!r} serve here"


def pages(items: list[RegionEntry]) -> Iterator[list[RegionEntry]]:
    """Yield entries, as many at a time as a message carries; at least one page, which may be empty."""
    page: list[RegionEntry] = []
    size = 0
    for item in items:
        if len(page) >= PAGE_MAX or size >= PAGE_BYTES_MAX:
            yield page
            page, size = [], 0
        page.append(item)
        size += len(item.body) + len(item.home)
    yield page


def _verdict(record: RegionRecord | None, *, is_change: bool) -> Verdict:
    """Return what a region says to a walk: one that is splitting serves events, but must not change."""
    if record is None:
        return Verdict.ABSENT
    if record.is_split:
        return Verdict.INTERIOR
    if is_change and record.state is RegionState.SPLITTING:
        return Verdict.BUSY
    return Verdict.SERVED if record.serves else Verdict.ABSENT
