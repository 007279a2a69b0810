r"""LIKE patterns: `%` is any text, `_` any one character, an escape (a backslash unless said) makes the next one plain.

A pattern is kept as its pieces, the texts between the `%` signs: `OT%` is ("OT", ""), `%SE` is ("", "SE"), `N%E` is
("N", "E"), `%YS%` is ("", "YS", ""). Matching takes the first piece at the front, the last at the back, and each middle
one at its leftmost place after the one before: leftmost is never worse, so no choice is ever taken back. A piece with
`_` is looked for at all places at once (Baeza-Yates and Gonnet's Shift-And: a bit for each beginning of the piece that
the text read so far may end in), so that also a hostile pattern costs a few nanoseconds per character of the text and
64 of its own.

Within a piece `_` is held as ANY_CHAR, a lone surrogate, which no valid text contains.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

import msgspec

from meetpoint.language.syntax.literals import BadLiteralError, read_string

__all__ = [
    "ANY_CHAR",
    "WILD_LENGTH_MAX",
    "Pattern",
    "PatternSort",
    "check_escapes",
    "check_pattern",
    "parse_like",
    "read_pattern",
]

ANY_CHAR = "\udc5f"
WILD_LENGTH_MAX = 1_000
"""Characters of a pattern that has a `_`: where each of them may stand takes a bit for each other one."""


class PatternSort(StrEnum):
    """What a pattern asks of a text. PREFIX, SUFFIX, AFFIX and SUBSTRING hold no `_`."""

    EXACT = "exact"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    AFFIX = "affix"
    SUBSTRING = "substring"
    GENERAL = "general"


class Pattern(msgspec.Struct, frozen=True, order=True, gc=False):
    """A LIKE pattern in its one normal spelling: no empty middle piece, `_` before `%` where the two meet."""

    pieces: tuple[str, ...]

    @property
    def sort(self) -> PatternSort:
        pieces = self.pieces
        if any(ANY_CHAR in piece for piece in pieces):
            return PatternSort.GENERAL
        match pieces:
            case (_,):
                return PatternSort.EXACT
            case ("", "") | (_, ""):
                return PatternSort.PREFIX
            case ("", _):
                return PatternSort.SUFFIX
            case (_, _):
                return PatternSort.AFFIX
            case ("", _, ""):
                return PatternSort.SUBSTRING
        return PatternSort.GENERAL

    @property
    def is_exact(self) -> bool:
        """No wildcard at all: one string."""
        return len(self.pieces) == 1 and ANY_CHAR not in self.pieces[0]

    @property
    def is_everything(self) -> bool:
        """`%` alone: every string, the empty one included."""
        return self.pieces == ("", "")

    def matches(self, text: str) -> bool:
        """Whether the whole text fits the pattern."""
        pieces = self.pieces
        first = pieces[0]
        if len(pieces) == 1:
            return len(text) == len(first) and _fits(first, text, 0)
        last = pieces[-1]
        stop = len(text) - len(last)
        if stop < len(first) or not _fits(first, text, 0) or not _fits(last, text, stop):
            return False
        at = len(first)
        for piece in pieces[1:-1]:
            found = _search(piece, text, at, stop)
            if found < 0:
                return False
            at = found + len(piece)
        return True

    def text(self) -> str:
        r"""The pattern as LIKE text with backslash escapes."""
        return "%".join(
            "".join("_" if c == ANY_CHAR else f"\\{c}" if c in "\\%_" else c for c in piece) for piece in self.pieces
        )


def _fits(piece: str, text: str, at: int) -> bool:
    if ANY_CHAR not in piece:
        return text.startswith(piece, at)
    return all(c in (ANY_CHAR, text[at + i]) for i, c in enumerate(piece))


def _search(piece: str, text: str, at: int, stop: int) -> int:
    """The leftmost place of a piece within text[at:stop], or -1."""
    if ANY_CHAR not in piece:
        return text.find(piece, at, stop)
    places, anywhere = _places(piece)
    complete = 1 << (len(piece) - 1)
    begun = 0
    for position in range(at, stop):
        begun = (begun << 1 | 1) & places.get(text[position], anywhere)
        if begun & complete:
            return position + 1 - len(piece)
    return -1


@lru_cache(maxsize=256)
def _places(piece: str) -> tuple[dict[str, int], int]:
    """For each character of a piece a bit for every place where it may stand; and those for any other character."""
    anywhere = _bits([n for n, c in enumerate(piece) if c == ANY_CHAR], len(piece))
    numbers: dict[str, list[int]] = {}
    for number, character in enumerate(piece):
        if character != ANY_CHAR:
            numbers.setdefault(character, []).append(number)
    return {character: _bits(each, len(piece)) | anywhere for character, each in numbers.items()}, anywhere


def _bits(numbers: list[int], length: int) -> int:
    """The integer that has these bits."""
    held = bytearray(length // 8 + 1)
    for number in numbers:
        held[number // 8] |= 1 << number % 8
    return int.from_bytes(held, "little")


def check_pattern(pattern: str, escape: str) -> None:
    """Refuse a pattern that cannot be read, or is too long."""
    if len(pattern) > WILD_LENGTH_MAX and "_" in pattern:
        raise BadLiteralError(
            f"the pattern has {len(pattern)} characters, and the limit for one with _ is {WILD_LENGTH_MAX}",
            "shorten it, or write it without _",
        )
    check_escapes(pattern, escape)


def check_escapes(pattern: str, escape: str) -> None:
    """Refuse an escape that precedes anything but `%`, `_` or itself, which Spark would refuse when it runs."""
    if escape not in pattern:
        return
    at = pattern.find(escape)
    while at >= 0:
        following = pattern[at + 1 : at + 2]
        if not following:
            raise BadLiteralError(
                f"the pattern ends in its escape {escape}", f"write {escape}{escape} for the character"
            )
        if following not in ("%", "_", escape):
            raise BadLiteralError(
                f"the escape {escape} precedes {following!r}, and may precede only %, _ or itself",
                f"write {escape}{escape} for the character {escape}, or another ESCAPE",
            )
        at = pattern.find(escape, at + 2)


def read_pattern(text: str) -> str:
    """The LIKE pattern that a quoted literal names, its backslashes checked."""
    pattern = read_string(text)
    check_pattern(pattern, "\\")
    return pattern


def parse_like(pattern: str, escape: str = "\\") -> Pattern:
    """The normal spelling of a pattern whose escapes have been checked."""
    if escape not in pattern and "_" not in pattern:
        if "%%" not in pattern:
            return Pattern(tuple(pattern.split("%")))
        first, *middle, last = pattern.split("%")
        return Pattern((first, *filter(None, middle), last))
    pieces: list[list[str]] = [[]]
    at = 0
    while at < len(pattern):
        c = pattern[at]
        if c == escape:  # an escape that is itself % or _ is always the escape
            at += 1
            pieces[-1].append(pattern[at])
        elif c == "%":
            pieces.append([])
        else:
            pieces[-1].append(ANY_CHAR if c == "_" else c)
        at += 1
    return Pattern(_settle(["".join(piece) for piece in pieces]))


def _settle(pieces: list[str]) -> tuple[str, ...]:
    """Empty middle pieces go (`%%` is `%`) and `_` moves left over `%`, so that equal patterns are spelt the same."""
    settled = [pieces[0]]
    for piece in pieces[1:]:
        plain = piece.lstrip(ANY_CHAR)
        if len(settled) > 1 and not settled[-1]:
            settled.pop()
        settled[-1] += ANY_CHAR * (len(piece) - len(plain))
        settled.append(plain)
    return tuple(settled)
