"""What publishers know of a home's keys, and what the home waits for: one order of messages each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from meetpoint.api.ids import HomeId, Peer
from meetpoint.catalog import make_codec
from meetpoint.matching.keys.key_plan import KeyPlan, LiveKeys
from meetpoint.matching.keys.meet_keys import KeySort, MeetKey
from meetpoint.node.runtime.effects import Send
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.key_range import KeyRange
from meetpoint.schemes.meet.entries import place_of
from meetpoint.schemes.meet.entry_tables import CHANGES_MAX, KeyLeases
from meetpoint.schemes.meet.messages import KeySummary, SummaryUpdate, SummaryUpdateAck, group_keys
from meetpoint.schemes.meet.summaries import SummaryCache

RING = Ring(16)
HOME = HomeId(b"\x10\x00")
ALL = (KeyRange(b"\x10\x00", b"\x10\x00"),)
US = 1_000_000
LEASE_US = 8 * US


def key(text: str) -> MeetKey:
    return MeetKey(KeySort.VALUE, "symbol", "string", 0, 0, text)


def services(id_: int, seed: int = 1) -> Runtime:
    made = Runtime(Peer(RING.node(id_), f"n{id_}", 1), RING, make_codec(), seed)
    made.begin(Instant(100 * US))
    return made


class Publisher:
    """A node that has summaries."""

    def __init__(self, lease_us: int = LEASE_US) -> None:
        self.services = services(7)
        self.summaries = SummaryCache(self.services, KeyPlan(), lease_us)

    def at(self, seconds: float) -> None:
        self.services.begin(Instant(int((100 + seconds) * US)))

    def skips(self, text: str) -> bool:
        """Whether an event with a symbol would not be brought to the home."""
        attributes = {"symbol": text}
        known = HOME in self.summaries.homes_for(attributes)
        return not known and place_of(RING, key(text)) not in self.summaries.places_for(attributes)

    def learn(self, asked: float, summary: KeySummary | None, version: int = 1, arcs: Any = ALL) -> None:
        self.summaries.learn(HOME, int((100 + asked) * US), version, arcs, summary)


def whole(serial: int, *texts: str, base: int = 5) -> KeySummary:
    return KeySummary(base, serial, 0, True, group_keys(map(key, texts)), ())


def news(since: int, serial: int, *texts: str, base: int = 5, gone: tuple[str, ...] = ()) -> KeySummary:
    return KeySummary(base, serial, since, False, group_keys(map(key, texts)), group_keys(map(key, gone)))


def test_a_summary_saves_visits_until_its_time_is_over_counted_from_the_question() -> None:
    publisher = Publisher()
    publisher.at(1)
    publisher.learn(0, whole(1, "A"))
    assert not publisher.skips("A")
    assert publisher.skips("B")
    publisher.at(6.9)
    assert publisher.skips("B")
    publisher.at(7)
    assert not publisher.skips("B")


def test_a_summary_speaks_only_of_the_arcs_it_came_with() -> None:
    publisher = Publisher()
    place = place_of(RING, key("B"))
    publisher.learn(0, whole(1, "A"), arcs=(KeyRange(RING.add(place, 1), RING.add(place, -1)),))
    assert not publisher.skips("B")


def test_news_are_added_and_what_was_known_before_stays() -> None:
    publisher = Publisher()
    publisher.learn(0, whole(1, "A"))
    publisher.summaries.note(HOME, 1, news(1, 2, "B"))
    assert not publisher.skips("A")
    assert not publisher.skips("B")
    assert publisher.skips("C")
    assert publisher.summaries.known(HOME) == (5, 2, 1)


def test_an_answer_that_is_older_than_the_news_does_not_take_them_away() -> None:
    publisher = Publisher()
    publisher.learn(0, whole(1, "A"))
    publisher.summaries.note(HOME, 1, news(1, 2, "B"))
    publisher.learn(0.5, whole(1, "A"), arcs=None)
    assert not publisher.skips("B")


@pytest.mark.parametrize("late", [None, news(0, 1, "X"), news(3, 4, "X", base=4), news(9, 10, "X", base=4)])
def test_an_answer_under_way_when_news_come_is_of_no_use(late: KeySummary | None) -> None:
    """The home has granted a summary and tells what is new since; that comes first. Other old news may follow."""
    publisher = Publisher()
    publisher.summaries.known(HOME)  # it is being asked
    publisher.at(0.5)
    publisher.summaries.note(HOME, 1, news(1, 2, "B"))
    if late is not None:
        publisher.at(0.6)
        publisher.summaries.note(HOME, 1, late)
    publisher.at(0.7)
    publisher.learn(0.1, whole(1, "A"))
    assert not publisher.skips("B")
    publisher.at(0.9)
    publisher.learn(0.8, whole(2, "A", "B"))
    assert publisher.skips("C")


@pytest.mark.parametrize("late", [news(0, 1, "X"), news(3, 4, "X", base=4)])
def test_old_news_do_not_bring_back_what_was_lost(late: KeySummary) -> None:
    """A summary was of no use any more; then come older news, and an answer from between them."""
    publisher = Publisher()
    publisher.learn(-1, whole(1, "A"))
    publisher.at(0.5)
    publisher.summaries.note(HOME, 2, news(1, 9, "B"))  # of other arcs
    publisher.at(0.6)
    publisher.summaries.note(HOME, 1, late)
    publisher.learn(0.1, whole(7, "A"))
    assert not publisher.skips("B")


def test_news_of_other_arcs_end_a_summary() -> None:
    """The home has given some keys away: without them the summary would speak of what it does not hold."""
    publisher = Publisher()
    publisher.learn(0, whole(1, "A"))
    publisher.summaries.note(HOME, 2, news(1, 3, "B", gone=("A",)))
    assert not publisher.skips("A")
    assert not publisher.skips("C")


def test_an_answer_from_before_keys_went_away_is_overtaken_by_one_from_after() -> None:
    """The home gave the place of A to another. Of that and of the time before tell two answers, in the wrong order."""
    publisher = Publisher()
    place = place_of(RING, key("A"))
    publisher.at(1)
    publisher.learn(0.5, whole(3, "B"), version=2, arcs=(KeyRange(place, RING.add(place, -1)),))
    assert publisher.skips("C")
    publisher.learn(0.1, whole(1, "A", "B"), version=1)
    assert not publisher.skips("A")


def test_news_that_leave_a_hole_end_a_summary() -> None:
    publisher = Publisher()
    publisher.learn(0, whole(1, "A"))
    publisher.summaries.note(HOME, 1, news(2, 3, "C"))
    assert not publisher.skips("B")


def test_other_arcs_without_their_keys_end_a_summary() -> None:
    publisher = Publisher()
    publisher.learn(0, whole(1, "A"))
    publisher.learn(1, None, version=2)
    assert not publisher.skips("B")


def test_a_summary_of_another_base_has_its_own_time() -> None:
    publisher = Publisher()
    publisher.at(5)
    publisher.learn(4, whole(1, "A", base=6))
    publisher.learn(0, whole(9, "A", base=5))
    publisher.at(7.5)
    assert not publisher.skips("B")


def test_news_of_a_home_that_nobody_asked_are_not_kept() -> None:
    publisher = Publisher()
    for number in range(100):
        publisher.summaries.note(HomeId(bytes(RING.node(number))), 1, news(0, 1, "A"))
    assert publisher.summaries._leases == {}


def test_what_is_gone_is_forgotten() -> None:
    publisher = Publisher()
    publisher.learn(0, whole(1, "A"))
    publisher.summaries.forget(HOME)
    assert (publisher.summaries._homes, publisher.summaries._leases) == ({}, {})
    assert len(publisher.summaries._live) == 0


# -- leases ----------------------------------------------------------------------------------------------------------


class Listed:
    """A directory, as far as leases looks."""

    def __init__(self, *peers: Peer) -> None:
        self.peers = list(peers)

    @property
    def directory(self) -> Listed:
        return self

    def others(self) -> list[Peer]:
        return self.peers


PEERS = [Peer(RING.node(number), f"n{number}", 1) for number in (7, 8)]


OWNERSHIP = SimpleNamespace(owned_ranges={HOME: SimpleNamespace(version=1)})


class Holder:
    """A home that grants."""

    def __init__(self, *, fresh: bool = True, listed: Listed | None = None) -> None:
        self.services = services(1)
        self.effects = self.services.begin(Instant(100 * US))
        self.listed = Listed(*PEERS) if listed is None else listed
        self.keys = LiveKeys()
        self.leases = KeyLeases(
            HOME, self.services, self.listed, OWNERSHIP, LEASE_US, self.keys,  # type: ignore[arg-type]
            unknown_us=0 if fresh else LEASE_US,
        )  # fmt: skip
        self.done: list[str] = []

    def at(self, seconds: float) -> None:
        self.effects = self.services.begin(Instant(int((100 + seconds) * US)))
        for timer in list(self.services._timers):
            self.services.fired(timer)

    def add(self, text: str) -> None:
        self.keys.add(key(text))
        self.leases.changed(key(text), added=True)
        self.leases.when_known(lambda: self.done.append(text))

    def told(self) -> list[tuple[Peer, SummaryUpdate]]:
        return [
            (effect.to, effect.message)
            for effect in self.effects
            if isinstance(effect, Send) and isinstance(effect.message, SummaryUpdate)
        ]

    def note(self, peer: Peer, used: SummaryUpdate) -> None:
        self.services.replied(peer, SummaryUpdateAck(used.request, used.summary.base, used.summary.serial))


def test_whoever_places_waits_for_every_publisher_with_a_summary() -> None:
    holder = Holder()
    for peer in PEERS:
        holder.leases.grant(peer, 0, 0)
    holder.add("A")
    (first, one), (second, other) = holder.told()
    assert [first, second] == PEERS
    assert holder.done == []
    holder.note(first, one)
    assert holder.done == []
    holder.note(second, other)
    assert holder.done == ["A"]


def test_a_late_question_of_a_former_life_does_not_hide_the_summary_of_the_present_one() -> None:
    former, present = Peer(PEERS[0].id, PEERS[0].address, 1), Peer(PEERS[0].id, PEERS[0].address, 2)
    holder = Holder(listed=Listed(present))
    holder.leases.grant(present, 0, 0)
    holder.leases.grant(former, 0, 0)
    holder.add("A")
    assert holder.done == []
    assert [to for to, _ in holder.told()] == [present]


def test_what_is_not_new_waits_for_nobody() -> None:
    holder = Holder()
    holder.add("A")
    holder.leases.grant(PEERS[0], 0, 0)
    holder.leases.when_known(lambda: holder.done.append("again"))
    assert holder.done == ["A", "again"]
    assert holder.told() == []


def test_a_publisher_that_is_silent_is_waited_for_until_its_summary_is_over() -> None:
    holder = Holder()
    holder.leases.grant(PEERS[0], 0, 0)
    holder.add("A")
    holder.at(7.9)
    assert holder.done == []
    holder.at(8)
    assert holder.done == ["A"]


def test_after_a_restart_nothing_is_answered_before_the_longest_summary_is_over() -> None:
    holder = Holder(fresh=False)
    holder.add("A")
    holder.at(8.9)
    assert holder.done == []
    holder.at(9)
    assert holder.done == ["A"]


@pytest.mark.parametrize("slow", [1 - 1 / 17, 0.99])
def test_a_summary_ends_at_the_publisher_first_though_its_clock_is_slow(slow: float) -> None:
    holder, publisher = Holder(), Publisher()
    publisher.learn(0, holder.leases.grant(PEERS[0], 0, 0))
    holder.add("A")
    holder.at(8)
    assert holder.done == ["A"]
    publisher.at(8 * slow)
    assert not publisher.skips("A")


def test_a_mutant_without_a_margin_for_clocks_is_seen() -> None:
    holder, publisher = Holder(), Publisher(LEASE_US * 8 // 7)
    publisher.learn(0, holder.leases.grant(PEERS[0], 0, 0))
    holder.add("A")
    holder.at(8)
    assert holder.done == ["A"]
    publisher.at(8 * 0.999)
    assert publisher.skips("A")


def test_an_answer_that_was_lost_makes_nobody_know() -> None:
    """Asked twice, granted twice, and the second answer, with the key, may never come."""
    holder = Holder()
    first = holder.leases.grant(PEERS[0], 0, 0)
    holder.add("A")
    assert len(holder.told()) == 1
    holder.leases.grant(PEERS[0], 0, 0)
    holder.at(1.5)
    assert holder.done == []
    holder.leases.grant(PEERS[0], first.base, first.serial + 1)
    holder.at(2)
    assert holder.done == ["A"]


@pytest.mark.parametrize("serial", [-1, -(2**63), 99, 2**64 - 1])
def test_a_publisher_that_says_it_knows_what_cannot_be_gets_everything(serial: int) -> None:
    holder = Holder()
    holder.add("A")
    base = holder.leases.grant(PEERS[0], 0, 0).base
    assert holder.leases.grant(PEERS[1], base, serial).whole
    holder.add("B")
    for peer, used in holder.told():
        holder.services.replied(peer, SummaryUpdateAck(used.request, used.summary.base, serial))
    assert (holder.done == ["A", "B"]) == (serial > 0)


def test_who_has_left_or_restarted_is_not_waited_for() -> None:
    for gone in ([PEERS[1]], [PEERS[1], Peer(PEERS[0].id, "n7", 2)]):
        holder = Holder()
        holder.leases.grant(PEERS[0], 0, 0)
        holder.add("A")
        assert holder.done == []
        holder.listed.peers = gone
        holder.at(1.5)
        holder.at(2)
        assert holder.done == ["A"]


def test_who_is_not_listed_yet_is_waited_for() -> None:
    holder = Holder(listed=Listed(PEERS[1]))
    holder.leases.grant(PEERS[0], 0, 0)
    holder.add("A")
    assert holder.done == []
    assert [peer for peer, _ in holder.told()] == [PEERS[0]]


def test_a_publisher_that_is_down_is_told_again_after_a_while_not_at_once() -> None:
    holder = Holder()
    holder.leases.grant(PEERS[0], 0, 0)
    holder.add("A")
    holder.effects.clear()
    holder.services.lost(PEERS[0])
    assert holder.told() == []
    holder.at(0.5)
    assert len(holder.told()) == 1


def test_changes_are_told_alone_as_long_as_they_are_remembered() -> None:
    holder = Holder()
    base = holder.leases.grant(PEERS[0], 0, 0).base
    for number in range(3 * CHANGES_MAX):
        holder.leases.changed(key(str(number)), added=True)
        assert len(holder.leases._changes) <= 2 * CHANGES_MAX
    latest = holder.leases.summary(base, 3 * CHANGES_MAX - 5)
    assert not latest.whole
    assert sum(len(group.items) for group in latest.added) == 5
    assert holder.leases.summary(base, 1).whole


def test_what_came_and_went_is_told_as_gone() -> None:
    holder = Holder()
    base = holder.leases.grant(PEERS[0], 0, 0).base
    holder.leases.changed(key("A"), added=True)
    holder.leases.changed(key("A"), added=False)
    holder.leases.changed(key("B"), added=True)
    summary = holder.leases.summary(base, 0)
    assert (summary.added, summary.removed) == (group_keys([key("B")]), group_keys([key("A")]))


def test_a_home_that_went_away_answers_nobody() -> None:
    holder = Holder(fresh=False)
    holder.add("A")
    holder.leases.close()
    holder.at(20)
    assert holder.done == []
