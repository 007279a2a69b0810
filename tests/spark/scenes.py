"""Random filters and events of every type on Spark, and what is found of them: what the tests of `match` share."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from meetpoint.errors import LimitError
from meetpoint.language import Attributes, clean_attributes, parse_filter
from meetpoint.matching import Scan
from meetpoint.spark import Subscriptions
from tests.spark.test_language_oracle import COLUMNS
from tests.workloads import random_events, random_filter

__all__ = ["frame_of", "pairs_in", "pairs_in_lists", "scanned", "some_events", "some_filters", "subscriptions_of"]


def some_filters(seed: int, count: int, **more: str) -> dict[str, str]:
    """Filters of users, `more` among them, so many in all."""
    rng = random.Random(seed)
    found = dict(more)
    while len(found) < count:
        text = random_filter(rng)
        try:
            parse_filter(text)
        except LimitError:
            continue
        found[f"user {len(found)}"] = text
    return found


def some_events(seed: int, count: int) -> list[Attributes]:
    """Events as the columns of `frame_of` hold them."""
    found: list[Attributes] = []
    for event in random_events(random.Random(seed), count):
        narrow = dict(event)
        if isinstance(value := narrow.get("date"), float):  # the FLOAT column: an event holds its widened double
            with np.errstate(over="ignore"):
                narrow["date"] = float(np.float32(value))
        found.append(clean_attributes(narrow))
    return found


def frame_of(spark: Any, events: list[Attributes]) -> Any:
    """The events in three partitions, with n, their number, between columns that no filter can name."""
    rows = []
    for n, event in enumerate(events):
        nested: Any = event.get("o")
        columns = [event.get(name) for name in ("i", "binary", "d", "f", "date", "s", "user", "b", "t")]
        rows.append((*columns, None if nested is None else (nested.get("x"), nested.get("odd name")), n))
    frame = spark.createDataFrame(rows, f"{COLUMNS}, n INT")
    odd = ("array(n, NULL) AS tags", "map('n', n) AS `a.b`", "DATE '2026-01-01' AS day")
    return frame.selectExpr(odd[0], *frame.columns, *odd[1:]).repartition(3, "n")


def subscriptions_of(spark: Any, filters: dict[Any, str]) -> Subscriptions:
    table = pa.table({"id": list(filters), "filter": list(filters.values())})
    return Subscriptions.from_dataframe(spark.createDataFrame(table))


def scanned(filters: dict[Any, str], events: list[Attributes]) -> Counter[tuple[int, Any]]:
    scan: Scan[Any] = Scan()
    for id_, text in filters.items():
        scan.add(id_, parse_filter(text))
    return Counter((at, id_) for at, ids in enumerate(scan.match_batch(events)) for id_ in ids)


def pairs_in(frame: Any) -> Counter[tuple[int, Any]]:
    """The pairs of a DataFrame with the columns n, which numbers events, and subscription."""
    table = frame.select("n", "subscription").toArrow()
    return Counter(zip(table["n"].to_pylist(), table["subscription"].to_pylist(), strict=True))


def pairs_in_lists(frame: Any) -> Counter[tuple[int, Any]]:
    table = frame.select("n", "subscriptions").toArrow()
    assert sorted(table["n"].to_pylist()) == list(range(len(table)))
    return Counter(
        (n, id_)
        for n, ids in zip(table["n"].to_pylist(), table["subscriptions"].to_pylist(), strict=True)
        for id_ in ids
    )
