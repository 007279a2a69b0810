"""All states that a small Pastry network can reach, by breadth-first search with the rules that nodes run.

What happens between two steps of the rules is chosen as badly as it can be:

- A question is a letter with what its sender says of itself *then*; it is answered by a letter; both arrive at any
  later time, in any order, or never. Letters under way are few at a time (`letters_max`), that is the only bound.
- Time is whatever allows the worst: a lease may expire at its holder (one of `expires`) at any moment; the grant ends
  at its granter at any moment *after that*, and then no answer with that lease is still good: it is counted from when
  it was asked for.
- A node that is dead may be found so at any moment, by some (`doubts`: who whom) also one that lives.
- A helper may think at any moment that its joiner took too long; a joiner or a node that is not ready may begin again.

Node states and letters are numbered, and steps remembered, so that a step is mostly a look-up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from meetpoint.overlays.pastry.invariant import broken, departures, stands
from meetpoint.overlays.pastry.rules import LEFT, RIGHT, PastryRules, PastryState, Side, is_ready
from tests.overlays.pastry.pieces import (
    ABSENT,
    DEAD,
    SIDES,
    Found,
    Letter,
    Local,
    Network,
    Node,
    View,
    known_to,
    minus,
    placed,
    plus,
    story_of,
    view_of,
)

__all__ = ["Circle"]

PATIENCE = 5
"""After so many rounds one that is not ready begins again."""
ROUNDS_MAX = 40
"""A quiet network of so few nodes that is not ideal after so many rounds never will be."""


class Circle:
    """A few nodes, and everything that may happen to them."""

    def __init__(
        self,
        rules: PastryRules,
        ids: Sequence[bytes],
        *,
        letters_max: int = 2,
        crashes: int = 0,
        restarts: bool = False,
        expires: Collection[int] = (),
        doubts: Collection[tuple[int, int]] = (),
        retires: bool = False,
    ) -> None:
        self.rules = rules
        self.ids = tuple(ids)
        self.letters_max = letters_max
        self.crashes = crashes
        self.restarts = restarts
        self.expires = expires
        self.doubts = doubts
        self.retires = retires
        self._route_join = {node: place for place, node in enumerate(self.ids)}
        self._nodes: list[Node | None] = [None, None]
        self._node_numbers: dict[Node, int] = {}
        self._letters: list[Letter] = []
        self._letter_numbers: dict[Letter, int] = {}
        self._exchanges: list[tuple[str, int, int]] = []
        self._local: dict[int, Local] = {}
        self._helped: dict[tuple[int, int], tuple[int, int | None]] = {}
        self._received: dict[tuple[int, int], tuple[int, int | None]] = {}
        self._judged: dict[tuple[View | None, ...], str | None] = {}
        self._seen: dict[int, View | None] = {ABSENT: None, DEAD: None}

    # -- networks ------------------------------------------------------------------------------------------------------

    def founded(self, *places: int) -> Network:
        """These nodes, as they begin a network."""
        nodes = [ABSENT] * len(self.ids)
        for place in places:
            others = [self.ids[other] for other in places if other != place]
            nodes[place] = self._number(Node(self.rules.found(self.ids[place], others)))
        return tuple(nodes), ()

    def views(self, network: Network) -> dict[bytes, View]:
        """Return the views of all that have begun and live."""
        seen = {}
        for number in network[0]:
            node = self._nodes[number]
            if node is not None:
                seen[node.state.me] = view_of(node.state)
        return seen

    def wrong(self, network: Network) -> str | None:
        """Return what the invariant says of a network."""
        key = tuple([self._seen[number] for number in network[0]])
        if key not in self._judged:
            self._judged[key] = broken({self.ids[at]: view for at, view in enumerate(key) if view is not None}, 256)
        return self._judged[key]

    # -- what may happen -----------------------------------------------------------------------------------------------

    def moves(self, network: Network) -> Iterator[tuple[str, Network]]:
        """Every next step: what happens, and the network after it."""
        nodes, letters = network
        has_room = len(letters) < self.letters_max
        for place, number in enumerate(nodes):
            if number == ABSENT:
                if has_room:
                    yield from self._helps(network, place)
            elif number == DEAD:
                if self.restarts:
                    yield f"{self.name(place)} restarts", self._begin_again(network, place)
            else:
                local = self._local.get(number) or self._look(number, place)
                if has_room:
                    for what, letter in local.sends:
                        if self._is_free(letters, letter):
                            yield what, (nodes, plus(letters, letter))
                for what, changed in local.steps:
                    yield what, (placed(nodes, place, changed), letters)
                yield from self._waits(network, place, local)
                if nodes.count(DEAD) < self.crashes and self._may_crash(network, place):
                    yield f"{self.name(place)} crashes", (placed(nodes, place, DEAD), letters)
        for letter in letters:
            yield from self._arrives(network, letter)

    def name(self, place: int) -> str:
        """A node as a story calls it."""
        return self.ids[place].hex()

    def _look(self, number: int, place: int) -> Local:
        """Return the steps that a node may take, cached."""
        node = self._nodes[number]
        assert node is not None
        state, rules, me = node.state, self.rules, self.name(place)
        status = rules.status_of(state)
        wanted = [("probe", other) for other in dict.fromkeys((*state.unprobed, *self._in_doubt(state)))]
        if not state.waits:  # a lease that cannot expire need not be renewed
            lacking = {
                near for side, near in enumerate(state.near) if place in self.expires or state.leases[side] != near
            }
            wanted += [("ask", other) for other in sorted(lacking - {state.me})]
        sends = [
            (f"{me} {kind}s {other.hex()}", self._letter(Letter(kind, place, self._route_join[other], status)))
            for kind, other in wanted
        ]
        steps = []
        if state.helping is not None:
            steps.append((f"{me} helps no longer", rules.helped(state, state.helping)))
        if place in self.expires:
            steps += [
                (f"{me}'s lease of {lease.hex()} expires", rules.expire(state, side))
                for side in SIDES
                if (lease := state.leases[side]) is not None and state.near[side] != state.me
            ]
        endings = [
            (
                f"{me}'s grant to {other.hex()} ends",
                side,
                self._route_join[other],
                rules.grant_ended(state, side, other),
            )
            for side in SIDES
            for other in state.grants[side]
        ]
        losses = [
            (f"{me} probes {other.hex()} in vain", self._route_join[other], rules.probe_failed(state, other))
            for other in state.unprobed
        ]
        losses += [
            (f"{me} passes {other.hex()} over", self._route_join[other], rules.pass_over(state, other))
            for other in self._in_doubt(state)
        ]
        losses += [
            (f"{me} drops {other.hex()}", self._route_join[other], dropped)
            for other in state.leaves
            if (dropped := rules.drop(state, other)) is not None
        ]
        found = self._local[number] = Local(
            tuple(sends),
            tuple((what, self._number(node._replace(state=after))) for what, after in steps),
            tuple((what, side, to, self._number(node._replace(state=after))) for what, side, to, after in endings),
            tuple((what, to, self._number(node._replace(state=after))) for what, to, after in losses),
            not is_ready(state) and rules.retire(state) is not None,
        )
        return found

    def _in_doubt(self, state: PastryState) -> tuple[bytes, ...]:
        """Joiners that keep it from dropping a leaf."""
        plain = state._replace(joiners=())
        rules = self.rules
        blocked = any(rules.drop(plain, leaf) is not None and rules.drop(state, leaf) is None for leaf in state.leaves)
        return state.joiners if blocked else ()

    def _may_crash(self, network: Network, place: int) -> bool:
        """The operating assumption: each member that is left still knows the next one on either side."""
        members = {}
        for at, number in enumerate(network[0]):
            node = self._nodes[number]
            if node is not None and node.state.member and at != place:
                members[node.state.me] = view_of(node.state)
        return bool(members) and stands(members)

    def _helps(self, network: Network, place: int) -> Iterator[tuple[str, Network]]:
        nodes, letters = network
        for at, number in enumerate(nodes):
            if number in (ABSENT, DEAD):
                continue
            key = number, place
            if key not in self._helped:
                self._helped[key] = self._help(number, at, place)
            changed, letter = self._helped[key]
            if letter is None:
                if changed != number:
                    yield f"{self.name(at)} meets {self.name(place)} again", (placed(nodes, at, changed), letters)
            elif self._is_free(letters, letter):
                after = placed(nodes, at, changed), plus(letters, letter)
                yield f"{self.name(at)} helps {self.name(place)}", after

    def _help(self, number: int, at: int, place: int) -> tuple[int, int | None]:
        """The node after it was asked to help, and its answer; without one it may still have learnt of a later life."""
        node = self._nodes[number]
        assert node is not None
        helper = self._meets(node, self.ids[place])
        helped = self.rules.help(helper.state, self.ids[place])
        if helped is None:
            return self._number(helper), None
        welcome = Letter("welcome", at, place, leaves=helped.leaves)
        return self._number(helper._replace(state=helped)), self._letter(welcome)

    def _is_free(self, letters: tuple[int, ...], letter: int) -> bool:
        """Return whether two nodes have no message of this kind under way, question or answer."""
        exchange = self._exchanges[letter]
        return all(self._exchanges[other] != exchange for other in letters)

    def _waits(self, network: Network, place: int, local: Local) -> Iterator[tuple[str, Network]]:
        """Return the effect of time on a node, where that depends on others."""
        nodes, letters = network
        for what, side, other, changed in local.endings:
            holder = self._nodes[nodes[other]]
            if holder is None or (self.expires and holder.state.leases[1 - side] != self.ids[place]):
                yield what, self._void((placed(nodes, place, changed), letters), place, side, other)
        for what, other, changed in local.losses:
            if nodes[other] == DEAD or (place, other) in self.doubts:
                yield what, (placed(nodes, place, changed), letters)
        if self.retires and local.may_begin_again:
            yield f"{self.name(place)} begins again", self._begin_again(network, place)

    def _void(self, network: Network, place: int, side: Side, other: int) -> Network:
        """Answers under way with a lease that has ended are too late."""
        nodes, letters = network
        kept = letters
        for number in letters:
            letter = self._letters[number]
            if (letter.kind, letter.source, letter.target) == ("granted", place, other):
                kept = minus(kept, number)
                sides = (False, letter.sides[RIGHT]) if side == LEFT else (letter.sides[LEFT], False)
                if any(sides):
                    kept = plus(kept, self._letter(letter._replace(sides=sides)))
        return nodes, kept

    def _begin_again(self, network: Network, place: int) -> Network:
        """A later life; letters of and to the former one are lost. Whoever knew it, knows its former life."""
        nodes, letters = network
        me = self.ids[place]
        for at, number in enumerate(nodes):
            node = self._nodes[number]
            if node is not None and me not in node.former and me in known_to(node.state):
                former = tuple(sorted((*node.former, me)))
                nodes = placed(nodes, at, self._number(node._replace(former=former)))
        kept = tuple(n for n in letters if place not in (self._letters[n].source, self._letters[n].target))
        return placed(nodes, place, ABSENT), kept

    # -- letters -------------------------------------------------------------------------------------------------------

    def _arrives(self, network: Network, number: int) -> Iterator[tuple[str, Network]]:
        nodes, letters = network
        letter = self._letters[number]
        rest = minus(letters, number)
        target = nodes[letter.target]
        told = f"the {letter.kind} of {self.name(letter.source)} comes to {self.name(letter.target)}"
        if letter.kind == "welcome":
            if target == ABSENT:
                me, helper = self.ids[letter.target], self.ids[letter.source]
                nodes = placed(nodes, letter.target, self._number(Node(self.rules.welcome(me, helper, letter.leaves))))
            yield told, (nodes, rest)
            return
        if target in (ABSENT, DEAD):
            yield f"{told}, who is not there", (nodes, rest)
            return
        key = target, number
        if key not in self._received:
            self._received[key] = self._receive(target, letter)
        changed, answer = self._received[key]
        yield told, (placed(nodes, letter.target, changed), rest if answer is None else plus(rest, answer))
        if letter.kind in ("probed", "granted"):
            yield f"{told} never", (nodes, rest)

    def _receive(self, number: int, letter: Letter) -> tuple[int, int | None]:
        """The node after a letter, and the answer to it."""
        known, source = self._nodes[number], self.ids[letter.source]
        assert known is not None
        node = self._meets(known, source)
        state, rules, answer = node.state, self.rules, None
        if letter.kind == "granted":
            state = rules.granted(state, source, letter.sides)
        elif letter.kind == "ask":
            assert letter.status is not None
            state, sides = rules.grant(state, letter.status)
            if any(sides):
                answer = self._letter(Letter("granted", letter.target, letter.source, sides=sides))
        elif letter.kind == "probe":
            assert letter.status is not None
            state = rules.probed(state, letter.status)
            answer = self._letter(Letter("probed", letter.target, letter.source, rules.status_of(state), state.leaves))
        else:
            assert letter.status is not None
            state = rules.probe_answered(state, letter.status, letter.leaves)
            if not letter.status.member:
                state = rules.pass_over(state, source)
        return self._number(node._replace(state=state)), answer

    def _meets(self, node: Node, other: bytes) -> Node:
        """A node hears of another, which may be in a later life than it knew of."""
        if other not in node.former:
            return node
        former = tuple(each for each in node.former if each != other)
        return Node(self.rules.drop_former(node.state, other), former)

    # -- numbers -------------------------------------------------------------------------------------------------------

    def _state(self, network: Network, place: int) -> PastryState:
        node = self._nodes[network[0][place]]
        assert node is not None, "a node that has begun"
        return node.state

    def _put(self, network: Network, place: int, state: PastryState) -> Network:
        node = self._nodes[network[0][place]]
        assert node is not None, "a node that has begun"
        return placed(network[0], place, self._number(node._replace(state=state))), network[1]

    def _number(self, node: Node) -> int:
        if node.former:
            known = known_to(node.state)
            node = Node(node.state, tuple(each for each in node.former if each in known))
        number = self._node_numbers.get(node)
        if number is None:
            number = self._node_numbers[node] = len(self._nodes)
            self._nodes.append(node)
            self._seen[number] = view_of(node.state) if is_ready(node.state) else None
        return number

    def _letter(self, letter: Letter) -> int:
        number = self._letter_numbers.get(letter)
        if number is None:
            number = self._letter_numbers[letter] = len(self._letters)
            self._letters.append(letter)
            asked = {"probed": "probe", "granted": "ask"}.get(letter.kind)
            self._exchanges.append(
                (letter.kind, letter.source, letter.target) if asked is None else (asked, letter.target, letter.source)
            )
        return number

    # -- searching -----------------------------------------------------------------------------------------------------

    def search(self, starts: Sequence[Network], states_max: int, quiet: bool = True) -> Found:
        """Visit every state; stop at one that is wrong, or from which a quiet network does not become ideal."""
        came_from: dict[Network, tuple[Network, str] | None] = dict.fromkeys(starts)
        waiting = list(came_from)
        steps = 0
        for network in waiting:  # grows as we go
            for what, after in self.moves(network):
                steps += 1
                if after in came_from:
                    continue
                came_from[after] = network, what
                waiting.append(after)
                wrong = self.wrong(after)
                if wrong is not None:
                    return Found(len(waiting), steps, wrong, story_of(came_from, after))
            assert len(waiting) <= states_max, f"more than {states_max} states"
        stuck = self.never_ideal(waiting) if quiet else None
        if stuck is not None:
            wrong = f"a quiet network is never ideal: {self.views(stuck)}"
            return Found(len(waiting), steps, wrong, story_of(came_from, stuck))
        return Found(len(waiting), steps, None, ())

    def never_ideal(self, networks: Sequence[Network]) -> Network | None:
        """A network that rounds of repair do not make ideal, if there is one."""
        good: set[tuple[int, ...]] = set()
        for start in networks:
            path: list[tuple[int, ...]] = []
            nodes = start[0]
            while nodes not in good:
                path.append(nodes)
                seen = self.views((nodes, ()))
                if len(seen) + nodes.count(DEAD) == len(nodes) and departures(seen, self.rules.half) is None:
                    break
                if len(path) > ROUNDS_MAX:
                    return start
                if len(path) % PATIENCE == 0:
                    nodes = self._one_begins_again(nodes, len(path) // PATIENCE)
                nodes = self.settle(nodes)
            good.update(path)
        return None

    def _one_begins_again(self, nodes: tuple[int, ...], turn: int) -> tuple[int, ...]:
        """Let a node begin again that is not ready and has granted no lease; they take turns."""
        stuck = [
            place for place, number in enumerate(nodes)
            if number not in (ABSENT, DEAD) and (self._local.get(number) or self._look(number, place)).may_begin_again
        ]  # fmt: skip
        return self._begin_again((nodes, ()), stuck[turn % len(stuck)])[0] if stuck else nodes

    def settle(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """Run one round without loss: leases of the dead end, they are dropped, all ask and are answered."""
        network: Network = (nodes, ())
        for place in range(len(self.ids)):
            if network[0][place] == ABSENT:
                while (after := next(self._helps(network, place), None)) is not None:
                    network = self._drain(after[1])
                    if network[0][place] != ABSENT:
                        break
            if network[0][place] in (ABSENT, DEAD):
                continue
            for _ in range(len(self.ids)):  # whom it is told of meanwhile, it probes too
                state = self._state(network, place)
                for other in dict.fromkeys((*state.unprobed, *self._in_doubt(state))):
                    network = self._asks(network, "probe", place, other)
            for side in SIDES:
                for other in self._state(network, place).grants[side]:
                    holder = self._nodes[network[0][self._route_join[other]]]
                    if holder is None or holder.state.leases[1 - side] != self.ids[place]:
                        ended = self.rules.grant_ended(self._state(network, place), side, other)
                        network = self._put(network, place, ended)
            for other in self._state(network, place).leaves:
                if network[0][self._route_join[other]] == DEAD:
                    dropped = self.rules.drop(self._state(network, place), other)
                    network = network if dropped is None else self._put(network, place, dropped)
            for other in self._state(network, place).leaves:
                if network[0][self._route_join[other]] != DEAD:
                    network = self._asks(network, "probe", place, other)
            for other in dict.fromkeys(self._state(network, place).near):
                if other != self.ids[place]:
                    network = self._asks(network, "ask", place, other)
            helping = self._state(network, place).helping
            if helping is not None:
                network = self._put(network, place, self.rules.helped(self._state(network, place), helping))
        return network[0]

    def _asks(self, network: Network, kind: str, place: int, other: bytes) -> Network:
        """A question and its answer, at once."""
        state = self._state(network, place)
        if network[0][self._route_join[other]] == DEAD:
            return self._put(network, place, self.rules.pass_over(self.rules.probe_failed(state, other), other))
        if kind == "ask" and state.waits:
            return network
        status = self.rules.status_of(state)
        return self._drain((network[0], (self._letter(Letter(kind, place, self._route_join[other], status)),)))

    def _drain(self, network: Network) -> Network:
        while network[1]:
            network = next(self._arrives(network, network[1][0]))[1]
        return network
