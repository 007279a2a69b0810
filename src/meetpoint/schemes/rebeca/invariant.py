"""The invariant of filters, checked over whole networks. It shares nothing with what it judges, and no node uses it.

- *Told*, at every moment and of each member alone: what was told of a range is a superset of what is wanted here and of
  the filters of all edges that answer for some of it.
- *Kept*, where all that was said has arrived: for edges u -> v -> w, where v's range at u and w's at v have something
  in common, the filter of u -> v is a superset of that of v -> w, and of what is wanted at v (paper E, section 4.2).

Supersets are the algebra's: what it is not certain of counts as wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from meetpoint.language.filters.algebra import covers
from meetpoint.language.filters.filter import Filter
from meetpoint.schemes.rebeca.edges import Edges
from meetpoint.schemes.rebeca.tables import Rows

__all__ = ["is_superset", "not_kept", "not_told"]


def is_superset(wide: Rows, narrow: Rows) -> bool:
    """Return whether a table certainly accepts all that another does."""
    return covers(Filter("", wide), Filter("", narrow))


def not_told(node: Edges, now: int) -> str | None:
    """Return what a member has failed to tell, in a sentence, or None."""
    for above, (range_, rows) in node.told(now).items():
        if not is_superset(rows, node.here):
            return f"{node.place} has not told {above} what is wanted here"
        for below in node.graph.nodes:
            is_part = node.graph.responsible[below].meets(range_, node.size)
            if is_part and not is_superset(rows, node.rows(below, now)):
                return f"{node.place} has not told {above} what is wanted at {below}"
    return None


def not_kept(nodes: Mapping[int, Edges], rows_of: Callable[[int, int], Rows]) -> str | None:
    """Return which filter does not accept what one behind it does, in a sentence, or None.

    `rows_of` returns the filter of an edge, as of now.
    """
    for u, upper in nodes.items():
        for v in upper.graph.nodes:
            lower, rows = nodes[v], rows_of(u, v)
            if not is_superset(rows, lower.here):
                return f"the filter of {u} -> {v} lacks what is wanted at {v}"
            for w in lower.graph.nodes:
                common = upper.graph.responsible[v].meets(lower.graph.responsible[w], upper.size)
                if common and not is_superset(rows, rows_of(v, w)):
                    return f"the filter of {u} -> {v} lacks what {v} -> {w} accepts"
    return None
