"""One home with a disk, a planter and a clock of its own, for tests of placing without what is covered."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from meetpoint.api.ids import HomeId, Peer
from meetpoint.catalog import make_codec
from meetpoint.language.filters.algebra import covers
from meetpoint.language.filters.filter import Filter, parse_filter
from meetpoint.language.syntax.render import render
from meetpoint.node.runtime.effects import SetTimer
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.records import Record
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.dissemination.dissemination import ATTEMPT_US
from meetpoint.placement.entries.covered_placement import CoveredPlacement
from meetpoint.placement.entries.installer import Installation
from meetpoint.placement.entries.placement import Placement
from meetpoint.placement.messages import Entry
from tests.placement.test_covering import Plain, maximal

__all__ = ["HOME", "World"]

RING = Ring(16)
HOME = HomeId(bytes(RING.node(7)))
CODEC = make_codec()
US = 1_000_000


class Numbered(NamedTuple):
    number: int


class Disk:
    """A replicator: what is written is seen at once, and safe when the world says so."""

    def __init__(self, safe: dict[str, bytes], epoch: int) -> None:
        self.epoch = epoch
        self.safe = dict(safe)
        self.old: dict[str, list[bytes]] = {}  # all versions of what is placed: a copy somewhere may still have one
        self.records = {name: Record(HOME, name, 1, value) for name, value in safe.items()}
        self.pending: list[tuple[list[tuple[str, bytes | None]], list[str], Signal[None]]] = []

    def write(self, values: Iterable[tuple[str, bytes | None]], erased: Iterable[str] = ()) -> None:
        self.commit(values, erased)

    def commit(self, values: Iterable[tuple[str, bytes | None]] = (), erased: Iterable[str] = ()) -> Signal[None]:
        kept, gone = list(values), list(erased)
        for name, value in kept:
            self.records[name] = Record(HOME, name, 1, value)
        for name in gone:
            self.records.pop(name, None)
        safe: Signal[None] = Signal()
        self.pending.append((kept, gone, safe))
        return safe

    def flush(self) -> None:
        """The oldest write is safe."""
        kept, gone, safe = self.pending.pop(0)
        for name, value in kept:
            assert value is not None
            self.safe[name] = value
            if name.startswith("places/"):
                self.old.setdefault(name, []).append(value)
        for name in gone:
            self.safe.pop(name, None)
        safe.set(None)


class Home:
    """A home with nothing but subscriptions."""

    def __init__(self, disk: Disk) -> None:
        self.id = HOME
        self.replicator = disk
        self.subscriptions: dict[str, tuple[int, str]] = {}
        for name, value in disk.safe.items():
            if name.startswith("subscription/"):
                number, _, text = value.decode().partition(" ")
                self.subscriptions[name.removeprefix("subscription/")] = int(number), text

    @property
    def filters(self) -> dict[str, Filter]:
        return {name: parse_filter(text) for name, (_, text) in self.subscriptions.items()}

    def subscription(self, name: str) -> Numbered | None:
        found = self.subscriptions.get(name)
        return None if found is None else Numbered(found[0])


class Hosting:
    def __init__(self) -> None:
        self.homes: dict[HomeId, Home] = {}


class Present(NamedTuple):
    """Something placed, since when, and what it is."""

    since: int
    filter: Filter


class World:
    """One home, its disk, its installer and its clock."""

    def __init__(self) -> None:
        self.now = 0
        self.epoch = 1
        self.numbers = 0
        self.present: dict[int, Present] = {}  # by number
        self.uninstalled: set[int] = set()
        self.acked: dict[str, tuple[list[Filter], int]] = {}
        """By name the conjunctions that were acknowledged and no later change does without; and since when."""
        self.changes: Counter[str] = Counter()
        self.life = 0
        self.begin({})

    def begin(self, safe: dict[str, bytes]) -> None:
        """The home starts with what is safe."""
        self.life += 1
        self.runtime = Runtime(Peer(RING.node(1), "n", self.life), RING, CODEC, self.life)
        self.runtime.begin(Instant(self.now))
        self.timers: list[tuple[int, int]] = []
        self.installing: list[tuple[int, Entry, Signal[Entry | None]]] = []
        self.uninstalling: list[tuple[int, Signal[None]]] = []
        self.disk = Disk(safe, self.epoch)
        self.home: Any = Home(self.disk)
        home_manager: Any = Hosting()
        home_manager.homes[HOME] = self.home
        self.homes = home_manager.homes
        self.placement = self.make_placing(home_manager)
        self.step(lambda: self.placement.home_started(self.home))

    def make_placing(self, home_manager: Any) -> Placement:
        return CoveredPlacement(self.runtime, home_manager, self, self, Plain())

    def entries_for(self, home: HomeId, number: int, filter_: Filter, at: int) -> list[Entry]:
        return [Entry(b"", b"", b"%d/%d/%s" % (number, at, filter_.text.encode()))]

    def step(self, act: Callable[[], None]) -> None:
        effects = self.runtime.begin(Instant(self.now))
        act()
        for effect in effects:
            if isinstance(effect, SetTimer):
                heapq.heappush(self.timers, (effect.at, effect.timer))

    # -- the installer -------------------------------------------------------------------------------------------------

    def install(self, home: HomeId, number: int, entry: Entry) -> Installation:
        assert number not in self.uninstalled, "a number is installed after it was uninstalled"
        ended: Signal[Entry | None] = Signal()
        job = (number, entry, ended)
        self.installing.append(job)
        return Installation(ended, lambda: self.installing.remove(job) if job in self.installing else None)

    def uninstall(self, home: HomeId, number: int, entry: Entry) -> Signal[None]:
        gone = self.present.pop(number, None)
        self.uninstalled.add(number)
        done: Signal[None] = Signal()
        self.uninstalling.append((number, done))
        if gone is not None:
            self.check_that_others_do(gone.filter)
        return done

    def check_that_others_do(self, gone: Filter) -> None:
        """An attempt that began any time before, and has been everywhere else, needs something else that was there."""
        for narrow, since in self.promised():
            if covers(gone, narrow):
                began = max(self.now - ATTEMPT_US, since)
                assert any(each.since <= began and covers(each.filter, narrow) for each in self.present.values()), (
                    f"{narrow} is uninstalled too soon"
                )

    def promised(self) -> list[tuple[Filter, int]]:
        """Conjunctions that are acknowledged and not about to end, and since when."""
        return [(narrow, since) for promised, since in self.acked.values() for narrow in promised]

    def check(self) -> None:
        for narrow, _ in self.promised():
            assert any(covers(each.filter, narrow) for each in self.present.values()), f"{narrow} is nowhere"

    # -- what happens --------------------------------------------------------------------------------------------------

    def change(self, name: str, text: str | None) -> None:
        """Subscribe, update or unsubscribe, as a home does it: first on disk, then placed."""
        home, life = self.home, self.life
        self.changes[name] += 1
        change = self.changes[name]
        known = home.subscriptions.get(name)
        if text is None:
            home.subscriptions.pop(name, None)
            self.acked.pop(name, None)
        else:
            if known is None:
                self.numbers += 1
            home.subscriptions[name] = (self.numbers if known is None else known[0], text)
            wanted = parse_filter(text)
            promised, since = self.acked.get(name, ([], 0))
            self.acked[name] = [each for each in promised if covers(wanted, each)], since

        def then(_: object) -> None:
            assert self.life == life, "acknowledged by a home that is gone"
            if text is not None and self.changes[name] == change:
                self.acked[name] = [Filter("", (each,)) for each in parse_filter(text).conjunctions], self.now
                self.check()

        def place(_: object) -> None:
            self.placement.place(home, name).then(then)

        value = None if text is None else f"{home.subscriptions[name][0]} {text}".encode()
        record = "subscription/" + name
        kept, gone = ((), [record]) if value is None else ([(record, value)], ())
        self.step(lambda: self.disk.commit(kept, gone).then(place))

    def ask(self, name: str) -> list[bool]:
        """Someone asks when a subscription is in force, as a home does it: whenever that is told, it is so; whether it
        was told is in the list.
        """
        home, life, change, told = self.home, self.life, self.changes[name], []

        def then(_: object) -> None:
            assert self.life == life, "told by a home that is gone"
            told.append(True)
            if self.changes[name] == change:
                for each in home.filters[name].conjunctions:
                    narrow = Filter("", (each,))
                    assert any(covers(some.filter, narrow) for some in self.present.values()), f"{narrow} is nowhere"

        def asked(_: object) -> None:
            self.placement.when_placed(home, name).then(then)

        record = "subscription/" + name
        unsafe = any(record in (*dict(kept), *gone) for kept, gone, _ in self.disk.pending)
        self.step(lambda: self.disk.commit().then(asked) if unsafe else asked(None))
        return told

    def flush(self, count: int = 1) -> None:
        for _ in range(count):
            if self.disk.pending:
                self.step(self.disk.flush)

    def arrive(self, at: int, *, heard: bool = True, crowded: bool = False) -> None:
        """An entry is placed; whether its home hears of it. Or the place is crowded."""
        if not self.installing:
            return
        number, entry, ended = self.installing[at % len(self.installing)]
        if crowded:
            if number in self.present:
                return  # what is there is there
            self.installing.pop(at % len(self.installing))
            self.step(lambda: ended.set(Entry(b"", b"", entry.body)))
            return
        if number not in self.uninstalled:
            _, which, text = entry.body.decode().split("/", 2)
            conjunction = parse_filter(text).conjunctions[int(which)]
            self.present.setdefault(number, Present(self.now, Filter("", (conjunction,))))
        if heard:
            self.installing.pop(at % len(self.installing))
            self.step(lambda: ended.set(None))

    def are_gone(self) -> None:
        """All that was uninstalled is told."""
        jobs, self.uninstalling = self.uninstalling, []
        for _, done in jobs:
            self.step(lambda done=done: done.set(None))  # type: ignore[misc]

    def wait(self, seconds: float) -> None:
        until = self.now + int(seconds * US)
        while self.timers and self.timers[0][0] <= until:
            at, timer = heapq.heappop(self.timers)
            self.now = max(self.now, at)
            self.step(lambda timer=timer: self.runtime.fired(timer))  # type: ignore[misc]
        self.now = until

    def crash(self, *, moved: bool, old: int | None = None) -> None:
        """The node crashes, and what was not safe is lost; or the home moves, with all of it.

        `old`: copies of what was forgotten come back, in one of its versions. Of all else the last one is safe.
        """
        if moved:
            self.flush(len(self.disk.pending))
            self.step(lambda: self.placement.home_stopped(HOME))
            self.homes.clear()
        self.epoch += moved
        back = {name: each[old % len(each)] for name, each in self.disk.old.items()} if old is not None else {}
        self.begin({**back, **self.disk.safe})

    def settle(self) -> None:
        """Everything that is under way comes to its end."""
        for _ in range(10_000):
            if self.disk.pending:
                self.flush()
            elif self.installing:
                self.arrive(0)
            elif self.uninstalling:
                self.are_gone()
            elif self.timers:
                self.wait(max(0, self.timers[0][0] - self.now) / US)
            else:
                return
            self.check()
        raise AssertionError("it does not come to an end")

    def check_settled(self) -> None:
        home = self.home
        held = {name: (number, parse_filter(text)) for name, (number, text) in home.subscriptions.items()}
        wanted = sorted(render((held[name][1].conjunctions[at],)) for name, at in maximal(held))
        assert sorted(render(each.filter.conjunctions) for each in self.present.values()) == wanted
        places = self.placement._places[HOME]
        assert {name for name, each in places.items() if each.entries} == {name for name, _ in maximal(held)}
        assert places.keys() <= held.keys()
        assert all(not (each.leaving or each.open) for each in places.values())
        assert {name for name in self.disk.safe if name.startswith("places/")} == {f"places/{name}" for name in places}
        assert self.placement.is_free(home) is (not held)
