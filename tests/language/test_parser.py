"""The tree of a filter's text, and every refusal with its place, its piece and the way out."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.errors import FilterError, LimitError
from meetpoint.language.names import NAME_LENGTH_MAX
from meetpoint.language.syntax.lexer import TEXT_LENGTH_MAX
from meetpoint.language.syntax.parser import NESTING_MAX, parse_tree
from meetpoint.language.syntax.tree import (
    And,
    Compare,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Or,
    TextTest,
    predicates,
)
from meetpoint.language.values import Kind


def only_literal(text: str) -> Literal:
    node = parse_tree(text)
    assert isinstance(node, Compare)
    return node.literal


def outline(node: Node) -> object:
    """The tree as nested tuples of operators and attribute names."""
    match node:
        case And(children):
            return ("AND", *map(outline, children))
        case Or(children):
            return ("OR", *map(outline, children))
        case Not(child):
            return ("NOT", outline(child))
        case Constant(value):
            return value
        case _:
            return node.attribute


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a AND b OR c AND d", ("OR", ("AND", "a", "b"), ("AND", "c", "d"))),
        ("a AND (b OR c) AND d", ("AND", "a", ("OR", "b", "c"), "d")),
        ("NOT a AND b", ("AND", ("NOT", "a"), "b")),
        ("NOT NOT a", ("NOT", ("NOT", "a"))),
        ("NOT a = 1 OR b", ("OR", ("NOT", "a"), "b")),
        ("a BETWEEN 1 AND 2 AND b", ("AND", "a", "b")),
        ("TRUE OR a", ("OR", True, "a")),
        ("((((a))))", "a"),
    ],
)
def test_precedence_is_not_then_and_then_or(text: str, expected: object) -> None:
    assert outline(parse_tree(text)) == expected


@pytest.mark.parametrize(
    "name", ["binary", "user", "date", "timestamp", "escape", "select", "where", "any", "interval", "case"]
)
def test_attributes_may_be_named_like_keywords(name: str) -> None:
    assert parse_tree(f"{name} > 5").attribute == name  # type: ignore[union-attr]
    assert parse_tree(f"{name} IS NULL").attribute == name  # type: ignore[union-attr]
    assert parse_tree(f"5 < {name}").attribute == name  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["and", "OR", "Not", "in", "LIKE", "between", "is", "null", "true", "FALSE"])
def test_reserved_words_are_names_within_backticks_only(name: str) -> None:
    assert parse_tree(f"`{name}` > 5").attribute == f"`{name}`"  # type: ignore[union-attr]
    with pytest.raises(FilterError):
        parse_tree(f"{name} > 5")


def test_names_are_case_sensitive_and_words_are_not() -> None:
    node = parse_tree("Price Is Not Null aNd price bEtween 1 anD 2")
    assert [p.attribute for p in predicates(node)] == ["Price", "price"]


def test_paths_quote_only_segments_that_need_it() -> None:
    assert parse_tree("`order`.`unit price`.`a.b` = 1").attribute == "order.`unit price`.`a.b`"  # type: ignore[union-attr]
    assert parse_tree("`tick``s` = 1").attribute == "`tick``s`"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("- 5", -5),
        ("+5", 5),
        ("007", 7),
        ("8.30", Decimal("8.30")),
        ("5.", Decimal(5)),
        (".5", Decimal("0.5")),
        ("1e3", Decimal(1000)),
        ("1.5E-3", Decimal("0.0015")),
        ("-1e308", Decimal("-1e308")),
        ("9" * 38, int("9" * 38)),
        ("0" * 30 + "9" * 38, int("9" * 38)),
        ("0." + "0" * 37 + "1", Decimal("1e-38")),
        ("5e-324", Decimal("5e-324")),
        ("-0.0", 0),
        ("0e9999", 0),
    ],
)
def test_numbers_are_exact(text: str, value: int | Decimal) -> None:
    literal = only_literal(f"a = {text}")
    assert (literal.kind, literal.value) == (Kind.NUMBER, value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("''", ""),
        ("'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        ('"it\'s"', "it's"),
        ('"say ""hi"""', 'say "hi"'),
        (r"'a\\b'", "a\\b"),
        (r"'\n\t\r\b\0\Z'", "\n\t\r\b\0\x1a"),
        (r"'\%\_'", "\\%\\_"),
        (r"'\q'", "q"),
        (r"'\101\1778'", "A\x7f8"),
        (r"'\377'", "377"),
        (r"'\u0041\U0001F600'", "A\U0001f600"),
        (r"'\ud83d\ude00'", "\U0001f600"),
        (r"'\u00zz'", "u00zz"),
        ("'two\nlines'", "two\nlines"),
        ("'; -- /* ? [ $ `'", "; -- /* ? [ $ `"),
    ],
)
def test_strings_are_read_as_spark_reads_them(text: str, value: str) -> None:
    literal = only_literal(f"a = {text}")
    assert (literal.kind, literal.value) == (Kind.STRING, value)


def test_timestamps_without_a_zone_are_utc() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    for text in ("2026-01-31 12:00:00", "2026-01-31T12:00:00Z", "2026-01-31 13:00:00+01:00", "2026-01-31T12:00"):
        literal = only_literal(f"t > timestamp '{text}'")
        assert (literal.kind, literal.value) == (Kind.TIMESTAMP, noon)


def test_a_boolean_attribute_alone_means_it_is_true() -> None:
    node = parse_tree("active")
    assert isinstance(node, Compare)
    assert (node.op, node.literal.kind, node.literal.value) == ("=", Kind.BOOLEAN, True)


def test_a_literal_may_stand_first() -> None:
    node = parse_tree("8.30 <= price")
    assert isinstance(node, Compare)
    assert (node.attribute, node.op) == ("price", ">=")


def test_predicates_know_their_place_in_the_text() -> None:
    text = "a = 1 AND startswith(b, 'x') OR NOT c IN (1, 2) AND d NOT LIKE 'x' ESCAPE '!' OR e IS NOT NULL"
    pieces = {type(p): text[p.start : p.end] for p in predicates(parse_tree(text))}
    assert pieces == {
        Compare: "a = 1",
        TextTest: "startswith(b, 'x')",
        In: "c IN (1, 2)",
        Like: "d NOT LIKE 'x' ESCAPE '!'",
        IsNull: "e IS NOT NULL",
    }


REFUSALS = [
    # functions, arithmetic, attribute against attribute, subqueries
    ("upper(a) = 'X'", "upper", "startswith"),
    ("a = lower('X')", "lower", "startswith"),
    ("cast(a AS INT) = 1", "cast", "startswith"),
    ("a + 1 > 2", "+", "one literal"),
    ("a > 1 + 2", "+", "one literal"),
    ("a * 2 = 4", "*", "literal beforehand"),
    ("a % 2 = 0", "%", "literal beforehand"),
    ("a = b", "b", "'b' in quotes"),
    ("a = `b`", "`b`", "two attributes cannot"),
    ("a BETWEEN b AND 3", "b", "two attributes cannot"),
    ("a IN (b)", "b", "two attributes cannot"),
    ("a IN (SELECT 1)", "SELECT", "the values themselves"),
    ("a = (SELECT 1)", "(SELECT", "the values themselves"),
    ("EXISTS (SELECT 1)", "EXISTS", "the values themselves"),
    # IN (), digits, comments, ;, parameters, arrays, COLLATE, RLIKE, ILIKE
    ("a IN ()", "IN ()", "at least one value"),
    ("a = " + "1" * 39, "1" * 39, "shorten"),
    ("a = 0." + "0" * 38 + "1", "0." + "0" * 38 + "1", "shorten"),
    ("a = 1e400", "1e400", "largest"),
    ("a = 1e-400", "1e-400", "smallest"),
    ("a = 1e-99999999999999999999", "1e-99999999999999999999", "-324 to 308"),
    ("a = 0e99999999999999999999", "0e99999999999999999999", "-324 to 308"),
    ("a = 1 -- b", "--", "remove"),
    ("a = /* b */ 1", "/*", "remove"),
    ("a = 1; DROP TABLE b", ";", "remove"),
    ("a = ?", "?", "the value itself"),
    ("a = :b", ":", "the value itself"),
    ("a = $1", "$", "the value itself"),
    ("a[0] = 1", "[", "a.b"),
    ("a = 'x' COLLATE UTF8_LCASE", "COLLATE", "leave it out"),
    ("a RLIKE 'x'", "RLIKE", "LIKE"),
    ("a NOT REGEXP 'x'", "REGEXP", "LIKE"),
    ("a ILIKE 'x'", "ILIKE", "LIKE"),
    # suffixes, other literals, other operators
    ("a = 1.5D", "1.5D", "without a suffix"),
    ("a = 1L", "1L", "without a suffix"),
    ("a = 1x", "1x", "space"),
    ("a = NULL", "NULL", "IS NULL"),
    ("a = DATE '2026-01-01'", "DATE '2026-01-01'", "TIMESTAMP"),
    ("a = X'1F'", "X'1F'", "string"),
    ("a = r'x'", "r'x'", "plain string"),
    ("a = TIMESTAMP 'yesterday'", "'yesterday'", "2026-01-02"),
    ("a = TIMESTAMP '2026-02-30'", "'2026-02-30'", "28"),
    ("a == 1", "==", "write ="),
    ("a <=> 1", "<=>", "IS NULL"),
    ("a IS TRUE", "TRUE", "= TRUE"),
    ("!a", "!", "NOT"),
    ("a || b", "||", "OR"),
    ("a::int = 1", "::", "own type"),
    ("CASE WHEN a THEN b END", "CASE", "AND, OR and NOT"),
    ("CASE a WHEN 1 THEN b END", "CASE", "AND, OR and NOT"),
    ("a IS DISTINCT FROM 5", "DISTINCT", "!= and IS NULL"),
    ("5 BETWEEN a AND b", "BETWEEN", "attribute first"),
    ("'x' LIKE a", "LIKE", "attribute first"),
    ("a = 0x10", "0x10", "decimal digits"),
    ("a = 1_000", "1_000", "decimal digits"),
    ("`` = 1", "``", "name between"),
    ("a = `b c`", "`b c`", "'b c' in quotes"),
    ("a LIKE ANY ('x')", "ANY", "several LIKE"),
    # shape
    ("", "", "condition"),
    ("a =", "", "complete"),
    ("a = 1 AND", "", "complete"),
    ("a = 1 b = 2", "b", "AND or OR"),
    ("(a = 1", "(", "closing )"),
    ("a = 1)", ")", "opening ("),
    ("a = 'x", "'x", "closing '"),
    ("`a = 1", "`a = 1", "closing `"),
    ("a = 1 = 2", "=", "at a time"),
    ("1 = 1", "1", "TRUE or FALSE"),
    ("'x'", "'x'", "attribute first"),
    ("a = 'x' 'y'", "'y'", "one string"),
    ("a IN (1, 'x')", "'x'", "one kind"),
    ("a BETWEEN 1 AND 'x'", "'x'", "one kind"),
    ("a BETWEEN 1", "", "BETWEEN low AND high"),
    ("größe > 1", "ö", "backticks"),
    ("startswith('x', a)", "'x'", "attribute first"),
    ("contains(a, 5)", "5", "single quotes"),
    ("contains(a)", ")", "contains(attribute, 'text')"),
    ("a NOT = 1", "=", "NOT first"),
    ("a = -b", "-b", "before a number"),
    (r"a = '\ud800'", r"'\ud800'", r"\U"),
    (r"a = '\U00110000'", r"'\U00110000'", "0010FFFF"),
    # LIKE's escape may precede only %, _ or itself
    (r"a LIKE 'x\\y'", r"'x\\y'", "another ESCAPE"),
    (r"a LIKE 'x\\'", r"'x\\'", r"\\"),
    ("a LIKE 'x!y' ESCAPE '!'", "'x!y'", "another ESCAPE"),
    ("a LIKE 'x' ESCAPE '!!'", "'!!'", "ESCAPE '!'"),
    ("a LIKE 'x' ESCAPE ''", "''", "ESCAPE '!'"),
    ("a LIKE b", "b", "single quotes"),
]


@pytest.mark.parametrize(("text", "piece", "hint"), REFUSALS)
def test_a_refusal_names_the_position_the_piece_and_the_way_out(text: str, piece: str, hint: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_tree(text)
    error = caught.value
    assert error.piece == piece
    assert hint in error.hint
    assert f"column {error.start + 1}" in str(error)
    assert "\n" not in str(error).replace(text, "")


def test_nesting_is_refused_past_its_limit_and_not_before() -> None:
    assert parse_tree("(" * NESTING_MAX + "a" + ")" * NESTING_MAX)
    assert parse_tree("NOT " * NESTING_MAX + "a")
    for text in ("(" * (NESTING_MAX + 1) + "a" + ")" * (NESTING_MAX + 1), "NOT " * 100_00 + "a", "(" * 60_000):
        with pytest.raises(LimitError, match="nest deeper than 64"):
            parse_tree(text)


def test_length_is_refused_past_its_limit_and_not_before() -> None:
    text = "a = '" + "x" * (TEXT_LENGTH_MAX - 6) + "'"
    assert parse_tree(text)
    with pytest.raises(LimitError, match="65536"):
        parse_tree(text + " ")


def test_names_are_refused_past_their_length_and_not_before() -> None:
    assert parse_tree("a" * NAME_LENGTH_MAX + " = 1")
    for name in ("a" * (NAME_LENGTH_MAX + 1), ".".join("a" * 501), f"`{'é' * 999}`"):
        with pytest.raises(LimitError, match="1001 characters, and the limit is 1000"):
            parse_tree(f"b = 2 AND {name} = 1")


def test_the_pointer_shows_the_line_and_the_piece() -> None:
    with pytest.raises(FilterError) as caught:
        parse_tree("price > 8 AND\n  upper(symbol) = 'OTE'")
    assert caught.value.pointer() == "  upper(symbol) = 'OTE'\n  ^^^^^"


@given(st.text(alphabet="ab1.5'\"`\\()<>=!-+*/;,?[]%_eE \n" + "ANDORNOTINLIKEBETWEENISNULLESCAPE\ud800é🙂"))
def test_any_text_is_parsed_or_refused_within_its_bounds(text: str) -> None:
    try:
        parse_tree(text)
    except FilterError as error:
        refusal = error
    else:
        return
    assert 0 <= refusal.start <= refusal.end <= len(text)
    assert refusal.pointer()


def test_every_message_is_one_line() -> None:
    for text in ("a = `b\nc`", "a LIKE 'x!\n' ESCAPE '!'", "`a\nb` = c"):
        with pytest.raises(FilterError) as caught:
            parse_tree(text)
        assert "\n" not in str(caught.value)


def test_what_is_not_text_is_refused() -> None:
    with pytest.raises(FilterError, match="a filter is a string"):
        parse_tree(None)  # type: ignore[arg-type]
