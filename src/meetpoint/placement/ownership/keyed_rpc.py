"""Keyed RPC: requests to the owner of a key, or to all owners of a range; and the owner cache that guides them.

A request goes to its first key by the overlay's routing, or straight to the home that seems to own it. The owner serves
it and answers its origin, saying which keys are done with. From there it goes on, by routing, to the next key of its
range that matters: one hop, where the next node has it, through fingers, where it is far. The origin sends it again, to
the keys that are not done, until all are. So it may be served more than once: its effect must be idempotent.

The owner cache is a guess that saves the way through the overlay. Nothing depends on it: a node that is reached by a
wrong guess says so, and what it owns instead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from meetpoint.api.codec import WireError
from meetpoint.api.ids import HomeId, Key, Peer
from meetpoint.api.messages import Message
from meetpoint.node.cluster.directory import Directory
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.key_range import KeyRange
from meetpoint.placement.messages import KeyedReply, KeyedRequest, NotOwner
from meetpoint.placement.ownership.ownership import Ownership

__all__ = ["Answered", "Doer", "KeyedRpc", "OwnerCache", "Reached", "Running"]


NEAR: Final = 3
"""How many ranges that end after a key are looked at."""


class OwnerCache:
    """Knows which home owns which range, as far as one node has heard."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._arcs: dict[HomeId, tuple[KeyRange, ...]] = {}
        self._sorted: tuple[list[bytes], list[tuple[KeyRange, HomeId]]] | None = None  # by their high ends
        self.heard = 0
        """How often something new was heard."""

    def learn(self, home: HomeId, arcs: Sequence[KeyRange]) -> None:
        """Take note that a home owns these ranges now, and nothing else."""
        if self._arcs.get(home) != tuple(arcs):
            self._arcs[home] = tuple(arcs)
            self._sorted = None
            self.heard += 1

    def arcs(self) -> Iterator[KeyRange]:
        """Yield all ranges that were heard of; some may be gone."""
        for arcs in self._arcs.values():
            yield from arcs

    def held(self) -> Iterator[tuple[HomeId, KeyRange]]:
        """Yield homes that are not gone, each with one of its ranges."""
        for home, arcs in self._arcs.items():
            if self._directory.host(home) is not None:
                yield from ((home, arc) for arc in arcs)

    def learn_one(self, home: HomeId, arc: KeyRange) -> None:
        """Take note that a home owns this range; what was heard of its other ranges stays."""
        known = self._arcs.get(home, ())
        if arc not in known:
            apart = [each for each in known if not each.holds(arc.high) and not arc.holds(each.high)]
            self.learn(home, (*apart, arc))

    def holder(self, key: bytes) -> HomeId | None:
        """Return the home that is said to own a key."""
        if self._sorted is None:
            arcs = sorted((arc.high, arc, home) for home, held in self._arcs.items() for arc in held)
            self._sorted = [high for high, _, _ in arcs], [(arc, home) for _, arc, home in arcs]
        highs, known = self._sorted
        at = bisect_left(highs, key)
        for step in range(min(NEAR, len(known))):  # what was heard at different times may overlap
            arc, home = known[(at + step) % len(known)]
            if arc.holds(key) and self._directory.host(home) is not None:
                return home
        return None

    def guess(self, key: bytes, tried: Container[HomeId] = ()) -> HomeId | None:
        """Return the home to ask for a key: one that is said to own it, else the first after it that is unknown.

        Where all are said not to, the key is on its way to another home, or what was heard is old: the first of those
        that were not tried just now.
        """
        holder = self.holder(key)
        if holder is not None:
            return holder
        homes = self._directory.homes()
        first = bisect_left(homes, key)
        second_best: HomeId | None = None
        for step in range(len(homes)):
            home = homes[(first + step) % len(homes)]
            if home not in tried:
                if home not in self._arcs:
                    return home
                second_best = home if second_best is None else second_best
        return second_best


RETRY_US: Final = 1_000_000
"""How long a request may take before it is sent again; doubled each time, up to `RETRY_US_MAX`."""
RETRY_US_MAX: Final = 4_000_000
PASSED_MAX: Final = 1
"""How many nodes that do not own the key pass a request on."""
REDIRECTED_MAX: Final = 8
"""How often a request is sent on at once by what was heard, before it waits for its time."""

Doer: TypeAlias = Callable[[Home, "Reached", Any, Callable[[Message], None]], None]
"""Serves a request at a home that was reached, and answers when that is done."""
Answered: TypeAlias = Callable[[Message, bool], None]
"""Takes an answer, and whether it came from another node."""


class Reached(NamedTuple):
    """How a request came to a home."""

    key: bytes
    hops: int
    """Messages since its origin, or since the holder before."""


class Running:
    """A request under way, as its origin knows it."""

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
    """Sends and serves the keyed requests of one node."""

    def __init__(
        self,
        runtime: Runtime,
        overlay: Overlay,
        home_manager: HomeManager,
        ownership: Ownership,
        owner_cache: OwnerCache,
    ) -> None:
        self._runtime = runtime
        self._overlay = overlay
        self._home_manager = home_manager
        self._ownership = ownership
        self._owner_cache = owner_cache
        self._running: dict[int, Running] = {}
        self._numbers = runtime.random.getrandbits(32)  # an answer may come to the next life of a node
        self._doers: dict[type[Message], tuple[Doer, Callable[[Any, bytes], bytes | None] | None]] = {}

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of keyed requests."""
        return {KeyedRequest: self._request, KeyedReply: self._done, NotOwner: self._elsewhere}  # type: ignore[dict-item]

    def do(self, kind: type[Message], doer: Doer, next_key: Callable[[Any, bytes], bytes | None] | None = None) -> None:
        """Have requests of one kind served. `next_key` is the first key after another that matters; else all do."""
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
        """Send a request to all owners of keys from `first` clockwise to `last`; return the number that stops it.

        `answered` is called with each answer, `done` once, when there is one for every key.
        """
        self._numbers += 1
        number = self._numbers
        span = self._runtime.ring.distance(first, last)
        packed = self._runtime.codec.encode(body)
        running = Running(number, first, span, packed, answered, done)
        self._running[number] = running
        running.timer = self._runtime.after(running.wait, lambda: self._again(number))
        self._send(running, first, last, straight and self._is_known(first))
        return number

    def _is_known(self, key: bytes) -> bool:
        """Return whether a request may go straight: a home's id tells where the key is, or its owner is known."""
        by_place = self._overlay.places is None
        return by_place or self._ownership.holder(key) is not None or self._owner_cache.holder(key) is not None

    def stop(self, number: int) -> None:
        """Stop a request."""
        running = self._running.pop(number, None)
        if running is not None:
            self._runtime.cancel(running.timer)

    @property
    def waiting(self) -> int:
        """The number of requests under way."""
        return len(self._running)

    def _send(self, running: Running, first: bytes, last: bytes, straight: bool) -> None:
        request = KeyedRequest(first, last, self._runtime.me, running.number, 0, running.body)
        if straight:
            self._send_straight(request, running.tried)
        else:
            self._overlay.route(Key(first), request)

    def _send_straight(self, request: KeyedRequest, tried: dict[HomeId, None]) -> None:
        if self._ownership.holder(request.key) is not None:
            self._arrived(request, 0)
            return
        self._learn_here(tried)
        home = self._owner_cache.guess(request.key, tried)
        host = None if home is None else self._home_manager.directory.host(home)
        if host is not None and host.id != self._runtime.me.id:
            self._runtime.send(host, request)

    def _learn_here(self, tried: dict[HomeId, None]) -> None:
        """Learn what the homes here own, which is certain."""
        for home in self._home_manager.homes:
            owned = self._ownership.owned_ranges.get(home)
            self._owner_cache.learn(home, () if owned is None else owned.arcs)
            tried[home] = None

    def _again(self, number: int) -> None:
        running = self._running[number]
        running.wait = min(2 * running.wait, RETRY_US_MAX)
        running.redirected = 0
        running.tried.clear()
        running.timer = self._runtime.after(running.wait, lambda: self._again(number))
        self._runtime.observe("errand_again")
        ring = self._runtime.ring
        for low, high in list(running.left):
            # What routing did not bring, the homes that were heard of may know.
            self._send(running, ring.add(running.first, low), ring.add(running.first, high), straight=True)

    def _done(self, source: Peer, message: KeyedReply) -> None:
        self._owner_cache.learn_one(message.home, message.arc)
        running = self._running.get(message.number)
        if running is None:
            self._runtime.observe("reply_unexpected")
            return
        ring = self._runtime.ring
        if not (ring.holds(message.key) and ring.holds(message.end)):
            self._runtime.observe("errand_malformed")
            return
        if running.answered is not None:
            try:
                answer = self._runtime.codec.decode(message.body)
            except WireError:
                self._runtime.observe("errand_malformed")
                return
            running.answered(answer, source.id != self._runtime.me.id)
        self._runtime.observe("errand_hops", message.hops)
        low = ring.distance(running.first, message.key)
        high = low + ring.distance(message.key, message.end)
        running.left = [part for each in running.left for part in _without(each, low, high)]
        if not running.left and running.number in self._running:
            self.stop(running.number)
            running.done()

    def _elsewhere(self, source: Peer, message: NotOwner) -> None:
        for home, arcs in message.homes:
            self._owner_cache.learn(home, arcs)
        running = self._running.get(message.number)
        if running is not None:
            running.tried.update((home, None) for home, _ in message.homes)
        if running is None or not self._runtime.ring.holds(message.key) or running.redirected >= REDIRECTED_MAX:
            return
        running.redirected += 1
        ring = self._runtime.ring
        at = ring.distance(running.first, message.key)
        for low, high in list(running.left):
            if low <= at <= high:
                self._send(running, message.key, ring.add(running.first, high), straight=True)

    # -- at the owner --------------------------------------------------------------------------------------------------

    def delivered(self, request: KeyedRequest, hops: int) -> None:
        """Take a request that was routed to here."""
        if self._is_well(request):
            self._arrived(request, hops)

    def _request(self, source: Peer, request: KeyedRequest) -> None:
        if self._is_well(request):
            self._arrived(request, 1)

    def _is_well(self, request: KeyedRequest) -> bool:
        ring = self._runtime.ring
        well = ring.holds(request.key) and ring.holds(request.end) and 0 <= request.passed <= PASSED_MAX
        if not well:
            self._runtime.observe("errand_malformed")
        return well

    def _arrived(self, request: KeyedRequest, hops: int) -> None:
        home = self._ownership.holder(request.key)
        if home is None:
            self._pass_on(request)
            return
        try:
            body = self._runtime.codec.decode(request.body)
        except WireError:
            self._runtime.observe("errand_malformed")
            return
        found = self._doers.get(type(body))
        if found is None:
            self._runtime.observe("errand_malformed")
            return
        doer, next_key = found
        ring = self._runtime.ring
        arc = self._ownership.arc(home.id, request.key)
        end, onward = request.end, None
        if ring.distance(request.key, arc.high) < ring.distance(request.key, request.end):
            end = arc.high
            onward = ring.add(end, 1) if next_key is None else next_key(body, end)
            if onward is not None and ring.distance(request.key, onward) > ring.distance(request.key, request.end):
                onward = None
            end = request.end if onward is None else ring.add(onward, -1)

        def answer(reply: Message) -> None:
            done = KeyedReply(request.number, request.key, end, hops, home.id, arc, self._runtime.codec.encode(reply))
            if request.origin.id == self._runtime.me.id:
                self._done(self._runtime.me, done)
            else:
                self._runtime.send(request.origin, done)

        if onward is not None:
            rest = KeyedRequest(onward, request.end, request.origin, request.number, 0, request.body)
            self._overlay.route(Key(onward), rest)
        doer(home, Reached(request.key, hops), body, answer)

    def _pass_on(self, request: KeyedRequest) -> None:
        """Pass a request on where another home may own its key; else tell its origin what is owned here."""
        here: dict[HomeId, None] = {}
        self._learn_here(here)
        here.update((home, None) for home, _ in request.told)
        directory = self._home_manager.directory
        # Its origin knows what its own homes own: a request that came back to it would end there.
        here.update((each.home, None) for each in directory.entries() if each.host.id == request.origin.id)
        home = self._owner_cache.guess(request.key, here)
        host = None if home is None or home in here else directory.host(home)
        owned_ranges = self._ownership.owned_ranges
        own = ((each, owned_ranges[each].arcs if each in owned_ranges else ()) for each in self._home_manager.homes)
        told = (*request.told, *own)
        if host is not None and host.id != self._runtime.me.id and request.passed < PASSED_MAX:
            passed = KeyedRequest(
                request.key, request.end, request.origin, request.number, request.passed + 1, request.body, told
            )
            self._runtime.send(host, passed)
        elif request.origin.id != self._runtime.me.id:
            self._runtime.send(request.origin, NotOwner(request.number, request.key, told))

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert all(running.left for running in self._running.values())


def _without(part: tuple[int, int], low: int, high: int) -> list[tuple[int, int]]:
    """Return what is left of a part when another is taken away."""
    first, last = part
    return [each for each in ((first, min(last, low - 1)), (max(first, high + 1), last)) if each[0] <= each[1]]
