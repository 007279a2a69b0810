"""Which subscription an id stands for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

__all__ = ["Serials"]

Array = Any
_SHARDS = 64


class Serials:
    """The serial of each id, which changes when the id gets another filter.

    An id has a *place* as long as it is held, and a serial stands there, so that those of many ids change at once. A
    dict that grows copies itself, and while one of a million ids does, no thread runs for a tenth of a second. Here are
    many dicts, each with the ids of some hashes.
    """

    def __init__(self) -> None:
        self._shards: list[dict[Any, int]] = [{} for _ in range(_SHARDS)]
        self._serials = np.zeros(_SHARDS, np.int64)
        self._used = 0
        self._free: list[int] = []

    def __contains__(self, id_: object) -> bool:
        return id_ in self._shards[hash(id_) % _SHARDS]

    def places(self, ids: Iterable[Any]) -> list[int | None]:
        """The place of each id; None where it is unknown."""
        shards = self._shards
        return [shards[hash(id_) % _SHARDS].get(id_) for id_ in ids]

    def at(self, places: Array) -> Array:
        """The serials at some places."""
        return self._serials[places]

    def put(self, places: Array, serials: Array) -> None:
        """Other serials stand at some places now."""
        self._serials[places] = serials

    def add(self, ids: Sequence[Any], serials: Array) -> bool:
        """New ids; nothing is done where one of them is known or named twice, and that is told."""
        places = self._new_places(len(ids))
        shards = self._shards
        added = 0
        try:
            for id_, place in zip(ids, places, strict=True):
                if shards[hash(id_) % _SHARDS].setdefault(id_, place) != place:
                    break
                added += 1
        finally:  # an id may have no hash
            if added < len(ids):
                self._free += places[added:]
                self.forget(ids[:added], places[:added])
        if added < len(ids):
            return False
        self._serials[places] = serials
        return True

    def _new_places(self, count: int) -> list[int]:
        again = self._free[:count]
        del self._free[:count]
        begin, self._used = self._used, self._used + count - len(again)
        if self._used > len(self._serials):
            self._serials = np.concatenate([self._serials, np.zeros(self._used, np.int64)])
        return [*again, *range(begin, self._used)]

    def forget(self, ids: Sequence[Any], places: Sequence[int]) -> None:
        """Ids that are known are so no longer."""
        shards = self._shards
        for id_ in ids:
            del shards[hash(id_) % _SHARDS][id_]
        self._free += places

    def first_wrong(self, ids: Iterable[Any], *, known: bool) -> Any:
        """The first id that is named twice, or that is known or unknown, whichever is wrong."""
        seen: set[Any] = set()
        for id_ in ids:
            if id_ in seen or (id_ in self) is known:
                return id_
            seen.add(id_)
        return None
