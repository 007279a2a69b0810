"""Content-based publish/subscribe: say what you care about, get exactly the events that match.

Importing this is light: Spark, Arrow, NumPy and the terminal are loaded only where they are used.
"""

from meetpoint.errors import EventError, FilterError, LimitError, MeetpointError, SchemaError, SetupError
from meetpoint.language import Attribute, Event, Filter, FilterParser, Schema, parse_filter
from meetpoint.matching import Matcher, Scan

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
    "parse_filter",
]


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version("meetpoint")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
