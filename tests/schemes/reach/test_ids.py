"""Ids of events and conjunctions: what matches is a subset, always. Paper C, sections 2, 4.1 and 4.2."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from meetpoint.errors import SchemaError
from meetpoint.language import Attribute, Schema, Type, clean_attributes, parse_filter
from meetpoint.matching.scan import Scan
from meetpoint.schemes.reach.ids import AttributeIds, Ids, SignatureIds, is_subset
from tests.workloads import TYPES, random_events, random_filter

SCHEMA = Schema(tuple(Attribute(name, type_) for name, type_ in TYPES.items()))
FOUR = Schema((Attribute("a", Type.INTEGER), Attribute("b", Type.STRING), Attribute("c.d", Type.FLOAT)))
PLAIN = AttributeIds(FOUR)


def plain(text: str) -> list[str]:
    return [f"{PLAIN.of_conjunction(each):03b}" for each in parse_filter(text).conjunctions]


def test_bit_i_is_the_schemas_attribute_i() -> None:
    assert PLAIN.width == 3
    assert PLAIN.of_event({"a": 1}) == 0b001
    assert PLAIN.of_event({"b": "x", "c": {"d": 1.0}}) == 0b110
    assert PLAIN.of_event({"a": None, "other": 1}) == 0


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("a = 1 AND b LIKE 'x%'", ["011"]),
        ("a > 1", ["001"]),
        ("a != 1", ["001"]),
        ("a IS NOT NULL", ["001"]),
        ("a IS NULL", ["000"]),
        ("a IS NULL AND b = 'x'", ["010"]),
        ("NOT (a = 1)", ["001"]),
        ("NOT (a IS NULL)", ["001"]),
        ("a = 1 OR c.d < 2", ["001", "100"]),
        ("NOT (a = 1 AND b = 'x')", ["001", "010"]),
        ("a = 1 OR a IS NULL", ["001", "000"]),
        ("other = 1 AND a = 1", ["001"]),
        ("TRUE", ["000"]),
        ("`a` = 1", ["001"]),
    ],
)
def test_a_conjunction_has_the_bits_without_which_it_does_not_hold(text: str, ids: list[str]) -> None:
    assert plain(text) == ids


def test_a_schema_that_grows_keeps_the_low_bits() -> None:
    grown = AttributeIds(FOUR.evolve(Schema((*FOUR.attributes, Attribute("e", Type.INTEGER)))))
    for event in ({"a": 1}, {"b": "x", "e": 2}, {"c": {"d": 1.0}}):
        assert grown.of_event(event) & 0b111 == PLAIN.of_event(event)


@pytest.mark.slow
@pytest.mark.parametrize(
    "ids",
    [AttributeIds(SCHEMA), *(SignatureIds(SCHEMA, width) for width in (1, 7, 16, 64, 4096))],
    ids=lambda ids: f"{type(ids).__name__}-{ids.width}",
)
@pytest.mark.slow
def test_whatever_the_oracle_accepts_is_a_subset(ids: Ids) -> None:
    rng = random.Random(7)
    events = random_events(rng, 120)
    clean = [clean_attributes(event) for event in events]
    event_ids = [ids.of_event(event) for event in clean]
    assert all(0 <= each < 1 << ids.width for each in event_ids)
    matched = 0
    for number in range(400):
        filter_ = parse_filter(random_filter(rng))
        conjunctions = [(each, ids.of_conjunction(each)) for each in filter_.conjunctions]
        oracle: Scan[str] = Scan()
        oracle.add(str(number), filter_)
        for event, event_id in zip(clean, event_ids, strict=True):
            holding = [each for each, conjunction_id in conjunctions if is_subset(conjunction_id, event_id)]
            if oracle.match(event):
                matched += 1
                assert any(each.accepts(event) for each in holding), (filter_.text, event)
    assert matched > 5000


@pytest.mark.parametrize("value", [1, 1.0, Decimal("1.00")])
def test_equal_values_have_one_signature_whatever_their_class(value: object) -> None:
    ids = SignatureIds(FOUR, 256)
    [conjunction] = parse_filter("a = 1.0").conjunctions
    assert is_subset(ids.of_conjunction(conjunction), ids.of_event({"a": value}))


def test_a_signature_tells_values_apart_and_ranges_only_their_attribute() -> None:
    ids = SignatureIds(FOUR, 256)

    def bits(text: str) -> int:
        [conjunction] = parse_filter(text).conjunctions
        return ids.of_conjunction(conjunction)

    event = ids.of_event({"a": 5, "b": "NYSE"})
    assert is_subset(bits("a = 5 AND b = 'NYSE'"), event)
    assert not is_subset(bits("a = 6"), event)
    assert not is_subset(bits("b = 'NASDAQ'"), event)
    assert not is_subset(bits("c.d > 0"), event)
    for wide in ("a > 0", "a != 6", "a IS NOT NULL", "a IN (5, 6)", "a IN (6, 7)", "a BETWEEN 6 AND 9"):
        assert bits(wide) == bits("a IS NOT NULL"), wide
    assert bits("b LIKE 'NY%'") == bits("b IS NOT NULL")
    assert bits("a IS NULL") == 0
    assert bits("a = 5").bit_count() == 2


def test_in_has_the_bits_that_all_its_values_share() -> None:
    ids = SignatureIds(FOUR, 3)
    [one], [several] = (parse_filter(f"a IN ({values})").conjunctions for values in ("1", "1, 2, 3, 4, 5, 6, 7, 8"))
    assert several.constraints != one.constraints
    for value in range(1, 9):
        assert is_subset(ids.of_conjunction(several), ids.of_event({"a": value}))


def test_ids_need_attributes_and_a_width() -> None:
    with pytest.raises(SchemaError, match="at least one"):
        AttributeIds(Schema())
    with pytest.raises(SchemaError, match="at least one"):
        SignatureIds(Schema(), 8)
    for width in (0, 4097):
        with pytest.raises(SchemaError, match="1 to 4096"):
            SignatureIds(FOUR, width)
