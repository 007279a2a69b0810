"""Whether an event of history came before, under another key.

A publisher that gets no answer publishes an event again, maybe at another broker, and both may be accepted: under two
keys, and one id. Homes tell a subscriber of one of them, as they remember ids for two minutes; after that an id may be
used for another event. Who reads history does alike: what has the id of an event that was accepted shortly before is
that event again, and so is, whenever it was accepted, what has its publisher and sequence too; all else is another one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from meetpoint.api.limits import SAME_ID_US
from meetpoint.language.events.event import Event

__all__ = ["HistoryDedup"]


PER_ID_MAX: Final = 100
"""How many events under one id are remembered, the last ones."""

_Came = tuple[str, int, int]
"""Publisher, sequence, moment of acceptance."""


class HistoryDedup:
    """What came, by id; no more than the last so many ids, where there is a limit."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._came: OrderedDict[Hashable, tuple[_Came, ...]] = OrderedDict()

    def knows(self, id_: Hashable, event: Event, at_us: int) -> bool:
        """Whether an event came already. `id_` is its id, together with whatever else tells ids apart."""
        return any(
            (publisher, sequence) == (event.publisher, event.sequence) or abs(at_us - came_us) <= SAME_ID_US
            for publisher, sequence, came_us in self._came.get(id_, ())
        )

    def note(self, id_: Hashable, event: Event, at_us: int) -> None:
        """An event came."""
        came = *self._came.get(id_, ()), (event.publisher, event.sequence, at_us)
        self._came[id_] = came[-PER_ID_MAX:]
        self._came.move_to_end(id_)
        if self._most is not None and len(self._came) > self._most:
            self._came.popitem(last=False)
