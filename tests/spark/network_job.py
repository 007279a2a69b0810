"""A stream between brokers that tests kill: `python -m tests.spark.network_job FOLDER URL [availableNow]`.

Live in, Spark between, live out: what is published as `in` is matched against the alerts of the network, and each match
is published as `out`. It says FOLDER/started once the stream runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from meetpoint.spark import Subscriptions, match, session
from tests.spark.quick_java import quick_java

SCHEMA = """\
attributes:
  kind: {type: string}
  n: {type: integer}
  price: {type: float}
  symbol: {type: string}
  alert: {type: string}
"""
ALERTS = {
    "cheap": "kind = 'in' AND price < 20",
    "dear": "kind = 'in' AND price BETWEEN 60 AND 80 OR kind = 'in' AND symbol = 'C'",
    "some": "kind = 'in' AND symbol LIKE 'A%' AND n >= 50",
}
BATCH = 1_000


def start(spark: Any, folder: Path, url: str, batch: int, **trigger: Any) -> Any:
    """The running query."""
    alerts = Subscriptions.from_network(url, owner="alerts", spark=spark)
    options = {"url": url, "since": "earliest", "filter": "kind = 'in'", "maxEventsPerBatch": str(batch)}
    events = spark.readStream.format("meetpoint").options(**options).load()
    once = events.withWatermark("read_at", "1 hour").dropDuplicatesWithinWatermark(["id"]).select("attributes.*")
    hits = match(once, alerts).select(F.lit("out").alias("kind"), "n", F.col("subscription").alias("alert"))
    sink = hits.writeStream.format("meetpoint").options(url=url, publisher="between", timeout="120")
    return sink.option("checkpointLocation", str(folder / "checkpoint")).trigger(**trigger).start()


def main(folder: Path, url: str, *modes: str) -> None:
    spark = session("local[2,4]", config={"spark.driver.extraJavaOptions": quick_java()})
    trigger = {"availableNow": True} if modes else {"processingTime": "0 seconds"}
    query = start(spark, folder, url, BATCH, **trigger)
    (folder / "started").touch()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *sys.argv[3:])
