"""The reader of many filters at once, from the MessagePack that msgspec writes of their normal forms.

Python reads no object in less than some tenths of a microsecond, and a filter is a dozen of them. Msgspec writes all of
them as bytes in less time than one step of a loop takes, and here the bytes are read. A map begins with its tag, and
its fields follow in the order in which the class has them, so that their names are skipped.
"""

from __future__ import annotations

import numpy as np

from meetpoint.matching.index.kernels.jit import inlined, kernel, piece

__all__ = [
    "BACK", "HIGH", "HIGH_AFTER", "LOW", "LOW_AFTER", "NUMBER", "POINT", "RECORD_BYTES", "SUBSTRING", "TEXT", "TEXTS",
    "read_filters",
]  # fmt: skip

NUMBER, TEXT, BACK, SUBSTRING = range(4)
"""Sorts of constraints: a range of numbers, of texts, of texts read backwards, or that a text contains another."""
LOW, LOW_AFTER, HIGH, HIGH_AFTER, POINT = 1, 2, 4, 8, 16
"""Flags of a range: it has a lower cut, which lies after its number, and an upper one, likewise; it nests."""
TEXTS = 3
"""Texts of a constraint: the attribute's name, then its lower cut or the contained text, and its upper cut."""
RECORD_BYTES = 48
"""A lower bound of the bytes of a constraint that can be read here."""

_NIL, _TRUE = 0xC0, 0xC3
_NUMBER_SET, _TEXT_SET = (0x83, 9, ord("N")), (0x84, 7, ord("T"))
"""The number of fields, the length of the tag, and its first letter."""
_SURE_DIGITS = 15
_POWERS = np.array([10.0**n for n in range(_SURE_DIGITS + 1)])
_WHOLE = 2**53


@inlined
def _big_endian(data, at, size):
    value = np.uint64(0)
    for i in range(at, at + size):
        value = value << np.uint64(8) | np.uint64(data[i])
    return value


@piece
def _sized(data, at):
    """Return how long a text, an array or a map is, and where its contents begin."""
    byte = data[at]
    if byte < 0xA0:
        return np.int64(byte & 15), at + 1
    if byte < 0xC0:
        return np.int64(byte & 31), at + 1
    if byte == 0xD9:
        return np.int64(data[at + 1]), at + 2
    size = 2 if byte == 0xDA or byte == 0xDC or byte == 0xDE else 4
    return np.int64(_big_endian(data, at + 1, size)), at + 1 + size


@inlined
def _after_name(data, at):
    """Return where the value of a field begins, given where its name does, which is short."""
    return at + 1 + (data[at] & 31)


@piece
def _after(data, at):
    """Return where any value ends."""
    pending = 1
    while pending > 0:
        pending -= 1
        byte = data[at]
        if byte < 0x80 or byte >= 0xE0 or 0xC0 <= byte <= 0xC3:
            at += 1
        elif byte < 0xC0 or byte >= 0xD9:
            length, at = _sized(data, at)
            if 0xA0 <= byte < 0xC0 or 0xD9 <= byte <= 0xDB:
                at += length
            else:
                pending += 2 * length if byte < 0x90 or byte >= 0xDE else length
        elif byte <= 0xC6:  # bytes
            size = 1 << (byte - 0xC4)
            at += 1 + size + np.int64(_big_endian(data, at + 1, size))
        elif byte <= 0xC9:  # extensions: timestamps are such
            size = 1 << (byte - 0xC7)
            at += 2 + size + np.int64(_big_endian(data, at + 1, size))
        elif byte <= 0xCB:
            at += 5 if byte == 0xCA else 9
        elif byte <= 0xD3:
            at += 1 + (1 << ((byte - 0xCC) & 3))
        else:
            at += 2 + (1 << (byte - 0xD4))
    return at


@piece
def _number(data, at):
    """Read a number: return whether it is the shortest spelling of a double, which one, and where it ends."""
    byte = data[at]
    if byte < 0x80:
        return True, np.float64(byte), at + 1
    if byte >= 0xE0:
        return True, np.float64(byte) - 256.0, at + 1
    if 0xCC <= byte <= 0xD3:
        size = 1 << ((byte - 0xCC) & 3)
        bits = _big_endian(data, at + 1, size)
        if byte < 0xD0:
            return bits <= np.uint64(_WHOLE), np.float64(bits), at + 1 + size
        unused = np.int64(64 - 8 * size)
        whole = np.int64(bits << np.uint64(unused)) >> unused
        return -_WHOLE <= whole <= _WHOLE, np.float64(whole), at + 1 + size
    if 0xA0 < byte <= 0xA0 + _SURE_DIGITS:  # a decimal
        end = at + 1 + (byte & 31)
        at += 1
        negative = data[at] == ord("-")
        if negative:
            at += 1
        whole, digits, behind = np.int64(0), 0, -1
        for i in range(at, end):
            if data[i] == ord(".") and behind < 0:
                behind = 0
            elif ord("0") <= data[i] <= ord("9"):
                whole = 10 * whole + (data[i] - ord("0"))
                digits += 1
                behind += behind >= 0
            else:
                return False, 0.0, end
        value = np.float64(whole) / _POWERS[max(behind, 0)]  # both are exact, so that the quotient is the nearest
        return digits > 0, -value if negative and whole else value, end
    return False, 0.0, at


@piece
def _interval(data, at, bounds):
    """Read a range of numbers, its bounds into a row of two; return its flags or -1, and where it ends."""
    flags = np.int64(0)
    for side in range(2):
        at = _after_name(data, at + (side == 0))
        bounds[side] = 0.0
        if data[at] == _NIL:
            at += 1
        else:
            good, bounds[side], at = _number(data, at)
            if not good:
                return np.int64(-1), at
            flags |= LOW if side == 0 else HIGH
        at = _after_name(data, at)
        is_open = data[at] == _TRUE
        if flags & LOW and side == 0 and is_open:
            flags |= LOW_AFTER
        elif flags & HIGH and side == 1 and not is_open:
            flags |= HIGH_AFTER
        at += 1
    if (flags & LOW != 0) == (flags & HIGH != 0) and bounds[0] == bounds[1]:
        flags |= POINT
    return flags, at


@inlined
def _copied(data, begin, end, texts, filled):
    for i in range(begin, end):
        texts[filled + i - begin] = data[i]
    return filled + end - begin


@piece
def _text_interval(data, at, texts, offsets, filled):
    """Read a range of texts, its cuts behind the filled part.

    Returns its flags or -1, where it ends, and how much is filled then.
    """
    flags = np.int64(0)
    begin = filled
    low_at = low_length = np.int64(-1)
    same = False
    for side in range(2):
        at = _after_name(data, at + (side == 0))
        there = data[at] != _NIL
        length = np.int64(0)
        if there:
            length, at = _sized(data, at)
            if side == 0:
                low_at, low_length = at, length
            elif low_at >= 0 and length == low_length:
                same = True
                for i in range(length):
                    same = same and data[low_at + i] == data[at + i]
            filled = _copied(data, at, at + length, texts, filled)
            at += length
        else:
            at += 1
        at = _after_name(data, at)
        is_open = data[at] == _TRUE
        at += 1
        if is_open if side == 0 else there and not is_open:
            texts[filled] = 0  # the first text behind it
            filled += 1
        if side == 0:
            flags |= LOW if filled > begin else 0
            offsets[1] = filled
        else:
            flags |= HIGH if there else 0
            offsets[2] = filled
    if same or flags == 0:
        flags |= POINT
    if flags & LOW and flags & HIGH:
        middle = offsets[1]
        for i in range(min(middle - begin, filled - middle)):
            if texts[begin + i] != texts[middle + i]:
                return (flags if texts[begin + i] < texts[middle + i] else np.int64(-1)), at, filled
        if middle - begin >= filled - middle:  # no text lies between them
            return np.int64(-1), at, filled
    return flags, at, filled


@piece
def _affix(data, begin, end, backwards, texts, offsets, filled):
    """Write the cuts around all texts with a beginning, or an end; return how much is filled then, or -1.

    The last byte of the upper cut is larger by one; -1 if that is no byte of a character of the same length.
    """
    start = filled
    if backwards:
        stop = end
        while stop > begin:
            head = stop - 1
            while head > begin and (data[head] & 0xC0) == 0x80:
                head -= 1
            filled = _copied(data, head, stop, texts, filled)
            stop = head
    else:
        filled = _copied(data, begin, end, texts, filled)
    last = texts[filled - 1]
    if last == 0x7F or last == 0xBF:
        return np.int64(-1)
    offsets[1] = filled
    filled = _copied(texts, start, filled, texts, filled)
    texts[filled - 1] = last + 1
    offsets[2] = filled
    return filled


@piece
def _like(data, at, texts, offsets, filled):
    """Read the only pattern of a constraint; return its sort or -1, and how much is filled then."""
    count, at = _sized(data, _after_name(data, at + 1))
    first, first_at = _sized(data, at)
    second, second_at = _sized(data, first_at + first)
    if count == 2 and (first == 0) != (second == 0):
        backwards = first == 0
        begin, length = (second_at, second) if backwards else (first_at, first)
        filled = _affix(data, begin, begin + length, backwards, texts, offsets, filled)
        return (np.int64(-1) if filled < 0 else np.int64(BACK if backwards else TEXT)), filled
    if count == 3 and first == 0 and _sized(data, second_at + second)[0] == 0:
        filled = _copied(data, second_at, second_at + second, texts, filled)
        offsets[1] = offsets[2] = filled
        return np.int64(SUBSTRING), filled
    return np.int64(-1), filled


@piece
def _text_set(data, at, texts, offsets, filled):
    """Read a constraint on texts; return its sort or -1, its flags, where it ends, and how much is filled then."""
    begin = filled
    count, at = _sized(data, at)
    if count != 1:
        return np.int64(-1), np.int64(0), at, filled
    flags, at, filled = _text_interval(data, at, texts, offsets, filled)
    patterns, like_at = _sized(data, _after_name(data, at))
    behind = like_at if patterns == 0 else _after(data, _after_name(data, at))
    unlike, end = _sized(data, _after_name(data, behind))
    if flags < 0 or patterns > 1 or unlike != 0:
        return np.int64(-1), np.int64(0), at, filled
    if patterns == 0:
        return np.int64(TEXT), flags, end, filled
    if flags != POINT:  # not every text
        return np.int64(-1), np.int64(0), at, filled
    sort, filled = _like(data, like_at, texts, offsets, begin)
    return sort, np.int64(LOW | HIGH | POINT), end, filled


@piece
def _constraint(data, at, texts, offsets, filled, bounds):
    """Read a name and the constraint on its attribute.

    Returns its sort or -1, its flags, where it ends, and how much is filled then.
    """
    length, at = _sized(data, at)
    filled = _copied(data, at, at + length, texts, filled)
    offsets[0] = offsets[1] = offsets[2] = filled
    at += length
    fields = data[at]
    at = _after_name(data, at + 1)
    tag, tag_at = _sized(data, at)
    begins = data[tag_at]
    at = _after_name(data, tag_at + tag)
    if fields == _NUMBER_SET[0] and tag == _NUMBER_SET[1] and begins == _NUMBER_SET[2]:
        count, at = _sized(data, at)
        if count == 1:
            flags, at = _interval(data, at, bounds)
            end = _after_name(data, at)
            if flags >= 0 and data[end] == _NIL:
                return np.int64(NUMBER), flags, end + 1, filled
    elif fields == _TEXT_SET[0] and tag == _TEXT_SET[1] and begins == _TEXT_SET[2]:
        return _text_set(data, at, texts, offsets, filled)
    return np.int64(-1), np.int64(0), at, filled


@kernel
def read_filters(data, odd, owner, conjunction, sort, flags, bounds, offsets, texts):
    """Read the constraints of filters, one after the other, and mark odd filters, none of whose constraints are read.

    A filter is not odd if it has one conjunction whose constraints are each one range of plain numbers or of texts, one
    prefix, one suffix or one substring; a filter that nothing satisfies has no constraints. Returns how many
    conjunctions and constraints there are. Constraint i has the texts from `offsets[TEXTS * i]` on.
    """
    filters, at = _sized(data, 0)
    conjunctions = records = 0
    offsets[0] = 0
    for number in range(filters):
        begin = at
        count, at = _sized(data, at)
        odd[number] = count > 1
        if count == 1:
            constraints, at = _sized(data, _after_name(data, at + 1))
            odd[number] = constraints == 0
            k = records
            for _ in range(constraints):
                here = offsets[TEXTS * k :]
                sort[k], flags[k], at, _ = _constraint(data, at + 1, texts, here[1:], here[0], bounds[k])
                if sort[k] < 0:
                    odd[number] = True
                    break
                conjunction[k] = conjunctions
                k += 1
            if not odd[number]:
                owner[conjunctions] = number
                conjunctions += 1
                records = k
        if odd[number]:
            at = _after(data, begin)
    return conjunctions, records
