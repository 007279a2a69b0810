"""`meetpoint match`: every format in and out, half-bad files, and what is refused."""

from __future__ import annotations

import csv
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import meetpoint as mp
from tests.cli.conftest import Command

EVENTS = [
    {"symbol": "OTE", "price": 8.4, "volume": 1200, "live": True, "at": "2026-01-01T12:00:00Z", "key": "e-0"},
    {"symbol": "OTP", "price": 8.75, "volume": None, "live": False, "at": "2026-01-02T12:00:00Z", "key": "e-1"},
    {"symbol": "BARC", "price": 2.31, "volume": 15, "live": True, "at": "2026-01-03T12:00:00Z", "key": "e-2"},
]
SUBS = {
    "ann": "symbol LIKE 'OT%' AND price BETWEEN 8.30 AND 8.70",
    "bob": "volume IS NULL OR volume < 100",
    "cem": "live AND price > 1",
}
PAIRS = [(0, "ann"), (0, "cem"), (1, "bob"), (2, "bob"), (2, "cem")]


def write_jsonl(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_csv(path: Path, rows: list[dict[str, object]]) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        for row in rows:
            writer.writerow({k: str(v).lower() if isinstance(v, bool) else v for k, v in row.items()})
    return path


def write_parquet(path: Path, rows: list[dict[str, object]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


WRITERS = {"jsonl": write_jsonl, "csv": write_csv, "parquet": write_parquet}


def subs_file(directory: Path, kind: str = "jsonl") -> Path:
    return WRITERS[kind](directory / f"subs.{kind}", [{"id": k, "filter": v} for k, v in SUBS.items()])


def read_pairs(path: Path) -> list[tuple[object, object]]:
    if path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
    elif path.suffix == ".csv":
        rows = [{**r, "event": int(r["event"])} for r in csv.DictReader(path.read_text().splitlines())]
    else:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["event"], row["subscription"]) for row in rows]


@pytest.mark.parametrize("out", list(WRITERS))
@pytest.mark.parametrize("subs", list(WRITERS))
@pytest.mark.parametrize("kind", list(WRITERS))
def test_every_format_gives_the_same_pairs(meetpoint: Command, tmp_path: Path, kind: str, subs: str, out: str) -> None:
    events = WRITERS[kind](tmp_path / f"events.{kind}", EVENTS)
    target = tmp_path / f"pairs.{out}"
    ran = meetpoint("match", events, "--subs", subs_file(tmp_path, subs), "--out", target)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert read_pairs(target) == PAIRS
    assert not list(tmp_path.glob("*.part"))


def test_standard_streams_carry_json_lines(meetpoint: Command, tmp_path: Path) -> None:
    stdin = "".join(json.dumps(event) + "\n\n" for event in EVENTS).encode()
    ran = meetpoint("match", "-", "--subs", subs_file(tmp_path), stdin=stdin)
    assert ran.code == 0
    assert [tuple(json.loads(line).values()) for line in ran.out.splitlines()] == PAIRS


def test_events_may_be_named_by_a_column(meetpoint: Command, tmp_path: Path) -> None:
    events = write_parquet(tmp_path / "events.parquet", EVENTS)
    ran = meetpoint("match", events, "--subs", subs_file(tmp_path), "--event-id", "key")
    assert [json.loads(line)["event"] for line in ran.out.splitlines()] == ["e-0", "e-0", "e-1", "e-2", "e-2"]
    ran = meetpoint("match", events, "--subs", subs_file(tmp_path), "--event-id", "volume")
    assert ran.code == 1
    assert [json.loads(line)["event"] for line in ran.out.splitlines()] == [1200, 1200, 15, 15]
    assert "row 1: volume, which is to name the event, is missing" in ran.err


@pytest.mark.parametrize("rejects", list(WRITERS))
def test_a_file_half_bad_gives_all_good_rows_and_all_bad_rows_with_reasons(
    meetpoint: Command, tmp_path: Path, rejects: str
) -> None:
    events = tmp_path / "events.jsonl"
    lines: list[str] = []
    for n in range(200):
        lines.append(json.dumps({"n": n}))
        lines.append(['{"n": 1', '{"n": 1, "n": 2}', '{"n": [1]}', "5", '{"n": 1e999}', "\udcff{}"][n % 6])
    events.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    subs = write_jsonl(
        tmp_path / "subs.jsonl",
        [
            {"id": 1, "filter": "n >= 0"},
            {"id": 2, "filter": "n >="},
            {"id": 1, "filter": "n > 5"},
            {"filter": "n > 5"},
            {"id": 3},
            {"id": 4, "filter": "n < 2"},
        ],
    )
    aside, out = tmp_path / f"aside.{rejects}", tmp_path / "pairs.jsonl"
    ran = meetpoint("match", events, "--subs", subs, "--out", out, "--rejects", aside)
    assert ran.code == 1
    assert "204 rows were set aside" in ran.err
    assert str(aside) in ran.err
    pairs = read_pairs(out)
    assert [e for e, s in pairs if s == 1] == [2 * n for n in range(200)]
    assert [e for e, s in pairs if s == 4] == [0, 2]
    bad = mp.match(aside, {"any": "TRUE"})
    assert bad.num_rows == 204
    table = pq.read_table(aside) if rejects == "parquet" else None
    if table is not None:
        assert tally(table.column("input").to_pylist()) == {"events": 200, "subscriptions": 4}
        assert all(table.column("reason").to_pylist())
        assert table.column("row").to_pylist()[4:8] == [1, 3, 5, 7]


def tally(values: list[str]) -> dict[str, int]:
    return {value: values.count(value) for value in sorted(set(values))}


def test_bad_rows_without_a_file_for_them_are_told(meetpoint: Command, tmp_path: Path) -> None:
    ran = meetpoint("match", "-", "--subs", subs_file(tmp_path), stdin=b'{"price": 8\n{"volume": 5}\n')
    assert ran.code == 1
    assert [json.loads(line) for line in ran.out.splitlines()] == [{"event": 1, "subscription": "bob"}]
    assert "1 row was set aside; name --rejects FILE to keep them. The first: events, row 0: line 1, column" in ran.err


def test_csv_rows_of_the_wrong_length_are_set_aside(meetpoint: Command, tmp_path: Path) -> None:
    events = tmp_path / "events.csv"
    events.write_text('price,symbol\n8.4,OTE\n8.5\n8.6,"O,T"\n1,2,3\n')
    subs = write_jsonl(tmp_path / "subs.jsonl", [{"id": 1, "filter": "price > 8"}])
    ran = meetpoint("match", events, "--subs", subs)
    assert ran.code == 1
    assert [json.loads(line)["event"] for line in ran.out.splitlines()] == [0, 2]
    assert "line 3: 1 fields where the header has 2" in ran.err


def test_csv_types_are_found_and_empty_fields_are_null(meetpoint: Command, tmp_path: Path) -> None:
    events = tmp_path / "events.csv"
    events.write_text("n,f,b,t,s,z\n1,1,true,2026-01-01T00:00:00Z,NA,\n,NaN,,,,\n-3,2.5,false,2026-01-02 00:00:00,x,\n")
    subs = write_jsonl(
        tmp_path / "subs.jsonl",
        [
            {"id": "n", "filter": "n < 0"},
            {"id": "f", "filter": "f >= 1"},
            {"id": "b", "filter": "NOT b"},
            {"id": "t", "filter": "t > TIMESTAMP '2026-01-01 12:00:00'"},
            {"id": "s", "filter": "s = 'NA'"},
            {"id": "null", "filter": "n IS NULL AND f IS NULL AND b IS NULL AND t IS NULL AND s IS NULL AND z IS NULL"},
        ],
    )
    ran = meetpoint("match", events, "--subs", subs)
    found = [tuple(json.loads(line).values()) for line in ran.out.splitlines()]
    assert found == [(0, "f"), (0, "s"), (1, "null"), (2, "n"), (2, "f"), (2, "b"), (2, "t")]


def test_a_schema_types_csv_and_json_and_sets_misfits_aside(meetpoint: Command, tmp_path: Path) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text("attributes:\n  price: decimal\n  n: integer\n")
    subs = write_jsonl(tmp_path / "subs.jsonl", [{"id": 1, "filter": "price = 0.1000000000000000000001"}])
    csv_file = tmp_path / "events.csv"
    csv_file.write_text("price,n\n0.1000000000000000000001,1\n0.1,2\nx,3\n1,4.5\n")
    ran = meetpoint("match", csv_file, "--subs", subs, "--schema", schema)
    assert ran.code == 1
    assert ran.out == '{"event": 0, "subscription": 1}\n'
    assert "2 rows were set aside" in ran.err
    assert "line 4: price: 'x' is not a decimal" in ran.err
    stdin = b'{"price": 0.1000000000000000000001}\n{"price": "x"}\n'
    ran = meetpoint("match", "-", "--subs", subs, "--schema", schema, stdin=stdin)
    assert (ran.code, ran.out) == (1, '{"event": 0, "subscription": 1}\n')


def test_no_events_or_no_subscriptions_give_no_pairs(meetpoint: Command, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert meetpoint("match", empty, "--subs", subs_file(tmp_path)) == (0, "", "")
    events = write_jsonl(tmp_path / "events.jsonl", EVENTS)
    assert meetpoint("match", events, "--subs", empty) == (0, "", "")
    for kind in WRITERS:
        target = tmp_path / f"none.{kind}"
        assert meetpoint("match", empty, "--subs", subs_file(tmp_path), "--out", target).code == 0
        assert target.exists()
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope.jsonl", "--subs", "SUBS"], "nope.jsonl: no such file or directory; check the path"),
        (["EVENTS", "--subs", "nope.csv"], "nope.csv: no such file or directory; check the path"),
        (["events.txt", "--subs", "SUBS"], "the suffix says no format; name the file .jsonl, .csv or .parquet"),
        (["EVENTS", "--subs", "EVENTS_CSV"], "there is no column id; the columns are"),
        (["EVENTS", "--subs", "SUBS", "--out", "EVENTS"], "is read and written at once; name another output"),
        (
            ["EVENTS", "--subs", "SUBS", "--out", "missing/pairs.csv"],
            "no such file or directory; name a file that can be",
        ),
        (
            ["EVENTS", "--subs", "SUBS", "--schema", "nope.yaml"],
            "nope.yaml: cannot be read: No such file or directory; check the path",
        ),
        (["broken.parquet", "--subs", "SUBS"], "broken.parquet: not a Parquet file"),
        (["latin.csv", "--subs", "SUBS"], "latin.csv: line 2 is not UTF-8; convert the file"),
        (
            ["empty.csv", "--subs", "SUBS"],
            "empty.csv: the file is empty; a CSV file begins with a line of column names",
        ),
        (["twice.csv", "--subs", "SUBS"], "twice.csv: column a occurs twice in the header"),
        (["EVENTS"], "Missing option '--subs'"),
        (["EVENTS", "--subs", "SUBS", "--colour", "red"], "No such option"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(
    meetpoint: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.parquet").write_bytes(b"PAR1 nothing of the kind")
    Path("latin.csv").write_bytes("a\nä\n".encode("latin-1"))
    Path("empty.csv").write_bytes(b"\n")
    Path("twice.csv").write_bytes(b"a,a\n1,2\n")
    names = {
        "SUBS": subs_file(tmp_path),
        "EVENTS": write_jsonl(tmp_path / "e.jsonl", EVENTS),
        "EVENTS_CSV": write_csv(tmp_path / "e.csv", EVENTS),
    }
    ran = meetpoint("match", *[names.get(argument, argument) for argument in arguments])
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_values_of_another_kind_are_told(meetpoint: Command, tmp_path: Path) -> None:
    subs = write_jsonl(tmp_path / "subs.jsonl", [{"id": 1, "filter": "price > 5"}, {"id": 2, "filter": "s = 'x'"}])
    ran = meetpoint("match", "-", "--subs", subs, stdin=b'{"price": "8"}\n{"price": 8}\n{"price": true, "s": "x"}\n')
    assert ran.code == 0
    assert ran.err == "meetpoint: price is compared as a number and is of another kind in 2 events: NULL there\n"
    events = tmp_path / "events.csv"
    events.write_text("price,s\nx8,5\n9,6\n")
    ran = meetpoint("match", events, "--subs", subs)
    assert ran.err.splitlines() == [
        "meetpoint: price is compared as a number and is of another kind in 2 events: NULL there",
        "meetpoint: s is compared as a string and is of another kind in 2 events: NULL there",
    ]


def test_ids_of_different_types_are_refused(meetpoint: Command, tmp_path: Path) -> None:
    subs = write_jsonl(tmp_path / "subs.jsonl", [{"id": 1, "filter": "TRUE"}, {"id": "a", "filter": "TRUE"}])
    ran = meetpoint("match", "-", "--subs", subs, stdin=b"{}")
    assert ran.code == 2
    assert "ids are of different types" in ran.err


def test_python_has_the_same_names() -> None:
    table = mp.match(EVENTS, SUBS)
    assert list(zip(*table.to_pydict().values(), strict=True)) == PAIRS
    assert mp.match(pa.Table.from_pylist(EVENTS), SUBS).to_pylist() == table.to_pylist()
    assert mp.match([{"price": Decimal("8.40")}], {"x": mp.parse_filter("price = 8.4")}).num_rows == 1
    assert mp.match([], SUBS).num_rows == 0
    rejects: list[object] = []
    assert mp.match([{"price": 1}, {"price": []}], {"x": "price > 0", "y": "price >"}, rejects=rejects).num_rows == 1  # type: ignore[arg-type]
    assert len(rejects) == 2
    with pytest.raises(mp.MeetpointError, match=r"subscriptions, row 0: id 'y': filter, column 8.*rejects=\[\]"):
        mp.match([{"price": 1}], {"y": "price >"})


def test_pandas_nan_means_null() -> None:
    import pandas as pd

    frame = pd.DataFrame({"price": [1.0, float("nan")], "symbol": ["a", None]})
    assert mp.match(frame, {"null": "price IS NULL", "big": "price > 0"}).to_pylist() == [
        {"event": 0, "subscription": "big"},
        {"event": 1, "subscription": "null"},
    ]
