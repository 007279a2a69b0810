"""The passive list, and how two rings that touch become one, message by message."""

from __future__ import annotations

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message
from meetpoint.node.runtime.effects import CancelTimer, Effect, Send, SetTimer
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.chord import ChordSettings
from meetpoint.overlays.chord.messages import (
    ChordFind,
    ChordFound,
    GetState,
    NotifySuccessor,
    StateReply,
    SuccessorHint,
)
from meetpoint.overlays.contacts import Contacts
from tests.overlays.chord.driving import Host, peer

RING = Ring(6)
SETTINGS = ChordSettings(successors=2, merge_share=1.0)
NOW = Instant(0)


def p(number: int, incarnation: int = 0) -> Peer:
    return peer(RING, number, incarnation)


def member(number: int, *others: int) -> Host:
    host = Host(p(number), RING, 1, SETTINGS)
    host.do(0, lambda: host.overlay.found(tuple(sorted(p(n) for n in (number, *others)))))
    return host


def says(host: Host, source: Peer, message: Message) -> list[Effect]:
    effects = host.do(1, lambda: host.receive(source, message))
    host.overlay.check()
    return effects


def sends(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, Send)]


# -- contacts ----------------------------------------------------------------------------------------------------------


def test_the_passive_list_asks_the_latest_first_and_then_goes_round() -> None:
    contacts = Contacts(p(1).id, known_max=9, passive_max=4)
    contacts.remember(p(5), urgent=False)
    contacts.suspect(p(2), NOW)
    contacts.suspect(p(3), NOW)
    turns = [contacts.next_passive() for _ in range(7)]
    assert turns == [p(2), p(3), p(5), p(2), p(3), p(5), p(2)]
    contacts.suspect(p(4), NOW)
    assert contacts.next_passive() == p(4)


def test_the_passive_list_has_a_limit() -> None:
    contacts = Contacts(p(1).id, known_max=9, passive_max=3)
    for number in range(2, 9):
        contacts.suspect(p(number), NOW)
        contacts.check()
    assert contacts.passive == 3
    assert contacts.passive_sample(9) == (p(6), p(7), p(8))


def test_nobody_and_oneself_are_not_remembered() -> None:
    contacts = Contacts(p(1).id, known_max=9, passive_max=3)
    contacts.remember(p(1))
    contacts.remember(Peer(RING.node(4), ""))
    contacts.learn(Peer(RING.node(4), ""))
    assert contacts.passive == 0
    assert contacts.next_passive() is None
    assert contacts.peer(RING.key(4)) is None
    assert not contacts.suspect(p(1), NOW)


def test_a_peer_that_speaks_is_no_suspect_but_stays_in_the_list() -> None:
    contacts = Contacts(p(1).id, known_max=9, passive_max=3)
    assert contacts.suspect(p(2, 4), NOW)
    assert not contacts.suspect(p(2, 4), NOW), "no news"
    assert not contacts.heard(p(2, 3)), "an old word of a former incarnation"
    assert contacts.heard(p(2, 4))
    assert contacts.live(p(2).id) == p(2, 4)
    assert contacts.passive == 1
    contacts.forget_passive(p(2).id)
    assert contacts.passive == 0


def test_what_is_known_is_pruned_to_what_is_needed() -> None:
    contacts = Contacts(p(1).id, known_max=3, passive_max=3)
    for number in range(2, 5):
        contacts.learn(p(number))
    contacts.prune({p(2).id})
    assert contacts.peer(p(4).id) == p(4), "not more than the limit"
    contacts.learn(p(5))
    contacts.prune({p(2).id})
    assert contacts.peer(p(2).id) == p(2)
    assert contacts.peer(p(5).id) is None


def test_of_a_long_directory_as_many_are_remembered_as_the_list_holds() -> None:
    ring = Ring()
    host = Host(peer(ring, 0), ring, 1, ChordSettings(passive_max=10))
    host.do(0, lambda: host.overlay.found((peer(ring, 0),)))
    host.do(0, lambda: host.overlay.remember([peer(ring, number) for number in range(1000)]))
    assert 9 <= host.overlay._table.contacts.passive <= 10


# -- two rings ---------------------------------------------------------------------------------------------------------


def test_a_remembered_peer_is_asked_who_comes_after_this_node_in_its_ring() -> None:
    host = member(10, 30, 50)
    host.do(0, lambda: host.overlay.remember((p(20),)))
    assert sends(host.do(0, host.overlay._ring_merge.tick)) == [Send(p(20), ChordFind(RING.key(11), p(10), 1, 1))]
    assert host.do(0, host.overlay._ring_merge.tick) == [], "one question at a time"


def test_a_nearer_one_is_approached_and_told_of_those_who_came_after_until_now() -> None:
    host = member(10, 30, 50)
    host.do(0, lambda: host.overlay.remember((p(20),)))
    host.do(0, host.overlay._ring_merge.tick)
    assert sends(says(host, p(15), ChordFound(1, 2))) == [Send(p(15), GetState(3))]
    assert sends(says(host, p(15), StateReply(3, p(45), (p(20), p(45))))) == [
        Send(p(15), NotifySuccessor()),
        Send(p(15), SuccessorHint((p(30), p(50)))),
    ]
    assert [RING.number(node) for node in host.overlay.view().succ] == [15, 20]


def test_whoever_is_told_of_nearer_ones_approaches_the_nearest() -> None:
    host = member(15, 45, 60)
    assert sends(says(host, p(10), SuccessorHint((p(30), p(20), p(50))))) == [Send(p(20), GetState(2))]
    other = member(15, 20, 60)
    assert says(other, p(10), SuccessorHint((p(30), p(50)))) == []


def test_one_beyond_the_successor_is_told_that_this_node_is_there() -> None:
    host = member(10, 30, 50)
    host.do(0, lambda: host.overlay.remember((p(20),)))
    host.do(0, host.overlay._ring_merge.tick)
    assert sends(says(host, p(35), ChordFound(1, 2))) == [Send(p(35), NotifySuccessor())]
    assert host.overlay._table.contacts.passive == 1, "it stays in the list until the rings agree"


def test_a_peer_whose_ring_agrees_leaves_the_list() -> None:
    host = member(10, 30, 50)
    host.do(0, lambda: host.overlay.remember((p(20),)))
    host.do(0, host.overlay._ring_merge.tick)
    assert sends(says(host, p(30), ChordFound(1, 2))) == []
    assert host.overlay._table.contacts.passive == 0


def test_a_question_that_comes_to_its_asker_goes_to_those_after_it() -> None:
    """The asker has lost its list; to others it is still the one nearest before its question."""
    host = member(50, 10, 30)
    (sent,) = sends(says(host, p(20), ChordFind(RING.key(11), p(10), 1, 2)))
    assert sent == Send(p(30), ChordFind(RING.key(11), p(10), 1, 3, 0, True))
    after = member(30, 10, 50)
    assert sends(says(after, p(50), ChordFind(RING.key(11), p(10), 1, 3, 0, True))) == [Send(p(10), ChordFound(1, 3))]


def test_one_that_is_alone_asks_in_every_period() -> None:
    host = Host(p(10), RING, 1, ChordSettings(successors=2, merge_share=0.0))
    host.do(0, lambda: host.overlay.found((p(10),)))
    host.do(0, lambda: host.overlay.remember((p(20),)))
    (timer, asked) = host.do(0, host.overlay._ring_merge.tick)
    assert asked == Send(p(20), ChordFind(RING.key(11), p(10), 1, 1))
    assert isinstance(timer, SetTimer)
    host.do(timer.at, lambda: host.runtime.fired(timer.timer))
    assert sends(host.do(timer.at, host.overlay._ring_merge.tick)) == [
        Send(p(20), ChordFind(RING.key(11), p(10), 2, 1))
    ]


def test_two_that_are_alone_become_a_ring_of_two() -> None:
    host = Host(p(10), RING, 1, SETTINGS)
    host.do(0, lambda: host.overlay.found((p(10),)))
    host.do(0, lambda: host.overlay.remember((p(20),)))
    host.do(0, host.overlay._ring_merge.tick)
    says(host, p(20), ChordFound(1, 1))
    alone = StateReply(3, p(20), (p(20), Peer(RING.node(21), "")))
    assert says(host, p(20), alone) == [CancelTimer(4), Send(p(20), NotifySuccessor())]
    assert [RING.number(node) for node in host.overlay.view().succ] == [20, 21]
    assert host.overlay.neighbours(3) == (p(20),)
