"""The interface of a scheme to a node: how events find the subscriptions that match them.

The node keeps subscriptions, holds events until they are fully acknowledged, and notifies subscribers, the same for all
schemes (`home`). A scheme places what a subscription needs, and says when that is done; it takes an event to
every home that may hold a match, again and again until each has it, and says when that is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from meetpoint.api.ids import EventKey, HomeId, Key, Peer
from meetpoint.api.messages import Message
from meetpoint.matching.keys.feedback import Feedback
from meetpoint.node.home.home import Home
from meetpoint.node.overlay import Handler
from meetpoint.node.runtime.flow import Signal

__all__ = ["Scheme"]


class Scheme(Protocol):
    """A scheme's part at a node."""

    def handlers(self) -> Mapping[type[Message], Handler]:
        """Return the handlers of the scheme's messages."""

    def found(self, homes: Sequence[HomeId]) -> None:
        """Begin a network with these homes; all its founders are told so, before anything else."""

    def start(self) -> None:
        """Begin, once: the node is a member and its homes are recovered."""

    def home_started(self, home: Home) -> None:
        """Take note that a home serves here from now on."""

    def home_stopped(self, home: HomeId) -> None:
        """Take note that a home serves here no longer: it moves, or is gone."""

    def is_free(self, home: Home) -> bool:
        """Return whether a home without subscribers may end, as far as the scheme is concerned."""

    def free(self, home: Home) -> None:
        """Move what the scheme keeps at a home elsewhere, so that the home may end; may be called again."""

    def delivered(self, key: Key, body: Message, origin: Peer, hops: int) -> None:
        """Take a message that a node of this scheme has routed."""

    def neighbours_changed(self) -> None:
        """Take note that this node may be responsible for other keys now."""

    def may_reach(self, event: EventKey, home: HomeId) -> bool:
        """Return whether an event of a home here may still come to another, as far as is known."""

    def publish(self, event: EventKey, content: bytes) -> None:
        """Take an event to all homes that may hold a match, then say so (`HomeManager.fully_acknowledged`).

        Called again after a restart.
        """

    def place(self, home: bytes, name: str) -> Signal[None]:
        """Place a subscription that is new, changed or gone; set when every event published later meets it."""

    def when_placed(self, home: bytes, name: str) -> Signal[None]:
        """Return a signal that is set when every event published later meets a subscription of a home.

        It is set at once where that is so now, whatever disks and other nodes do.
        """

    def tune(self, feedback: Feedback) -> None:
        """Go by what was measured of events from now on, as far as a node may do so by itself."""

    def check(self) -> None:
        """Assert what must hold in this node at all times."""
