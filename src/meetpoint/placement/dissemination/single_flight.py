"""An event that is brought from here to all who want it, and asked for again meanwhile: all who ask wait for one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeAlias, TypeVar

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.placement.dissemination.dissemination import ATTEMPT_US
from meetpoint.placement.entries.entry_table import Matched

__all__ = ["Bring", "SingleFlight"]

Bring: TypeAlias = Callable[..., Mapping[HomeId, None]]
"""`Bringing.bring`, or another way."""
Then: TypeAlias = Callable[[bool], None]
Slow: TypeAlias = Callable[[tuple[HomeId, ...]], None]
KeyT = TypeVar("KeyT", bound=Hashable)


class _UnderWay:
    """Who waits, and which homes have not got it."""

    __slots__ = ("to", "waiting")

    def __init__(self, to: Mapping[HomeId, object], then: Then) -> None:
        self.to = to
        self.waiting = [then]


class SingleFlight(Generic[KeyT]):
    """All that is brought from one node. A key says what is the same: an event at one place."""

    def __init__(self, bring: Bring) -> None:
        self._bring = bring
        self._under_way: dict[KeyT, _UnderWay] = {}

    def join(self, key: KeyT, then: Then, slow: Slow) -> bool:
        """Wait for what is under way, and say at once which homes that waits for; False where it is not."""
        found = self._under_way.get(key)
        if found is None:
            return False
        found.waiting.append(then)
        slow(tuple(found.to))
        return True

    def begin(
        self, key: KeyT, event: EventKey, settled: int, content: bytes, to: Matched, then: Then, slow: Slow
    ) -> None:
        """Bring an event to homes, as `Bringing.bring` does; `then` whether all have it in time."""
        under_way = self._under_way[key] = _UnderWay(to, then)

        def brought(well: bool) -> None:
            del self._under_way[key]
            for each in under_way.waiting:
                each(well)

        under_way.to = self._bring(event, settled, content, to, ATTEMPT_US, brought, slow)
