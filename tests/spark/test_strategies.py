"""All strategies against each other and the oracles: split indexes, joins, skew, events that come together again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from meetpoint.errors import MeetpointError
from meetpoint.language import Attributes, parse_filter
from meetpoint.matching.index import Index
from meetpoint.matching.io.rejects import SourceError
from meetpoint.matching.keys.key_plan import KeyPlan
from meetpoint.spark import Subscriptions, match
from meetpoint.spark.matching import join as join_match
from meetpoint.spark.matching import key_routes, match_lists
from meetpoint.spark.matching import partitioned as partitioned_match
from meetpoint.spark.subscriptions.store import Version
from meetpoint.spark.worker_files import ship
from tests.spark.scenes import (
    frame_of,
    pairs_in,
    pairs_in_lists,
    scanned,
    some_events,
    some_filters,
    subscriptions_of,
)
from tests.spark.test_language_oracle import spark_text

FILTERS, EVENTS, WHERES = 200, 90, 40
BOTH = pytest.mark.parametrize("strategy", ["partitioned", "join"])


@contextmanager
def settings(spark: Any, **changes: str) -> Iterator[None]:
    """Settings of Spark SQL for a while: `shuffle_partitions` is spark.sql.shuffle.partitions."""
    names = {f"spark.sql.{name.replace('_', '.')}": value for name, value in changes.items()}
    before = {name: spark.conf.get(name) for name in names}
    try:
        for name, value in names.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@pytest.fixture(scope="module")
def filters() -> dict[str, str]:
    return some_filters(15, FILTERS, all="TRUE", none="FALSE", never="i > 5 AND i < 3")


@pytest.fixture(scope="module")
def events() -> list[Attributes]:
    return some_events(16, EVENTS)


@pytest.fixture(scope="module")
def frame(spark: Any, events: list[Attributes]) -> Any:
    return frame_of(spark, events)


@pytest.fixture(scope="module")
def expected(filters: dict[str, str], events: list[Attributes]) -> Counter[tuple[int, Any]]:
    return scanned(filters, events)


@pytest.fixture(scope="module")
def compiled(
    spark: Any, filters: dict[str, str], frame: Any, tmp_path_factory: pytest.TempPathFactory
) -> Subscriptions:
    return subscriptions_of(spark, filters).compile(tmp_path_factory.mktemp("compiled"), sample=frame)


def version_of(subscriptions: Subscriptions) -> Version:
    assert subscriptions.version is not None
    return subscriptions.version


# -- the same answer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"strategy": "broadcast"}, {"strategy": "partitioned", "shards": 7}, {"strategy": "join"}]
)
def test_every_strategy_finds_what_scan_finds(
    frame: Any, compiled: Subscriptions, expected: Counter[tuple[int, Any]], options: dict[str, Any]
) -> None:
    assert pairs_in(match(frame, compiled, **options)) == expected
    assert pairs_in_lists(match(frame, compiled, result="lists", **options)) == expected


@BOTH
def test_without_a_sample_it_is_the_same(
    spark: Any, frame: Any, filters: dict[str, str], expected: Counter[tuple[int, Any]], strategy: str
) -> None:
    assert pairs_in(match(frame, subscriptions_of(spark, filters), strategy=strategy)) == expected


def test_strategies_find_what_spark_where_finds(spark: Any, frame: Any, filters: dict[str, str]) -> None:
    some = {id_: filters[id_] for id_ in list(filters)[:WHERES]}
    texts = [spark_text(parse_filter(text)) for text in some.values()]
    with settings(spark, codegen_wholeStage="false", codegen_factoryMode="NO_CODEGEN"):
        answers = frame.selectExpr("n", *(f"({text}) AS `where {at}`" for at, text in enumerate(texts))).toArrow()
    where = Counter(
        (n, id_)
        for at, id_ in enumerate(some)
        for n in answers.filter(answers[f"where {at}"].combine_chunks().fill_null(False))["n"].to_pylist()
    )
    subscriptions = subscriptions_of(spark, some)
    assert pairs_in(match(frame, subscriptions, strategy="partitioned", shards=9)) == where
    assert pairs_in(match(frame, subscriptions, strategy="join")) == where


@BOTH
def test_columns_of_every_type_pass_as_they_are(spark: Any, strategy: str) -> None:
    frame = spark.sql(
        "SELECT 1 AS x, DATE '2026-01-01' AS day, array(array(1, NULL)) AS lists, map('a', map(1, 'z')) AS maps, "
        "CAST('abc' AS BINARY) AS bytes, INTERVAL '1' DAY AS span, TIMESTAMP_NTZ '2026-01-01 00:00:00' AS local, "
        "CAST(1.5 AS DECIMAL(38, 10)) AS money, 'a' COLLATE UTF8_LCASE AS folded, NULL AS nothing, "
        "named_struct('a', named_struct('b.c', CAST(2 AS TINYINT))) AS nested, 5 AS `dotted.name`, 6 AS digest"
    )
    frame = frame.withMetadata("x", {"meetpoint.note": "kept"})
    subscriptions = subscriptions_of(spark, {7: "x = 1 AND nested.a.`b.c` = 2"})
    for result, added in (("pairs", "subscription"), ("lists", "subscriptions")):
        hits = match(frame, subscriptions, result=result, strategy=strategy)
        assert hits.schema.fields[:-1] == frame.schema.fields
        assert (hits.columns[-1], hits.schema[added].nullable) == (added, False)
        assert hits.toArrow().drop_columns([added]) == frame.toArrow()


@BOTH
def test_equal_events_each_match(spark: Any, strategy: str) -> None:
    rows = [(1, 0.0), (1, 0.0), (1, -0.0), (2, float("nan")), (2, float("nan")), (None, None), (None, None), (9, 1.0)]
    frame = spark.createDataFrame(rows, "x INT, f DOUBLE").repartition(3)
    filters = {"one": "x = 1 OR f = 0", "two": "x IN (1, 2) OR x IS NULL", "big": "f > 5", "five": "x = 5"}
    subscriptions = subscriptions_of(spark, filters)
    single = Counter({("1", "0.0"): 2, ("1", "-0.0"): 1, ("2", "nan"): 2, ("None", "None"): 2, ("9", "1.0"): 1})
    asked = {"1": {"one", "two"}, "2": {"two", "big"}, "None": {"two"}, "9": set()}
    pairs = match(frame, subscriptions, strategy=strategy).toArrow().to_pylist()
    assert Counter((str(r["x"]), str(r["f"]), r["subscription"]) for r in pairs) == Counter(
        {(x, f, id_): count for (x, f), count in single.items() for id_ in asked[x]}
    )
    lists = match(frame, subscriptions, strategy=strategy, result="lists").toArrow().to_pylist()
    assert Counter((str(r["x"]), str(r["f"])) for r in lists) == single
    assert all(sorted(r["subscriptions"]) == sorted(asked[str(r["x"])]) for r in lists)


@BOTH
def test_missing_columns_no_events_and_no_subscriptions(spark: Any, strategy: str) -> None:
    frame = spark.createDataFrame(pa.table({"n": [0, 1, 2], "x": [1, 2, None]}))
    filters = {"there": "x > 1", "neither": "gone = 1", "null": "gone IS NULL", "either": "gone.deep = 1 OR x = 1"}
    subscriptions = subscriptions_of(spark, filters)
    found = match(frame, subscriptions, strategy=strategy, missing="null")
    assert pairs_in(found) == scanned(filters, [{"x": 1}, {"x": 2}, {}])
    assert match(frame.where("n > 5"), subscriptions, strategy=strategy, missing="null").count() == 0
    nobody = subscriptions_of(spark, {"bad": "x ="})
    assert match(frame, nobody, strategy=strategy, result="lists").where("size(subscriptions) = 0").count() == 3


# -- shards ------------------------------------------------------------------------------------------------------------


def test_a_hot_key_is_spread_and_shards_may_be_empty(spark: Any) -> None:
    filters = {f"hot {n}": f"s = 'A' AND x > {n}" for n in range(9)} | {"b": "s = 'B'", "c": "s = 'C'", "no": "FALSE"}
    subscriptions = subscriptions_of(spark, filters)
    version = subscriptions.compiled
    split = partitioned_match.sharded_index(version, key_routes.open_key_table(spark, version), 12)
    assert split.held.sum() == 11
    assert 0 in split.held
    assert np.diff(split.starts).max() > 2
    assert sorted(int(path.stem[6:]) for path in split.folder.glob("*.mpx")) == np.flatnonzero(split.held).tolist()
    events: list[Attributes] = [{"s": s, "x": x} for s in ("A", "B", "D", None) for x in (0, 5, 20)]
    frame = spark.createDataFrame([(n, e["s"], e["x"]) for n, e in enumerate(events)], "n INT, s STRING, x INT")
    lists = match(frame, subscriptions, strategy="partitioned", shards=12, result="lists")
    assert pairs_in_lists(lists) == scanned(filters, events)


def test_each_subscription_lives_in_one_shard_and_shards_are_of_like_weight(
    spark: Any, compiled: Subscriptions
) -> None:
    version = version_of(compiled)
    key_table = key_routes.open_key_table(spark, version)
    split = partitioned_match.sharded_index(version, key_table, 7)
    held = [split.path(at) for at in range(7) if split.held[at]]
    ids = [id_ for path in held for part in Index.open(path)._snapshot.segments for id_ in part.ids.to_pylist()]
    lengths = key_table.entries(["keys"])["keys"].combine_chunks().value_lengths().to_numpy()
    assert len(ids) == len(set(ids)) == (lengths > 0).sum()
    assert split.held.max() <= 2 * len(ids) / 7 + 1
    assert split.work.sum() == pytest.approx(1)
    assert any(key_table.entries(["several"])["several"].to_pylist())  # so that key_table once is put to the test


def test_a_shard_with_much_work_is_matched_in_several_tasks(
    spark: Any, frame: Any, compiled: Subscriptions, expected: Counter[tuple[int, Any]]
) -> None:
    with settings(spark, shuffle_partitions="5"):
        found = match(frame, compiled, strategy="partitioned", shards=2)
        assert found.rdd.getNumPartitions() >= 4
        assert pairs_in(found) == expected
        assert pairs_in_lists(match(frame, compiled, strategy="partitioned", shards=2, result="lists")) == expected


def test_a_task_takes_shards_one_after_the_other_where_spark_cannot_give_each_its_own(
    frame: Any, compiled: Subscriptions, expected: Counter[tuple[int, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.classic.dataframe import DataFrame

    monkeypatch.delattr(DataFrame, "repartitionById", raising=False)
    monkeypatch.delattr(DataFrame.__mro__[1], "repartitionById", raising=False)
    assert pairs_in(match(frame, compiled, strategy="partitioned", shards=7)) == expected


def test_parts_are_made_once_and_kept_with_the_version(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(pa.table({"n": [0, 1], "x": [1, 2]}))
    subscriptions = subscriptions_of(spark, {"ann": "x = 1"}).compile(tmp_path)
    version = version_of(subscriptions)
    match(frame, subscriptions, strategy="partitioned", shards=3)
    made = {path: path.stat().st_mtime_ns for path in version.path.rglob("*")}
    assert (version.path / "shards" / "3" / "routes.npz") in made
    assert not list(version.path.rglob(".writing-*"))
    found = match(frame, subscriptions, strategy="partitioned", shards=3)
    assert {path: path.stat().st_mtime_ns for path in version.path.rglob("*")} == made
    assert pairs_in(found) == Counter([(0, "ann")])
    version.verify()


def test_a_version_that_cannot_be_written_to_is_split_elsewhere(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(pa.table({"n": [0, 1], "x": [1, 2]}))
    subscriptions = subscriptions_of(spark, {"ann": "x = 1"}).compile(tmp_path)
    version_of(subscriptions).shards_path.write_text("in the way")
    found = match(frame, subscriptions, strategy="partitioned", shards=3)
    again = match(frame, subscriptions, strategy="partitioned", shards=3)
    assert pairs_in(found) == pairs_in(again) == Counter([(0, "ann")])


def test_a_damaged_part_is_told(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(pa.table({"n": [0], "x": [1]}))
    subscriptions = subscriptions_of(spark, {"ann": "x = 1"}).compile(tmp_path)
    key_table = key_routes.open_key_table(spark, version_of(subscriptions))
    key_table.entries_path.write_bytes(b"PAR1")
    with pytest.raises(SourceError, match=r"filed.parquet: cannot be read: .*; remove .*meeting-1"):
        match(frame, subscriptions, strategy="join")


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys_max", [40, 5])
def test_neighbouring_keys_that_are_one_miss_nothing(
    spark: Any,
    frame: Any,
    filters: dict[str, str],
    expected: Counter[tuple[int, Any]],
    monkeypatch: pytest.MonkeyPatch,
    keys_max: int,
) -> None:
    monkeypatch.setattr(key_routes, "KEYS_MAX", keys_max)
    subscriptions = subscriptions_of(spark, filters)
    key_table = key_routes.open_key_table(spark, subscriptions.compiled)
    assert len(key_table.shares()) < 150
    assert pairs_in(match(frame, subscriptions, strategy="join")) == expected
    if keys_max == 5:
        assert pairs_in(match(frame, subscriptions, strategy="partitioned", shards=7)) == expected


def test_an_event_that_is_accepted_shares_a_key_and_just_one_where_several_is_not_said() -> None:
    long = ["x" * 40 + "a" * n for n in (30, 31, 32)]
    texts = [
        "x IN (1, 2, 1.7976931348623157e308)", "x > 3.5",
        "x BETWEEN -1 AND 1e308", f"s IN ('a', '{long[0]}', '{long[1]}')",
        "s LIKE 'ab%' OR s LIKE '%ba'", "s LIKE '%bb%'", "x = 1 OR s = 'a'", "x IS NULL", "s != 'a'", "TRUE", "FALSE",
        "x = 1.7976931348623157e308 OR x = 2", "s IN ('a', 'b', 'c', 'd') AND x < 0",
    ]  # fmt: skip
    xs = [None, -1.0, 0.0, 1.0, 2.0, 3.5, 4.0, 1e308, 1.7976931348623157e308, float("inf"), float("nan")]
    rows = [(x, s) for x in xs for s in (None, "a", "b", "ab", "abba", "bb", *long)]
    batch = pa.record_batch({"x": pa.array([x for x, _ in rows]), "s": pa.array([s for _, s in rows])})
    table = pa.record_batch({"number": pa.array(range(len(texts)), pa.int32()), "filter": texts})
    sent = pa.Table.from_batches(list(key_routes._key_batches([table], plan=KeyPlan(names=["x", "s"]))))
    for most in (1 << 17, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(key_routes, "KEYS_MAX", most)
            _, places, entries = key_routes._numbered(sent)
        index = Index.from_filters(enumerate(place.filter for place in places))
        starts, live = key_routes.keys_of_events(index, batch)
        keys, several = entries["keys"].to_pylist(), entries["several"].to_pylist()
        for at, (x, s) in enumerate(rows):
            mine = set(live[starts[at] : starts[at + 1]].tolist())
            for number, text in enumerate(texts):
                shared = len(mine & set(keys[number]))
                if parse_filter(text).accepts({"x": x, "s": s}):
                    assert shared >= 1, (text, x, s)
                assert shared <= 1 or several[number], (text, x, s)


# -- the join ----------------------------------------------------------------------------------------------------------


def test_keys_with_many_candidates_are_met_in_several_places(
    spark: Any, frame: Any, filters: dict[str, str], events: list[Attributes]
) -> None:
    hot = {f"hot {n}": f"i IS NOT NULL AND binary != {n % 7}" for n in range(60)}
    some = hot | {id_: filters[id_] for id_ in list(filters)[:60]}
    subscriptions = subscriptions_of(spark, some)
    expected = scanned(some, events)
    with settings(spark, shuffle_partitions="5", autoBroadcastJoinThreshold="-1"):
        assert join_match._salt_counts(key_routes.open_key_table(spark, subscriptions.compiled), 5).max() > 1
        assert pairs_in(match(frame, subscriptions, strategy="join")) == expected
        assert pairs_in_lists(match(frame, subscriptions, strategy="join", result="lists")) == expected


@BOTH
def test_what_workers_need_is_copied_where_the_directory_is_not_shared(
    spark: Any, tmp_path: Path, strategy: str
) -> None:
    frame = spark.createDataFrame(pa.table({"n": [0, 1], "x": [1, 2]}))
    subscriptions = subscriptions_of(spark, {"ann": "x = 1", "bob": "x > 1"}).compile(tmp_path / "alerts")
    copied = match(frame, subscriptions, strategy=strategy, ship="copy")
    (tmp_path / "alerts").rename(tmp_path / "elsewhere")
    assert pairs_in(copied) == Counter([(0, "ann"), (1, "bob")])


# -- more output than any buffer ---------------------------------------------------------------------------------------


def test_an_event_that_20_000_subscriptions_accept_is_exact(spark: Any) -> None:
    count = 20_000
    table = pa.table({"id": pa.array(range(count)), "filter": [f"x > {-n % 1000}" for n in range(count)]})
    subscriptions = Subscriptions.from_dataframe(spark.createDataFrame(table))
    frame = spark.sql("SELECT * FROM VALUES (0, 2000), (1, CAST(NULL AS INT)), (2, 500) AS t(n, x)")
    half = [n for n in range(count) if -n % 1000 < 500]
    for options in ({"strategy": "partitioned", "shards": 7}, {"strategy": "join"}):
        found = match(frame, subscriptions, **options).toArrow().to_pandas()
        assert sorted(found[found.n == 0].subscription) == list(range(count))
        assert sorted(found[found.n == 2].subscription) == half
        assert len(found) == count + len(half)
    lists = match(frame, subscriptions, result="lists", strategy="partitioned", shards=7).toArrow().sort_by("n")
    assert [len(ids) for ids in lists["subscriptions"].to_pylist()] == [count, 0, len(half)]
    assert sorted(lists["subscriptions"][2].as_py()) == half


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("limits", [(1, 1, 1, 7), (50, 7, 3, 100), (1000, 64, 10_000, 10_000)])
def test_batches_of_any_bounds_hold_the_same_matches(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool, limits: tuple[int, int, int, int]
) -> None:
    """What workers do, here: buffers of any size, and candidates in batches of any size."""
    held, listed, rows, checked = limits
    monkeypatch.setattr(match_lists, "EVENTS", max(rows, 2))
    monkeypatch.setattr(match_lists, "HELD_PAIRS", held)
    monkeypatch.setattr(match_lists, "LIST_MAX", listed)
    monkeypatch.setattr(match_lists, "OUTPUT_ROWS", rows)
    monkeypatch.setattr(match_lists, "OUTPUT_BYTES", 2000)
    monkeypatch.setattr(join_match, "CHECK_ROWS", checked)
    filters = {f"u{n}": f"x >= {n % 40}" for n in range(120)} | {"never": "x > 99", "null": "x IS NULL"}
    events: list[Attributes] = [{"x": x} for x in (*range(45), None, -1)]
    batch = pa.record_batch(
        {
            "x": pa.array([e["x"] for e in events], pa.int64()),
            "n": pa.array(range(len(events)), pa.int32()),
            "digest": pa.array([b"%016d" % n for n in range(len(events))], pa.binary()),
            "first": [True] * len(events),
            "slot": pa.array([0] * len(events), pa.int32()),
        }
    )
    expected = scanned(filters, events)
    index = tmp_path / "i.mpx"
    Index.from_filters((id_, parse_filter(text)) for id_, text in filters.items()).save(index)
    shipped = (ship(spark, index),)
    work: dict[str, Any] = {"names": ("x", "n"), "id_type": pa.string(), "whole": whole}
    out = list(partitioned_match._match_batches([batch], shipped=shipped, shard_of=np.zeros(1, np.int64), **work))
    assert all(one.num_rows <= rows for one in out)
    assert _pairs_of(out, whole) == expected
    pairs: list[Any] = [
        (n, at, id_, text) for n in range(len(events)) for at, (id_, text) in enumerate(filters.items())
    ]
    pairs += [(n, None, None, None) for n in range(len(events))] if whole else []
    random.Random(7).shuffle(pairs)
    taken = batch.select(["x", "n", "digest"]).take(pa.array([n for n, *_ in pairs]))
    fields = [("number", pa.int32()), ("id", pa.string()), ("filter", pa.string())]
    more = [pa.array([pair[at + 1] for pair in pairs], type_) for at, (_, type_) in enumerate(fields)]
    candidates = pa.table([*taken.columns, *more], ["x", "n", "digest", *(name for name, _ in fields)])
    out = list(join_match._check_batches(candidates.to_batches(max_chunksize=33), **work))
    assert all(one.num_rows <= rows for one in out)
    assert _pairs_of(out, whole) == expected


def _pairs_of(out: list[pa.RecordBatch], whole: bool) -> Counter[tuple[int, Any]]:
    found: Counter[tuple[int, Any]] = Counter()
    seen: Counter[int] = Counter()
    for row in [row for batch in out for row in batch.to_pylist()]:
        if not whole:
            ids = row["c2"] if isinstance(row["c2"], list) else [row["c2"]]
            found.update((row["c1"], id_) for id_ in ids)
            continue
        n = int(row["digest"])
        found.update((n, id_) for id_ in row["ids"])
        if row["event"] is not None:
            assert row["event"]["c1"] == n
            seen[n] += 1
    assert not whole or seen == Counter(range(47))
    return found


# -- coming together ---------------------------------------------------------------------------------------------------


def test_a_digest_tells_apart_what_differs_and_nothing_else() -> None:
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "f": (pa.float64(), [0.0, -0.0, 1.0, float("nan"), None]),
        "s": (pa.string(), ["", "a", "ab", None]),
        "b": (pa.bool_(), [True, False, None]),
        "d": (pa.decimal128(20, 4), [0, 1, None]),
        "l": (pa.list_(pa.string()), [[], [""], ["", ""], [None], ["a", "b"], ["ab"], None]),
        "m": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], [("a", None)], None]),
        "o": (pa.struct([("x", pa.int64()), ("l", pa.list_(pa.int8()))]), [{"x": 1}, {"x": None}, {"l": []}, None]),
        "z": (pa.null(), [None]),
    }
    rng = random.Random(3)
    rows = [tuple(rng.randrange(len(values)) for _, values in columns.values()) for _ in range(600)]
    rows += rows[:300]
    arrays = [pa.array([values[row[at]] for row in rows], type_) for at, (type_, values) in enumerate(columns.values())]
    batch = pa.record_batch(arrays, list(columns))
    whole = match_lists.digests(batch).to_pylist()
    cut = [digest for at in range(0, 900, 70) for digest in match_lists.digests(batch.slice(at, 70)).to_pylist()]
    assert whole == cut
    assert len(set(whole)) == len(set(rows))
    assert len({(row, digest) for row, digest in zip(rows, whole, strict=True)}) == len(set(rows))
    assert match_lists.digests(batch.slice(0, 0)).to_pylist() == []


def test_the_way_of_an_event_does_not_depend_on_where_it_stands(
    spark: Any, compiled: Subscriptions, frame: Any
) -> None:
    """A task that is run again may meet its rows in another order: each must go the same way."""
    version = version_of(compiled)
    key_table = key_routes.open_key_table(spark, version)
    split = partitioned_match.sharded_index(version, key_table, 7)
    copies = np.full(7, 3)
    table = frame.toArrow().combine_chunks()
    shuffled = table.take(pa.array(np.random.default_rng(1).permutation(len(table))))
    names = tuple(table.column_names)
    common: dict[str, Any] = {"keys": ship(spark, key_table.keys_path), "names": names, "whole": True}
    ways = []
    for events in (table, shuffled):
        routed = [
            *partitioned_match._route_batches(
                events.to_batches(max_chunksize=50), starts=split.starts, shards=split.shards,
                first_slots=np.arange(7) * 3, copies=copies, **common,
            )
        ]  # fmt: skip
        slots = pa.Table.from_batches(routed)
        n = slots.column_names[table.column_names.index("n")]
        ways.append(dict(zip(slots[n].to_pylist(), slots["slots"].to_pylist(), strict=True)))
        assert all(0 < len({slot // 3 for slot in to}) == len(to) for to in ways[-1].values())
        joined = pa.Table.from_batches(
            join_match._route_batches(events.to_batches(), salted=np.full(len(key_table.shares()), 4), **common)
        )
        ways[-1] |= {(n, "join"): to for n, to in zip(joined[n].to_pylist(), joined["places"].to_pylist(), strict=True)}
    assert ways[0].keys() == ways[1].keys()
    assert all(sorted(ways[0][at]) == sorted(ways[1][at]) for at in ways[0])


# -- streams and mistakes ----------------------------------------------------------------------------------------------


@BOTH
def test_a_stream_gives_the_pairs_that_a_table_gives(
    spark: Any,
    frame: Any,
    compiled: Subscriptions,
    expected: Counter[tuple[int, Any]],
    tmp_path: Path,
    strategy: str,
) -> None:
    frame.write.parquet(str(tmp_path / "events"))
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "events"))
    with pytest.raises(MeetpointError, match=rf"a stream, of which strategy='{strategy}' gives no lists.*use result="):
        match(stream, compiled, strategy=strategy, result="lists")
    writer = match(stream, compiled, strategy=strategy).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    writer.start(str(tmp_path / "hits")).awaitTermination()
    assert pairs_in(spark.read.parquet(str(tmp_path / "hits"))) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "partitioned", "shards": 0}, "shards is 0; give a number from 1 to 4,096"),
        ({"strategy": "partitioned", "shards": 5000}, "shards is 5000; give a number from 1 to 4,096"),
        ({"strategy": "partitioned", "shards": "7"}, "shards is '7'; give a number"),
        ({"strategy": "partitioned", "shards": True}, "shards is True; give a number"),
        (
            {"strategy": "broadcast", "shards": 7},
            "shards is 7, and the strategy is broadcast; use strategy='partitioned'",
        ),
    ],
)
def test_a_number_of_shards_that_is_none_is_refused(spark: Any, options: dict[str, Any], message: str) -> None:
    frame = spark.createDataFrame(pa.table({"x": [1]}))
    with pytest.raises(MeetpointError, match=message):
        match(frame, subscriptions_of(spark, {"ann": "x = 1"}), **options)
