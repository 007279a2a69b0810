"""The small world of `tests/placement` with nodes that run `reach`, and a count of what they hand on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from meetpoint.api.ids import EventKey
from meetpoint.api.messages import Message
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.node import Node
from meetpoint.node.overlay import Overlay
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.overlays.hypercube import Region
from meetpoint.placement.messages import KeyedReply, KeyedRequest
from meetpoint.schemes.reach import Reach, ReachSettings
from meetpoint.schemes.reach.ids import Duty, head_point
from meetpoint.schemes.reach.messages import DutyRequest, unpack_bits
from tests.node.world import RING
from tests.placement.small_world import CODEC
from tests.schemes.small_world import SchemeWorld

NAMES = "abcdef"
"""Attribute i is bit i."""
SCHEMA = "attributes:\n" + "".join(f"  {name}: integer\n" for name in NAMES)
PLAIN = ReachSettings(schema=SCHEMA, quench="unquenched", copies="uncopied", pushing="unpushed")

SIXTEEN = (4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 45, 49, 53, 57, 61, 65)
"""Nodes whose arcs are the 16 regions of four bits: the last key of an id of each lies before its node's."""
UNEVEN = (4, 8, 12, 16, 32, 49, 50, 65)
"""Some regions of four bits, some of fewer, and one node whose arc has ids of two regions."""


def attributes(event: int) -> dict[str, Any]:
    """An event with an id."""
    return {name: 1 for place, name in enumerate(NAMES) if event >> place & 1}


def duty_of(handle: DutyRequest) -> Duty:
    """What a message is about."""
    fixed, bits = unpack_bits(handle.fixed, 64), unpack_bits(handle.bits, 64)
    assert fixed is not None
    assert bits is not None
    return Duty(fixed, bits)


class ReachWorld(SchemeWorld):
    """Nodes with `reach`. `handed` is every message with a duty: from whom, to whom, and the duty."""

    def __init__(self, numbers: Iterable[int] = SIXTEEN, *, seed: int = 1, reach: ReachSettings = PLAIN) -> None:
        self.reach = reach
        self.handed: list[tuple[int, int, EventKey, Duty]] = []
        super().__init__(numbers, seed=seed)

    def make(self, services: Runtime, overlay: Overlay, hosting: HomeManager) -> Reach:
        return Reach(services, overlay, hosting, self.settings, self.reach)

    def _send(self, node: Node, effect: Any) -> None:
        handle = handle_in(effect.message)
        if handle is not None:
            source, to = (RING.number(peer.id) // 1000 for peer in (node.me, effect.to))
            self.handed.append((source, to, handle.event, duty_of(handle)))
        super()._send(node, effect)

    # -- what is there -------------------------------------------------------------------------------------------------

    def holder(self, point: int) -> int:
        """The node that holds an id."""
        key = self.scheme(self.others()[0])._cube.key(point)
        return next(number for number in self.others() if self.scheme(number)._ownership.holder(key) is not None)

    def regions(self) -> Iterator[tuple[int, Region]]:
        """All regions, the largest at each node, with their nodes; by looking at every id."""
        found: dict[tuple[int, Region], None] = {}
        for point in range(1 << len(NAMES)):
            number = self.holder(point)
            scheme = self.scheme(number)
            key = scheme._cube.key(point)
            home = scheme._ownership.holder(key)
            found[number, scheme._cube.around(scheme._ownership.arc(home.id, key), point)] = None
        yield from found

    def under_way(self) -> list[tuple[int, Duty]]:
        """The duties that any node still works at."""
        return [(number, duty) for number in self.others() for _, duty in self.scheme(number)._duties.under_way()]


def handle_in(message: Message) -> DutyRequest | None:
    """The duty that a message brings, if it brings one."""
    if isinstance(message, KeyedRequest):
        body = CODEC.decode(message.body)
        return body if isinstance(body, DutyRequest) else None
    return None


def answer_in(message: Message) -> Message | None:
    """What a message answers to an errand, if it does."""
    return CODEC.decode(message.body) if isinstance(message, KeyedReply) else None


__all__ = ["NAMES", "PLAIN", "SIXTEEN", "UNEVEN", "ReachWorld", "answer_in", "attributes", "handle_in", "head_point"]
