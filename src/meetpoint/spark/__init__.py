"""The data pipeline on Spark: events and subscriptions as tables and streams. PySpark is imported nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meetpoint.spark.session import session

if TYPE_CHECKING:
    from meetpoint.spark.checks import check_filter
    from meetpoint.spark.java import find_java
    from meetpoint.spark.types import schema_from_spark, spark_schema, unusable_columns

__all__ = ["check_filter", "find_java", "schema_from_spark", "session", "spark_schema", "unusable_columns"]


def __getattr__(name: str) -> object:
    # Lazily, since `python -m meetpoint.spark.java` imports this package before it runs the module.
    if name == "find_java":
        from meetpoint.spark.java import find_java

        return find_java
    if name == "check_filter":
        from meetpoint.spark.checks import check_filter

        return check_filter
    if name in ("schema_from_spark", "spark_schema", "unusable_columns"):  # these import PySpark
        from meetpoint.spark import types

        return getattr(types, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
