from __future__ import annotations

import pytest

from meetpoint.errors import FilterError
from meetpoint.language import FilterParser, Schema, parse_filter

SCHEMA = Schema.from_yaml(
    """
    attributes:
      symbol: string
      price: decimal
      volume: integer
      live: boolean
      at: timestamp
      order.side: string
    """
)


@pytest.mark.parametrize(
    "text",
    [
        "symbol = 'OTE' AND price > 8.30 AND volume >= 1e3 AND live AND at < TIMESTAMP '2026-01-01'",
        "order.side LIKE 'b%' OR order IS NULL",
        "price IS NULL OR NOT live = FALSE",
        "(price > 1) AND `$tenant` = 'acme'",
        "(price > 1) AND `$tenant` IS NULL",
    ],
)
def test_kinds_that_fit_are_accepted(text: str) -> None:
    assert parse_filter(text, SCHEMA) == parse_filter(text)


@pytest.mark.parametrize(
    ("text", "piece", "message"),
    [
        ("live AND price = '8.30'", "price = '8.30'", "price is of type decimal and is compared with a string"),
        ("symbol = 5", "symbol = 5", "symbol is of type string and is compared with a num"),
        ("at > '2026-01-01'", "at > '2026-01-01'", "at is of type timestamp .* write TIMESTAMP"),
        ("volume LIKE '1%'", "volume LIKE '1%'", "volume is of type integer and is compared with a string"),
        ("price", "price", "price is of type decimal and is compared with a boolean"),
        ("startswith(live, 't')", "startswith(live, 't')", "write TRUE or FALSE"),
        ("volume IN (1, 2) AND symbol BETWEEN 1 AND 2", "symbol BETWEEN 1 AND 2", "symbol is of type string"),
        ("prize > 5", "prize > 5", "no attribute prize; did you mean price"),
        ("Price > 5", "Price > 5", "no attribute Price; did you mean price"),
        ("zzz IS NULL", "zzz IS NULL", "no attribute zzz; its attributes are symbol, price"),
        ("order.`$tenant` = 'a'", "order.`$tenant` = 'a'", "no attribute order"),
        ("order = 5", "order = 5", "order is an object; name one of its attributes: order.side"),
    ],
)
def test_a_mismatch_is_refused_with_its_place(text: str, piece: str, message: str) -> None:
    with pytest.raises(FilterError, match=message) as caught:
        parse_filter(text, SCHEMA)
    assert caught.value.piece == piece


def test_a_refused_shape_stays_refused() -> None:
    parser = FilterParser(SCHEMA)
    for literal in ("'x'", "'y'", "'x'"):
        with pytest.raises(FilterError):
            parser.parse(f"price = {literal}")
