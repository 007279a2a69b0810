"""Whether a run kept its promises. Apart from the code that is judged: nothing here is used to run a node.

*Notifications*, against the oracle (`matching.Scan`), from what clients saw alone:

- An event may be judged by the version of a subscription that was current when it was asked to be published, the last
  one acknowledged before, or by any later one that was asked for while the event could still be on its way: within
  `grace_us` of its publishing, or, where it was published before the network had recovered, until then.
- *missing*: the publishing was acknowledged, every version it may be judged by accepts it, and it never came.
- *duplicate*: it came again without the mark of a redelivery. A home that lost its disk does not know what it had
  notified; repeats after that are not counted.
- *spurious*: no version that it may be judged by accepts it, or the end of the subscription had been acknowledged, or
  it is no event that was published.
- *out of order*: of two events that one publisher asked to be published at one node, one after the other, the second
  came first. Only what came unmarked counts, and what was due to the version acknowledged when it was published: an
  event that is older than the subscription may come to it whenever it is matched again. A home may stop waiting for
  what comes before after `HOLD_US`; so what came that long after it was published is not counted.

*Lookups*: right, if the node that was found was a right one at some moment between question and answer, among the
members that were up. *Bounded state*: what a node holds after a time of quiet, when nothing is left to do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from meetpoint.api.limits import SECOND_US
from meetpoint.lab.sim.clock import told
from meetpoint.lab.sim.judge.history import (
    Change,
    Delivery,
    History,
    LookedUp,
    Members,
    Moment,
    Publication,
    Subscription,
    Truth,
)
from meetpoint.matching import Scan

__all__ = ["Judging", "Verdict", "check_lookups", "check_notifications", "check_state", "closest_to", "first_from"]

HOLD_US = 30 * SECOND_US
"""How long a home waits, at least, for events that come before one that it has."""
WAITING_MAX = 200
"""How many timers, tickets and replies a node that has nothing to do may wait for, besides its ended subscriptions."""


class Judging(msgspec.Struct, frozen=True):
    """The times by which a run is judged."""

    recovered: int
    """From when on everything must work: the stated time after the last fault has healed."""
    grace_us: int
    """How long an event may be on its way in a network without faults."""

    def on_its_way_until(self, publication: Publication) -> int:
        """Until when a change of a subscription may still meet an event."""
        at_least = publication.asked + self.grace_us
        return max(at_least, self.recovered) if publication.asked < self.recovered else at_least


class Verdict(msgspec.Struct):
    """What was wrong, a sentence each."""

    missing: list[str] = []
    duplicate: list[str] = []
    spurious: list[str] = []
    out_of_order: list[str] = []
    expected: int = 0


def check_notifications(history: History, judging: Judging) -> Verdict:
    """Compare what came with what should have come."""
    verdict = Verdict()
    verdict.spurious += history.strange
    accepted = _accepted(history)
    for subscription in history.subscriptions.values():
        came: dict[str, list[Delivery]] = {}
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
                        f"{id_}, asked for at {told(publication.asked)} and acknowledged at "
                        f"{told(publication.acknowledged)}, never came to {subscription.name} of {subscription.address}"
                    )
    return verdict


def _accepted(history: History) -> dict[str, set[tuple[str, int]]]:
    """By event, the versions of subscriptions that the oracle says accept it."""
    scan: Scan[tuple[str, int]] = Scan()
    for name, subscription in history.subscriptions.items():
        for number, change in enumerate(subscription.changes):
            if change.filter is not None:
                scan.add((name, number), change.filter)
    return {id_: set(scan.match(publication.event.attributes)) for id_, publication in history.publications.items()}


def _current(changes: Sequence[Change], time: int) -> int:
    """The number of the last version acknowledged by a time, or -1."""
    current = -1
    for number, change in enumerate(changes):
        if change.acknowledged is not None and change.acknowledged <= time:
            current = number
    return current


def _is_due(
    subscription: Subscription, publication: Publication, accepted: dict[str, set[tuple[str, int]]], judging: Judging
) -> bool:
    """Whether all versions by which an event may be judged accept it."""
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
    subscription: Subscription,
    id_: str,
    deliveries: list[Delivery],
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
            wrong = f"came after its end had been acknowledged at {told(ended)}"
        else:
            first = max(0, _current(subscription.changes, publication.asked))
            asked = [n for n in range(first, len(subscription.changes)) if subscription.changes[n].asked <= delivery.at]
            if not any((name, number) in accepted[id_] for number in asked):
                wrong = f"matches none of its versions {asked}"
        if wrong is not None:
            verdict.spurious.append(f"{id_} at {told(delivery.at)} from {delivery.address} to {name}: {wrong}")
    unmarked = [delivery for delivery in deliveries if not delivery.redelivered]
    for again in unmarked[1:]:
        if not _lost_disk(history, subscription, unmarked[0], again):
            verdict.duplicate.append(
                f"{id_} came to {name} at {told(unmarked[0].at)} from {unmarked[0].address} "
                f"and unmarked at {told(again.at)} from {again.address}"
            )


def _judge_order(
    history: History, subscription: Subscription, accepted: dict[str, set[tuple[str, int]]], verdict: Verdict
) -> None:
    latest: dict[str, tuple[int, Delivery]] = {}  # of each publisher: what was published last of all that came
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
                f"{delivery.event} came to {subscription.name} at {told(delivery.at)} from {delivery.address}, after "
                f"{before.event} at {told(before.at)} from {before.address}, which was published later"
            )
        elif delivery.at - publication.asked < HOLD_US:
            latest[publication.address] = (publication.event.sequence, delivery)


def _ended(subscription: Subscription, time: int) -> int | None:
    last = subscription.changes[-1]
    if last.filter is None and last.acknowledged is not None and last.acknowledged < time:
        return last.acknowledged
    return None


def _lost_disk(history: History, subscription: Subscription, first: Delivery, again: Delivery) -> bool:
    homes = (subscription.address, first.address, again.address)
    return any(first.at <= at <= again.at and address in homes for at, address in history.lost_disks)


# -- lookups -----------------------------------------------------------------------------------------------------------


def first_from(members: Sequence[bytes], key: bytes) -> bytes:
    """Chord's rule: the first member at or after a key."""
    return members[bisect_left(members, key) % len(members)]


def closest_to(members: Sequence[bytes], key: bytes, size: int) -> bytes:
    """Pastry's rule on a circle of `size` ids: the member nearest to a key; of two, the one before it."""
    after, before = first_from(members, key), members[bisect_left(members, key) - 1]
    ahead = (int.from_bytes(after, "big") - int.from_bytes(key, "big")) % size
    behind = (int.from_bytes(key, "big") - int.from_bytes(before, "big")) % size
    return after if ahead < behind else before


def check_lookups(
    lookups: Iterable[LookedUp],
    truth: Truth,
    since: int,
    responsible: Callable[[Members, bytes], Sequence[bytes]],
) -> list[str]:
    """Which lookups begun from a time on found the wrong node, or none; `responsible` is the overlay's rule."""
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
        asked = f"the lookup of {lookup.key.hex()} at {told(lookup.asked)} by {lookup.address}"
        if lookup.found is None or lookup.answered is None:
            wrong.append(f"{asked} found nobody")
        elif not _was_right(lookup, members, changes[done:], responsible):
            right = " or ".join(id_.hex() for id_ in responsible(members, lookup.key)) if members.ids else ""
            wrong.append(f"{asked} found {lookup.found.hex()}, not {right or 'nobody'}")
    return wrong


def _was_right(
    lookup: LookedUp,
    members: Members,
    later: Sequence[Moment],
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
    """What a node still holds after the quiet; `ended` is how many subscriptions were ended in the whole run."""
    limits = {"outbox": 0, "queued": 0, "unsafe": 0, "waiting": WAITING_MAX + ended}
    return [
        f"{address} still has {what} {getattr(view, what)}, more than {most}"
        for what, most in limits.items()
        if getattr(view, what, 0) > most
    ]
