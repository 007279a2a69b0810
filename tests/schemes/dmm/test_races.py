"""Whatever happens while a region is split or merged, at every moment of it: nothing acknowledged is missed, no two
regions ever serve a point (the small world looks after every step), and in the end all is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import pytest

from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Stored
from meetpoint.node.home.home import Home
from meetpoint.placement.messages import KeyedReply, KeyedRequest
from meetpoint.schemes.dmm import regions
from meetpoint.schemes.dmm.messages import CloseHalf, DissolveHalf, OpenHalf, Preload, RegionEntry
from meetpoint.schemes.dmm.region_changes import RegionChanges, RegionTask
from meetpoint.schemes.dmm.regions import Regions
from meetpoint.schemes.dmm.rules import RegionRecord, RegionState, Verdict
from meetpoint.schemes.dmm.space import ROOT, Code
from tests.placement.small_world import CODEC, free
from tests.schemes.dmm.small_world import EAGER, DmmWorld
from tests.tiers import SOAK

POINTS = [(1, 1), (9, 3), (5, 12), (13, 13), (3, 7), (11, 9)]
STAY = 2
"""How many of those who want them stay: as many as two halves may have that are merged, one in each."""
LOW, HIGH = Code("0"), Code("1")
ONCE = msgspec.structs.replace(EAGER, depth=1, threshold=4)
"""Only the root can be split."""


class Scene:
    """A network in which the root is split, or split and merged again; some more happens at one moment of that."""

    def __init__(self, seed: int = 1) -> None:
        self.world = DmmWorld(seed=seed, dmm=ONCE)
        self.world.run(2)
        self.parent = self.world.holder(ROOT)
        self.children = [self.world.holder(LOW), self.world.holder(HIGH)]
        assert len({self.parent, *self.children}) == 3
        self.at = self.world.others(self.parent, *self.children)[0]  # here are clients, and nothing happens to it
        self.wanted: dict[str, tuple[int, int]] = {}
        self.requests: dict[str, int] = {}
        self.due: set[tuple[str, str]] = set()  # names and events that must come together

    def want(self, name: str, point: tuple[int, int]) -> None:
        self.requests[name] = self.world.want(self.at, name, *point)
        self.wanted[name] = point

    def end(self, name: str) -> None:
        self.requests[f"{name} ends"] = self.world.end(self.at, name)
        del self.wanted[name]

    def publish(self, name: str, point: tuple[int, int], number: int | None = None) -> None:
        number = self.at if number is None else number
        self.world.publish(number, name, a=point[0], b=point[1])
        for each, wanted in self.wanted.items():
            if wanted == point and self.world.answers.get(self.requests[each]) == Stored():
                self.due.add((each, name))

    def split_to(self, reached: Callable[[], bool]) -> None:
        """The root becomes too full, and comes to a moment of its split."""
        for number, point in enumerate(POINTS):
            self.want(f"s{number}", point)
        self.world.run_until(reached)

    def merge_to(self, reached: Callable[[], bool]) -> None:
        """And then too empty."""
        self.split_to(lambda: self.is_at(RegionState.INTERIOR, is_informed=True))
        self.world.run(10)
        for number in range(STAY, len(POINTS)):
            self.end(f"s{number}")
        self.world.run_until(reached)

    def is_at(self, state: RegionState, *, is_informed: bool | None = None, turn: int = 0) -> bool:
        kept = self.world.record()
        if kept is None or kept.state is not state or kept.epoch < turn:
            return False
        return is_informed is None or kept.is_informed is is_informed

    def judge(self) -> None:
        """All is well in the end."""
        world = self.world
        assert {name: world.answers.get(request) for name, request in self.requests.items()} == dict.fromkeys(
            self.requests, Stored()
        )
        for number, point in enumerate((*POINTS, (0, 0), (14, 1))):
            self.publish(f"late {number}", point, world.others()[number % len(world.nodes)])
        world.run(15)
        came = {(name, event) for name, event, _ in world.notified}
        assert {each for each in came if each[1].startswith("late")} == {
            each for each in self.due if each[1].startswith("late")
        }
        ended = {name.removesuffix(" ends") for name in self.requests}
        assert {each for each in self.due - came if each[0] not in ended} == set()
        world.run(90)  # what was withdrawn is forgotten, what is low is merged
        world.check_quiet()


MOMENTS: dict[str, Callable[[Scene], None]] = {
    "splitting": lambda scene: scene.split_to(lambda: scene.is_at(RegionState.SPLITTING)),
    "opening": lambda scene: scene.split_to(lambda: scene.is_at(RegionState.INTERIOR, is_informed=False)),
    "split": lambda scene: scene.split_to(lambda: scene.is_at(RegionState.INTERIOR, is_informed=True)),
    "merging": lambda scene: scene.merge_to(lambda: scene.is_at(RegionState.MERGING)),
    "dissolving": lambda scene: scene.merge_to(lambda: scene.is_at(RegionState.LEAF, is_informed=False, turn=2)),
    "merged": lambda scene: scene.merge_to(lambda: scene.is_at(RegionState.LEAF, is_informed=True, turn=2)),
}
DELAYS = [0, 0.003, 0.02, 0.06]
"""A write takes 2 ms, a message 5 to 50."""


def _restart_all(scene: Scene) -> None:
    for number in scene.world.others(scene.at):
        scene.world.restart(number)


def _cut_off(scene: Scene, seconds: float, *numbers: int) -> None:
    scene.world.cut_off(*numbers)
    scene.world._later(int(seconds * 1_000_000), scene.world.heal)


def _hand_over(scene: Scene, number: int) -> None:
    if scene.world.nodes[number].home_manager.homes:
        free(scene.world, number)


def _all_at_once(scene: Scene) -> None:
    """Clients that know of nothing."""
    scene.want("new 1", (2, 2))
    scene.want("new 2", (12, 12))
    if "s5" in scene.wanted:
        scene.end("s5")
    for number, point in enumerate(POINTS[1:]):
        scene.publish(f"meanwhile {number}", point, scene.world.others()[number % len(scene.world.nodes)])


TROUBLE: dict[str, Callable[[Scene], None]] = {
    "the parent's node restarts": lambda scene: scene.world.restart(scene.parent),
    "the parent's node loses its disk": lambda scene: scene.world.restart(scene.parent, lose_disk=True),
    "the parent's arc goes to another home": lambda scene: _hand_over(scene, scene.parent),
    "a child's node restarts": lambda scene: scene.world.restart(scene.children[0]),
    "a child's node loses its disk": lambda scene: scene.world.restart(scene.children[1], lose_disk=True),
    "a child's arc goes to another home": lambda scene: _hand_over(scene, scene.children[1]),
    "nearly all restart": _restart_all,
    "the parent is cut off": lambda scene: _cut_off(scene, 12, scene.parent),
    "a child is cut off": lambda scene: _cut_off(scene, 12, scene.children[0]),
    "clients go on": lambda scene: None,
}


def _play(moment: str, trouble: str, seed: int, delay: float) -> None:
    scene = Scene(seed=seed)
    MOMENTS[moment](scene)
    scene.world.run(delay)
    TROUBLE[trouble](scene)
    _all_at_once(scene)
    scene.world.run(60)
    scene.judge()


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("trouble", TROUBLE)
def test_nothing_that_happens_at_any_moment_is_a_matter(moment: str, trouble: str) -> None:
    turn = list(TROUBLE).index(trouble) + list(MOMENTS).index(moment)
    for delay in DELAYS if SOAK else (DELAYS[turn % len(DELAYS)],):
        _play(moment, trouble, turn, delay)


# -- messages ----------------------------------------------------------------------------------------------------------


def _inner(message: Message) -> Message | None:
    """What an errand or its answer carries."""
    return CODEC.decode(message.body) if isinstance(message, KeyedRequest | KeyedReply) else None


def _grow_and_shrink(scene: Scene) -> None:
    """Through all states, and to a split again."""
    scene.merge_to(lambda: scene.is_at(RegionState.LEAF, is_informed=True, turn=2))
    for number, point in enumerate(POINTS):
        scene.want(f"again {number}", point)
    scene.world.run_until(lambda: scene.is_at(RegionState.INTERIOR, is_informed=True, turn=3), 90)
    scene.world.run(30)
    scene.judge()


def test_errands_that_come_twice_and_late_do_nothing() -> None:
    """All commands and answers come a second time, when the next state but one is reached."""
    scene = Scene()
    doubled: dict[str, int] = {}

    def weather(source: int, to: int, message: Message) -> Iterable[int] | None:
        inner = _inner(message)
        if inner is None:
            return None
        kind = type(inner).__name__
        doubled[kind] = doubled.get(kind, 0) + 1
        return (20_000, 150_000, 2_500_000, 24_000_000)

    scene.world.weather = weather
    _grow_and_shrink(scene)
    expected = {"Preload", "OpenHalf", "CloseHalf", "DissolveHalf", "AddEntry", "RemoveEntry", "MatchRequest"}
    assert expected <= doubled.keys()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Preload, OpenHalf, CloseHalf, DissolveHalf])
def test_one_command_that_comes_when_all_is_over_does_nothing(kind: type[Message]) -> None:
    """It comes first as it should, and again in each later state."""
    scene = Scene()
    kept: list[tuple[int, Message]] = []

    def weather(source: int, to: int, message: Message) -> Iterable[int] | None:
        if isinstance(_inner(message), kind):
            kept.append((to, message))
        return None

    def again() -> None:
        for to, message in kept:
            if to in scene.world.nodes:
                scene.world.say(to, message)
        scene.world._later(300_000, again)

    scene.world.weather = weather
    again()
    _grow_and_shrink(scene)
    assert kept


def test_answers_that_are_lost_are_asked_for_again() -> None:
    scene = Scene()
    scene.world.weather = lambda source, to, message: (
        () if isinstance(message, KeyedReply) and scene.world.random.random() < 0.4 else None
    )
    _grow_and_shrink(scene)


# -- what cannot be finished -------------------------------------------------------------------------------------------


def test_a_split_that_cannot_be_finished_is_given_up_and_does_not_hold_up_subscribers() -> None:
    scene = Scene()
    lost = scene.children[1]
    scene.world.weather = lambda source, to, message: (
        () if isinstance(_inner(message), Preload) and to == lost else None
    )
    scene.split_to(lambda: scene.is_at(RegionState.SPLITTING))
    scene.world.run(12)
    assert scene.world.observed["region_splitting_given_up"] == 1
    assert {scene.world.answers.get(request) for request in scene.requests.values()} == {Stored()}
    scene.world.run(60)
    assert 2 <= scene.world.observed["region_splitting_given_up"] <= 3, "it is tried less and less often"
    for number in range(3):
        scene.want(f"more {number}", (number, number))
    scene.world.run(12)
    assert scene.world.answers.get(scene.requests["more 2"]) == Stored()
    scene.world.weather = lambda source, to, message: None
    scene.world.run(90)
    assert scene.is_at(RegionState.INTERIOR, is_informed=True)
    scene.judge()


def test_a_merge_that_cannot_be_finished_is_given_up_and_what_was_closed_opens_again() -> None:
    scene = Scene()
    lost = scene.children[1]
    scene.world.weather = lambda source, to, message: (
        () if isinstance(_inner(message), CloseHalf) and to == lost else None
    )
    scene.merge_to(lambda: scene.is_at(RegionState.MERGING))
    scene.world.run(0.3)
    assert scene.world.record(LOW) is not None
    assert scene.world.record(LOW).state is RegionState.FROZEN  # type: ignore[union-attr]
    scene.publish("meanwhile", POINTS[0])
    scene.want("new", POINTS[0])
    scene.world.run(6)
    assert scene.world.observed["region_merging_given_up"] == 1
    assert scene.is_at(RegionState.INTERIOR, is_informed=True)
    assert scene.world.leaves() == [LOW, HIGH]
    assert ("s0", "meanwhile") in scene.world.came()
    assert scene.world.answers.get(scene.requests["new"]) == Stored()
    scene.world.weather = lambda source, to, message: None
    scene.world.run(30)
    scene.judge()


def test_a_half_that_knows_of_later_turns_than_its_parent_is_caught_up_with() -> None:
    """As where a region was dissolved and forgotten, and its halves were not."""
    scene = Scene()
    key = bytes(scene.world.scheme(scene.parent)._regions.key(HIGH))
    errand = KeyedRequest(key, key, scene.world.nodes[scene.at].me, 1, 0, CODEC.encode(DissolveHalf(HIGH, 50)))
    scene.world.say(scene.children[1], errand)
    scene.split_to(lambda: scene.is_at(RegionState.INTERIOR, is_informed=True))
    kept = scene.world.record()
    assert kept is not None
    assert kept.epoch == 51
    assert scene.world.observed["region_splitting_given_up"] == 1
    scene.judge()


@pytest.mark.parametrize("moment", ["splitting", "opening", "merging", "dissolving"])
def test_a_region_that_is_not_held_for_a_moment_goes_on_afterwards(moment: str) -> None:
    """As when an arc was given to a home that ended before it heard of that."""
    scene = Scene()
    MOMENTS[moment](scene)
    custody = scene.world.scheme(scene.parent)._ownership
    (owner,) = custody.owned_ranges
    custody._kept.hidden[owner] = list(custody.owned_ranges[owner].arcs)
    scene.world.run(0.3)
    assert scene.world.record() is None
    custody._kept.hidden[owner] = []
    scene.world.run(30)
    scene.judge()


# -- what is lost with all copies --------------------------------------------------------------------------------------


def test_a_leaf_that_is_lost_with_all_copies_begins_anew_empty() -> None:
    """Its subscriptions are lost, as promised for one lost disk only; but nobody waits for it for ever."""
    scene = Scene()
    world = scene.world
    scene.split_to(lambda: scene.is_at(RegionState.INTERIOR, is_informed=True))
    world.run(10)
    number = scene.children[1]
    node = world.nodes[number]
    effects = node._runtime.begin(world.local(number))
    owner = next(iter(node.home_manager.homes.values()))
    here = world.scheme(number)._regions
    here.drop_all(owner, HIGH)
    here.forget(owner, HIGH)
    world._apply(number, node, effects)
    assert world.leaves() == [LOW]
    scene.want("new", POINTS[1])
    scene.publish("e", POINTS[0])
    world.run(30)
    assert world.answers.get(scene.requests["new"]) == Stored()
    assert world.leaves() == [LOW, HIGH]
    assert world.observed["region_lost"] == 1
    scene.publish("late", POINTS[1])
    world.run(5)
    assert ("s0", "e") in world.came()
    assert ("new", "late") in world.came()


# -- and were a rule missing -------------------------------------------------------------------------------------------


def _at_once(self: Regions, home: Home, then: Callable[[], None]) -> None:
    then()


def _half_of_it(self: RegionChanges, task: RegionTask, items: Sequence[RegionEntry]) -> None:
    TAKE(self, task, items[1:])


def _never_busy(kept: RegionRecord | None, *, is_change: bool) -> Verdict:
    return VERDICT(kept, is_change=False)


TAKE, VERDICT = RegionChanges._take, regions._verdict
MUTANTS: dict[str, tuple[object, str, object, str, str]] = {
    "nobody waits for disks": (Regions, "when_safe", _at_once, "opening", "the parent's node restarts"),
    "a merge loses an entry": (RegionChanges, "_take", _half_of_it, "merging", "clients go on"),
    "a region changes while it is split": (regions, "_verdict", _never_busy, "splitting", "clients go on"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_that_is_missing_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, instead, moment, trouble = MUTANTS[mutant]
    monkeypatch.setattr(where, name, instead)
    found = 0
    for seed, delay in enumerate(DELAYS):
        try:
            _play(moment, trouble, seed, delay)
        except AssertionError:
            found += 1
    assert found
