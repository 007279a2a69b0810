"""`meetpoint experiment`: what there is, what is refused before Spark starts, and a report of what is there."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from meetpoint.lab.experiments import EXPERIMENTS, named
from meetpoint.lab.experiments.experiment import run_cell
from meetpoint.lab.experiments.store import ResultStore
from tests.cli.conftest import Command

PART = "covering"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some cells of one part."""
    (experiment,) = named("dmm")
    store = ResultStore(tmp_path_factory.mktemp("results"))
    store.open()
    for cell in experiment.cells("quick", 2):
        if cell.part == PART:
            store.add(cell, list(run_cell(cell, experiment.part(PART).run)))
    return store.folder


def test_list_names_all(meetpoint: Command) -> None:
    ran = meetpoint("experiment", "list")
    assert ran.code == 0
    for name in EXPERIMENTS:
        assert f"\n{name}  " in f"\n{ran.out}"
    found = {each["name"]: each for each in json.loads(meetpoint("experiment", "list", "--json").out)}
    assert found.keys() == set(EXPERIMENTS)
    for each in found.values():
        assert each["parts"]
        assert each["claims"]
        assert 0 < each["cells"]["quick"] < each["cells"]["full"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "dmmm"], "experiment 'dmmm': there is none of this name; choose opchord"),
        (["run", "dmm", "--part", "covring"], "covring: choose of shares, balance,"),
        (["run", "dmm", "--seeds", "0"], "--seeds"),
        (["run", "dmm", "--out", "file"], "file: File exists; name another folder for the results"),
        (["report", "--results", "nowhere"], "nowhere: there is no such folder; run `meetpoint experiment run all"),
        (["report", "--results", "empty"], "empty: there are no results in it"),
    ],
)
def test_mistakes_are_told_before_spark_starts(
    meetpoint: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    ran = meetpoint("experiment", *arguments)
    assert ran.code == 2
    assert told in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.slow
def test_cells_that_are_done_need_no_spark(meetpoint: Command, results: Path) -> None:
    run = ["experiment", "run", "dmm", "--part", PART, "--quick", "--seeds", "2", "--out", results]
    ran = meetpoint(*run, "--json", "--master", "spark://127.0.0.1:9")
    assert ran.code == 0
    assert json.loads(ran.out)["run"] == 0


@pytest.mark.slow
def test_a_report_has_what_was_run_and_says_what_was_not(meetpoint: Command, results: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "report"
    ran = meetpoint("experiment", "report", "--results", results, "--out", out, "--claims", tmp_path / "claims.md")
    assert ran.code == 0, ran.err
    assert f"{out / 'index.html'}: " in ran.out
    assert "not run, so not drawn: " in ran.out
    page = (out / "index.html").read_text()
    assert page.count("<svg") == len(list((out / "figures").glob("*.png"))) > 0
    assert [path.name for path in (out / "data").iterdir()] == [f"dmm-{PART}.csv"]
    claims = (tmp_path / "claims.md").read_text()
    counts: dict[str, int] = defaultdict(int)
    for line in claims.splitlines():
        for verdict in ("reproduced", "in part", "not run"):
            counts[verdict] += f"| **{verdict}** |" in line
    assert counts["not run"] > 50
    assert counts["reproduced"] + counts["in part"] > 0


def test_a_report_of_a_report_is_the_same(meetpoint: Command, results: Path, tmp_path: Path) -> None:
    for source, name in ((results, "one"), (tmp_path / "one" / "data", "two")):
        assert meetpoint("experiment", "report", "--results", source, "--out", tmp_path / name).code == 0
    for name in ("claims.md", f"data/dmm-{PART}.csv", "index.html"):
        assert (tmp_path / "one" / name).read_text() == (tmp_path / "two" / name).read_text(), name
