"""One Spark session for all tests below; with pytest-xdist, one worker runs them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from meetpoint.spark import session

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
    # Only the first tier of the JVM's compiler: short queries gain more from a quick start than from fast code.
    running = session(
        "local[2]", app="meetpoint tests", config={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    )
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
