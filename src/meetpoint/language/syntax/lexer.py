"""From a filter's text to tokens, and what is said of characters that are not part of the language.

One regular expression, possessive and anchored, reads the text once from left to right. A token keeps its offsets.
"""

from __future__ import annotations

import re
from typing import Literal as OneOf
from typing import NamedTuple

from meetpoint.errors import FilterError, LimitError
from meetpoint.language.syntax.literals import NUMBER, STRING

__all__ = ["QUOTED_NAME", "TEXT_LENGTH_MAX", "Token", "check_text", "tokenize"]

TEXT_LENGTH_MAX = 65_536
"""Characters of one filter."""


class Token(NamedTuple):
    """One token; `word` is its upper-case spelling where it is a plain word, else empty."""

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
    """Refuse what is not text at all, before a character of it is read."""
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
    """All tokens of a text, closed by one of sort `end`."""
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
