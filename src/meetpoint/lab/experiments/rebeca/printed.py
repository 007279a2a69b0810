"""Filters that are told along the graph: the printed rule of section 4.4, and ours. A model, one message after another.

A node that hears of a filter that is covered by the one that it has may leave it as it is, as printed, and stops. So
updates end soon; but a filter that is to shrink is covered too. Ours: what is told replaces what was there, and a node
tells others only what has changed for them.

Edges are right and nothing is lost. That the tables of ours are those of a running network is a test.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import NamedTuple

from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.experiments.rebeca.trees import SIZE, graphs, hashed, walk
from meetpoint.lab.experiments.rebeca.updates import topics
from meetpoint.language import parse_filter
from meetpoint.schemes.rebeca.invariant import is_superset
from meetpoint.schemes.rebeca.tables import FilterTable, Rows, Strategy, accepts, make_table

__all__ = ["Told", "Tree", "run_steps", "run_unsubscribing"]

HERE = "here"
EVENTS = 100


class Told(NamedTuple):
    """What a change took: updates in all, and how many one after another."""

    updates: int
    steps: int


class Tree:
    """All members, their filters, and what is wanted at each."""

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

    def want(self, member: int, name: str, rows: Rows) -> Told:
        """A subscription is new, or gone where it has no rows; all are told who have to be."""
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
        return Told(updates, steps)

    def _table(self, edge: tuple[int, int]) -> tuple[Rows, bool]:
        """What is to be told of an edge, and whether it is something else than before."""
        here, table = edge[1], self._tables[edge]
        before = table.rows
        table.replace(HERE, tuple([row for rows in self._wanted[here].values() for row in rows]))
        for below in self._rests_on[edge]:
            table.replace(below, self.filters[here, below])
        return table.rows, table.rows != before

    def _hear(self, edge: tuple[int, int], rows: Rows) -> bool:
        """Whether the filter of an edge is another one now."""
        before = self.filters[edge]
        if self.is_printed and is_superset(before, rows):
            return False
        self.filters[edge] = rows
        return rows != before

    def sends(self, root: int, event: Mapping[str, object]) -> int:
        """How many messages bring an event from a member to all that want it."""
        return len(walk(self.nodes, root, lambda here, part: accepts(self.filters[here, part.node], event)).edges)

    @property
    def rows_per_edge(self) -> float:
        """On average."""
        return mean(map(len, self.filters.values()))


def run_unsubscribing(parameters: Parameters, seed: int) -> Metrics:
    """Subscriptions come, and a share of them goes: what is left of the filters, and what they let through."""
    rng = random.Random(f"unsubscribing/{seed}")
    members = hashed(int(parameters["nodes"]), seed)
    tree = Tree(members, parameters["rule"] == "printed")
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
    """How many updates come one after another, and how many there are, for subscriptions that nobody else has."""
    members = hashed(int(parameters["nodes"]), seed)
    tree = Tree(members, is_printed=False)
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
