"""The path of one event through the network, put together from what each broker saw of it.

A message is seen twice: where it is sent and where it is received. Between two brokers messages keep their order, so
the first one sent is the first one received. The parent of a hop is the last message that its sender received before.
Times are each broker's own: between machines they are as good as the machines' clocks.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from meetpoint.api.client_messages import FollowedReply, TraceStep
from meetpoint.api.ids import Peer
from meetpoint.catalog.purposes import EVENT_STEPS
from meetpoint.gateway.events.publish import Attributes

__all__ = ["Drop", "EventPath", "HomeMatch", "Hop", "OwnerVisit", "PathDelivery", "path_of"]

LOST_US: Final = 1_000_000
"""A message that was not received within this time counts as lost."""
NOTHING_KEPT: Final = "nothing that is kept here for others matched"
_NOTHING_THERE: Final = "of 0 homes"
"""The end of the detail that a broker reports where no stored entry matches."""


class Hop(msgspec.Struct, rename={"source": "from"}):
    """A message that took the event a step on, or asked for what it needs."""

    number: int
    source: str
    to: str
    kind: str
    ms: float
    parent: int | None
    routed: bool
    """Whether it took the overlay's routes rather than one direct connection."""


class HomeMatch(msgspec.Struct):
    """The event came to a home and matched there."""

    broker: str
    matched: tuple[str, ...]
    looked_at: int | None
    ms: float


class OwnerVisit(msgspec.Struct):
    """The event came to an owner of its keys, where entries of other homes are stored."""

    broker: str
    what: str
    ms: float


class Drop(msgspec.Struct):
    """The place where the event, or a message of it, went no further."""

    broker: str
    why: str
    ms: float


class PathDelivery(msgspec.Struct):
    """A subscriber was notified."""

    broker: str
    name: str
    ms: float
    again: bool


class EventPath(msgspec.Struct):
    """The path of one event, as far as it is known."""

    id: str
    attributes: Attributes
    at: str | None
    """The broker where it was published."""
    done: bool
    """Whether all brokers that may want it have it."""
    hops: list[Hop]
    met: list[HomeMatch]
    visited: list[OwnerVisit]
    dropped: list[Drop]
    delivered: list[PathDelivery]
    is_cut: bool
    """Whether there was more to see than brokers remember."""
    silent: list[str]
    """Brokers that did not answer."""


class _Sighting(msgspec.Struct):
    """A message as one of its two brokers saw it."""

    broker: bytes
    seen: TraceStep


def path_of(id_: str, attributes: bytes, answers: Mapping[Peer, FollowedReply | None], now_us: int) -> EventPath:
    """Return the path of an event, from the answers of all brokers by `now_us`."""
    sides = [_Sighting(peer.id, seen) for peer, answer in answers.items() if answer is not None for seen in answer.seen]
    began = min((side.seen.at_us for side in sides if side.seen.step == "published"), default=None)
    if began is None:
        began = min((side.seen.at_us for side in sides), default=now_us)

    def ms(at_us: int) -> float:
        return round(max(0, at_us - began) / 1000, 3)

    origin = next((side.broker.hex() for side in sides if side.seen.step == "published"), None)
    path = EventPath(
        id_, msgspec.Raw(attributes), origin, any(side.seen.step == "settled" for side in sides), [], [], [], [], [],
        any(answer.is_cut for answer in answers.values() if answer is not None),
        sorted(peer.address for peer, answer in answers.items() if answer is None),
    )  # fmt: skip
    silent: set[bytes] = {peer.id for peer, answer in answers.items() if answer is None}
    arrived: dict[tuple[bytes, int], int] = {}
    """The number of each hop, by its receiver and the receiver's number for the message."""
    numbered: list[tuple[int, _Sighting]] = []
    for sent, received in sorted(_pairs(sides), key=lambda pair: _order(*pair)):
        if received is None:
            assert sent is not None
            _add_lost(path, sent, silent, now_us, ms(sent.seen.at_us))
            continue
        number = len(path.hops) + 1
        source = received.seen.peer if sent is None else sent.broker
        hop = Hop(
            number, source.hex(), received.broker.hex(), EVENT_STEPS[received.seen.kind], ms(received.seen.at_us), None,
            received.seen.detail == "routed",
        )  # fmt: skip
        path.hops.append(hop)
        arrived[received.broker, received.seen.number] = number
        if sent is not None:
            numbered.append((number, sent))
    for number, sent in numbered:
        before = [at for at in arrived if at[0] == sent.broker and at[1] < sent.seen.number]
        path.hops[number - 1].parent = arrived[max(before)] if before else None
    for side in sorted(sides, key=lambda side: (side.seen.at_us, side.seen.number)):
        _add_outcome(path, side, ms(side.seen.at_us))
    forwarders = {origin, *(hop.source for hop in path.hops), *(met.broker for met in path.met)}
    path.dropped = [drop for drop in path.dropped if drop.why != NOTHING_KEPT or drop.broker not in forwarders]
    return path


def _order(sent: _Sighting | None, received: _Sighting | None) -> tuple[int, int]:
    side = sent if sent is not None else received
    assert side is not None
    return side.seen.at_us, side.seen.number


def _pairs(sides: list[_Sighting]) -> Iterator[tuple[_Sighting | None, _Sighting | None]]:
    """Yield the two sightings of each message together; None for one that is missing."""
    sent: dict[tuple[bytes, bytes, str, bytes], deque[_Sighting]] = defaultdict(deque)
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


def _add_lost(path: EventPath, sent: _Sighting, silent: set[bytes], now_us: int, ms: float) -> None:
    if now_us - sent.seen.at_us < LOST_US:
        return
    kind = EVENT_STEPS[sent.seen.kind]
    if sent.seen.peer in silent:
        why = f"it does not answer: whether a message ({kind}) came there is not known"
    else:
        why = f"a message to it ({kind}) did not arrive"
    path.dropped.append(Drop(sent.seen.peer.hex(), why, ms))


def _add_outcome(path: EventPath, side: _Sighting, ms: float) -> None:
    """Add to the path what the event caused at a broker."""
    seen, broker = side.seen, side.broker.hex()
    if seen.step == "taken" and seen.names:
        path.met.append(HomeMatch(broker, seen.names, None if seen.looked_at < 0 else seen.looked_at, ms))
    elif seen.step == "taken":
        among = "no subscription" if seen.looked_at <= 0 else f"none of {seen.looked_at} subscriptions"
        path.dropped.append(Drop(broker, f"it came here, and {among} matched", ms))
    elif seen.step == "visited" and seen.detail.endswith(_NOTHING_THERE):
        path.dropped.append(Drop(broker, NOTHING_KEPT, ms))
    elif seen.step == "visited":
        path.visited.append(OwnerVisit(broker, seen.detail, ms))
    elif seen.step == "repeated":
        path.dropped.append(Drop(broker, f"{', '.join(seen.names)} had an event of this id before", ms))
    elif seen.step in ("rejected", "dead"):
        words = "did not take it" if seen.step == "rejected" else "gave it up"
        path.dropped.append(Drop(broker, f"{', '.join(seen.names)} {words}: {seen.detail}", ms))
    elif seen.step == "notified":
        path.delivered += [PathDelivery(broker, name, ms, bool(seen.detail)) for name in seen.names]
