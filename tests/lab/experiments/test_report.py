"""What is drawn and judged follows from results, and is safe to look at."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.experiment import Fit, NotMeasured, Results
from meetpoint.lab.experiments.plots import draw, fit_model, panels_of
from meetpoint.lab.experiments.report import (
    Picture,
    Section,
    claims_table,
    claims_text,
    command_for,
    judge_all,
    page,
    tally,
    write_report,
)
from tests.lab.experiments.made import MADE, rows_of

RESULTS = Results(rows_of())
ROOT = Path(__file__).parents[3]


def section(results: Results) -> Section:
    pictures = []
    for figure in MADE.figures:
        try:
            panels = panels_of(figure, results)
        except NotMeasured:
            panels = []
        pictures.append(Picture(figure, tuple((panel, draw(figure, panel)[1]) for panel in panels)))
    return Section(MADE, results, tuple(pictures), tuple(judge_all(MADE, results)))


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in ("meta", "link", "br", "path", "use"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("path", "use"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


# -- figures -----------------------------------------------------------------------------------------------------------


def test_lines_and_points_are_those_of_the_results() -> None:
    (panel,) = panels_of(MADE.figures[0], RESULTS)
    assert [line.label for line in panel.lines] == ["<b>ordered</b>", "plain"]
    assert panel.xs == [16, 64, 256, 1024]
    assert panel.lines[1].points[0][1].median == 2.52
    assert panel.seeds == (3, 3)


def test_panels_and_metrics() -> None:
    panels = panels_of(MADE.figures[1], RESULTS)
    assert [panel.title for panel in panels] == ["By how: how <b>ordered</b>", "By how: the plain one"]
    assert [line.label for line in panels[0].lines] == ["hops", "nodes"]


def test_what_was_not_run_is_not_drawn() -> None:
    with pytest.raises(NotMeasured):
        panels_of(MADE.figures[2], Results(rows_of("quick")))


def test_a_picture_has_its_labels_and_the_paper_s_claim() -> None:
    figure = MADE.figures[0]
    (panel,) = panels_of(figure, RESULTS)
    png, svg = draw(figure, panel)
    assert png.startswith(b"\x89PNG")
    for told in ("messages", "nodes", "the paper", "extrapolated", "0.5 log2 N (within 0%)", "Hops &lt;of all&gt;"):
        assert told in svg, told
    assert "<b>" not in svg
    assert draw(figure, panel) == (png, svg), "the same results give the same bytes"


def test_a_model_that_does_not_fit_is_told_and_not_drawn_on() -> None:
    figure = MADE.figures[0]
    bent = [msgspec.structs.replace(row, value=10.0 ** min(row.value, 9)) for row in rows_of()]
    (panel,) = panels_of(figure, Results(bent))
    svg = draw(figure, panel)[1]
    assert "not drawn on: log is" in svg
    assert "dashed" not in svg


def test_models_find_what_they_were_made_of() -> None:
    xs = [16.0, 64.0, 256.0, 1024.0]
    for model, ys in (
        ("log", [1 + 0.5 * n for n in (4, 6, 8, 10)]),
        ("power", [3 * x**0.7 for x in xs]),
        ("linear", [5 - 2 * x for x in xs]),
    ):
        found = fit_model(Fit(model=model), xs, ys)  # type: ignore[arg-type]
        assert found is not None
        assert found.error < 1e-9
        expected = {"log": 1 + 0.5 * 20, "power": 3 * (2.0**20) ** 0.7, "linear": 5 - 2 * 2.0**20}[model]
        assert found.value(2.0**20) == pytest.approx(expected)
    assert fit_model(Fit(model="log"), xs[:2], [1.0, 2.0]) is None
    assert fit_model(Fit(model="power"), xs, [0.0, 1.0, 2.0, 3.0]) is None


# -- claims ------------------------------------------------------------------------------------------------------------


def test_claims_are_judged_by_results() -> None:
    judged = judge_all(MADE, RESULTS)
    assert [each.outcome for each in judged] == ["reproduced", "not run"]
    assert tally(judged) == {"reproduced": 1, "not run": 1}
    text = claims_text({"made": (MADE, judged)}, "the command")
    assert "2 claims: 1 reproduced, 1 not run." in text
    assert "| M1 | half \\| the hops (section 1) | 0.5 | 0.50x (0.50 to 0.50, 3 seeds) | **reproduced** |" in text
    assert all(line.count(" | ") == 5 for line in text.splitlines() if line.startswith("| M"))


def test_the_claims_in_the_docs_are_those_of_the_results_beside_them() -> None:
    from meetpoint.lab.experiments.store import ResultStore

    rows = ResultStore(ROOT / "docs" / "experiments" / "data").read()
    told = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    assert told == claims_table(rows), "make it again: meetpoint experiment report, see docs/experiments.md"


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_is_whole_and_shows_everything_as_text() -> None:
    text = page([section(RESULTS)], "meetpoint experiment report", "26 cells.")
    tags = _Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.seen.count("svg") == 4
    assert "script" not in tags.seen
    assert "b" not in tags.seen, "a label with HTML in it is text"
    for told in ("Made up & <true>", "half | the hops", "0.50x (0.50 to 0.50, 3 seeds)", "not run", "3 seeds"):
        assert told in tags.text, told
    assert 'name="viewport"' in text


def test_the_page_says_what_was_not_run() -> None:
    quick = page([section(Results(rows_of("quick")))], "c", "m")
    assert "Not drawn, as it was not run: Shares." in quick
    nothing = page([section(Results([]))], "c", "m")
    assert "meetpoint experiment run made" in nothing


def test_the_page_says_which_command_gives_its_results() -> None:
    run = "meetpoint experiment run made"
    assert f"by <code>{run}</code>" in page([section(RESULTS)], "c", "m")
    quick = rows_of("quick")
    assert command_for(MADE, quick) == f"{run} --quick --part hops", "all that --quick has, and not a cell of full size"
    one = [row for row in quick if row.seed == 1]
    assert command_for(MADE, one) == f"{run} --quick --part hops --seeds 1"
    fewer = [row for row in rows_of() if row.seed == 1]
    assert command_for(MADE, fewer) == f"{run} --seeds 1"
    assert command_for(MADE, []) == run


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MeetpointError, match="there are no results in it"):
        write_report(tmp_path, tmp_path / "out", tmp_path / "claims.md")
