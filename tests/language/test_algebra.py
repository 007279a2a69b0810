"""The algebra of filters, against brute force on sampled events and on enumerated small domains."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Mapping
from decimal import localcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meetpoint.errors import LimitError
from meetpoint.language import Filter, clean_attributes, parse_filter
from meetpoint.language.filters.algebra import canonical, covers, equivalent, intersect, merge, overlaps, satisfiable
from tests.work import count_calls
from tests.workloads import random_events, random_filter

Event = Mapping[str, object]


def random_filters(rng: random.Random, count: int, depth: int) -> list[Filter]:
    filters: list[Filter] = []
    while len(filters) < count:
        try:
            filters.append(parse_filter(random_filter(rng, depth)))
        except LimitError:
            continue
    return filters


def related(rng: random.Random, f: Filter) -> Filter:
    """A filter that is likely to cover, to be covered by, or to overlap another."""
    other = random_filter(rng, 1)
    text = rng.choice(["({f}) OR ({o})", "({f}) AND ({o})", "NOT (({f}) AND ({o}))", "{f}", "({o}) OR NOT ({f})"])
    try:
        return parse_filter(text.format(f=f.text, o=other))
    except LimitError:
        return f


@pytest.mark.parametrize("seed", range(6))
def test_algebra_never_says_anything_wrong_about_sampled_events(seed: int) -> None:
    rng = random.Random(seed)
    events = [clean_attributes(event) for event in random_events(rng, 60)]
    said_cover = said_apart = 0
    for f in random_filters(rng, 60, 2):
        g = related(rng, f)
        by_f = [f.accepts(event) for event in events]
        by_g = [g.accepts(event) for event in events]
        if covers(f, g):
            said_cover += 1
            assert all(x or not y for x, y in zip(by_f, by_g, strict=True)), (f.text, g.text)
        if not overlaps(f, g):
            said_apart += 1
            assert not any(x and y for x, y in zip(by_f, by_g, strict=True)), (f.text, g.text)
        assert satisfiable(f) or not any(by_f)
        try:
            both = intersect(f, g)
            either = merge(f, g)
        except LimitError:
            continue
        assert [both.accepts(e) for e in events] == [x and y for x, y in zip(by_f, by_g, strict=True)]
        assert [either.accepts(e) for e in events] == [x or y for x, y in zip(by_f, by_g, strict=True)]
        wide = merge(f, g, perfect=False)
        assert len(wide.conjunctions) <= 1
        assert all(wide.accepts(e) or not (x or y) for e, x, y in zip(events, by_f, by_g, strict=True)), (
            f.text,
            g.text,
        )
        assert covers(wide, f)
        assert covers(wide, g)
        assert covers(either, f)
        assert covers(f, both)
    assert said_cover > 10
    assert said_apart > 2


@pytest.mark.parametrize("seed", range(6))
def test_canonical_form_is_stable_equivalent_and_readable(seed: int) -> None:
    rng = random.Random(100 + seed)
    events = [clean_attributes(event) for event in random_events(rng, 40)]
    for f in random_filters(rng, 80, 3):
        form = canonical(f)
        assert [form.accepts(e) for e in events] == [f.accepts(e) for e in events], f.text
        assert parse_filter(form.text).conjunctions == form.conjunctions, (f.text, form.text)
        assert canonical(form).conjunctions == form.conjunctions
        assert canonical(form).text == form.text
        assert canonical(parse_filter(form.text)).text == form.text
        assert len(form.conjunctions) <= len(f.conjunctions)
        assert equivalent(f, form), (f.text, form.text)


def test_canonical_form_is_stable_where_the_search_is_cut_short() -> None:
    """Twenty-six alternatives: in another order the bounded search finds other coverings."""
    form = canonical(
        parse_filter(
            "(b >= FALSE AND d != 0.1 OR binary IS NULL OR user LIKE '_A' OR i IS NULL) AND (t IS NULL OR o.x != 1 "
            "OR binary IS NOT NULL OR (user NOT BETWEEN 'B' AND '50%' AND startswith(o.y, 'NYSE') AND b)) "
            "AND user LIKE '%%' AND s IS NULL AND (t IS NOT NULL OR b >= FALSE)"
        )
    )
    assert canonical(form).text == form.text


@settings(max_examples=200)
@given(st.integers(0, 10**9))
def test_every_filter_covers_itself_and_what_it_is_narrowed_to(seed: int) -> None:
    rng = random.Random(seed)
    f, g = random_filters(rng, 2, 1)
    assert covers(f, f)
    assert covers(parse_filter("TRUE"), f)
    assert covers(f, parse_filter("FALSE"))
    assert covers(parse_filter(f"({f.text}) OR ({g.text})"), f)
    assert covers(f, parse_filter(f"({f.text}) AND ({g.text})"))


# -- completeness on small domains -------------------------------------------------------------------------------------

NUMBERS = [n / 2 for n in range(-1, 12)]
"""Every literal below is one of 0..5, and between and beyond any two there is a number here."""

SHORT = ["".join(t) for length in range(3) for t in itertools.product("bd", repeat=length)]
STRINGS = sorted(
    {"".join(t) for length in range(4) for t in itertools.product("abcde", repeat=length)}
    | {head + middle + tail for head in SHORT for middle in ("a", "c", "e", "cc") for tail in SHORT}
)
"""Literals are at most two of b and d: there are letters before, between and after them that none names, and room
between any prefix and any suffix, so that whatever is not contradictory has a witness here."""

number_atoms = st.one_of(
    st.builds(lambda op, n: f"x {op} {n}", st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), st.integers(0, 5)),
    st.builds(
        lambda a, b, no: f"x {no}BETWEEN {a} AND {b}",
        st.integers(0, 5),
        st.integers(0, 5),
        st.sampled_from(["", "NOT "]),
    ),
    st.builds(
        lambda a, b, no: f"x {no}IN ({a}, {b})", st.integers(0, 5), st.integers(0, 5), st.sampled_from(["", "NOT "])
    ),
)
short_text = st.text(alphabet="bd", min_size=1, max_size=2)
text_atoms = st.one_of(
    st.builds(lambda op, s: f"s {op} '{s}'", st.sampled_from(["=", "!=", "<", ">="]), short_text),
    st.builds(lambda a, b, no: f"s {no}IN ('{a}', '{b}')", short_text, short_text, st.sampled_from(["", "NOT "])),
    st.builds(lambda s, no: f"s {no}LIKE '{s}%'", short_text, st.sampled_from(["", "NOT "])),
    st.builds(lambda s, no: f"s {no}LIKE '%{s}'", short_text, st.sampled_from(["", "NOT "])),
)


def combined(atoms: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.recursive(
        atoms,
        lambda inner: st.builds(lambda a, op, b: f"({a} {op} {b})", inner, st.sampled_from(["AND", "OR"]), inner),
        max_leaves=4,
    )


def agrees_with_enumeration(f: str, g: str, events: list[dict[str, object]]) -> None:
    wide, narrow = parse_filter(f), parse_filter(g)
    subset = all(wide.accepts(e) or not narrow.accepts(e) for e in events)
    assert covers(wide, narrow) is subset
    common = any(wide.accepts(e) and narrow.accepts(e) for e in events)
    assert overlaps(wide, narrow) is common
    assert satisfiable(narrow) is any(narrow.accepts(e) for e in events)


@pytest.mark.slow
@settings(max_examples=500)
@given(combined(number_atoms), combined(number_atoms))
def test_covers_is_complete_for_intervals_and_value_sets(f: str, g: str) -> None:
    agrees_with_enumeration(f, g, [{"x": x} for x in NUMBERS])


@pytest.mark.slow
@settings(max_examples=500)
@given(combined(text_atoms), combined(text_atoms))
def test_covers_is_complete_for_strings_prefixes_and_suffixes(f: str, g: str) -> None:
    agrees_with_enumeration(f, g, [{"s": s} for s in STRINGS])


@pytest.mark.slow
@settings(max_examples=300)
@given(
    combined(number_atoms | text_atoms | st.sampled_from(["x IS NULL", "s IS NOT NULL", "TRUE"])),
    combined(number_atoms | text_atoms),
)
def test_covers_is_never_wrong_over_two_attributes_and_null(f: str, g: str) -> None:
    values: list[object] = [None, *NUMBERS[::2], *NUMBERS[1::2], "k"]
    texts: list[object] = [None, *STRINGS[::7], *SHORT, 7]
    wide, narrow = parse_filter(f), parse_filter(g)
    if covers(wide, narrow):
        assert all(wide.accepts({"x": x, "s": s}) for x in values for s in texts if narrow.accepts({"x": x, "s": s}))


def test_rate_for_patterns_that_are_neither_prefix_nor_suffix(capsys: pytest.CaptureFixture[str]) -> None:
    """`covers` may miss some of these; how many is measured and printed, and must not get worse."""
    rng = random.Random(7)
    pool = ["%a%", "%ab%", "a%b", "b%", "%b", "_a%", "a_", "%a_", "a%a", "%aa%", "__", "_%", "ab%", "%a%b%"]
    texts = ["".join(t) for length in range(7) for t in itertools.product("abc", repeat=length)]
    true = said = 0
    for _ in range(400):
        f, g = (
            parse_filter(
                f" {rng.choice(['AND', 'OR'])} ".join(f"s LIKE '{p}'" for p in rng.sample(pool, rng.randint(1, 2)))
            )
            for _ in range(2)
        )
        subset = all(f.accepts({"s": s}) for s in texts if g.accepts({"s": s}))
        claimed = covers(f, g)
        assert subset or not claimed
        true += subset
        said += claimed
    with capsys.disabled():
        print(f"\ncovers found {said} of {true} true coverings among LIKE patterns of other forms ({said / true:.0%})")  # noqa: T201
    assert said / true > 0.8


# -- examples ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "g", "expected"),
    [
        ("price > 5", "price > 6", True),
        ("price > 5", "price >= 5", False),
        ("price > 5", "price > 6 AND symbol = 'A'", True),
        ("price > 5 AND symbol = 'A'", "price > 6", False),
        ("price IS NOT NULL", "price > 6", True),
        ("price IS NOT NULL", "order.x = 1 AND price IS NULL", False),
        ("price <= 5 OR price > 5", "price IS NOT NULL", False),
        ("price <= 5 OR price > 5", "price = 7", True),
        ("price IS NULL OR price IS NOT NULL", "TRUE", True),
        ("s LIKE 'OT%'", "s = 'OTE'", True),
        ("s LIKE 'OT%'", "s LIKE 'OTE%'", True),
        ("s LIKE 'OT%'", "s >= 'OT' AND s < 'OU'", True),
        ("s >= 'OT' AND s < 'OU'", "s LIKE 'OT%'", True),
        ("s LIKE '%E'", "s LIKE '%SE'", True),
        ("s LIKE '%YS%'", "s LIKE 'N%' AND s LIKE '%NYSE'", True),
        ("s LIKE 'N%' AND s LIKE '%E'", "s LIKE 'N%E'", True),
        ("s LIKE 'AB%BA'", "s LIKE 'AB%' AND s LIKE '%BA'", False),
        ("s NOT LIKE 'A%'", "s LIKE 'B%'", True),
        ("s NOT LIKE '%A'", "s LIKE '%B'", True),
        ("(a < 5 AND b = 1) OR (a >= 5 AND b = 1)", "a < 10 AND b = 1", True),
        ("(a < 5 AND b = 1) OR (a > 5 AND b = 1)", "a < 10 AND b = 1", False),
        ("a = 1 OR b = 1", "a = 1 AND b = 1", True),
        ("live OR NOT live", "live IN (TRUE, FALSE)", True),
        ("x > 0.1", "x >= 0.10000000000000000555", False),
        ("x >= 0.1", "x >= 0.10000000000000000555", True),
        ("x > 0.1", "x >= 0.11", True),
    ],
)
def test_covers_by_example(f: str, g: str, expected: bool) -> None:
    assert covers(parse_filter(f), parse_filter(g)) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1 OR a = 2 OR a = 3", "a IN (1, 2, 3)"),
        ("b = 1 AND a = 2 OR a = 2 AND b = 1", "a = 2 AND b = 1"),
        ("a > 5 OR a > 6 AND b = 1", "a > 5"),
        ("(a < 5 AND b = 1) OR (a >= 5 AND a < 9 AND b = 1)", "a < 9 AND b = 1"),
        ("a IS NULL OR a IS NOT NULL", "TRUE"),
        ("(a IS NULL AND b = 1) OR (a IS NOT NULL AND b = 1)", "b = 1"),
        ("NOT (a > 5 AND b)", "NOT b OR a <= 5"),
        ("s LIKE 'ab%' AND s LIKE 'a%' AND s NOT LIKE 'b%'", "s LIKE 'ab%'"),
        ("s NOT IN ('x', 'y')", "s NOT IN ('x', 'y')"),
        ("s NOT LIKE '50\\\\%%'", "s NOT LIKE '50\\\\%%'"),
        ("price BETWEEN 8.30 AND 8.70", "price BETWEEN 8.3 AND 8.7"),
        ("a = 1 AND a = 2", "FALSE"),
        ("t > TIMESTAMP '2026-01-01' AND t <= TIMESTAMP '2026-01-02'",
         "t > TIMESTAMP '2026-01-01T00:00:00.000000Z' AND t <= TIMESTAMP '2026-01-02T00:00:00.000000Z'"),
    ],
)  # fmt: skip
def test_canonical_text_by_example(text: str, expected: str) -> None:
    assert canonical(parse_filter(text)).text == expected


@pytest.mark.parametrize(
    "text", ["s = '\0" + "12'", "s LIKE '\0" + "77%'", "a = -0.0", "a > -0.0 AND a < 5e-324", "s < '\U0010ffff'"]
)
def test_odd_literals_keep_their_meaning_in_canonical_text(text: str) -> None:
    f = parse_filter(text)
    form = canonical(f)
    assert parse_filter(form.text).conjunctions == form.conjunctions == f.conjunctions
    assert canonical(parse_filter(form.text)).text == form.text


def test_canonical_text_does_not_depend_on_the_decimal_context() -> None:
    f = parse_filter("a = 0.1 AND a = 0.10000000000000000555")
    with localcontext(prec=6):
        assert parse_filter(canonical(f).text) == f


def test_products_past_a_limit_are_refused() -> None:
    wide = [" AND ".join(f"{letter}{n} = 1" for n in range(60)) for letter in "ab"]
    with pytest.raises(LimitError, match="over 64 constraints"):
        intersect(parse_filter(wide[0]), parse_filter(wide[1]))
    many = [" OR ".join(f"({letter}{n} = 1 AND {letter} = {n})" for n in range(64)) for letter in "ab"]
    with pytest.raises(LimitError, match="more than 256 alternatives"):
        intersect(parse_filter(many[0]), parse_filter(many[1]))
    long = parse_filter(" OR ".join(f"t=TIMESTAMP'{y:04d}-01-01'" for y in range(1, 2400)))
    with pytest.raises(LimitError, match="characters"):
        canonical(long)


def test_imperfect_merge_keeps_what_both_ask() -> None:
    f = parse_filter("exchange = 'NYSE' AND price BETWEEN 1 AND 2 AND symbol LIKE 'OT%'")
    g = parse_filter("exchange = 'LSE' AND price BETWEEN 5 AND 6 AND symbol LIKE 'OTE%'")
    assert merge(f, g, perfect=False).text == (
        "exchange IN ('LSE', 'NYSE') AND (price BETWEEN 1 AND 2 OR price BETWEEN 5 AND 6) AND symbol LIKE 'OT%'"
    )


def test_intersections_past_the_limit_are_refused() -> None:
    f = parse_filter(" OR ".join(f"a{n} = 1" for n in range(9)))
    g = parse_filter(" OR ".join(f"b{n} = 1" for n in range(9)))
    with pytest.raises(LimitError, match="81 alternatives"):
        intersect(f, g)


def _quoted(values: list[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


FACTORS = " AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(6))
UNLIKE = " AND ".join(f"x NOT LIKE '%{'a_' * 40}b{n}%'" for n in range(32))
HEAVY = {
    "64 patterns, one or the other": " OR ".join(f"x LIKE '%{'ab_%' * 200}c{n}%'" for n in range(64)),
    "32 patterns at once": " AND ".join(f"x LIKE '%{'a_b%' * 4}{n}%'" for n in range(32)),
    "32 long patterns at once": " AND ".join(f"x LIKE 'a{'_' * 900}%{'_' * n}b%'" for n in range(32)),
    "thousands of strings": f"x IN ({_quoted([str(n) for n in range(6000)])})",
    "all but thousands of strings": f"x NOT IN ({_quoted([str(n) for n in range(6000)])})",
    "long strings, and patterns": f"x IN ({_quoted(['a' * 1000 + str(n) for n in range(55)])}) AND {UNLIKE}",
    "the same in 64 alternatives": f"x IN ({_quoted(['a' * 50_000])}) AND {UNLIKE} AND {FACTORS}",
}


CALLS_MAX = 10_000_000
"""The dearest filter takes a third of it, within a second; the one that took 19 s was far beyond."""


@pytest.mark.slow
def test_no_filter_however_hostile_takes_long_to_read_or_to_compare() -> None:
    """Of filters within all limits one took 19 s to read, 31 s to compare with another, and 85 s to simplify."""
    filters: dict[str, Filter] = {}

    def counted(what: str, work: Callable[[], object]) -> None:
        def go() -> None:
            with contextlib.suppress(LimitError):  # what comes of a merge may be too long
                work()

        assert count_calls(go) < CALLS_MAX, what

    for name, text in HEAVY.items():
        counted(f"reading {name}", lambda name=name, text=text: filters.update({name: parse_filter(text)}))  # type: ignore[misc]
    for name, f in filters.items():
        for other, g in filters.items():
            counted(f"covers {name} {other}", lambda f=f, g=g: covers(f, g))  # type: ignore[misc]
            if name > other:
                continue  # the same, the other way round
            counted(f"overlaps {name} {other}", lambda f=f, g=g: overlaps(f, g))  # type: ignore[misc]
            one, two = Filter("", f.conjunctions[:1]), Filter("", g.conjunctions[:1])
            counted(f"merge {name} {other}", lambda one=one, two=two: merge(one, two, perfect=False))  # type: ignore[misc]


def test_what_would_take_too_long_is_not_certain_and_stays_as_it_is() -> None:
    """Doubt is a refusal: what is not certain is not said to be covered, nor to be apart."""
    patterns = parse_filter(HEAVY["64 patterns, one or the other"])
    strings = parse_filter(HEAVY["thousands of strings"])
    assert not covers(patterns, strings)
    assert overlaps(patterns, strings), "no string fits, and nobody has the time to be sure"
    form = canonical(patterns)
    assert form.conjunctions == canonical(form).conjunctions
    assert set(form.conjunctions) == set(patterns.conjunctions)
    assert covers(patterns, patterns)
    with pytest.raises(LimitError, match="too many values and patterns"):
        intersect(patterns, strings)
