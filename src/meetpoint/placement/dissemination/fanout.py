"""Bringing an event to the homes that may want it, until each has it safe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Reply
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.dissemination.home_queries import HomeQueries
from meetpoint.placement.messages import DeliverToHome, DeliverToHomeAck

__all__ = ["AGAIN_US", "HomeFanout", "Recipients", "event_bytes"]

TIMEOUT_US: Final = SECOND_US
AGAIN_US: Final = SECOND_US // 4


class Recipients:
    """Homes that an event is brought to: which have not got it, and who is told when all have, or some are slow."""

    __slots__ = ("_slow", "_then", "ended", "open")

    def __init__(
        self,
        to: Iterable[HomeId],
        then: Callable[[bool], None],
        slow: Callable[[tuple[HomeId, ...]], None] | None,
    ) -> None:
        self.open = dict.fromkeys(to)
        self.ended = False
        self._then = then
        self._slow = slow
        if not self.open:
            self.finish(True)

    def has(self, home: HomeId) -> None:
        """A home has it."""
        self.open.pop(home, None)
        if not self.open:
            self.finish(True)

    def finish(self, well: bool) -> None:
        """All have it, or it takes too long; said once."""
        if not self.ended:
            self.ended = True
            self._then(well)

    def tell_slow(self) -> None:
        """One of them did not answer; said once."""
        told, self._slow = self._slow, None
        if told is not None:
            told(tuple(self.open))


class HomeFanout:
    """One node's part."""

    def __init__(self, services: Runtime, hosting: HomeManager, homes: HomeQueries) -> None:
        self._services = services
        self._hosting = hosting
        self._homes = homes
        homes.answer(DeliverToHome, self._bring)

    def bring(
        self,
        event: EventKey,
        settled: int,
        content: bytes,
        to: Mapping[HomeId, tuple[int, ...]],
        within_us: int,
        then: Callable[[bool], None],
        slow: Callable[[tuple[HomeId, ...]], None] | None = None,
        each: Callable[[HomeId], None] | None = None,
    ) -> Mapping[HomeId, None]:
        """Bring an event to homes, each with the SubIDs that matched there; `then` says whether all have it in time.

        `slow` is told, once, which have not got it yet, when one of them did not answer; `each` of each that has it.
        Returned are those that have not got it, as long as there are any.
        """
        recipients = Recipients(to, then, slow)
        until = self._services.now + within_us

        def ask(home: HomeId) -> None:
            if recipients.ended:
                return
            entry = self._hosting.directory.get(home)
            if entry is not None and entry.gone:
                has(home)  # with all its subscriptions
                return
            subids = to[home]
            self._services.observe("subids_sent", len(subids), event_bytes(event))
            self._homes.ask(
                home,
                lambda number: DeliverToHome(number, home, event, settled, subids, content),
                lambda reply: answered(home, reply),
                TIMEOUT_US,
            )

        def answered(home: HomeId, reply: Reply | None) -> None:
            if isinstance(reply, DeliverToHomeAck) and reply.taken:
                if self._services.tracing:
                    self._services.trace(event, "brought", home, detail=f"for {len(to[home])} subscriptions")
                has(home)
            elif self._services.now >= until:
                recipients.finish(False)
            else:
                recipients.tell_slow()
                self._services.after(AGAIN_US, lambda: ask(home))  # at once, it would be lost as soon again

        def has(home: HomeId) -> None:
            if each is not None:
                each(home)
            recipients.has(home)

        for home in to:
            ask(home)
        return recipients.open

    def bring_soon(
        self,
        event: EventKey,
        settled: int,
        content: bytes,
        to: Mapping[HomeId, tuple[int, ...]],
        within_us: int,
        then: Callable[[Mapping[HomeId, tuple[int, ...]]], None],
    ) -> None:
        """Bring an event to homes, for so long; `then` once, with those that did not say in time that they have it."""
        ended = False

        def end(left: Mapping[HomeId, tuple[int, ...]]) -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._services.cancel(timer)
                then(left)

        timer = self._services.after(within_us, lambda: end({home: to[home] for home in open_}))
        open_ = self.bring(event, settled, content, to, within_us, lambda well: end({}) if well else None)

    def _bring(self, question: DeliverToHome, reply: Callable[[Reply], None]) -> None:
        home = self._hosting.homes.get(question.home)
        if home is None:
            reply(DeliverToHomeAck(question.request, False))
            return
        home.skip_to(question.event, question.settled)
        home.take(question.event, question.content, lambda: reply(DeliverToHomeAck(question.request, True)))


def event_bytes(event: EventKey) -> bytes:
    """An event as measurements name it."""
    return b"%s/%d/%d" % (event.home, event.stream, event.number)
