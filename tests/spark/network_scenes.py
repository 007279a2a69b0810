"""What tests of `format("meetpoint")` share: brokers that archive, numbered events, Spark's calls without Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import meetpoint as mp
from meetpoint.broker.config import Archiving
from meetpoint.client import SyncDelivery, SyncSubscription
from meetpoint.language.events.json import attributes_from_json
from meetpoint.local_network import Local
from meetpoint.spark.network.source import MeetpointDataSource, StreamReader

PATIENCE_S = 180.0
"""How long a test waits for what must come."""

SCHEMA = """\
attributes:
  n: {type: integer}
  symbol: {type: string}
  order.price: {type: decimal, precision: 0.01}
"""


def archiving(folder: Path, flush_s: float = 0.05) -> dict[str, Any]:
    return {"archive": Archiving(folder=str(folder), flush_s=flush_s)}


def brokers(folder: Path, count: int = 3, **said: Any) -> Local:
    """A network that archives into one folder, with its data on disk."""
    return mp.local(brokers=count, data=folder / "data", **{**archiving(folder / "archive"), **said})


def publish(url: str, numbers: Iterable[int], **more: Any) -> None:
    """Events n, acknowledged, by one client."""
    with mp.connect_sync(url, timeout=60) as net:
        net.publish_many({"n": n, "symbol": "ABC"[n % 3], **more} for n in numbers)


def stream_reader(**options: str) -> StreamReader:
    """What Spark has in its driver."""
    source = MeetpointDataSource(options)
    reader = source.streamReader(source.schema())
    assert isinstance(reader, StreamReader)
    return reader


def rows_between(reader: StreamReader, start: Any, end: Any) -> list[dict[str, Any]]:
    """The rows of one batch, as workers read them; offsets as they are in a checkpoint."""
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    return [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]


def all_batches(reader: StreamReader, start: Any) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """Batch after batch, until nothing is new."""
    limit = reader.getDefaultReadLimit()
    while (end := reader.latestOffset(start, limit)) != start:
        yield end, rows_between(reader, start, end)
        start = end


def numbers_of(rows: Iterable[dict[str, Any]]) -> list[int]:
    """The attribute n of rows, sorted."""
    return sorted(_number(row["attributes"]) for row in rows)


def _number(attributes: Any) -> int:
    found = attributes if isinstance(attributes, dict) else attributes_from_json(attributes)
    assert isinstance(found["n"], int)
    return found["n"]


def all_before_markers(
    subscription: SyncSubscription, count: int, addresses: Iterable[str], marker: Mapping[str, object], **access: Any
) -> list[SyncDelivery]:
    """So many events, and all others that come before the markers, which are published then, one by each broker."""
    found = list(islice(subscription.events(timeout=PATIENCE_S), count))
    awaited = set()
    for address in addresses:
        scheme = "mps" if "ca" in access else "mp"
        with mp.connect_sync(f"{scheme}://{address}", timeout=PATIENCE_S, **access) as net:
            awaited.add(net.publish(marker).key)
    for each in subscription.events(timeout=PATIENCE_S):
        if each.key not in awaited:
            found.append(each)
        else:
            each.ack()
            awaited.remove(each.key)
        if not awaited:
            return found
    raise AssertionError(f"{len(awaited)} markers did not come")


def until(claim: Any, what: str, seconds: float = PATIENCE_S) -> None:
    limit = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < limit, what
        time.sleep(0.05)
