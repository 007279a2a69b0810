"""What `measure` says: structures for a program, a text for people, JSON for a file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from meetpoint.errors import MeetpointError, one_line
from meetpoint.language.values import Kind
from meetpoint.matching.keys.feedback import Feedback

__all__ = ["AttributeMeasure", "ConstraintMeasure", "KeyMeasure", "MatchMeasure", "Measured", "ValueShare"]

_WIDTH = 48
"""Characters of a text in a column of the report."""


class ValueShare(msgspec.Struct, frozen=True):
    """A value, the number of events that hold it, and their share of all events."""

    value: Any
    events: int
    share: float


class AttributeMeasure(msgspec.Struct, frozen=True):
    """What events hold under an attribute.

    `there` is the share of events that have it, `kinds` the share that have it of a kind, `distinct` about how many
    values there are. `quantiles` are the minimum, the quartiles and the maximum of numbers (NaN apart) and timestamps.
    """

    name: str
    type: str
    there: float
    kinds: dict[Kind, float]
    distinct: int
    common: tuple[ValueShare, ...]
    quantiles: tuple[Any, ...]


class ConstraintMeasure(msgspec.Struct, frozen=True):
    """A constraint, how many subscriptions have it, and how many events satisfy it: their share is its selectivity."""

    constraint: str
    attribute: str
    subscriptions: int
    events: int
    share: float


class KeyMeasure(msgspec.Struct, frozen=True):
    """A meet key, how many subscriptions are filed under it, and how many events have it."""

    key: str
    subscriptions: int
    events: int

    @property
    def candidates(self) -> int:
        """How many pairs meet there and are checked."""
        return self.subscriptions * self.events


class MatchMeasure(msgspec.Struct, frozen=True):
    """Matches by subscription.

    `quantiles` are the minimum, the quartiles and the maximum of matches a subscription: of all subscriptions where
    they are known, else of those that match at all. `silent` are those that match nothing, None where subscriptions are
    not known; `silent_ids` are some of them.
    """

    pairs: int
    top: tuple[tuple[Any, int], ...]
    quantiles: tuple[int, ...]
    silent: int | None
    silent_ids: tuple[Any, ...]


class Measured(msgspec.Struct, frozen=True):
    """What events hold, what subscriptions ask of them, and what came of it.

    `constraints` are those that most subscriptions have, and `keys` those at which most pairs meet, each list with the
    most at the beginning. `feedback` is what matchers and brokers load.
    """

    events: int
    attributes: tuple[AttributeMeasure, ...]
    subscriptions: int | None
    refused: int
    constraints: tuple[ConstraintMeasure, ...]
    keys: tuple[KeyMeasure, ...]
    matches: MatchMeasure | None
    feedback: Feedback
    top: int

    def to_dict(self) -> dict[str, Any]:
        """The same for a program, ready for JSON; without the feedback, which has a file of its own."""
        said = {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("feedback", "top")}
        built: dict[str, Any] = msgspec.to_builtins(said)
        for one in built["attributes"]:
            one["common"] = [{**common, "value": _for_json(common["value"])} for common in one["common"]]
            one["quantiles"] = [_for_json(value) for value in one["quantiles"]]
        built["keys"] = [
            {**one, "candidates": key.candidates} for one, key in zip(built["keys"], self.keys, strict=True)
        ]
        built["selectivity"] = {name: self.feedback.selectivity[name] for name in sorted(self.feedback.selectivity)}
        built["attribute_order"] = list(self.feedback.attribute_order())
        return built

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of it as JSON."""
        data = msgspec.json.format(msgspec.json.encode(self.to_dict()), indent=2)
        try:
            Path(path).write_bytes(data + b"\n")
        except OSError as error:
            where = os.fspath(path)
            raise MeetpointError(f"{where}: {(error.strerror or str(error)).lower()}; check the folder") from None

    def text(self) -> str:
        """A report to be read."""
        parts = [self._head(), self._attributes()]
        if self.subscriptions is not None:
            parts += [self._constraints(), self._keys()]
        if self.matches is not None:
            parts.append(_matches(self.matches))
        return "\n\n".join(part for part in parts if part)

    def _head(self) -> str:
        head = f"{self.events:,} events, {len(self.attributes)} attributes"
        if self.subscriptions is None:
            return head
        refused = f" ({self.refused:,} refused)" if self.refused else ""
        return f"{head}, {self.subscriptions:,} subscriptions{refused}"

    def _attributes(self) -> str:
        rows = []
        for one in self.attributes:
            common = ", ".join(f"{_show(v.value)} {_share(v.share)}" for v in one.common[:3])
            spread = " … ".join(_show(one.quantiles[at]) for at in (0, 2, 4)) if one.quantiles else ""
            rows.append((one.name, one.type, _share(one.there), f"{one.distinct:,}", common, spread))
        heads = ("attribute", "type", "there", "distinct", "most common", "least … median … most")
        return _table(heads, rows, "llrrll")

    def _constraints(self) -> str:
        rows = [(one.constraint, f"{one.subscriptions:,}", _share(one.share)) for one in self.constraints[: self.top]]
        return _table(("constraint", "subscriptions", "events"), rows, "lrr")

    def _keys(self) -> str:
        rows = [
            (one.key, f"{one.subscriptions:,}", f"{one.events:,}", f"{one.candidates:,}")
            for one in self.keys[: self.top]
        ]
        return _table(("meet key", "subscriptions", "events", "pairs to check"), rows, "lrrr")


def _matches(matches: MatchMeasure) -> str:
    lines = [f"{matches.pairs:,} matches"]
    if matches.quantiles:
        lines[0] += f"; a subscription has {' … '.join(f'{count:,}' for count in matches.quantiles)}"
    if matches.silent is not None:
        some = ", ".join(map(str, matches.silent_ids))
        lines.append(f"{matches.silent:,} silent subscriptions{f': {some}' if some else ''}")
    rows = [(str(id_), f"{count:,}") for id_, count in matches.top]
    return "\n".join(lines) + "\n\n" + _table(("subscription", "matches"), rows, "lr")


def _for_json(value: object) -> object:
    """JSON has no word for NaN and the infinities."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _share(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 or not share else f"{share:.2g}"


def _show(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], sides: str) -> str:
    """Columns side by side, each to the left or right."""
    cells = [heads, *([_cut(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(heads))]
    lines = (
        "  ".join(
            cell.ljust(width) if side == "l" else cell.rjust(width)
            for cell, width, side in zip(row, widths, sides, strict=True)
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def _cut(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
