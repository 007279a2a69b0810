"""The three tiers of tests, and which test belongs to which.

    make test-quick   the inner loop: no Spark, no other processes (NOT_QUICK), nothing marked `slow`, and of a test
                      with many cases the first, the last and one between them
    make test         all that a change must pass; of a test with many seeds the first, and of a test with several
                      parameters so many cases that each value of each occurs
    make soak         hours: new seeds and examples, all cases, and the tests that are marked `soak`

`tests/conftest.py` selects by this page. A test that takes over `LONG_S` says here why. A run of `make test` names
those that do not, and `tests/test_tiers.py` fails for names that are listed and gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

__all__ = ["CASES_QUICK", "LONG_S", "NOT_QUICK", "OVER_10_S", "SEEDS", "SOAK", "is_under", "spread"]

T = TypeVar("T")

SOAK = os.environ.get("MEETPOINT_TIER") == "soak"
"""Whether this is `make soak`: tests that draw seeds or examples take new and more of them."""
CASES_QUICK = 3
SEEDS = 1
"""So many values of a parameter named `seed` run outside `make soak`: further ones only repeat the test."""
LONG_S = 10.0

NOT_QUICK: dict[str, str] = {
    "tests/lab/bench": "benchmarks at their smallest",
    "tests/processes": "processes, signals and disks",
    "tests/browser": "a browser",
    "tests/lab/experiments": "experiments at their smallest",
    "tests/fuzz": "processes that fuzz",
    "tests/spark": "a JVM",
    "tests/test_spark_process.py": "a JVM",
    "tests/cli/test_pipeline.py": "a JVM",
    "tests/cli/test_brokers_commands.py::test_sub_prints_as_events_come_and_ends_with_ctrl_c": "a process",
    "tests/cli/test_brokers_commands.py::test_sub_whose_reader_goes_away_ends_quietly": "a process",
    "tests/cli/test_brokers_gateway.py": "processes of brokers and a gateway",
    "tests/cli/test_brokers_secured.py": "processes of brokers",
    "tests/cli/test_brokers_up.py": "processes of brokers",
    "tests/cli/test_process.py": "processes that are interrupted",
    "tests/broker/test_holding.py": "a process of a broker",
    "tests/broker/test_hostile.py": "processes of brokers",
    "tests/broker/storage/test_kills.py": "processes that are killed",
    "tests/broker/storage/test_store.py::test_a_store_is_open_once": "a process",
    "tests/test_deploy.py": "processes of brokers",
    "tests/test_package.py::test_import_loads_nothing_heavy": "a process",
}
"""Folders, files and tests that `make test-quick` leaves out, and what they need."""

OVER_10_S: dict[str, str] = {
    "tests/language/test_algebra.py::test_no_filter_however_hostile_takes_long_to_read_or_to_compare": (
        "the dearest filters there are, each with each other, and all calls are counted"
    ),
    "tests/matching/index/test_index.py::test_more_attributes_than_16_bits_can_number": "65,537 attributes",
    "tests/broker/test_archiving.py::test_brokers_that_are_killed_lose_nothing_and_repeat_nothing": (
        "brokers are killed again and again"
    ),
    "tests/broker/test_bad_input.py::test_hostile_filters_are_refused_soon_in_one_line_and_the_connection_stays": (
        "the dearest filters there are, and all calls are counted"
    ),
    "tests/spark/test_language_oracle.py::test_scan_normal_form_and_spark_where_agree": (
        "a thousand filters, each a query of Spark"
    ),
    "tests/processes/test_clocks.py": "brokers are killed six times with their clocks set, and come back under load",
    "tests/processes/test_disks.py": "disks fail and fill under load, broker by broker, until all has recovered",
    "tests/processes/test_kills.py::test_brokers_are_killed_stopped_and_parted_and_nothing_is_lost": (
        "twenty faults with real pauses: a frozen broker is missed only after seconds"
    ),
    "tests/processes/test_rolling.py::test_a_rolling_restart_from_version_1_to_2_loses_nothing": (
        "four brokers are restarted one after another under load"
    ),
    "tests/cli/test_pipeline.py::test_ctrl_c_ends_a_stream_after_its_batch": "a JVM of its own",
    "tests/cli/test_pipeline.py::test_the_demo_on_spark_comes_to_the_same": (
        "every part of the demo, on Spark and without, and all figures"
    ),
    "tests/spark/test_clusters.py::test_spark_connect_gives_the_same_answers": (
        "a server of Spark Connect, and every stage of a pipeline through it"
    ),
    "tests/spark/test_clusters.py::test_standalone_cluster_and_local_cluster_give_the_same_answers": (
        "a cluster of seven JVMs, and every stage of a pipeline on it"
    ),
    "tests/spark/test_grid.py::test_a_run_that_is_killed_goes_on_where_it_was": "a JVM of its own, which is killed",
    "tests/spark/test_network.py::test_what_comes_out_is_what_brokers_and_the_oracle_match_and_a_restart_goes_on": (
        "a query with state, whose every batch starts processes of Python"
    ),
    "tests/spark/test_network.py::test_with_driver_and_brokers_killed_nothing_is_lost_and_nothing_comes_twice": (
        "brokers as processes, and two JVMs, of which one is killed"
    ),
    "tests/spark/test_match.py::test_an_event_that_all_of_300_000_subscriptions_accept_is_exact": (
        "so many are compiled, and are more than any buffer holds"
    ),
    "tests/spark/test_streaming.py::test_a_batch_cut_short_at_any_step_is_replayed_with_its_version": (
        "a stream is cut short and started anew at each of four steps"
    ),
    "tests/spark/test_streaming.py::test_a_stream_killed_again_and_again_loses_and_repeats_nothing": (
        "two JVMs, of which one is killed"
    ),
    "tests/test_spark_process.py": "a JVM of its own",
    "tests/test_deploy.py::test_the_guide_does_what_it_says": "every command of the guide is a process",
}
"""Tests that take longer than LONG_S on two quiet cores, and why they may."""


def is_under(listed: Iterable[str], nodeid: str) -> bool:
    """Return whether a test, its file or a folder above it is listed."""
    return any(nodeid == each or nodeid.startswith((f"{each}/", f"{each}::", f"{each}[")) for each in listed)


def spread(cases: Sequence[T], count: int) -> list[T]:
    """Return at most `count` of some cases, evenly spread, the first and the last among them."""
    if len(cases) <= count:
        return list(cases)
    return [cases[number * (len(cases) - 1) // (count - 1)] for number in range(count)]
