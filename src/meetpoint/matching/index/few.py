"""A few events, whose ranks on all lines of a segment are found by one call.

An event that is matched alone takes less time to look up than Python takes to hand a line to a kernel, and there are
ten lines to a segment and dozens of segments while subscriptions change. So the doubles and texts of the events are
laid side by side once, and each segment keeps a table of where its cuts are: the steps of `few_ranks`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from meetpoint.matching.index.kernels.compiling import FEW_EVENTS
from meetpoint.matching.index.kernels.ranks import BACK_STEP, NUMBER_STEP, STEP_FIELDS, TEXT_STEP
from meetpoint.matching.index.lines import Array, Line, LineSort
from meetpoint.matching.parts import Part, Parts, PartSort

__all__ = ["Few", "Steps"]

_BYTES_MAX = 1 << 16
"""Bytes of texts that are laid side by side; a few events may be some of many, with the texts of others between."""
_OF_PART = {
    PartSort.FLOAT: ((LineSort.NUMBER, NUMBER_STEP), (LineSort.ODD_NUMBER, NUMBER_STEP)),
    PartSort.TEXT: ((LineSort.TEXT, TEXT_STEP), (LineSort.TEXT_BACK, BACK_STEP)),
}


class Few(NamedTuple):
    """The parts of a few events: doubles and texts as rows of arrays, and the others."""

    key: tuple[tuple[str, PartSort], ...]  # what each row is
    valid: Array  # bool[parts, events]
    values: Array  # float64[parts, events]
    data: Array
    starts: Array  # int64[parts, events] in `data`
    ends: Array
    others: list[tuple[str, Part]]

    @staticmethod
    def of(parts: Parts, events: int) -> Few | None:
        """None where it would take longer than it saves."""
        if events >= FEW_EVENTS:
            return None
        listed = [(name, part) for name in sorted(parts) for part in parts[name]]
        rows = [(name, part) for name, part in listed if part.sort in _OF_PART]
        shape = len(rows), events
        valid, values = np.ones(shape, np.bool_), np.zeros(shape)
        starts, ends = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        texts: list[Array] = []
        before = 0
        for row, (_, part) in enumerate(rows):
            if part.valid is not None:
                valid[row] = part.valid
            if part.sort is not PartSort.TEXT:
                values[row] = part.values
                continue
            assert part.starts is not None
            assert part.ends is not None
            held = valid[row]
            if not held.any():
                continue
            least, most = int(part.starts[held].min()), int(part.ends[held].max())
            texts.append(part.values[least:most])
            starts[row], ends[row] = part.starts, part.ends
            starts[row] += before - least
            ends[row] += before - least
            before += len(texts[-1])
            if before > _BYTES_MAX:
                return None
        return Few(
            tuple((name, part.sort) for name, part in rows),
            valid,
            values,
            np.concatenate(texts) if texts else np.zeros(0, np.uint8),
            starts,
            ends,
            [(name, part) for name, part in listed if part.sort not in _OF_PART],
        )


class Steps(NamedTuple):
    """What `few_ranks` does for events with certain parts; `kept` are the arrays whose addresses it has."""

    steps: Array  # int64[steps, STEP_FIELDS]
    scales: Array  # float64[steps, 2]
    kept: list[Array]

    @staticmethod
    def of(key: tuple[tuple[str, PartSort], ...], lines: dict[str, dict[LineSort, tuple[int, Line]]]) -> Steps:
        steps: list[tuple[int, ...]] = []
        scales: list[tuple[float, float]] = []
        kept: list[Array] = []
        for row, (name, part) in enumerate(key):
            of_sort = lines.get(name, {})
            for sort, found in _OF_PART[part]:
                if sort not in of_sort:
                    continue
                slot, line = of_sort[sort]
                fields, scale = _numbers(line, kept) if found == NUMBER_STEP else _texts(line, kept)
                steps.append((found, row, slot, *fields))
                scales.append(scale)
        return Steps(
            np.array(steps, np.int64).reshape(-1, STEP_FIELDS), np.array(scales, np.float64).reshape(-1, 2), kept
        )


def _numbers(line: Line, kept: list[Array]) -> tuple[tuple[int, ...], tuple[float, float]]:
    cuts = line.floats
    keys, grid = _address(cuts.keys, np.int64, kept), _address(cuts.grid, np.int32, kept)
    fields = keys, cuts.cuts, grid, len(cuts.grid), cuts.first, cuts.shift, cuts.base
    return fields, (cuts.least, cuts.scale)


def _texts(line: Line, kept: list[Array]) -> tuple[tuple[int, ...], tuple[float, float]]:
    offsets, data = _address(line.offsets, np.int64, kept), _address(line.data, np.uint8, kept)
    return (offsets, line.cuts, data, len(line.data), 0, 0, 0), (0.0, 0.0)


def _address(array: Array, dtype: Any, kept: list[Array]) -> int:
    """Where an array is, which must be one of this type without gaps, or is copied into one."""
    kept.append(np.ascontiguousarray(array, dtype))
    return int(kept[-1].ctypes.data)
