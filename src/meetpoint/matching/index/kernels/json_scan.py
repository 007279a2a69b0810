"""The scan of JSON lines in machine code. It accepts only lines that it has read exactly as `language.events.json`
would.

Each line is read once. A rare thing (a list, an integer beyond 64 bits, an escape in a key) or an error makes a line a
doubtful one, whose columns stay empty: Python reads it from its beginning and words the error.

Keys are the nodes of a tree whose root, node 0, is the event. Wanted and declared keys are there from the start, others
are learnt as they come, so that a key is one number, and a key that comes twice in a line is seen by its stamp. Each
node remembers which key came after it, since lines written by one program have their keys in one order.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from meetpoint.matching.index.kernels.jit import address_of, inlined, kernel, piece
from meetpoint.matching.index.kernels.json_tokens import (
    BLOCK,
    PADDING,
    Array,
    bits,
    byte_at,
    differences,
    get,
    newlines,
    put,
    put_byte,
    put_double,
    read_double,
    read_number,
    read_text,
    skip_space,
)

__all__ = [
    "COLUMN",
    "KEY_MAX",
    "MODE",
    "MODES",
    "NODE_FIELDS",
    "PADDING",
    "TAGS",
    "Cells",
    "Keys",
    "count_lines",
    "plant_key",
    "scan_lines",
]

# What a value is; 0: missing or null.
_FLOAT, _INTEGER, _DECIMAL, _TEXT, _INSTANT, _BOOLEAN, _OTHER, _EXACT = range(1, 9)
TAGS = {
    "FLOAT": _FLOAT,
    "INTEGER": _INTEGER,
    "DECIMAL": _DECIMAL,
    "TEXT": _TEXT,
    "INSTANT": _INSTANT,
    "BOOLEAN": _BOOLEAN,
    "OTHER": _OTHER,
    "EXACT": _EXACT,
}
"""Tags by the names of `PartSort`. The kernel itself finds nothing exact."""

# What a schema says of a key; 0: nothing.
_AS_INTEGER, _AS_FLOAT, _AS_DECIMAL, _AS_STRING, _AS_BOOLEAN, _AS_TIMESTAMP, _AS_OBJECT = range(1, 8)
MODES = {
    "integer": _AS_INTEGER,
    "float": _AS_FLOAT,
    "decimal": _AS_DECIMAL,
    "string": _AS_STRING,
    "boolean": _AS_BOOLEAN,
    "timestamp": _AS_TIMESTAMP,
    "object": _AS_OBJECT,
}
"""Modes by the names of `Type`, and one for objects with attributes."""

# The fields of a node, one cache line: where its key lies in the texts, its length with the closing quote, mode, column
# (-1: not wanted), parent, which child came first last time, which sibling came next, the last row that had it.
NODE_FIELDS = 8
_OFFSET, _LENGTH, MODE, COLUMN, _PARENT, _FIRST, _NEXT, _STAMP = range(NODE_FIELDS)

KEY_MAX = 255
"""Bytes of a key that is still plain."""
_DEPTH_MAX = 16
_PROBES_MAX = 64

_NEWLINE, _QUOTE, _COMMA, _COLON, _OPEN, _CLOSE = (ord(c) for c in '\n",:{}')
_SPACE, _PLUS, _MINUS, _POINT, _ZERO, _UPPER_T, _UPPER_Z = (ord(c) for c in " +-.0TZ")
_NULL, _TRUE, _FALSE = (int.from_bytes(word, "little") for word in (b"null", b"true", b"false"))
_BLANK = np.array([chr(code) in " \t\n\r\x0b\x0c" for code in range(256)])
_INTEGER_MAX = np.uint64(2**63 - 1)
_EXACT_MAX = np.uint64(2**53)
_HASH_START, _HASH_FACTOR = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


class Keys(NamedTuple):
    """The tree of keys, as arrays."""

    nodes: Array
    """The fields of all nodes: int64[nodes, NODE_FIELDS]."""
    texts: Array
    """The keys with their closing quotes, and PADDING: uint8."""
    table: Array
    """Nodes by the hash of their keys: int64; its length is a power of two."""
    counts: Array
    """Nodes and bytes of keys; the room for each; how many of each are not to be forgotten: int64[6]."""


class Cells(NamedTuple):
    """A tag, a word and an end for each column and row, in arrays of [columns, rows].

    The word of a float is its bits. A text has its start and its end, a decimal its digits as a word and, as its end,
    how many of them come after the point.
    """

    tags: Array
    words: Array
    ends: Array


@kernel
def count_lines(buffer: Array, size: int) -> int:
    """Return how many lines the first `size` bytes have, the last one with or without its end."""
    count = 0
    at = address_of(buffer)
    end = at + size
    while at + BLOCK <= end:
        count += bits(newlines(at))
        at += BLOCK
    if at < end:
        count += bits(newlines(at) & ((1 << (end - at)) - 1))
    if size > 0 and byte_at(end - 1) != _NEWLINE:
        count += 1
    return count


# -- Keys --------------------------------------------------------------------------------------------------------------

_Tree: TypeAlias = tuple[int, int, int, int, int]
"""The addresses of a tree's nodes, texts, table and counts, and the length of the table."""


@inlined
def _tree_of(keys: Keys) -> _Tree:
    nodes, table = address_of(keys.nodes), address_of(keys.table)
    return nodes, address_of(keys.texts), table, address_of(keys.counts), len(keys.table)


@inlined
def _is_key(at: int, key: int, length: int) -> bool:
    while length > BLOCK:
        if differences(at, key) != 0:
            return False
        at += BLOCK
        key += BLOCK
        length -= BLOCK
    return differences(at, key) & ((1 << length) - 1) == 0


@piece
def _plant(at: int, length: int, parent: int, tree: _Tree) -> int:
    """Return the node of a key with its closing quote, which is made if there is none yet; 0 if there is no room."""
    nodes, texts, table, counts, slots = tree
    code = (_HASH_START ^ np.uint64(parent)) * _HASH_FACTOR
    for place in range(at, at + length - 1):
        code = (code ^ np.uint64(byte_at(place))) * _HASH_FACTOR
    slot: Any = np.int64(code >> np.uint64(33)) & (slots - 1)
    for _ in range(_PROBES_MAX):
        node = get(table, slot)
        fields = nodes + node * NODE_FIELDS * 8
        if node == 0:
            node, offset = get(counts, 0), get(counts, 1)
            if node == get(counts, 2) or offset + length > get(counts, 3):
                return 0
            put(counts, 0, node + 1)
            put(counts, 1, offset + length)
            for place in range(length):
                put_byte(texts + offset + place, byte_at(at + place))
            fields = nodes + node * NODE_FIELDS * 8
            for field in range(NODE_FIELDS):
                put(fields, field, 0)
            put(fields, _OFFSET, offset)
            put(fields, _LENGTH, length)
            put(fields, _PARENT, parent)
            put(fields, COLUMN, -1)
            put(table, slot, node)
            return node
        alike = get(fields, _PARENT) == parent and get(fields, _LENGTH) == length
        if alike and _is_key(at, texts + get(fields, _OFFSET), length):
            return node
        slot = (slot + 1) & (slots - 1)
    return 0


@kernel
def plant_key(key: Array, length: int, parent: int, keys: Keys) -> int:
    """Return the node of a key with its closing quote and PADDING behind it; 0 if there is no room for it."""
    return int(_plant(address_of(key), length, parent, _tree_of(keys)))


@piece
def _find_key(at: int, parent: int, tree: _Tree) -> tuple[int, int]:
    """Return (node of the key that starts behind its quote, place behind the closing quote).

    The node is -1 for a doubtful key, 0 if there is no room.
    """
    end, behind = read_text(at)
    if end != behind - 1 or end == at or end - at > KEY_MAX:  # an escape makes the text shorter
        return -1, at
    return _plant(at, behind - at, parent, tree), behind


@piece
def _forget(tree: _Tree) -> None:
    """Forget the keys that were learnt, so that ever new keys do not make all lines doubtful."""
    nodes, _, table, counts, slots = tree
    known = get(counts, 4)
    for slot in range(slots):
        if get(table, slot) >= known:
            put(table, slot, 0)
    for node in range(known):
        put(nodes, node * NODE_FIELDS + _FIRST, 0)
        put(nodes, node * NODE_FIELDS + _NEXT, 0)
    put(counts, 0, known)
    put(counts, 1, get(counts, 5))


# -- Instants ----------------------------------------------------------------------------------------------------------


@piece
def _read_digits(at: int, length: int) -> int:
    """Return a number of so many digits; a value far below 0 if one of them is none."""
    number = 0
    for place in range(at, at + length):
        digit = byte_at(place) - _ZERO
        number = number * 10 + digit if 0 <= digit <= 9 else -(10**9)
    return number


@piece
def _read_instant(start: int, end: int) -> tuple[bool, int]:
    """Return (whether it is certain, microseconds since 1970) of a date or a time.

    A time has seconds, and Z, an offset or no zone.
    """
    length = end - start
    if length < 10 or byte_at(start + 4) != _MINUS or byte_at(start + 7) != _MINUS:
        return False, 0
    year, month = _read_digits(start, 4), _read_digits(start + 5, 2)
    day = _read_digits(start + 8, 2)
    if not (2 <= year <= 9998 and 1 <= month <= 12 and day >= 1):  # at the ends an offset may leave the years
        return False, 0
    if day > 28:
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        days = 28 + leap if month == 2 else 30 + ((month + month // 8) & 1)
        if day > days:
            return False, 0
    shifted = year - (month <= 2)  # years that start in March, so that the odd day comes last
    since_march = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    whole_days = shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + since_march - 719468
    if length == 10:
        return True, whole_days * 86_400_000_000
    middle = byte_at(start + 10)
    if length < 19 or (middle != _UPPER_T and middle != _SPACE):
        return False, 0
    if byte_at(start + 13) != _COLON or byte_at(start + 16) != _COLON:
        return False, 0
    hour, minute = _read_digits(start + 11, 2), _read_digits(start + 14, 2)
    second = _read_digits(start + 17, 2)
    if not (0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 59):
        return False, 0
    at = start + 19
    micros = 0
    if at < end and byte_at(at) == _POINT:
        at += 1
        unit = 100_000
        while at < end and unit > 0 and 0 <= byte_at(at) - _ZERO <= 9:
            micros += unit * (byte_at(at) - _ZERO)
            unit //= 10
            at += 1
        if unit == 100_000:
            return False, 0
    offset = 0
    if at < end and byte_at(at) == _UPPER_Z:
        at += 1
    elif end - at == 6 and byte_at(at + 3) == _COLON:
        sign = byte_at(at)
        hours, minutes = _read_digits(at + 1, 2), _read_digits(at + 4, 2)
        offset = hours * 60 + minutes
        if not (hours >= 0 and 0 <= minutes <= 59 and offset <= 18 * 60) or (sign != _PLUS and sign != _MINUS):
            return False, 0
        if sign == _MINUS:
            offset = -offset
        at += 6
    if at != end:
        return False, 0
    seconds = whole_days * 86_400 + hour * 3600 + (minute - offset) * 60 + second
    return True, seconds * 1_000_000 + micros


# -- Lines -------------------------------------------------------------------------------------------------------------


@piece
def _scan_object(base: int, at: int, row: int, rows: int, tree: _Tree, tags: int, words: int, ends: int) -> int:
    """Return the place behind the event that starts behind its brace; -1: doubtful, -2: no room for its keys.

    Texts are counted from the base. The arrays of cells have so many rows.
    """
    nodes, texts = tree[0], tree[1]
    parent = depth = 0
    last, link = nodes, _FIRST  # of which node, in which field to look which key comes next
    while True:
        byte, at = skip_space(at)
        if byte == _QUOTE:
            node = get(last, link)
            fields = nodes + node * NODE_FIELDS * 8
            length = get(fields, _LENGTH)
            if length > 0 and _is_key(at + 1, texts + get(fields, _OFFSET), length):  # the root has no length
                at += 1 + length
            else:
                node, at = _find_key(at + 1, parent, tree)
                if node <= 0:
                    return -1 if node < 0 else -2
                fields = nodes + node * NODE_FIELDS * 8
                put(last, link, node)
            if get(fields, _STAMP) == row + 1:
                return -1
            put(fields, _STAMP, row + 1)
            byte, at = skip_space(at)
            if byte != _COLON:
                return -1
            byte, at = skip_space(at + 1)
            mode, column = get(fields, MODE), get(fields, COLUMN)
            cell = column * rows + row
            word: Any = 0
            tag = end = 0
            if byte == _QUOTE:
                start = at + 1
                end, at = read_text(start)
                if end < 0:
                    return -1
                if mode == 0 or mode == _AS_STRING:
                    tag, word, end = _TEXT, start - base, end - base
                elif mode == _AS_TIMESTAMP:
                    certain, word = _read_instant(start, end)
                    if not certain:
                        return -1
                    tag, end = _INSTANT, 0
                else:
                    return -1
            elif byte == _MINUS or _ZERO <= byte <= _ZERO + 9:
                minus = byte == _MINUS
                at, digits, fraction, exponent, whole = read_number(at + minus)
                if at < 0:
                    return -1
                if mode == _AS_FLOAT or (mode == 0 and not whole):
                    if whole and digits > _EXACT_MAX:
                        return -1
                    certain, double = read_double(digits, exponent - fraction)
                    if not certain:
                        return -1
                    if column >= 0:
                        put_byte(tags + cell, _FLOAT)
                        put_double(words, cell, -double if minus else double)
                elif digits > _INTEGER_MAX:
                    return -1
                else:
                    word = -np.int64(digits) if minus else np.int64(digits)
                    if mode == 0 or (mode == _AS_INTEGER and whole):
                        tag = _INTEGER
                    elif mode == _AS_DECIMAL and exponent == 0 and fraction < 19:
                        tag, end = _DECIMAL, fraction
                    else:
                        return -1
            elif byte == _OPEN:
                if (mode != 0 and mode != _AS_OBJECT) or depth == _DEPTH_MAX:
                    return -1
                if column >= 0:
                    put_byte(tags + cell, _OTHER)
                parent = node
                depth += 1
                last, link = fields, _FIRST
                at += 1
                continue
            else:
                letters = get(at, 0)
                if letters & 0xFFFFFFFF == _NULL:
                    at += 4
                elif mode != 0 and mode != _AS_BOOLEAN:
                    return -1
                elif letters & 0xFFFFFFFF == _TRUE:
                    at += 4
                    tag, word = _BOOLEAN, 1
                elif letters & 0xFFFFFFFFFF == _FALSE:
                    at += 5
                    tag = _BOOLEAN
                else:
                    return -1
            if tag != 0 and column >= 0:
                put_byte(tags + cell, tag)
                put(words, cell, word)
                if end != 0:
                    put(ends, cell, end)
            last = fields
            byte, at = skip_space(at)
        elif byte != _CLOSE or link == _NEXT:  # a comma before a brace
            return -1
        while byte == _CLOSE:
            if parent == 0:
                return at + 1
            last = nodes + parent * NODE_FIELDS * 8
            parent = get(last, _PARENT)
            depth -= 1
            byte, at = skip_space(at + 1)
        if byte != _COMMA:
            return -1
        link = _NEXT
        at += 1


@kernel
def scan_lines(
    data: Array, buffer: Array, start: int, keys: Keys, cells: Cells, lines: Array, doubtful: Array
) -> tuple[int, int]:
    """Return (rows, doubtful rows) of the data; `lines` gets the number, the start and the end of each row's line.

    The buffer is a padded copy of the data in which texts with escapes are replaced by their meaning.
    """
    tree = _tree_of(keys)
    tags, words, ends = address_of(cells.tags), address_of(cells.words), address_of(cells.ends)
    base = address_of(buffer)
    rows = doubts = number = 0
    at = start
    while at < len(data):
        line = at
        number += 1
        byte, place = skip_space(base + at)
        at = place - base
        if byte == _NEWLINE:
            at += 1
            continue
        behind = -1
        if byte == _OPEN:
            behind = _scan_object(base, place + 1, rows, len(lines), tree, tags, words, ends)
            if behind >= 0:
                byte, place = skip_space(behind)
                at = place - base
                if byte != _NEWLINE:
                    behind = -1
        if behind < 0:
            if behind == -2:
                _forget(tree)
            for column in range(len(cells.tags)):
                cells.tags[column, rows] = 0
                cells.words[column, rows] = 0
                cells.ends[column, rows] = 0
            at = line
            blank = True
            while at < len(data) and data[at] != _NEWLINE:  # an escape may have put one into the buffer
                blank &= _BLANK[data[at]]
                at += 1
            if blank:
                at += 1
                continue
            doubtful[doubts] = rows
            doubts += 1
        lines[rows, 0], lines[rows, 1], lines[rows, 2] = number, line, at
        rows += 1
        at += 1
    return rows, doubts
