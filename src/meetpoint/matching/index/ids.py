"""Ids of subscriptions: the serial that each stands for, and ids as lists, NumPy arrays or Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from meetpoint.errors import MeetpointError
from meetpoint.matching.tables.prepared_columns import WORD

__all__ = ["IdTable", "arrow_bits", "arrow_ids", "ids_at", "integer_ids", "joined", "joined_ids", "one_column"]


def arrow_bits(bits: Any) -> pa.BooleanArray:
    """Return booleans as an Arrow array.

    `pyarrow.array` imports pandas first, which a thread cannot do once the process ends.
    """
    packed = np.packbits(bits, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(bits), [None, pa.py_buffer(packed)])


Array = Any
_SHARDS = 64
"""Dicts of an id table."""
_SOME_IDS = 1 << 14
"""Ids that are converted before other threads may run."""


class IdTable:
    """The serial of each id, which changes when the id gets another filter.

    An id has a *place* as long as it is known, and its serial stands there, so that the serials of many ids change at
    once. The table has many dicts, each for the ids of some hashes: a dict that grows copies itself, and while one of a
    million ids does, no thread runs for a tenth of a second.
    """

    def __init__(self) -> None:
        self._shards: list[dict[Any, int]] = [{} for _ in range(_SHARDS)]
        self._serials = np.zeros(_SHARDS, np.int64)
        self._used = 0
        self._free: list[int] = []

    def __contains__(self, id_: object) -> bool:
        return id_ in self._shards[hash(id_) % _SHARDS]

    def places(self, ids: Iterable[Any]) -> list[int | None]:
        """Return the place of each id, None for an unknown one."""
        shards = self._shards
        return [shards[hash(id_) % _SHARDS].get(id_) for id_ in ids]

    def at(self, places: Array) -> Array:
        """Return the serials at some places."""
        return self._serials[places]

    def put(self, places: Array, serials: Array) -> None:
        """Replace the serials at some places."""
        self._serials[places] = serials

    def add(self, ids: Sequence[Any], serials: Array) -> bool:
        """Add new ids and return True; do nothing and return False if one is known or named twice."""
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
        """Remove ids that are known."""
        shards = self._shards
        for id_ in ids:
            del shards[hash(id_) % _SHARDS][id_]
        self._free += places

    def first_wrong(self, ids: Iterable[Any], *, known: bool) -> Any:
        """Return the first id that is named twice, or whose presence is `known`; None if there is none."""
        seen: set[Any] = set()
        for id_ in ids:
            if id_ in seen or (id_ in self) is known:
                return id_
            seen.add(id_)
        return None


def integer_ids(ids: Any) -> Array | None:
    """Return ids as an array, if all are integers of 64 bits; convert some at a time, so that other threads run."""
    if isinstance(ids, pa.Array):
        return np.asarray(ids) if ids.type == pa.int64() and not ids.null_count else None
    arrays: list[Array] = []
    for at in range(0, len(ids), _SOME_IDS):
        some = ids[at : at + _SOME_IDS]
        if set(map(type, some)) != {int} or min(some) < WORD[0] or max(some) > WORD[1]:
            return None
        arrays.append(np.array(some, np.int64))
    return joined(arrays)


def joined(arrays: list[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate([np.zeros(0, np.int64), *arrays])


def joined_ids(ids: list[Any], kept: list[Array]) -> Any:
    if all(isinstance(some, pa.Array) for some in ids) and len({some.type for some in ids}) == 1:
        return pa.concat_arrays([some.filter(arrow_bits(k)) for some, k in zip(ids, kept, strict=True)])
    joined: list[Any] = []
    for some, k in zip(ids, kept, strict=True):
        joined += ids_at(some, np.flatnonzero(k))
    return joined


def ids_at(ids: Any, numbers: Array) -> list[Any]:
    if isinstance(ids, pa.Array):
        if pa.types.is_integer(ids.type) and ids.null_count == 0:
            return np.asarray(ids)[numbers].tolist()  # type: ignore[no-any-return]
        return ids.take(pa.array(numbers)).to_pylist()  # type: ignore[no-any-return]
    return list(map(ids.__getitem__, numbers.tolist()))


def arrow_ids(ids: Any) -> pa.Array:
    """Return ids as a column; MeetpointError if no Arrow type holds all of them as they are."""
    if isinstance(ids, pa.Array):
        return ids
    try:
        array = pa.array(ids)
        if array.to_pylist() == list(ids):
            return array
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    raise MeetpointError(
        "the ids of the subscriptions are of different types, or of one that Arrow does not have; "
        "make all of them strings, or all integers of 64 bits"
    )


def one_column(arrays: list[pa.Array]) -> pa.Array:
    """Return columns of ids as one."""
    if len({array.type for array in arrays}) > 1:
        raise MeetpointError(
            "the ids of the subscriptions are of different types; make all of them strings, or integers"
        )
    return pa.concat_arrays(arrays)
