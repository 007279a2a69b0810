from __future__ import annotations

from typing import Any

import pytest

from meetpoint.errors import FilterError
from meetpoint.spark import check_filter


@pytest.fixture(scope="module")
def columns(spark: Any) -> Any:
    rows = "i INT, f FLOAT, d DECIMAL(9,2), s STRING, b BOOLEAN, t TIMESTAMP, day DATE, tags ARRAY<STRING>"
    return spark.createDataFrame([], f"{rows}, o STRUCT<x: BIGINT, `odd name`: STRING>").schema


def test_filters_that_fit_the_columns_are_accepted(columns: Any) -> None:
    text = "i > 1 AND f <= 1e3 AND d = 8.30 AND s LIKE 'x%' AND b AND t > TIMESTAMP '2026-01-01' AND o.x IN (1, 2)"
    assert check_filter(text, columns).text == text
    assert check_filter("o.`odd name` IS NULL OR o IS NULL", columns)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i = '1'", "i is of type integer and is compared with a string; write a number"),
        ("s = 1", "s is of type string and is compared with a number"),
        ("t > '2026-01-01'", "write TIMESTAMP"),
        ("I = 1", "no attribute I; did you mean i"),
        ("o = 1", "o is an object; name one of its attributes: o.x"),
        ("day = TIMESTAMP '2026-01-01'", "column day is of type date.*cast it"),
        ("tags IS NULL", "column tags is of type array<string>"),
        ("i = ", "complete the condition"),
    ],
)
def test_a_filter_that_does_not_fit_is_refused_before_any_job(columns: Any, text: str, message: str) -> None:
    with pytest.raises(FilterError, match=message):
        check_filter(text, columns)
