"""Results in, files out."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.catalog import named
from meetpoint.lab.experiments.cells import Row
from meetpoint.lab.experiments.experiment import Experiment, Figure
from meetpoint.lab.experiments.report.drawing import draw, need_matplotlib
from meetpoint.lab.experiments.report.judging import Judgement, Outcome, claims_text, judge_all, tally
from meetpoint.lab.experiments.report.page import Picture, Section, page
from meetpoint.lab.experiments.report.plotting import panels_of
from meetpoint.lab.experiments.results import NotMeasured, Results
from meetpoint.lab.experiments.store import ResultStore, csv_files

__all__ = ["Written", "made_claims", "write_report"]

COMMAND: Final = "meetpoint experiment report"


class Written(msgspec.Struct, frozen=True):
    """What a report has."""

    page: Path
    claims: Path
    figures: list[str]
    not_run: list[str]
    """Figures of which nothing was run."""
    verdicts: dict[Outcome, int]


def write_report(results: Path, out: Path, claims: Path, step: Callable[[], None] = lambda: None) -> Written:
    """The page with figures and tables in `out`, and the table of claims."""
    need_matplotlib()
    rows = ResultStore(results).read()
    if not rows:
        raise MeetpointError(f"{results}: there are no results in it; run `meetpoint experiment run all --quick` first")
    try:
        for folder in (out, out / "figures", out / "data", claims.parent):
            folder.mkdir(parents=True, exist_ok=True)
        drawn: list[str] = []
        sections = [_section(each, its, out, drawn, step) for each, its in _by_experiment(rows)]
        for name, text in csv_files(rows).items():
            (out / "data" / name).write_text(text, encoding="utf-8")
        judgements = {section.experiment.name: section.judgements for section in sections}
        _replace(claims, made_claims(rows))
        told = f"{len({(row.experiment, row.part, row.parameters, row.seed) for row in rows}):,} cells."
        _replace(out / "index.html", page(sections, COMMAND, told))
    except OSError as error:
        raise MeetpointError(f"{error.filename}: {error.strerror}; name another place with --out") from None
    missing = [
        f"{section.experiment.name}: {picture.figure.title}"
        for section in sections
        for picture in section.pictures
        if not picture.panels
    ]
    counted = tally(each for several in judgements.values() for each in several)
    return Written(out / "index.html", claims, drawn, missing, counted)


def made_claims(rows: Iterable[Row]) -> str:
    """The table of claims, from results alone."""
    judged: dict[str, tuple[Experiment, list[Judgement]]] = {
        each.name: (each, judge_all(each, its)) for each, its in _by_experiment(rows)
    }
    return claims_text(judged, COMMAND)


def _by_experiment(rows: Iterable[Row]) -> list[tuple[Experiment, Results]]:
    several: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        several[row.experiment].append(row)
    return [(each, Results(several[each.name])) for each in named("all")]


def _section(
    experiment: Experiment, results: Results, out: Path, drawn: list[str], step: Callable[[], None]
) -> Section:
    pictures = []
    for figure in experiment.figures:
        pictures.append(_picture(experiment, figure, results, out, drawn))
        step()
    return Section(experiment, results, tuple(pictures), tuple(judge_all(experiment, results)))


def _picture(experiment: Experiment, figure: Figure, results: Results, out: Path, drawn: list[str]) -> Picture:
    try:
        panels = panels_of(figure, results)
    except NotMeasured:
        return Picture(figure, ())
    made = []
    for panel in panels:
        png, svg = draw(figure, panel)
        name = f"{experiment.name}-{panel.name}.png"
        (out / "figures" / name).write_bytes(png)
        drawn.append(name)
        made.append((panel, svg))
    return Picture(figure, tuple(made))


def _replace(path: Path, text: str) -> None:
    """All of it, or what was there before."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
