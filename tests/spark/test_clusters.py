"""The same answers on a standalone cluster, on a local one and through Spark Connect as without Spark at all.

Clusters are processes that a test starts on this machine, all on loopback, and ends. What runs on them is a program of
its own (`cluster_job`), since a process has one session, and one kind of it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

import meetpoint as mp
from meetpoint.lab.bench.brokers.servers import free_port
from meetpoint.lab.experiments import named
from meetpoint.lab.experiments.experiment import Experiment, run_cell
from meetpoint.language import parse_filter
from meetpoint.matching import Scan
from meetpoint.matching.tables.arrow_columns import read_batch
from meetpoint.spark.session import _java_home, _launch_environment, _settings
from tests.spark.cluster_job import (
    BACKTESTED,
    BAD_FILTER,
    EVENTS,
    FILTERS,
    LIVE,
    PRICE_MAX,
    Pairs,
    filters,
    rows_of,
    some_cells,
    table_of_events,
)
from tests.spark.quick_java import quick_java
from tests.tiers import SOAK

pytestmark = pytest.mark.xdist_group("clusters")

SECONDS_MAX = 600
"""For a whole job, on a machine that is busy with other things."""
END_SECONDS_MAX = 60
ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent


# -- what is known without Spark ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected() -> Pairs:
    scan: Scan[str] = Scan()
    for id_, text in filters().items():
        scan.add(id_, parse_filter(text))
    table = table_of_events()
    events = [row for batch in table.to_batches() for row in read_batch(batch)]
    found = sorted([n, id_] for n, ids in enumerate(scan.match_batch(events)) for id_ in ids)
    assert 0.1 < len(found) / (EVENTS * FILTERS) < 0.9
    return found


def known(expected: Pairs) -> dict[str, Any]:
    """What steps of the job must answer, by name."""
    prices = table_of_events()["price"].to_pylist()
    good = [n for n, price in enumerate(prices) if price <= PRICE_MAX]
    dead = [n for n, price in enumerate(prices) if price > PRICE_MAX]
    heard = {id_ for _, id_ in expected}
    batches = EVENTS // 2
    backtest = mp.backtest(BACKTESTED, table_of_events(), time="at").to_dict()
    same = ["broadcast path", "join path", "broadcast copy", "partitioned copy", "join copy", "auto"]
    same += ["broadcast lists", "partitioned lists", "broadcast again", "delivered"]
    return {
        **dict.fromkeys(same, expected),
        "count": FILTERS,
        "rejected": [{"id": "bad", "filter": BAD_FILTER}],
        "good": good,
        "dead": dead,
        "validated": {"in": EVENTS, "good": len(good), "dead": len(dead)},
        "backtest": json.loads(json.dumps(backtest, default=str)),
        "measure": [EVENTS, FILTERS, len(expected), FILTERS - len(heard)],
        "rows": len(expected),
        "stream ended": True,
        "stream": [[n, id_] for n, id_ in expected if n in set(good)],
        "stream dead": dead,
        "stream batches": [[batches, batches]] * 2,
        "live table": list(range(LIVE)),
        "live out": list(range(LIVE)),
        "cells": rows_of(row for cell in some_cells() for row in run_cell(cell, _dmm().part(cell.part).run)),
        "cells again": 0,
        "executors": 2,
    }


def _dmm() -> Experiment:
    (experiment,) = named("dmm")
    return experiment


# -- processes ---------------------------------------------------------------------------------------------------------


def environment(**changes: str) -> dict[str, str]:
    """That of processes of Spark: nothing of a session that this process may have, and nothing beyond loopback."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **kept,
        "JAVA_HOME": str(_java_home(os.environ)),
        "PYTHONPATH": str(ROOT),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **changes,
    }


@contextmanager
def started(log: Path, *command: str, **changes: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a group of its own, which is ended at last with all that it started."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment(**changes),
            cwd=log.parent,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                process.wait(END_SECONDS_MAX)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        process.wait(END_SECONDS_MAX)


@contextmanager
def spark_class(log: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = str(SPARK_HOME / "bin" / "spark-class")
    small = {"SPARK_DAEMON_JAVA_OPTS": quick_java(), "SPARK_DAEMON_MEMORY": "256m"}
    with started(log, command, name, *arguments, **small) as process:
        yield process


def said(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    """What a process logs, as soon as it does."""
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        text = log.read_text(errors="replace")
        if found := re.search(pattern, text):
            return found[0]
        if process.poll() is not None:
            break
        time.sleep(0.1)
    pytest.fail(f"{log.name} never said {pattern}:\n{text[-3000:]}")


def job(folder: Path, *arguments: str) -> dict[str, Any]:
    """What the program answers."""
    log = folder / "job.log"
    with started(log, sys.executable, "-m", "tests.spark.cluster_job", str(folder), *arguments) as process:
        try:
            process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the job takes too long:\n{log.read_text()[-3000:]}")
    assert process.returncode == 0, f"the job failed:\n{log.read_text()[-6000:]}"
    found: dict[str, Any] = json.loads((folder / "answers.json").read_text())
    return found


def compare(answers: Mapping[str, Any], expected: Pairs, unasked: set[str]) -> None:
    """All that is known was answered so, but for what was not asked."""
    wanted = known(expected)
    assert wanted.keys() - answers.keys() == unasked
    for name in answers.keys() & wanted.keys():
        assert answers[name] == wanted[name], name


# -- tests -------------------------------------------------------------------------------------------------------------


def test_standalone_cluster_and_local_cluster_give_the_same_answers(tmp_path: Path, expected: Pairs) -> None:
    package = "org.apache.spark.deploy"
    here = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with spark_class(tmp_path / "master.log", f"{package}.master.Master", *here) as master:
        address = said(master, tmp_path / "master.log", r"spark://127\.0\.0\.1:\d+")
        size = ["--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "worker")]  # for two executors
        with spark_class(tmp_path / "worker.log", f"{package}.worker.Worker", *here, *size, address):
            steps = [
                "match_by_path",
                "match_by_copy",
                "set_aside",
                "validated",
                "backtested",
                "live",
                "celled",
                "spread",
            ]
            local = (
                ["local-cluster[2,1,1024]", "broadcast_by_copy"] if SOAK else []
            )  # other JVMs, the same code of ours
            answers = job(tmp_path, address, *steps, "without_meetpoint", *local)
    streamed = {"stream", "stream batches", "stream dead", "stream ended"}
    unasked = {"delivered", "measure", "rows", *streamed}
    compare(answers, expected, unasked if SOAK else unasked | {"broadcast again"})
    assert "the index is not on this worker; compile it to a directory that all machines share" in str(
        answers["lost index"]
    )
    for name in ("bare match", "bare compile"):
        kind, text = answers[name]
        assert (kind, "No module named" in text) == ("SetupError", True)
        assert text.startswith("the workers cannot run Meetpoint: ")
        assert "install it for the Python of all workers" in text


def test_spark_connect_gives_the_same_answers(tmp_path: Path, expected: Pairs) -> None:
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.extraJavaOptions": quick_java(),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": (tmp_path / "warehouse").as_uri(),
        "spark.ui.enabled": "false",
    }
    conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    submit = str(SPARK_HOME / "bin" / "spark-submit")
    server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]", *conf]
    log = tmp_path / "server.log"
    with started(log, submit, *server, "spark-internal", PYSPARK_PYTHON=sys.executable) as process:
        said(process, log, "Spark Connect server started at")
        steps = ["match_by_copy", "set_aside", "validated", "backtested", "measured", "delivered"]
        answers = job(tmp_path, f"sc://127.0.0.1:{port}", *steps, "streamed", "live")
    compare(answers, expected, {"cells", "cells again", "executors", "broadcast again", "broadcast path", "join path"})
    assert "the index is not on this worker" in str(answers["lost index"])
    assert answers["delivered twice"][0] == "SourceError"
    assert answers["nobody there"] == [
        ["SetupError", "sc://127.0.0.1:9/: no server of Spark Connect answers there; start one, or check the address"],
        ["SetupError", "sc://127.0.0.1:port: is no address of Spark Connect; write it as sc://host:port"],
    ]


@pytest.mark.parametrize(
    ("master", "is_here"),
    [
        ("local[2]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://[::1]:7077", True),
        ("spark://127.0.0.1:7077,localhost:7078", True),
        ("spark://127.0.0.1:7077,elsewhere:7077", False),
        ("spark://localhost.example.com:7077", False),
        ("spark://10.0.0.1:7077", False),
        ("yarn", False),
        ("k8s://https://127.0.0.1:443", False),
    ],
)
def test_only_what_others_cannot_reach_is_bound_to_loopback(tmp_path: Path, master: str, is_here: bool) -> None:
    settings, environ = _settings(master, tmp_path, {}), _launch_environment(master, {"PYSPARK_GATEWAY_PORT": "1"})
    assert settings.get("spark.driver.host") == settings.get("spark.driver.bindAddress")
    assert settings.get("spark.driver.host") == ("127.0.0.1" if is_here else None)
    assert environ.get("SPARK_LOCAL_IP") == ("127.0.0.1" if is_here else None)
    assert environ["PYSPARK_PYTHON"] == sys.executable
