"""Orders of events that no seed need ever draw, one small world each: what went wrong once, and what would, were a
rule missing. Arcs are moved by hand: `Custody.free` lets the next home take all that a home holds, at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import pytest

from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.messages import Message, Reply
from meetpoint.api.outcomes import Stored
from meetpoint.api.requests import Leave, Subscribe, Unsubscribe, Update
from meetpoint.matching.keys.meet_keys import KeySort, MeetKey
from meetpoint.node.cluster.directory import Entry as Listed
from meetpoint.node.cluster.directory import Sync
from meetpoint.node.cluster.home_manager import HomeTakenOver
from meetpoint.node.runtime.effects import Send
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.key_range import KeyRange
from meetpoint.placement.messages import (
    ClaimRange,
    ClaimReply,
    DeliverToHome,
    KeyedReply,
    KeyedRequest,
    OfferRange,
    PullRange,
    PullReply,
    Put,
    RangeTaken,
)
from meetpoint.schemes.meet.entries import place_of
from meetpoint.schemes.meet.messages import MatchReply, MatchRequest
from tests.placement.small_world import CODEC, RING, MeetWorld, free, home, symbols_between

US = 1_000_000


def on(
    world: MeetWorld, number: int, low: int, high: int, name: str, attribute: str = "symbol", seconds: float = 3
) -> str:
    """A subscription at a node whose key lies on an arc; returns the value that it wants."""
    value = value_between(low, high, attribute)
    world.subscribed(number, name, f"{attribute} = '{value}'", seconds)
    return value


def value_between(low: int, high: int, attribute: str) -> str:
    arc = KeyRange(bytes(RING.key(low)), bytes(RING.key(high)))
    return next(
        f"V{number}"
        for number in range(10_000)
        if arc.holds(place_of(RING, MeetKey(KeySort.VALUE, attribute, "string", 0, 0, f"V{number}")))
    )


class Lost:
    """Messages that are lost until a time."""

    def __init__(self, world: MeetWorld, which: Callable[[int, int, Message], bool]) -> None:
        self._world = world
        self._which = which
        self.until = world.now + 1000 * US
        self.count = 0

    def __call__(self, source: int, to: int, message: Message) -> Iterable[int] | None:
        if self._world.now < self.until and self._which(source, to, message):
            self.count += 1
            return ()
        return None


# -- events and arcs that move -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("publisher", [1, 3])
def test_a_visit_counts_for_what_was_held_when_it_began(publisher: int) -> None:
    """Home 1 has checked an event and waits for its subscriber. Meanwhile it gets the arc of home 4."""
    world = MeetWorld(4)
    world.run(2)
    one = on(world, 2, 4000, 1000, "one")
    other = on(world, 3, 3000, 4000, "other", "color")
    lost = Lost(
        world,
        lambda _, to, message: isinstance(message, DeliverToHome) or (isinstance(message, MatchRequest) and to == 4),
    )
    world.weather = lost
    world.publish(publisher, "e", symbol=one, color=other)
    world.run(0.5)
    free(world, 4)
    world.run(2.5)
    assert world.arcs()[home(4)] == ()
    lost.until = world.now
    world.run(20)
    assert sorted(set(world.came())) == [("one", "e"), ("other", "e")]


def test_an_answer_counts_for_what_was_known_when_it_was_asked() -> None:
    """Two events visit home 1; between them it gets the arc of home 4, and the first answer comes last."""
    world = MeetWorld(4)
    world.run(2)
    one = on(world, 2, 4000, 1000, "one")
    other = on(world, 3, 3000, 4000, "other", "color")
    world.publish(3, "before", symbol=one)
    world.run(2)
    held: list[int] = []

    def weather(source: int, to: int, message: Message) -> Iterable[int] | None:
        if isinstance(message, MatchRequest) and to == 4:
            return ()
        if isinstance(message, MatchReply) and source == 1 and not held:
            held.append(world.now)
            return (1_700_000,)
        return None

    world.weather = weather
    world.publish(3, "first", symbol=one, color=other)
    world.run(0.3)
    assert held
    free(world, 4)
    world.run(0.7)
    assert world.arcs()[home(4)] == ()
    world.publish(3, "second", symbol=one)
    world.run(1.5)
    world.weather = lambda source, to, message: None
    world.run(15)
    assert ("other", "first") in world.came()


def test_what_was_given_away_during_a_visit_is_not_taken_for_unused() -> None:
    """Home 1 has checked an event and waits for its subscriber. Meanwhile home 6 gets a part of its arc."""
    world = MeetWorld(4)
    world.run(2)
    one, other = on(world, 2, 6000, 1000, "one"), on(world, 3, 4000, 6000, "other", "color")
    world.weather = seeking = Lost(world, lambda source, to, message: isinstance(message, ClaimRange))
    world.start(6, contacts=[2])
    world.run(6)
    assert seeking.count
    world.weather = fanout = Lost(world, lambda source, to, message: isinstance(message, DeliverToHome))
    world.publish(3, "first", symbol=one)
    world.run(0.15)
    assert fanout.count
    node = world.nodes[6]
    effects = node._runtime.begin(world.local(6))
    world.scheme(6)._ownership._claims.begin(node.home_manager.homes[home(6)])
    world._apply(6, node, effects)
    world.run(0.75)
    assert home(6) in world.arcs()
    fanout.until = world.now
    world.run(1)
    world.publish(3, "second", color=other)
    world.run(15)
    assert sorted(world.came()) == [("one", "first"), ("other", "second")]


def test_a_home_that_got_more_is_visited_again() -> None:
    """Home 1 was visited; then it gets the arc of home 4, as another event learns before the first is done."""
    world = MeetWorld(4)
    world.run(2)
    one = on(world, 2, 4000, 1000, "one")
    other = on(world, 3, 3000, 4000, "other", "color")
    lost = Lost(world, lambda _, to, message: isinstance(message, MatchRequest) and to == 4)
    world.weather = lost
    world.publish(3, "first", symbol=one, color=other)
    world.run(0.3)
    free(world, 4)
    world.run(0.5)
    world.publish(3, "second", symbol=one)
    world.run(15)
    assert ("other", "first") in world.came()


def test_a_summary_that_came_during_a_tour_does_not_shorten_it() -> None:
    """Home 4 is to be visited, says its summary; its arc goes to home 1, and the summary of that comes meanwhile."""
    world = MeetWorld(4)
    world.run(2)
    one = on(world, 4, 4000, 1000, "one")
    other = on(world, 3, 3000, 4000, "other", "color")
    world.publish(2, "before", symbol=one, color=other)
    world.run(2)
    lost = Lost(world, lambda _, to, message: isinstance(message, MatchRequest) and to == 4)
    world.weather = lost
    world.publish(2, "first", color=other)
    world.run(0.3)
    free(world, 4)
    world.run(0.7)
    world.publish(2, "second", symbol=one)
    world.run(0.5)
    lost.until = world.now
    world.run(20)
    assert ("other", "first") in world.came()


# -- summaries ---------------------------------------------------------------------------------------------------------


def test_a_publisher_that_the_holder_does_not_list_yet_is_told_of_new_keys() -> None:
    world = MeetWorld(5)
    world.run(2)
    world.weather = Lost(world, lambda source, to, message: isinstance(message, Sync) and 2 in (source, to))
    world.start(7, contacts=[4])
    world.run(5)
    assert world.nodes[7].state == "ready"
    assert world.nodes[2].directory.get(home(7)) is None
    value = value_between(1000, 2000, "symbol")
    known = on(world, 3, 1000, 2000, "known", "color")
    world.publish(7, "first", symbol=value, color=known)
    world.run(2)
    assert ("known", "first") in world.came()
    world.subscribed(3, "new", f"symbol = '{value}'")
    world.publish(7, "second", symbol=value)
    world.run(5)
    assert ("new", "second") in world.came()


# -- what is unsettled after a restart ---------------------------------------------------------------------------------


def test_events_that_were_not_settled_come_after_a_restart_in_whatever_order_their_names_are() -> None:
    world = MeetWorld(3)
    world.run(2)
    value = on(world, 2, 2000, 3000, "s")

    def is_late(source: int, to: int, message: Message) -> bool:
        return isinstance(message, MatchRequest) and any(id_ in message.content for id_ in (b"e2x", b"e10x"))

    world.weather = Lost(world, is_late)
    for number in range(1, 13):
        world.publish(1, f"e{number}x", symbol=value)
    world.run(5)
    assert [event for _, event in world.came()] == ["e1x"], "the others wait for their turn"
    assert world.nodes[2].snapshot().queued == 9
    world.crash(1)
    world.weather = lambda source, to, message: None
    world.start(1, contacts=[2])
    world.run(60)
    assert [event for _, event in world.came()] == [f"e{n}x" for n in range(1, 13)]


# -- placing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", [0.03, 0.05, 0.07, 0.09, 0.11, 0.15])
def test_nothing_is_placed_before_its_number_is_on_two_disks(wait: float) -> None:
    """Two changes are on their way to a second disk; the third comes when the first is there."""
    world = MeetWorld(3)
    world.run(2)
    values = symbols_between(1000, 2000)
    early = []

    def weather(source: int, to: int, message: Message) -> Iterable[int] | None:
        if isinstance(message, KeyedRequest) and isinstance(put := CODEC.decode(message.body), Put):
            disks = [disk.get((put.home, "placements")) for disk in world.disks.values()]
            known = [int.from_bytes(record.value or b"", "big") for record in disks if record is not None]
            if sum(number >= put.number for number in known) < 2:
                early.append(put.number)
        return None

    world.weather = weather
    world.ask(1, Subscribe("s", f"symbol = '{values[0]}'"))
    world.ask(1, Update("s", f"symbol = '{values[1]}'"))
    world.run(wait)
    world.ask(1, Update("s", f"symbol = '{values[2]}'"))
    world.run(5)
    assert early == []


def test_an_answer_to_an_errand_of_another_life_is_none() -> None:
    """What a node asked before it crashed is answered after: that says nothing of what it asks now."""
    world = MeetWorld(3)
    world.run(2)
    value = symbols_between(1000, 2000)[0]

    def weather(source: int, to: int, message: Message) -> Iterable[int] | None:
        if isinstance(message, KeyedReply) and source == 2:
            return (4_000_000,)
        if isinstance(message, KeyedRequest) and source == 1:
            put = CODEC.decode(message.body)
            if isinstance(put, Put) and b"price" in put.entry.body:
                return ()  # of the one filter nothing is ever placed
        return None

    world.weather = weather
    world.ask(1, Subscribe("m", f"symbol = '{value}'"))
    world.run(0.3)
    asked = world.ask(1, Subscribe("a", f"symbol = '{value}' AND price > 5"))
    world.run(0.5)
    world.crash(1)
    world.run(0.1)
    world.start(1, contacts=[2])
    world.run(3)
    asked = world.ask(1, Subscribe("a", f"symbol = '{value}' AND price > 5"))
    world.run(10)
    assert asked not in world.answers


@pytest.mark.parametrize("restart", [False, True])
def test_a_home_that_lost_everything_does_not_use_old_numbers(restart: bool) -> None:
    """The holder remembers that number 1 was withdrawn: what comes under it now is something else."""
    world = MeetWorld(3)
    world.run(2)
    first, second = symbols_between(1000, 2000)[:2]
    world.subscribed(1, "s", f"symbol = '{first}'")
    ask = world.ask(1, Unsubscribe("s"))
    world.run(30)
    assert world.answers[ask] == Stored()
    world.crash(1, lose_disk=True)
    if restart:
        world.crash(3)
    for number in (2, 3):
        world.disks[number] = {key: each for key, each in world.disks[number].items() if key[0] != home(1)}
        if number in world.nodes:
            world.nodes[number].home_manager.replicas._held.pop(home(1), None)
    world.start(1, contacts=[2])
    if restart:
        world.start(3, contacts=[2])
    world.run(90)
    world.subscribed(1, "t", f"symbol = '{second}'", 60)
    world.publish(2, "e", symbol=second)
    world.run(5)
    assert world.came() == [("t", "e")]


def test_a_subscription_that_changes_while_its_home_is_offered_is_placed_at_last() -> None:
    """A home stops, is offered in vain and serves again at the same node, in the middle of placing."""
    world = MeetWorld(4)
    world.run(2)
    values = symbols_between(2000, 3000)
    world.subscribed(1, "s", f"symbol = '{values[0]}'")
    refuse = Lost(world, lambda source, to, message: isinstance(message, KeyedRequest | HomeTakenOver))
    world.weather = refuse
    asked = world.ask(1, Update("s", f"symbol = '{values[1]}'"))
    world.run(0.2)
    world.ask(1, Leave())
    world.run(3)
    world.crash(2, lose_disk=True)  # the heir
    world.run(1)
    world.start(2, contacts=[3])
    refuse.until = world.now
    world.run(60)
    assert asked not in world.answers or world.answers[asked] == Stored()
    world.publish(3, "new", symbol=values[1])
    world.run(10)
    assert ("s", "new") in world.came()
    world.publish(3, "old", symbol=values[0])
    world.run(10)
    assert ("s", "old") not in world.came()


# -- custody -----------------------------------------------------------------------------------------------------------


def forget_custody(world: MeetWorld, *numbers: int) -> None:
    """All copies of what some homes hold are lost; everyone is down."""
    assert not world.nodes
    for disk in world.disks.values():
        for number in numbers:
            for key in [key for key in disk if key[0] == home(number) and key[1].startswith(("custody", "placed/"))]:
                del disk[key]


def restart_all(world: MeetWorld, *numbers: int) -> None:
    for number in numbers:
        world.start(number, contacts=[each for each in numbers if each != number])


@pytest.mark.parametrize("lost", [(1,), (2, 3), (1, 3), (1, 2, 3, 4)])
def test_whatever_is_lost_every_key_has_a_holder_again(lost: tuple[int, ...]) -> None:
    world = MeetWorld(4)
    world.run(3)
    for number in (1, 2, 3, 4):
        world.crash(number)
    forget_custody(world, *lost)
    restart_all(world, 1, 2, 3, 4)
    world.run(60)
    world.check_arcs()


def test_a_newcomer_where_all_was_lost_gets_its_arc() -> None:
    """Home 4 has lost its arc for good and seeks; home 7 comes, further up in the gap, and seeks as well."""
    world = MeetWorld(4)
    world.run(3)
    for number in (1, 2, 3, 4):
        world.crash(number)
    forget_custody(world, 1)
    restart_all(world, 2, 3, 4)
    world.run(20)
    world.start(7, contacts=[2])  # in the arc of home 1, which is not there yet
    world.run(10)
    world.start(1, contacts=[2])
    world.run(60)
    world.check_arcs()


def test_a_gap_leaves_out_what_its_taker_holds_already() -> None:
    world = MeetWorld(4)
    world.run(3)
    for number in (1, 2, 3, 4):
        world.crash(number)
    forget_custody(world, 2)
    restart_all(world, 1, 3, 4)
    world.run(20)
    free(world, 1)
    world.start(2, contacts=[3])
    world.run(40)
    world.check_arcs()
    assert world.arcs()[home(1)] == ()


@pytest.mark.parametrize("who", ["a stranger", "one that is gone", "itself", "one with a place"])
def test_nobody_gives_an_arc_to_whom_it_is_of_no_use(who: str) -> None:
    world = MeetWorld(4, holding_us=2 * US)
    world.run(3)
    if who == "one that is gone":
        world.ask(4, Leave())
        world.run(60)
        assert home(4) not in world.arcs()
    seeker = {"a stranger": HomeId(bytes(RING.node(500))), "one that is gone": home(4), "itself": home(1),
              "one with a place": home(2)}[who]  # fmt: skip
    world.say(1, ClaimRange(1, home(1), seeker))
    world.run(40)
    world.check_arcs()


def test_an_arc_that_was_sought_long_ago_comes_to_its_home_all_the_same() -> None:
    """A question that comes late makes home 1 give to one that does not ask any more: it is told, and takes it."""
    world = MeetWorld(4)
    world.run(3)
    free(world, 4)
    world.run(5)
    assert world.arcs()[home(4)] == ()
    world.say(1, ClaimRange(1, home(1), home(4)), world.nodes[4].me)
    world.run(40)
    world.check_arcs()


def test_a_home_does_not_end_before_it_has_had_its_own_place() -> None:
    """Home 7 seeks and is given an arc; before it has it, it gets another's, gives it on, and could end."""
    world = MeetWorld(3, holding_us=2 * US)
    world.run(3)

    def tells_of_its_place(source: int, to: int, message: Message) -> bool:
        return to == 7 and (isinstance(message, ClaimReply) or (isinstance(message, OfferRange) and source == 1))

    lost = Lost(world, tells_of_its_place)
    world.weather = lost
    world.start(7, contacts=[1])
    world.run(4)
    assert world.scheme(7)._ownership.owned_ranges == {}
    free(world, 3)  # whose heir home 7 is
    world.run(4)
    assert world.arcs()[home(7)] != ()
    assert not world.scheme(7)._ownership.owned_ranges[home(7)].placed
    node = world.nodes[7]
    free(world, 7)
    world.run(4)
    assert not world.scheme(7)._ownership.is_free(node.home_manager.homes[home(7)])
    lost.until = world.now
    world.run(20)
    world.check_arcs()


PAGES = [
    pytest.param((("custody", b"\x00"),), False, id="a record of another kind"),
    pytest.param((("placed/x", b"\xc1"),), False, id="bytes that are no entry"),
    pytest.param((("placed/x", msgspec.msgpack.encode([1, 2])),), False, id="another struct"),
    pytest.param((), True, id="nothing, and more of it"),
]


@pytest.mark.parametrize(("records", "more"), PAGES)
def test_what_is_pulled_from_a_peer_that_errs_harms_nobody(
    records: tuple[tuple[str, bytes], ...], more: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = MeetWorld(3)
    world.run(3)
    pages = 0

    def pull(question: PullRange) -> Signal[Reply]:
        nonlocal pages
        pages += 1
        return Signal.of(PullReply(question.request, records, more))

    for number in (1, 2, 3):
        homes = world.scheme(number)._homes
        monkeypatch.setitem(homes._answerers, PullRange, pull)
    world.start(7, contacts=[1])
    world.run(10)
    assert 0 < pages < 40
    replicator = world.nodes[7].home_manager.homes[home(7)].replicator
    assert "placed/x" not in replicator.records
    if not more:
        world.check_arcs()


@pytest.mark.parametrize(
    "arc", [KeyRange(b"", b""), KeyRange(b"x" * 30, b"\x00"), KeyRange(b"\x00\x01", b"\xff\xff\xff")]
)
def test_a_foreign_arc_is_not_taken(arc: KeyRange) -> None:
    world = MeetWorld(3)
    world.run(3)
    before = world.arcs()
    world.say(1, OfferRange(1, home(1), home(2), 5, arc))
    world.say(1, OfferRange(2, home(1), HomeId(b"nobody"), 5, arc))
    world.say(1, OfferRange(3, home(1), HomeId(bytes(RING.node(7))), 5, KeyRange(b"\x00\x01", b"\x00\x02")))
    world.run(30)
    assert world.arcs() == before
    assert world.scheme(1)._ownership._handoff._pulling == {}


def test_two_newcomers_in_one_arc_whose_holder_leaves() -> None:
    world = MeetWorld(3, holding_us=2 * US)
    world.run(3)
    values = [value_between(3000, 1000, name) for name in ("a", "b", "c")]
    for name, value in zip(("a", "b", "c"), values, strict=True):
        world.subscribed(2, name, f"{name} = '{value}'")
    world.start(6, contacts=[2])
    world.start(8, contacts=[3])
    world.run(0.6)
    world.ask(1, Leave())
    world.run(90)
    world.check_arcs()
    assert 1 not in world.nodes
    assert home(1) not in world.arcs()
    for name, value in zip(("a", "b", "c"), values, strict=True):
        world.publish(3, name, **{name: value})
    world.run(10)
    assert sorted(world.came()) == [("a", "a"), ("b", "b"), ("c", "c")]


@pytest.mark.parametrize("when", [0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 1.0])
@pytest.mark.parametrize("who", [(1,), (7,), (1, 7)])
def test_whoever_crashes_in_a_handover_every_key_has_one_holder_with_all_that_was_there(
    when: float, who: tuple[int, ...]
) -> None:
    world = MeetWorld(3)
    world.run(3)
    value = value_between(3000, 7000, "symbol")
    world.subscribed(2, "s", f"symbol = '{value}'")
    world.start(7, contacts=[2])
    world.run(when)
    for number in who:
        world.crash(number)
    world.run(0.5)
    for number in who:
        world.start(number, contacts=[2, 3])
    world.run(30)
    world.check_arcs()
    world.publish(3, "e", symbol=value)
    world.run(10)
    assert world.came() == [("s", "e")]


def test_took_from_nobody_changes_nothing() -> None:
    world = MeetWorld(3)
    world.run(3)
    before = world.arcs()
    for number in (-(2**63), -1, 0, 1, 2**64 - 1):
        world.say(1, RangeTaken(1, home(1), home(2), number))
    world.run(5)
    assert world.arcs() == before


def test_an_entry_for_a_home_that_is_gone_keeps_no_event_from_being_settled() -> None:
    world = MeetWorld(3)
    world.run(3)
    value = on(world, 2, 3000, 1000, "s")
    gone = HomeId(bytes(RING.node(500)))
    for node in world.nodes.values():
        node._runtime.begin(world.now)  # type: ignore[arg-type]
        node.directory.learn([Listed(gone, 1, Peer(RING.node(500), "gone"), gone=True)])
    entry = next(each for each in world.scheme(1)._ownership.entries[home(1)].values())
    request = KeyedRequest(entry.low, entry.low, world.nodes[2].me, 99, 0, CODEC.encode(Put(gone, 1, entry)))
    world.say(1, request)
    world.run(2)
    world.publish(3, "e", symbol=value)
    world.run(10)
    assert world.came() == [("s", "e")]
    assert world.nodes[3].snapshot().outbox == 0


# -- numbers of another life -------------------------------------------------------------------------------------------


def test_a_reply_to_a_question_of_another_life_is_none() -> None:
    """A node asked, crashed and asks something else: a late reply to the first is no answer to the second."""
    me, peer = Peer(RING.node(1), "n1", 1), Peer(RING.node(2), "n2", 1)
    numbers = []
    for seed in (1, 2):
        life = Runtime(me, RING, CODEC, seed)
        effects = life.begin(Instant(0))
        life.ask(peer, RangeTaken(0, home(2), home(1), 1), US)
        numbers += [effect.message.request for effect in effects if isinstance(effect, Send)]  # type: ignore[attr-defined]
    assert len(set(numbers)) == 2
