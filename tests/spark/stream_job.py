"""The stream that tests kill, as a program: `python -m tests.spark.stream_job FOLDER first|second [spark]`.

It matches the files in FOLDER/in to the end; `second` changes the subscriptions first, unless that was done; `spark`
leaves all files to Spark, as on a cluster. It says FOLDER/started once the stream runs.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from meetpoint.language import Attribute, Schema, Type, parse_filter
from meetpoint.language.events.json import attributes_from_json
from meetpoint.matching import Scan
from meetpoint.spark import Subscriptions, session
from meetpoint.spark.streaming import batches
from meetpoint.spark.streaming.job import stream
from meetpoint.spark.subscriptions import store
from tests.spark.quick_java import quick_java

SCHEMA = Schema(
    (
        Attribute("n", Type.INTEGER, 0),
        Attribute("price", Type.FLOAT, 0, 100),
        Attribute("symbol", Type.STRING),
        Attribute("o.side", Type.STRING),
    )
)
POISON = ("{", "", "[1]", '{"n": "one"}', '{"n": -1}', '{"n": 1, "price": 100.5}', '{"n": 1, "colour": "red"}')
FILE_EVENTS = 20

Pairs = Counter[tuple[int, str]]


def _filters(seed: int) -> dict[str, str]:
    rng = random.Random(seed)
    found = {}
    for at in range(60):
        low = rng.randrange(80)
        parts = [f"price BETWEEN {low} AND {low + 20}", f"symbol = '{rng.choice('ABCDEF')}'", f"n >= {low}"]
        parts += ["o.side = 'buy'", "symbol IS NULL"]
        found[f"user {at}"] = f" {rng.choice(('AND', 'OR'))} ".join(rng.sample(parts, 2))
    return found


FILTERS = {"first": _filters(1), "second": _filters(2)}


def write_file(folder: Path, number: int) -> None:
    """A file of numbered events, with poison between them, that appears at once."""
    rng = random.Random(number)
    lines = []
    for n in range(number * FILE_EVENTS, (number + 1) * FILE_EVENTS):
        event = {"n": n, "price": rng.randrange(200) / 2, "symbol": rng.choice((*"ABCDEF", None))}
        lines.append(json.dumps({**event, "o": {"side": rng.choice(("buy", "sell"))}}))
        if rng.random() < 0.2:
            lines.append(rng.choice(POISON))
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{number}"
    partial.write_text("\n".join(lines) + "\n")
    partial.rename(folder / f"{number:04}.jsonl")


def poison_in(path: Path) -> int:
    return sum(line in POISON for line in path.read_text().splitlines())


def scanned(path: Path, filters: dict[str, str]) -> Pairs:
    """Which events of a file which filters accept, by the oracle."""
    scan: Scan[str] = Scan()
    for id_, text in filters.items():
        scan.add(id_, parse_filter(text))
    lines = [line for line in path.read_text().splitlines() if line not in POISON]
    events = [attributes_from_json(line, SCHEMA) for line in lines]
    found: Pairs = Counter()
    for event, ids in zip(events, scan.match_batch(events), strict=True):
        n = event["n"]
        assert isinstance(n, int)
        found.update((n, id_) for id_ in ids)
    return found


def batches_of_files(checkpoint: Path) -> dict[str, int]:
    """In which batch each file was, by Spark's own logs; files that were found for a batch that is not planned yet
    are in none.
    """
    ends = {}
    for path in (checkpoint / "offsets").iterdir():
        if path.name.isdecimal():
            ends[int(path.name)] = json.loads(path.read_text().splitlines()[-1])["logOffset"]
    found = {}
    for path in (checkpoint / "sources" / "0").iterdir():
        if not path.name.startswith("."):
            for line in path.read_text().splitlines()[1:]:
                entry = json.loads(line)
                batch = min((n for n, end in ends.items() if end >= entry["batchId"]), default=None)
                if batch is not None:
                    found[Path(entry["path"]).name] = batch
    return found


def subscriptions(spark: Any, which: str) -> Subscriptions:
    filters = FILTERS[which]
    return Subscriptions.from_dataframe(
        spark.createDataFrame(pa.table({"id": list(filters), "filter": list(filters.values())}))
    )


def run(folder: Path, which: str, java: str) -> None:
    spark = session(
        "local[2,4]",  # a task is tried four times, as on a cluster
        config={"spark.driver.extraJavaOptions": java, "spark.sql.streaming.minBatchesToRetain": "10000"},
    )
    index = folder / "index"
    if not (index / "CURRENT").exists():
        subscriptions(spark, "first").compile(index)
    events = spark.readStream.option("maxFilesPerTrigger", 5).text(str(folder / "in"))
    running = stream(
        events,
        index,
        folder / "hits",
        checkpoint=folder / "checkpoint",
        dead=folder / "dead",
        schema=SCHEMA,
        column="value",
        trigger="availableNow",
    )
    (folder / "started").touch()
    if which == "second" and store.current_number(index) == 1:
        running.refresh(subscriptions(spark, which))
    running.await_done()
    spark.stop()


def main(folder: Path, which: str, *modes: str) -> None:
    if "spark" in modes:
        batches._knows_files = lambda spark: False
    run(folder, which, quick_java())


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
