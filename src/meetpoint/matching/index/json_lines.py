"""Events from JSON lines, read into columns of the wanted attributes.

The meaning is that of `io.events.json_rows` and `names.find`: the same rows, values, and reasons for rejects. Plain
lines are read by the kernel `json_scan`, which is quick; the few others, and all that is wrong, by
`language.events.json`.

Decimals (a schema says where) come as integers of one scale, which keeps their value but not their trailing zeros.
Those that 64 bits do not hold at that scale come as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

from meetpoint.errors import EventError
from meetpoint.language.events.json import attributes_from_json
from meetpoint.language.names import find, split_name
from meetpoint.language.schema.schema import Attribute, Schema, SchemaTree
from meetpoint.language.timestamps import EPOCH, MICROSECOND
from meetpoint.matching.index.kernels.json_scan import (
    COLUMN,
    KEY_MAX,
    MODE,
    MODES,
    NODE_FIELDS,
    PADDING,
    TAGS,
    Cells,
    Keys,
    count_lines,
    plant_key,
    scan_lines,
)
from meetpoint.matching.tables.columns import ColumnPart, PartSort
from meetpoint.matching.tables.prepared_columns import WORD, Array, Mask

__all__ = ["JsonLines", "LineReader"]

_Path: TypeAlias = tuple[str, ...]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LEARNT_KEYS_MAX = 512
_LEARNT_BYTES_MAX = 16_384
_SCALE_MAX = 18
_SORTS = {tag: PartSort[name] for name, tag in TAGS.items()}
_TAGS = {sort: tag for tag, sort in _SORTS.items()}


class JsonLines(msgspec.Struct, frozen=True):
    """The rows of some lines. A row is a line that holds something; rows are numbered from 0."""

    rows: int
    good: Mask
    """A mask of the rows that are events; the others have no attributes."""
    parts: dict[str, list[ColumnPart]]
    """Parts by wanted name; none if no row has the attribute."""
    rejects: list[tuple[int, str]]
    """The rows that are no events, in order, and why."""
    lines: int
    """The number of lines, blank ones too."""
    bounds: Array
    """The start and the end, before the line end, of each row's line in the data: int64[rows, 2]."""


class LineReader:
    """A reader of the attributes with some canonical names. Several threads may share one."""

    def __init__(self, names: Sequence[str], schema: Schema | None = None) -> None:
        columns: dict[_Path, int] = {}
        self._names = {name: columns.setdefault(split_name(name), len(columns)) for name in names}
        self._columns = columns
        self._schema = schema
        self._keys = _plant_keys(columns, {} if schema is None else schema.tree)

    def read(self, data: bytes | memoryview | np.ndarray, first_line: int = 1) -> JsonLines:
        """Read the lines of a file, or of a stretch from a numbered line to the end of another.

        A byte order mark before the first line of a file is skipped.
        """
        source = np.frombuffer(data, dtype=np.uint8)
        source.flags.writeable = False
        buffer = np.empty(len(source) + PADDING, dtype=np.uint8)
        buffer[: len(source)] = source
        buffer[len(source) :] = ord("\n")
        marked = first_line == 1 and bytes(source[: len(_BYTE_ORDER_MARK)]) == _BYTE_ORDER_MARK
        start = len(_BYTE_ORDER_MARK) if marked else 0
        count = count_lines(buffer, len(source))
        table = _Table.of(buffer, len(self._columns), count)
        lines = np.empty((count, 3), dtype=np.int64)
        doubtful = np.empty(count, dtype=np.int64)
        keys = Keys(*(array.copy() for array in self._keys))  # what one batch teaches is not shared with other threads
        rows, doubts = scan_lines(source, buffer, start, keys, table.cells, lines, doubtful)
        good = np.ones(rows, dtype=np.bool_)
        rejects: list[tuple[int, str]] = []
        for row in doubtful[:doubts].tolist():
            number, line_start, line_end = lines[row].tolist()
            try:
                line = source[line_start:line_end].tobytes().rstrip(b"\r\n")
                attributes = attributes_from_json(line, self._schema)
            except EventError as error:
                said = str(error).removeprefix("event, line 1, ").removeprefix("event: ")
                rejects.append((row, f"line {first_line + number - 1}, {said}"))
                good[row] = False
            else:
                values = [find(attributes, path) for path in self._columns]
                table.put(row, line_start, values)
        parts = table.parts(rows)
        by_name = {name: parts[column] for name, column in self._names.items()}
        return JsonLines(rows, good, by_name, rejects, count, lines[:rows, 1:])


# -- Keys --------------------------------------------------------------------------------------------------------------


def _plant_keys(columns: Mapping[_Path, int], tree: SchemaTree) -> Keys:
    """Return the tree of wanted and declared keys, with room for keys that are learnt."""
    names = [name for path in columns for name in path] + list(_names_within(tree))
    nodes_max = 1 + len(names) + _LEARNT_KEYS_MAX
    bytes_max = sum(len(name.encode("utf-8", "replace")) + 1 for name in names) + _LEARNT_BYTES_MAX
    keys = Keys(
        np.zeros((nodes_max, NODE_FIELDS), dtype=np.int64),
        np.zeros(bytes_max + PADDING, dtype=np.uint8),
        np.zeros(1 << (2 * nodes_max).bit_length(), dtype=np.int64),
        np.array([1, 0, nodes_max, bytes_max, 0, 0], dtype=np.int64),
    )
    _plant_tree(keys, 0, tree)
    for path, column in columns.items():
        node = 0
        for name in path:
            node = _plant_name(keys, node, name)
            if node == 0:
                break
        else:
            keys.nodes[node, COLUMN] = column
    keys.counts[4:] = keys.counts[:2]
    return keys


def _plant_name(keys: Keys, parent: int, name: str) -> int:
    """Return the node of a key; 0 for a key that needs escapes in JSON, so that Python reads its lines anyway."""
    if '"' in name or "\\" in name or min(name) < " ":
        return 0
    try:
        key = name.encode()
    except UnicodeEncodeError:  # a lone surrogate, which no event has
        return 0
    if len(key) > KEY_MAX:
        return 0
    quoted = np.frombuffer(key + b'"' + bytes(PADDING), dtype=np.uint8)
    return int(plant_key(quoted, len(key) + 1, parent, keys))


def _names_within(tree: SchemaTree) -> Iterator[str]:
    for name, declared in tree.items():
        yield name
        if not isinstance(declared, Attribute):
            yield from _names_within(declared)


def _plant_tree(keys: Keys, parent: int, tree: SchemaTree) -> None:
    for name, declared in tree.items():
        node = _plant_name(keys, parent, name)
        if node == 0:
            continue
        if isinstance(declared, Attribute):
            keys.nodes[node, MODE] = MODES[declared.type]
        else:
            keys.nodes[node, MODE] = MODES["object"]
            _plant_tree(keys, node, declared)


# -- Values ------------------------------------------------------------------------------------------------------------


class _Table(NamedTuple):
    """The values of the wanted attributes, as cells and, if they are neither a word nor a text, as objects."""

    buffer: Array
    cells: Cells
    exact: list[dict[int, int | Decimal]]

    @staticmethod
    def of(buffer: Array, columns: int, rows: int) -> _Table:
        words, ends = np.zeros((2, columns, rows), dtype=np.int64)
        tags = np.zeros((columns, rows), dtype=np.uint8)
        return _Table(buffer, Cells(tags, words, ends), [{} for _ in range(columns)])

    def put(self, row: int, place: int, values: Sequence[object]) -> None:
        """Set one row. Its texts overwrite its line: each is a part of the line, so they fit."""
        for column, value in enumerate(values):
            match value:
                case None:
                    continue
                case bool():
                    sort, word = PartSort.BOOLEAN, int(value)
                case int():
                    sort, word = (PartSort.INTEGER, value) if WORD[0] <= value <= WORD[1] else (PartSort.EXACT, 0)
                case float():
                    sort, word = PartSort.FLOAT, int(np.float64(value).view(np.int64))
                case str():
                    text = value.encode()
                    sort, word = PartSort.TEXT, place
                    place += len(text)
                    self.buffer[word:place] = np.frombuffer(text, dtype=np.uint8)
                    self.cells.ends[column, row] = place
                case datetime():
                    sort, word = PartSort.INSTANT, (value - EPOCH) // MICROSECOND
                case Decimal():
                    word, scale = _unscaled(value)
                    fits = WORD[0] < word <= WORD[1] and scale <= _SCALE_MAX
                    sort, word = (PartSort.DECIMAL, word) if fits else (PartSort.EXACT, 0)
                    self.cells.ends[column, row] = scale if fits else 0
                case _:
                    sort, word = PartSort.OTHER, 0
            if sort is PartSort.EXACT:
                assert isinstance(value, int | Decimal)
                self.exact[column][row] = value
            self.cells.tags[column, row] = _TAGS[sort]
            self.cells.words[column, row] = word

    def parts(self, rows: int) -> list[list[ColumnPart]]:
        """Return the parts of each attribute. Values that are not valid are 0."""
        if not rows:
            return [[] for _ in self.exact]
        tags = self.cells.tags[:, :rows]
        ranges = zip(tags.min(axis=1).tolist(), tags.max(axis=1).tolist(), strict=True)
        return [self._parts(column, rows, least, most) for column, (least, most) in enumerate(ranges)]

    def _parts(self, column: int, rows: int, least: int, most: int) -> list[ColumnPart]:
        tags = self.cells.tags[column, :rows]
        found, scale = [most], 0
        if least < most or most == _TAGS[PartSort.DECIMAL]:
            scale = self._rescale(column, rows)
            found = np.flatnonzero(np.bincount(tags)).tolist()
        parts = []
        for tag in found:
            if tag:
                valid = tags == tag if len(found) > 1 else None
                parts.append(self._part(column, _SORTS[tag], valid, len(found) > 1 + (0 in found), rows, scale))
        return parts

    def _part(self, column: int, sort: PartSort, valid: Mask | None, mixed: bool, rows: int, scale: int) -> ColumnPart:
        words, ends = self.cells.words[column, :rows], self.cells.ends[column, :rows]
        if mixed and valid is not None:  # with words of other parts
            words, ends = np.where(valid, words, 0), np.where(valid, ends, 0)
        match sort:
            case PartSort.TEXT:
                return ColumnPart(sort, valid, self.buffer, words, ends)
            case PartSort.FLOAT:
                return ColumnPart(sort, valid, words.view(np.float64))
            case PartSort.BOOLEAN:
                return ColumnPart(sort, valid, words != 0)
            case PartSort.OTHER:
                return ColumnPart(sort, valid, np.ones(rows, dtype=np.bool_) if valid is None else valid)
            case PartSort.EXACT:
                values = np.zeros(rows, dtype=object)
                for row, value in self.exact[column].items():
                    values[row] = value
                return ColumnPart(sort, valid, values)
        return ColumnPart(sort, valid, words, scale=scale if sort is PartSort.DECIMAL else 0)

    def _rescale(self, column: int, rows: int) -> int:
        """Bring decimals to one scale and return it; decimals that do not fit become exact."""
        at = np.flatnonzero(self.cells.tags[column, :rows] == _TAGS[PartSort.DECIMAL])
        if not len(at):
            return 0
        words, scales = self.cells.words[column, at], self.cells.ends[column, at]
        scale = int(scales.max())
        factors = 10 ** (scale - scales)
        fits = np.abs(words) <= WORD[1] // factors
        self.cells.words[column, at] = np.where(fits, words, 0) * factors
        for place in np.flatnonzero(~fits).tolist():
            self.exact[column][int(at[place])] = Decimal(f"{words[place]}E-{scales[place]}")
        self.cells.tags[column, at[~fits]] = _TAGS[PartSort.EXACT]
        return scale


def _unscaled(value: Decimal) -> tuple[int, int]:
    """Return a finite decimal as an integer and the digits after its point."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    word = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    return -word if sign else word, max(-exponent, 0)
