"""One event's way through the network, put together from what each broker has seen of it.

A message is seen twice: where it was sent, and where it came. Between two brokers messages keep their order, so that
the first that was sent is the first that came. A hop's parent is the last that had come to its sender before. Times are
each broker's own: between machines they are as good as the machines' clocks.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from meetpoint.api.client_messages import FollowedIs, Seen
from meetpoint.api.ids import Peer
from meetpoint.catalog.purposes import EVENT_STEPS
from meetpoint.gateway.events.publish import Attributes

__all__ = ["Delivery", "Drop", "Hop", "Meeting", "Path", "Visit", "put_together"]

LOST_US: Final = 1_000_000
"""A message that has not come after so long will not."""
NOTHING_KEPT: Final = "nothing that is kept here for others matched"
_NOTHING_THERE: Final = "of 0 homes"
"""What a broker says of a place with nothing for an event."""


class Hop(msgspec.Struct, rename={"source": "from"}):
    """One message that took the event on, or asked for what it needs."""

    number: int
    source: str
    to: str
    kind: str
    ms: float
    parent: int | None
    routed: bool
    """Whether it went by the overlay's routing, rather than straight."""


class Meeting(msgspec.Struct):
    """The event came to a home and matched there."""

    broker: str
    matched: tuple[str, ...]
    looked_at: int | None
    ms: float


class Visit(msgspec.Struct):
    """The event came to where subscriptions of others are found."""

    broker: str
    what: str
    ms: float


class Drop(msgspec.Struct):
    """Where the event, or a message of it, went no further."""

    broker: str
    why: str
    ms: float


class Delivery(msgspec.Struct):
    """A subscriber was told."""

    broker: str
    name: str
    ms: float
    again: bool


class Path(msgspec.Struct):
    """One event's way, as far as it is known."""

    id: str
    attributes: Attributes
    at: str | None
    """The broker where it was published."""
    done: bool
    """Whether all brokers that may want it have it."""
    hops: list[Hop]
    met: list[Meeting]
    visited: list[Visit]
    dropped: list[Drop]
    delivered: list[Delivery]
    is_cut: bool
    """Whether more was seen than brokers remember."""
    silent: list[str]
    """Brokers that did not say what they have seen."""


class _Side(msgspec.Struct):
    """One side of a message."""

    broker: bytes
    seen: Seen


def put_together(id_: str, attributes: bytes, told: Mapping[Peer, FollowedIs | None], now_us: int) -> Path:
    """The way of an event from what all brokers have told by `now_us`."""
    sides = [_Side(peer.id, seen) for peer, answer in told.items() if answer is not None for seen in answer.seen]
    began = min((side.seen.at_us for side in sides if side.seen.step == "published"), default=None)
    if began is None:
        began = min((side.seen.at_us for side in sides), default=now_us)

    def ms(at_us: int) -> float:
        return round(max(0, at_us - began) / 1000, 3)

    origin = next((side.broker.hex() for side in sides if side.seen.step == "published"), None)
    path = Path(
        id_, msgspec.Raw(attributes), origin, any(side.seen.step == "settled" for side in sides), [], [], [], [], [],
        any(answer.is_cut for answer in told.values() if answer is not None),
        sorted(peer.address for peer, answer in told.items() if answer is None),
    )  # fmt: skip
    silent: set[bytes] = {peer.id for peer, answer in told.items() if answer is None}
    arrived: dict[tuple[bytes, int], int] = {}
    """By receiver and its number for the message, which hop it was."""
    numbered: list[tuple[int, _Side]] = []
    for sent, came in sorted(_pairs(sides), key=lambda pair: _moment(*pair)):
        if came is None:
            assert sent is not None
            _lose(path, sent, silent, now_us, ms(sent.seen.at_us))
            continue
        number = len(path.hops) + 1
        source = came.seen.peer if sent is None else sent.broker
        hop = Hop(
            number, source.hex(), came.broker.hex(), EVENT_STEPS[came.seen.kind], ms(came.seen.at_us), None,
            came.seen.detail == "routed",
        )  # fmt: skip
        path.hops.append(hop)
        arrived[came.broker, came.seen.number] = number
        if sent is not None:
            numbered.append((number, sent))
    for number, sent in numbered:
        before = [at for at in arrived if at[0] == sent.broker and at[1] < sent.seen.number]
        path.hops[number - 1].parent = arrived[max(before)] if before else None
    for side in sorted(sides, key=lambda side: (side.seen.at_us, side.seen.number)):
        _became(path, side, ms(side.seen.at_us))
    went_on = {origin, *(hop.source for hop in path.hops), *(met.broker for met in path.met)}
    path.dropped = [drop for drop in path.dropped if drop.why != NOTHING_KEPT or drop.broker not in went_on]
    return path


def _moment(sent: _Side | None, came: _Side | None) -> tuple[int, int]:
    side = sent if sent is not None else came
    assert side is not None
    return side.seen.at_us, side.seen.number


def _pairs(sides: list[_Side]) -> Iterator[tuple[_Side | None, _Side | None]]:
    """What was sent and what came, the two sides of each message together."""
    sent: dict[tuple[bytes, bytes, str, bytes], deque[_Side]] = defaultdict(deque)
    forward = [side for side in sides if side.seen.kind in EVENT_STEPS]
    forward.sort(key=lambda side: (side.broker, side.seen.number))
    for side in forward:
        if side.seen.step == "sent":
            sent[side.broker, side.seen.peer, side.seen.kind, side.seen.thread].append(side)
    for side in forward:
        if side.seen.step == "received":
            waiting = sent[side.seen.peer, side.broker, side.seen.kind, side.seen.thread]
            yield (waiting.popleft() if waiting else None), side
    for waiting in sent.values():
        for side in waiting:
            yield side, None


def _lose(path: Path, sent: _Side, silent: set[bytes], now_us: int, ms: float) -> None:
    if now_us - sent.seen.at_us < LOST_US:
        return
    kind = EVENT_STEPS[sent.seen.kind]
    if sent.seen.peer in silent:
        why = f"it does not answer: whether a message ({kind}) came there is not known"
    else:
        why = f"a message to it ({kind}) did not arrive"
    path.dropped.append(Drop(sent.seen.peer.hex(), why, ms))


def _became(path: Path, side: _Side, ms: float) -> None:
    """What became of the event at a broker."""
    seen, broker = side.seen, side.broker.hex()
    if seen.step == "taken" and seen.names:
        path.met.append(Meeting(broker, seen.names, None if seen.looked_at < 0 else seen.looked_at, ms))
    elif seen.step == "taken":
        among = "no subscription" if seen.looked_at <= 0 else f"none of {seen.looked_at} subscriptions"
        path.dropped.append(Drop(broker, f"it came here, and {among} matched", ms))
    elif seen.step == "visited" and seen.detail.endswith(_NOTHING_THERE):
        path.dropped.append(Drop(broker, NOTHING_KEPT, ms))
    elif seen.step == "visited":
        path.visited.append(Visit(broker, seen.detail, ms))
    elif seen.step == "repeated":
        path.dropped.append(Drop(broker, f"{', '.join(seen.names)} had an event of this id before", ms))
    elif seen.step in ("rejected", "dead"):
        words = "did not take it" if seen.step == "rejected" else "gave it up"
        path.dropped.append(Drop(broker, f"{', '.join(seen.names)} {words}: {seen.detail}", ms))
    elif seen.step == "notified":
        path.delivered += [Delivery(broker, name, ms, bool(seen.detail)) for name in seen.names]
