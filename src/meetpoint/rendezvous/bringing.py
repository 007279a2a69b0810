"""Bringing an event to the homes that may want it, until each has it safe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from meetpoint.protocol.hosting import Hosting
from meetpoint.protocol.inputs import MICROSECONDS
from meetpoint.protocol.messages import Reply
from meetpoint.protocol.records import EventKey, HomeId
from meetpoint.protocol.services import Services
from meetpoint.rendezvous.homes import Homes
from meetpoint.rendezvous.messages import Bring, Brought

__all__ = ["Bringing"]

TIMEOUT_US: Final = MICROSECONDS
AGAIN_US: Final = MICROSECONDS // 4


class Bringing:
    """One node's part."""

    def __init__(self, services: Services, hosting: Hosting, homes: Homes) -> None:
        self._services = services
        self._hosting = hosting
        self._homes = homes
        homes.answer(Bring, self._bring)

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
        open_ = dict.fromkeys(to)
        until = self._services.now + within_us
        if not open_:
            then(True)
            return open_
        ended = False

        def finish(well: bool) -> None:
            nonlocal ended
            if not ended:
                ended = True
                then(well)

        def ask(home: HomeId) -> None:
            if ended:
                return
            entry = self._hosting.directory.get(home)
            if entry is not None and entry.gone:
                has(home)  # with all its subscriptions
                return
            subids = to[home]
            self._services.observe("subids_sent", len(subids), event_bytes(event))
            self._homes.ask(
                home,
                lambda number: Bring(number, home, event, settled, subids, content),
                lambda reply: answered(home, reply),
                TIMEOUT_US,
            )

        def answered(home: HomeId, reply: Reply | None) -> None:
            if isinstance(reply, Brought) and reply.taken:
                if self._services.tracing:
                    self._services.trace(event, "brought", home, detail=f"for {len(to[home])} subscriptions")
                has(home)
            elif self._services.now >= until:
                finish(False)
            else:
                tell_slow()
                self._services.after(AGAIN_US, lambda: ask(home))  # at once, it would be lost as soon again

        def tell_slow() -> None:
            nonlocal slow
            told, slow = slow, None
            if told is not None:
                told(tuple(open_))

        def has(home: HomeId) -> None:
            open_.pop(home, None)
            if each is not None:
                each(home)
            if not open_:
                finish(True)

        for home in to:
            ask(home)
        return open_

    def _bring(self, question: Bring, reply: Callable[[Reply], None]) -> None:
        home = self._hosting.homes.get(question.home)
        if home is None:
            reply(Brought(question.request, False))
            return
        home.skip_to(question.event, question.settled)
        home.take(question.event, question.content, lambda: reply(Brought(question.request, True)))


def event_bytes(event: EventKey) -> bytes:
    """An event as measurements name it."""
    return b"%s/%d/%d" % (event.home, event.stream, event.number)
