"""LIKE patterns: matching, normal spelling, implication and contradiction.

`%` is any text, `_` any one character, and an escape (a backslash unless said) makes the next character plain.

A pattern is kept as its pieces, the texts between the `%` signs: `OT%` is ("OT", ""), `%SE` is ("", "SE"), `N%E` is
("N", "E"), `%YS%` is ("", "YS", ""). Matching takes the first piece at the front, the last at the back, and each middle
one at its leftmost place after the one before. Leftmost is never worse, so there is no backtracking. A piece with `_`
is searched at all places at once with Shift-And (Baeza-Yates and Gonnet): a bit for each beginning of the piece in
which the text read so far may end. So even a hostile pattern costs a few nanoseconds per character of the text and 64
of its own. Within a piece `_` is held as ANY_CHAR, a lone surrogate, which no valid text contains.

Implication and emptiness are sound: their "yes" holds for all strings. They are complete for sets made of intervals,
values, prefixes and suffixes. (A prefix is an interval. Of two suffixes, one contains the other or they exclude each
other. Nothing else can empty a set, since there is always a letter that no pattern names.) For other patterns they may
answer "not certain".
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache

import msgspec

from meetpoint.language.filters.intervals import Interval, Intervals, complement, intersect
from meetpoint.language.syntax.lexer import BadLiteralError, read_string

__all__ = [
    "ANY_CHAR",
    "Pattern",
    "PatternSort",
    "check_escapes",
    "check_pattern",
    "contradict",
    "implies",
    "is_certainly_empty",
    "parse_like",
    "prefix_interval",
    "read_pattern",
]


ANY_CHAR = "\udc5f"
WILD_LENGTH_MAX = 1_000
"""Characters of a pattern that has a `_`: the search for each character takes a bit for each other one."""


class PatternSort(StrEnum):
    """The sort of a pattern, by what it asks of a text. PREFIX, SUFFIX, AFFIX and SUBSTRING hold no `_`."""

    EXACT = "exact"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    AFFIX = "affix"
    SUBSTRING = "substring"
    GENERAL = "general"


class Pattern(msgspec.Struct, frozen=True, order=True, gc=False):
    """A LIKE pattern in its normal spelling: no empty middle piece, `_` before `%` where the two meet."""

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
        """True for a pattern without a wildcard: it fits one string."""
        return len(self.pieces) == 1 and ANY_CHAR not in self.pieces[0]

    @property
    def is_everything(self) -> bool:
        """True for `%` alone, which fits every string, the empty one included."""
        return self.pieces == ("", "")

    def matches(self, text: str) -> bool:
        """Return whether the whole text fits the pattern."""
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
        r"""Return the pattern as LIKE text with backslash escapes."""
        return "%".join(
            "".join("_" if c == ANY_CHAR else f"\\{c}" if c in "\\%_" else c for c in piece) for piece in self.pieces
        )


def _fits(piece: str, text: str, at: int) -> bool:
    if ANY_CHAR not in piece:
        return text.startswith(piece, at)
    return all(c in (ANY_CHAR, text[at + i]) for i, c in enumerate(piece))


def _search(piece: str, text: str, at: int, stop: int) -> int:
    """Return the leftmost place of a piece within text[at:stop], or -1."""
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
    """Return for each character of a piece a bit for every place where it may stand, and the others' bits."""
    anywhere = _bits([n for n, c in enumerate(piece) if c == ANY_CHAR], len(piece))
    numbers: dict[str, list[int]] = {}
    for number, character in enumerate(piece):
        if character != ANY_CHAR:
            numbers.setdefault(character, []).append(number)
    return {character: _bits(each, len(piece)) | anywhere for character, each in numbers.items()}, anywhere


def _bits(numbers: list[int], length: int) -> int:
    """Return the integer that has these bits."""
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
    """Refuse an escape that precedes anything but `%`, `_` or itself: Spark refuses it when it runs."""
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
    """Return the LIKE pattern of a quoted literal, its backslashes checked."""
    pattern = read_string(text)
    check_pattern(pattern, "\\")
    return pattern


def parse_like(pattern: str, escape: str = "\\") -> Pattern:
    """Return the normal spelling of a pattern whose escapes have been checked."""
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
    return Pattern(_normalize(["".join(piece) for piece in pieces]))


def _normalize(pieces: list[str]) -> tuple[str, ...]:
    """Return pieces in their normal spelling, so that equal patterns are spelt the same.

    Empty middle pieces go (`%%` is `%`), and `_` moves left over `%`.
    """
    spelt = [pieces[0]]
    for piece in pieces[1:]:
        plain = piece.lstrip(ANY_CHAR)
        if len(spelt) > 1 and not spelt[-1]:
            spelt.pop()
        spelt[-1] += ANY_CHAR * (len(piece) - len(plain))
        spelt.append(plain)
    return tuple(spelt)


_PRODUCT_MAX = 4096
"""Characters of one pattern times those of another, up to which the two are compared symbol by symbol."""
_LAST_CHARACTER = "\U0010ffff"
_ANY_TEXT = ""  # the symbol for `%` in a pattern read as a text: no character equals it


def prefix_interval(prefix: str) -> Intervals:
    """Return the strings that begin with a text, as an interval in the order of code points."""
    stem = prefix.rstrip(_LAST_CHARACTER)
    if not stem:
        return (Interval(prefix, False, None, True),)
    following = chr(ord(stem[-1]) + 1)
    if "\ud800" <= following <= "\udfff":
        following = "\ue000"
    return (Interval(prefix, False, stem[:-1] + following, True),)


def implies(a: Pattern, b: Pattern) -> bool:
    """Return whether every text that fits a certainly fits b. The answer is False, not certain, if both are long.

    b is matched against a read as a text, in which a's `_` is a character that only `_` and `%` of b fit, and a's `%`
    is one that only `%` of b fits.
    """
    if b.is_everything or a == b:
        return True
    if len(b.pieces) == 2 and ANY_CHAR not in b.pieces[0] + b.pieces[1] and (not b.pieces[0] or not b.pieces[1]):
        return a.pieces[0].startswith(b.pieces[0]) and a.pieces[-1].endswith(b.pieces[1])
    if sum(map(len, a.pieces)) * sum(map(len, b.pieces)) > _PRODUCT_MAX:
        return False
    return _implies(a, b)


@lru_cache(maxsize=16384)
def _implies(a: Pattern, b: Pattern) -> bool:
    """Return whether a implies b: a bit for each place in b that the symbols of a may have reached."""
    wanted = _symbols(b)
    places: dict[str, int] = {}
    for number, symbol in enumerate(wanted):
        places[symbol] = places.get(symbol, 0) | 1 << number
    any_text, any_char = places.get(_ANY_TEXT, 0), places.get(ANY_CHAR, 0)
    reached = 1 | (any_text & 1) << 1
    for symbol in _symbols(a):
        fitting = 0 if symbol == _ANY_TEXT else places.get(symbol, 0) | any_char
        reached = reached & any_text | (reached & fitting) << 1
        reached |= (reached & any_text) << 1  # `%` may be nothing; no two of them stand together
    return bool(reached >> len(wanted) & 1)


def _symbols(pattern: Pattern) -> list[str]:
    symbols: list[str] = []
    for number, piece in enumerate(pattern.pieces):
        if number:
            symbols.append(_ANY_TEXT)
        symbols.extend(piece)
    return symbols


@lru_cache(maxsize=4096)
def contradict(a: Pattern, b: Pattern) -> bool:
    """Return whether certainly no text fits both: their beginnings, their ends or their lengths differ."""
    if _differ(a.pieces[0], b.pieces[0]) or _differ(a.pieces[-1][::-1], b.pieces[-1][::-1]):
        return True
    for fixed, other in ((a, b), (b, a)):
        if len(fixed.pieces) == 1:
            length = len(fixed.pieces[0])
            if length < sum(map(len, other.pieces)) or (len(other.pieces) == 1 and length != len(other.pieces[0])):
                return True
    return False


def _differ(a: str, b: str) -> bool:
    if ANY_CHAR not in a and ANY_CHAR not in b:
        length = min(len(a), len(b))
        return a[:length] != b[:length]
    return any(x != y and ANY_CHAR not in (x, y) for x, y in zip(a, b, strict=False))


def is_certainly_empty(intervals: Intervals, like: Iterable[Pattern], unlike: Iterable[Pattern]) -> bool:
    """Return whether certainly no string within the intervals fits all of `like` and none of `unlike`."""
    like, unlike = tuple(like), tuple(unlike)
    for number, a in enumerate(like):
        if any(contradict(a, b) for b in like[:number]) or any(implies(a, u) for u in unlike):
            return True
        if a.pieces[0]:
            intervals = intersect(intervals, prefix_interval(_plain_head(a.pieces[0])))
    for u in unlike:
        if u.is_everything:
            return True
        if u.sort is PatternSort.PREFIX:
            intervals = intersect(intervals, complement(prefix_interval(u.pieces[0])))
    return all(_holds_none(interval, like, unlike) for interval in intervals)


def _plain_head(piece: str) -> str:
    return piece.partition(ANY_CHAR)[0]


def _holds_none(interval: Interval, like: tuple[Pattern, ...], unlike: tuple[Pattern, ...]) -> bool:
    if not interval.is_point:
        return False
    value = interval.low
    assert isinstance(value, str)
    return not all(p.matches(value) for p in like) or any(p.matches(value) for p in unlike)
