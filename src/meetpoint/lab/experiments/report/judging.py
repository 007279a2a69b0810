"""What became of each claim, in a table that is made from results and from nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from meetpoint.lab.experiments.experiment import Claim, Experiment, Judged
from meetpoint.lab.experiments.results import NotMeasured, Results

__all__ = ["VERDICTS", "Judgement", "claims_text", "judge_all", "tally"]

Outcome: TypeAlias = Literal["reproduced", "in part", "not reproduced", "not run"]
VERDICTS: Final[tuple[Outcome, ...]] = ("reproduced", "in part", "not reproduced", "not run")


class Judgement(NamedTuple):
    """A claim and what came."""

    claim: Claim
    judged: Judged | None
    """None: nothing was run that would say."""

    @property
    def outcome(self) -> Outcome:
        """In a word or two."""
        return "not run" if self.judged is None else self.judged.verdict


def judge_all(experiment: Experiment, results: Results) -> list[Judgement]:
    """Each claim of an experiment."""
    return [Judgement(claim, _judged(claim, results)) for claim in experiment.claims]


def _judged(claim: Claim, results: Results) -> Judged | None:
    try:
        return claim.judge(results)
    except NotMeasured:
        return None


def tally(judgements: Iterable[Judgement]) -> dict[Outcome, int]:
    """How many there are of each outcome, those of which there are none left out."""
    counted = Counter(each.outcome for each in judgements)
    return {outcome: counted[outcome] for outcome in VERDICTS if counted[outcome]}


def claims_text(judged: Mapping[str, tuple[Experiment, Sequence[Judgement]]], command: str) -> str:
    """All claims as Markdown."""
    return "\n".join(_lines(judged, command)) + "\n"


def _lines(judged: Mapping[str, tuple[Experiment, Sequence[Judgement]]], command: str) -> Iterator[str]:
    yield "# What the papers claim, and what came of it"
    yield ""
    yield (
        f"Made by `{command}` from the results beside it; do not edit. Numbers are medians over seeds, with the least "
        "and the largest. What is measured, and what was chosen where a paper is silent, is told in the "
        "[guide to the experiments](experiments.md)."
    )
    yield ""
    yield _told(tally(each for _, several in judged.values() for each in several))
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


def _told(counted: Mapping[Outcome, int]) -> str:
    return (
        f"{sum(counted.values())} claims: "
        + ", ".join(f"{count} {outcome}" for outcome, count in counted.items())
        + "."
    )
