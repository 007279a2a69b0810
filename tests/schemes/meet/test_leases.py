"""Summaries under bad weather, in small worlds of real nodes: messages late, doubled, lost and out of order; clocks
that go wrong; nodes that crash, arcs that move. At every moment:

    Whenever a placement under a key is acknowledged, and as long as the subscription wants it, no publisher has a
    summary that is still good and speaks of an arc with the place of the key, and that lacks the key.

And in the end every event has come to all subscriptions that were acknowledged before it was published. The mutants
take one rule away each, and are seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Stored
from meetpoint.api.requests import Subscribe, Unsubscribe, Update
from meetpoint.schemes.meet import MeetSettings
from meetpoint.schemes.meet.entries import read_key_entry
from meetpoint.schemes.meet.entry_tables import KeyLeases, KeyTables
from tests.placement.small_world import MeetWorld, free, home, symbols_between

US = 1_000_000
LEASE_US = 6 * US
LOOK_EVERY = 7  # steps: what is wrong stays so for a while
SYMBOLS = [f"S{number}" for number in range(16)]


class BrokenError(Exception):
    """The property does not hold."""


class LeaseWorld(MeetWorld):
    """Looks at all summaries every so often."""

    watching = False
    steps = 0

    def stepped(self) -> None:
        self.steps += 1
        if self.watching and not self.steps % LOOK_EVERY:
            wrong = self.lacking()
            if wrong:
                raise BrokenError(wrong[0])

    def lacking(self) -> list[str]:
        """Summaries that lack a key they must have."""
        acknowledged = [
            (filed.key, placed.at.low, name)
            for number in self.nodes
            for places in self.scheme(number)._placement._places.values()
            for name, each in places.items()
            for placed in each.entries.values()
            if placed.number not in each.open and (filed := read_key_entry(placed.at.body)) is not None
        ]
        return [
            f"{self.now}: node {number} lacks {key} of {name} in what it knows of {of.hex()}"
            for number, node in self.nodes.items()
            for of, lease in self.scheme(number)._summaries._leases.items()
            if lease.until > self.local(number) and of not in node.home_manager.homes
            for key, place, name in acknowledged
            if key not in lease.keys and any(arc.holds(place) for arc in lease.arcs)
        ]


class Story:
    """One random life of a small network."""

    def __init__(self, seed: int, nodes: int = 4, rates: float = 0.0005, crowded: int = 256) -> None:
        self.random = random.Random(seed)
        meet = MeetSettings(lease_us=LEASE_US, crowded=crowded, children=3)
        self.world = LeaseWorld(nodes, seed=seed, meet=meet, holding_us=2 * US)
        self.symbols = SYMBOLS if crowded > 1 else SYMBOLS[:5]
        self.world.rates = {number: 1 + self.random.uniform(-rates, rates) for number in range(1, nodes + 1)}
        self.nodes = nodes
        self.asked: dict[int, tuple[str, str | None]] = {}
        self.filters: dict[str, tuple[int, str]] = {}  # acknowledged, at which node, and which symbol they want
        self.busy: dict[str, int] = {}
        self.due: list[tuple[str, str]] = []
        self.count = 0

    def weather(self, source: int, to: int, message: Message) -> Iterable[int]:
        drawn = self.random.random()
        times = 0 if drawn < 0.08 else 2 if drawn < 0.2 else 1
        most = 1_900_000 if self.random.random() < 0.1 else 60_000
        return [self.random.randrange(2_000, most) for _ in range(times)]

    def live(self, seconds: float) -> None:
        """Anything may happen."""
        self.world.run(2)
        self.world.watching = True
        self.world.weather = self.weather
        until = self.world.now + int(seconds * US)
        while self.world.now < until:
            deeds = [(self.subscribe, 10), (self.publish, 12), (self.end, 4), (self.change, 4), (self.give, 1),
                     (self.crash, 1)]  # fmt: skip
            deed = self.random.choices([deed for deed, _ in deeds], [weight for _, weight in deeds])[0]
            deed()
            self.world.run(self.random.choice([0.05, 0.2, 0.6]))
            self.hear()
        self.world.weather = lambda source, to, message: None
        for number in range(1, self.nodes + 1):
            if number not in self.world.nodes:
                self.world.start(number, contacts=[each for each in range(1, self.nodes + 1) if each != number])
        self.world.run(60)
        self.hear()

    def hear(self) -> None:
        for request, (name, value) in list(self.asked.items()):
            if self.world.answers.get(request) == Stored():
                del self.asked[request], self.busy[name]
                if value is not None:
                    self.filters[name] = (self.count, value)

    def subscribe(self) -> None:
        if self.world.nodes:
            self.count += 1
            name, value = f"s{self.count}", self.random.choice(self.symbols)
            at = self.random.choice(list(self.world.nodes))
            self.asked[self.world.ask(at, Subscribe(name, f"symbol = '{value}'"))] = (name, value)
            self.busy[name] = at

    def _idle(self) -> list[tuple[int, str]]:
        return [
            (number, name)
            for number, node in self.world.nodes.items()
            for each in node.home_manager.homes.values()
            for name in each.filters
            if name in self.filters and name not in self.busy and node.state == "ready"
        ]

    def end(self) -> None:
        if there := self._idle():
            number, name = self.random.choice(there)
            del self.filters[name]
            self.due = [each for each in self.due if each[0] != name or each in self.world.came()]
            self.asked[self.world.ask(number, Unsubscribe(name))] = (name, None)
            self.busy[name] = number

    def change(self) -> None:
        """The same events, and others as well: whoever is due stays so."""
        if there := self._idle():
            number, name = self.random.choice(there)
            _, value = self.filters[name]
            text = f"symbol = '{value}' AND price {self.random.choice('<>')} -1 OR symbol = '{value}'"
            self.asked[self.world.ask(number, Update(name, text))] = (name, value)
            self.busy[name] = number

    def publish(self) -> None:
        ready = [number for number, node in self.world.nodes.items() if node.state == "ready"]
        if ready:
            self.count += 1
            value, id_ = self.random.choice(self.symbols), f"e{self.count}"
            number = self.random.choice(ready)
            last = self.world.nodes[number]
            request = self.world.publish(number, id_, symbol=value)
            names = [name for name, (_, wanted) in self.filters.items() if wanted == value]

            def later() -> None:
                if request in self.world.answers and self.world.nodes.get(number) is last:
                    self.due += [(name, id_) for name in names if name in self.filters]

            self.world._later(1_500_000, later)

    def give(self) -> None:
        number = self.random.choice(list(self.world.nodes))
        if home(number) in self.world.nodes[number].home_manager.homes:
            free(self.world, number)

    def crash(self) -> None:
        if len(self.world.nodes) > self.nodes - 1:
            number = self.random.choice(list(self.world.nodes))
            self.world.crash(number)
            self.world._later(
                self.random.randrange(300_000, 3_000_000),
                lambda: number in self.world.nodes or self.world.start(number, contacts=range(1, self.nodes + 1)),  # type: ignore[arg-type, func-returns-value]
            )

    def missing(self) -> list[tuple[str, str]]:
        came = {(name, event) for name, event, _ in self.world.notified}
        return [each for each in self.due if each not in came]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_no_summary_lacks_a_key_that_was_acknowledged(seed: int) -> None:
    story = Story(seed)
    story.live(30)
    assert story.missing() == []
    story.world.check_arcs()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_nor_one_under_a_child_of_a_crowded_key(seed: int) -> None:
    story = Story(seed, crowded=1)
    story.live(30)
    assert story.missing() == []


def caught(stories: Iterable[Story], seconds: float) -> bool:
    """Whether the property, or the events, show that something is wrong."""
    for story in stories:
        try:
            story.live(seconds)
        except BrokenError:
            return True
        if story.missing():
            return True
    return False


def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyLeases, "when_known", lambda self, then: then())


def no_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    right = KeyLeases.__init__
    monkeypatch.setattr(KeyLeases, "__init__", lambda self, *rest, unknown_us: right(self, *rest, unknown_us=0))


def nothing_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyTables, "owed_us", lambda self, home: 0)


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [no_waiting, no_quarantine, nothing_owed]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_seen(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    assert caught((Story(seed) for seed in range(40, 140)), 30)  # of the rarest, one in forty shows it


def test_who_joins_a_network_in_which_nobody_publishes_need_not_wait() -> None:
    world = MeetWorld(1, seed=3)
    for number in (2, 3, 4):
        world.start(number, contacts=range(1, number))
    world.run(5)
    for number in (1, 2, 3, 4):
        for place in range(1, 5):
            symbols = symbols_between(1000 * (place - 1), 1000 * place)
            world.subscribed(number, f"s{number}-{place}", f"symbol = '{symbols[0]}'", 2)


def test_who_gets_an_arc_waits_for_the_summaries_of_who_gave_it() -> None:
    world = MeetWorld(3, seed=3)
    world.run(2)
    symbols = symbols_between(1000, 2000)
    world.subscribed(2, "first", f"symbol = '{symbols[0]}'")
    world.publish(1, "e1", symbol=symbols[0])  # node 1 has a summary of node 2's home now
    world.run(1)
    free(world, 2)
    world.run(2)
    request = world.ask(3, Subscribe("second", f"symbol = '{symbols[1]}'"))
    world.run(4)
    assert request not in world.answers
    world.run(10)
    assert world.answers[request] == Stored()
