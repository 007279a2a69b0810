"""The data pipeline on Spark: events and subscriptions as tables and streams. PySpark is imported nowhere else.

For example:

    from meetpoint.spark import Subscriptions, match, session

    spark = session()
    hits = match(events, Subscriptions.read("alerts.csv", spark))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from meetpoint.errors import optional_imports
from meetpoint.spark.session import session

if TYPE_CHECKING:
    from meetpoint.spark.archives import compact_archive, read_archive
    from meetpoint.spark.columns import check_filter, schema_from_spark, spark_schema, unusable_columns
    from meetpoint.spark.java import find_java
    from meetpoint.spark.matching.backtest import backtest
    from meetpoint.spark.matching.job import MatchPlan, match, plan
    from meetpoint.spark.network.source import register
    from meetpoint.spark.statistics.measurement import measure
    from meetpoint.spark.streaming.job import stream
    from meetpoint.spark.streaming.sinks import deliver
    from meetpoint.spark.subscriptions.subscriptions import Subscriptions
    from meetpoint.spark.validation import Validated, validate

__all__ = [
    "MatchPlan",
    "Subscriptions",
    "Validated",
    "backtest",
    "check_filter",
    "compact_archive",
    "deliver",
    "find_java",
    "match",
    "measure",
    "plan",
    "read_archive",
    "register",
    "schema_from_spark",
    "session",
    "spark_schema",
    "stream",
    "unusable_columns",
    "validate",
]

_MODULES = {
    "MatchPlan": "matching.job",
    "Subscriptions": "subscriptions.subscriptions",
    "Validated": "validation",
    "backtest": "matching.backtest",
    "check_filter": "columns",
    "compact_archive": "archives",
    "deliver": "streaming.sinks",
    "find_java": "java",
    "match": "matching.job",
    "measure": "statistics.measurement",
    "plan": "matching.job",
    "register": "network.source",
    "read_archive": "archives",
    "schema_from_spark": "columns",
    "spark_schema": "columns",
    "stream": "streaming.job",
    "unusable_columns": "columns",
    "validate": "validation",
}
"""The module of each name, imported when the name is first used.

Most modules import PySpark, and `python -m meetpoint.spark.java` imports this package before it runs the module.
"""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        with optional_imports():
            return getattr(import_module(f"meetpoint.spark.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
