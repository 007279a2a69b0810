"""Cells have names of their own, grids are complete, and results are asked by what was varied."""

from __future__ import annotations

import pytest

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments import EXPERIMENTS, named
from meetpoint.lab.experiments.experiment import (
    Cell,
    MixedResultsError,
    NotMeasured,
    Results,
    SeedSpread,
    grid,
    run_cell,
)
from tests.lab.experiments.made import MADE, rows_of


def test_equal_parameters_are_the_same_cell_in_any_order() -> None:
    one = Cell.of("e", "p", {"a": 1, "b": "x"}, 3)
    assert one == Cell.of("e", "p", {"b": "x", "a": 1}, 3)
    assert one.id == Cell.of("e", "p", {"b": "x", "a": 1}, 3).id
    assert one.by_name == {"a": 1, "b": "x"}


def test_no_two_cells_have_the_same_id() -> None:
    cells = [
        Cell.of(*names, parameters, seed)
        for names in (("e", "p"), ("e", "q"), ("f", "p"), ("e-p", "p"), ("e", "p-p"))
        for parameters in ({}, {"a": 1}, {"a": "1"}, {"a": 1.5}, {"b": 1})
        for seed in (1, 2)
    ]
    assert len({cell.id for cell in cells}) == len(cells)


def test_a_cell_gives_its_metrics_sorted() -> None:
    cell = Cell.of("made", "hops", {"nodes": 16, "how": "plain"}, 2)
    rows = list(run_cell(cell, MADE.part("hops").run))
    assert [(row.metric, row.value, row.seed) for row in rows] == [("hops", 2.52, 2), ("nodes", 16.0, 2)]


def test_a_grid_has_all_combinations() -> None:
    assert grid(a=(1, 2), b="x", c=(0.5,)) == ({"a": 1, "b": "x", "c": 0.5}, {"a": 2, "b": "x", "c": 0.5})
    assert grid() == ({},)


def test_seeds_come_one_after_the_other_so_that_some_of_everything_is_there_early() -> None:
    cells = list(MADE.cells("full"))
    assert [cell.seed for cell in cells] == [1] * 10 + [2] * 8 + [3] * 8
    assert len(list(MADE.cells("quick"))) == 12
    assert {cell.seed for cell in MADE.cells("full", seeds=2) if cell.part == "share"} == {1, 2}


def test_results_are_asked_by_parameters() -> None:
    results = Results(rows_of())
    assert results.by_seed("hops", "hops", how="plain", nodes=16) == {1: 2.51, 2: 2.52, 3: 2.53}
    assert results.spread("hops", "hops", how="plain", nodes=16) == SeedSpread(2.52, 2.51, 2.53, 3)
    assert results.distinct("hops", "nodes") == [16, 64, 256, 1024]
    assert results.ratio("hops", "nodes", {"how": "plain"}, how="<b>ordered</b>", nodes=64) == SeedSpread(1, 1, 1, 3)


def test_what_was_not_run_is_said_and_what_is_ambiguous_refused() -> None:
    results = Results(rows_of())
    for ask in (
        lambda: results.spread("hops", "hops", nodes=17),
        lambda: results.spread("never", "hops"),
        lambda: results.distinct("hops", "colour"),
        lambda: results.ratio("hops", "hops", {"how": "other"}, how="plain", nodes=16),
    ):
        with pytest.raises(NotMeasured):
            ask()
    with pytest.raises(MixedResultsError, match=r"more than one cell of seed 1 \(how .* and .*results of --quick"):
        results.by_seed("hops", "hops", nodes=16)


def test_a_spread_in_words() -> None:
    assert SeedSpread.of([3.0, 1.0, 2000.0]).told(1, " ms") == "3.0 ms (1.0 to 2,000.0, 3 seeds)"
    assert SeedSpread.of([0.5]).told() == "0.50 (1 seed)"


def test_an_unknown_experiment_is_refused_with_all_names() -> None:
    with pytest.raises(MeetpointError, match="'strngs': there is none of this name; choose opchord"):
        named("strngs")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_fit_together(name: str) -> None:
    (experiment,) = named(name)
    assert experiment.name == name
    assert len({part.name for part in experiment.parts}) == len(experiment.parts)
    assert len({figure.name for figure in experiment.figures}) == len(experiment.figures)
    assert len({claim.id for claim in experiment.claims}) == len(experiment.claims)
    for scale in ("full", "quick"):
        cells = list(experiment.cells(scale))
        assert cells
        assert len(set(cells)) == len(cells)
    for figure in experiment.figures:
        varied = {parameter for cell in experiment.part(figure.part).full for parameter in cell}
        for parameter in (figure.x, figure.lines, figure.panels, *figure.where):
            assert parameter is None or parameter in varied, (figure.name, parameter)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_nothing_that_was_not_run_is_judged(name: str) -> None:
    (experiment,) = named(name)
    for claim in experiment.claims:
        with pytest.raises(NotMeasured):
            claim.judge(Results(()))
