r"""Tokens and literals of a filter's text, and errors for characters outside the language.

One regular expression, possessive and anchored, reads the text once from left to right. A token keeps its offsets.

The expressions for literals are the only description of a literal's extent. The lexer reads by NUMBER and STRING, the
shape cache splits by LITERAL, and a test compares the two. They are possessive: no input makes them backtrack.

Strings are Spark's: in single or double quotes, the quote doubled or escaped, `\n`-like escapes, `\u0041`,
`\U0001F600`, octal `\101`; `\%` and `\_` keep their backslash, since LIKE reads it.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from decimal import Decimal
from typing import Literal as OneOf
from typing import NamedTuple

from meetpoint.errors import FilterError, LimitError
from meetpoint.language.timestamps import TimestampError, parse_timestamp
from meetpoint.language.values import DIGITS_MAX

__all__ = [
    "LITERAL",
    "NUMBER",
    "QUOTED_NAME",
    "STRING",
    "TEXT_LENGTH_MAX",
    "BadLiteralError",
    "Token",
    "check_text",
    "read_number",
    "read_string",
    "read_timestamp",
    "tokenize",
]


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
    """A literal has the right extent and cannot be read: (problem, hint)."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem, hint)
        self.problem = problem
        self.hint = hint


def read_number(text: str, negative: bool = False) -> int | Decimal:
    """Return the exact number of a literal's text."""
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
    """Return the characters of a quoted literal."""
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
    """Return the instant of the quoted text after TIMESTAMP."""
    try:
        return parse_timestamp(read_string(text))
    except TimestampError as error:
        raise BadLiteralError(error.problem, error.hint) from None


TEXT_LENGTH_MAX = 65_536
"""Characters of one filter."""


class Token(NamedTuple):
    """A token; `word` is its upper-case spelling if it is a plain word, else empty."""

    sort: OneOf["word", "quoted", "number", "string", "sign", "end"]
    text: str
    word: str
    start: int
    end: int


QUOTED_NAME = r"`(?:[^`]|``)++`"

_TOKEN = re.compile(
    rf"(?P<word>[A-Za-z_][A-Za-z0-9_]*+)"
    rf"|(?P<number>{NUMBER})"
    rf"|(?P<string>{STRING})"
    rf"|(?P<quoted>{QUOTED_NAME})"
    rf"|(?P<space>[ \t\r\n]++)"
    rf"|(?P<wrong>--|/\*|\|\||::|->|``)"
    rf"|(?P<sign><=>|<=|>=|<>|!=|==|[=<>(),.+-])",
    re.DOTALL,
)

_VALUE_HINT = "compare one attribute with one literal, and compute the literal beforehand"
_WRONG: dict[str, tuple[str, str]] = {
    ";": ("a filter is one expression and has no ;", "remove it"),
    "--": ("comments are not part of a filter", "remove it; a negative number has one minus sign"),
    "/*": ("comments are not part of a filter", "remove it"),
    "?": ("parameters are not part of a filter", "write the value itself"),
    ":": ("parameters are not part of a filter", "write the value itself"),
    "$": ("parameters are not part of a filter", "write the value itself"),
    "@": ("parameters are not part of a filter", "write the value itself"),
    "[": ("arrays are not part of a filter", "address a nested attribute as a.b"),
    "]": ("arrays are not part of a filter", "address a nested attribute as a.b"),
    "{": ("parameters are not part of a filter", "write the value itself"),
    "}": ("parameters are not part of a filter", "write the value itself"),
    "!": ("! is not an operator here", "write NOT before a condition, or != between attribute and value"),
    "||": ("|| is not an operator here", "write OR between conditions"),
    "&": ("& is not an operator here", "write AND between conditions"),
    "|": ("| is not an operator here", "write OR between conditions"),
    "::": ("casts are not part of a filter", "write the literal in the attribute's own type"),
    "->": ("functions are not part of a filter", _VALUE_HINT),
    "'": ("the string is never closed", "add the closing ' (within a string a ' is written twice)"),
    '"': ("the string is never closed", 'add the closing " (within a string a " is written twice)'),
    "``": ("the name in backticks is empty", "write the name between the backticks"),
    "`": ("the name in backticks is never closed", "add the closing ` after the name"),
    **dict.fromkeys("*/%^~", ("arithmetic is not part of a filter", _VALUE_HINT)),
}


def check_text(text: str) -> None:
    """Refuse a text that is too long or no Unicode, before a character of it is read."""
    if not isinstance(text, str):
        raise FilterError(f"a filter is a string, and this is {text!r}", "write a condition", text="", start=0, end=0)
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise FilterError(
                "the filter holds a lone surrogate, which is not Unicode text",
                "repair its encoding",
                text=text,
                start=error.start,
                end=error.end,
            ) from None
    if len(text) > TEXT_LENGTH_MAX:
        raise LimitError(
            f"the filter has {len(text)} characters, and the limit is {TEXT_LENGTH_MAX}",
            "split it into several subscriptions",
            text=text,
            start=TEXT_LENGTH_MAX,
            end=len(text),
        )


def tokenize(text: str) -> list[Token]:
    """Return all tokens of a text, and at last one of sort `end`."""
    check_text(text)
    tokens: list[Token] = []
    at = 0
    match_at = _TOKEN.match
    while at < len(text):
        match = match_at(text, at)
        if match is None or match.lastgroup == "wrong":
            raise _wrong(text, at, match.group() if match else text[at])
        sort = match.lastgroup
        if sort != "space":
            piece = match.group()
            word = piece.upper() if sort == "word" else ""
            tokens.append(Token(sort, piece, word, at, match.end()))  # type: ignore[arg-type]
            if sort == "number":
                _refuse_suffix(text, at, match.end())
        at = match.end()
    tokens.append(Token("end", "", "", len(text), len(text)))
    return tokens


def _wrong(text: str, at: int, piece: str) -> FilterError:
    if piece in _WRONG:
        problem, hint = _WRONG[piece]
    elif piece.isalpha():
        problem, hint = f"{piece!r} cannot stand in a plain name", "write the name in backticks: `größe`"
    else:
        problem, hint = (
            f"{piece!r} is not part of the language",
            "remove it, or write a name that needs it in backticks",
        )
    end = len(text) if piece in ("'", '"', "`") else at + len(piece)
    return FilterError(problem, hint, text=text, start=at, end=end)


_WORD_TAIL = re.compile(r"[A-Za-z_0-9]++")


def _refuse_suffix(text: str, start: int, end: int) -> None:
    tail = _WORD_TAIL.match(text, end)
    if tail is None:
        return
    if tail.group().upper() in ("L", "S", "Y", "D", "F", "BD"):
        hint = "write the number without a suffix: it is exact as it stands"
    elif tail.group()[0] == "_" or (text[start:end] == "0" and tail.group()[0] in "xX"):
        hint = "write the number in decimal digits, without separators"
    else:
        hint = "put a space after the number, or write a name that begins with a digit in backticks"
    raise FilterError(
        f"{text[start : tail.end()]!r} is neither a number nor a name", hint, text=text, start=start, end=tail.end()
    )
