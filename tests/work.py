"""Work counted in calls: a measure of cost that is the same on every machine, however busy."""

from __future__ import annotations

import cProfile
from collections.abc import Callable

__all__ = ["Calls", "count_calls"]


class Calls:
    """Counts the functions of Python and of C that this thread calls inside `with`."""

    def __init__(self) -> None:
        self._profile = cProfile.Profile()

    def __enter__(self) -> Calls:
        self._profile.enable()
        return self

    def __exit__(self, *_: object) -> None:
        self._profile.disable()

    @property
    def count(self) -> int:
        """The number of calls so far."""
        return sum(entry.callcount for entry in self._profile.getstats())


def count_calls(work: Callable[[], object]) -> int:
    """Return how many functions `work` calls."""
    with Calls() as calls:
        work()
    return calls.count
