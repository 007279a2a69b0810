"""What clients asked, what they were told and what reached them: all that the checkers of notifications look at.

Nothing here comes from inside a node. Times are virtual microseconds; None is never.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import NamedTuple

import msgspec

from meetpoint.language.events.event import Event
from meetpoint.language.filters.filter import Filter

__all__ = ["Change", "Delivery", "History", "LookedUp", "Members", "Moment", "Publication", "Subscription", "Truth"]


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


class Moment(NamedTuple):
    """A node became a member, got another place, or is a member no longer."""

    at: int
    id: bytes
    member: bool
    place: object = None
    """What decides which keys are its, beside its id (`cluster.Family.place`); None where its id says all."""


class Members:
    """Who is a live member at one moment: their ids in order, and their places."""

    def __init__(self) -> None:
        self.ids: list[bytes] = []
        self.places: dict[bytes, object] = {}

    def apply(self, moment: Moment) -> None:
        """One change."""
        id_ = moment.id
        if moment.member:
            if id_ not in self.places:
                insort(self.ids, id_)
            self.places[id_] = moment.place
        else:
            assert id_ in self.places, "who was no member cannot cease to be one"
            del self.ids[bisect_left(self.ids, id_)], self.places[id_]

    def copy(self) -> Members:
        """The same, apart."""
        other = Members()
        other.ids, other.places = self.ids.copy(), self.places.copy()
        return other


class Truth:
    """Who was a live member when, and where. Kept as changes, so that a large network costs nothing while it runs."""

    def __init__(self) -> None:
        self.changes: list[Moment] = []

    def change(self, at: int, id_: bytes, member: bool, place: object = None) -> None:
        """A node became a member, got another place, or is a member no longer."""
        self.changes.append(Moment(at, id_, member, place))
