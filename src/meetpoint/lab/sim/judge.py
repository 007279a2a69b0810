"""The judge of a run: its history, the checkers, and the report. No node runs any of this code.

The history holds what clients asked, were told and received. Nothing in it comes from inside a node. Times are virtual
microseconds; None is never.

*Notifications* are compared with the oracle (`matching.Scan`), from what clients saw alone:

- An event may be judged by the version of a subscription that was current when its publishing was asked, the last one
  acknowledged before, or by any later one that was asked for while the event could still be on its way: within
  `grace_us` of its publishing, or, where it was published before the network had recovered, until then.
- *missing*: the publishing was acknowledged, every version it may be judged by accepts it, and it never came.
- *duplicate*: it came again without the mark of a redelivery. A home that lost its disk does not know what it had
  notified; repeats after that are not counted.
- *spurious*: no version that it may be judged by accepts it, or the end of the subscription had been acknowledged, or
  it is no event that was published.
- *out of order*: of two events that one publisher asked to be published at one node, one after the other, the second
  came first. Only unmarked deliveries count, of events that were due to the version acknowledged when they were
  published: an event that is older than the subscription may come to it whenever it is matched again. A home may stop
  waiting for earlier events after `HOLD_US`; so a delivery that long after publishing is not counted.

*Lookups* are right if the node that was found was a right one at some moment between question and answer, among the
members that were up. *Bounded state* limits what a node holds after a time of quiet, when nothing is left to do.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from meetpoint.api.limits import SECOND_US
from meetpoint.lab.sim.devices import show
from meetpoint.language.events.event import Event
from meetpoint.language.filters.filter import Filter
from meetpoint.matching import Scan

# -- history -----------------------------------------------------------------------------------------------------------


class Change(msgspec.Struct):
    """A subscribe, an update or an unsubscribe (no filter): the times of its first request and of its
    acknowledgement.
    """

    filter: Filter | None
    text: str | None
    asked: int
    acknowledged: int | None = None


class DeliveryRecord(msgspec.Struct, frozen=True):
    """An event that reached a subscriber: the time, the address, and the mark of a possible repeat."""

    at: int
    event: str
    address: str
    redelivered: bool


class SubscriptionRecord(msgspec.Struct):
    """A subscription from a client's view: its changes in order, each asked after the one before was acknowledged."""

    name: str
    address: str
    changes: list[Change] = []
    deliveries: list[DeliveryRecord] = []

    @property
    def notifications(self) -> list[str]:
        """The ids of the events that reached it, in order."""
        return [delivery.event for delivery in self.deliveries]


class PublicationRecord(msgspec.Struct):
    """An event with the times of its publishing and of the acknowledgement."""

    event: Event
    content: bytes
    asked: int
    acknowledged: int | None = None
    address: str = ""
    """The publishing node: it counts as one publisher, whose events come in the order in which they were asked."""


class LookupRecord(msgspec.Struct):
    """A lookup and its answer; `found` is None where nothing was found, or no answer came."""

    key: bytes
    asked: int
    address: str
    answered: int | None = None
    found: bytes | None = None
    hops: int = 0


class History:
    """The whole history of clients."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, SubscriptionRecord] = {}
        self.publications: dict[str, PublicationRecord] = {}
        self.lookups: list[LookupRecord] = []
        self.strange: list[str] = []
        self.lost_disks: list[tuple[int, str]] = []
        self.unanswered: list[tuple[int, str]] = []


class MembershipChange(NamedTuple):
    """A change of membership: a node became a member, got another place, or is a member no longer."""

    at: int
    id: bytes
    member: bool
    place: object = None
    """The part that decides its keys, beside its id (`cluster.NodeFamily.place`); None where its id is enough."""


class Members:
    """The live members at one moment: their ids in order, and their places."""

    def __init__(self) -> None:
        self.ids: list[bytes] = []
        self.places: dict[bytes, object] = {}

    def apply(self, moment: MembershipChange) -> None:
        id_ = moment.id
        if moment.member:
            if id_ not in self.places:
                insort(self.ids, id_)
            self.places[id_] = moment.place
        else:
            assert id_ in self.places, "who was no member cannot cease to be one"
            del self.ids[bisect_left(self.ids, id_)], self.places[id_]

    def copy(self) -> Members:
        other = Members()
        other.ids, other.places = self.ids.copy(), self.places.copy()
        return other


class MembershipHistory:
    """The true membership over time. Kept as changes, so that a large network costs nothing while it runs."""

    def __init__(self) -> None:
        self.changes: list[MembershipChange] = []

    def change(self, at: int, id_: bytes, member: bool, place: object = None) -> None:
        """Record that a node became a member, got another place, or is a member no longer."""
        self.changes.append(MembershipChange(at, id_, member, place))


# -- notifications -----------------------------------------------------------------------------------------------------


HOLD_US = 30 * SECOND_US
"""The least time that a home waits for events that come before one that it has."""
WAITING_MAX = 200
"""The most timers, tickets and replies that an idle node may wait for, besides its ended subscriptions."""


class JudgingTimes(msgspec.Struct, frozen=True):
    """The times by which a run is judged."""

    recovered: int
    """The time from which on everything must work: the stated time after the last fault has healed."""
    grace_us: int
    """The longest time that an event may be on its way in a network without faults."""

    def on_its_way_until(self, publication: PublicationRecord) -> int:
        """Return until when a change of a subscription may still meet an event."""
        at_least = publication.asked + self.grace_us
        return max(at_least, self.recovered) if publication.asked < self.recovered else at_least


class Verdict(msgspec.Struct):
    """The faults that were found, a sentence each."""

    missing: list[str] = []
    duplicate: list[str] = []
    spurious: list[str] = []
    out_of_order: list[str] = []
    expected: int = 0


def check_notifications(history: History, judging: JudgingTimes) -> Verdict:
    """Compare the notifications with those that were due."""
    verdict = Verdict()
    verdict.spurious += history.strange
    accepted = _accepted(history)
    for subscription in history.subscriptions.values():
        came: dict[str, list[DeliveryRecord]] = {}
        for delivery in subscription.deliveries:
            came.setdefault(delivery.event, []).append(delivery)
        for id_, deliveries in came.items():
            _judge_deliveries(history, subscription, id_, deliveries, accepted, verdict)
        _judge_order(history, subscription, accepted, verdict)
        for id_, publication in history.publications.items():
            if publication.acknowledged is not None and _is_due(subscription, publication, accepted, judging):
                verdict.expected += 1
                if id_ not in came:
                    verdict.missing.append(
                        f"{id_}, asked for at {show(publication.asked)} and acknowledged at "
                        f"{show(publication.acknowledged)}, never came to {subscription.name} of {subscription.address}"
                    )
    return verdict


def _accepted(history: History) -> dict[str, set[tuple[str, int]]]:
    """Return, by event, the versions of subscriptions that the oracle says accept it."""
    scan: Scan[tuple[str, int]] = Scan()
    for name, subscription in history.subscriptions.items():
        for number, change in enumerate(subscription.changes):
            if change.filter is not None:
                scan.add((name, number), change.filter)
    return {id_: set(scan.match(publication.event.attributes)) for id_, publication in history.publications.items()}


def _current(changes: Sequence[Change], time: int) -> int:
    """Return the number of the last version acknowledged by a time, or -1."""
    current = -1
    for number, change in enumerate(changes):
        if change.acknowledged is not None and change.acknowledged <= time:
            current = number
    return current


def _is_due(
    subscription: SubscriptionRecord,
    publication: PublicationRecord,
    accepted: dict[str, set[tuple[str, int]]],
    judging: JudgingTimes,
) -> bool:
    """Return whether all versions by which an event may be judged accept it."""
    changes = subscription.changes
    current = _current(changes, publication.asked)
    if current < 0:
        return False
    until = judging.on_its_way_until(publication)
    right = accepted[publication.event.id]
    return (subscription.name, current) in right and all(
        (subscription.name, number) in right
        for number in range(current + 1, len(changes))
        if changes[number].asked <= until
    )


def _judge_deliveries(
    history: History,
    subscription: SubscriptionRecord,
    id_: str,
    deliveries: list[DeliveryRecord],
    accepted: dict[str, set[tuple[str, int]]],
    verdict: Verdict,
) -> None:
    name = subscription.name
    publication = history.publications.get(id_)
    for delivery in deliveries:
        wrong = None
        if publication is None:
            wrong = "was never published"
        elif (ended := _ended(subscription, delivery.at)) is not None:
            wrong = f"came after its end had been acknowledged at {show(ended)}"
        else:
            first = max(0, _current(subscription.changes, publication.asked))
            asked = [n for n in range(first, len(subscription.changes)) if subscription.changes[n].asked <= delivery.at]
            if not any((name, number) in accepted[id_] for number in asked):
                wrong = f"matches none of its versions {asked}"
        if wrong is not None:
            verdict.spurious.append(f"{id_} at {show(delivery.at)} from {delivery.address} to {name}: {wrong}")
    # A marked repeat is allowed at any time, so only unmarked ones count.
    unmarked = [delivery for delivery in deliveries if not delivery.redelivered]
    for again in unmarked[1:]:
        if not _lost_disk(history, subscription, unmarked[0], again):
            verdict.duplicate.append(
                f"{id_} came to {name} at {show(unmarked[0].at)} from {unmarked[0].address} "
                f"and unmarked at {show(again.at)} from {again.address}"
            )


def _judge_order(
    history: History, subscription: SubscriptionRecord, accepted: dict[str, set[tuple[str, int]]], verdict: Verdict
) -> None:
    latest: dict[str, tuple[int, DeliveryRecord]] = {}  # of each publisher: what was published last of all that came
    came: set[str] = set()
    for delivery in subscription.deliveries:
        publication = history.publications.get(delivery.event)
        if delivery.redelivered or publication is None or delivery.event in came:
            continue
        came.add(delivery.event)
        current = _current(subscription.changes, publication.asked)
        if (subscription.name, current) not in accepted[delivery.event]:
            continue
        number, before = latest.get(publication.address, (-1, None))
        if before is not None and publication.event.sequence < number:
            verdict.out_of_order.append(
                f"{delivery.event} came to {subscription.name} at {show(delivery.at)} from {delivery.address}, after "
                f"{before.event} at {show(before.at)} from {before.address}, which was published later"
            )
        elif delivery.at - publication.asked < HOLD_US:
            latest[publication.address] = (publication.event.sequence, delivery)


def _ended(subscription: SubscriptionRecord, time: int) -> int | None:
    last = subscription.changes[-1]
    if last.filter is None and last.acknowledged is not None and last.acknowledged < time:
        return last.acknowledged
    return None


def _lost_disk(
    history: History, subscription: SubscriptionRecord, first: DeliveryRecord, again: DeliveryRecord
) -> bool:
    homes = (subscription.address, first.address, again.address)
    return any(first.at <= at <= again.at and address in homes for at, address in history.lost_disks)


# -- lookups -----------------------------------------------------------------------------------------------------------


def first_from(members: Sequence[bytes], key: bytes) -> bytes:
    """Return the first member at or after a key: Chord's rule."""
    return members[bisect_left(members, key) % len(members)]


def closest_to(members: Sequence[bytes], key: bytes, size: int) -> bytes:
    """Return the member nearest to a key on a circle of `size` ids, of two the one before it: Pastry's rule."""
    after, before = first_from(members, key), members[bisect_left(members, key) - 1]
    ahead = (int.from_bytes(after, "big") - int.from_bytes(key, "big")) % size
    behind = (int.from_bytes(key, "big") - int.from_bytes(before, "big")) % size
    return after if ahead < behind else before


def check_lookups(
    lookups: Iterable[LookupRecord],
    truth: MembershipHistory,
    since: int,
    responsible: Callable[[Members, bytes], Sequence[bytes]],
) -> list[str]:
    """Return the wrong lookups that began from a time on; `responsible` is the overlay's rule."""
    wrong = []
    members = Members()
    done = 0
    changes = truth.changes
    for lookup in sorted(lookups, key=lambda each: each.asked):
        while done < len(changes) and changes[done].at <= lookup.asked:
            members.apply(changes[done])
            done += 1
        if lookup.asked < since:
            continue
        asked = f"the lookup of {lookup.key.hex()} at {show(lookup.asked)} by {lookup.address}"
        if lookup.found is None or lookup.answered is None:
            wrong.append(f"{asked} found nobody")
        elif not _was_right(lookup, members, changes[done:], responsible):
            right = " or ".join(id_.hex() for id_ in responsible(members, lookup.key)) if members.ids else ""
            wrong.append(f"{asked} found {lookup.found.hex()}, not {right or 'nobody'}")
    return wrong


def _was_right(
    lookup: LookupRecord,
    members: Members,
    later: Sequence[MembershipChange],
    responsible: Callable[[Members, bytes], Sequence[bytes]],
) -> bool:
    if members.ids and lookup.found in responsible(members, lookup.key):
        return True
    then = members.copy()
    assert lookup.answered is not None
    for moment in later:
        if moment.at > lookup.answered:
            break
        then.apply(moment)
        if then.ids and lookup.found in responsible(then, lookup.key):
            return True
    return False


# -- bounded state -----------------------------------------------------------------------------------------------------


def check_state(address: str, view: Any, ended: int) -> list[str]:
    """Return the excess state of a node after the quiet; `ended` counts the ended subscriptions of the whole run."""
    limits = {"outbox": 0, "queued": 0, "unsafe": 0, "waiting": WAITING_MAX + ended}
    return [
        f"{address} still has {what} {getattr(view, what)}, more than {most}"
        for what, most in limits.items()
        if getattr(view, what, 0) > most
    ]


# -- report ------------------------------------------------------------------------------------------------------------


PROBLEMS_SHOWN = 20


class Summary(msgspec.Struct, frozen=True):
    """The mean, median and maximum of a figure."""

    mean: float
    p50: float
    max: float


def summarise(values: Iterable[int]) -> Summary:
    """Summarise some values; all 0 of none."""
    order = sorted(values)
    if not order:
        return Summary(0.0, 0.0, 0.0)
    return Summary(round(sum(order) / len(order), 3), float(order[len(order) // 2]), float(order[-1]))


class RunReport(msgspec.Struct, kw_only=True):
    """The report of one run."""

    overlay: str
    scheme: str
    nodes: int
    seed: int
    faults: str
    detector: str

    missing: int = 0
    duplicate: int = 0
    spurious: int = 0
    out_of_order: int = 0
    invariants_broken: int = 0
    lookups_wrong: int = 0

    injected: dict[str, int] = {}
    never_injected: list[str] = []
    problems: list[str] = []
    """The first problems, a sentence each."""

    subscriptions: int = 0
    changes: int = 0
    events: int = 0
    events_acknowledged: int = 0
    notifications: int = 0
    notifications_expected: int = 0
    redelivered: int = 0
    lookups: int = 0
    live_again_s: float | None = None
    """Seconds from healing until all nodes served again and all pointers were ideal."""

    lookup_hops: Summary = Summary(0, 0, 0)
    event_hops: Summary = Summary(0, 0, 0)
    """Messages on the way of an event to each node that it came to first by the scheme's own way."""
    event_delay_ms: Summary = Summary(0, 0, 0)
    """The delay from publishing to a subscriber's first notification."""
    messages: int = 0
    messages_per_node: Summary = Summary(0, 0, 0)
    messages_by_kind: dict[str, int] = {}
    """Messages by the tag of their kind."""
    bytes: int = 0
    bytes_per_node: Summary = Summary(0, 0, 0)
    subids: int = 0
    subids_per_event: Summary = Summary(0, 0, 0)
    notifications_per_subscription: Summary = Summary(0, 0, 0)
    observed: dict[str, int] = {}

    virtual_s: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    """The duration of the run, without its judgement: on the clock, and of one core."""
    messages_per_s: float = 0.0
    """Messages in a second of one core."""
    digest: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """The six counts that must be 0."""
        return {
            "missing": self.missing,
            "duplicate": self.duplicate,
            "spurious": self.spurious,
            "out_of_order": self.out_of_order,
            "invariants_broken": self.invariants_broken,
            "lookups_wrong": self.lookups_wrong,
        }

    @property
    def good(self) -> bool:
        """Whether all six are 0, and every fault that was asked for happened."""
        return not any(self.counts.values()) and not self.never_injected
