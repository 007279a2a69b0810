"""Dedup of history: finds events that were accepted twice, under two keys.

A publisher that gets no answer publishes an event again, maybe at another broker, and both may be accepted: under two
keys, and one id. Homes notify a subscriber of one of them, since they remember ids for two minutes; after that an id
may be used for another event. A reader of history decides in the same way. An event with the id of one that was
accepted shortly before is that event again. So is, whenever it was accepted, an event with the same publisher and
sequence too. All others are different events.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from meetpoint.api.limits import SAME_ID_US
from meetpoint.language.events.event import Event

__all__ = ["HistoryDedup"]


PER_ID_MAX: Final = 100
"""The number of events under one id that are remembered, the last ones."""

_Came = tuple[str, int, int]
"""Publisher, sequence, moment of acceptance."""


class HistoryDedup:
    """The events that came, by id, of at most the `most` ids that came last."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._came: OrderedDict[Hashable, tuple[_Came, ...]] = OrderedDict()

    def knows(self, id_: Hashable, event: Event, at_us: int) -> bool:
        """Return whether an event came already. `id_` is its id, with what else tells ids apart, such as a tenant."""
        return any(
            (publisher, sequence) == (event.publisher, event.sequence) or abs(at_us - came_us) <= SAME_ID_US
            for publisher, sequence, came_us in self._came.get(id_, ())
        )

    def note(self, id_: Hashable, event: Event, at_us: int) -> None:
        """Remember an event."""
        came = *self._came.get(id_, ()), (event.publisher, event.sequence, at_us)
        self._came[id_] = came[-PER_ID_MAX:]
        self._came.move_to_end(id_)
        if self._most is not None and len(self._came) > self._most:
            self._came.popitem(last=False)
