"""The protocol message by message: inputs in, the whole list of effects out.

A ring of six bits and lists of two, so that everything can be read: nodes 10, 20, 30, 40 and others by their numbers.
"""

from __future__ import annotations

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message
from meetpoint.node.runtime.effects import CancelTimer, Effect, Observe, Send, SetTimer
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.chord import ChordSettings
from meetpoint.overlays.chord.messages import (
    Busy,
    ChordFind,
    ChordFound,
    ChordJoin,
    ChordJoinReply,
    ChordLeaving,
    ChordRouted,
    GetState,
    NotifySuccessor,
    NotMember,
    Ping,
    Pong,
    StateReply,
    SuccessorHint,
)
from tests.overlays.chord.driving import PACKER, Host, Text, peer

RING = Ring(6)
SETTINGS = ChordSettings(successors=2)
TIMEOUT = SETTINGS.query_timeout_us


def p(number: int, incarnation: int = 0) -> Peer:
    return peer(RING, number, incarnation)


def nobody(number: int) -> Peer:
    return Peer(RING.node(number), "")


def member(number: int, *others: int) -> Host:
    host = Host(p(number), RING, 1, SETTINGS)
    host.do(0, lambda: host.overlay.found(tuple(sorted(p(n) for n in (number, *others)))))
    return host


def says(host: Host, source: Peer, message: Message, now: int = 0) -> list[Effect]:
    effects = host.do(now, lambda: host.receive(source, message))
    host.overlay.check()
    return effects


def stabilises(host: Host, now: int = 0) -> list[Effect]:
    return host.do(now, host.overlay._maintenance.tick)


def fires(host: Host, timer: int, now: int) -> list[Effect]:
    effects = host.do(now, lambda: host.runtime.fired(timer))
    host.overlay.check()
    return effects


def succ(host: Host) -> list[int]:
    return [RING.number(node) for node in host.overlay.view().succ]


def prdc(host: Host) -> int:
    return RING.number(host.overlay.view().prdc)


# -- stabilise ---------------------------------------------------------------------------------------------------------


def test_a_quiet_stabilise_is_a_question_and_an_answer() -> None:
    host = member(10, 20, 30, 40)
    assert stabilises(host) == [SetTimer(3, Instant(TIMEOUT)), Send(p(20), GetState(2))]
    assert says(host, p(20), StateReply(2, p(10), (p(30), p(40)))) == [CancelTimer(3)]
    assert succ(host) == [20, 30]


def test_an_answer_like_the_last_one_is_looked_at_again_as_soon_as_anything_differs() -> None:
    host = member(10, 20, 30, 40)
    requests = iter(range(2, 100, 2))

    def hears(prdc: int, *succ: int) -> list[Effect]:
        stabilises(host)
        return says(host, p(20), StateReply(next(requests), p(prdc), tuple(map(p, succ))))[1:]

    for _ in range(3):
        assert hears(10, 30, 40) == []
    assert succ(host) == [20, 30]
    assert hears(10, 25, 30) == []
    assert succ(host) == [20, 25]
    for _ in range(3):
        assert hears(10, 30, 40) == []
        assert succ(host) == [20, 30]
    for _ in range(3):
        assert hears(5, 30, 40) == [Send(p(20), NotifySuccessor())], "it does not know this node yet"
    assert hears(10, 30, 40) == hears(10, 30, 40) == []
    assert hears(15, 30, 40)[-1] == Send(p(15), GetState(next(requests))), "there is a nearer one"


def test_a_list_that_has_changed_is_set_right_by_the_answer_that_had_changed_nothing() -> None:
    host = member(10, 20, 30, 40)
    for request in (2, 4):
        stabilises(host)
        says(host, p(20), StateReply(request, p(10), (p(30), p(40))))
    state = host.overlay._table.state
    assert state is not None
    host.overlay._table.commit(state._replace(succ=(p(20).id, p(25).id)))
    stabilises(host)
    says(host, p(20), StateReply(6, p(10), (p(30), p(40))))
    assert succ(host) == [20, 30]


def test_a_nearer_successor_is_asked_adopted_and_told() -> None:
    host = member(10, 20, 30, 40)
    stabilises(host)
    assert says(host, p(20), StateReply(2, p(15), (p(30), p(40)))) == [
        CancelTimer(3),
        SetTimer(5, Instant(TIMEOUT)),
        Send(p(15), GetState(4)),
    ]
    assert says(host, p(15), StateReply(4, p(10), (p(20), p(30)))) == [CancelTimer(5), Send(p(15), NotifySuccessor())]
    assert succ(host) == [15, 20]


def test_a_nearer_successor_that_knows_a_still_nearer_one_is_passed_by() -> None:
    host = member(10, 20, 30, 40)
    stabilises(host)
    says(host, p(20), StateReply(2, p(15), (p(30), p(40))))
    assert says(host, p(15), StateReply(4, p(12), (p(20), p(30)))) == [
        CancelTimer(5),
        Send(p(15), NotifySuccessor()),
        SetTimer(7, Instant(TIMEOUT)),
        Send(p(12), GetState(6)),
    ]


def test_a_nearer_successor_that_does_not_know_the_former_one_is_told_of_it() -> None:
    host = member(10, 20, 30, 40)
    stabilises(host)
    says(host, p(20), StateReply(2, p(15), (p(30), p(40))))
    effects = says(host, p(15), StateReply(4, p(10), (p(25), p(35))))
    assert effects == [CancelTimer(5), Send(p(15), NotifySuccessor()), Send(p(15), SuccessorHint((p(20), p(30))))]
    assert succ(host) == [15, 25]


def test_silence_is_repeated_and_then_death() -> None:
    host = member(10, 20, 30, 40)
    stabilises(host)
    assert fires(host, 3, TIMEOUT) == [SetTimer(5, Instant(2 * TIMEOUT)), Send(p(20), GetState(4))]
    assert fires(host, 5, 2 * TIMEOUT) == [SetTimer(7, Instant(3 * TIMEOUT)), Send(p(20), GetState(6))]
    assert fires(host, 7, 3 * TIMEOUT) == [
        Send(p(30), NotifySuccessor()),
        SetTimer(9, Instant(4 * TIMEOUT)),
        Send(p(30), GetState(8)),
    ]
    assert succ(host) == [30, 31]
    assert host.changes == 2


def test_a_lost_successor_is_followed_by_the_next_at_once() -> None:
    host = member(10, 20, 30, 40)
    assert host.do(5, lambda: host.overlay.suspect(p(20))) == [
        Send(p(30), NotifySuccessor()),
        SetTimer(3, Instant(5 + TIMEOUT)),
        Send(p(30), GetState(2)),
    ]
    assert [peer.id for peer in host.overlay.neighbours(2)] == [p(30).id]


def test_an_answer_that_comes_after_its_sender_was_given_up_is_dropped() -> None:
    host = member(10, 20, 30, 40)
    stabilises(host)
    host.do(5, lambda: host.overlay.suspect(p(20)))
    assert succ(host) == [30, 31]
    says(host, p(20), StateReply(2, p(10), (p(25), p(26))), now=6)
    assert succ(host) == [30, 31]


def test_a_node_answers_with_pending_while_it_asks_and_pings_always() -> None:
    host = member(10, 20, 30, 40)
    told = StateReply(7, p(40), (p(20), p(30)))
    assert says(host, p(40), GetState(7)) == [Send(p(40), told)]
    stabilises(host)
    assert says(host, p(40), GetState(8)) == [Send(p(40), Busy(8))]
    assert says(host, p(40), Ping(9)) == [Send(p(40), Pong(9, p(40)))]


def test_whoever_is_told_to_wait_is_free_meanwhile_and_asks_again() -> None:
    host = member(10, 20, 30, 40)
    stabilises(host)
    cancelled, again = says(host, p(20), Busy(2))
    assert cancelled == CancelTimer(3)
    assert isinstance(again, SetTimer)
    assert SETTINGS.pending_wait_us / 2 <= again.at <= 1.5 * SETTINGS.pending_wait_us
    assert says(host, p(40), GetState(7)) == [Send(p(40), StateReply(7, p(40), (p(20), p(30))))]
    asked = fires(host, again.timer, again.at)
    assert asked[1] == Send(p(20), GetState(5))


def test_a_nearer_node_that_is_dead_changes_nothing_and_the_successor_is_told() -> None:
    host = member(10, 20, 30, 40)
    stabilises(host)
    says(host, p(20), StateReply(2, p(15), (p(30), p(40))))
    assert host.do(5, lambda: host.overlay.suspect(p(15))) == [Send(p(20), NotifySuccessor())]
    assert succ(host) == [20, 30]


# -- rectify -----------------------------------------------------------------------------------------------------------


def test_a_nearer_predecessor_is_adopted_at_once() -> None:
    host = member(10, 20, 30, 40)
    assert says(host, p(5), NotifySuccessor()) == []
    assert prdc(host) == 5
    assert host.changes == 2


def test_a_farther_claim_makes_a_node_ping_its_predecessor() -> None:
    host = member(10, 20, 30, 40)
    assert says(host, p(35), NotifySuccessor()) == [SetTimer(3, Instant(TIMEOUT)), Send(p(40), Ping(2))]
    assert says(host, p(40), Pong(2, p(30))) == [CancelTimer(3)]
    assert prdc(host) == 40


def test_a_claim_after_the_predecessor_died_is_adopted() -> None:
    host = member(10, 20, 30, 40)
    says(host, p(35), NotifySuccessor())
    assert host.do(5, lambda: host.overlay.suspect(p(40))) == []
    assert prdc(host) == 35


def test_a_predecessor_that_is_no_member_any_more_counts_as_dead() -> None:
    host = member(10, 20, 30, 40)
    says(host, p(35), NotifySuccessor())
    says(host, p(40), NotMember(2))
    assert prdc(host) == 35


def test_the_last_of_several_claims_is_looked_at() -> None:
    host = member(10, 20, 30, 40)
    says(host, p(33), NotifySuccessor())
    assert says(host, p(35), NotifySuccessor()) == []
    says(host, p(40), NotMember(2))
    assert prdc(host) == 35


# -- join and leave ----------------------------------------------------------------------------------------------------


def test_a_joiner_seeks_is_placed_and_stabilises() -> None:
    host = Host(p(15), RING, 1, SETTINGS)
    assert host.do(0, lambda: host.overlay.join(p(30))) == [
        Send(p(30), ChordJoin(p(15), 1, 1, 0)),
        SetTimer(1, Instant(SETTINGS.join_retry_us)),
    ]
    assert says(host, p(20), Ping(4)) == [Send(p(20), NotMember(4))]
    cancelled, tick, timer, asked = says(host, p(10), ChordJoinReply(1, (p(20), p(30))))
    assert cancelled == CancelTimer(1)
    assert isinstance(tick, SetTimer)
    assert isinstance(timer, SetTimer)
    assert asked == Send(p(20), GetState(3))
    assert (succ(host), prdc(host), host.joins) == ([20, 30], 10, 1)


def test_a_joiner_that_hears_nothing_asks_again() -> None:
    host = Host(p(15), RING, 1, SETTINGS)
    host.do(0, lambda: host.overlay.join(p(30)))
    retry = SETTINGS.join_retry_us
    assert fires(host, 1, retry) == [Send(p(30), ChordJoin(p(15), 2, 1, 1)), SetTimer(2, Instant(2 * retry))]
    says(host, p(10), ChordJoinReply(1, (p(20), p(30))))
    assert host.joins == 1, "the answer to any of its questions will do"


def test_a_place_that_is_none_is_not_taken() -> None:
    host = Host(p(15), RING, 1, SETTINGS)
    host.do(0, lambda: host.overlay.join(p(30)))
    assert says(host, p(20), ChordJoinReply(1, (p(30), p(40)))) == []
    assert says(host, p(10), ChordJoinReply(9, (p(20), p(30)))) == [Observe("reply_unexpected")]
    assert host.joins == 0


def test_a_seek_is_passed_on_until_it_is_placed() -> None:
    far, near = member(30, 10, 20, 40), member(10, 20, 30, 40)
    assert says(far, p(15), ChordJoin(p(15), 1, 1, 0)) == [Send(p(10), ChordJoin(p(15), 1, 2, 0))]
    assert says(near, p(30), ChordJoin(p(15), 1, 2, 0)) == [Send(p(15), ChordJoinReply(1, (p(20), p(30))))]


def test_a_busy_member_places_a_joiner_a_little_later() -> None:
    host = member(10, 20, 30, 40)
    stabilises(host)
    (wait,) = says(host, p(15), ChordJoin(p(15), 1, 1, 0))
    assert isinstance(wait, SetTimer)
    says(host, p(20), StateReply(2, p(10), (p(30), p(40))))
    assert fires(host, wait.timer, wait.at) == [Send(p(15), ChordJoinReply(1, (p(20), p(30))))]


def test_a_joiner_that_was_a_member_before_is_dead_as_what_it_was() -> None:
    host = member(10, 20, 30, 40)
    effects = says(host, p(40), ChordJoin(p(20, incarnation=1), 1, 3, 0))
    assert effects[0] == Send(p(30), NotifySuccessor())
    assert succ(host) == [30, 31]
    assert says(host, p(30), ChordJoin(p(30), 1, 3, 0)) == [], "of the same incarnation it is a member: an old question"


def test_who_leaves_tells_both_neighbours_and_is_silent() -> None:
    host = member(20, 10, 30, 40)
    word = ChordLeaving(p(20), p(10), 1)
    effects = host.do(0, host.overlay.leave)
    assert effects == [Send(p(30), word), Send(p(10), word), CancelTimer(1)]
    assert not host.overlay.view().joined
    assert says(host, p(10), GetState(3)) == [Send(p(10), NotMember(3))]
    assert says(host, p(10), NotifySuccessor()) == []


def test_the_neighbours_of_one_that_leaves_close_the_ring_at_once() -> None:
    before, after = member(10, 20, 30, 40), member(30, 10, 20, 40)
    assert says(after, p(20), ChordLeaving(p(20), p(10), 1)) == []
    assert prdc(after) == 10
    assert says(before, p(20), ChordLeaving(p(20), p(10), 1)) == [
        Send(p(40), ChordLeaving(p(20), p(10), 0)),
        Send(p(30), NotifySuccessor()),
        SetTimer(3, Instant(TIMEOUT)),
        Send(p(30), GetState(2)),
    ]
    assert succ(before) == [30, 31]


def test_the_word_of_a_leave_goes_no_further_than_lists_reach() -> None:
    host = member(40, 10, 20, 30)
    assert says(host, p(10), ChordLeaving(p(20), p(10), 0)) == []
    assert [peer.id for peer in host.overlay.neighbours(2)] == [p(10).id]


def test_the_last_but_one_that_leaves_leaves_the_other_alone() -> None:
    host = member(10, 20)
    assert says(host, p(20), ChordLeaving(p(20), p(10), 1)) == []
    assert (succ(host), prdc(host)) == ([10, 11], 10)
    assert host.overlay.neighbours(2) == ()


# -- routing -----------------------------------------------------------------------------------------------------------


def test_a_message_for_the_next_node_is_final() -> None:
    host = member(10, 20, 30, 40)
    body = PACKER.encode(Text("x"))
    key = RING.key(15)
    assert host.do(0, lambda: host.overlay.route(key, Text("x"))) == [
        Send(p(20), ChordRouted(key, p(10), 1, body, True))
    ]


def test_a_message_for_a_farther_key_goes_to_the_nearest_link_before_it() -> None:
    host = member(10, 20, 30, 40)
    body = PACKER.encode(Text("x"))
    key = RING.key(35)
    assert says(host, p(5), ChordRouted(key, p(5), 3, body)) == [Send(p(30), ChordRouted(key, p(5), 4, body))]


def test_a_message_for_a_link_itself_is_final() -> None:
    host = member(10, 20, 30, 40)
    key = RING.key(30)
    assert says(host, p(5), ChordRouted(key, p(5), 3, b"")) == [Send(p(30), ChordRouted(key, p(5), 4, b"", True))]


def test_a_message_is_delivered_where_its_key_belongs() -> None:
    host = member(10, 20, 30, 40)
    body = PACKER.encode(Text("x"))
    for number in (41, 63, 0, 10):
        assert says(host, p(30), ChordRouted(RING.key(number), p(30), 2, body, True)) == []
        assert host.delivered_here.pop() == (RING.key(number), Text("x"), p(30), 2)
    host.do(0, lambda: host.overlay.route(RING.key(5), Text("y")))
    assert host.delivered_here == [(RING.key(5), Text("y"), p(10), 0)]


def test_a_final_message_goes_back_to_a_predecessor_that_its_sender_does_not_know() -> None:
    host = member(20, 10, 30, 40)
    says(host, p(15), NotifySuccessor())
    key = RING.key(12)
    assert says(host, p(10), ChordRouted(key, p(10), 1, b"", True)) == [
        Send(p(15), ChordRouted(key, p(10), 2, b"", True))
    ]


def test_a_final_message_is_for_whoever_knows_that_its_predecessor_is_dead() -> None:
    host = member(20, 10, 30, 40)
    says(host, p(15), NotifySuccessor())
    host.do(0, lambda: host.overlay.suspect(p(15)))
    says(host, p(10), ChordRouted(RING.key(12), p(10), 1, PACKER.encode(Text("x")), True))
    assert [key for key, *_ in host.delivered_here] == [RING.key(12)]


def test_a_message_is_not_passed_on_for_ever() -> None:
    host = member(10, 20, 30, 40)
    last = SETTINGS.hops_max
    assert says(host, p(5), ChordRouted(RING.key(35), p(5), last - 1, b"")) == [
        Send(p(30), ChordRouted(RING.key(35), p(5), last, b""))
    ]
    assert says(host, p(5), ChordRouted(RING.key(35), p(5), last, b"")) == [Observe("chord_hops_exceeded")]
    assert says(host, p(5), ChordFind(RING.key(35), p(5), 1, last)) == [Observe("chord_hops_exceeded")]


def test_a_malformed_message_is_counted_and_dropped() -> None:
    host = member(10, 20, 30, 40)
    wrong = [Observe("chord_malformed")]
    assert says(host, p(30), ChordRouted(RING.key(5), p(30), 1, b"\xc1", True)) == wrong
    assert says(host, p(30), ChordRouted(b"12", p(30), 1, b"")) == wrong  # type: ignore[arg-type]
    assert says(host, p(30), ChordFind(b"", p(30), 1, 1)) == wrong  # type: ignore[arg-type]
    assert says(host, p(30), ChordJoin(Peer(b"\xff", "x"), 1, 1, 0)) == wrong  # type: ignore[arg-type]


def test_an_answer_that_names_no_ids_of_the_ring_is_as_good_as_none() -> None:
    host = member(10, 20, 30, 40)
    stabilises(host)
    says(host, p(20), StateReply(2, p(10), (Peer(b"\xff\xff", "x"),)))  # type: ignore[arg-type]
    assert succ(host) == [30, 31]


def test_a_lookup_is_answered_straight_to_the_asker() -> None:
    host = member(20, 10, 30, 40)
    assert says(host, p(10), ChordFind(RING.key(15), p(40), 6, 2, 0, True)) == [Send(p(40), ChordFound(6, 2))]


def test_a_lookup_is_tried_again_by_another_way_and_then_given_up() -> None:
    host = member(10, 20, 30, 40)
    answers: list[tuple[Peer | None, int]] = []
    key = RING.key(35)
    effects = host.do(0, lambda: host.overlay.lookup(key, lambda *found: answers.append(found)))
    assert effects[1:] == [Send(p(30), ChordFind(key, p(10), 1, 1, 0))]
    now = 0
    timer = effects[0]
    for attempt in range(1, SETTINGS.lookup_tries):
        assert isinstance(timer, SetTimer)
        now += SETTINGS.lookup_timeout_us
        again, timer = fires(host, timer.timer, now)
        assert again == Send(p(20), ChordFind(key, p(10), attempt + 1, 1, attempt)), (
            "the link before the one that was silent"
        )
    assert isinstance(timer, SetTimer)
    assert answers == []
    assert fires(host, timer.timer, now + SETTINGS.lookup_timeout_us) == []
    assert answers == [(None, 0)]
    assert says(host, p(40), ChordFound(1, 3)) == [Observe("reply_unexpected")]


def test_one_timer_serves_all_lookups_and_each_has_its_whole_time() -> None:
    host = member(10, 20, 30, 40)
    answers: list[tuple[Peer | None, int]] = []
    key, whole = RING.key(35), SETTINGS.lookup_timeout_us

    def look_up(now: int) -> list[Effect]:
        return host.do(now, lambda: host.overlay.lookup(key, lambda *found: answers.append(found)))

    timer, first = look_up(0)
    assert timer == SetTimer(2, Instant(whole))
    assert first == Send(p(30), ChordFind(key, p(10), 1, 1))
    assert look_up(100) == [Send(p(30), ChordFind(key, p(10), 2, 1))]
    assert look_up(200) == [Send(p(30), ChordFind(key, p(10), 3, 1))]
    assert says(host, p(40), ChordFound(1, 2), now=300) == []
    assert fires(host, 2, whole) == [SetTimer(3, Instant(whole + 100))]
    assert fires(host, 3, whole + 100) == [
        Send(p(20), ChordFind(key, p(10), 4, 1, 1)),
        SetTimer(4, Instant(whole + 200)),
    ]
    assert (
        says(host, p(40), ChordFound(3, 2), now=whole + 150)
        == says(host, p(40), ChordFound(4, 2), now=whole + 160)
        == []
    )
    assert answers == [(p(40), 2)] * 3
    assert fires(host, 4, whole + 200) == [], "nobody waits any more"
    assert look_up(whole + 300)[0] == SetTimer(5, Instant(2 * whole + 300))


# -- incarnations ------------------------------------------------------------------------------------------------------


def test_a_suspicion_against_a_former_incarnation_is_none_against_the_present() -> None:
    host = member(10, 20, 30, 40)
    says(host, p(20, incarnation=2), NotifySuccessor())
    assert host.do(5, lambda: host.overlay.suspect(p(20, incarnation=1))) == []
    assert host.do(5, lambda: host.overlay.suspect(p(20, incarnation=2))) != []


def test_news_of_a_later_incarnation_ends_a_suspicion() -> None:
    host = member(10, 20, 30, 40)
    host.do(5, lambda: host.overlay.suspect(p(20)))
    assert p(20) not in host.overlay.peers()
    says(host, p(30), StateReply(2, p(10), (p(40), p(20, incarnation=1))), now=6)
    says(host, p(20, incarnation=1), NotifySuccessor(), now=7)
    assert p(20, incarnation=1).id not in host.overlay._table.contacts.suspects


def test_any_word_of_a_suspect_ends_the_suspicion() -> None:
    host = member(10, 20, 30, 40)
    host.do(5, lambda: host.overlay.suspect(p(30)))
    assert [peer.id for peer in host.overlay.neighbours(2)] == [p(20).id]
    says(host, p(30), ChordRouted(RING.key(50), p(30), 1, b""), now=6)
    assert [peer.id for peer in host.overlay.neighbours(2)] == [p(20).id, p(30).id]
