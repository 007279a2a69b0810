"""Conjunctions as they travel: the text of their filter, and which of it they are. The same text is read once."""

from __future__ import annotations

from functools import lru_cache

from meetpoint.errors import FilterError
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.filters.normal_form import Conjunction

__all__ = ["conjunction_in"]


def conjunction_in(text: str, at: int) -> Conjunction | None:
    """One conjunction of a filter; None where it is malformed, as a peer's may be, or has no such one."""
    found = _conjunctions(text)
    return found[at] if 0 <= at < len(found) else None


@lru_cache(maxsize=4_096)
def _conjunctions(text: str) -> tuple[Conjunction, ...]:
    try:
        return parse_filter(text).conjunctions
    except FilterError:
        return ()
