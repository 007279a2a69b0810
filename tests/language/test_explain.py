"""Explanations: the verdict is the oracle's, every fact is true, and the facts given suffice."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Mapping

import pytest
from rich.console import Console

from meetpoint.errors import EventError, FilterError, LimitError
from meetpoint.language import clean_attributes, parse_filter
from meetpoint.language.filters.explain import Explanation, Fact, Relation, Step, explain, judge
from meetpoint.language.syntax.parser import parse_tree
from meetpoint.language.syntax.tree import Like, Literal, predicates
from meetpoint.language.values import kind_of
from meetpoint.matching.scan import _order, evaluate
from tests.workloads import random_events, random_filter


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_verdicts_are_the_oracles_and_facts_are_true_and_suffice(seed: int) -> None:
    rng = random.Random(seed)
    events = [clean_attributes(event) for event in random_events(rng, 25)]
    verdicts: set[bool | None] = set()
    relations: set[Relation] = set()
    for _ in range(60):
        try:
            filter_ = parse_filter(random_filter(rng))
        except LimitError:
            continue
        for event in events:
            told = explain(filter_, event)
            assert told.verdict is evaluate(filter_.tree, event), (filter_.text, event)
            assert follows(told), (filter_.text, event, told.facts)
            for fact in told.facts:
                assert is_true(fact), fact
                relations.add(fact.relation)
            for step in steps(told.tree):
                assert fits_as_told(step, event), step
            verdicts.add(told.verdict)
    assert verdicts == {True, False, None}
    assert len(relations) >= 9


def steps(step: Step) -> Iterator[Step]:
    yield step
    for child in step.children:
        yield from steps(child)


def fits_as_told(step: Step, event: Mapping[str, object]) -> bool:
    """Return whether the oracle, given a step's own text, says that the value fits where the fact says so."""
    if step.fact is None or step.fact.relation not in (Relation.FITS, Relation.UNFIT):
        return True
    tree = parse_tree(step.label)
    fits = evaluate(tree, event) is not (isinstance(tree, Like) and tree.negated)
    return fits is (step.fact.relation is Relation.FITS)


def is_true(fact: Fact) -> bool:
    """Check a fact by other means than those that found it."""
    value, literals = fact.value, fact.literals
    match fact.relation:
        case Relation.MISSING:
            return value is None
        case Relation.PRESENT:
            return value is not None
        case Relation.OTHER_KIND:
            return kind_of(value) is not kind_of(literals[0])
        case Relation.FITS | Relation.UNFIT:
            return isinstance(value, str)  # whether it fits, `fits_as_told` asks the oracle
    orders = [_order(value, Literal(kind_of(value), literal, 0)) for literal in literals]  # type: ignore[arg-type]
    match fact.relation:
        case Relation.BELOW:
            return orders[0] < 0
        case Relation.EQUAL:
            return orders[0] == 0
        case Relation.ABOVE:
            return orders[-1] > 0
        case Relation.WITHIN:
            return orders[0] >= 0 >= orders[1]
        case Relation.LISTED:
            return 0 in orders
        case Relation.UNLISTED:
            return 0 not in orders


def follows(told: Explanation) -> bool:
    """Return whether the verdict (TRUE, or not TRUE) follows from the named facts whatever the other predicates say."""
    named = {id(fact) for fact in told.facts}

    def possible(step: Step) -> set[bool | None]:
        if not step.children:
            return {step.verdict} if step.fact is None or id(step.fact) in named else {True, False, None}
        below = [possible(child) for child in step.children]
        if step.label == "NOT":
            return {None if v is None else not v for v in below[0]}
        found: set[bool | None] = below[0]
        for more in below[1:]:
            found = {combine(step.label, a, b) for a in found for b in more}
        return found

    outcomes = possible(told.tree)
    return outcomes == {True} if told.accepted else True not in outcomes


def combine(label: str, a: bool | None, b: bool | None) -> bool | None:
    decisive = label == "OR"
    return decisive if decisive in (a, b) else None if None in (a, b) else not decisive


EVENT = {"exchange": "NYSE", "price": 8.75, "symbol": "BA", "halted": True, "order": {"side": "buy"}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("price BETWEEN 8.30 AND 8.70", "price 8.75 is above 8.70"),
        ("price < 8.70 AND symbol LIKE 'OT%'", "price 8.75 is above 8.70"),
        ("price > 9 OR volume > 5", "price 8.75 is below 9 and volume is missing"),
        ("exchange = 'LSE'", "exchange 'NYSE' is not 'LSE'"),
        ("exchange < 'A'", "exchange 'NYSE' comes after 'A'"),
        ("NOT halted", "halted is TRUE"),
        ("NOT exchange = 'NYSE'", "exchange is 'NYSE'"),
        ("symbol LIKE 'OT%'", "symbol 'BA' does not begin with 'OT'"),
        ("symbol LIKE '%OT'", "symbol 'BA' does not end with 'OT'"),
        ("contains(symbol, 'x')", "symbol 'BA' does not contain 'x'"),
        ("symbol LIKE '_'", "symbol 'BA' does not fit '_'"),
        ("symbol IN ('a', 'b', 'c', 'd', 'e', 'f')", "symbol 'BA' is none of 'a', 'b', 'c', 'd', 'e' and 1 more"),
        ("price = '8.75'", "price is a number, not a string: 8.75"),
        ("order > 5", "order is an object, not a number: an object"),
        ("order.side IS NULL", "order.side is 'buy'"),
        ("volume IS NOT NULL", "volume is missing"),
        ("FALSE", "the filter is FALSE"),
        ("price > 8 AND halted", "price 8.75 is above 8 and halted is TRUE"),
    ],
)
def test_the_shortest_reason_in_words(text: str, reason: str) -> None:
    assert explain(text, EVENT).reason == reason


def test_text_shows_the_tree_with_values_beside_the_constraints() -> None:
    assert explain("exchange = 'NYSE' AND (price < 8.70 OR NOT volume > 5)", EVENT).text() == (
        "? not accepted: price 8.75 is above 8.70 and volume is missing\n"
        "? AND\n"
        "├─ ✓ exchange = 'NYSE'  exchange is 'NYSE'\n"
        "└─ ? OR\n"
        "   ├─ ✗ price < 8.70    price 8.75 is above 8.70\n"
        "   └─ ? NOT\n"
        "      └─ ? volume > 5   volume is missing"
    )


def test_json_and_terminal_say_the_same() -> None:
    told = explain("price < 8.70", EVENT)
    assert json.loads(json.dumps(told.to_dict())) == {
        "accepted": False,
        "verdict": "false",
        "reason": "price 8.75 is above 8.70",
        "filter": "price < 8.70",
        "tree": {
            "label": "price < 8.70",
            "verdict": "false",
            "attribute": "price",
            "value": "8.75",
            "fact": "price 8.75 is above 8.70",
        },
    }
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(told)
    assert "✗ price < 8.70   price 8.75 is above 8.70" in console.export_text()


def test_long_values_are_cut_and_control_characters_escaped() -> None:
    assert len(explain("s = 'x'", {"s": "y" * 10_000}).reason) < 100
    assert "\n" not in explain("s = 'x'", {"s": "two\nlines"}).reason


def test_labels_keep_their_literals() -> None:
    told = explain("s   =\n 'a  b'", {"s": "a b"})
    assert told.tree.label == "s = 'a  b'"
    assert explain("s = 'a\nb'", {}).tree.label == "s = 'a\\nb'"
    assert "\x1b" not in explain("s = 'x'", {"s": "\x1b[31m"}).text()


def test_bad_input_is_refused() -> None:
    with pytest.raises(FilterError):
        explain("price >", EVENT)
    with pytest.raises(EventError, match="price"):
        explain("price > 5", {"price": [1, 2]})


def test_judging_one_predicate_gives_its_fact() -> None:
    (predicate,) = predicates(parse_filter("price > 9").tree)
    verdict, fact = judge(predicate, {"price": 10})
    assert verdict is True
    assert fact == Fact("price", 10, Relation.ABOVE, (9,), "price 10 is above 9")
