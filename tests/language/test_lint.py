from __future__ import annotations

import random

import pytest

from meetpoint.language import Schema, parse_filter
from meetpoint.language.filters.algebra import covers
from meetpoint.language.filters.lint import CANDIDATES_MAX, LintItem, Oddity, _place, lint

SCHEMA = Schema.from_yaml(
    """
    attributes:
      symbol: string
      price: {type: decimal, min: 0, max: 1000, precision: 0.01}
      volume: {type: integer, min: 0}
      at: {type: timestamp, min: 2026-01-01T00:00:00Z}
    """
)


def told(subscriptions: dict[str, str], schema: Schema | None = None) -> dict[str, tuple[str, object]]:
    return {str(f.id): (str(f.oddity), f.other) for f in lint(subscriptions, schema).findings}


def test_each_oddity_is_found_and_what_is_fine_is_not() -> None:
    report = lint(
        {
            "fine": "symbol = 'OTE' AND price > 8.30",
            "again": "price > 8.3 AND symbol = 'OTE'",
            "narrow": "symbol = 'OTE' AND price > 9 AND volume > 5",
            "never": "price > 9 AND price < 8",
            "always": "price IS NULL OR price IS NOT NULL",
            "broken": "price >> 5",
            "typo": "prize > 5",
            "far": "price > 5000",
            "between": "price > 8.301 AND price < 8.309",
            "early": "at < TIMESTAMP '2025-01-01'",
            "kind": "symbol = 5",
        },
        SCHEMA,
    )
    found = {f.id: (f.oddity, f.other) for f in report.findings}
    assert found == {
        "again": (Oddity.DUPLICATE, "fine"),
        "narrow": (Oddity.COVERED, "fine"),
        "never": (Oddity.NEVER, None),
        "always": (Oddity.ALWAYS, None),
        "broken": (Oddity.REFUSED, None),
        "typo": (Oddity.REFUSED, None),
        "far": (Oddity.OUTSIDE, None),
        "between": (Oddity.OUTSIDE, None),
        "early": (Oddity.OUTSIDE, None),
        "kind": (Oddity.REFUSED, None),
    }
    messages = {f.id: f.message for f in report.findings}
    assert messages["far"] == "price > 5000 lies outside the schema: price has minimum 0, maximum 1000, precision 0.01"
    assert "did you mean price?" in messages["typo"]
    assert str(report) == "11 filters: 3 refused, 3 outside, 1 never, 1 always, 1 duplicate, 1 covered"


def test_filters_of_different_subscribers_are_not_compared() -> None:
    report = lint([LintItem(1, "a > 5", "ann"), LintItem(2, "a > 5", "bob"), LintItem(3, "a > 6", "bob")])
    assert [(f.id, f.oddity, f.other) for f in report.findings] == [(3, Oddity.COVERED, 2)]


def test_of_two_that_say_the_same_in_other_words_the_later_is_told() -> None:
    assert told({"x": "s LIKE 'OT%'", "y": "s LIKE 'OT%' AND s >= 'OT'"}) == {"y": ("covered", "x")}
    assert told({"y": "s LIKE 'OT%' AND s >= 'OT'", "x": "s LIKE 'OT%'"}) == {"x": ("covered", "y")}


def test_a_prefix_covers_an_interval_of_strings() -> None:
    assert told({"x": "s LIKE 'ab%'", "y": "s BETWEEN 'aba' AND 'abz'"}) == {"y": ("covered", "x")}
    assert told({"x": "s LIKE 'ab%' AND a > 1", "y": "s >= 'ab' AND s < 'ac' AND a > 2"}) == {"y": ("covered", "x")}


def make_filters(rng: random.Random, count: int) -> dict[str, str]:
    """Small domains, so that many cover one another."""

    def text() -> str:
        return "".join(rng.choices("AB", k=rng.randint(1, 3)))

    def part(name: str) -> str:
        low = rng.randint(0, 20)
        return {
            "symbol": rng.choice([f"symbol = '{text()}'", f"symbol LIKE '{text()}%'", f"symbol LIKE '%{text()}'",
                                  f"symbol IN ('{text()}', '{text()}')", f"symbol LIKE '%{text()}%'"]),
            "price": rng.choice([f"price > {low}", f"price BETWEEN {low} AND {low + rng.randint(0, 9)}",
                                 f"price <= {low}", f"price = {low}", f"price != {low}"]),
            "live": rng.choice(["live", "NOT live", "live IS NOT NULL", "live IS NULL"]),
        }[name]  # fmt: skip

    def conjunction() -> str:
        return " AND ".join(part(name) for name in rng.sample(["symbol", "price", "live"], rng.randint(1, 3)))

    return {
        str(n): conjunction() if rng.random() < 0.85 else f"({conjunction()}) OR ({conjunction()})"
        for n in range(count)
    }


@pytest.mark.parametrize("seed", range(4))
def test_every_covered_filter_is_found_and_nothing_else(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against all pairs. Only a covering by several alternatives together may be missed."""
    monkeypatch.setattr("meetpoint.language.filters.lint.CANDIDATES_MAX", 10_000)
    texts = make_filters(random.Random(seed), 150)
    report = lint(texts)
    assert report.cut_short == 0
    findings = {f.id: f for f in report.findings}
    filters = {id_: parse_filter(text) for id_, text in texts.items()}
    checked = 0
    for id_, filter_ in filters.items():
        coverers = {
            other
            for other, wide in filters.items()
            if other != id_ and covers(wide, filter_) and (int(other) < int(id_) or not covers(filter_, wide))
        }
        if id_ in findings and findings[id_].oddity is Oddity.COVERED:
            assert findings[id_].other in coverers
            checked += 1
        elif id_ not in findings and coverers:
            assert all(len(filters[other].conjunctions) > 1 for other in coverers), (texts[id_], coverers)
    assert checked > 20


@pytest.mark.slow
def test_a_search_that_is_cut_short_says_so() -> None:
    few = {str(n): f"s LIKE '%{n:04d}%'" for n in range(CANDIDATES_MAX)}
    assert lint(few).cut_short == 0
    many = {str(n): f"s LIKE '%{n:04d}%'" for n in range(CANDIDATES_MAX + 10)}
    assert lint(many).cut_short == len(many)
    assert f"{len(many)} compared with some others only" in str(lint(many))


def test_comparing_may_be_bounded_in_time() -> None:
    filters = {"wide": "a > 3", "narrow": "a > 4", "again": "a > 3", "other": "b = 1", "wrong": "a >"}
    assert lint(filters, compare_s=60) == lint(filters)
    assert lint(filters).cut_short == 0
    report = lint(filters, compare_s=-1)
    assert {finding.oddity for finding in report.findings} == {Oddity.DUPLICATE, Oddity.REFUSED}
    assert report.cut_short == 3, "of those that are held each has itself, at least, to be compared with"


def test_places_keep_the_order_of_numbers() -> None:
    numbers = [-1e308, -5.0, -1e-300, -0.0, 0.0, 5e-324, 1.0, 2.0, 1e308]
    places = [_place(n) for n in numbers]
    assert places == sorted(places)
    assert _place(-0.0) == _place(0.0)
    assert all(0 <= place < 2**64 for place in places)


def test_an_empty_set_has_nothing_odd() -> None:
    assert str(lint({})) == "0 filters: nothing odd"
