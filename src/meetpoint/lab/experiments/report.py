"""The report: one HTML page with figures, the figures as PNG, tables as CSV, and a table of claims.

The page needs no network and no script, and is read on a phone as on a large screen. All of it is made from results and
from nothing else.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments import named
from meetpoint.lab.experiments.experiment import (
    Experiment,
    Figure,
    Judged,
    NotMeasured,
    PaperClaim,
    ResultRow,
    Results,
    Scale,
)
from meetpoint.lab.experiments.plots import Panel, draw, need_matplotlib, panels_of
from meetpoint.lab.experiments.store import ResultStore, csv_files

# -- the command that repeats a run ------------------------------------------------------------------------------------


def command_for(experiment: Experiment, rows: Iterable[ResultRow]) -> str:
    """Return the command that gives the same cells: their size, their parts if not all, and the number of seeds.

    Where cells are of several sizes, or seeds of parts differ as no option says, it is the nearest that there is.
    """
    words = ["meetpoint experiment run", experiment.name]
    cells: dict[str, set[str]] = defaultdict(set)
    seeds: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        cells[row.part].add(row.parameters)
        seeds[row.part].add(row.seed)
    scale: Scale = "full"
    if cells and _are_all_of(experiment, cells, "quick") and not _have_all_of(experiment, cells, "full"):
        scale = "quick"
        words.append("--quick")
    usual = {part.name: part.seeds if scale == "full" else part.quick_seeds for part in experiment.parts}
    if cells and len(cells) < len(usual):
        words += [f"--part {part}" for part in usual if part in cells]
    counts = {part: len(its) for part, its in seeds.items()}
    if any(count != usual.get(part) for part, count in counts.items()) and len(set(counts.values())) == 1:
        words.append(f"--seeds {next(iter(counts.values()))}")
    return " ".join(words)


def _grid(experiment: Experiment, part: str, scale: Scale) -> set[str]:
    return {cell.parameters for cell in experiment.cells(scale, 1) if cell.part == part}


def _are_all_of(experiment: Experiment, cells: Mapping[str, set[str]], scale: Scale) -> bool:
    return all(its <= _grid(experiment, part, scale) for part, its in cells.items())


def _have_all_of(experiment: Experiment, cells: Mapping[str, set[str]], scale: Scale) -> bool:
    return all(its >= _grid(experiment, part, scale) for part, its in cells.items())


# -- claims ------------------------------------------------------------------------------------------------------------


Outcome: TypeAlias = Literal["reproduced", "in part", "not reproduced", "not run"]
VERDICTS: Final[tuple[Outcome, ...]] = ("reproduced", "in part", "not reproduced", "not run")


class Judgement(NamedTuple):
    """A claim and its outcome."""

    claim: PaperClaim
    judged: Judged | None
    """None where nothing was run that decides it."""

    @property
    def outcome(self) -> Outcome:
        """The outcome in a word or two."""
        return "not run" if self.judged is None else self.judged.verdict


def judge_all(experiment: Experiment, results: Results) -> list[Judgement]:
    """Judge each claim of an experiment."""
    return [Judgement(claim, _judged(claim, results)) for claim in experiment.claims]


def _judged(claim: PaperClaim, results: Results) -> Judged | None:
    try:
        return claim.judge(results)
    except NotMeasured:
        return None


def tally(judgements: Iterable[Judgement]) -> dict[Outcome, int]:
    """Count each outcome, and leave out those without any."""
    counted = Counter(each.outcome for each in judgements)
    return {outcome: counted[outcome] for outcome in VERDICTS if counted[outcome]}


def claims_text(judged: Mapping[str, tuple[Experiment, Sequence[Judgement]]], command: str) -> str:
    """Return all claims as Markdown."""
    return "\n".join(_claim_lines(judged, command)) + "\n"


def _claim_lines(judged: Mapping[str, tuple[Experiment, Sequence[Judgement]]], command: str) -> Iterator[str]:
    yield "# What the papers claim, and what came of it"
    yield ""
    yield (
        f"Made by `{command}` from the results beside it; do not edit. Numbers are medians over seeds, with the least "
        "and the largest. What is measured, and what was chosen where a paper is silent, is told in the "
        "[guide to the experiments](experiments.md)."
    )
    yield ""
    yield _tally_text(tally(each for _, several in judged.values() for each in several))
    for experiment, several in judged.values():
        if not several:
            continue
        yield ""
        yield f"## {experiment.title}"
        yield ""
        yield "| | claim | the paper's number | ours | | why |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for each in several:
            judgement = each.judged
            cells = [
                each.claim.id,
                f"{each.claim.says} ({each.claim.place})",
                each.claim.number,
                "" if judgement is None else judgement.ours,
                f"**{each.outcome}**",
                "" if judgement is None else judgement.why,
            ]
            yield "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def _tally_text(counted: Mapping[Outcome, int]) -> str:
    return (
        f"{sum(counted.values())} claims: "
        + ", ".join(f"{count} {outcome}" for outcome, count in counted.items())
        + "."
    )


# -- the page ----------------------------------------------------------------------------------------------------------


class Picture(msgspec.Struct, frozen=True):
    """A figure as it was drawn: its panels, each with its SVG; none where nothing of it was run."""

    figure: Figure
    panels: tuple[tuple[Panel, str], ...]


class Section(msgspec.Struct, frozen=True):
    """An experiment in the page."""

    experiment: Experiment
    results: Results
    pictures: tuple[Picture, ...]
    judgements: tuple[Judgement, ...]


_SEED = "One seed."
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1f24; --soft: #59616d; --line: #d9dde3; --back: #f6f7f9; --card: #fff;
  --good: #0b6e4f; --part: #8a5a00; --bad: #a3262a; --none: #59616d; --link: #0059a8 }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaee; --soft: #a4adba; --line: #333a44; --back: #14171b;
  --card: #1d2126; --good: #63d0a6; --part: #f0b557; --bad: #ff8a86; --none: #a4adba; --link: #7db9ff } }
* { box-sizing: border-box }
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--back) }
main, header, nav, footer { max-width: 72rem; margin: 0 auto; padding: 0 1rem }
header { padding-top: 2rem } h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .5rem }
h2 { font-size: 1.35rem; margin: 3rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--line) }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .5rem }
p { max-width: 60rem; margin: .5rem 0 } a { color: var(--link) } code { font-size: .9em; overflow-wrap: anywhere }
.soft, figcaption, footer { color: var(--soft) }
nav ul { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; list-style: none; padding: 0 }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(24rem, 100%), 1fr)); gap: 1rem }
figure { margin: 0; padding: .75rem; background: var(--card); border: 1px solid var(--line); border-radius: .5rem }
figure svg { width: 100%; height: auto; background: #fff; border-radius: .3rem; display: block }
figcaption { font-size: .85rem; margin-top: .5rem }
.claims { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr)); gap: .75rem;
  list-style: none; padding: 0 }
.claims li { padding: .75rem; background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  border-left: .3rem solid var(--mark) }
.claims p { margin: .25rem 0 }
.claims dl { margin: .4rem 0 0; display: grid; grid-template-columns: auto 1fr; gap: .1rem .6rem }
.claims dt { color: var(--soft) } .claims dd { margin: 0 }
.verdict { font-weight: 600; color: var(--mark) }
.reproduced { --mark: var(--good) } .in-part { --mark: var(--part) }
.not-reproduced { --mark: var(--bad) } .not-run { --mark: var(--none) }
footer { padding-bottom: 3rem; margin-top: 3rem; font-size: .9rem }
"""


def page(sections: Sequence[Section], command: str, made_by: str) -> str:
    return "\n".join(_page(sections, command, made_by)) + "\n"


def _page(sections: Sequence[Section], command: str, made_by: str) -> Iterator[str]:
    counted = tally(each for section in sections for each in section.judgements)
    told = ", ".join(f"{count} {outcome}" for outcome, count in counted.items())
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Meetpoint: five papers, measured</title>\n<style>{_STYLE}</style>\n</head>\n<body>"
    yield "<header><h1>Five papers on content-based publish/subscribe, measured</h1>"
    yield (
        "<p>What the papers claim, run on one code base with one oracle; and all schemes on one workload. Lines are "
        "medians over seeds, bands go from the least to the largest. Dotted black lines are a paper’s claim, dashed "
        "lines an extrapolation: nothing was measured there.</p>"
    )
    yield f"<p><strong>{sum(counted.values())} claims:</strong> {escape(told)}.</p></header>"
    yield '<nav aria-label="Experiments"><ul>'
    yield from (f'<li><a href="#{s.experiment.name}">{escape(s.experiment.title)}</a></li>' for s in sections)
    yield "</ul></nav>\n<main>"
    for section in sections:
        yield from _section_html(section)
    yield f"</main>\n<footer><p>{escape(made_by)} Made by <code>{escape(command)}</code>.</p></footer>"
    yield "</body>\n</html>"


def _section_html(section: Section) -> Iterator[str]:
    experiment, rows = section.experiment, section.results.rows
    yield f'<section id="{escape(experiment.name)}">\n<h2>{escape(experiment.title)}</h2>'
    yield from (f"<p>{escape(text)}</p>" for text in experiment.about.split("\n\n") if text.strip())
    cells = {(row.part, row.parameters, row.seed): row.cpu_s for row in rows}
    if not cells:
        yield f'<p class="soft">Not run yet: <code>meetpoint experiment run {escape(experiment.name)}</code></p>'
    else:
        parts = sorted({row.part for row in rows})
        links = ", ".join(f'<a href="data/{experiment.name}-{part}.csv">{escape(part)}</a>' for part in parts)
        yield (
            f'<p class="soft">{len(cells):,} cells, {sum(cells.values()) / 60:,.0f} min of CPU, the longest '
            f"{max(cells.values()):,.0f} s, by <code>{escape(command_for(experiment, rows))}</code>. "
            f"Tables as CSV: {links}.</p>"
        )
    yield '<div class="figures">'
    for picture in section.pictures:
        yield from _figure(picture, experiment)
    yield "</div>"
    missing = [picture.figure.title for picture in section.pictures if not picture.panels]
    if missing and cells:
        yield f'<p class="soft">Not drawn, as it was not run: {escape("; ".join(missing))}.</p>'
    if section.judgements:
        yield '<h3>Claims</h3>\n<ul class="claims">'
        for each in section.judgements:
            yield from _claim(each)
        yield "</ul>"
    yield "</section>"


def _figure(picture: Picture, experiment: Experiment) -> Iterator[str]:
    for panel, svg in picture.panels:
        few, many = panel.seeds
        seeds = _SEED if many == 1 else f"{many if few == many else f'{few} to {many}'} seeds, band: least to largest."
        name = f"{experiment.name}-{panel.name}"
        yield f'<figure role="group" aria-label="{escape(panel.title)}">{svg}'
        yield (
            f"<figcaption>{escape(picture.figure.says)} {seeds} "
            f'<a href="figures/{escape(name)}.png">PNG</a></figcaption></figure>'
        )


def _claim(each: Judgement) -> Iterator[str]:
    claim, judged = each.claim, each.judged
    yield f'<li class="{each.outcome.replace(" ", "-")}"><p><strong>{escape(claim.id)}</strong> {escape(claim.says)}'
    yield f'<span class="soft"> ({escape(claim.place)})</span></p><p class="verdict">{escape(each.outcome)}</p>'
    yield f"<dl><dt>paper</dt><dd>{escape(claim.number)}</dd>"
    if judged is not None:
        yield f"<dt>ours</dt><dd>{escape(judged.ours)}</dd></dl><p>{escape(judged.why)}</p></li>"
    else:
        yield "</dl></li>"


# -- files -------------------------------------------------------------------------------------------------------------


COMMAND: Final = "meetpoint experiment report"


class WrittenReport(msgspec.Struct, frozen=True):
    """The files and figures of a report."""

    page: Path
    claims: Path
    figures: list[str]
    not_run: list[str]
    """Figures without results."""
    verdicts: dict[Outcome, int]


def write_report(results: Path, out: Path, claims: Path, step: Callable[[], None] = lambda: None) -> WrittenReport:
    """Write the page with figures and tables to `out`, and the table of claims."""
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
        _replace(claims, claims_table(rows))
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
    return WrittenReport(out / "index.html", claims, drawn, missing, counted)


def claims_table(rows: Iterable[ResultRow]) -> str:
    """Return the table of claims, from results alone."""
    judged: dict[str, tuple[Experiment, list[Judgement]]] = {
        each.name: (each, judge_all(each, its)) for each, its in _by_experiment(rows)
    }
    return claims_text(judged, COMMAND)


def _by_experiment(rows: Iterable[ResultRow]) -> list[tuple[Experiment, Results]]:
    several: dict[str, list[ResultRow]] = defaultdict(list)
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
    """Replace a file as a whole, or leave it as it was."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
