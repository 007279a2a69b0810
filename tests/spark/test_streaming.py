"""`stream` against Scan by batch and version: whatever is killed, nothing is lost, repeated or half seen."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from meetpoint.errors import FilterError, MeetpointError
from meetpoint.matching.io.rejects import SourceError
from meetpoint.spark import Subscriptions
from meetpoint.spark.streaming import batches
from meetpoint.spark.streaming.batches import BatchReport, BatchTable, Folder, read
from meetpoint.spark.streaming.job import Stream, stream
from meetpoint.spark.subscriptions import store
from tests.spark import stream_job
from tests.spark.lives import Life
from tests.spark.stream_job import FILTERS, SCHEMA, Pairs, batches_of_files, poison_in, scanned, write_file
from tests.tiers import SOAK

KILLS = 8 if SOAK else 1
WORKER_KILLS = 3 if SOAK else 1
FILES = 30 if SOAK else 15
"""That each run of the stream finds anew."""
PATIENCE_S = 600.0
"""How long a test waits for what must come."""


@pytest.fixture(params=["direct", "spark"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether this process may touch files, or only Spark, as on a cluster."""
    if request.param == "spark":
        monkeypatch.setattr(batches, "_knows_files", lambda _: False)
    return str(request.param)


@pytest.fixture(scope="module")
def compiled(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index directory with the first filters, to be copied."""
    directory = tmp_path_factory.mktemp("compiled") / "index"
    stream_job.subscriptions(spark, "first").compile(directory)
    return directory


@pytest.fixture(scope="module")
def second(spark: Any) -> Subscriptions:
    return stream_job.subscriptions(spark, "second").compile()


@pytest.fixture
def folder(tmp_path: Path, compiled: Path) -> Path:
    shutil.copytree(compiled, tmp_path / "index")
    return tmp_path


def texts(spark: Any, folder: Path, files: int = 1) -> Any:
    (folder / "in").mkdir(exist_ok=True)
    return spark.readStream.option("maxFilesPerTrigger", files).text(str(folder / "in"))


def start(spark: Any, folder: Path, **options: Any) -> Stream:
    given: dict[str, Any] = {
        "events": texts(spark, folder),
        "subscriptions": folder / "index",
        "to": folder / "hits",
        "checkpoint": folder / "checkpoint",
        "dead": folder / "dead",
        "schema": SCHEMA,
        "column": "value",
        "trigger": "availableNow",
    }
    given.update(options)
    return stream(**given)


def in_batches(folder: Path, versions: dict[int, str]) -> dict[int, Pairs]:
    """The pairs of each batch by the oracle; `versions` names the filters of each version."""
    pinned = {one["batch"]: one["version"] for one in logged(folder)}
    found: dict[int, Pairs] = {}
    for name, batch in batches_of_files(folder / "checkpoint").items():
        if batch in pinned:
            pairs = scanned(folder / "in" / name, FILTERS[versions[pinned[batch]]])
            found[batch] = found.get(batch, Counter()) + pairs
    return found


def logged(folder: Path) -> list[dict[str, Any]]:
    """The log of the complete batches, read without Spark."""
    notes = (folder / "hits" / "_meetpoint" / "log").glob("*/*.txt")
    return sorted((json.loads(path.read_text()) for path in notes), key=lambda one: int(one["batch"]))


def pairs_of(table: pa.Table) -> dict[int, Pairs]:
    found: dict[int, Pairs] = {}
    columns = (table[name].to_pylist() for name in ("batch_id", "n", "subscription"))
    for batch, n, id_ in zip(*columns, strict=True):
        found.setdefault(batch, Counter())[n, id_] += 1
    return found


def check_counts(folder: Path, dead: pa.Table) -> None:
    """Good + dead = in, in every batch and in all."""
    files: dict[int, list[Path]] = {}
    for name, batch in batches_of_files(folder / "checkpoint").items():
        files.setdefault(batch, []).append(folder / "in" / name)
    letters = Counter(dead["batch_id"].to_pylist())
    for one in logged(folder):
        lines = sum(len(path.read_text().splitlines()) for path in files[one["batch"]])
        poison = sum(map(poison_in, files[one["batch"]]))
        assert one["good"] + one["dead"] == one["events"] == lines
        assert letters[one["batch"]] == one["dead"] == poison


# -- what comes out ----------------------------------------------------------------------------------------------------


def test_each_batch_holds_what_scan_finds_and_a_restart_goes_on(spark: Any, folder: Path) -> None:
    for number in range(3):
        write_file(folder / "in", number)
    first = start(spark, folder, events=texts(spark, folder, 2))
    assert first.await_done()
    assert [(one.batch, one.version) for one in first.progress()] == [(0, 1), (1, 1)]
    write_file(folder / "in", 3)
    again = start(spark, folder)
    assert again.await_done()
    expected = in_batches(folder, {1: "first"})
    assert sorted(expected) == [0, 1, 2]
    hits, dead = again.hits().toArrow(), again.dead().toArrow()
    assert pairs_of(hits) == expected == pairs_of(spark.read.parquet(str(folder / "hits")).toArrow())
    check_counts(folder, dead)
    assert {reason.partition(",")[0] for reason in dead["reason"].to_pylist()} >= {"event"}
    assert hits.schema.names == ["n", "price", "symbol", "o", "subscription", "batch_id"]
    assert read(folder / "hits", spark).toArrow().num_rows == len(hits) == sum(one.hits for one in again.progress())
    assert read(folder / "dead", spark).toArrow().num_rows == len(dead) == sum(one.dead for one in again.progress())
    assert [one.batch for one in again.progress(2)] == [1, 2]
    assert batches.batches(folder / "hits", spark)[0].events_per_second > 0


def test_subscriptions_change_between_batches_of_a_running_stream(
    spark: Any, folder: Path, second: Subscriptions
) -> None:
    write_file(folder / "in", 0)
    running = start(spark, folder, trigger=None)
    wait_for(lambda: len(running.progress()) == 1, running)
    assert running.version == 1
    assert running.refresh(second).number == running.version == 2
    with pytest.raises(FilterError, match="events have no column colour"):
        running.refresh(one_filter(spark, "ann", "colour = 'red'"))
    with pytest.raises(MeetpointError, match="the ids of version 1 are of type bigint, and the stream's are string"):
        running.refresh(one_filter(spark, 7, "n = 1"))
    with pytest.raises(MeetpointError, match="subscriptions: given an object of class str"):
        running.refresh("index")  # type: ignore[arg-type]
    assert running.version == 2
    write_file(folder / "in", 1)
    wait_for(lambda: len(running.progress()) == 2, running)
    wait_for(lambda: running.progress()[-1].trigger_seconds is not None, running)
    assert running.is_active
    running.stop()
    assert not running.query.isActive
    assert [one.version for one in running.progress()] == [1, 2]
    assert pairs_of(running.hits().toArrow()) == in_batches(folder, {1: "first", 2: "second"})


def one_filter(spark: Any, id_: Any, text: str) -> Subscriptions:
    return Subscriptions.from_dataframe(spark.createDataFrame(pa.table({"id": [id_], "filter": [text]})))


def wait_for(claim: Callable[[], bool], running: Stream) -> None:
    until = time.monotonic() + PATIENCE_S
    while not claim():
        assert running.is_active, running.query.exception()
        assert time.monotonic() < until
        time.sleep(0.05)


def test_lists_as_json_lines_of_subscriptions_that_were_never_compiled(spark: Any, tmp_path: Path) -> None:
    table = pa.table({"n": pa.array(range(6), pa.int64()), "x": [1.5, None, 3.0, float("nan"), 2.0, 1.0]})
    spark.createDataFrame(table).repartition(1).write.parquet(str(tmp_path / "in"))
    events = spark.readStream.schema("n BIGINT, x DOUBLE").parquet(str(tmp_path / "in"))
    given = {"to": tmp_path / "hits", "checkpoint": tmp_path / "checkpoint", "result": "lists", "format": "jsonl"}
    for version in (1, 2):
        running = stream(events, one_filter(spark, version, "x > 1"), trigger="availableNow", **given)  # type: ignore[arg-type]
        assert running.await_done()
        assert running.version == version
        assert running.directory == str(tmp_path / "checkpoint" / "meetpoint" / "index")
    rows = running.hits().orderBy("n").toArrow().to_pylist()
    assert [row["n"] for row in rows] == list(range(6))
    assert [row["subscriptions"] for row in rows] == [[1], [], [1], [1], [1], []]
    assert [(one.events, one.good, one.hits) for one in running.progress()] == [(6, 6, 6)]
    with pytest.raises(MeetpointError, match="dead: the stream checks nothing"):
        running.dead()


# -- what is cut short -------------------------------------------------------------------------------------------------


class CutError(Exception):
    """What stands for a crash."""


def test_a_batch_cut_short_at_any_step_is_replayed_with_its_version(
    spark: Any, folder: Path, mode: str, second: Subscriptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, write = Folder.put, BatchTable.write
    cut = {"pin": 0, "dead": 1, "hits": 2, "log": 3}

    def cut_put(self: Folder, session: Any, note: Any) -> None:
        put(self, session, note)
        if isinstance(note, BatchReport) and note.batch == cut["log"]:
            raise CutError
        if isinstance(note, dict) and note.get("batch") == cut["pin"]:
            raise CutError

    def cut_write(self: BatchTable, frame: Any, number: int) -> int:
        rows = write(self, frame, number)
        if number == cut[Path(self.folder.path).name]:
            raise CutError
        return rows

    monkeypatch.setattr(Folder, "put", cut_put)
    monkeypatch.setattr(BatchTable, "write", cut_write)
    for number in range(5):
        write_file(folder / "in", number)
    assert second.version is not None
    for batch, step in enumerate(cut):
        with pytest.raises(Exception, match="CutError"):
            start(spark, folder).await_done()
        for _ in range(2):  # each goes at once but for the one that is held
            store.publish(folder / "index", copy_of(second.version), keep=1)
        assert [one["batch"] for one in logged(folder)] == list(range(batch + (step == "log")))
        seen = pairs_of(read(folder / "hits", spark).toArrow())
        assert seen == in_batches(folder, dict.fromkeys(range(2, 10), "second") | {1: "first"})
        cut[step] = -1
    last = start(spark, folder)
    assert last.await_done()
    versions = [one.version for one in last.progress()]
    assert versions == [1, 3, 5, 7, 9]
    assert store.versions(folder / "index") == [7, 9]  # 7 was held when 9 was published
    expected = in_batches(folder, dict.fromkeys(versions, "second") | {1: "first"})
    assert len(expected) == 5
    assert pairs_of(last.hits().toArrow()) == expected
    assert pairs_of(spark.read.parquet(str(folder / "hits")).toArrow()) == expected
    check_counts(folder, last.dead().toArrow())
    assert not list((folder / "hits" / "_meetpoint").glob("aside/*"))


def copy_of(version: store.Version) -> store.Write:
    from meetpoint.spark.streaming.job import _copy_of

    return _copy_of(version)


def test_a_replay_without_its_version_says_what_to_do(
    spark: Any, folder: Path, second: Subscriptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file(folder / "in", 0)
    put = Folder.put

    def cut_log(self: Folder, session: Any, note: Any) -> None:
        if isinstance(note, BatchReport):
            raise CutError
        put(self, session, note)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "put", cut_log)
        with pytest.raises(Exception, match="CutError"):
            start(spark, folder).await_done()
    assert list((folder / "hits" / "batch_id=0").iterdir())
    assert second.version is not None
    store.publish(folder / "index", copy_of(second.version))
    shutil.rmtree(folder / "index" / "v00000001")
    message = r"stream: batch 0 was begun with version 1, .* no version 1; there are: 2; restore it, or remove .*pins/0"
    with pytest.raises(MeetpointError, match=message) as caught:
        start(spark, folder).await_done()
    assert "\n" not in str(caught.value)
    shutil.copytree(folder / "index" / "v00000002", folder / "index" / "v00000001")
    with pytest.raises(MeetpointError, match="version 1 is another one now"):
        start(spark, folder).await_done()
    shutil.rmtree(folder / "checkpoint" / "meetpoint" / "pins" / "0")
    last = start(spark, folder)
    assert last.await_done()
    assert pairs_of(last.hits().toArrow()) == in_batches(folder, {2: "second"})
    check_counts(folder, last.dead().toArrow())


def test_a_version_that_does_not_fit_fails_the_batch_and_the_next_one_heals_it(
    spark: Any, folder: Path, second: Subscriptions
) -> None:
    write_file(folder / "in", 0)
    running = start(spark, folder, trigger=None)
    wait_for(lambda: len(running.progress()) == 1, running)
    one_filter(spark, "ann", "price = 'dear'").compile(folder / "index")
    write_file(folder / "in", 1)
    with pytest.raises(MeetpointError, match="stream: filter, column 1: subscription 'ann': price is of type float"):
        running.await_done()
    assert second.version is not None
    store.publish(folder / "index", copy_of(second.version))
    last = start(spark, folder)
    assert last.await_done()
    assert [one.version for one in last.progress()] == [1, 3]


def test_stop_waits_for_the_batch_that_runs_unless_told_not_to(
    spark: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = BatchTable.write
    begun: list[int] = []
    may_go_on = threading.Event()

    def held(self: BatchTable, frame: Any, number: int) -> int:
        begun.append(number)
        assert may_go_on.wait(PATIENCE_S)
        return write(self, frame, number)

    monkeypatch.setattr(BatchTable, "write", held)
    write_file(folder / "in", 0)
    running = start(spark, folder, trigger=None)
    wait_for(lambda: bool(begun), running)
    assert not running.progress()
    assert not running.await_done(0.01)
    stopping = threading.Thread(target=running.stop)
    stopping.start()
    stopping.join(0.2)
    assert stopping.is_alive(), "the batch runs"
    may_go_on.set()
    stopping.join(PATIENCE_S)
    assert not stopping.is_alive()
    assert [one.batch for one in running.progress()] == [0]
    begun.clear()
    may_go_on.clear()
    write_file(folder / "in", 1)
    running = start(spark, folder, trigger="1 second")
    wait_for(lambda: bool(begun), running)
    stop_query = running.query.stop

    def stop_at_once() -> None:
        may_go_on.set()
        stop_query()

    monkeypatch.setattr(running.query, "stop", stop_at_once)
    running.stop(timeout=0)  # which breaks the batch off, unless it is too late for that
    assert not running.is_active
    last = start(spark, folder)
    assert last.await_done()
    assert pairs_of(last.hits().toArrow()) == in_batches(folder, {1: "first"})
    assert len(last.progress()) == 2


def test_a_source_that_gives_other_rows_when_read_again_fails_the_batch(
    spark: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file(folder / "in", 0)
    write = BatchTable.write
    monkeypatch.setattr(BatchTable, "write", lambda self, frame, number: write(self, frame.limit(1), number))
    with pytest.raises(MeetpointError, match=r"batch 0: \d+ dead letters were counted and 1 written; the source must"):
        start(spark, folder).await_done()
    assert logged(folder) == []


def test_the_work_of_a_batch_can_be_sent_to_a_server(folder: Path) -> None:
    table = BatchTable(Folder("file:/hits", True), "parquet", "{}")
    options = batches.MatchOptions(strategy="auto", result="pairs", missing="error", on_bad="warn", ship="auto")
    work = batches.BatchJob("id", str(folder), "string", Folder("file:/pins", True), table, None, options)
    assert pickle.loads(pickle.dumps(work)) == work


# -- what is told before the start -------------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no frame": ({"events": [1]}, "events: given an object of class list; give a Spark DataFrame"),
    "format": ({"format": "csv"}, "format is 'csv'; use parquet, orc, jsonl, json"),
    "result": ({"result": "both"}, "result is 'both'; use pairs, lists"),
    "strategy": ({"strategy": "magic"}, "strategy is 'magic'; use "),
    "trigger": ({"trigger": "sometimes"}, "trigger is 'sometimes'; use an interval such as '10 seconds', or"),
    "number": ({"trigger": 10}, "trigger is 10; use an interval"),
    "no path": ({"to": None}, "to: given None; give the path of a directory"),
    "bytes": ({"to": b"hits"}, "to: given b'hits'; give the path of a directory"),
    "pattern": ({"to": "hits*"}, r"to: 'hits\*' has a '\*', which Spark takes for a pattern"),
    "same": ({"dead": "{hits}"}, "to: .*/hits is in .*/hits, which is dead; choose another directory"),
    "within": ({"to": "{checkpoint}/hits"}, "to: .*/hits is in .*/checkpoint, which is checkpoint"),
    "a file": ({"to": "{file}/hits"}, "to: .*/file is a file; choose another directory"),
    "no schema": ({"schema": None, "column": None}, "dead: events are not checked without a schema; give schema="),
    "lone column": ({"schema": None, "dead": None}, "column: events are not checked without a schema"),
    "no dead": ({"dead": None}, "dead: events that do not fit the schema must go somewhere"),
    "column": ({"column": "text"}, "events: there is no column 'text'; the columns are value"),
    "schema": ({"schema": {"n": "integer"}}, "schema: given an object of class dict; give a Schema"),
    "subscriptions": ({"subscriptions": 5}, "subscriptions: given an object of class int; make them with Sub"),
    "no index": ({"subscriptions": "{nowhere}"}, "nowhere: there is no such directory; compile some"),
    "occupied": ({"to": "{in}"}, "/in: holds something that no stream wrote; choose another directory"),
    "query": ({"checkpoint": "{other}"}, "checkpoint: .*/other is that of another query; choose another directory"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_before_the_start(spark: Any, folder: Path, mistake: str) -> None:
    given, message = MISTAKES[mistake]
    (folder / "file").touch()
    (folder / "other" / "offsets").mkdir(parents=True)
    write_file(folder / "in", 0)
    places = {name: folder / name for name in ("hits", "checkpoint", "file", "nowhere", "in", "other")}
    given = {name: value.format(**places) if isinstance(value, str) else value for name, value in given.items()}
    with pytest.raises(MeetpointError, match=message) as caught:
        start(spark, folder, **given)
    assert "\n" not in str(caught.value)
    assert not spark.streams.active
    assert not (folder / "hits").exists()


def test_events_that_do_not_fit_are_told_before_the_start(spark: Any, folder: Path) -> None:
    plain = {"schema": None, "column": None, "dead": None}
    events = spark.readStream.schema("n INT, price DOUBLE, batch_id INT").json(str(folder))
    with pytest.raises(FilterError, match=r"events have no column o\.side; the columns are n, price, batch_id"):
        start(spark, folder, events=events, **plain)
    with pytest.raises(MeetpointError, match=r"events: there is a column 'batch_id' already, .*'event_batch_id'"):
        start(spark, folder, events=events, **plain, missing="null")
    with pytest.raises(MeetpointError, match=r"events: the DataFrame is no stream; make one with spark.readStream"):
        start(spark, folder, events=spark.range(3))
    counted = events.drop("batch_id").groupBy("n", "price").count()
    with pytest.raises(MeetpointError, match=r"events: Spark does not start the stream: .*append"):
        start(spark, folder, events=counted, **plain, missing="null")
    assert not spark.streams.active


def test_a_table_takes_batches_of_its_own_stream_only(spark: Any, folder: Path, mode: str) -> None:
    write_file(folder / "in", 0)
    assert start(spark, folder).await_done()
    message = "hits: holds the batches of the stream with the checkpoint .*/checkpoint; give that"
    with pytest.raises(SourceError, match=message):
        start(spark, folder, checkpoint=folder / "new")
    with pytest.raises(SourceError, match=r"to: the batches of this checkpoint went to .*/hits, and .*/new is empty"):
        start(spark, folder, to=folder / "new")
    with pytest.raises(SourceError, match=r"hits: the columns were struct<n:bigint.*, and would be .*array<string>"):
        start(spark, folder, result="lists")
    with pytest.raises(SourceError, match="hits: the format were parquet until now, and would be orc"):
        start(spark, folder, format="orc")
    with pytest.raises(SourceError, match="in: no stream has written there"):
        read(folder / "in", spark)


# -- versions that are held --------------------------------------------------------------------------------------------


def test_a_held_version_stays_until_its_holder_holds_another(compiled: Path, tmp_path: Path) -> None:
    shutil.copytree(compiled, tmp_path / "index")
    write = copy_of(store.current(compiled))
    directory = tmp_path / "index"
    assert store.hold(directory, "one").number == store.hold(directory, "two").number == 1
    store.publish(directory, write, keep=1)
    assert store.versions(directory) == [1, 2]
    assert store.hold(directory, "one").number == 2
    store.publish(directory, write, keep=1)
    assert store.versions(directory) == [1, 2, 3]
    assert store.hold(directory, "two").number == 3
    store.publish(directory, write, keep=1)
    assert store.versions(directory) == [2, 3, 4]
    with pytest.raises(SourceError, match="there is no such directory"):
        store.hold(tmp_path / "nowhere", "one")


# -- what is killed ----------------------------------------------------------------------------------------------------


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Callable[..., Life]]:
    begun: list[Life] = []

    def begin(*arguments: str) -> Life:
        begun.append(Life("tests.spark.stream_job", tmp_path, *arguments))
        return begun[-1]

    yield begin
    for life in begun:
        life.kill()
        assert not life.processes()


def table_at(path: Path) -> pa.Table:
    """All that a plain reader sees; None where that is nothing."""
    files = [str(file) for file in path.glob("batch_id=*/*.parquet") if not file.name.startswith(".")]
    return ds.dataset(files, format="parquet", partitioning="hive").to_table() if files else None


def has_more(folder: Path, batches: int) -> bool:
    return len(logged(folder)) > batches


def is_writing(hits: Path) -> bool:
    return any(hits.glob("_meetpoint/aside/*/_temporary")) or any(hits.glob("batch_id=*/_temporary"))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize("files_by", ["direct", pytest.param("spark", marks=pytest.mark.soak)])
def test_a_stream_killed_again_and_again_loses_and_repeats_nothing(
    tmp_path: Path, lives: Callable[..., Life], files_by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(20)
    modes = ["spark"] if files_by == "spark" else []
    files = 0

    def begin(which: str) -> Life:
        """A run of the stream, with files that it has not seen: so it is never without work."""
        nonlocal files
        for number in range(files, files + FILES):
            write_file(tmp_path / "in", number)
        files += FILES
        return lives(which, *modes)

    versions = {1: "first", 2: "second"}
    story = []
    for kill in range(KILLS):
        life = begin("second" if kill > KILLS // 2 else "first")
        done = len(logged(tmp_path)) if (tmp_path / "hits").exists() else 0
        if kill % 2 == 0:  # while a batch is written
            life.wait_for(partial(has_more, tmp_path, done + kill % 3))
            life.wait_for(partial(is_writing, tmp_path / "hits"))
            time.sleep(rng.uniform(0, 0.3))
        elif kill % 4 == 1:
            life.wait_for((tmp_path / "started").exists)
            time.sleep(rng.uniform(0, 8))
        else:  # before it has started, perhaps
            time.sleep(rng.uniform(2, 15))
        life.kill()
        complete = [one["batch"] for one in logged(tmp_path)]
        assert complete == list(range(len(complete)))
        expected = in_batches(tmp_path, versions)
        visible = table_at(tmp_path / "hits")
        seen = {} if visible is None else pairs_of(visible)
        assert {batch: seen.get(batch, Counter()) for batch in expected} == expected
        running = set(seen) - set(expected)
        assert len(running) <= 1  # the batch that was cut short
        story.append(f"kill {kill + 1}: {len(complete)} batches complete, cut short and seen: {sorted(running)}")
    life = begin("second")
    killed = 0
    done = len(logged(tmp_path))
    while killed < WORKER_KILLS or all(one["version"] == 1 for one in logged(tmp_path)):
        life.wait_for(partial(has_more, tmp_path, done))
        life.wait_for(life.workers)
        if life.program.poll() is not None:  # it was quicker than this test: it gets more to do
            life = begin("second")
        elif killed < WORKER_KILLS and (workers := life.workers()):
            os.kill(rng.choice(workers), signal.SIGKILL)
            killed += 1
        done = len(logged(tmp_path))
    life.wait_for(lambda: False)
    hits, dead = table_at(tmp_path / "hits"), table_at(tmp_path / "dead")
    expected = in_batches(tmp_path, versions)
    assert pairs_of(hits) == {batch: pairs for batch, pairs in expected.items() if pairs}
    check_counts(tmp_path, dead)
    assert len(batches_of_files(tmp_path / "checkpoint")) == files
    log = logged(tmp_path)
    assert {one["version"] for one in log} == {1, 2}
    both = sum(one["good"] for one in log), sum(one["dead"] for one in log)
    every = sum(len(path.read_text().splitlines()) for path in (tmp_path / "in").iterdir())
    assert sum(both) == every
    assert Counter(hits["n"].to_pylist()).total() == sum(one["hits"] for one in log)
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(story) + "\n")
        sys.stdout.write(
            f"{KILLS} kills of the driver, {killed} of workers, files by {files_by}: {len(log)} batches, {every:,} in "
            f"= {both[0]:,} good + {both[1]:,} dead, {len(hits):,} hits, 0 lost, 0 duplicate\n"
        )
