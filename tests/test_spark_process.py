"""The whole life of a process that uses Spark, seen from outside. It shares no session with tests/spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.spark.quick_java import quick_java

CODE = """
from meetpoint.spark import session

spark = session("local[1]", config={{"spark.driver.extraJavaOptions": "{java}"}})
spark.sql("create table t using parquet as select 1 as a")
assert spark.table("t").count() == 1
spark.stop()
"""


def test_spark_says_nothing_leaves_nothing_and_bears_with_a_strange_environment(tmp_path: Path) -> None:
    here, temporary = tmp_path / "here", tmp_path / "tmp"
    here.mkdir()
    temporary.mkdir()
    strange = dict.fromkeys(("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_HOME"), str(tmp_path / "nowhere"))
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(java=quick_java())],
        cwd=here,
        env=os.environ | strange | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(here.iterdir()) == []
    assert list(temporary.iterdir()) == []
