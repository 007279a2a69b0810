"""Which subscription an id stands for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["Serials"]

_SHARDS = 64


class Serials:
    """The serial of each id.

    A dict that grows copies itself, and while one of a million ids does, no thread runs for a tenth of a second. Here
    are many dicts, each with the ids of some hashes.
    """

    def __init__(self) -> None:
        self._shards: list[dict[Any, int]] = [{} for _ in range(_SHARDS)]

    def __contains__(self, id_: object) -> bool:
        return id_ in self._shards[hash(id_) % _SHARDS]

    def of(self, ids: Iterable[Any]) -> list[int | None]:
        """The serial of each id; None where it is unknown."""
        shards = self._shards
        return [shards[hash(id_) % _SHARDS].get(id_) for id_ in ids]

    def update(self, ids: Sequence[Any], serials: Sequence[int]) -> None:
        """Ids, which may be new or known, stand for other serials now."""
        shards = self._shards
        for id_, serial in zip(ids, serials, strict=True):
            shards[hash(id_) % _SHARDS][id_] = serial

    def forget(self, ids: Sequence[Any]) -> None:
        """Ids that are known are so no longer."""
        shards = self._shards
        for id_ in ids:
            del shards[hash(id_) % _SHARDS][id_]

    def first_wrong(self, ids: Iterable[Any], *, known: bool) -> Any:
        """The first id that is named twice, or that is known or unknown, whichever is wrong."""
        seen: set[Any] = set()
        for id_ in ids:
            if id_ in seen or (id_ in self) is known:
                return id_
            seen.add(id_)
        return None
