"""What tests run on a cluster, as a program: `python -m tests.spark.cluster_job FOLDER (MASTER STEP…)…`.

It takes the steps on each master in turn, and writes what they found to FOLDER/answers.json, for the test to compare
with what it knows without Spark. The compiled index is moved away before anything is matched by copies of it, since on
one machine workers would find it.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments import named
from meetpoint.lab.experiments.experiment import Cell, ResultRow
from meetpoint.language import Attribute, Schema, Type
from tests.spark.quick_java import quick_java

EVENTS, FILTERS = 400, 120
LIVE = 30
CELLS = 6
PRICE_MAX = 90
SCHEMA = Schema(
    (
        Attribute("n", Type.INTEGER),
        Attribute("price", Type.FLOAT, 0, PRICE_MAX),
        Attribute("symbol", Type.STRING),
        Attribute("o.side", Type.STRING),
        Attribute("at", Type.TIMESTAMP),
    )
)
BACKTESTED = "price < 50 AND symbol = 'A'"
BAD_FILTER = "price <"
CONFIG = {
    "spark.cores.max": "2",
    "spark.driver.extraJavaOptions": quick_java(),
    "spark.driver.memory": "1g",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": quick_java(),
    "spark.executor.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # else one executor may do all of it
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "1",
}

Pairs = list[list[Any]]
Step = Callable[[Any, Path, Any, Any], Any]


def table_of_events() -> pa.Table:
    rng = random.Random(3)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {
            "n": n,
            "price": rng.randrange(200) / 2,
            "symbol": rng.choice((*"ABCDEF", None)),
            "o": {"side": rng.choice(("buy", "sell"))},
            "at": begin + timedelta(minutes=7 * n),
        }
        for n in range(EVENTS)
    ]
    return pa.Table.from_pylist(rows)


def filters() -> dict[str, str]:
    rng = random.Random(4)
    found = {}
    for at in range(FILTERS):
        low = rng.randrange(80)
        parts = [f"price BETWEEN {low} AND {low + 20}", f"symbol = '{rng.choice('ABCDEF')}'", f"n >= {5 * low}"]
        parts += ["o.side = 'buy'", "symbol IS NULL", "at < TIMESTAMP '2026-01-02 00:00:00'"]
        found[f"user {at}"] = f" {rng.choice(('AND', 'OR'))} ".join(rng.sample(parts, 2))
    return found


def subscriptions(spark: Any) -> Any:
    from meetpoint.spark import Subscriptions

    held = {**filters(), "bad": BAD_FILTER}
    frame = spark.createDataFrame(pa.table({"user": list(held), "alert": list(held.values())}))
    return Subscriptions.from_dataframe(frame, id="user", where="alert")


def pairs(hits: Any) -> Pairs:
    table = hits.select("n", "subscription").toArrow()
    return sorted([row["n"], row["subscription"]] for row in table.to_pylist())


def pairs_in_lists(lists: Any) -> Pairs:
    table = lists.select("n", "subscriptions").toArrow()
    assert sorted(table["n"].to_pylist()) == list(range(EVENTS))
    return sorted([row["n"], id_] for row in table.to_pylist() for id_ in row["subscriptions"])


# -- steps -------------------------------------------------------------------------------------------------------------


def match_by_path(spark: Any, folder: Path, events: Any, subs: Any) -> Any:
    from meetpoint.spark import match

    return {f"{by} path": pairs(match(events, subs, strategy=by, ship="path")) for by in ("broadcast", "join")}


def match_by_copy(spark: Any, folder: Path, events: Any, subs: Any) -> Any:
    """All strategies, while the index is nowhere but where Spark copied it."""
    from meetpoint.spark import match

    ways: dict[str, dict[str, Any]] = {
        "broadcast copy": {"strategy": "broadcast", "ship": "copy"},
        "partitioned copy": {"strategy": "partitioned", "ship": "copy", "shards": 3},
        "join copy": {"strategy": "join", "ship": "copy"},
        "auto": {},
    }
    hits = {name: match(events, subs, **way) for name, way in ways.items()}
    lists = {f"{by} lists": match(events, subs, strategy=by, result="lists") for by in ("broadcast", "partitioned")}
    lost = match(events, subs, strategy="broadcast", ship="path")
    aside = folder / "aside"
    (folder / "index").rename(aside)
    try:
        found = {name: pairs(frame) for name, frame in hits.items()}
        found |= {name: pairs_in_lists(frame) for name, frame in lists.items()}
        return {**found, "lost index": error_of(lambda: pairs(lost))}
    finally:
        aside.rename(folder / "index")


def broadcast_by_copy(spark: Any, folder: Path, events: Any, subs: Any) -> Any:
    from meetpoint.spark import match

    return {"broadcast again": pairs(match(events, subs, strategy="broadcast", ship="copy"))}


def set_aside(spark: Any, folder: Path, events: Any, subs: Any) -> Any:
    return {"count": subs.count, "rejected": subs.rejected.select("id", "filter").toArrow().to_pylist()}


def validated(spark: Any, folder: Path, events: Any, subs: Any) -> Any:
    from meetpoint.spark import validate

    checked = validate(events, SCHEMA)
    return {
        "good": sorted(checked.good.select("n").toArrow()["n"].to_pylist()),
        "dead": sorted(json.loads(raw)["n"] for raw in checked.dead.toArrow()["raw"].to_pylist()),
        "validated": checked.counts(),
    }


def backtested(spark: Any, folder: Path, events: Any, subs: Any) -> Any:
    from meetpoint.spark import backtest

    in_order = spark.createDataFrame(table_of_events())  # by which samples are numbered
    return {"backtest": json.loads(json.dumps(backtest(BACKTESTED, in_order, time="at").to_dict(), default=str))}


def measured(spark: Any, folder: Path, events: Any, subs: Any) -> Any:
    from meetpoint.spark import match, measure

    found = measure(events, subs, match(events, subs))
    assert found.matches is not None
    return {"measure": [found.events, found.subscriptions, found.matches.pairs, found.matches.silent]}


def delivered(spark: Any, folder: Path, events: Any, subs: Any) -> Any:
    from meetpoint.spark import deliver, match

    done = deliver(match(events, subs), folder / "hits.parquet")
    again = error_of(lambda: deliver(match(events, subs), folder / "hits.parquet"))
    return {"delivered": pairs(spark.read.parquet(done.path)), "rows": done.rows, "delivered twice": again}


def streamed(spark: Any, folder: Path, events: Any, subs: Any) -> Any:
    from meetpoint.spark import stream

    events.repartition(2).write.parquet(str(folder / "in"))
    source = spark.readStream.schema(events.schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    running = stream(
        source,
        folder / "index",
        folder / "stream-hits",
        checkpoint=folder / "checkpoint",
        dead=folder / "stream-dead",
        schema=SCHEMA,
        trigger="availableNow",
    )
    ended = running.await_done(600)
    return {
        "stream ended": ended,
        "stream": pairs(running.hits()),
        "stream dead": sorted(json.loads(raw)["n"] for raw in running.dead().toArrow()["raw"].to_pylist()),
        "stream batches": [[one.events, one.good + one.dead] for one in running.progress()],
    }


def live(spark: Any, folder: Path, events: Any, subs: Any) -> Any:
    """From brokers to a table, and from brokers to brokers."""
    import meetpoint as mp
    from meetpoint.broker.config import Archiving
    from tests.spark.network_scenes import PATIENCE_S, all_before_markers

    archive = Archiving(folder=str(folder / "archive"), flush_s=0.1)
    with mp.local(brokers=1, archive=archive) as here, here.connect_sync() as net:
        net.declare("attributes:\n  n: {type: integer}\n")
        net.publish_many({"n": n} for n in range(LIVE))
        out = net.subscribe("n < 0")
        table = spark.read.format("meetpoint").option("url", here.url).load().select("attributes.n").toArrow()
        source = spark.readStream.format("meetpoint").options(url=here.url, since="earliest", filter="n >= 0")
        sink = source.load().selectExpr("-1 - attributes.n AS n").writeStream.format("meetpoint")
        sink = sink.options(url=here.url, publisher="live", checkpointLocation=str(folder / "live"))
        assert sink.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)
        found = all_before_markers(out, LIVE, here.addresses, {"n": -1_000_000})
        came = sorted(-1 - int(str(each["n"])) for each in found)
    return {"live table": sorted(table["n"].to_pylist()), "live out": came}


def some_cells() -> list[Cell]:
    """A few of an experiment's that take no time."""
    (experiment,) = named("dmm")
    return list(experiment.cells("quick"))[:CELLS]


def rows_of(rows: Iterable[ResultRow]) -> list[list[Any]]:
    """All but how long it took."""
    return sorted([row.part, row.parameters, row.seed, row.metric, row.value] for row in rows)


def celled(spark: Any, folder: Path, events: Any, subs: Any) -> Any:
    """Cells of an experiment, the last one of which is none."""
    from meetpoint.lab.experiments.grid import run_cells
    from meetpoint.lab.experiments.store import ResultStore

    store = ResultStore(folder / "results")
    bad = Cell.of("dmm", "never", {}, 1)
    done = list(run_cells(spark, [*some_cells(), bad], store))
    assert [each.cell for each in done if each.error is not None] == [bad], done
    again = list(run_cells(spark, some_cells(), store))
    return {"cells": rows_of(store.read()), "cells again": len(again)}


def spread(spark: Any, folder: Path, events: Any, subs: Any) -> Any:
    """Where tasks run: how many executors had one."""

    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import time

        for _ in batches:
            time.sleep(0.2)
            yield pa.RecordBatch.from_pydict({"place": [os.getcwd()]})

    places = spark.range(0, 4, 1, 4).mapInArrow(tell, "place string").toArrow()["place"].to_pylist()
    return {"executors": len(set(places))}


def without_meetpoint(spark: Any, folder: Path, events: Any, subs: Any) -> Any:
    """The same session with workers whose Python has no packages: the last step, since the session stays so."""
    from meetpoint.spark import match, worker_files

    bare = folder / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    spark.sparkContext.pythonExec = str(bare)
    worker_files._checked.clear()
    return {
        "bare match": error_of(lambda: match(events, subs)),
        "bare compile": error_of(lambda: subscriptions(spark).compile()),
    }


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (
        match_by_path,
        match_by_copy,
        broadcast_by_copy,
        set_aside,
        validated,
        backtested,
        measured,
        delivered,
        streamed,
        live,
        celled,
        spread,
        without_meetpoint,
    )
}


def error_of(act: Callable[[], object]) -> list[str]:
    """The class and the text of what goes wrong."""
    try:
        act()
    except MeetpointError as error:
        return [type(error).__name__, str(error)]
    except Exception as error:
        return ["other", str(error)]
    return ["none", ""]


def nobody_there() -> dict[str, Any]:
    """What is said of an address of Spark Connect at which there is none; before there is a session."""
    module: Any = import_module("meetpoint.spark.session")
    patience, module.ANSWER_SECONDS_MAX = module.ANSWER_SECONDS_MAX, 0.5
    bad = ("sc://127.0.0.1:9/;token=secret", "sc://127.0.0.1:port")
    try:
        return {"nobody there": [error_of(partial(module.session, address)) for address in bad]}
    finally:
        module.ANSWER_SECONDS_MAX = patience


def run(folder: Path, master: str, steps: list[str]) -> dict[str, Any]:
    from meetpoint.spark import session

    is_connect = master.startswith("sc://")
    answers = nobody_there() if is_connect else {}
    spark = session(master, config={} if is_connect else CONFIG)
    events = spark.createDataFrame(table_of_events()).repartition(2, "n")
    subs = subscriptions(spark).compile(folder / "index", sample=events)
    for step in steps:
        answers |= STEPS[step](spark, folder, events, subs)
    if not master.startswith("local-cluster"):
        spark.stop()
        return answers
    logs = Path(pyspark.__file__).parent / "work" / spark.sparkContext.applicationId
    spark.stop()
    shutil.rmtree(logs, ignore_errors=True)  # which executors have left in Spark's own directory
    return answers


def main(folder: Path, *arguments: str) -> None:
    by_master: dict[str, list[str]] = {}
    for argument in arguments:
        if argument in STEPS:
            by_master[list(by_master)[-1]].append(argument)
        else:
            by_master[argument] = []
    answers: dict[str, Any] = {}
    for master, steps in by_master.items():
        answers |= run(folder, master, steps)
    (folder / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
