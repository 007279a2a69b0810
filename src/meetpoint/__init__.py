"""Content-based publish/subscribe: say what you care about, get exactly the events that match.

The import is light: Spark, Arrow, NumPy and the terminal are loaded when a name that needs them is first used.
"""

from typing import TYPE_CHECKING, Any

from meetpoint.errors import (
    EventError,
    FilterError,
    LimitError,
    MeetpointError,
    SchemaError,
    SetupError,
    optional_imports,
)
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
    from meetpoint.archive import read_archive
    from meetpoint.client import EventId, NetworkError, connect, connect_sync
    from meetpoint.local_network import local
    from meetpoint.matching.index import Index, JsonEvents
    from meetpoint.matching.jobs import backtest, lint, match

__all__ = [
    "Attribute",
    "Event",
    "EventError",
    "EventId",
    "Filter",
    "FilterError",
    "FilterParser",
    "Index",
    "JsonEvents",
    "LimitError",
    "Matcher",
    "MeetpointError",
    "NetworkError",
    "Scan",
    "Schema",
    "SchemaError",
    "SetupError",
    "__version__",
    "backtest",
    "canonical",
    "connect",
    "connect_sync",
    "covers",
    "explain",
    "intersect",
    "lint",
    "local",
    "match",
    "merge",
    "overlaps",
    "parse_filter",
    "read_archive",
    "satisfiable",
]

_LAZY = {
    "backtest": "meetpoint.matching.jobs",
    "lint": "meetpoint.matching.jobs",
    "match": "meetpoint.matching.jobs",
    "Index": "meetpoint.matching.index",
    "JsonEvents": "meetpoint.matching.index",
    "EventId": "meetpoint.client",
    "NetworkError": "meetpoint.client",
    "connect": "meetpoint.client",
    "connect_sync": "meetpoint.client",
    "local": "meetpoint.local_network",
    "read_archive": "meetpoint.archive",
}
"""The module of each name that is loaded when it is first used."""


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("meetpoint")
    if name in _LAZY:
        from importlib import import_module

        with optional_imports():
            return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
