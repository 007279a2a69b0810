"""What was read from files, folders and archives: good rows, dead letters, and how many there are of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql import functions as F  # noqa: N812

__all__ = ["EventFiles", "Tally"]


class Tally(NamedTuple):
    """How many rows were events, how many were none, and why the first of these was not."""

    good: int
    dead: int
    first_reason: str | None


@dataclass(frozen=True)
class EventFiles:
    """What was read: a DataFrame of events, and one of dead letters (raw, reason, source) where there may be any."""

    good: Any
    dead: Any | None
    marked: Any | None

    def tally(self) -> Tally:
        """Count both, in one job."""
        if self.marked is None:
            return Tally(int(self.good.count()), 0, None)
        reason = F.col("reason")
        row = (
            self.marked.agg(
                F.count_if(reason.isNull()).alias("good"),
                F.count_if(reason.isNotNull()).alias("dead"),
                F.first(reason, ignorenulls=True).alias("first"),
            )
            .toArrow()
            .to_pylist()[0]
        )
        return Tally(row["good"], row["dead"], row["first"])
