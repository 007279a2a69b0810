"""Permissions never exceed the token: compared with the oracle on random filters and events."""

from __future__ import annotations

import random

import pytest

from meetpoint.errors import LimitError
from meetpoint.language import Attributes, parse_filter
from meetpoint.matching.scan import evaluate
from meetpoint.security import Grant, Permit, Rights, TokenError
from tests.workloads import random_events, random_filter

SEEDS = range(60)


def permit(publish: Rights = Rights(), subscribe: Rights = Rights()) -> Permit:  # noqa: B008 - frozen
    return Permit(Grant(client="c", publish=publish, subscribe=subscribe, expires=0.0))


def accepts(text: str, event: Attributes) -> bool:
    return evaluate(parse_filter("TRUE" if text == "*" else text).tree, event) is True


def allowed(rights: Rights, event: Attributes) -> bool:
    """Return what the filters accept, by the oracle."""
    return any(accepts(one, event) for one in rights.allow) and not any(accepts(one, event) for one in rights.deny)


def random_rights(rng: random.Random) -> Rights:
    allow = ["*"] if rng.random() < 0.2 else [random_filter(rng, 2) for _ in range(rng.randrange(4))]
    return Rights(tuple(allow), tuple(random_filter(rng, 2) for _ in range(rng.choice((0, 0, 1, 2)))))


@pytest.mark.parametrize("seed", SEEDS)
def test_events_are_permitted_as_the_oracle_says(seed: int) -> None:
    rng = random.Random(seed)
    rights = random_rights(rng)
    judge = permit(rights, rights)
    for event in random_events(rng, 60):
        said = allowed(rights, event)
        assert (judge.why_not_publish(event) is None) == said
        assert judge.may_receive(event) == said


@pytest.mark.slow
def test_a_permitted_subscription_gets_nothing_that_is_not_allowed() -> None:
    permitted = hits = 0
    for seed in SEEDS:
        rng = random.Random(seed)
        rights = random_rights(rng)
        judge = permit(subscribe=rights)
        wanted = [random_filter(rng, 2) for _ in range(20)]
        wanted += [f"({text}) AND ({one})" for text in wanted[:5] for one in rights.allow if one != "*"]
        events = random_events(rng, 40)
        for text in wanted:
            one = parse_filter(text)
            if judge.why_not_subscribe(one) is None:
                permitted += 1
                for event in events:
                    if evaluate(one.tree, event) is True:
                        hits += 1
                        assert allowed(rights, event), (seed, text, rights, event)
    assert permitted > 100
    assert hits > 500


def test_what_the_reason_says_to_add_is_enough() -> None:
    advised = 0
    for seed in SEEDS:
        rng = random.Random(seed)
        judge = permit(subscribe=random_rights(rng))
        text = random_filter(rng, 2)
        for _ in range(8):
            try:
                reason = judge.why_not_subscribe(parse_filter(text))
            except LimitError:
                break  # what is added makes it longer than a filter may be
            if reason is None or "…" in reason or "nothing" in reason:
                break
            advised += 1
            added = reason.rpartition(": AND ")[2]
            text = f"({text}) AND {added}"
        else:
            pytest.fail(f"seed {seed}: {text} is still refused: {reason}")
    assert advised > 20


# -- by hand -----------------------------------------------------------------------------------------------------------

STOCKS = Rights(("symbol LIKE 'A%'", "symbol = 'OTE' AND price < 100"), ("secret = TRUE",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("symbol = 'AA' AND secret IS NULL", None),
        ("symbol LIKE 'AB%' AND NOT (secret = TRUE)", None),
        ("symbol = 'OTE' AND price BETWEEN 1 AND 99 AND secret = FALSE", None),
        ("symbol IN ('AA', 'OTE') AND price < 50 AND secret IS NULL", None),
        ("symbol = 'OTE' AND secret IS NULL", "add to the filter: AND ((symbol LIKE 'A%') OR"),
        ("symbol = 'AA'", "add: AND NOT (secret = TRUE)"),
        ("TRUE", "permits subscribing to only what is (symbol LIKE 'A%') OR"),
        ("FALSE", None),
    ],
)
def test_a_subscription_must_be_covered_and_touch_nothing_denied(text: str, said: str | None) -> None:
    reason = permit(subscribe=STOCKS).why_not_subscribe(parse_filter(text))
    assert reason is None if said is None else said in str(reason)


def test_publishing_says_what_is_at_fault() -> None:
    judge = permit(publish=STOCKS)
    assert judge.why_not_publish({"symbol": "AB"}) is None
    assert "permits publishing only what is" in str(judge.why_not_publish({"symbol": "B"}))
    assert "denies publishing what is secret = TRUE" in str(judge.why_not_publish({"symbol": "AB", "secret": True}))


def test_nothing_allowed_is_nothing() -> None:
    judge = permit()
    assert "nothing" in str(judge.why_not_publish({}))
    assert "nothing" in str(judge.why_not_subscribe(parse_filter("a = 1")))
    assert "nothing" in str(judge.why_not_subscribe(parse_filter("FALSE")))
    assert not judge.may_receive({})


def test_everything_is_everything_but_what_is_denied() -> None:
    judge = permit(Rights(("*",)), Rights(("*",)))
    assert judge.why_not_publish({"a": 1}) is None
    assert judge.why_not_subscribe(parse_filter("TRUE")) is None
    assert judge.may_receive({})
    judge = permit(Rights(("*",), ("a = 1",)), Rights(("*",), ("a = 1",)))
    assert judge.why_not_publish({"a": 1}) is not None
    assert judge.why_not_publish({"a": 2}) is None
    assert not judge.may_receive({"a": 1})
    assert judge.may_receive({})


def test_a_reason_is_one_short_line() -> None:
    long = " OR\n".join(f"attribute_{n} = 'value {n}'" for n in range(60))
    reason = permit(subscribe=Rights((long,))).why_not_subscribe(parse_filter("b = 1"))
    assert reason is not None
    assert "\n" not in reason
    assert len(reason) < 600


def test_a_grant_with_a_filter_that_is_none_is_refused() -> None:
    with pytest.raises(TokenError, match=r"subscribe\.deny: a =: filter, column 4") as caught:
        permit(subscribe=Rights(("*",), ("a =",)))
    assert caught.value.kind == "malformed"
