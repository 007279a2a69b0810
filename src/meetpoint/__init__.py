"""Content-based publish/subscribe: say what you care about, get exactly the events that match.

Importing this is light: Spark, Arrow, NumPy and the terminal are loaded only where they are used.
"""

from typing import TYPE_CHECKING, Any

from meetpoint.errors import EventError, FilterError, LimitError, MeetpointError, SchemaError, SetupError
from meetpoint.language import (
    Attribute,
    Event,
    Filter,
    FilterParser,
    Schema,
    canonical,
    covers,
    explain,
    intersect,
    merge,
    overlaps,
    parse_filter,
    satisfiable,
)
from meetpoint.matching import Matcher, Scan

if TYPE_CHECKING:
    from meetpoint.matching.jobs import backtest, lint, match

__all__ = [
    "Attribute",
    "Event",
    "EventError",
    "Filter",
    "FilterError",
    "FilterParser",
    "LimitError",
    "Matcher",
    "MeetpointError",
    "Scan",
    "Schema",
    "SchemaError",
    "SetupError",
    "__version__",
    "backtest",
    "canonical",
    "covers",
    "explain",
    "intersect",
    "lint",
    "match",
    "merge",
    "overlaps",
    "parse_filter",
    "satisfiable",
]

_JOBS = ("backtest", "lint", "match")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("meetpoint")
    if name in _JOBS:
        try:
            from meetpoint.matching import jobs
        except ModuleNotFoundError as error:
            raise SetupError(f"{error.name} is not installed; run: pip install 'meetpoint[arrow]'") from None
        return getattr(jobs, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
