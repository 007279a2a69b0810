"""One Spark session for all tests below; with pytest-xdist, one worker runs them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from meetpoint.spark import session
from tests.spark.quick_java import quick_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


# First, since pytest-xdist reads the marks in its own hook of this name.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = {
        "spark.driver.extraJavaOptions": quick_java(),
        "spark.sql.adaptive.enabled": "false",  # planning small frames again takes longer; clusters are tested with it
    }
    running = session("local[2]", app="meetpoint tests", config=settings)
    yield running
    running.stop()


@pytest.fixture
def interpreted(spark: Any) -> Iterator[Any]:
    """Thousands of expressions in one select overflow generated Java code, so they are interpreted."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)
