"""Results are written whole or not at all, and CSV says what Parquet says."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments import EXPERIMENTS, named
from meetpoint.lab.experiments.experiment import Cell, Parameter, ResultRow
from meetpoint.lab.experiments.store import ResultStore, csv_files
from tests.lab.experiments.made import rows_of


def filled(folder: Path) -> ResultStore:
    store = ResultStore(folder)
    store.open()
    by_cell: dict[Cell, list[ResultRow]] = defaultdict(list)
    for row in rows_of():
        cell = Cell(experiment=row.experiment, part=row.part, parameters=row.parameters, seed=row.seed)
        by_cell[cell].append(row)
    for cell, rows in by_cell.items():
        store.add(cell, rows)
    return store


def test_what_was_written_is_read(tmp_path: Path) -> None:
    store = filled(tmp_path / "new" / "folder")
    assert sorted(store.read()) == sorted(rows_of())
    assert sorted(store.read("made")) == sorted(rows_of())
    assert store.read("other") == []


def test_a_cell_is_done_when_its_file_is_there(tmp_path: Path) -> None:
    store = filled(tmp_path)
    cell = Cell.of("made", "hops", {"how": "plain", "nodes": 16}, 1)
    assert store.is_done(cell)
    assert not store.is_done(msgspec.structs.replace(cell, seed=9))


def test_what_a_killed_run_left_is_taken_away(tmp_path: Path) -> None:
    store = filled(tmp_path)
    (tmp_path / ".made-hops-1234.parquet.abcd").write_bytes(b"half a file")
    before = sorted(store.read())
    store.open()
    assert [path.name for path in tmp_path.glob(".*")] == []
    assert sorted(store.read()) == before


def test_csv_says_the_same(tmp_path: Path) -> None:
    for name, text in csv_files(rows_of()).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made-hops.csv", "made-share.csv"]
    assert sorted(ResultStore(tmp_path).read()) == sorted(rows_of())


def test_csv_is_for_people() -> None:
    text = csv_files(row for row in rows_of() if row.seed == 1)["made-share.csv"].splitlines()
    assert text[0] == "scheme,seed,cpu_s,share"
    assert [line.split(",")[0] for line in text[1:]] == ["a", "bbb"]


def test_cells_without_a_parameter_or_a_metric_keep_it_so(tmp_path: Path) -> None:
    rows = [
        ResultRow(experiment="e", part="p", parameters='{"a":1}', seed=1, metric="x", value=0.1, cpu_s=0.0),
        ResultRow(experiment="e", part="p", parameters='{"a":1,"b":"c"}', seed=1, metric="y", value=1e-17, cpu_s=2.5),
    ]
    (text,) = csv_files(rows).values()
    (tmp_path / "e-p.csv").write_text(text)
    assert ResultStore(tmp_path).read() == rows


def test_a_cell_that_is_in_two_files_is_there_once(tmp_path: Path) -> None:
    store = filled(tmp_path)
    later = [msgspec.structs.replace(row, cpu_s=row.cpu_s + 1) for row in rows_of()]
    for name, text in csv_files(later).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert sorted(store.read()) == sorted(rows_of())


def test_two_files_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    store = filled(tmp_path)
    other = [msgspec.structs.replace(row, value=row.value + 1) for row in rows_of()]
    for name, text in csv_files(other).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(MeetpointError, match=r"made-hops\.csv: made hops: .*hops is .* in another file"):
        store.read()


def test_a_run_that_begins_beside_another_takes_nothing_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ResultStore(tmp_path)
    replace = os.replace
    begun: list[str] = []

    def begin_and_replace(source: str, target: Path) -> None:
        if not begun:
            begun.append(source)
            ResultStore(tmp_path).open()  # just before the first is done with its file
        replace(source, target)

    monkeypatch.setattr(os, "replace", begin_and_replace)
    row = rows_of()[0]
    cell = Cell(experiment=row.experiment, part=row.part, parameters=row.parameters, seed=row.seed)
    store.add(cell, [row])
    assert begun
    assert store.read() == [row]
    assert [path.name for path in tmp_path.glob(".*")] == []


@pytest.mark.parametrize("parameter", ["1", "1.0", "1001", "", "nan", "inf", '"', '"a"', "a,b", 1, 1.0, -0.5, 10**20])
def test_a_parameter_is_what_it_was_also_where_it_looks_like_a_number(tmp_path: Path, parameter: Parameter) -> None:
    cell = Cell.of("e", "p", {"a": parameter, "b": 1}, 1)
    row = ResultRow(
        experiment="e", part="p", parameters=cell.parameters, seed=1, metric="x", value=1.0, cpu_s=0.0
    )  # fmt: skip
    (text,) = csv_files([row]).values()
    (tmp_path / "e-p.csv").write_text(text)
    assert ResultStore(tmp_path).read() == [row]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_all_cells_that_there_are_survive_csv(tmp_path: Path, name: str) -> None:
    (experiment,) = named(name)
    cells = {*experiment.cells("full", 1), *experiment.cells("quick", 1)}
    rows = [
        ResultRow(experiment=name, part=cell.part, parameters=cell.parameters, seed=1, metric="x", value=1.0, cpu_s=0.0)
        for cell in cells
    ]
    for file, text in csv_files(rows).items():
        (tmp_path / file).write_text(text)
    assert sorted(ResultStore(tmp_path).read()) == sorted(rows)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("e-p.csv", "a,b\n1,2\n", "no columns seed and cpu_s"),
        ("e-p.csv", "a,seed,cpu_s,x\n1,2\n", "line 2 has 2 columns, the first line 4"),
        ("e-p.csv", "a,seed,cpu_s,x\n1,one,0,3\n", "line 2: invalid literal"),
        ("e-p.csv", 'a,seed,cpu_s,x\n"""b",1,0,3\n', "line 2: Unterminated string"),
        ("e-p.csv", "\x00\udcff", "this is no CSV file"),
        ("e-p.parquet", "this is no table", "e-p.parquet: these are no results of a cell"),
    ],
)
def test_a_file_that_is_no_result_is_named(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(MeetpointError, match=told):
        ResultStore(tmp_path).read()


def test_a_folder_that_is_not_there_is_told_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(MeetpointError, match="run `meetpoint experiment run all --quick` first"):
        ResultStore(tmp_path / "none").read()
