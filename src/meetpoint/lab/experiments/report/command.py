"""Which command gives the cells that are there, told from the cells alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from meetpoint.lab.experiments.cells import Row
from meetpoint.lab.experiments.experiment import Experiment, Scale

__all__ = ["command_for"]


def command_for(experiment: Experiment, rows: Iterable[Row]) -> str:
    """What to run to have the same cells: their size, the parts where not all are there, and how many seeds.

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
