"""All that can happen to a region and its halves, searched: every order of steps, messages that come late, twice or
never, and crashes that take back what was not on disk.

A message that was sent may arrive at any time from then on, any number of times. Of each region there is what is in
memory, what is on disk, and the writes between the two, which become safe in their order. The parent remembers which
children have answered; a crash makes it forget. Entries are letters: `p` meets both halves, `0` and `1` one each; one
is acknowledged when it is safe where it was put, and from then on whoever serves a half must have what meets it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from meetpoint.schemes.dmm import rules
from meetpoint.schemes.dmm.rules import ROOT_RECORD, RegionRecord, RegionState

MEETS = {"p": "p01", "0": "p0", "1": "p1"}
Entries = frozenset[str]
Version = tuple[RegionRecord | None, Entries]


class World(NamedTuple):
    """One moment."""

    regions: tuple[tuple[Version, ...], ...]
    """Of the parent and its two halves: what is on disk, the writes after it, and last what is in memory."""
    sent: frozenset[tuple[Any, ...]]
    """All commands and answers so far."""
    heard: frozenset[tuple[Any, ...]]
    """What the parent knows of its children, in this turn and state."""
    acked: Entries


Step = tuple[str, World]


def beginning() -> World:
    nothing: Version = (None, frozenset())
    return World((((ROOT_RECORD, frozenset()),), (nothing,), (nothing,)), frozenset(), frozenset(), frozenset())


class Rules(NamedTuple):
    """What is searched; mutants have others."""

    sow: Callable[[RegionRecord | None, int], RegionRecord | None] = rules.preload
    open_: Callable[[RegionRecord | None, int], RegionRecord | None] = rules.open_
    close: Callable[[RegionRecord | None, int], RegionRecord | None] = rules.close
    dissolve: Callable[[RegionRecord | None, int], RegionRecord | None] = rules.dissolve
    give_up: Callable[[RegionRecord], RegionRecord] = rules.give_up
    finish_merge: Callable[[RegionRecord], RegionRecord] = rules.finish_merge
    waits: bool = True
    """Whether a state is safe before anyone hears of it."""


class Search:
    """The steps of one world."""

    def __init__(self, turns: int, which: Rules | None = None, *, puts: str = "p01", lag: int = 2) -> None:
        self.turns = turns
        self.puts = puts
        self.lag = lag  # how many writes may be on their way to a disk at one time
        self.which = Rules() if which is None else which

    def steps(self, world: World) -> Iterator[Step]:
        """All that can happen next."""
        yield from self._disks(world)
        yield from self._puts(world)
        yield from self._parent(world)
        for message in sorted(world.sent, key=repr):
            if message[0] in ("sow", "open", "close", "dissolve"):
                yield from self._child(world, message)
            elif message not in world.heard and self._is_for(world, message):
                yield f"parent hears {message}", world._replace(heard=world.heard | {message})

    # -- disks ---------------------------------------------------------------------------------------------------------

    def _disks(self, world: World) -> Iterator[Step]:
        for at, versions in enumerate(world.regions):
            if len(versions) > 1:
                safe = self._set(world, at, versions[1:])
                if versions[1][0] is not None and versions[1][0].serves:
                    new = {each for each in versions[1][1] - versions[0][1] if at == 0 or each == str(at - 1)}
                    safe = safe._replace(acked=safe.acked | new)
                yield f"{at} is safe", safe
                crashed = self._set(world, at, versions[:1])
                yield f"{at} crashes", crashed._replace(heard=frozenset()) if at == 0 else crashed
            elif at == 0 and world.heard:
                yield "0 crashes", world._replace(heard=frozenset())

    def _set(self, world: World, at: int, versions: tuple[Version, ...]) -> World:
        regions = (*world.regions[:at], versions, *world.regions[at + 1 :])
        return world._replace(regions=regions)

    def _write(self, world: World, at: int, kept: RegionRecord | None, entries: Entries) -> World | None:
        versions = world.regions[at]
        if versions[-1] == (kept, entries):
            return world
        return None if len(versions) > self.lag else self._set(world, at, (*versions, (kept, entries)))

    def _is_safe(self, world: World, at: int) -> bool:
        return len(world.regions[at]) == 1 or not self.which.waits

    # -- clients -------------------------------------------------------------------------------------------------------

    def _puts(self, world: World) -> Iterator[Step]:
        for at, entry in ((0, "p"), (0, "0"), (1, "0"), (2, "1")):
            if entry not in self.puts:
                continue
            kept, entries = world.regions[at][-1]
            if (
                kept is not None
                and kept.state is RegionState.LEAF
                and entry not in entries
                and entry not in world.acked
            ):
                after = self._write(world, at, kept, entries | {entry})
                if after is not None:
                    yield f"{entry} is put at {at}", after

    # -- the parent ----------------------------------------------------------------------------------------------------

    def _is_for(self, world: World, message: tuple[Any, ...]) -> bool:
        kept = world.regions[0][-1][0]
        assert kept is not None
        wanted = {
            RegionState.SPLITTING: "sown",
            RegionState.INTERIOR: "opened",
            RegionState.MERGING: "closed",
            RegionState.LEAF: "dissolved",
        }
        return message[:2] == (wanted[kept.state], kept.epoch)

    def _parent(self, world: World) -> Iterator[Step]:
        kept, entries = world.regions[0][-1]
        assert kept is not None
        if kept.is_at_rest and kept.epoch < self.turns:
            yield from self._turn(world, "split", rules.begin_split(kept), entries)
        if kept.state is RegionState.INTERIOR and kept.is_informed and kept.epoch < self.turns:
            yield from self._turn(world, "merge", rules.begin_merge(kept), entries)
            yield from self._turn(world, "reopen", rules.reopen(kept), entries)
        if kept.state in (RegionState.SPLITTING, RegionState.MERGING):
            yield from self._turn(world, "give up", self.which.give_up(kept), entries)
        if self._is_safe(world, 0):
            yield from self._commands(world, kept, entries)
        yield from self._finish(world, kept, entries)

    def _turn(self, world: World, what: str, kept: RegionRecord, entries: Entries) -> Iterator[Step]:
        after = self._write(world, 0, kept, entries)
        if after is not None:
            yield f"parent: {what} {kept.epoch}", after._replace(heard=frozenset())

    def _commands(self, world: World, kept: RegionRecord, entries: Entries) -> Iterator[Step]:
        kind = {
            RegionState.SPLITTING: "sow",
            RegionState.INTERIOR: "open",
            RegionState.MERGING: "close",
            RegionState.LEAF: "dissolve",
        }[kept.state]
        if kept.state in (RegionState.LEAF, RegionState.INTERIOR) and kept.is_informed:
            return
        for child in (1, 2):
            lot = frozenset(each for each in entries if each in MEETS[str(child - 1)]) if kind == "sow" else frozenset()
            message = (kind, kept.epoch, child, lot)
            if message not in world.sent:
                yield f"sent {message}", world._replace(sent=world.sent | {message})

    def _finish(self, world: World, kept: RegionRecord, entries: Entries) -> Iterator[Step]:
        if {message[2] for message in world.heard} != {1, 2}:
            return
        if kept.state is RegionState.SPLITTING:
            yield from self._turn(world, "has split", rules.finish_split(kept), frozenset())
        elif kept.state is RegionState.MERGING:
            if all(message[3] is not None for message in world.heard):
                union = frozenset[str]().union(*(message[3] for message in world.heard))
                yield from self._turn(world, "has merged", self.which.finish_merge(kept), union)
        elif not kept.is_informed:
            yield from self._turn(world, "settles", rules.inform_children(kept), entries)

    # -- the children --------------------------------------------------------------------------------------------------

    def _child(self, world: World, message: tuple[Any, ...]) -> Iterator[Step]:
        kind, turn, child, lot = message
        kept, entries = world.regions[child][-1]
        step = {"sow": self.which.sow, "open": self.which.open_, "close": self.which.close,
                "dissolve": self.which.dissolve}[kind]  # fmt: skip
        after = step(kept, turn)
        done = {"sow": "sown", "open": "opened", "close": "closed", "dissolve": "dissolved"}[kind]
        if after is None:
            if kind != "sow":
                yield f"{child} refuses {message}", self._answer(world, (done, turn, child, None))
            return
        if kind == "sow" and after.state is RegionState.EMBRYO:
            entries = entries | lot if after == kept else lot
        elif kind == "dissolve":
            entries = frozenset()
        changed = self._write(world, child, after, entries)
        if changed is None:
            return
        if changed is not world:
            yield f"{child} obeys {message}", changed
        if self._is_safe(changed, child):
            yield (
                f"{child} answers {message}",
                self._answer(changed, (done, turn, child, entries if kind == "close" else frozenset())),
            )

    def _answer(self, world: World, answer: tuple[Any, ...]) -> World:
        return world._replace(sent=world.sent | {answer})


def wrong(world: World) -> str | None:
    """What must never be."""
    memory = [versions[-1] for versions in world.regions]
    serving = [kept is not None and kept.serves for kept, _ in memory]
    if serving[0] and any(serving[1:]):
        return "a region and its half both serve"
    parent, states = memory[0][0], [kept.state if kept is not None else None for kept, _ in memory[1:]]
    assert parent is not None
    if parent.is_informed and parent.epoch and parent.state in (RegionState.LEAF, RegionState.INTERIOR):
        for state in states:
            if (state is RegionState.LEAF) is not parent.is_split or (
                state is not RegionState.GONE and not parent.is_split
            ):
                return f"the parent is settled as {parent.state}, and a half is {state}"
    for at, (_, entries) in enumerate(memory):
        if serving[at]:
            wanted = world.acked if at == 0 else {each for each in world.acked if each in MEETS[str(at - 1)]}
            if not wanted <= entries:
                return f"{at} serves without {sorted(wanted - entries)}"
    return None


def search(searched: Search, limit: int) -> tuple[int, list[str] | None]:
    """Breadth first: how many worlds there are, and the shortest way to one that is wrong."""
    first = beginning()
    came: dict[World, tuple[World, str] | None] = {first: None}
    queue = deque([first])
    while queue and len(came) < limit:
        world = queue.popleft()
        for what, after in searched.steps(world):
            if after not in came:
                came[after] = (world, what)
                if wrong(after) is not None:
                    return len(came), story(came, after)
                queue.append(after)
    return len(came), None


def story(came: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    parent_epoch = [str(wrong(world))]
    while (before := came[world]) is not None:
        world, what = before
        parent_epoch.append(what)
    return parent_epoch[::-1]


def wander(searched: Search, seed: int, length: int, seen: set[RegionState] | None = None) -> list[str] | None:
    """A long way through worlds that no search comes to; told where it leads to one that is wrong."""
    random, world, parent_epoch = Random(seed), beginning(), list[str]()
    for _ in range(length):
        steps = [(what, after) for what, after in searched.steps(world) if after != world]
        if not steps:
            return None
        weights = [1 if "give up" in what or "crashes" in what else 8 for what, _ in steps]
        what, world = random.choices(steps, weights)[0]
        parent_epoch.append(what)
        found = wrong(world)
        if found is not None:
            return [*parent_epoch, found]
        if seen is not None:
            seen |= {versions[-1][0].state for versions in world.regions if versions[-1][0] is not None}
    return None
