"""What clients asked, what they were told and what reached them: all that the checkers of notifications look at.

Nothing here comes from inside a node. Times are virtual microseconds; None is never.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

import msgspec

from meetpoint.language.event import Event
from meetpoint.language.filters import Filter

__all__ = ["Change", "Delivery", "History", "LookedUp", "Publication", "Subscription", "Truth"]


class Change(msgspec.Struct):
    """A subscribe, an update or an unsubscribe (no filter): when it was asked first, and when acknowledged."""

    filter: Filter | None
    text: str | None
    asked: int
    acknowledged: int | None = None


class Delivery(msgspec.Struct, frozen=True):
    """An event that reached a subscriber: when, from which address, and whether marked as a possible repeat."""

    at: int
    event: str
    address: str
    redelivered: bool


class Subscription(msgspec.Struct):
    """One subscription from a client's view: its changes in order, each asked after the one before was acknowledged."""

    name: str
    address: str
    changes: list[Change] = []
    deliveries: list[Delivery] = []

    @property
    def notifications(self) -> list[str]:
        """The ids of the events that reached it, in order."""
        return [delivery.event for delivery in self.deliveries]


class Publication(msgspec.Struct):
    """One event: when it was asked to be published, and when that was acknowledged."""

    event: Event
    content: bytes
    asked: int
    acknowledged: int | None = None
    address: str = ""
    """Where: who publishes at one node is one publisher, whose events come in the order in which they were asked."""


class LookedUp(msgspec.Struct):
    """One lookup: what for, and what was found when; `found` is None where nothing was, or no answer came."""

    key: bytes
    asked: int
    address: str
    answered: int | None = None
    found: bytes | None = None
    hops: int = 0


class History:
    """All of it."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.publications: dict[str, Publication] = {}
        self.lookups: list[LookedUp] = []
        self.strange: list[str] = []
        self.lost_disks: list[tuple[int, str]] = []
        self.unanswered: list[tuple[int, str]] = []


class Truth:
    """Who was a live member when. Kept as changes, so that a large network costs nothing while it runs."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, bool, bytes]] = []
        self._members: list[bytes] = []

    def change(self, at: int, id_: bytes, member: bool) -> None:
        """A node became a member, or is one no longer."""
        self.changes.append((at, member, id_))
        apply(self._members, member, id_)

    @property
    def members(self) -> list[bytes]:
        """The ids of the members of now, in order."""
        return self._members

    def members_at(self, time: int, before: Iterable[bytes] = ()) -> list[bytes]:
        """The ids of the members at a time."""
        members = list(before)
        for at, member, id_ in self.changes:
            if at > time:
                break
            apply(members, member, id_)
        return members


def apply(members: list[bytes], member: bool, id_: bytes) -> None:
    """One change to a sorted list."""
    if member:
        insort(members, id_)
    else:
        at = bisect_left(members, id_)
        assert members[at] == id_, "who was no member cannot cease to be one"
        del members[at]
