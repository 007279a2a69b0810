"""Spark behind a command: started without a word, stopped at the end, its progress and its errors in one line each."""

from __future__ import annotations

import logging
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any

from meetpoint.cli.output.streams import QuietConsole, tell
from meetpoint.errors import MeetpointError, SetupError

__all__ = ["running", "said_by_spark", "waiting"]

_POLL_SECONDS = 0.5
_STDERR = 2


@contextmanager
def running(master: str, config: Mapping[str, str]) -> Iterator[Any]:
    """A session for one command. One that runs already is used, and left running."""
    from meetpoint.spark import session
    from meetpoint.spark.session import is_running

    # What it warns of is in the command's own report; without a handler Python would print it.
    logging.getLogger("meetpoint.spark").addHandler(logging.NullHandler())
    is_ours = not is_running()
    tell("starting Spark …")
    with _stderr_aside() as aside:
        try:
            spark = session(master, config=config)
        except MeetpointError:
            raise
        except Exception as error:
            raise SetupError(
                f"Spark does not start with --master {master}: {_why(error, aside)}; check --master and --config"
            ) from None
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


@contextmanager
def _stderr_aside() -> Iterator[IO[bytes]]:
    """What is started here keeps another standard error for its life: Java and Spark talk a lot there."""
    with tempfile.TemporaryFile() as aside:
        kept = os.dup(_STDERR)
        os.dup2(aside.fileno(), _STDERR)
        try:
            yield aside
        finally:
            os.dup2(kept, _STDERR)
            os.close(kept)


def _why(error: Exception, aside: IO[bytes]) -> str:
    found = re.search(r"(?:Exception|Error): (.+)", str(error))
    if found is not None:
        return found[1].strip().rstrip(".")
    aside.seek(0)
    lines = [line.strip() for line in aside.read().decode("utf-8", "replace").splitlines()]
    telling = [line for line in lines if line and not line.startswith(("WARNING", "Picked up"))]
    return telling[0] if telling else " ".join(str(error).split())


@contextmanager
def waiting(spark: Any, what: str) -> Iterator[None]:
    """On a terminal: what is being done, how many of the tasks known by now are done, and for how long it has been."""
    console = QuietConsole(stderr=True)
    if not console.is_terminal:
        yield
        return
    over = threading.Event()
    begin = time.monotonic()
    with console.status(f"{what} …") as status:

        def watch() -> None:
            while not over.wait(_POLL_SECONDS):
                status.update(f"{what} …{_tasks(spark)} {time.monotonic() - begin:.0f} s")

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _tasks(spark: Any) -> str:
    with suppress(Exception):  # through Spark Connect there is nobody to ask; and the job may just have ended
        tracker = spark.sparkContext.statusTracker()
        stages = [stage for id_ in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(id_)) is not None]
        if stages:
            done, all_ = (sum(getattr(stage, name) for stage in stages) for name in ("numCompletedTasks", "numTasks"))
            return f" {done:,} of {all_:,} tasks,"
    return ""


def said_by_spark(error: Exception) -> str | None:
    """What a job of Spark died of, in one line; None for a mistake of ours, whose trace is wanted, and for others."""
    if not any(cls.__module__.startswith(("pyspark", "py4j")) for cls in type(error).__mro__):
        return None
    text = str(error)
    raised = re.findall(r"^meetpoint\.[\w.]*Error: (.+)$", text, re.MULTILINE)
    if raised:  # by a worker of ours
        return str(raised[-1])
    if re.search(r"^Traceback \(most recent call last\):", text, re.MULTILINE):
        return None
    refused = re.findall(r"\[[A-Z][A-Z_.0-9]+\] .+", text)
    if refused:
        told = refused[-1] if "Caused by" in text else refused[0]
        return f"Spark stopped: {told.partition(' SQLSTATE:')[0].rstrip('. ')}; check the input, or --config"
    caused = re.findall(r"^(?:Caused by: )?(?:java|org)\.[\w.$]+: (.+)$", text, re.MULTILINE)
    return f"Spark stopped: {caused[-1].rstrip('. ')}; check the input, or --config" if caused else None
