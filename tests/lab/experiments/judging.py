"""Results that nobody measured, and what every experiment's claims and figures must do with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from meetpoint.lab.experiments.experiment import Cell, Experiment, Metrics, Parameter, ResultRow, Results

__all__ = ["Scale", "check_asked", "made_up"]

Scale = Literal["quick", "full"]


def made_up(
    experiment: Experiment, *cells: tuple[str, Mapping[str, Parameter], Mapping[str, float]], seeds: int = 2
) -> Results:
    """Results with the same figures for each seed."""
    return Results(
        ResultRow(
            experiment=experiment.name,
            part=part,
            parameters=Cell.of(experiment.name, part, parameters, seed).parameters,
            seed=seed,
            metric=metric,
            value=float(value),
            cpu_s=0.0,
        )
        for part, parameters, metrics in cells
        for seed in range(1, seeds + 1)
        for metric, value in metrics.items()
    )


def check_asked(experiment: Experiment, metrics: Mapping[str, Metrics], scale: Scale) -> None:
    """Every claim and figure finds what it asks for in results of a scale, given what each part tells."""
    results = made_up(
        experiment,
        *(
            (part.name, parameters, metrics[part.name])
            for part in experiment.parts
            for parameters in (part.quick if scale == "quick" else part.full)
        ),
    )
    for claim in experiment.claims:
        judged = claim.judge(results)
        assert judged.ours
        assert judged.why
    for figure in experiment.figures:
        part = experiment.part(figure.part)
        asked = {figure.x, *figure.where, *(name for name in (figure.lines, figure.panels) if name)}
        assert all(asked <= set(parameters) for parameters in (*part.full, *part.quick))
        for y in (figure.y,) if isinstance(figure.y, str) else figure.y:
            assert y in metrics[figure.part]
            assert results.distinct(figure.part, figure.x, y, **figure.where)
        for x in results.distinct(figure.part, figure.x):
            assert all(drawn.y(float(x)) >= 0 for drawn in figure.drawn)
