"""What LIKE patterns say of each other: implication, contradiction, and when a set of strings is certainly empty.

Everything here is sound: what it claims holds for all strings. It is complete for sets made of intervals, values,
prefixes and suffixes (a prefix is an interval; suffixes either contain one another or exclude one another, and nothing
else can empty a set, since there is always a letter that no pattern names), and careful about the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from meetpoint.language.filters.intervals import Interval, Intervals, complement, intersect
from meetpoint.language.filters.like import ANY_CHAR, Pattern, PatternSort

__all__ = ["contradict", "implies", "is_certainly_empty", "prefix_interval"]

_PRODUCT_MAX = 4096
"""Characters of one pattern times those of another, up to which the two are compared symbol by symbol."""
_LAST_CHARACTER = "\U0010ffff"
_ANY_TEXT = ""  # the symbol for `%` in a pattern read as a text: no character equals it


def prefix_interval(prefix: str) -> Intervals:
    """The strings that begin with a text, as an interval in the order of code points."""
    stem = prefix.rstrip(_LAST_CHARACTER)
    if not stem:
        return (Interval(prefix, False, None, True),)
    following = chr(ord(stem[-1]) + 1)
    if "\ud800" <= following <= "\udfff":
        following = "\ue000"
    return (Interval(prefix, False, stem[:-1] + following, True),)


def implies(a: Pattern, b: Pattern) -> bool:
    """Whether every text that fits a certainly fits b. Not certain where both are long.

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
    """A bit for each place in b that the symbols of a read so far may have led to."""
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
    """Whether certainly no text fits both: their beginnings or their ends differ, or their lengths."""
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
    """Whether no string within the intervals fits all of `like` and none of `unlike`; False where it is not certain."""
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
