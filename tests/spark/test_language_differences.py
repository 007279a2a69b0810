"""Each row of docs/language.md's "Where we differ from Spark": Spark's answer and ours, side by side."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from meetpoint.errors import FilterError
from meetpoint.language import parse_filter
from meetpoint.matching.scan import evaluate


def answers(spark: Any, columns: str, row: tuple[object, ...], text: str) -> tuple[bool | None, bool | None]:
    """(Spark's verdict, ours) for one row."""
    frame = spark.createDataFrame([row], columns)
    event = frame.collect()[0].asDict(recursive=True)
    return frame.selectExpr(f"({text}) AS verdict").collect()[0].verdict, evaluate(parse_filter(text).tree, event)


def test_a_literal_outside_the_columns_range_makes_spark_forget_null(spark: Any) -> None:
    assert answers(spark, "i BIGINT", (None,), "i < 9223372036854775808") == (True, None)
    assert spark.createDataFrame([(None,)], "i BIGINT").where("i < 9223372036854775808").count() == 1
    assert answers(spark, "i BIGINT", (5,), "i < 9223372036854775808") == (True, True)


def test_an_exponent_makes_spark_compare_as_doubles(spark: Any) -> None:
    assert answers(spark, "i BIGINT", (2**53 + 1,), "i = 9007199254740992e0") == (True, False)
    assert answers(spark, "i BIGINT", (2**53,), "i = 9007199254740992e0") == (True, True)
    assert answers(spark, "d DECIMAL(38,20)", (Decimal("0.10000000000000000001"),), "d = 1e-1") == (True, False)


def test_in_casts_its_list_to_one_type_in_spark(spark: Any) -> None:
    assert answers(spark, "i BIGINT", (2**53,), "i IN (9007199254740993, 1e0)") == (True, False)
    assert answers(spark, "i BIGINT", (2**53,), "i = 9007199254740993 OR i = 1e0") == (False, False)
    wide = (Decimal("1.100000000000000000000000000001"),)
    assert answers(spark, "d DECIMAL(38,30)", wide, "d IN (1.1, 12345678901234567890.5)") == (True, False)
    assert answers(spark, "d DECIMAL(38,30)", wide, "d = 1.1 OR d = 12345678901234567890.5") == (False, False)


def test_spark_casts_where_we_say_null(spark: Any) -> None:
    assert answers(spark, "s STRING", ("5",), "s = 5") == (True, None)


def test_a_bad_escape_is_an_error_at_run_time_in_spark(spark: Any) -> None:
    from pyspark.errors import PySparkException

    text = r"s LIKE 'a!b' ESCAPE '!'"
    with pytest.raises(PySparkException, match="escape"):
        spark.createDataFrame([("ab",)], "s STRING").where(text).collect()
    with pytest.raises(FilterError, match="escape"):
        parse_filter(text)


@pytest.mark.parametrize("text", ["2026-1-2", "2026-01-01 00:00:00 Europe/Athens"])
def test_spark_reads_more_timestamps(spark: Any, text: str) -> None:
    assert spark.sql(f"SELECT TIMESTAMP '{text}' AS t").collect()[0].t is not None
    with pytest.raises(FilterError):
        parse_filter(f"t > TIMESTAMP '{text}'")
