"""`meetpoint bench matcher`: generated and own input, the check against peers, and what is refused."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meetpoint.lab.bench import matcher
from meetpoint.lab.bench import rounds as measurements
from meetpoint.lab.bench.peers import Digest, NumpyPeer
from meetpoint.lab.cli import bench
from meetpoint.lab.workloads.generator import generate
from meetpoint.lab.workloads.mixes import MIXES
from meetpoint.matching.index import Index
from tests.cli.conftest import Command
from tests.tiers import SOAK

ALL = "duckdb,duckdb-tuned,numpy"
SMALL = ("--subscriptions", 400, "--generate-events", 300, "--rounds", 2)


def test_the_table_tells_what_was_measured(meetpoint: Command) -> None:
    ran = meetpoint("bench", "matcher", *SMALL)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("ticks: 400 subscriptions, 300 events, ")
    assert "same pairs on all sides" in ran.out
    assert [line.split(" ")[0] for line in ran.out.splitlines()[2:4]] == ["meetpoint", "duckdb"]
    assert " times as long as DuckDB loads the raw columns" in ran.out


def test_peers_are_those_that_were_asked_for(meetpoint: Command) -> None:
    ran = meetpoint("bench", "matcher", *SMALL, "--peers", "numpy, duckdb-tuned")
    assert (ran.code, ran.err) == (0, "")
    assert [line.split(" ")[0] for line in ran.out.splitlines()[2:5]] == ["meetpoint", "numpy", "duckdb-tuned"]


def test_json_is_one_object_with_the_promised_keys(meetpoint: Command) -> None:
    ran = meetpoint("bench", "matcher", *SMALL, "--json", "--threads", 2, "--seed", 9, "--peers", ALL)
    told = json.loads(ran.out)
    assert (ran.code, ran.out.count("\n")) == (0, 1)
    assert (told["subscriptions"], told["events"], told["seed"], told["mix"]) == (400, 300, 9, "ticks")
    for side in (told, *told["peers"].values()):
        assert {"events_per_s", "matches", "load_s", "median", "best", "spread"} <= set(side)
        assert side["spread"]["worst"] <= side["median"] <= side["best"]
    assert ",".join(told["peers"]) == ALL
    for peer in told["peers"].values():
        assert peer["matches"] == told["matches"]
        assert peer["ratio"] == pytest.approx(told["events_per_s"] / peer["events_per_s"])
    assert told["build_to_raw_load"] == pytest.approx(told["load_s"] / told["peers"]["duckdb"]["load_s"])
    assert told["single_event_us"]["p50"] <= told["single_event_us"]["p99"]
    assert told["threads"]["count"] == 2
    assert told["bytes_per_subscription"] > 0


@pytest.mark.parametrize("mix", MIXES if SOAK else ["ticks", "strings", "sparse"])
@pytest.mark.parametrize("path", ["auto", "portable"])
def test_the_index_agrees_with_its_peers_on_every_mix(mix: str, path: str) -> None:
    peers = ALL.split(",") if path == "auto" else ["duckdb"]  # all agree on these events, whatever the path
    report = matcher.measure(generate(mix, 600, 300, seed=8), peers, 1, path)
    assert [peer.matches for peer in report.peers] == [report.engine.matches] * len(peers)


@pytest.mark.parametrize("before", [None, "auto"])
def test_single_events_take_the_chosen_path(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if before is None:
        monkeypatch.delenv("MEETPOINT_KERNEL", raising=False)
    else:
        monkeypatch.setenv("MEETPOINT_KERNEL", before)
    seen = set()
    match = Index.match

    def watched(self: Index[int], attributes: Mapping[str, object]) -> list[int]:
        seen.add(os.environ.get("MEETPOINT_KERNEL"))
        return match(self, attributes)

    monkeypatch.setattr(Index, "match", watched)
    workload = generate("ticks", 20, 20, seed=8)
    matcher.measure(workload, [], 1, "portable")
    assert (seen, os.environ.get("MEETPOINT_KERNEL")) == ({"portable"}, before)
    matcher.measure(workload, [], 1, "auto")
    assert seen == {"portable", before}


def test_a_short_work_is_repeated_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    spent = {"short": 0.5, "long": 8.0}
    monkeypatch.setattr(time, "process_time", lambda: sum(spent[name] for name in done))
    works = [partial(done.append, name) for name in spent]
    assert measurements.measure_in_rounds(works, 2, 2.0) == [[0.5, 0.5], [8.0, 8.0]]
    assert done == [*["short"] * 4, "long"] * 2


def test_a_wrong_answer_is_an_error(meetpoint: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: NumpyPeer, events: pa.Table) -> Digest:
        return Digest(np.full(events.num_rows, 4000), np.zeros(events.num_rows, np.int64))

    monkeypatch.setattr(NumpyPeer, "digest", wrong)
    ran = meetpoint("bench", "matcher", *SMALL, "--peers", "numpy")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("meetpoint: event 0: meetpoint finds ")
    assert "numpy 4,000" in ran.err


def own_files(tmp_path: Path, filters: list[str], events: list[dict[str, Any]]) -> tuple[object, ...]:
    subs, data = tmp_path / "subs.jsonl", tmp_path / "events.jsonl"
    subs.write_text("".join(json.dumps({"id": f"s{n}", "filter": text}) + "\n" for n, text in enumerate(filters)))
    data.write_text("".join(json.dumps(event) + "\n" for event in events))
    return ("--subs", subs, "--events", data, "--rounds", 1)


EVENTS = [{"price": n % 7, "symbol": f"S{n % 5}", "live": n % 2 == 0, "order": {"total": n / 4}} for n in range(50)]
PLAIN = ["price <= 3", "symbol = 'S1' AND price > 2", "order.total < 5", "symbol LIKE 'S%'", "price = 'x'", "gone = 1"]
OTHER = ["live", "price = 1 OR symbol = 'S2'", "price IN (1, 2)", "TRUE", "order IS NULL"]


def test_own_files_are_measured_and_what_peers_cannot_hold_is_told(meetpoint: Command, tmp_path: Path) -> None:
    arguments = own_files(tmp_path, [*OTHER, *PLAIN], EVENTS)
    told = json.loads(meetpoint("bench", "matcher", *arguments, "--json").out)
    assert (told["subscriptions"], told["left_out"], told["mix"]) == (11, 5, "files")
    assert told["compared"]["subscriptions"] == 6
    assert told["compared"]["matches"] == told["peers"]["duckdb"]["matches"] < told["matches"]
    shown = meetpoint("bench", "matcher", *arguments)
    assert shown.code == 0
    assert "5 subscriptions ask what peers cannot be asked" in shown.out


def test_parquet_may_hold_columns_that_are_no_attributes(meetpoint: Command, tmp_path: Path) -> None:
    data = tmp_path / "events.parquet"
    days = pa.array(range(50), pa.int32()).cast(pa.date32())
    pq.write_table(pa.Table.from_pylist(EVENTS).append_column("day", days), data)
    subs = tmp_path / "subs.csv"
    subs.write_text("id,filter\na,price <= 3\nb,day IS NOT NULL\nc,order.total < 5\n")
    told = json.loads(meetpoint("bench", "matcher", "--subs", subs, "--events", data, "--rounds", 1, "--json").out)
    assert (told["matches"], told["left_out"]) == (29 + 50 + 20, 1)


def test_own_files_without_peers_need_no_long_form(meetpoint: Command, tmp_path: Path) -> None:
    ran = meetpoint("bench", "matcher", *own_files(tmp_path, OTHER, EVENTS), "--peers", "none", "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["peers"], told["left_out"]) == (0, {}, 0)


def test_filters_that_no_peer_can_hold_are_measured_alone(meetpoint: Command, tmp_path: Path) -> None:
    told = json.loads(meetpoint("bench", "matcher", *own_files(tmp_path, OTHER, EVENTS), "--json", "--peers", ALL).out)
    assert (told["left_out"], told["compared"]["matches"]) == (5, 0)
    assert [peer["matches"] for peer in told["peers"].values()] == [0, 0, 0]


def test_rows_that_are_set_aside_are_told(meetpoint: Command, tmp_path: Path) -> None:
    ran = meetpoint("bench", "matcher", *own_files(tmp_path, ["price <", *PLAIN], EVENTS), "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["set_aside"] == 1
    assert "1 row was set aside" in ran.err
    assert "subscriptions, row 0" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--subs", "a.csv"), "--subs and --events go together"),
        (("--mix", "dense"), "mix 'dense'"),
        (("--peers", "oracle"), "peer 'oracle'"),
        (("--path", "sse"), "--path"),
        (("--subs", "no.csv", "--events", "no.csv"), "no.csv: no such file"),
    ],
)
def test_refused(meetpoint: Command, arguments: tuple[object, ...], message: str) -> None:
    ran = meetpoint("bench", "matcher", "--subscriptions", 10, "--generate-events", 10, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_empty_files_are_refused(meetpoint: Command, tmp_path: Path) -> None:
    assert "there are none" in meetpoint("bench", "matcher", *own_files(tmp_path, [], EVENTS)).err
    assert "there are none" in meetpoint("bench", "matcher", *own_files(tmp_path, PLAIN, [])).err


@pytest.mark.parametrize("package", ["numba", "duckdb"])
def test_a_missing_package_is_told_with_the_command(
    meetpoint: Command, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setattr(bench, "find_spec", lambda name: None if name == package else object())
    ran = meetpoint("bench", "matcher", *SMALL)
    assert ran.code == 2
    assert f"{package} is not installed" in ran.err
    assert "pip install 'meetpoint[bench]'" in ran.err
