"""The report as one HTML page: it needs no network and no script, and is read on a phone as on a large screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import msgspec

from meetpoint.lab.experiments.experiment import Experiment, Figure
from meetpoint.lab.experiments.report.command import command_for
from meetpoint.lab.experiments.report.judging import Judgement, tally
from meetpoint.lab.experiments.report.plotting import Panel
from meetpoint.lab.experiments.results import Results

__all__ = ["Picture", "Section", "page"]


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
    """The whole page."""
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
        yield from _section(section)
    yield f"</main>\n<footer><p>{escape(made_by)} Made by <code>{escape(command)}</code>.</p></footer>"
    yield "</body>\n</html>"


def _section(section: Section) -> Iterator[str]:
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
