"""CSV: true lines, types that lose nothing, and fields read by a schema."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meetpoint as mp
from meetpoint.matching.io.csv import NULL_WORDS, CsvFile, Record, csv_batches
from meetpoint.matching.io.rejects import Reject, SourceError
from tests.cli.conftest import Command


def read(path: Path, text: str | bytes, schema: mp.Schema | None = None) -> tuple[list[tuple[int, Any]], list[Reject]]:
    """(row number, attributes) of the good rows, and the bad ones."""
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    rejects: list[Reject] = []
    batches = list(csv_batches(str(path), rejects.append, schema))
    rows = [pair for batch in batches for pair in zip(batch.rows, batch.columns.rows(), strict=True)]
    return rows, rejects


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.csv"


def test_lines_and_rows_are_true_after_quoted_newlines_and_blank_lines(file: Path) -> None:
    rows, rejects = read(file, '\n\na,b\r\n1,"x\ny\n"\n\n\n2\n"3","z"\n\n4,5,6')
    assert rows == [(0, {"a": 1, "b": "x\ny\n"}), (2, {"a": 3, "b": "z"})]
    assert [(r.row, r.reason, r.raw) for r in rejects] == [
        (1, "line 9: 1 fields where the header has 2", "2"),
        (3, "line 12: 3 fields where the header has 2", "4,5,6"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a,b\n1,2\n3,"x\n4,5\n', "line 3: a quote opens in this record and never closes"),
        ('a,b\n1,"x"y\n', "line 2: text follows a closing quote"),
        (b"a\nx\r\n\xff\n", "line 3 is not UTF-8"),
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"\x1f\x8b\x08\x00", "is a gzip file; unpack it"),
    ],
)
def test_a_file_that_cannot_be_cut_into_records_is_refused(file: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        read(file, text)


def test_a_header_alone_and_a_byte_order_mark_are_fine(file: Path) -> None:
    assert read(file, "a,b") == ([], [])
    assert read(file, "\ufeffa\n1\n") == ([(0, {"a": 1})], [])


def test_long_fields_are_read_and_the_process_keeps_its_own_limit(file: Path) -> None:
    before = csv.field_size_limit()
    long = "x" * 3_000_000
    assert read(file, f'a\n"{long}"\n')[0] == [(0, {"a": long})]
    assert csv.field_size_limit() == before


EIGHTEEN, THIRTY_EIGHT = "9" * 18, "9" * 38


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        (["1", "-2", "NA"], [1, -2, None]),
        ([EIGHTEEN, "-" + EIGHTEEN], [int(EIGHTEEN), -int(EIGHTEEN)]),
        (["1000000000000000000", "1"], [Decimal(10**18), Decimal(1)]),
        ([THIRTY_EIGHT, "-" + THIRTY_EIGHT], [Decimal(THIRTY_EIGHT), Decimal("-" + THIRTY_EIGHT)]),
        (["1" + "0" * 38, "1"], ["1" + "0" * 38, "1"]),
        (["007", "1"], ["007", "1"]),
        (["0", "-0"], [0, 0]),
        (["1.5", "2", "3e2"], [1.5, 2.0, 300.0]),
        (["1.5", "9007199254740992"], [1.5, 9007199254740992.0]),
        (["1.5", "9007199254740993"], ["1.5", "9007199254740993"]),
        (["1.5", "1e400"], ["1.5", "1e400"]),
        (["1.5", "007"], ["1.5", "007"]),
        (["1.5", "NaN", "nan"], [1.5, None, None]),
        (["1.5", "Infinity"], ["1.5", "Infinity"]),
        (["true", "false", "null"], [True, False, None]),
        (["٣", "1"], ["٣", "1"]),
        (["1\n", "2"], ["1\n", "2"]),
    ],
)
def test_types_are_found_and_no_number_is_changed(file: Path, fields: list[str], values: list[object]) -> None:
    rows, rejects = read(file, "a,b\n" + "".join(f'"{field}",x\n' for field in fields))
    assert [row["a"] for _, row in rows] == values
    assert [type(row["a"]) for _, row in rows] == [type(value) for value in values]
    assert not rejects


def test_all_null_words_are_null_but_in_a_column_of_strings(file: Path) -> None:
    words = sorted(NULL_WORDS)
    rows, _ = read(file, "n,s\n1,x\n" + "".join(f"{word},{word}\n" for word in words))
    assert [row["n"] for _, row in rows[1:]] == [None] * len(words)
    assert [row["s"] for _, row in rows[1:]] == [word or None for word in words]
    told = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert all(f"`{word}`" in told for word in words if word)


def test_ids_of_subscriptions_stay_text(meetpoint: Command, tmp_path: Path) -> None:
    subs = tmp_path / "subs.csv"
    subs.write_text("id,filter,subscriber\n007,x > 1,1\n1e3,x > 1,\nNA,TRUE,NA\n,TRUE,x\n")
    ran = meetpoint("match", "-", "--subs", subs, stdin=b'{"x": 2}')
    assert [json.loads(line)["subscription"] for line in ran.out.splitlines()] == ["007", "1e3", "NA"]
    assert (ran.code, "row 3: the id of the subscription is missing" in ran.err) == (1, True)


SCHEMA = mp.Schema.from_yaml(
    """
attributes:
  i: integer
  f: float
  d: decimal
  b: boolean
  t: timestamp
  s: string
  order.price: decimal
  order.n: integer
  "`a.b`": integer
"""
)


def test_headers_name_attributes_with_dots_first_and_nested_ones_then(file: Path) -> None:
    rows, rejects = read(file, "a.b,order.price,order.n,other.x\n1,2.50,,y\n2,,,\n", SCHEMA)
    assert rows == [
        (0, {"a.b": 1, "order": {"price": Decimal("2.50")}, "other.x": "y"}),
        (1, {"a.b": 2, "other.x": None}),
    ]
    assert not rejects
    with pytest.raises(SourceError, match="column order is an object in the schema"):
        read(file, "order\n1\n", SCHEMA)
    with pytest.raises(SourceError, match=r"column `a\.b` occurs twice"):
        read(file, "a.b,`a.b`\n1,2\n", SCHEMA)


@pytest.mark.parametrize(
    ("column", "good", "bad"),
    [
        (
            "i",
            {THIRTY_EIGHT: int(THIRTY_EIGHT), "-007": -7, "NaN": None, "": None},
            ["٣", " 1", "1_0", "+1", "1.0", "9" * 39],
        ),
        ("f", {"1.5": 1.5, "3": 3.0, "Infinity": float("inf"), "NaN": None}, ["1e999", "inf", "9007199254740993", "١"]),
        ("d", {"0.10": Decimal("0.10"), "1e2": Decimal("1e2")}, ["NaN0", "Infinity", "1e99", "0." + "1" * 39, "1_0"]),
        ("b", {"true": True, "False": False, "NULL": None}, ["1", "yes"]),
        ("s", {"NaN": "NaN", "": None, "1": "1"}, []),
    ],
)
def test_fields_are_read_strictly(file: Path, column: str, good: dict[str, object], bad: list[str]) -> None:
    rows, rejects = read(file, f"{column},x\n" + "".join(f"{text},\n" for text in [*good, *bad]), SCHEMA)
    assert [row[column] for _, row in rows] == list(good.values())
    assert [reject.raw for reject in rejects] == [f"{text}," for text in bad]
    assert all(r.reason.startswith(f"line {len(good) + 2 + n}: {column}") for n, r in enumerate(rejects))


FIELDS = st.text(st.sampled_from('ab7.,"\n\r \u2028é'), max_size=6)


@pytest.mark.slow
@given(rows=st.lists(st.lists(FIELDS, min_size=2, max_size=2), max_size=8))
@settings(deadline=None)
def test_what_a_csv_writer_writes_is_read_back_with_its_lines(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]
) -> None:
    text = io.StringIO(newline="")
    lines = []
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(["h", "g"])
    for row in rows:
        lines.append(len(io.StringIO(text.getvalue(), newline="").readlines()) + 1)
        writer.writerow(row)
    path = tmp_path_factory.getbasetemp() / "round.csv"
    path.write_bytes(text.getvalue().encode())
    records = list(CsvFile(str(path), "events", lambda reject: None).records())
    assert records == [Record(n, line, row) for n, (line, row) in enumerate(zip(lines, rows, strict=True))]


def test_many_batches_keep_their_numbers(file: Path) -> None:
    count = 70_000
    rows, rejects = read(file, "a\n" + "".join("bad,row\n" if n == 5 else f"{n}\n" for n in range(count)))
    assert [number for number, _ in rows] == [n for n in range(count) if n != 5]
    assert all(row["a"] == number for number, row in rows)
    assert [reject.row for reject in rejects] == [5]
