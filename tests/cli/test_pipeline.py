"""`meetpoint pipeline` and `backtest --spark`: the answers of the commands without Spark, and every kind of mistake."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from meetpoint.cli.pipeline import spark_command
from meetpoint.lab.demo.demo import run_demo
from meetpoint.matching.keys.feedback import Feedback
from tests.archive.test_archive import accepted, archive
from tests.cli.conftest import Command, Ran
from tests.spark.conftest import spark as spark  # the one session of all tests
from tests.spark.quick_java import quick_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("spark")]

SCHEMA = "attributes: {id: integer, symbol: string, price: {type: float, max: 1000}, time: timestamp}\n"
LINES = [
    {"id": 0, "symbol": "OTE", "price": 8.5, "time": "2026-01-02T03:04:05Z"},
    {"id": 1, "symbol": "ACME", "price": 9, "time": "2026-01-02T05:00:00Z"},
    {"id": 2, "symbol": "ACME", "price": None},
]
SUBS = [{"id": "ann", "filter": "price > 8.30 AND symbol LIKE 'OT%'"}, {"id": "bob", "filter": "symbol = 'ACME'"}]
PAIRS = {(0, "ann"), (1, "bob"), (2, "bob")}


def lines(path: Path, rows: list[dict[str, Any]], *more: str) -> Path:
    path.write_text("".join(text + "\n" for text in [*map(json.dumps, rows), *more]))
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with events, subscriptions and a schema, and in it."""
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "events.jsonl", LINES)
    pq.write_table(pa.Table.from_pylist(LINES), tmp_path / "events.parquet")
    lines(tmp_path / "subs.jsonl", SUBS)
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    return tmp_path


FILE = re.compile(r"[\w-]+\.(parquet|jsonl|csv|yaml|yml|json|bin)")
FOLDERS = ("index", "all", "made", "by", "arriving", "hits", "dead", "state", "mixed", "lines")


@pytest.fixture
def command(meetpoint: Command, here: Path) -> Command:
    """Run `meetpoint` with the names of files in that folder: Java, which runs already, is in another."""

    def run(*arguments: object) -> Ran:
        texts = [str(argument) for argument in arguments]
        ran = meetpoint(*(here / text if text in FOLDERS or FILE.fullmatch(text) else text for text in texts))
        return Ran(ran.code, ran.out.replace(f"{here}/", ""), ran.err.replace(f"{here}/", ""))

    return run


def rows_in(folder: str | Path) -> list[dict[str, Any]]:
    """Return the rows that Spark wrote, in any order."""
    if str(folder).endswith(".jsonl"):
        files = sorted(Path(folder).glob("part-*"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]
    rows: list[dict[str, Any]] = pq.read_table(folder).to_pylist()
    return rows


def told(ran: Ran) -> dict[str, Any]:
    """The one object that a command printed."""
    assert ran.out.count("\n") == 1
    found: dict[str, Any] = json.loads(ran.out)
    assert found["seconds"] >= 0
    return found


# -- stages ------------------------------------------------------------------------------------------------------------


def test_match_finds_the_pairs_of_match_without_spark(command: Command, here: Path) -> None:
    rng = random.Random(7)
    events = [{"id": n, "x": rng.randrange(20), "s": rng.choice(["a", "b", "ab", None])} for n in range(300)]
    filters = [f"x >= {n} AND s LIKE '{'ab'[n % 2]}%'" for n in range(18)] + ["s IS NULL", "x = 3 OR s = 'ab'"]
    pq.write_table(pa.Table.from_pylist(events), here / "many.parquet")
    lines(here / "many.jsonl", [{"id": n, "filter": text} for n, text in enumerate(filters)])
    assert (
        command("match", "many.parquet", "--subs", "many.jsonl", "--event-id", "id", "--out", "one.parquet").code == 0
    )
    wanted = {(row["event"], row["subscription"]) for row in rows_in("one.parquet")}
    assert len(wanted) > 1000
    ran = command(
        "pipeline", "match", "many.parquet", "--subs", "many.jsonl", "--event-id", "id", "--out", "all.parquet"
    )
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"300 events, 20 subscriptions, {len(wanted):,} pairs in all.parquet; ")
    found = rows_in("all.parquet")
    assert {(row["event"], row["subscription"]) for row in found} == wanted
    assert len(found) == len(wanted)


def test_compiled_subscriptions_are_matched_and_the_plan_is_told(command: Command, here: Path) -> None:
    first = told(command("pipeline", "compile", "subs.jsonl", "--to", "index", "--json"))
    second = told(command("pipeline", "compile", "subs.jsonl", "--to", "index", "--sample", "events.parquet", "--json"))
    assert (first["version"], second["version"], second["subscriptions"], second["rejected"]) == (1, 2, 2, 0)
    ran = command("pipeline", "match", "events.parquet", "--subs", "index", "--out", "hits.jsonl", "--explain")
    assert ran.code == 0
    assert ran.out.startswith("strategy       broadcast: the index has ")
    assert {(row["id"], row["subscription"]) for row in rows_in("hits.jsonl")} == PAIRS
    arguments = ["events.parquet", "--subs", "index", "--out", "lists.parquet", "--result", "lists", "--json"]
    found = told(command("pipeline", "match", *arguments, "--strategy", "broadcast"))
    assert (found["events"], found["lists"], found["strategy"], found["reason"]) == (3, 3, "broadcast", "as asked")
    assert [row["subscriptions"] for row in sorted(rows_in("lists.parquet"), key=lambda row: int(row["id"]))] == [
        ["ann"], ["bob"], ["bob"],
    ]  # fmt: skip


def test_what_is_set_aside_is_told_with_the_first_reason(command: Command, here: Path) -> None:
    lines(here / "mixed.jsonl", LINES, "no object", '{"id": 9, "price": 2000}')
    lines(here / "odd.jsonl", [*SUBS, {"id": "eve", "filter": "price >"}])
    arguments = ["mixed.jsonl", "--subs", "odd.jsonl", "--schema", "schema.yaml", "--out", "hits.parquet"]
    ran = command("pipeline", "match", *arguments, "--dead", "dead.jsonl", "--json")
    assert ran.code == 1
    assert told(ran) | {"seconds": 0} == {
        "events": 3, "dead": 2, "subscriptions": 2, "rejected": 1, "pairs": 3, "strategy": "broadcast",
        "reason": told(ran)["reason"], "out": "hits.parquet", "seconds": 0,
    }  # fmt: skip
    subscriptions, events = ran.err.splitlines()
    assert subscriptions.startswith(
        "meetpoint: 1 subscription was set aside; meetpoint pipeline compile keeps a list. "
    )
    assert "id 'eve': filter, column 8: the filter ends where" in subscriptions
    assert events.startswith("meetpoint: 2 rows were set aside; see dead.jsonl. The first: ")
    assert {row["raw"] for row in rows_in("dead.jsonl")} == {"no object", '{"id": 9, "price": 2000}'}
    assert all(row["source"].endswith("/mixed.jsonl") for row in rows_in("dead.jsonl"))


def test_validate_splits_lines(command: Command, here: Path) -> None:
    lines(here / "mixed.jsonl", LINES, "", '{"id": "x"}')
    ran = command("pipeline", "validate", "mixed.jsonl", "--schema", "schema.yaml", "--out", "good.parquet")
    assert ran.code == 1
    assert ran.out.startswith("4 rows: 3 events in good.parquet, 1 dead letter; ")
    assert "1 row was set aside; name --dead FOLDER to keep them. The first: " in ran.err
    assert [row["id"] for row in rows_in("good.parquet")] == [0, 1, 2]


def test_csv_has_the_types_that_match_without_spark_finds(command: Command, here: Path) -> None:
    (here / "events.csv").write_text(
        'id,symbol,price,code,time,up\n0,OTE,8.5,007,2026-01-02 03:04,true\n1,"AC,""ME",NA,010,,false\n'
        "2,ACME,9,1,2026-01-02T05:00:00Z,\n3,ACME\n"
    )
    texts = [
        "price > 8.3",
        "code = '007'",
        "symbol LIKE '%,\"%'",
        "up = true",
        "time < TIMESTAMP '2026-01-02 04:00:00'",
    ]
    lines(here / "csv.jsonl", [{"id": n, "filter": text} for n, text in enumerate(texts)])
    without = command("match", "events.csv", "--subs", "csv.jsonl", "--event-id", "id", "--out", "one.parquet")
    arguments = [
        "events.csv",
        "--subs",
        "csv.jsonl",
        "--event-id",
        "id",
        "--out",
        "all.parquet",
        "--dead",
        "dead.jsonl",
    ]
    ran = command("pipeline", "match", *arguments)
    assert (without.code, ran.code) == (1, 1)
    assert "The first: there are not 6 fields, as in the header" in ran.err
    both = [{(row["event"], row["subscription"]) for row in rows_in(path)} for path in ("one.parquet", "all.parquet")]
    assert both[0] == both[1] == {(0, 0), (2, 0), (0, 1), (1, 2), (0, 3), (0, 4)}


def test_csv_fields_that_are_not_of_the_schema_are_dead_letters(command: Command, here: Path) -> None:
    (here / "events.csv").write_text("price,id\n8.5,0\nx,1\n,2\n2000,3\n")
    arguments = ["events.csv", "--schema", "schema.yaml", "--out", "good.parquet", "--dead", "dead.jsonl"]
    found = told(command("pipeline", "validate", *arguments, "--json"))
    assert (found["in"], found["good"], found["dead"]) == (4, 2, 2)
    assert {(row["id"], row["price"], row["symbol"]) for row in rows_in("good.parquet")} == {
        (0, 8.5, None),
        (2, None, None),
    }
    reasons = {row["raw"]: row["reason"] for row in rows_in("dead.jsonl")}
    assert reasons["x,1"] == "price: 'x' is not a float"
    assert len(reasons) == 2


def test_deliver_writes_folders_by_a_column(command: Command, here: Path) -> None:
    arguments = [
        "events.parquet",
        "--to",
        "by",
        "--format",
        "csv",
        "--partition-by",
        "symbol",
        "--option",
        "header=false",
    ]
    ran = command("pipeline", "deliver", *arguments, "--json")
    assert (ran.code, told(ran)["rows"], told(ran)["format"]) == (0, 3, "csv")
    assert sorted(path.name for path in (here / "by").glob("symbol=*")) == ["symbol=ACME", "symbol=OTE"]
    assert [path.read_text() for path in (here / "by").glob("symbol=OTE/*.csv")] == ["0,8.5,2026-01-02T03:04:05Z\n"]
    again = command("pipeline", "deliver", "events.parquet", "--to", "by", "--format", "csv", "--mode", "overwrite")
    assert again.code == 0


def test_run_does_all_stages(command: Command, here: Path) -> None:
    lines(here / "mixed.jsonl", LINES, "no object")
    ran = command("pipeline", "run", "mixed.jsonl", "--subs", "subs.jsonl", "--schema", "schema.yaml", "--out", "all")
    assert ran.code == 1
    assert ran.out.startswith("3 events, 2 subscriptions, 3 pairs in all; ")
    assert {(row["id"], row["subscription"]) for row in rows_in("all/hits.parquet")} == PAIRS
    assert [row["raw"] for row in rows_in("all/dead.parquet")] == ["no object"]
    assert json.loads((here / "all/measured.json").read_text())["matches"]["pairs"] == 3
    assert Feedback.load(here / "all/feedback.bin").events == 3
    again = command("pipeline", "run", "mixed.jsonl", "--subs", "subs.jsonl", "--schema", "schema.yaml", "--out", "all")
    assert (again.code, again.out) == (2, "")
    assert "all/hits.parquet: there is something already; choose another path, or say --overwrite" in again.err


def test_measure_reports(command: Command, here: Path) -> None:
    arguments = ["events.parquet", "--subs", "subs.jsonl", "--out", "measured.json", "--feedback", "feedback.bin"]
    ran = command("pipeline", "measure", *arguments)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("3 events, 4 attributes, 2 subscriptions\n")
    assert json.loads((here / "measured.json").read_text())["events"] == 3
    assert Feedback.load(here / "feedback.bin").events == 3


def test_an_archive_of_a_network_without_a_schema_is_measured_with_one_that_is_inferred(
    command: Command, here: Path
) -> None:
    held = here / "archived"
    archive(held).write([accepted(number) for number in range(5)], None)
    for arguments in (
        ["pipeline", "measure", held, "--feedback", "f.bin"],
        ["backtest", "price > 2", "--events", held, "--spark"],
    ):
        ran = command(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert "archived: its events have no schema; name one (meetpoint schema infer makes it)" in ran.err
    assert command("schema", "infer", held, "--out", "inferred.yaml").code == 0
    measured = command("pipeline", "measure", held, "--schema", "inferred.yaml", "--feedback", "f.bin", "--json")
    assert (measured.code, measured.err) == (0, "")
    assert Feedback.load(here / "f.bin").events == 5
    tested = command("backtest", "price > 2", "--events", held, "--spark", "--schema", "inferred.yaml", "--json")
    assert json.loads(tested.out)["hits"] == 2


def test_generate_writes_a_workload_that_match_takes(command: Command, here: Path) -> None:
    ran = command("generate", "--subscriptions", 200, "--events", 100, "--out", "made", "--json")
    assert ran.code == 0
    assert (told(ran)["events"], told(ran)["subscriptions"]) == (100, 200)
    assert (len(rows_in("made/events.parquet")), len(rows_in("made/subscriptions.parquet"))) == (100, 200)


def test_stream_matches_what_is_there_and_then_what_is_added(command: Command, here: Path) -> None:
    folder = here / "arriving"
    folder.mkdir()
    lines(folder / "0.jsonl", LINES[:2], "no object")
    arguments = ["arriving", "--subs", "subs.jsonl", "--schema", "schema.yaml", "--out", "hits", "--dead", "dead"]
    first = command("pipeline", "stream", *arguments, "--checkpoint", "state", "--once", "--json")
    assert first.code == 1
    assert "1 row was set aside; see dead" in first.err
    figures = told(first)
    assert [figures[name] for name in ("batches", "events", "dead", "hits", "stopped")] == [1, 3, 1, 2, False]
    lines(folder / "1.jsonl", LINES[2:])
    second = command("pipeline", "stream", *arguments, "--checkpoint", "state", "--once")
    assert second.code == 0
    assert second.out.startswith("1 batch: 1 event, 0 dead letters, 1 pair in hits; ")
    assert {(row["id"], row["subscription"]) for row in rows_in("hits")} == PAIRS


@pytest.mark.parametrize("file", ["events.parquet", "events.jsonl"])
def test_backtest_on_spark_reports_what_it_does_without(command: Command, here: Path, file: str) -> None:
    arguments = ["backtest", "symbol = 'ACME' AND price > 8", "--events", file]
    if file.endswith(".jsonl"):
        arguments += ["--time", "time", "--schema", "schema.yaml"]
    for more in ([], ["--json"]):
        assert command(*arguments, "--spark", *more) == command(*arguments, *more)


def test_backtest_on_spark_sets_rows_aside(command: Command, here: Path) -> None:
    lines(here / "mixed.jsonl", LINES, "no object")
    arguments = ["backtest", "price > 8", "--events", "mixed.jsonl", "--spark", "--rejects", "bad.jsonl", "--json"]
    ran = command(*arguments)
    assert (ran.code, json.loads(ran.out)["hits"]) == (1, 2)
    assert json.loads((here / "bad.jsonl").read_text())["raw"] == "no object"


LIVE = (
    r"published in [\d.]+ s, (\d+) notifications came.* the same \((\d+)\)"
    r".* gets what came before: the same \((\d+)\).*"
    r"archive of the brokers: (\d+) of"
)


def test_the_demo_on_spark_comes_to_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run_demo(Console(width=120), flights=3000, alerts=60, with_spark=True, report=tmp_path)
    shown = capsys.readouterr().out
    assert "Spark agrees on all 25 alerts asked" in shown
    assert shown.count("Held against meetpoint match, pair by pair: the same pairs") == 2
    assert "4 batches of a file each" in shown
    assert ": as without Spark." in shown
    live, streamed, replayed, backtested = map(int, re.findall(LIVE, " ".join(shown.split()))[0])
    assert live == streamed > 20
    assert live > replayed == backtested > 5
    assert "please report this" not in shown
    assert "index.html to see the figures" in " ".join(shown.split())
    assert (tmp_path / "index.html").is_file()
    assert len(list((tmp_path / "figures").glob("*.png"))) >= 5


# -- mistakes ----------------------------------------------------------------------------------------------------------

MATCH = ["pipeline", "match", "events.parquet", "--subs", "subs.jsonl", "--out", "hits.parquet"]
MISTAKES = {
    "wrong path": ([*MATCH[:2], "evnts.parquet", *MATCH[3:]], "evnts.parquet: no such file or directory"),
    "wrong subscriptions": ([*MATCH, "--subs", "sub.jsonl"], "sub.jsonl: no such file or directory; check the path"),
    "no format": ([*MATCH, "--out", "hits"], "hits: the ending says no format; end it in .parquet"),
    "no format of the dead": ([*MATCH, "--schema", "schema.yaml", "--dead", "dead"], "dead: the ending says no format"),
    "standard input": ([*MATCH[:2], "-", *MATCH[3:]], "-: Spark reads files and folders"),
    "output exists": ([*MATCH, "--out", "there.parquet"], "there.parquet: there is something already; choose another"),
    "output is input": ([*MATCH, "--out", "events.parquet", "--mode", "overwrite"], "EVENTS is read and written"),
    "wrong column": ([*MATCH, "--subs", "wrong.jsonl"], "events have no column prize; did you mean price?"),
    "wrong kind": ([*MATCH, "--subs", "kind.jsonl"], "symbol is of type string and is compared with a number"),
    "no filter column": ([*MATCH, "--subs", "events.jsonl"], "events.jsonl: there is no column filter"),
    "no event id": ([*MATCH, "--event-id", "nr"], "events.parquet: there is no column nr, which --event-id names"),
    "strategy": ([*MATCH, "--strategy", "fast"], "'fast' is not one of 'auto', 'broadcast', 'partitioned', 'join'"),
    "config": ([*MATCH, "--config", "spark.driver.memory"], "'spark.driver.memory' is no setting; write KEY=VALUE."),
    "no schema": ([*MATCH, "--schema", "schema.yml"], "schema.yml"),
    "keep without schema": ([*MATCH, "--keep", "id"], "--keep: there is no schema"),
    "schema of others": ([*MATCH, "--schema", "other.yaml"], "column id is not in the schema"),
    "no parquet": ([*MATCH[:2], "bad.parquet", *MATCH[3:]], "bad.parquet: cannot be read: "),
    "two formats": ([*MATCH[:2], "mixed", *MATCH[3:]], "mixed: the folder holds jsonl and parquet files"),
    "not compiled": ([*MATCH, "--subs", "mixed"], "mixed"),
    "csv of lists": ([*MATCH, "--result", "lists", "--out", "h.csv"], "which CSV does not hold"),
    "partition": (["pipeline", "deliver", "events.parquet", "--to", "x.csv", "--partition-by", "s"], "no column 's'"),
    "option": (["pipeline", "deliver", "events.parquet", "--to", "x.csv", "--option", "a"], "'a' is no setting"),
    "mix": (["generate", "--mix", "tick", "--out", "made"], "tick"),
    "stream of a file": (
        ["pipeline", "stream", *MATCH[2:], "--checkpoint", "state"],
        "events.parquet: is a file; a stream follows a folder",
    ),
    "stream of json": (
        ["pipeline", "stream", "lines", "--subs", "subs.jsonl", "--out", "h", "--checkpoint", "state"],
        "lines: what JSON lines will hold is not known; name a schema",
    ),
    "stream without dead": (
        ["pipeline", "stream", "lines", *MATCH[3:], "--checkpoint", "state", "--schema", "schema.yaml"],
        "dead: events that do not fit the schema must go somewhere",
    ),
    "backtest": (["backtest", "prize > 8", "--events", "events.parquet", "--spark"], "did you mean price?"),
    "backtest time": (["backtest", "price > 8", "--events", "events.parquet", "--spark", "--time", "price"], "price"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_and_nothing_is_written(command: Command, here: Path, mistake: str) -> None:
    lines(here / "wrong.jsonl", [{"id": 1, "filter": "prize > 8"}])
    lines(here / "kind.jsonl", [{"id": 1, "filter": "symbol > 8"}])
    (here / "there.parquet").mkdir()
    (here / "other.yaml").write_text("attributes: {symbol: string}\n")
    (here / "bad.parquet").write_text("no parquet")
    for folder, names in {"mixed": ("a.jsonl", "b.parquet"), "lines": ("a.jsonl",)}.items():
        (here / folder).mkdir()
        for name in names:
            lines(here / folder / name, LINES)
    before = sorted(here.rglob("*"))
    arguments, message = MISTAKES[mistake]
    ran = command(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("meetpoint: ")
    assert message in ran.err
    assert ran.err.count("\n") == (3 if "filter, column" in ran.err else 1)  # a filter is shown with a pointer
    assert sorted(here.rglob("*")) == before


def test_without_pyspark_it_says_what_to_install(command: Command, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_command, "find_spec", lambda name: None)
    wanted = "meetpoint: PySpark is not installed, which this command needs; run: pip install 'meetpoint[spark]'\n"
    assert command(*MATCH) == (2, "", wanted)


def test_what_a_job_dies_of_is_one_line(spark: SparkSession, here: Path) -> None:
    (here / "late.parquet").write_bytes((here / "events.parquet").read_bytes())
    frame = spark.read.parquet(str(here / "late.parquet"))
    (here / "late.parquet").unlink()
    with pytest.raises(Exception, match=r"late\.parquet") as raised:
        frame.toArrow()
    said = spark_command.spark_message(raised.value)
    assert said is not None
    assert said.startswith("Spark stopped: ")
    assert "\n" not in said
    assert "late.parquet" in said
    assert spark_command.spark_message(ValueError("[NOT_OF_SPARK] x")) is None


# -- as a process ------------------------------------------------------------------------------------------------------

COMMAND = [sys.executable, "-c", "from meetpoint.cli import main; main()"]


def test_a_setting_with_which_java_does_not_start_is_one_line(here: Path) -> None:
    command = [*COMMAND, *MATCH, "--config", "spark.driver.memory=banana"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("meetpoint: Spark does not start with --master local[*]: Invalid maximum heap size")
    assert done.stderr.count("\n") == 1


def test_ctrl_c_ends_a_stream_after_its_batch(here: Path) -> None:
    folder = here / "arriving"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(LINES), folder / "0.parquet")
    arguments = ["arriving", "--subs", "subs.jsonl", "--out", "hits", "--checkpoint", "state", "--master", "local[1]"]
    arguments += ["--config", f"spark.driver.extraJavaOptions={quick_java()}"]
    process = subprocess.Popen(
        [*COMMAND, "pipeline", "stream", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 600
    while not list(here.glob("hits/batch_id=0/*.parquet")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, err) == (130, "meetpoint: stopped\n")
    assert out.startswith("1 batch: 3 events, 0 dead letters, 3 pairs in hits; ")
    assert {(row["id"], row["subscription"]) for row in rows_in("hits")} == PAIRS
