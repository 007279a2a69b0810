"""Models of paper E's graph, by the functions that brokers run: trees, reserves, and filter updates.

*Trees*: nobody is down and all edges are right (`schemes.rebeca.graph` says which these are): counted is the graph,
not a network. That a running network's events go the same ways is a test.

*Reserves*: half of the members fail at once. By reserves alone every survivor needs one that lives among the next ones
clockwise: `schemes.rebeca.reserves` says how many these are. That is cheap to look at, so there are many trials. Where
the ring is cut, all look for their successors by any edge that they know, in or out (`mend`); of such trials some are
looked at. Nobody else fails meanwhile, and both ends of an edge know it.

*Updates*, one message after another: the printed rule of section 4.4, and ours. A node that hears of a filter that is
covered by the one that it has may leave it as it is, as printed, and stops. So updates end soon; but a filter that is
to shrink is covered too. Ours: a new filter replaces the old one, and a node tells others only what has changed for
them. Edges are right and nothing is lost. That the tables of ours are those of a running network is a test.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import comb
from statistics import mean
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from meetpoint.lab.experiments.experiment import Metrics, Parameters
from meetpoint.lab.experiments.rebeca.networks import topics
from meetpoint.language import parse_filter
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.rebeca.graph import (
    Graph,
    GraphPart,
    Range,
    between,
    fingered_by,
    fingers,
    following,
    reserve_count,
)
from meetpoint.schemes.rebeca.invariant import is_superset
from meetpoint.schemes.rebeca.tables import FilterTable, Rows, Strategy, accepts, make_table

# -- trees -------------------------------------------------------------------------------------------------------------


SIZE = 1 << 64
LOCATED = 16
"""Keys that each asker looks for."""


def even(count: int, size: int = SIZE) -> list[int]:
    """Return members at equal distances."""
    return [at * size // count for at in range(count)]


def hashed(count: int, seed: int, size: int = SIZE) -> list[int]:
    """Return members whose places look drawn at random."""
    ring = Ring((size - 1).bit_length())
    return sorted({ring.number(ring.hash(f"{seed}/{at}".encode())) for at in range(count)})


def graphs(members: Sequence[int], size: int = SIZE) -> dict[int, Graph]:
    """Return each member's edges, all of them right; keys end at places, as on a network."""
    begins = {place: (members[at - 1] + 1) % size for at, place in enumerate(members)}
    return {
        place: Graph(
            size,
            place,
            Range(begin, (place - begin) % size + 1),
            {node: begins[node] for node in fingers(place, members, size)},
        )
        for place, begin in begins.items()
    }


class TreeWalk(NamedTuple):
    """An event's way: how often and at which depth each member was reached, and over which edges."""

    times: Counter[int]
    depths: dict[int, int]
    edges: list[tuple[int, int]]


def walk(
    nodes: Mapping[int, Graph],
    root: int,
    is_wanted: Callable[[int, GraphPart], bool] = lambda here, part: True,
) -> TreeWalk:
    """Bring an event from a member to all others."""
    times: Counter[int] = Counter({root: 1})
    depths = {root: 0}
    edges: list[tuple[int, int]] = []
    waiting = [(root, Range(nodes[root].own.begin, nodes[root].size))]
    for here, range_ in waiting:  # grows as we go
        for part in nodes[here].split(range_).parts:
            if is_wanted(here, part):
                times[part.node] += 1
                depths[part.node] = depths[here] + 1
                edges.append((here, part.node))
                waiting.append((part.node, part.range))
    return TreeWalk(times, depths, edges)


def _members(parameters: Parameters, seed: int) -> list[int]:
    count = int(parameters["nodes"])
    return even(count) if parameters["ids"] == "even" else hashed(count, seed)


def run_trees(parameters: Parameters, seed: int) -> Metrics:
    """Measure depths, edges, and members that are reached twice, or never; from so many roots."""
    members = _members(parameters, seed)
    nodes = graphs(members)
    roots = random.Random(f"roots/{seed}").sample(members, min(int(parameters["roots"]), len(members)))
    depths, deepest = [], []
    twice = never = off = 0
    for root in roots:
        walked = walk(nodes, root)
        depths.append(mean(walked.depths.values()))
        deepest.append(max(walked.depths.values()))
        twice += sum(times > 1 for times in walked.times.values())
        never += len(members) - len(walked.times)
        off += _off_binomial(walked.depths)
    into = Counter(node for graph in nodes.values() for node in graph.nodes)
    return {
        "depth_mean": mean(depths),
        "deepest_mean": mean(deepest),
        "deepest": max(deepest),
        "reached_twice": twice,
        "never_reached": never,
        "off_binomial": off,
        "edges_out_mean": mean(len(graph.responsible) for graph in nodes.values()),
        "edges_out_most": max(len(graph.responsible) for graph in nodes.values()),
        "edges_in_least": min(into[node] for node in nodes),
        "edges_in_most": max(into[node] for node in nodes),
        "known_by_least": _known_by_least(members, nodes, 1),
        "known_by_least_twice": _known_by_least(members, nodes, 2),
    }


def _off_binomial(depths: Mapping[int, int]) -> int:
    """Count the members at another depth than in a binomial tree of as many."""
    levels = (len(depths) - 1).bit_length()
    found = Counter(depths.values())
    return sum(abs(found[depth] - comb(levels, depth)) for depth in range(max(levels, *found) + 1))


def _known_by_least(members: Sequence[int], nodes: Mapping[int, Graph], per_level: float) -> int:
    """Return the fewest members that know one as an edge or reserve: so many failed edges cut it off."""
    reserve = min(reserve_count(len(members), per_level), len(members) - 1)
    known: dict[int, set[int]] = {member: set() for member in members}
    for at, member in enumerate(members):
        following = (members[(at + step) % len(members)] for step in range(1, reserve + 1))
        for other in (*nodes[member].nodes, *following):
            known[other].add(member)
    return min(map(len, known.values()))


def run_load(parameters: Parameters, seed: int) -> Metrics:
    """Measure how much each member hands on when everybody publishes once, to all."""
    members = _members(parameters, seed)
    nodes = graphs(members)
    sends: Counter[int] = Counter()
    for root in members:
        sends.update(here for here, _ in walk(nodes, root).edges)
    average = sends.total() / len(members)
    one = Counter(here for here, _ in walk(nodes, members[0]).edges)
    return {
        "busiest_to_mean": max(sends.values()) / average,
        "idlest_to_mean": min(sends[member] for member in members) / average,
        "one_tree_busiest_to_mean": max(one.values()) / (one.total() / len(members)),
        "one_tree_idle_share": 1 - len(one) / len(members),
    }


def run_notices(parameters: Parameters, seed: int) -> Metrics:
    """Count messages of node-locations to owners of keys, and of node-joins to all that they are for."""
    members = _members(parameters, seed)
    nodes = graphs(members)
    rng = random.Random(f"notices/{seed}")
    hops, meant, messages = [], [], []
    for place in rng.sample(members, min(int(parameters["askers"]), len(members))):
        keys = [Range(rng.randrange(SIZE), 1) for _ in range(LOCATED)]
        hops += [len(walk(nodes, place, leading_to([key])).edges) for key in keys]
        targets = fingered_by(nodes[place].own, SIZE)
        meant.append(sum(each != place and _holds(targets, each) for each in members))
        messages.append(len(walk(nodes, place, leading_to(targets)).edges))
    return {
        "location_mean": mean(hops),
        "location_most": max(hops),
        "join_for": mean(meant),
        "join_mean": mean(messages),
        "join_most": max(messages),
    }


def leading_to(targets: Iterable[Range]) -> Callable[[int, GraphPart], bool]:
    """Return the range inclusion test of notices: whether a part has a key of some ranges."""
    wanted = list(targets)
    return lambda here, part: any(part.range.meets(each, SIZE) for each in wanted)


def _holds(targets: Iterable[Range], key: int) -> bool:
    return any(each.holds(key, SIZE) for each in targets)


# -- reserves ----------------------------------------------------------------------------------------------------------


ROUNDS_MAX = 64


class FailureOutcome(NamedTuple):
    """The survivors, and how many of them have lost their successor, by the reserve alone and after repair."""

    live: list[int]
    lost: int
    lost_for_good: int
    asked: int
    """Questions for the repair in all."""


class MemberRing:
    """Members with their reserves and edges, before anybody fails."""

    def __init__(self, count: int, seed: int, per_level: float) -> None:
        self.members = members = hashed(count, seed)
        self.reserve = reserve = min(reserve_count(count, per_level), count - 1)
        self.outgoing = {
            member: [*(members[(at + step) % count] for step in range(1, reserve + 1)), *fingers(member, members, SIZE)]
            for at, member in enumerate(members)
        }

    def without(self, silent: frozenset[int]) -> FailureOutcome:
        """Let some members fail."""
        live = [member for member in self.members if member not in silent]
        known: dict[int, dict[int, None]] = {member: dict.fromkeys(self.outgoing[member]) for member in live}
        for member in live:
            for other in self.outgoing[member]:
                if other in known:
                    known[other][member] = None  # an edge is known at both its ends
        right = {member: live[(at + 1) % len(live)] for at, member in enumerate(live)}
        reserves = {member: self.outgoing[member][: self.reserve] for member in live}
        lost = sum(_first(member, reserves[member], silent) != right[member] for member in live)
        found, asked = mend(known, silent)
        return FailureOutcome(live, lost, sum(found[member] != right[member] for member in live), asked)


def fail(count: int, seed: int, per_level: float = 2, share: float = 0.5) -> FailureOutcome:
    """Let a share of the members fail at once."""
    ring = MemberRing(count, seed, per_level)
    return ring.without(frozenset(random.Random(seed).sample(ring.members, round(count * share))))


def mend(known: Mapping[int, dict[int, None]], silent: frozenset[int]) -> tuple[dict[int, int | None], int]:
    """Let all look for their successors, again and again until nobody finds a nearer one."""
    found: dict[int, int | None] = {}
    asked = 0
    for _ in range(ROUNDS_MAX):
        before = dict(found)
        for member in known:
            candidate = _first(member, known[member], silent)
            while candidate is not None:
                asked += 1
                known[member][candidate] = known[candidate][member] = None
                closer = between(member, candidate, known[candidate].keys() - silent, 1, SIZE)
                if not closer:
                    break
                candidate = closer[0]
            found[member] = candidate
        if found == before:
            break
    return found, asked


def _first(member: int, known: Iterable[int], silent: frozenset[int]) -> int | None:
    """Return the next member clockwise that is not silent."""
    return next(iter(following(member, {*known} - silent, 1, SIZE)), None)


def lost_alone(is_up: npt.NDArray[np.bool_], reserve: int) -> int:
    """Count the members that are up without anyone up among the next ones of the ring, so many of them."""
    up = np.flatnonzero(is_up)
    gaps = np.diff(up, append=up[0] + len(is_up))
    return int(np.count_nonzero(gaps > reserve))


def run_survival(parameters: Parameters, seed: int) -> Metrics:
    """Measure how often the ring is whole, alone and after repair, in many trials."""
    nodes, per_level = int(parameters["nodes"]), float(parameters["per_level"])
    ring = MemberRing(nodes, seed, per_level)
    rng = np.random.default_rng([seed, nodes])
    cut: list[npt.NDArray[np.bool_]] = []
    lost = []
    trials = int(parameters["trials"])
    for _ in range(trials):
        is_up = rng.permutation(nodes) >= nodes // 2
        lost.append(lost_alone(is_up, ring.reserve))
        if lost[-1]:
            cut.append(is_up)
    looked_at = [
        ring.without(frozenset(member for member, up in zip(ring.members, is_up, strict=True) if not up))
        for is_up in cut[: int(parameters["repairs"])]
    ]
    whole = 1 - len(cut) / trials
    mended = mean([not each.lost_for_good for each in looked_at]) if looked_at else 1.0
    metrics = {
        "whole_alone": whole,
        "whole_repaired": whole + (1 - whole) * mended,
        "lost_alone": mean(lost),
        "cut": len(cut),
        "repairs_looked_at": len(looked_at),
    }
    if looked_at:
        metrics["questions_per_survivor"] = mean(each.asked / len(each.live) for each in looked_at)
    return metrics


# -- updates as printed ------------------------------------------------------------------------------------------------


HERE = "here"
EVENTS = 100


class UpdateCost(NamedTuple):
    """The updates of a change: in all, and one after another."""

    updates: int
    steps: int


class FilterGraph:
    """All members, their filters, and the subscriptions at each."""

    def __init__(
        self, members: Sequence[int], is_printed: bool, strategy: Strategy = "covering", size: int = SIZE
    ) -> None:
        self.nodes = graphs(members, size)
        self.is_printed = is_printed
        self.filters: dict[tuple[int, int], Rows] = {}
        self._wanted: dict[int, dict[str, Rows]] = {member: {} for member in members}
        self._tables: dict[tuple[int, int], FilterTable] = {}
        self._rests_on: dict[tuple[int, int], list[int]] = {}
        """By edge, the edges of the other that answer for some of its range."""
        for above, graph in self.nodes.items():
            for here in graph.nodes:
                edge, mine = (above, here), self.nodes[here].responsible
                self.filters[edge] = ()
                self._tables[edge] = make_table(strategy)
                self._rests_on[edge] = [
                    below for below, range_ in mine.items() if range_.meets(graph.responsible[here], size)
                ]
        self._above: dict[int, list[int]] = defaultdict(list)
        for above, here in self.filters:
            self._above[here].append(above)

    def want(self, member: int, name: str, rows: Rows) -> UpdateCost:
        """Add a subscription, or end one that has no rows; update all members that must know."""
        self._wanted[member][name] = rows
        updates = steps = 0
        waiting: list[tuple[int, int | None, int]] = [(member, None, 0)]
        for here, below, step in waiting:  # grows as we go
            steps = max(steps, step)
            for above in self._above[here]:
                edge = (above, here)
                if below is not None and below not in self._rests_on[edge]:
                    continue
                rows, is_new = self._table(edge)
                if is_new or self.is_printed:
                    updates += 1
                    if self._hear(edge, rows):
                        waiting.append((above, here, step + 1))
        return UpdateCost(updates, steps)

    def _table(self, edge: tuple[int, int]) -> tuple[Rows, bool]:
        """Return the rows to tell about an edge, and whether they differ from before."""
        here, table = edge[1], self._tables[edge]
        before = table.rows
        table.replace(HERE, tuple([row for rows in self._wanted[here].values() for row in rows]))
        for below in self._rests_on[edge]:
            table.replace(below, self.filters[here, below])
        return table.rows, table.rows != before

    def _hear(self, edge: tuple[int, int], rows: Rows) -> bool:
        """Take new rows for an edge; return whether its filter has changed."""
        before = self.filters[edge]
        if self.is_printed and is_superset(before, rows):
            return False
        self.filters[edge] = rows
        return rows != before

    def sends(self, root: int, event: Mapping[str, object]) -> int:
        """Count the messages that bring an event from a member to all that want it."""
        return len(walk(self.nodes, root, lambda here, part: accepts(self.filters[here, part.node], event)).edges)

    @property
    def rows_per_edge(self) -> float:
        """The mean number of rows."""
        return mean(map(len, self.filters.values()))


def run_unsubscribing(parameters: Parameters, seed: int) -> Metrics:
    """Measure the remaining filters, and the events they let through, after a share of the subscriptions has ended."""
    rng = random.Random(f"unsubscribing/{seed}")
    members = hashed(int(parameters["nodes"]), seed)
    tree = FilterGraph(members, parameters["rule"] == "printed")
    texts, events = topics(rng, int(parameters["subscriptions"]), EVENTS)
    held = [(rng.choice(members), f"s{number}") for number in range(len(texts))]
    roots = [rng.choice(members) for _ in events]
    came = [
        tree.want(member, name, parse_filter(text).conjunctions)
        for (member, name), text in zip(held, texts, strict=True)
    ]
    rows = tree.rows_per_edge
    gone = [
        tree.want(member, name, ()) for member, name in rng.sample(held, round(float(parameters["ended"]) * len(held)))
    ]
    metrics = {
        "rows_full": rows,
        "rows_left": tree.rows_per_edge,
        "sends_per_event": mean(tree.sends(root, event) for root, event in zip(roots, events, strict=True)),
        "updates_per_subscription": mean(each.updates for each in came),
    }
    return {**metrics, "updates_per_end": mean(each.updates for each in gone)} if gone else metrics


def run_steps(parameters: Parameters, seed: int) -> Metrics:
    """Measure the longest chain and the number of updates, for subscriptions that nobody else has."""
    members = hashed(int(parameters["nodes"]), seed)
    tree = FilterGraph(members, is_printed=False)
    asking = random.Random(f"steps/{seed}").choices(members, k=int(parameters["subscriptions"]))
    told = [
        tree.want(member, f"s{number}", parse_filter(f"topic = {number}").conjunctions)
        for number, member in enumerate(asking)
    ]
    return {
        "steps_mean": mean(each.steps for each in told),
        "steps_most": max(each.steps for each in told),
        "updates_per_subscription": mean(each.updates for each in told),
    }
