"""Files that commands write: never over an input, nothing half done, JSON for every reader; and system errors."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meetpoint.cli import app as cli
from meetpoint.cli.output.files import RejectFile, TableFile, refuse_overlap, write_text
from meetpoint.cli.output.streams import json_text
from meetpoint.matching.io.csv import csv_batches
from meetpoint.matching.io.rejects import RAW_MAX, REASON_MAX, Reject, SourceError, reject
from tests.cli.conftest import Command

EVENTS = '{"x": 1}\n{"x": 2}\n'
SUBS = '{"id": "a", "filter": "x > 1"}\n'
SCHEMA = "attributes: {x: integer}\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {"e.jsonl": EVENTS, "s.jsonl": SUBS, "schema.jsonl": SCHEMA}.items():
        (tmp_path / name).write_text(text)
    os.symlink("e.jsonl", "link.jsonl")
    os.link("s.jsonl", "hard.jsonl")
    os.mkdir("dir.jsonl")
    return tmp_path


MATCH = ["match", "e.jsonl", "--subs", "s.jsonl", "--schema", "schema.jsonl"]
LINT = ["lint", "s.jsonl", "--schema", "schema.jsonl"]
BACKTEST = ["backtest", "x > 1", "--events", "e.jsonl", "--schema", "schema.jsonl"]


@pytest.mark.parametrize(
    "arguments",
    [
        [*MATCH, "--out", "e.jsonl"],
        [*MATCH, "--out", "./link.jsonl"],
        [*MATCH, "--out", "hard.jsonl"],
        [*MATCH, "--out", "schema.jsonl"],
        [*MATCH, "--rejects", "s.jsonl"],
        [*MATCH, "--rejects", "schema.jsonl"],
        [*MATCH, "--out", "new.jsonl", "--rejects", "./new.jsonl"],
        [*MATCH, "--rejects", "-"],
        [*LINT, "--rejects", "s.jsonl"],
        [*LINT, "--rejects", "schema.jsonl"],
        [*LINT, "--rejects", "-"],
        [*BACKTEST, "--rejects", "link.jsonl"],
        [*BACKTEST, "--rejects", "schema.jsonl"],
        ["schema", "infer", "e.jsonl", "--out", "link.jsonl"],
        ["schema", "infer", "e.jsonl", "--rejects", "e.jsonl"],
        ["schema", "infer", "e.jsonl", "--out", "new.jsonl", "--rejects", "new.jsonl"],
        ["match", "-", "--subs", "-"],
        [*MATCH, "--out", "dir.jsonl"],
        ["schema", "infer", "e.jsonl", "--out", "dir.jsonl"],
    ],
)
def test_an_output_that_is_something_else_already_is_refused(
    meetpoint: Command, files: Path, arguments: list[str]
) -> None:
    ran = meetpoint(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert (files / "e.jsonl").read_text() == EVENTS
    assert (files / "s.jsonl").read_text() == SUBS
    assert (files / "schema.jsonl").read_text() == SCHEMA
    assert not list(files.glob("*.part"))
    assert not (files / "new.jsonl").exists()


def test_absent_files_are_compared_by_their_real_path(files: Path) -> None:
    os.symlink("absent.jsonl", "dangling.jsonl")
    with pytest.raises(SourceError, match="--schema is read and written at once"):
        refuse_overlap({"--out": "dangling.jsonl"}, {"--schema": Path("absent.jsonl")})
    with pytest.raises(SourceError, match="read and written at once"):
        refuse_overlap({"--out": "out.jsonl"}, {"--schema": "out.jsonl.part"})
    refuse_overlap({"--out": "out.jsonl", "--rejects": None}, {"EVENTS": "e.jsonl", "--schema": None})


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_close_that_fails_leaves_no_part(tmp_path: Path, kind: str) -> None:
    target = tmp_path / f"out.{kind}"
    file = TableFile(str(target))

    class Full:
        def close(self) -> None:
            raise OSError(28, "No space left on device")

    def run() -> None:
        with file:
            file.write(pa.table({"x": [1]}))
            held: Any = file._parquet if kind == "parquet" else file._stream
            held.close()
            setattr(file, "_parquet" if kind == "parquet" else "_stream", Full())

    with pytest.raises(OSError, match="No space"):
        run()
    assert list(tmp_path.iterdir()) == []


def test_tables_of_different_types_are_refused_not_cast(tmp_path: Path) -> None:
    def run() -> None:
        with TableFile(str(tmp_path / "out.parquet")) as file:
            file.write(pa.table({"x": pa.nulls(0)}))
            file.write(pa.table({"x": [1]}))
            file.write(pa.table({"x": [1.5]}))

    with pytest.raises(SourceError, match="of different types; write"):
        run()
    with TableFile(str(tmp_path / "fine.parquet")) as file:
        file.write(pa.table({"x": pa.nulls(0)}))
        file.write(pa.table({"x": [1]}))
    assert pq.read_table(tmp_path / "fine.parquet").to_pylist() == [{"x": 1}]


def test_numbers_that_json_lacks_are_strings(meetpoint: Command, tmp_path: Path) -> None:
    assert json_text({"a": [math.nan, {"b": math.inf}], "c": -math.inf}) == (
        '{"a": ["NaN", {"b": "Infinity"}], "c": "-Infinity"}'
    )
    data = tmp_path / "e.parquet"
    pq.write_table(pa.table({"x": [math.nan, math.inf], "k": [math.inf, 1.5]}), data)
    ran = meetpoint("backtest", "x > 1", "--events", data, "--json")
    assert [s["attributes"]["x"] for s in json.loads(ran.out)["samples"]] == ["NaN", "Infinity"]
    subs = tmp_path / "s.jsonl"
    subs.write_text('{"id": 1, "filter": "TRUE"}\n')
    assert '{"event": "Infinity", "subscription": 1}' in meetpoint("match", data, "--subs", subs, "--event-id", "k").out


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device", "out.csv"), "out.csv: no space left on device; "),
        (OSError(28, "No space left on device"), "no space left on device; "),
        (pa.ArrowInvalid("odd\ndata"), "the data cannot be handled: odd data; "),
        (pa.ArrowNotImplementedError("odd"), "the data cannot be handled: odd; "),
        (OverflowError("int too big"), "a number is too large: int too big; "),
        (MemoryError(), "the memory does not suffice; "),
    ],
)
def test_what_the_machine_refuses_is_told_in_one_line(
    meetpoint: Command, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def fail() -> int:
        raise error

    monkeypatch.setattr(cli, "_invoke", fail)
    ran = meetpoint("--version")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith(f"meetpoint: {message}")


def test_a_mistake_of_ours_is_not_hidden(meetpoint: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_invoke", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        meetpoint("--version")


def test_help_without_arguments_has_no_stray_line(meetpoint: Command) -> None:
    ran = meetpoint()
    assert (ran.code, ran.err) == (2, "")
    assert "Usage" in ran.out


def test_rejects_keep_long_rows_and_cut_long_reasons(meetpoint: Command, tmp_path: Path) -> None:
    aside = tmp_path / "aside.jsonl"
    subs = tmp_path / "s.jsonl"
    subs.write_text(SUBS)
    middle, long = "y" * 5000, "y" * 100_000
    stdin = "".join(f'{{"x": ["{text}"]}}\n{{"{text}": [1]}}\n' for text in (middle, long)).encode()
    assert meetpoint("match", "-", "--subs", subs, "--rejects", aside, stdin=stdin).code == 1
    rows = [json.loads(line) for line in aside.read_text().splitlines()]
    assert rows[0]["raw"] == f'{{"x": ["{middle}"]}}'
    assert len(rows[2]["raw"]) == RAW_MAX
    assert all(len(row["reason"]) <= REASON_MAX for row in rows)


def test_a_byte_order_mark_is_skipped_and_a_gzip_file_is_named(meetpoint: Command, tmp_path: Path) -> None:
    subs = tmp_path / "s.jsonl"
    subs.write_text("\ufeff" + SUBS)
    ran = meetpoint("match", "-", "--subs", subs, stdin=b'\xef\xbb\xbf{"x": 2}\n{"x": 3}\n')
    assert (ran.code, ran.out.count("\n"), ran.err) == (0, 2, "")
    ran = meetpoint("match", "-", "--subs", subs, stdin=b"\x1f\x8b\x08\x00\n\n")
    assert (ran.code, ran.out) == (2, "")
    assert "is a gzip file; unpack it" in ran.err


def test_rejects_that_cannot_be_written_leave_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: TableFile, table: pa.Table) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TableFile, "write", fail)

    def run() -> None:
        with RejectFile(str(tmp_path / "aside.jsonl")) as aside:
            aside.add(reject("events", 0, "a lone \ud800", "\ud800"))

    with pytest.raises(OSError, match="No space"):
        run()
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_parquet_file_and_texts_that_are_not_utf8_are_named(meetpoint: Command, files: Path) -> None:
    data = files / "e.parquet"
    pq.write_table(pa.table({"x": ["a" * 50 + str(n) for n in range(5000)]}), data, compression="none")
    whole = bytearray(data.read_bytes())
    whole[4:400] = b"\xff" * 396
    data.write_bytes(whole)
    ran = meetpoint("match", data, "--subs", "s.jsonl")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "e.parquet: cannot be read: " in ran.err
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    pq.write_table(pa.table({"x": text, "id": text, "filter": text}), data)
    (files / "t.jsonl").write_text('{"id": 1, "filter": "x = \'a\'"}\n')
    for arguments in (
        ["match", data, "--subs", "t.jsonl"],
        ["match", data, "--subs", "s.jsonl", "--event-id", "x"],
        ["match", "e.jsonl", "--subs", data],
        ["lint", data],
    ):
        ran = meetpoint(*arguments)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert "cannot be read" in ran.err


def test_a_csv_file_that_is_written_reads_back_whatever_its_texts_hold(tmp_path: Path) -> None:
    texts = ["a\rb", "a\nb", "a\r\nb", 'a"b', "a,b", "\r"]
    with TableFile(str(tmp_path / "out.csv")) as file:
        file.write(pa.table({"x": texts, "y": ["z"] * len(texts)}))
    rejects: list[Reject] = []
    (batch,) = csv_batches(str(tmp_path / "out.csv"), rejects.append, None)
    assert (batch.columns.values("x"), rejects) == (texts, [])


def test_ctrl_c_in_the_moment_in_which_a_file_is_made_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.open

    def interrupted(path: Path, *arguments: Any, **named: Any) -> Any:
        make(path, *arguments, **named).close()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "open", interrupted)
    with pytest.raises(KeyboardInterrupt), TableFile(str(tmp_path / "pairs.jsonl")):
        raise AssertionError("it was never opened")
    with pytest.raises(KeyboardInterrupt):
        write_text(str(tmp_path / "schema.yaml"), "text")
    assert list(tmp_path.iterdir()) == []
