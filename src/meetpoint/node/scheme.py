"""What a scheme is to a node: how events find the subscriptions that match them.

The node keeps subscriptions, holds what was published until it is settled, and hands notifications to subscribers, the
same for all schemes (`homes`). A scheme only carries: it places what a subscription needs and says when that is done;
it takes an event to every home that may hold a match, again and again until each has it, and says when that is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from meetpoint.api.ids import EventKey, HomeId, Key, Peer
from meetpoint.api.messages import Message
from meetpoint.matching.keys.feedback import Feedback
from meetpoint.node.home.home import Home
from meetpoint.node.overlay import Handler

__all__ = ["Scheme"]


class Scheme(Protocol):
    """One node's part of a scheme."""

    def handlers(self) -> Mapping[type[Message], Handler]:
        """Which messages are the scheme's, and who takes them."""

    def found(self, homes: Sequence[HomeId]) -> None:
        """The network begins, with these homes; told to all its founders, before anything else."""

    def start(self) -> None:
        """The node is a member and its homes are recovered; called once."""

    def home_started(self, home: Home) -> None:
        """A home serves here from now on."""

    def home_stopped(self, home: HomeId) -> None:
        """A home serves here no longer: it moves, or is gone."""

    def is_free(self, home: Home) -> bool:
        """Whether a home without subscribers may end, as far as the scheme is concerned."""

    def free(self, home: Home) -> None:
        """Let what the scheme keeps at a home go elsewhere, so that the home may end; may be told again."""

    def delivered(self, key: Key, body: Message, origin: Peer, hops: int) -> None:
        """A message that a node of this scheme routed has arrived."""

    def neighbours_changed(self) -> None:
        """What this node is responsible for may have changed."""

    def may_reach(self, event: EventKey, home: HomeId) -> bool:
        """Whether an event of a home here that is not settled may still come to another home, as far as is known."""

    def publish(self, event: EventKey, content: bytes) -> None:
        """Carry an event to all homes that may hold a match, until `Homes.settled`; told again after a restart."""

    def place(self, home: bytes, name: str, then: Callable[[], None]) -> None:
        """A subscription of a home is new, changed or gone: call `then` when every event published later meets it."""

    def when_placed(self, home: bytes, name: str, then: Callable[[], None]) -> None:
        """Call `then` when every event published later meets a subscription of a home: at once where that is so now,
        whatever disks and other nodes do.
        """

    def tune(self, feedback: Feedback) -> None:
        """Events were measured: go by that from now on, as far as a node may do so by itself."""

    def check(self) -> None:
        """Assert what must hold in this node at all times."""
