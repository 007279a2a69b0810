"""All states that a small network can reach, by breadth-first search with the rules that nodes run.

The steps are those of Zave's Alloy model: join, fail, the two halves of stabilise, rectify; each is atomic and reads
the state of at most one other member. A member may fail unless that would leave another without a live successor, or
unless it is a principal and there are no more than the base: the operating assumption under which the protocol is
proven.

Three things keep the search small. Node states are numbered and steps remembered, so that a step is a look-up. Networks
that differ by a turn of the circle are one. And what becomes of a claim between stabilise and rectify is a choice:

- `AT_ONCE`: rectify happens with the claim;
- `KEPT`: the claim waits in its slot, as in a node, and may be replaced;
- `ANY`: any member may rectify at any time with any id, whoever claimed what. That allows more than `KEPT` and needs no
  slot, so that whatever holds here holds for claims that wait however long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from meetpoint.node.runtime.ring import between
from meetpoint.overlays.chord.invariant import broken, departures
from meetpoint.overlays.chord.rules import ChordRules, ChordState

__all__ = ["Circle", "Claims", "Found", "Made", "spread", "tight"]

Network = tuple[int, ...]
"""The number of each node's state, by its place on the circle; 0 is no member."""

Made = tuple[ChordRules, tuple[bytes, ...]]
"""Rules, and the nodes that they are for."""

ROUNDS_MAX = 40
"""A quiet network of so few nodes that is not ideal after so many rounds never will be."""


class Claims(Enum):
    """How a notification is treated until rectify."""

    AT_ONCE = 1
    KEPT = 2
    ANY = 3


class Found(NamedTuple):
    """The result of a search: how much there is, and the first violation, with the path to it."""

    states: int
    steps: int
    wrong: str | None
    story: tuple[str, ...]


def spread(count: int, length: int, kind: type[ChordRules] = ChordRules) -> Made:
    """Nodes that lie apart: an artificial entry is never a node."""
    size = 8 * count
    return kind(length, lambda node: bytes([(node[0] + 1) % size])), tuple(bytes([8 * n]) for n in range(count))


def tight(count: int, length: int, kind: type[ChordRules] = ChordRules) -> Made:
    """Nodes side by side, as in the Alloy model: an artificial entry may be a node."""
    return kind(length, lambda node: bytes([(node[0] + 1) % count])), tuple(bytes([n]) for n in range(count))


class Circle:
    """A few nodes, and everything that may happen to them."""

    def __init__(
        self,
        made: Made,
        base: int,
        claims: Claims = Claims.AT_ONCE,
        fails: bool = True,
        turned: bool = True,
    ) -> None:
        self.rules, self.ids = made
        self.base = base
        self.claims = claims
        self.fails = fails
        self.turned = turned
        self._place = {node: place for place, node in enumerate(self.ids)}
        self._states: list[ChordState | None] = [None]
        self._numbers: dict[ChordState, int] = {}
        self._entries = [0]  # which nodes a state's list names, as bits
        self._skips = [0]  # which it skips
        self._turns: list[int | None] = [0]  # the state of the next node when the circle is turned by one
        self._stabilised: dict[tuple[int, int], tuple[int, int]] = {}
        self._claimed: dict[tuple[int, int], int] = {}
        self._rectified: dict[tuple[int, bool], int] = {}
        self._joined: dict[tuple[int, int], int] = {}
        self._judged: dict[tuple[tuple[bytes, ...] | None, ...], str | None] = {}

    # -- networks ------------------------------------------------------------------------------------------------------

    def founded(self, count: int) -> Network:
        """The first nodes, with ideal pointers."""
        states = [0] * len(self.ids)
        for at in range(count):
            after = [self.ids[(at + step) % count] for step in range(1, count)]
            states[at] = self._number(self.rules.found(self.ids[at], after, self.ids[(at - 1) % count]))
        return tuple(states)

    def members(self, network: Network) -> dict[bytes, ChordState]:
        """The members' states."""
        return {state.me: state for state in map(self._states.__getitem__, network) if state is not None}

    def wrong(self, network: Network) -> str | None:
        """Return what the invariant says of a network."""
        key = tuple(None if state is None else state.succ for state in map(self._states.__getitem__, network))
        if key not in self._judged:
            self._judged[key] = broken(self.members(network), self.base)
        return self._judged[key]

    # -- what may happen -----------------------------------------------------------------------------------------------

    def moves(self, network: Network) -> Iterator[tuple[str, int, Network]]:
        """Every next step: what happens, to which node, and the network after it."""
        members = sum(1 << place for place, number in enumerate(network) if number)
        skipped = 0
        for number in network:
            skipped |= self._skips[number]
        spare = (members & ~skipped).bit_count() > self.base
        for place, number in enumerate(network):
            if not number:
                for other in network:
                    if other and (joined := self._join(place, other)):
                        yield "joins", place, _with(network, place, joined)
                continue
            yield "stabilises", place, self.stabilise(network, place)
            if self.claims is Claims.ANY:
                for after in self._rectify_any(network, place):
                    yield "rectifies", place, after
            elif self._state(number).candidate is not None:
                yield "rectifies", place, self.rectify(network, place)
            if self.fails and (spare or skipped >> place & 1):
                rest = members & ~(1 << place)
                if all(self._entries[left] & rest for at, left in enumerate(network) if left and at != place):
                    yield "fails", place, _with(network, place, 0)

    def stabilise(self, network: Network, place: int) -> Network:
        """The next half of stabilise at a member, and the claim it makes."""
        number = network[place]
        state = self._state(number)
        asked = self._place.get(state.succ[0] if state.saved is None else state.saved)
        other = 0 if asked is None else network[asked]
        key = number, other
        if key not in self._stabilised:
            after, told = self._half(state, other)
            self._stabilised[key] = self._number(after), -1 if told is None else self._place.get(told, -1)
        changed, told_place = self._stabilised[key]
        network = _with(network, place, changed)
        if told_place < 0 or not network[told_place] or self.claims is Claims.ANY:
            return network
        network = _with(network, told_place, self._notify(network[told_place], place))
        return self.rectify(network, told_place) if self.claims is Claims.AT_ONCE else network

    def rectify(self, network: Network, place: int) -> Network:
        """A member looks at its candidate."""
        number = network[place]
        prdc = self._place.get(self._state(number).prdc)
        key = number, prdc is not None and bool(network[prdc])
        if key not in self._rectified:
            self._rectified[key] = self._number(self.rules.rectify(self._state(number), key[1]))
        return _with(network, place, self._rectified[key])

    def _rectify_any(self, network: Network, place: int) -> Iterator[Network]:
        for candidate in range(len(self.ids)):
            if candidate != place:
                notified = _with(network, place, self._notify(network[place], candidate))
                after = self.rectify(notified, place)
                if after != network:
                    yield after

    def _half(self, state: ChordState, other: int) -> tuple[ChordState, bytes | None]:
        rules, told = self.rules, self._states[other]
        if state.saved is not None:
            return rules.second_dead(state) if told is None else rules.second_live(state, told.succ)
        return rules.first_dead(state) if told is None else rules.first_live(state, told.prdc, told.succ)

    def _notify(self, number: int, candidate: int) -> int:
        key = number, candidate
        if key not in self._claimed:
            self._claimed[key] = self._number(self.rules.notified(self._state(number), self.ids[candidate]))
        return self._claimed[key]

    def _join(self, place: int, member: int) -> int:
        key = place, member
        if key not in self._joined:
            state = self.rules.join(self.ids[place], self._state(member).me, self._state(member).succ)
            self._joined[key] = 0 if state is None else self._number(state)
        return self._joined[key]

    # -- numbers -------------------------------------------------------------------------------------------------------

    def _state(self, number: int) -> ChordState:
        state = self._states[number]
        assert state is not None, "a member"
        return state

    def _number(self, state: ChordState) -> int:
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
            self._entries.append(sum(1 << self._place[entry] for entry in set(state.succ) if entry in self._place))
            pairs = list(zip((state.me, *state.succ), state.succ, strict=False))
            skipped = (place for node, place in self._place.items() if any(between(a, node, b) for a, b in pairs))
            self._skips.append(sum(1 << place for place in skipped))
            self._turns.append(None)
        return number

    def _turn(self, number: int) -> int:
        turned = self._turns[number]
        if turned is None:
            state = self._state(number)
            turned = self._turns[number] = self._number(
                ChordState(
                    self._next(state.me),
                    tuple(map(self._next, state.succ)),
                    self._next(state.prdc),
                    None if state.saved is None else self._next(state.saved),
                    None if state.candidate is None else self._next(state.candidate),
                )
            )
        return turned

    def _next(self, node: bytes) -> bytes:
        step = self.ids[1][0] - self.ids[0][0]
        return bytes([(node[0] + step) % (step * len(self.ids))])

    def _least(self, network: Network) -> Network:
        """The same network for every turn of the circle."""
        least = network
        for _ in range(len(network) - 1):
            network = (self._turn(network[-1]), *map(self._turn, network[:-1]))
            least = min(least, network)
        return least

    # -- searching -----------------------------------------------------------------------------------------------------

    def search(self, starts: Sequence[Network], states_max: int, quiet: bool = True) -> Found:
        """Visit every state; stop at one that is wrong, or from which a quiet network does not become ideal."""
        least = self._least if self.turned else (lambda network: network)
        came_from: dict[Network, tuple[Network, str] | None] = dict.fromkeys(map(least, starts))
        waiting = list(came_from)
        steps = 0
        for network in waiting:  # grows as we go
            for what, place, after in self.moves(network):
                steps += 1
                met = least(after)
                if met in came_from:
                    continue
                came_from[met] = network, f"{self.ids[place].hex()} {what}"
                waiting.append(met)
                wrong = self.wrong(met)
                if wrong is not None:
                    return Found(len(waiting), steps, wrong, _story(came_from, met))
            assert len(waiting) <= states_max, f"more than {states_max} states"
        for order in (range(len(self.ids)), range(len(self.ids) - 1, -1, -1)) if quiet else ():
            stuck = self.never_ideal(waiting, order)
            if stuck is not None:
                wrong = f"a quiet network is never ideal: {self.members(stuck)}"
                return Found(len(waiting), steps, wrong, _story(came_from, stuck))
        return Found(len(waiting), steps, None, ())

    def never_ideal(self, networks: Iterable[Network], order: Sequence[int]) -> Network | None:
        """A network that rounds of repair do not make ideal, if there is one."""
        good: set[Network] = set()
        for start in networks:
            path: list[Network] = []
            network = start
            while network not in good:
                path.append(network)
                if departures(self.members(network), self.rules.length) is None:
                    break
                if len(path) > ROUNDS_MAX:
                    return start
                network = self.settle(network, order)
            good.update(path)
        return None

    def settle(self, network: Network, order: Sequence[int]) -> Network:
        """Run one round: each member stabilises, both halves if there are two, and notifications are looked at."""
        for place in order:
            if network[place]:
                network = self._claiming(network, place)
                if self._state(network[place]).saved is not None:
                    network = self._claiming(network, place)
        return network

    def _claiming(self, network: Network, place: int) -> Network:
        """Half of a stabilise, with all claims looked at before and after it."""
        claims, self.claims = self.claims, Claims.AT_ONCE
        for at, number in enumerate(network):
            if number and self._state(number).candidate is not None:
                network = self.rectify(network, at)
        network = self.stabilise(network, place)
        self.claims = claims
        return network


def _with(network: Network, place: int, number: int) -> Network:
    return (*network[:place], number, *network[place + 1 :])


def _story(came_from: dict[Network, tuple[Network, str] | None], network: Network) -> tuple[str, ...]:
    told: list[str] = []
    while (link := came_from[network]) is not None:
        network, what = link
        told.append(what)
    return tuple(reversed(told))
