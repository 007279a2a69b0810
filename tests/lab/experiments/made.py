"""An experiment that measures nothing: what its figures must be is known."""

from __future__ import annotations

from math import log2

from meetpoint.lab.experiments.experiment import (
    ClaimedCurve,
    Experiment,
    ExperimentPart,
    Figure,
    Fit,
    Judged,
    Metrics,
    PaperClaim,
    Parameters,
    ResultRow,
    Results,
    grid,
    run_cell,
)

__all__ = ["MADE", "rows_of"]


def hops(parameters: Parameters, seed: int) -> Metrics:
    nodes = int(parameters["nodes"])
    return {"hops": nodes.bit_length() * (0.5 if parameters["how"] == "plain" else 0.25) + 0.01 * seed, "nodes": nodes}


def share(parameters: Parameters, seed: int) -> Metrics:
    return {"share": len(str(parameters["scheme"])) / 10 + seed}


def _halved(results: Results) -> Judged:
    most = results.distinct("hops", "nodes")[-1]
    ratio = results.ratio("hops", "hops", {"how": "plain"}, how="<b>ordered</b>", nodes=most)
    return Judged(
        ours=ratio.told(unit="x"),
        verdict="reproduced" if ratio.high < 0.6 else "not reproduced",
        why=f"at {most} nodes | by the least",
    )


MADE = Experiment(
    name="made",
    title="Made up & <true>",
    about="Nothing is run.\n\nIt is known.",
    parts=(
        ExperimentPart(
            name="hops",
            says="how far it is",
            run=hops,
            full=grid(how=("plain", "<b>ordered</b>"), nodes=(16, 64, 256, 1024)),
            quick=grid(how=("plain", "<b>ordered</b>"), nodes=(16, 64, 256)),
            seeds=3,
        ),
        ExperimentPart(name="share", says="who has it", run=share, full=grid(scheme=("a", "bbb")), quick=(), seeds=1),
    ),
    figures=(
        Figure(
            name="hops",
            title="Hops <of all>",
            part="hops",
            x="nodes",
            x_label="nodes",
            y="hops",
            y_label="messages",
            lines="how",
            log_x=True,
            drawn=(ClaimedCurve(label="the paper", y=lambda x: 0.6 * log2(x)),),
            fit=Fit(model="log"),
            says="It grows.",
        ),
        Figure(
            name="panels",
            title="By how",
            part="hops",
            x="nodes",
            x_label="nodes",
            y=("hops", "nodes"),
            y_label="messages",
            panels="how",
            log_y=True,
            labels={"plain": "the plain one"},
        ),
        Figure(
            name="share",
            title="Shares",
            part="share",
            x="scheme",
            x_label="scheme",
            y="share",
            y_label="share of all",
            drawn=(ClaimedCurve(label="even", y=lambda x: 0.5),),
        ),
    ),
    claims=(
        PaperClaim(id="M1", place="section 1", says="half | the hops", number="0.5", judge=_halved),
        PaperClaim(
            id="M2",
            place="nowhere",
            says="never run",
            number="none given",
            judge=lambda results: Judged(ours=results.spread("never", "x").told(), verdict="reproduced", why=""),
        ),
    ),
)


def rows_of(scale: str = "full") -> list[ResultRow]:
    """All that it gives."""
    cells = MADE.cells("full" if scale == "full" else "quick")
    return [row for cell in cells for row in run_cell(cell, MADE.part(cell.part).run)]
