"""The order of a publisher's events at a subscriber: what a home must know before it notifies of an event.

A home may get the events of a stream in any order, and most of them never: they match nobody there. It notifies of one
only when it knows that none before it can still come. It knows of those that it has taken, of those that were told to
be settled, and of what the publishing home answers (`Watermark`): which events below a number some home still lacks
that may want them. Of these the publishing home may know that they are for others; then they need not be waited for.

A publishing home that is gone has nothing on its way. One that cannot be asked is asked again after a pause, never at
once; who asks gives up after a while (`NodeSettings.hold_us`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Final, Protocol

import msgspec

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.node.cluster.directory import Directory
from meetpoint.node.home.outbox import Outbox
from meetpoint.node.home.sequence_set import SequenceSet
from meetpoint.node.overlay import Handler
from meetpoint.node.runtime.records import LOCAL
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings

__all__ = ["Source", "Watermark", "Watermarked", "Watermarks"]

TOLD_MAX: Final = 256
"""How many numbers are told in one answer."""


class Watermark(Query, frozen=True, array_like=True, gc=False, tag="watermark"):
    """Which events of your stream, below a number, may still come to the home that asks? Answered when none may,
    or after a while.
    """

    home: HomeId
    stream: int
    number: int
    asker: HomeId
    """`LOCAL`: to any home."""
    above: int = 0
    """Those up to this number the asker need not be told of. It knows that they are for others, who may not have them
    for hours: a broker is down, or its disk is full. Without this they would hide all that was published since."""


class Watermarked(Reply, frozen=True, array_like=True, gc=False, tag="watermarked"):
    """All events below a number, and above another one, are settled but for these, of which some are certainly for
    others.

    `here` is false where the home is not at the node that was asked, or not yet.
    """

    here: bool
    below: int = 0
    unsettled: tuple[int, ...] = ()
    elsewhere: tuple[int, ...] = ()
    above: int = 0


class Publisher(Protocol):
    """A home as far as this matters."""

    @property
    def outbox(self) -> Outbox:
        """What it has on its way."""


class Watermarks:
    """One node's questions and answers. `may_reach` says whether an event on its way may still come to a home."""

    def __init__(
        self,
        services: Runtime,
        settings: NodeSettings,
        directory: Directory,
        homes: Mapping[HomeId, Publisher],
        may_reach: Callable[[EventKey, HomeId], bool],
    ) -> None:
        self._services = services
        self._settings = settings
        self._directory = directory
        self._homes = homes
        self._may_reach = may_reach

    def handlers(self) -> dict[type[Message], Handler]:
        """Which messages ask for a watermark."""
        return {Watermark: self._watermark}  # type: ignore[dict-item]

    def _watermark(self, source: Peer, question: Watermark) -> None:
        self._answer(question, lambda told: self._services.send(source, told))

    def _answer(self, question: Watermark, reply: Callable[[Watermarked], None]) -> None:
        told = self.tell(question)
        home = self._homes.get(question.home)
        awaited = set(told.unsettled).difference(told.elsewhere)
        if home is None or all(number >= question.number for number in awaited):
            reply(told)
            return
        timer = 0

        def answer() -> None:
            self._services.cancel(timer)
            home.outbox.stop_waiting(waiting)
            reply(self.tell(question))

        waiting = home.outbox.when_settled(question.stream, question.number, answer)
        timer = self._services.after(self._settings.watermark_us, answer)

    def tell(self, question: Watermark) -> Watermarked:
        """What is known here and now."""
        home = self._homes.get(question.home)
        if home is None:
            entry = self._directory.get(question.home)
            is_gone = entry is not None and entry.gone
            return Watermarked(question.request, is_gone, question.number if is_gone else 0)
        above = question.above
        unsettled, below = home.outbox.unsettled(question.stream, question.number, TOLD_MAX, above)
        elsewhere = [number for number in unsettled if self._is_elsewhere(question, number)]
        return Watermarked(question.request, True, below, tuple(unsettled), tuple(elsewhere), above)

    def _is_elsewhere(self, question: Watermark, number: int) -> bool:
        event = EventKey(question.home, question.stream, number)
        return question.asker != LOCAL and not self._may_reach(event, question.asker)

    def ask(self, question: Watermark, then: Callable[[Watermarked | None], None]) -> None:
        """Ask a publishing home, wherever it is; None where there is no answer."""

        def answered(reply: Reply | None) -> None:
            then(reply if isinstance(reply, Watermarked) and reply.here else None)

        host = self._directory.host(question.home)
        if host is None or host.id == self._services.me.id:
            self._answer(question, answered)
        else:
            self._services.ask(
                host,
                lambda request: msgspec.structs.replace(question, request=request),
                answered,
                self._settings.query_timeout_us,
            )

    def here(self, question: Watermark) -> Watermarked | None:
        """The answer of a home that is here, or gone, at once; None of any other."""
        told = self.tell(question)
        return told if told.here else None


class Source:
    """A stream of some home's events, as a home sees it that may want them."""

    __slots__ = ("asking", "clear", "held", "seen")

    def __init__(self, seen: SequenceSet | None = None) -> None:
        self.seen = SequenceSet() if seen is None else seen
        """What has been taken, or will never come: it is not taken again."""
        self.clear = SequenceSet.of(self.seen.record())
        """What need not be waited for: that, what is on its way to others, and what was waited for too long."""
        self.held: list[int] = []  # a heap: what was taken and is not notified yet
        self.asking = False

    def take(self, number: int) -> None:
        """An event has come."""
        self.seen.add(number)
        self.clear.add(number)

    def hold(self, number: int) -> None:
        """An event that came is to be notified when its turn comes."""
        heappush(self.held, number)

    def release(self) -> int:
        """Its turn has come: the lowest of those that are held."""
        return heappop(self.held)

    def skip_to(self, floor: int) -> None:
        """All up to a number are settled."""
        self.seen.raise_to(floor)
        self.clear.raise_to(floor)

    def learn(self, told: Watermarked) -> None:
        """What the publishing home says."""
        self.seen.add_all_but(told.unsettled, told.below, told.above)
        self.clear.add_all_but(set(told.unsettled).difference(told.elsewhere), told.below, told.above)

    def give_up(self, number: int) -> None:
        """Whatever comes before an event has been waited for long enough."""
        self.clear.raise_to(number)

    def is_clear(self, number: int) -> bool:
        """Whether nothing that comes before an event need be waited for."""
        return number <= self.clear.floor
