"""The session is what it promises to be: exact, quiet, on loopback, and with this very Python in its workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from meetpoint.spark import session
from meetpoint.spark.session import _environment, _launch_environment, _local_cores, _settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.driver.bindAddress", "127.0.0.1"),
        ("spark.driver.host", "127.0.0.1"),
        ("spark.driver.memory", "2g"),
        ("spark.sql.ansi.enabled", "true"),
        ("spark.sql.caseSensitive", "true"),
        ("spark.sql.execution.arrow.pyspark.enabled", "true"),
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.sql.shuffle.partitions", "2"),
        ("spark.ui.enabled", "false"),
        ("spark.ui.showConsoleProgress", "false"),
    ],
)
def test_setting_is_in_force(spark: SparkSession, key: str, value: str) -> None:
    assert spark.conf.get(key) == value


def test_warehouse_is_not_in_the_current_directory(spark: SparkSession) -> None:
    assert "/meetpoint-spark-" in str(spark.conf.get("spark.sql.warehouse.dir"))


def test_timestamps_are_read_as_utc(spark: SparkSession) -> None:
    assert spark.sql("select unix_timestamp(timestamp '1970-01-02 00:00:00')").collect()[0][0] == 86_400


def test_columns_that_differ_in_case_are_two(spark: SparkSession) -> None:
    assert spark.sql("select a, A from values (1, 2) as t(a, A)").collect()[0].asDict() == {"a": 1, "A": 2}


def test_overflow_is_an_error_and_not_null(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        spark.sql("select 2147483647 + id from values (1) as t(id)").collect()


def test_workers_run_this_python(spark: SparkSession) -> None:
    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

    found = {row.python for row in spark.range(2).mapInArrow(tell, "python string").collect()}
    assert found == {sys.executable}


def test_second_session_is_the_running_one(spark: SparkSession) -> None:
    assert session() is spark


def test_environment_is_restored_after_an_error_too() -> None:
    before = dict(os.environ)
    during: list[str] = []

    def fail() -> None:
        with _environment({"MEETPOINT_TEST": "1", "PATH": "elsewhere"}):
            during.extend((os.environ["MEETPOINT_TEST"], os.environ["PATH"]))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert during == ["1", "elsewhere"]
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[1]", 1),
        ("local[3]", 3),
        ("local[3, 2]", 3),
        ("local[*]", os.cpu_count()),
        ("local-cluster[2,3,1024]", 6),
        ("spark://host:7077", None),
        ("yarn", None),
    ],
)
def test_local_masters_are_known_by_their_cores(master: str, cores: int | None) -> None:
    assert _local_cores(master) == cores


def test_config_wins_over_the_defaults(tmp_path: Path) -> None:
    settings = _settings("local[2]", tmp_path, {"spark.driver.memory": "5g", "spark.x": "y"})
    assert (settings["spark.driver.memory"], settings["spark.x"]) == ("5g", "y")


def test_java_options_of_the_caller_are_added_to_ours(tmp_path: Path) -> None:
    options = _settings("local", tmp_path, {"spark.driver.extraJavaOptions": "-Xint"})["spark.driver.extraJavaOptions"]
    assert options.startswith("-Dlog4j2.configurationFile=file:")
    assert options.endswith(" -Xint")


def test_cluster_master_gets_no_loopback_and_keeps_its_python(tmp_path: Path) -> None:
    assert "spark.driver.host" not in _settings("yarn", tmp_path, {})
    environ = {"PYSPARK_GATEWAY_PORT": "1", "PYSPARK_PYTHON": "/cluster/python"}
    assert _launch_environment("yarn", environ) == {"PYSPARK_PYTHON": "/cluster/python"}
    assert _launch_environment("local", environ)["PYSPARK_PYTHON"] == sys.executable
