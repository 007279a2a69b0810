"""Errands: something to be done at whoever holds a key, or at all who hold keys of a range.

An errand goes to its first key by the overlay's routing, or straight to the home that seems to hold it. The holder does
it and answers its origin, saying which keys are done with. From there it goes on, by routing, to the next key of its
range that matters: one hop, where the next node has it, through fingers, where it is far. The origin sends it again, to
what is not done, until all is. So it may be done more than once: what is done must bear that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from meetpoint.api.codec import WireError
from meetpoint.api.ids import HomeId, Key, Peer
from meetpoint.api.messages import Message
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.messages import Done, KeyedRequest, NotOwner
from meetpoint.placement.ownership.owner_cache import OwnerCache
from meetpoint.placement.ownership.ownership import Ownership

__all__ = ["Answered", "Doer", "KeyedRpc", "Reached", "Running"]

RETRY_US: Final = 1_000_000
"""How long an errand may take before it is sent again; doubled each time, up to `RETRY_US_MAX`."""
RETRY_US_MAX: Final = 4_000_000
PASSED_MAX: Final = 1
"""By how many nodes that do not hold the key an errand is passed on."""
REDIRECTED_MAX: Final = 8
"""How often an errand is sent on at once by what was heard, before it waits for its time."""

Doer: TypeAlias = Callable[[Home, "Reached", Any, Callable[[Message], None]], None]
"""Does something at a home that was reached, and answers when that is done."""
Answered: TypeAlias = Callable[[Message, bool], None]
"""Takes an answer, and whether it came from another node."""


class Reached(NamedTuple):
    """How an errand came to a home."""

    key: bytes
    hops: int
    """Messages since its origin, or since the holder before."""


class Running:
    """An errand under way, as its origin knows it."""

    __slots__ = ("answered", "body", "done", "first", "left", "number", "redirected", "timer", "tried", "wait")

    def __init__(
        self,
        number: int,
        first: bytes,
        span: int,
        body: bytes,
        answered: Answered | None,
        done: Callable[[], None],
    ) -> None:
        self.number = number
        self.first = first
        self.body = body
        self.answered = answered
        self.done = done
        self.left = [(0, span)]  # what is not done, as distances from the first key, both ends included
        self.redirected = 0
        self.tried: dict[HomeId, None] = {}  # homes that said, since it was sent last, that they do not hold it
        self.wait = RETRY_US
        self.timer = 0


class KeyedRpc:
    """All errands that begin or are done at this node."""

    def __init__(
        self, services: Runtime, overlay: Overlay, hosting: HomeManager, custody: Ownership, atlas: OwnerCache
    ) -> None:
        self._services = services
        self._overlay = overlay
        self._hosting = hosting
        self._custody = custody
        self._atlas = atlas
        self._running: dict[int, Running] = {}
        self._numbers = services.random.getrandbits(32)  # an answer may come to the next life of a node
        self._doers: dict[type[Message], tuple[Doer, Callable[[Any, bytes], bytes | None] | None]] = {}

    def handlers(self) -> dict[type[Message], Handler]:
        """Which messages are about errands."""
        return {KeyedRequest: self._errand, Done: self._done, NotOwner: self._elsewhere}  # type: ignore[dict-item]

    def do(self, kind: type[Message], doer: Doer, next_key: Callable[[Any, bytes], bytes | None] | None = None) -> None:
        """Have errands of one kind done. `next_key` is the first key after another that matters; else all do."""
        self._doers[kind] = (doer, next_key)

    # -- at the origin -------------------------------------------------------------------------------------------------

    def run(
        self,
        first: bytes,
        last: bytes,
        body: Message,
        done: Callable[[], None],
        *,
        answered: Answered | None = None,
        straight: bool = False,
    ) -> int:
        """Have something done at all who hold keys from `first` clockwise to `last`; the number returned stops it.

        `answered` is called with each answer, `done` once, when there is one for every key.
        """
        self._numbers += 1
        number = self._numbers
        span = self._services.ring.distance(first, last)
        packed = self._services.codec.encode(body)
        running = Running(number, first, span, packed, answered, done)
        self._running[number] = running
        running.timer = self._services.after(running.wait, lambda: self._again(number))
        self._send(running, first, last, straight and self._is_known(first))
        return number

    def _is_known(self, key: bytes) -> bool:
        """Whether an errand to a key may go straight: a home's id tells where it is, or it was heard of its holder."""
        by_place = self._overlay.places is None
        return by_place or self._custody.holder(key) is not None or self._atlas.holder(key) is not None

    def stop(self, number: int) -> None:
        """It need not be done any more."""
        running = self._running.pop(number, None)
        if running is not None:
            self._services.cancel(running.timer)

    @property
    def waiting(self) -> int:
        """How many are under way."""
        return len(self._running)

    def _send(self, running: Running, first: bytes, last: bytes, straight: bool) -> None:
        errand = KeyedRequest(first, last, self._services.me, running.number, 0, running.body)
        if straight:
            self._send_straight(errand, running.tried)
        else:
            self._overlay.route(Key(first), errand)

    def _send_straight(self, errand: KeyedRequest, tried: dict[HomeId, None]) -> None:
        if self._custody.holder(errand.key) is not None:
            self._arrived(errand, 0)
            return
        self._learn_here(tried)
        home = self._atlas.guess(errand.key, tried)
        host = None if home is None else self._hosting.directory.host(home)
        if host is not None and host.id != self._services.me.id:
            self._services.send(host, errand)

    def _learn_here(self, tried: dict[HomeId, None]) -> None:
        """What the homes here hold is certain."""
        for home in self._hosting.homes:
            holding = self._custody.holdings.get(home)
            self._atlas.learn(home, () if holding is None else holding.arcs)
            tried[home] = None

    def _again(self, number: int) -> None:
        running = self._running[number]
        running.wait = min(2 * running.wait, RETRY_US_MAX)
        running.redirected = 0
        running.tried.clear()
        running.timer = self._services.after(running.wait, lambda: self._again(number))
        self._services.observe("errand_again")
        ring = self._services.ring
        for low, high in list(running.left):
            # What routing did not bring, the homes that were heard of may know.
            self._send(running, ring.add(running.first, low), ring.add(running.first, high), straight=True)

    def _done(self, source: Peer, message: Done) -> None:
        self._atlas.learn_one(message.home, message.arc)
        running = self._running.get(message.number)
        if running is None:
            self._services.observe("reply_unexpected")
            return
        ring = self._services.ring
        if not (ring.holds(message.key) and ring.holds(message.end)):
            self._services.observe("errand_malformed")
            return
        if running.answered is not None:
            try:
                answer = self._services.codec.decode(message.body)
            except WireError:
                self._services.observe("errand_malformed")
                return
            running.answered(answer, source.id != self._services.me.id)
        self._services.observe("errand_hops", message.hops)
        low = ring.distance(running.first, message.key)
        high = low + ring.distance(message.key, message.end)
        running.left = [part for each in running.left for part in _without(each, low, high)]
        if not running.left and running.number in self._running:
            self.stop(running.number)
            running.done()

    def _elsewhere(self, source: Peer, message: NotOwner) -> None:
        for home, arcs in message.homes:
            self._atlas.learn(home, arcs)
        running = self._running.get(message.number)
        if running is not None:
            running.tried.update((home, None) for home, _ in message.homes)
        if running is None or not self._services.ring.holds(message.key) or running.redirected >= REDIRECTED_MAX:
            return
        running.redirected += 1
        ring = self._services.ring
        at = ring.distance(running.first, message.key)
        for low, high in list(running.left):
            if low <= at <= high:
                self._send(running, message.key, ring.add(running.first, high), straight=True)

    # -- at the holder -------------------------------------------------------------------------------------------------

    def delivered(self, errand: KeyedRequest, hops: int) -> None:
        """An errand that was routed has come to who seems responsible for its key."""
        if self._is_well(errand):
            self._arrived(errand, hops)

    def _errand(self, source: Peer, errand: KeyedRequest) -> None:
        if self._is_well(errand):
            self._arrived(errand, 1)

    def _is_well(self, errand: KeyedRequest) -> bool:
        ring = self._services.ring
        well = ring.holds(errand.key) and ring.holds(errand.end) and 0 <= errand.passed <= PASSED_MAX
        if not well:
            self._services.observe("errand_malformed")
        return well

    def _arrived(self, errand: KeyedRequest, hops: int) -> None:
        home = self._custody.holder(errand.key)
        if home is None:
            self._pass_on(errand)
            return
        try:
            body = self._services.codec.decode(errand.body)
        except WireError:
            self._services.observe("errand_malformed")
            return
        found = self._doers.get(type(body))
        if found is None:
            self._services.observe("errand_malformed")
            return
        doer, next_key = found
        ring = self._services.ring
        arc = self._custody.arc(home.id, errand.key)
        end, onward = errand.end, None
        if ring.distance(errand.key, arc.high) < ring.distance(errand.key, errand.end):
            end = arc.high
            onward = ring.add(end, 1) if next_key is None else next_key(body, end)
            if onward is not None and ring.distance(errand.key, onward) > ring.distance(errand.key, errand.end):
                onward = None
            end = errand.end if onward is None else ring.add(onward, -1)

        def answer(reply: Message) -> None:
            done = Done(errand.number, errand.key, end, hops, home.id, arc, self._services.codec.encode(reply))
            if errand.origin.id == self._services.me.id:
                self._done(self._services.me, done)
            else:
                self._services.send(errand.origin, done)

        if onward is not None:
            rest = KeyedRequest(onward, errand.end, errand.origin, errand.number, 0, errand.body)
            self._overlay.route(Key(onward), rest)
        doer(home, Reached(errand.key, hops), body, answer)

    def _pass_on(self, errand: KeyedRequest) -> None:
        """The key is not held here: another home may hold it, else its origin learns what is held here."""
        here: dict[HomeId, None] = {}
        self._learn_here(here)
        here.update((home, None) for home, _ in errand.told)
        directory = self._hosting.directory
        # Whoever sent it out knows what its own homes hold: an errand that came back to it would end there.
        here.update((each.home, None) for each in directory.entries() if each.host.id == errand.origin.id)
        home = self._atlas.guess(errand.key, here)
        host = None if home is None or home in here else directory.host(home)
        holdings = self._custody.holdings
        own = ((each, holdings[each].arcs if each in holdings else ()) for each in self._hosting.homes)
        told = (*errand.told, *own)
        if host is not None and host.id != self._services.me.id and errand.passed < PASSED_MAX:
            passed = KeyedRequest(
                errand.key, errand.end, errand.origin, errand.number, errand.passed + 1, errand.body, told
            )
            self._services.send(host, passed)
        elif errand.origin.id != self._services.me.id:
            self._services.send(errand.origin, NotOwner(errand.number, errand.key, told))

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert all(running.left for running in self._running.values())


def _without(part: tuple[int, int], low: int, high: int) -> list[tuple[int, int]]:
    """What is left of a part when another is taken away."""
    first, last = part
    return [each for each in ((first, min(last, low - 1)), (max(first, high + 1), last)) if each[0] <= each[1]]
