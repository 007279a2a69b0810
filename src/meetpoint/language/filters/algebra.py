"""The algebra of filters: covering, equivalence, overlap, intersection, merging.

A "yes" of `covers` and `equivalent` is certain: `covers(f, g)` says that f accepts every event that g accepts. A "no"
of `satisfiable` and `overlaps` is certain. The other answers may be wrong only for LIKE patterns that are neither
prefixes nor suffixes, for disjunctions that would take over `STEPS_MAX` steps to compare, and for filters so large that
a question would cost over `WORK_MAX`: brokers ask these questions of strangers' filters.

The method: f covers g if g without f is certainly empty, and a conjunction is certainly empty if one of its constraints
is. A conjunction minus another is a few conjunctions, one for each constraint that may fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import TypeAlias

import msgspec

from meetpoint.errors import LimitError
from meetpoint.language.filters.constraints import (
    ABSENT,
    EVERY_TEXT,
    PRESENT,
    Absent,
    BooleanSet,
    Constraint,
    NumberSet,
    Present,
    TextSet,
    TimestampSet,
    ValueSet,
    both,
    either,
    rounded,
    text_set,
)
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.intervals import EVERYTHING, Bound, Intervals, begins_later, complement, ends_sooner
from meetpoint.language.filters.intervals import intersect as intersect_intervals
from meetpoint.language.filters.like import Pattern, is_certainly_empty
from meetpoint.language.filters.normal_form import CONJUNCTIONS_MAX, CONSTRAINTS_MAX, Conjunction
from meetpoint.language.syntax.lexer import TEXT_LENGTH_MAX
from meetpoint.language.syntax.render import render

__all__ = ["canonical", "covers", "equivalent", "intersect", "merge", "overlaps", "satisfiable"]

STEPS_MAX = 256
"""Conjunctions that one comparison of disjunctions looks at before it answers "not certain"."""
WORK_MAX = 500_000
"""Cost of one question, in comparisons of two plain constraints: about half a second.

A filter of some hundred constraints never comes near it; some dozens of LIKE patterns, or values by the thousand, on
both sides may.
"""
SIMPLIFIED_MAX = 256
"""Alternatives of a product that are simplified; a product with more is refused."""
PATTERNS_COMPARED_MAX = 256
"""LIKE patterns of a filter, up to which its alternatives are compared with one another to simplify it."""


def satisfiable(f: Filter) -> bool:
    """Return whether some event may satisfy the filter; False is certain."""
    return bool(f.conjunctions)


def covers(f: Filter, g: Filter) -> bool:
    """Return whether f accepts every event that g accepts; True is certain.

    covers(parse_filter("price > 8"), parse_filter("price > 9 AND volume > 1"))  # True
    """
    wide, work = f.conjunctions, _Budget()
    try:
        return all(_covered(narrow, wide, work) for narrow in g.conjunctions)
    except _BudgetError:
        return False


def equivalent(f: Filter, g: Filter) -> bool:
    """Return whether both accept the same events; True is certain."""
    return f.conjunctions == g.conjunctions or (covers(f, g) and covers(g, f))


def overlaps(f: Filter, g: Filter) -> bool:
    """Return whether some event may satisfy both; False is certain."""
    work = _Budget()
    try:
        return any(_meet(a, b, work) is not None for a in f.conjunctions for b in g.conjunctions)
    except _BudgetError:
        return True


def intersect(f: Filter, g: Filter) -> Filter:
    """Return the filter that accepts what both accept; LimitError if it has too many conjunctions or takes too long."""
    found: dict[Conjunction, None] = {}
    work = _Budget()
    for a, b in product(f.conjunctions, g.conjunctions):
        try:
            together = _meet(a, b, work)
        except _BudgetError:
            raise _apart("the two filters have too many values and patterns to be joined", g) from None
        if together is not None:
            found[together] = None
        if len(found) > SIMPLIFIED_MAX:
            raise _apart(f"what both filters accept has more than {SIMPLIFIED_MAX} alternatives", g)
    return _filter(_simplify(list(found)))


def _apart(problem: str, g: Filter) -> LimitError:
    return LimitError.of_whole(problem, "keep the two filters apart", g.text)


def canonical(f: Filter) -> Filter:
    """Return an equivalent filter without redundant parts, in one spelling; it is its own canonical form."""
    return _filter(_simplify(f.conjunctions))


def merge(f: Filter, g: Filter, *, perfect: bool = True) -> Filter:
    """Return one filter for two.

    A perfect merge accepts exactly what either accepts, simplified as far as that is exact. An imperfect one has at
    most one conjunction: it accepts what either accepts and maybe more, with the closest constraint on every attribute
    that all conjunctions constrain.
    """
    united = _simplify((*f.conjunctions, *g.conjunctions))
    if perfect or len(united) <= 1:
        return _filter(united)
    hull, work = dict(united[0].constraints), _Budget()
    for conjunction in united[1:]:
        other = dict(conjunction.constraints)
        hull = {name: c for name in hull if name in other and (c := _hull(hull[name], other[name], work)) is not None}
    return _filter((Conjunction(tuple(sorted(hull.items()))),))


def _filter(conjunctions: Sequence[Conjunction]) -> Filter:
    text = render(conjunctions)
    problem = None
    if len(conjunctions) > CONJUNCTIONS_MAX:
        problem = f"the filter has {len(conjunctions)} alternatives, and the limit is {CONJUNCTIONS_MAX}"
    elif any(len(conjunction.constraints) > CONSTRAINTS_MAX for conjunction in conjunctions):
        problem = f"an alternative of the filter has over {CONSTRAINTS_MAX} constraints"
    elif len(text) > TEXT_LENGTH_MAX:
        problem = f"the filter has {len(text)} characters, and the limit is {TEXT_LENGTH_MAX}"
    if problem is not None:
        raise LimitError.of_whole(problem, "keep the two filters apart", text)
    return Filter(text, tuple(conjunctions))


# -- work --------------------------------------------------------------------------------------------------------------


class _BudgetError(Exception):
    """A question would cost too much."""


class _Budget:
    """The cost that a question may still have."""

    def __init__(self) -> None:
        self._left = WORK_MAX

    def spend(self, a: _Residue, b: _Residue) -> None:
        """Pay for a comparison or union of two constraints; `_BudgetError` if the budget does not suffice."""
        if type(a) is type(b):  # different kinds are told apart by their class, which costs nothing
            self._left -= _cost(a, b)
            if self._left < 0:
                raise _BudgetError


def _cost(a: _Residue, b: _Residue) -> int:
    """Return about what the comparison or intersection of two constraints costs.

    Of strings, each pattern of the first is tried with all of the second among themselves, and with all its values.
    """
    match a, b:
        case NumberSet(), NumberSet():
            return 1 + (len(a.exact) + len(b.exact)) // 4
        case TimestampSet(), TimestampSet():
            return 1 + (len(a.intervals) + len(b.intervals)) // 4
        case TextSet(), TextSet():
            plain = 1 + (len(a.intervals) + len(b.intervals)) // 4
            mine = len(a.like) + len(a.unlike)
            patterns = mine + len(b.like) + len(b.unlike)
            if not patterns:
                return plain
            characters = sum(len(each.low) for each in (*a.intervals, *b.intervals) if isinstance(each.low, str))
            return plain + (1 + mine) * patterns * (patterns + 16 * plain + characters // 4)
    return 1


# -- conjunctions ------------------------------------------------------------------------------------------------------


class _Object(msgspec.Struct, frozen=True, gc=False):
    """A nested object, a value of no kind: only IS NOT NULL accepts it. It stands in remainders, never in a filter."""


_Residue: TypeAlias = Constraint | _Object
_Residues: TypeAlias = dict[str, _Residue]

_KINDS: tuple[ValueSet, ...] = (
    NumberSet(EVERYTHING),
    TextSet(EVERY_TEXT),
    TimestampSet(EVERYTHING),
    BooleanSet((False, True)),
)


def _meet(a: Conjunction, b: Conjunction, work: _Budget) -> Conjunction | None:
    merged = dict(a.constraints)
    for name, constraint in b.constraints:
        mine = merged.get(name)
        if mine is not None:
            work.spend(mine, constraint)
        together = constraint if mine is None else both(mine, constraint)
        if together is None:
            return None
        merged[name] = together
    return Conjunction(tuple(sorted(merged.items())))


def _covered(narrow: Conjunction, wide: Sequence[Conjunction], work: _Budget) -> bool:
    parts: _Residues = dict(narrow.constraints)
    if narrow in wide:
        return True
    for conjunction in wide:
        if _conjunction_covers(conjunction, parts, work):
            return True
    if len(wide) < 2:
        return False
    return _Remainder(wide, work).is_empty(parts)


def _conjunction_covers(wide: Conjunction, parts: _Residues, work: _Budget) -> bool:
    for name, constraint in wide.constraints:
        part = parts.get(name)
        if part is None:
            return False
        work.spend(constraint, part)
        if not _constraint_covers(constraint, part):
            return False
    return True


class _Remainder:
    """Subtraction of the conjunctions of a disjunction from one conjunction, one by one, until nothing is left."""

    def __init__(self, wide: Sequence[Conjunction], work: _Budget) -> None:
        self._wide = wide
        self._work = work
        self._steps = 0

    def is_empty(self, parts: _Residues, position: int = 0) -> bool:
        self._steps += 1
        if self._steps > STEPS_MAX:
            return False
        rest = self._wide[position:]
        work = self._work
        if any(_conjunction_covers(conjunction, parts, work) for conjunction in rest):
            return True
        for offset, conjunction in enumerate(rest):
            if all(name not in parts or _may_meet(parts[name], c, work) for name, c in conjunction.constraints):
                following = position + offset + 1
                return all(self.is_empty(left, following) for left in _without(parts, conjunction, work))
        return False


def _without(parts: _Residues, taken: Conjunction, work: _Budget) -> Iterator[_Residues]:
    """Yield what is left of a conjunction, for each constraint taken away in turn as the first to fail."""
    kept = dict(parts)
    for name, constraint in taken.constraints:
        if name in kept:
            work.spend(constraint, kept[name])
        for left in _outside(kept.get(name), constraint):
            yield {**kept, name: left}
        mine = kept.get(name)
        together = constraint if mine is None or isinstance(mine, _Object) else both(mine, constraint)
        if together is None:
            return
        kept[name] = together


def _outside(part: _Residue | None, constraint: Constraint) -> Iterator[_Residue]:
    """Yield the part of an attribute's values (None: all of them, and NULL) that a constraint does not accept."""
    if part is None:
        if not isinstance(constraint, Absent):
            yield ABSENT
        part = PRESENT
    if isinstance(constraint, Present):
        return
    if isinstance(constraint, Absent):
        yield part
        return
    if isinstance(part, Present):
        yield _Object()
        for every in _KINDS:
            if type(every) is type(constraint):
                yield from _difference(every, constraint)
            else:
                yield every
    elif isinstance(part, (Absent, _Object)) or type(part) is not type(constraint):
        yield part
    else:
        yield from _difference(part, constraint)


def _difference(a: ValueSet, b: ValueSet) -> Iterator[ValueSet]:
    """Yield sets, all of one kind, that together hold what a holds and b does not."""
    outside: list[ValueSet]
    match b:
        case NumberSet():
            outside = [_number_complement(b)]
        case TimestampSet(intervals):
            outside = [TimestampSet(complement(intervals))]
        case BooleanSet(values):
            outside = [BooleanSet(tuple(v for v in (False, True) if v not in values))]
        case TextSet(intervals, like, unlike):
            outside = [TextSet(intersect_intervals(EVERY_TEXT, complement(intervals)))]
            outside += [TextSet(EVERY_TEXT, unlike=(pattern,)) for pattern in like]
            outside += [TextSet(EVERY_TEXT, like=(pattern,)) for pattern in unlike]
    for other in outside:
        left = both(a, other)
        if left is not None and not isinstance(left, (Absent, Present)):
            yield left


def _number_complement(numbers: NumberSet) -> NumberSet:
    exact = complement(numbers.exact)
    doubles = complement(numbers.for_floats())
    return NumberSet(exact, None if doubles == rounded(exact) else doubles)


# -- constraints -------------------------------------------------------------------------------------------------------


def _constraint_covers(wide: Constraint, narrow: _Residue) -> bool:
    """Return whether one constraint accepts every value that another accepts; True is certain."""
    if wide is narrow:
        return True
    if isinstance(wide, Present):
        return not isinstance(narrow, Absent)
    if type(wide) is not type(narrow):
        return False
    match wide, narrow:
        case NumberSet(), NumberSet():
            return _within(narrow.exact, wide.exact) and _within_as_floats(narrow, wide)
        case TextSet(), TextSet():
            return _text_covers(wide, narrow)
        case TimestampSet(), TimestampSet():
            return _within(narrow.intervals, wide.intervals)
        case BooleanSet(), BooleanSet():
            return set(narrow.values) <= set(wide.values)
    return True  # Absent and Absent


def _text_covers(wide: TextSet, narrow: TextSet) -> bool:
    intervals, like, unlike = narrow.intervals, narrow.like, narrow.unlike
    if not _within(intervals, wide.intervals):
        if not like and not unlike:
            return False
        beyond = intersect_intervals(intervals, complement(wide.intervals))
        if not is_certainly_empty(beyond, like, unlike):
            return False
    return all(p in like or is_certainly_empty(intervals, like, (*unlike, p)) for p in wide.like) and all(
        p in unlike or is_certainly_empty(intervals, (*like, p), unlike) for p in wide.unlike
    )


def _within(narrow: Intervals, wide: Intervals) -> bool:
    at = 0
    for interval in narrow:
        while at < len(wide) and ends_sooner(wide[at], interval):
            at += 1
        if at == len(wide) or begins_later(wide[at], interval):
            return False
    return True


def _within_as_floats(narrow: NumberSet, wide: NumberSet) -> bool:
    """Return whether one set lies within another for floats; of two single intervals, only ends can meet."""
    if narrow.doubles is None and wide.doubles is None and len(narrow.exact) == len(wide.exact) == 1:
        inner, outer = narrow.exact[0], wide.exact[0]
        return not (
            (outer.low_open and not inner.low_open and _same_double(outer.low, inner.low))
            or (outer.high_open and not inner.high_open and _same_double(outer.high, inner.high))
        )
    return _within(narrow.for_floats(), wide.for_floats())


def _same_double(a: Bound | None, b: Bound | None) -> bool:
    return a is not None and b is not None and float(a) == float(b)  # type: ignore[arg-type]


def _may_meet(part: _Residue, constraint: Constraint, work: _Budget) -> bool:
    if isinstance(part, _Object):
        return isinstance(constraint, Present)
    work.spend(part, constraint)
    return both(part, constraint) is not None


# -- simplification ----------------------------------------------------------------------------------------------------


def _simplify(conjunctions: Sequence[Conjunction]) -> tuple[Conjunction, ...]:
    """Return the same set of events without covered conjunctions and without any two that one could replace.

    A form that would cost too much stays as it is, all of it, so that its canonical form stays the same.
    """
    if sum(map(_pattern_count, conjunctions)) <= PATTERNS_COMPARED_MAX:
        try:
            return _simplified(conjunctions, _Budget())
        except _BudgetError:
            pass
    return tuple(sorted(dict.fromkeys(conjunctions), key=_order))


def _simplified(conjunctions: Sequence[Conjunction], work: _Budget) -> tuple[Conjunction, ...]:
    held = [_tidy(conjunction, work) for conjunction in conjunctions]
    while True:
        # What a bounded search finds depends on the order, so the end is reached only when one order finds nothing.
        held = sorted(dict.fromkeys(held), key=_order)
        kept = _uncovered(held, work)
        drawn = _draw_together(kept, work)
        if drawn is None and len(kept) == len(held):
            return tuple(held)
        held = kept if drawn is None else drawn


def _order(conjunction: Conjunction) -> tuple[int, str]:
    return len(conjunction.constraints), render((conjunction,))


def _pattern_count(conjunction: Conjunction) -> int:
    return sum(len(c.like) + len(c.unlike) for _, c in conjunction.constraints if isinstance(c, TextSet))


def _uncovered(held: list[Conjunction], work: _Budget) -> list[Conjunction]:
    kept = list(held)
    for conjunction in held:
        others = [other for other in kept if other is not conjunction]
        if others and _covered(conjunction, others, work):
            kept = others
    return kept


def _draw_together(held: list[Conjunction], work: _Budget) -> list[Conjunction] | None:
    for a, b in combinations(held, 2):
        united = _unite(a, b, work)
        if united is not None:
            return [united, *(c for c in held if c is not a and c is not b)]
    return None


def _unite(a: Conjunction, b: Conjunction, work: _Budget) -> Conjunction | None:
    """Return one conjunction for two that differ in one constraint only, if its union is one constraint."""
    if a.attributes != b.attributes:
        return None
    differing = [n for n, (x, y) in enumerate(zip(a.constraints, b.constraints, strict=True)) if x != y]
    if len(differing) != 1:
        return None
    at = differing[0]
    name, mine = a.constraints[at]
    other = b.constraints[at][1]
    before, after = a.constraints[:at], a.constraints[at + 1 :]
    if {type(mine), type(other)} == {Absent, Present}:
        return Conjunction((*before, *after))
    work.spend(mine, other)
    united = _union(mine, other)
    return None if united is None else Conjunction((*before, (name, united), *after))


def _union(a: Constraint, b: Constraint) -> Constraint | None:
    """Return the one constraint for what either accepts, if there is one."""
    if type(a) is not type(b) or isinstance(a, (Absent, Present)) or isinstance(b, (Absent, Present)):
        return None
    if isinstance(a, TextSet) and isinstance(b, TextSet):
        if (a.like, a.unlike) != (b.like, b.unlike):
            return None
        intervals = either(TextSet(a.intervals), TextSet(b.intervals))
        assert isinstance(intervals, TextSet)
        return TextSet(intervals.intervals, a.like, a.unlike)
    return either(a, b)


def _tidy(conjunction: Conjunction, work: _Budget) -> Conjunction:
    for _, constraint in conjunction.constraints:
        work.spend(constraint, constraint)
    return Conjunction(tuple((name, _tidy_constraint(c)) for name, c in conjunction.constraints))


def _tidy_constraint(constraint: Constraint) -> Constraint:
    """Return a set of strings without the patterns that the rest of it implies."""
    if not isinstance(constraint, TextSet) or not (constraint.like or constraint.unlike):
        return constraint
    like, unlike = list(constraint.like), list(constraint.unlike)
    for pattern in constraint.like:
        others = [p for p in like if p != pattern]
        if is_certainly_empty(constraint.intervals, others, [*unlike, pattern]):
            like = others
    for pattern in constraint.unlike:
        others = [p for p in unlike if p != pattern]
        if is_certainly_empty(constraint.intervals, [*like, pattern], others):
            unlike = others
    return TextSet(constraint.intervals, tuple(like), tuple(unlike))


def _hull(a: Constraint, b: Constraint, work: _Budget) -> Constraint | None:
    """Return a close constraint that accepts what either accepts; None if that is anything, NULL included."""
    if isinstance(a, Absent) or isinstance(b, Absent):
        return a if a == b else None
    united = _union(a, b)
    if united is not None:
        return united
    if isinstance(a, TextSet) and isinstance(b, TextSet):
        try:
            work.spend(a, b)
            work.spend(b, a)
        except _BudgetError:
            return TextSet(EVERY_TEXT)
        like = tuple(p for p in {*a.like, *b.like} if _implied(p, a) and _implied(p, b))
        unlike = tuple(p for p in {*a.unlike, *b.unlike} if _excluded(p, a) and _excluded(p, b))
        intervals = either(TextSet(a.intervals), TextSet(b.intervals))
        assert isinstance(intervals, TextSet)
        return text_set(intervals.intervals, like, unlike)
    return PRESENT


def _implied(pattern: Pattern, texts: TextSet) -> bool:
    return is_certainly_empty(texts.intervals, texts.like, (*texts.unlike, pattern))


def _excluded(pattern: Pattern, texts: TextSet) -> bool:
    return is_certainly_empty(texts.intervals, (*texts.like, pattern), texts.unlike)
