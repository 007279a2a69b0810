r"""Literals: how numbers, strings and timestamps are written in a filter.

The regular expressions here are the only description of a literal's extent; the lexer reads by NUMBER and STRING, the
shape cache splits by LITERAL, and a test holds them together. They are possessive: no input makes them backtrack.

Strings are Spark's: in single or double quotes, the quote doubled or escaped, `\n`-like escapes, `\u0041`,
`\U0001F600`, octal `\101`; `\%` and `\_` keep their backslash, since LIKE reads it.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from decimal import Decimal

from meetpoint.language.timestamps import TimestampError, parse_timestamp
from meetpoint.language.values import DIGITS_MAX

__all__ = ["LITERAL", "NUMBER", "STRING", "BadLiteralError", "read_number", "read_string", "read_timestamp"]

_EXPONENT = r"(?:[eE][+-]?[0-9]++)?"
_SINGLE = r"(?:[^'\\]++|\\.|'')*+"
_DOUBLE = r'(?:[^"\\]++|\\.|"")*+'

NUMBER = rf"(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++){_EXPONENT}"
STRING = rf"""'{_SINGLE}'|"{_DOUBLE}\""""

# A string, or a number that no word or dot precedes. Spelt so that it begins with one set of characters, which the
# regular expression engine looks for three times as fast as for an alternative of STRING and NUMBER. A string that is
# never closed runs to the end of the text, lest it be looked for again from every quote within it.
LITERAL = (
    rf"""['"0-9.](?:(?<='){_SINGLE}(?:'|\\?\Z)|(?<="){_DOUBLE}(?:"|\\?\Z)"""
    rf"|(?<=[0-9])(?<![\w.][0-9])[0-9]*+(?:\.[0-9]*+)?{_EXPONENT}|(?<=\.)(?<![\w.]\.)[0-9]++{_EXPONENT})"
)

_EXPONENT_DIGITS_MAX = 4

_ESCAPE = re.compile(r"\\(?:([01][0-7]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_NAMED_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


class BadLiteralError(ValueError):
    """A literal of the right extent that cannot be read: (problem, hint)."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem, hint)
        self.problem = problem
        self.hint = hint


def read_number(text: str, negative: bool = False) -> int | Decimal:
    """The exact number that a literal's text names."""
    if len(text) <= DIGITS_MAX and "e" not in text and "E" not in text:
        if text.isdigit():
            return -int(text) if negative else int(text)
        number = Decimal(text)
        if not number:
            return 0  # a zero without a sign: -0.0 and 0 are one literal
        return number.copy_negate() if negative else number
    mantissa, has_exponent, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = len((whole + fraction).lstrip("0"))
    if max(digits, len(fraction)) > DIGITS_MAX:
        raise BadLiteralError(
            f"the number has {max(digits, len(fraction))} digits, and at most {DIGITS_MAX} are exact", "shorten it"
        )
    if has_exponent and len(exponent.lstrip("+-0")) > _EXPONENT_DIGITS_MAX:
        raise BadLiteralError("the exponent is out of range", "it goes from -324 to 308")
    number = Decimal(text)
    if not number:
        return 0
    if not math.isfinite(float(number)):
        raise BadLiteralError("the number is too large", "the largest is 1.7976931348623157E308")
    if not float(number):
        raise BadLiteralError("the number is too small", "the smallest above zero is 5E-324; write 0")
    return number.copy_negate() if negative else number


def read_string(text: str) -> str:
    """The characters that a quoted literal names."""
    quote = text[0]
    body = text[1:-1]
    if "\\" not in body:
        return body.replace(quote + quote, quote) if quote in body else body
    pieces: list[str] = []
    at = 0
    for match in _ESCAPE.finditer(body):
        pieces.append(body[at : match.start()].replace(quote + quote, quote))
        pieces.append(_unescape(match))
        at = match.end()
    pieces.append(body[at:].replace(quote + quote, quote))
    joined = "".join(pieces)
    try:  # two \u escapes may spell one character as a surrogate pair
        return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise BadLiteralError(
            "the string names half of a surrogate pair", r"write the character itself, or \U and eight digits"
        ) from None


def _unescape(match: re.Match[str]) -> str:
    octal, short, long, other = match.groups()
    if octal:
        return chr(int(octal, 8))
    if short:
        return chr(int(short, 16))
    if long:
        if int(long, 16) > 0x10FFFF:
            raise BadLiteralError(f"\\U{long} is not a Unicode character", r"the last one is \U0010FFFF")
        return chr(int(long, 16))
    return _NAMED_ESCAPES.get(other, other)


def read_timestamp(text: str) -> datetime:
    """The instant that the quoted text after TIMESTAMP names."""
    try:
        return parse_timestamp(read_string(text))
    except TimestampError as error:
        raise BadLiteralError(error.problem, error.hint) from None
