"""A query that tests kill, without Spark: `python -m tests.spark.network_commit FOLDER URL BATCHES ROWS`.

It does what Spark does with a sink: batch after batch is written and committed, and one whose commit is not in
Spark's own log is run again, with rows that are not quite the same.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pyarrow as pa

from meetpoint.language import Attribute, Schema, Type
from meetpoint.spark.columns import spark_schema
from meetpoint.spark.network.options import QueryOptions
from meetpoint.spark.network.sink import SINK_OPTIONS, SinkSettings, StreamWriter

COLUMNS = spark_schema(Schema((Attribute("n", Type.INTEGER), Attribute("run", Type.INTEGER))))


def main(folder: Path, url: str, batches: int, rows: int) -> None:
    log = folder / "commits"
    options = {"url": url, "publisher": "job", "checkpointLocation": str(folder)}
    for number in range(int(log.read_text()) if log.exists() else 0, batches):
        writer = StreamWriter(SinkSettings.of(QueryOptions(options, SINK_OPTIONS), COLUMNS))
        taken = range(number * rows, (number + 1) * rows)
        table = pa.record_batch({"n": list(taken), "run": [time.time_ns()] * rows})
        writer.commit([writer.write(iter([table.slice(0, 5)])), writer.write(iter([table.slice(5)]))], number)
        log.write_text(str(number + 1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
