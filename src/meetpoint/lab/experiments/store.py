"""The store of results: a folder with a Parquet file for each cell that is done, or with a CSV file for each part.

A cell's file is written whole or not at all, so that a run that is killed leaves only cells that are done. CSV files
are for people and for keeping: a line a cell, its parameters, `seed` and `cpu_s`, then its metrics. Both say the same.
"""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.experiment import Cell, Parameter, ResultRow

_SEED, _CPU = "seed", "cpu_s"
_COLUMNS: Final = ResultRow.__struct_fields__
_ATTEMPTS: Final = 3
"""Attempts to write a file: another run that begins in this folder may take it for a killed run's leftover."""


class ResultStore:
    """A folder of results."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def open(self) -> None:
        """Make the folder where there is none, and remove the unfinished files of a run that was killed."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MeetpointError(f"{self.folder}: {error.strerror}; name another folder for the results") from None
        for left in self.folder.glob(".*.parquet.*"):
            # Another run may remove it at the same moment.
            left.unlink(missing_ok=True)

    def is_done(self, cell: Cell) -> bool:
        """Return whether a cell's results are here."""
        return self._file(cell).exists()

    def add(self, cell: Cell, rows: Sequence[ResultRow]) -> None:
        """Store the rows of a cell."""
        import pyarrow as pa
        from pyarrow import parquet

        table = pa.table({name: [getattr(row, name) for row in rows] for name in _COLUMNS})
        target = self._file(cell)
        for left in reversed(range(_ATTEMPTS)):
            handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=self.folder)
            os.close(handle)
            parquet.write_table(table, name)
            try:
                os.replace(name, target)
            except FileNotFoundError:
                if not left:
                    raise
            else:
                return

    def read(self, experiment: str | None = None) -> list[ResultRow]:
        """Return all rows of one experiment or of all, each once.

        A row may be in a Parquet and in a CSV file. MeetpointError where a file cannot be read, or two say different
        things of one cell.
        """
        if not self.folder.is_dir():
            raise MeetpointError(
                f"{self.folder}: there is no such folder; run `meetpoint experiment run all --quick` first, "
                "or name the folder with --results"
            )
        pattern = "*" if experiment is None else f"{experiment}-*"
        rows: dict[tuple[str, str, str, int, str], ResultRow] = {}
        for reading, ending in ((_from_parquet, "parquet"), (_from_csv, "csv")):
            for path in sorted(self.folder.glob(f"{pattern}.{ending}")):
                for row in reading(path):
                    known = rows.setdefault((row.experiment, row.part, row.parameters, row.seed, row.metric), row)
                    if known.value != row.value:
                        raise _contradiction(path, known, row)
        return list(rows.values())

    def _file(self, cell: Cell) -> Path:
        return self.folder / f"{cell.id}.parquet"


def _contradiction(path: Path, known: ResultRow, row: ResultRow) -> MeetpointError:
    """Return the error for two values of a cell. A cell always gives the same figures, so another version made one of
    them.
    """
    cell = Cell(experiment=row.experiment, part=row.part, parameters=row.parameters, seed=row.seed)
    return MeetpointError(
        f"{path}: {cell}: {row.metric} is {row.value!r}, and {known.value!r} in another file of this folder; remove "
        "the older one"
    )


def _from_parquet(path: Path) -> Iterator[ResultRow]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        rows = parquet.read_table(path).to_pylist()
        yield from (msgspec.convert(row, ResultRow) for row in rows)
    except (pa.ArrowInvalid, msgspec.ValidationError) as error:
        raise MeetpointError(
            f"{path}: these are no results of a cell ({_line(error)}); remove the file, and run it again"
        ) from None


def _line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


# -- CSV ---------------------------------------------------------------------------------------------------------------


def csv_files(rows: Iterable[ResultRow]) -> dict[str, str]:
    """Return the text of each CSV file by its name: one for each part of each experiment."""
    parts: dict[tuple[str, str], dict[tuple[str, int], dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in sorted(rows):
        cell = parts[row.experiment, row.part][row.parameters, row.seed]
        cell[row.metric] = row.value
        cell.setdefault(_CPU, row.cpu_s)
    return {f"{experiment}-{part}.csv": _text(cells) for (experiment, part), cells in sorted(parts.items())}


def _text(cells: Mapping[tuple[str, int], Mapping[str, float]]) -> str:
    known = {parameters: json.loads(parameters) for parameters, _ in cells}
    names = sorted({name for parameters in known.values() for name in parameters})
    metrics = sorted({name for values in cells.values() for name in values if name != _CPU})
    ordered = sorted(cells, key=lambda cell: (*(_order(known[cell[0]].get(name)) for name in names), cell[1]))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, _SEED, _CPU, *metrics])
    for parameters, seed in ordered:
        values = cells[parameters, seed]
        its = known[parameters]
        told = [_written(its[name]) if name in its else "" for name in names]
        writer.writerow([*told, seed, values[_CPU], *(values.get(name, "") for name in metrics)])
    return out.getvalue()


def _order(value: Parameter | None) -> tuple[int, float, str]:
    """Order numbers by size, then texts; a missing parameter comes first."""
    if value is None:
        return 0, 0.0, ""
    return (2, 0.0, value) if isinstance(value, str) else (1, float(value), "")


def _written(value: Parameter) -> str:
    """Quote a text that could be taken for a number, or for none."""
    text = str(value)
    is_taken = text[:1] in ("", '"') or _parameter(text) != value
    return json.dumps(value) if isinstance(value, str) and is_taken else text


def _parameter(text: str) -> Parameter:
    if text.startswith('"'):
        return str(json.loads(text))
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _from_csv(path: Path) -> Iterator[ResultRow]:
    try:
        with open(path, newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise MeetpointError(f"{path}: this is no CSV file ({_line(error)}); these are no results") from None
    experiment, _, part = path.stem.partition("-")
    head = lines[0] if lines else []
    if _SEED not in head or _CPU not in head:
        raise MeetpointError(f"{path}: the first line has no columns {_SEED} and {_CPU}; these are no results")
    at = head.index(_SEED)
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(head):
            raise MeetpointError(f"{path}: line {number} has {len(line)} columns, the first line {len(head)}")
        named = dict(zip(head[:at], line[:at], strict=True))
        try:
            parameters = {name: _parameter(text) for name, text in named.items() if text}
            cell = Cell.of(experiment, part, parameters, int(line[at]))
            for metric, text in zip(head[at + 2 :], line[at + 2 :], strict=True):
                if text:
                    yield ResultRow(
                        experiment=experiment,
                        part=part,
                        parameters=cell.parameters,
                        seed=cell.seed,
                        metric=metric,
                        value=float(text),
                        cpu_s=float(line[at + 1]),
                    )
        except ValueError as error:
            raise MeetpointError(f"{path}: line {number}: {error}") from None
