"""Workloads drawn on Spark: the same as in one process, however they are cut."""

from __future__ import annotations

from typing import Any

import pytest

from meetpoint.errors import MeetpointError
from meetpoint.lab.workloads.generator import BLOCK
from meetpoint.lab.workloads.generator import generate as generate_here
from meetpoint.lab.workloads.long_form import filter_texts
from meetpoint.lab.workloads.mixes import MIXES
from meetpoint.lab.workloads.on_spark import generate
from meetpoint.lab.workloads.zipf import Zipf
from meetpoint.language import parse_filter

ROWS = BLOCK + 100  # more than one block, and not a whole number of them


def rows_of(frame: Any, key: str) -> list[dict[str, Any]]:
    return sorted(frame.toArrow().to_pylist(), key=lambda row: int(row[key]))


@pytest.mark.parametrize("mix", ["ticks", "sparse", "zipf:attributes=6,values_theta=0.9,width=0.2"])
def test_a_workload_is_that_of_one_process_under_any_partitions(spark: Any, mix: str) -> None:
    here = generate_here(mix, ROWS, ROWS, 3)
    events = [{"event": number, **row} for number, row in enumerate(here.events.to_pylist())]
    filters = [{"id": id_, "filter": text} for id_, text in filter_texts(here)]
    for partitions in (None, 1, 3, 7):
        made = generate(spark, mix, subscriptions=ROWS, events=ROWS, seed=3, partitions=partitions)
        assert rows_of(made.events, "event") == events
        assert rows_of(made.subscriptions, "id") == filters


def test_parameters_say_the_same_as_a_text(spark: Any) -> None:
    one, other = (generate(spark, mix, subscriptions=9, events=9) for mix in (Zipf(attributes=3), "zipf:attributes=3"))
    assert rows_of(one.events, "event") == rows_of(other.events, "event")
    assert rows_of(one.subscriptions, "id") == rows_of(other.subscriptions, "id")


@pytest.mark.parametrize("mix", MIXES)
def test_every_mix_has_filters_and_events_of_one_vocabulary(spark: Any, mix: str) -> None:
    made = generate(spark, mix, subscriptions=20, events=30)
    rows = rows_of(made.events, "event")
    assert [row["event"] for row in rows] == list(range(30))
    filters = [parse_filter(row["filter"]) for row in rows_of(made.subscriptions, "id")]
    named = {name for f in filters for conjunction in f.conjunctions for name in conjunction.attributes}
    assert len(filters) == 20
    assert named <= set(rows[0]) - {"event"}


def test_another_seed_is_another_workload(spark: Any) -> None:
    one, other = (generate(spark, "ranges", subscriptions=5, events=5, seed=seed) for seed in (1, 2))
    assert rows_of(one.events, "event") != rows_of(other.events, "event")
    assert rows_of(one.subscriptions, "id") != rows_of(other.subscriptions, "id")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mix": "dense"}, "mix 'dense'.*choose one of ticks, wide"),
        ({"mix": "zipf:width=2"}, "zipf: width is 2.0; give 0 to 1"),
        ({"subscriptions": 0}, "0 subscriptions"),
        ({"events": -1}, "-1 events"),
        ({"seed": -1}, "seed -1"),
        ({"partitions": 0}, "0 partitions; ask for 1"),
        ({"spark": None}, "given an object of class NoneType; give a Spark session"),
    ],
)
def test_what_is_refused_is_refused_before_any_job(spark: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(MeetpointError, match=message):
        generate(**{"spark": spark, "mix": "ticks", **options})
