"""Tokens of JSON in machine code: blocks of bytes, numbers, texts.

Each reader accepts only what it has read exactly as Python would; everything else is doubtful and left to Python.

Places are addresses, since numba counts references when arrays are passed on, which takes longer than reading a token.
Data ends in `PADDING` line ends, so that 32 bytes can be read from any place of it: no token contains a line end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from meetpoint.matching.index.kernels.jit import inlined, piece

__all__ = [
    "BLOCK",
    "PADDING",
    "Array",
    "bits",
    "byte_at",
    "differences",
    "get",
    "newlines",
    "put",
    "put_byte",
    "put_double",
    "read_double",
    "read_number",
    "read_text",
    "skip_space",
]

Array: TypeAlias = "np.ndarray[Any, Any]"

BLOCK = 32
PADDING = 64
"""Line ends that follow the data."""

_DIGITS_MAX = 19
_EXPONENT_DIGITS_MAX = 4

_NEWLINE, _SPACE, _QUOTE, _BACKSLASH = (ord(c) for c in '\n "\\')
_SPACES = sum(1 << ord(c) for c in " \t\r")
_MINUS, _PLUS, _POINT, _ZERO, _LOWER_A, _LOWER_E, _LOWER_U = (ord(c) for c in "-+.0aeu")
_U0, _U1, _U10 = np.uint64(0), np.uint64(1), np.uint64(10)
_EXACT_MAX = np.uint64(2**53)


# -- Machine words: what numba has no words for ------------------------------------------------------------------------

_BYTE, _LONG, _WIDE, _DOUBLE = ir.IntType(8), ir.IntType(64), ir.IntType(128), ir.DoubleType()
_BYTES = ir.VectorType(_BYTE, BLOCK)
_YES = ir.Constant(ir.IntType(1), 1)


def _operation(signature: Any, operation: Callable[..., Any]) -> Any:
    """Return an intrinsic that takes and gives words."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return operation(builder, *args)

    match len(signature.args):
        case 1:
            return intrinsic(lambda _, first: (signature, generate))
        case 2:
            return intrinsic(lambda _, first, second: (signature, generate))
    return intrinsic(lambda _, first, second, third: (signature, generate))


def _load(builder: Any, address: Any, type_: Any) -> Any:
    return builder.load(builder.inttoptr(address, type_.as_pointer()), typ=type_, align=1)


def _get(builder: Any, address: Any, index: Any) -> Any:
    return _load(builder, builder.add(address, builder.shl(index, ir.Constant(_LONG, 3))), _LONG)


def _put(builder: Any, address: Any, index: Any, value: Any) -> Any:
    place = builder.add(address, builder.shl(index, ir.Constant(_LONG, 3)))
    builder.store(value, builder.inttoptr(place, value.type.as_pointer()))
    return value


def _put_byte(builder: Any, address: Any, value: Any) -> Any:
    builder.store(builder.trunc(value, _BYTE), builder.inttoptr(address, _BYTE.as_pointer()))
    return value


def _compare(builder: Any, sign: str, block: Any, byte: int) -> Any:
    return builder.icmp_unsigned(sign, block, ir.Constant(_BYTES, [byte] * BLOCK))


def _mask(builder: Any, lanes: Any) -> Any:
    return builder.zext(builder.bitcast(lanes, ir.IntType(BLOCK)), _LONG)


def _block_test(test: Callable[[Any, Any], Any]) -> Any:
    """Return an intrinsic that gives a bit for each of 32 bytes that passes a test."""
    return _operation(
        types.int64(types.int64),
        lambda builder, address: _mask(builder, test(builder, _load(builder, address, _BYTES))),
    )


def _differing_lanes(builder: Any, left: Any, right: Any) -> Any:
    lanes = builder.icmp_unsigned("!=", _load(builder, left, _BYTES), _load(builder, right, _BYTES))
    return _mask(builder, lanes)


def _stop_lanes(builder: Any, block: Any) -> Any:
    quotes = _compare(builder, "==", block, _QUOTE)
    backslashes = _compare(builder, "==", block, _BACKSLASH)
    return builder.or_(builder.or_(quotes, backslashes), _compare(builder, "<", block, _SPACE))


def _multiply(builder: Any, left: Any, right: Any) -> Any:
    product = builder.mul(builder.zext(left, _WIDE), builder.zext(right, _WIDE))
    return builder.trunc(builder.lshr(product, ir.Constant(_WIDE, 64)), _LONG)


byte_at: Callable[[int], int] = _operation(
    types.int64(types.int64), lambda builder, at: builder.zext(_load(builder, at, _BYTE), _LONG)
)
"""The byte at an address."""
get: Callable[[int, int], int] = _operation(types.int64(types.int64, types.int64), _get)
"""A word of an array of int64, by (address, index)."""
put = _operation(types.int64(types.int64, types.int64, types.int64), _put)
put_double = _operation(types.float64(types.int64, types.int64, types.float64), _put)
put_byte = _operation(types.int64(types.int64, types.int64), _put_byte)
differences: Callable[[int, int], int] = _operation(types.int64(types.int64, types.int64), _differing_lanes)
"""A bit for each of 32 bytes that differs from its counterpart among 32 others."""
_stops = _block_test(_stop_lanes)
"""A bit for each byte that ends a run of plain characters: a quote, a backslash, a control character."""
_uppers = _block_test(lambda builder, block: _compare(builder, ">=", block, 128))
"""A bit for each byte that is not ASCII."""
newlines: Callable[[int], int] = _block_test(lambda builder, block: _compare(builder, "==", block, _NEWLINE))
"""A bit for each byte that ends a line."""
_lowest = _operation(types.int64(types.int64), lambda builder, word: builder.cttz(word, _YES))
"""The place of the lowest bit that is set; there must be one."""
bits: Callable[[int], int] = _operation(types.int64(types.int64), lambda builder, word: builder.ctpop(word))
"""The number of bits that are set."""
_leading_zeros = _operation(types.uint64(types.uint64), lambda builder, word: builder.ctlz(word, _YES))
"""The number of bits that are clear above the highest that is set; there must be one."""
_high_product = _operation(types.uint64(types.uint64, types.uint64), _multiply)
"""The upper 64 bits of a product of 128."""
_double_of = _operation(types.float64(types.uint64), lambda builder, word: builder.bitcast(word, _DOUBLE))
"""The double of these 64 bits."""


@inlined
def skip_space(at: int) -> tuple[int, int]:
    """Return (the next byte that is not JSON's space, its place); a line's end is such a byte."""
    byte = byte_at(at)
    while byte <= _SPACE and _SPACES >> byte & 1:
        at += 1
        byte = byte_at(at)
    return byte, at


# -- Numbers -----------------------------------------------------------------------------------------------------------

_EACH = 0x0101010101010101
_POWER_MAX = 300
_ZEROS, _CARRIES, _HIGH_BITS, _PAIRS, _QUADS = (
    np.uint64(word) for word in (0x30 * _EACH, 0x76 * _EACH, 0x80 * _EACH, 0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF)
)
_TENS = np.array([10**exponent for exponent in range(9)], dtype=np.uint64)
_POWERS = np.array([10.0**exponent for exponent in range(23)])


def _power_words() -> Array:
    """Return the first 128 bits of the powers of ten from -300 to 300, rounded down.

    Each is a high and a low word.
    """
    words = np.empty((2 * _POWER_MAX + 1, 2), dtype=np.uint64)
    for exponent in range(-_POWER_MAX, _POWER_MAX + 1):
        power = 10 ** abs(exponent)
        bits = (power << 128) >> power.bit_length() if exponent >= 0 else (1 << (power.bit_length() + 127)) // power
        bits >>= bits.bit_length() - 128
        words[exponent + _POWER_MAX] = bits >> 64, bits & (2**64 - 1)
    return words


_POWER_WORDS = _power_words()


@inlined
def read_double(digits: Any, exponent: int) -> tuple[bool, float]:
    """Return whether the nearest double is certain, and the double nearest to digits * 10**exponent.

    The methods are those of Clinger 1990, and Eisel and Lemire 2020.
    """
    while digits > _EXACT_MAX and exponent < 0 and digits % _U10 == _U0:  # 9007199254740992.0
        digits //= _U10
        exponent += 1
    if digits <= _EXACT_MAX and -22 <= exponent <= 22:
        exact = np.float64(np.int64(digits))
        return True, exact * _POWERS[exponent] if exponent >= 0 else exact / _POWERS[-exponent]
    if digits == _U0:
        return True, 0.0
    if exponent < -_POWER_MAX or exponent > _POWER_MAX:
        return False, 0.0
    shift = _leading_zeros(digits)
    normal = digits << shift
    high_word, low_word = _POWER_WORDS[exponent + _POWER_MAX, 0], _POWER_WORDS[exponent + _POWER_MAX, 1]
    high, low = _high_product(normal, high_word), normal * high_word
    if high & np.uint64(0x1FF) == np.uint64(0x1FF) and low + normal < normal:  # the low word may matter
        more = _high_product(normal, low_word)
        merged = low + more
        if merged < low:
            high += _U1
        if high & np.uint64(0x1FF) == np.uint64(0x1FF) and merged + _U1 == _U0 and normal * low_word + normal < normal:
            return False, 0.0
        low = merged
    top = high >> np.uint64(63)
    mantissa = high >> (top + np.uint64(9))
    binary = ((217706 * exponent) >> 16) + 64 + 1023 - np.int64(shift) - np.int64(_U1 ^ top)
    if low == _U0 and high & np.uint64(0x1FF) == _U0 and mantissa & np.uint64(3) == _U1:  # half way between two
        return False, 0.0
    mantissa = (mantissa + (mantissa & _U1)) >> _U1
    if mantissa >> np.uint64(53) != _U0:
        mantissa >>= _U1
        binary += 1
    if binary < 1 or binary >= 0x7FF:
        return False, 0.0
    return True, _double_of((np.uint64(binary) << np.uint64(52)) | (mantissa & np.uint64(2**52 - 1)))


@inlined
def _read_run(at: int, before: Any) -> tuple[Any, int]:
    """Return (the number that digits before and the digits here make, how many are here), eight at a time."""
    number = before
    start = at
    while True:
        word = np.uint64(get(at, 0)) ^ _ZEROS
        others = ((word + _CARRIES) | word) & _HIGH_BITS  # a high bit where the first byte is no digit
        count = _lowest(np.int64(others)) >> 3 if others != _U0 else 8
        if count > 0:
            word <<= np.uint64(64 - 8 * count)
            word = (word * np.uint64(10 * 2**8 + 1)) >> np.uint64(8) & _PAIRS
            word = (word * np.uint64(100 * 2**16 + 1)) >> np.uint64(16) & _QUADS
            word = (word * np.uint64(10_000 * 2**32 + 1)) >> np.uint64(32)
            number = number * _TENS[count] + word
            at += count
        if count < 8:
            return number, at - start


@inlined
def read_number(at: int) -> tuple[int, Any, int, int, bool]:
    """Return (place behind it, digits, digits after the point, exponent, whether it is an integer).

    The place is -1 for a doubtful number.
    """
    first = at
    digits, length = _read_run(at, _U0)
    if length == 0 or (length > 1 and byte_at(at) == _ZERO):
        return -1, digits, 0, 0, False
    at += length
    fraction = 0
    whole = True
    byte = byte_at(at)
    if byte == _POINT:
        whole = False
        begin = at + 1
        digits, fraction = _read_run(begin, digits)
        if fraction == 0:
            return -1, digits, 0, 0, False
        at = begin + fraction
        byte = byte_at(at)
        length += fraction
        if length > _DIGITS_MAX and byte_at(first) == _ZERO:  # zeros in front of the others do not count
            length -= 1
            while length > _DIGITS_MAX and byte_at(begin) == _ZERO:
                begin += 1
                length -= 1
    if length > _DIGITS_MAX:
        return -1, digits, 0, 0, False
    exponent = 0
    if byte | 0x20 == _LOWER_E:
        whole = False
        at += 1
        byte = byte_at(at)
        below = byte == _MINUS
        if below or byte == _PLUS:
            at += 1
            byte = byte_at(at)
        begin = at
        while _ZERO <= byte <= _ZERO + 9 and at - begin <= _EXPONENT_DIGITS_MAX:
            exponent = exponent * 10 + byte - _ZERO
            at += 1
            byte = byte_at(at)
        if at == begin or at - begin > _EXPONENT_DIGITS_MAX:
            return -1, digits, 0, 0, False
        if below:
            exponent = -exponent
    return at, digits, fraction, exponent, whole


# -- Texts -------------------------------------------------------------------------------------------------------------

_ESCAPED = np.zeros(256, dtype=np.int64)
"""The meaning of a character behind a backslash; 0: none."""
for _name, _meant in zip('"\\/bfnrt', '"\\/\b\f\n\r\t', strict=True):
    _ESCAPED[ord(_name)] = ord(_meant)


@inlined
def read_text(start: int) -> tuple[int, int]:
    """Return (end of the text that starts behind its quote, place behind the closing quote); end -1: doubtful.

    A text with escapes is replaced by its meaning, in its place: that is never longer.
    """
    at = start
    upper = 0
    stops = _stops(at)
    while stops == 0:
        upper |= _uppers(at)
        at += BLOCK
        stops = _stops(at)
    plain = _lowest(stops)
    upper |= _uppers(at) & ((1 << plain) - 1)
    at += plain
    end = at
    byte = byte_at(at)
    if byte == _BACKSLASH:
        end, at = _unescape(at)
        upper = 1
    elif byte != _QUOTE:
        end = -1
    if upper != 0 and end >= 0 and not _is_utf8(start, end):
        end = -1
    return end, at + 1


@piece
def _unescape(at: int) -> tuple[int, int]:
    """Write a text from its first backslash on, unescaped.

    Returns (end of what is written, place of the closing quote); end -1: doubtful.
    """
    end = at
    while True:
        byte = byte_at(at)
        if byte == _QUOTE:
            return end, at
        if byte < _SPACE:
            return -1, at
        at += 1
        if byte == _BACKSLASH:
            byte = byte_at(at)
            at += 1
            if byte == _LOWER_U:
                end, at = _unescape_code(end, at)
                if end < 0:
                    return -1, at
                continue
            byte = _ESCAPED[byte]
            if byte == 0:
                return -1, at
        put_byte(end, byte)
        end += 1


@piece
def _unescape_code(end: int, at: int) -> tuple[int, int]:
    """Write the character of the next four hexadecimal digits, a surrogate with its other half."""
    code = _read_hex(at)
    at += 4
    if 0xD800 <= code < 0xDC00 and byte_at(at) == _BACKSLASH and byte_at(at + 1) == _LOWER_U:
        low = _read_hex(at + 2)
        at += 6
        if low < 0xDC00 or low > 0xDFFF:
            return -1, at
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
    if code < 0 or 0xD800 <= code <= 0xDFFF:
        return -1, at
    if code < 0x80:
        put_byte(end, code)
        return end + 1, at
    if code < 0x800:
        put_byte(end, 0xC0 | code >> 6)
        put_byte(end + 1, 0x80 | code & 0x3F)
        return end + 2, at
    if code < 0x10000:
        put_byte(end, 0xE0 | code >> 12)
        put_byte(end + 1, 0x80 | code >> 6 & 0x3F)
        put_byte(end + 2, 0x80 | code & 0x3F)
        return end + 3, at
    put_byte(end, 0xF0 | code >> 18)
    put_byte(end + 1, 0x80 | code >> 12 & 0x3F)
    put_byte(end + 2, 0x80 | code >> 6 & 0x3F)
    put_byte(end + 3, 0x80 | code & 0x3F)
    return end + 4, at


@piece
def _read_hex(at: int) -> int:
    code = 0
    for place in range(at, at + 4):
        byte = byte_at(place)
        if _ZERO <= byte <= _ZERO + 9:
            code = code << 4 | byte - _ZERO
        elif _LOWER_A <= byte | 0x20 <= _LOWER_A + 5:
            code = code << 4 | (byte | 0x20) - _LOWER_A + 10
        else:
            return -1
    return code


@piece
def _is_utf8(at: int, end: int) -> bool:
    while at < end:
        byte = byte_at(at)
        least, most = 0x80, 0xBF  # of the second byte
        if byte < 0x80:
            at += 1
            continue
        if 0xC2 <= byte < 0xE0:
            length = 2
        elif 0xE0 <= byte < 0xF0:
            length = 3
            if byte == 0xE0:
                least = 0xA0
            elif byte == 0xED:
                most = 0x9F
        elif 0xF0 <= byte < 0xF5:
            length = 4
            if byte == 0xF0:
                least = 0x90
            elif byte == 0xF4:
                most = 0x8F
        else:
            return False
        if at + length > end or not least <= byte_at(at + 1) <= most:
            return False
        for place in range(at + 2, at + length):
            if byte_at(place) & 0xC0 != 0x80:
                return False
        at += length
    return True
