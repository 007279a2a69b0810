"""The regions whose keys homes here hold: what they answer to walks, and to the commands of their parents.

A region is asked at whoever holds its key (`custody`): at every moment at most one home. What it says is what its
record says (`rules`), and whatever it acknowledges is safe by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import pairwise
from typing import Final

import msgspec

from meetpoint.api.ids import EventKey, HomeId, Key, Peer
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

__all__ = ["PAGE_BYTES_MAX", "PAGE_MAX", "Regions", "pages"]

PAGE_BYTES_MAX: Final = 128 << 10
"""About how many bytes of entries travel from one region to another at one time."""
PAGE_MAX: Final = 500
KEYS_MAX: Final = 8_192
"""Regions of which a node remembers the keys."""

Answer = Callable[[Message], None]


class Regions:
    """All regions that homes here hold."""

    def __init__(
        self,
        runtime: Runtime,
        ownership: Ownership,
        rpc: KeyedRpc,
        store: RegionStore,
        space: Space,
        settings: DmmSettings,
        bring: Bring,
        slow: Callable[[Peer, MatchPending], None],
    ) -> None:
        self._runtime = runtime
        self._ownership = ownership
        self._rpc = rpc
        self._store = store
        self._settings = settings
        self._fanout: SingleFlight[tuple[HomeId, Code, EventKey]] = SingleFlight(bring)
        self._slow = slow
        self.space = space
        self.key: Callable[[Code], Key] = lru_cache(KEYS_MAX)(partial(key_of, runtime.ring, space))
        """Where a region lies on the circle."""
        self.changed: Callable[[Home, Code], None] = lambda home, code: None
        """Who is told that a region stands elsewhere, or has more or fewer entries."""
        rpc.do(MatchRequest, self._match)
        rpc.do(AddEntry, self._plant)
        rpc.do(RemoveEntry, self._uproot)
        rpc.do(LoadQuery, self._weigh)
        for command, obey in (
            (Preload, self._sow),
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
        """The home here that answers for a region."""
        return self._ownership.holder(self.key(code))

    def at(self, home: Home, code: Code) -> StoredRegion:
        """A region at a home; look again after each change."""
        return self._store.region(home.id, code)

    def write(self, home: Home, code: Code, record: RegionRecord, then: Callable[[], None] | None = None) -> None:
        """From now on a region stands so; `then` when that is safe."""
        self._put(home, region_name(code), code, msgspec.msgpack.encode(record), then)
        self.changed(home, code)

    def forget(self, home: Home, code: Code) -> None:
        """Nothing need be known of a region any more."""
        self._ownership.remove(home, region_name(code))

    def put(self, home: Home, code: Code, items: Iterable[RegionEntry]) -> None:
        """Keep entries in a region; where it is known that one was withdrawn, that counts."""
        for item in items:
            name = region_entry_name(item.home, item.number, code)
            if name not in self.at(home, code).withdrawn:
                self._put(home, name, code, item.body, None)

    def drop(self, home: Home, names: Iterable[str]) -> None:
        """Forget entries."""
        for name in list(names):
            self._ownership.remove(home, name)

    def drop_all(self, home: Home, code: Code) -> None:
        """Forget all entries of a region."""
        region = self.at(home, code)
        self.drop(home, (*region.items, *region.withdrawn))

    def when_safe(self, home: Home, then: Callable[[], None]) -> None:
        """Call back when all that a home was to keep by now is safe."""
        home.replicator.commit().then(lambda _: then())

    def items(self, home: Home, code: Code) -> list[RegionEntry]:
        """All entries of a region as they travel, in the order of their names, with those that were withdrawn."""
        region = self.at(home, code)
        entries = self._ownership.entries[home.id]
        found = []
        for name in sorted((*region.items, *region.withdrawn)):
            named = read_name(name, self.space)
            assert named is not None, "what is on a shelf was read"
            found.append(RegionEntry(named[0], named[1], entries[name].body))
        return found

    def _put(self, home: Home, name: str, code: Code, body: bytes, then: Callable[[], None] | None) -> None:
        key = bytes(self.key(code))
        safe = self._ownership.put(home, name, Entry(key, key, body))
        if then is not None:
            safe.then(lambda _: then())

    # -- walks ---------------------------------------------------------------------------------------------------------

    def _reached(self, home: Home, reached: Reached, code: str) -> StoredRegion | None:
        """The region that an errand is for; None where it has come to another's key."""
        if self.space.is_code(code) and reached.key == self.key(Code(code)):
            return self.at(home, Code(code))
        self._runtime.observe("region_malformed")
        return None

    def _to_change(self, home: Home, reached: Reached, code: str, answer: Answer) -> StoredRegion | None:
        """The region that an errand is for, if it takes what comes and goes; else that is answered."""
        region = self._reached(home, reached, code)
        if region is None:
            return None
        verdict = _verdict(region.record, is_change=True)
        if verdict is not Verdict.SERVED:
            answer(EntryReply(verdict))
            return None
        return region

    def _plant(self, home: Home, reached: Reached, plant: AddEntry, answer: Answer) -> None:
        region = self._to_change(home, reached, plant.code, answer)
        if region is None:
            return
        item = plant.item
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

    def _uproot(self, home: Home, reached: Reached, uproot: RemoveEntry, answer: Answer) -> None:
        region = self._to_change(home, reached, uproot.code, answer)
        if region is None:
            return
        if not 0 <= uproot.number < NUMBER_MAX:
            self._runtime.observe("entry_malformed")
            return
        name = region_entry_name(uproot.home, uproot.number, region.code)
        self._put(home, name, region.code, b"", lambda: answer(EntryReply(Verdict.SERVED)))
        self.changed(home, region.code)

    def _match(self, home: Home, reached: Reached, match: MatchRequest, answer: Answer) -> None:
        region = self._reached(home, reached, match.code)
        if region is None:
            return
        verdict = _verdict(region.record, is_change=False)
        if verdict is not Verdict.SERVED:
            answer(MatchReply(verdict))
            return
        key = (home.id, region.code, match.event)

        def slow(to: tuple[HomeId, ...]) -> None:
            self._slow(match.origin, MatchPending(match.attempt, to))

        def brought(well: bool) -> None:
            if well:  # else it is asked again
                answer(MatchReply(Verdict.SERVED))

        if self._fanout.join(key, brought, slow):
            return
        attributes = read_attributes(self._runtime, match.content)
        if attributes is None:
            return
        matched = region.match(attributes)
        if self._runtime.tracing:
            told = f"region {region.code or 'of all'} has matches of {counted(len(matched), 'home')}"
            self._runtime.trace(match.event, "visited", home.id, detail=told)
        self._fanout.begin(key, match.event, match.settled, match.content, matched, brought, slow)

    # -- as a child ----------------------------------------------------------------------------------------------------

    def _commanded(self, home: Home, reached: Reached, command: RegionCommand) -> StoredRegion | None:
        region = self._reached(home, reached, command.code)
        if region is not None and (not region.code or not 0 < command.epoch < rules.EPOCH_MAX):
            self._runtime.observe("region_malformed")  # the root has no parent
            return None
        return region

    def _sow(self, home: Home, reached: Reached, sow: Preload, answer: Answer) -> None:
        region = self._commanded(home, reached, sow)
        if region is None:
            return
        code, before = region.code, region.record
        after = rules.preload(before, sow.epoch)
        if after is None:
            answer(CommandReply(False, 0 if before is None else before.told))
            return
        if after.state is RegionState.EMBRYO:
            if after != before:
                self.drop_all(home, code)
                self.write(home, code, after)
            self.put(home, code, self._well(sow.items))
        self.when_safe(home, lambda: answer(CommandReply(True, sow.epoch)))

    def _well(self, items: tuple[RegionEntry, ...]) -> list[RegionEntry]:
        """Those of a peer's entries that are some."""
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
            answer(CommandReply(False, 0 if before is None else before.told))
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
            answer(CloseReply(None, False, 0 if before is None else before.told))
            return
        if before != after:
            self.write(home, region.code, after)
        items = self.items(home, region.code)
        left = [item for item in items if region_entry_name(item.home, item.number, region.code) > close.after]
        page = next(pages(left))
        closed = CloseReply(tuple(page), len(page) < len(left), close.epoch)
        self.when_safe(home, lambda: answer(closed))

    def _weigh(self, home: Home, reached: Reached, weigh: LoadQuery, answer: Answer) -> None:
        region = self._reached(home, reached, weigh.code)
        if region is not None:
            known = region.record is not None
            weight = len(region.items) if region.record is not None and region.record.is_at_rest else None
            answer(LoadReply(weight, self._runtime.me.id, self._store.load, known))

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def held(self) -> list[tuple[str, int, bool]]:
        """The regions that serve or are split, held here: code, entries, whether it is split; the largest first."""
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
    """Entries, as many at a time as a message carries; at least one page, which may be empty."""
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
    """What a region says to a walk: one that is splitting serves events, but must not change."""
    if record is None:
        return Verdict.ABSENT
    if record.is_split:
        return Verdict.INTERIOR
    if is_change and record.state is RegionState.SPLITTING:
        return Verdict.BUSY
    return Verdict.SERVED if record.serves else Verdict.ABSENT
