"""The scheme `filters`: filters routed over the Chord graph (paper E), corrected; see `docs/filters.md`."""

from meetpoint.schemes.filters.edges import Ack, Ask, Edges, State
from meetpoint.schemes.filters.filters import Filters
from meetpoint.schemes.filters.graph import Graph, Part, Split, fingers, level
from meetpoint.schemes.filters.messages import MESSAGES
from meetpoint.schemes.filters.ranges import Range
from meetpoint.schemes.filters.settings import FiltersSettings
from meetpoint.schemes.filters.tables import ALL, STRATEGIES, Rows, Sample, Strategy, Table, accepts, make_table

__all__ = [
    "ALL",
    "MESSAGES",
    "STRATEGIES",
    "Ack",
    "Ask",
    "Edges",
    "Filters",
    "FiltersSettings",
    "Graph",
    "Part",
    "Range",
    "Rows",
    "Sample",
    "Split",
    "State",
    "Strategy",
    "Table",
    "accepts",
    "fingers",
    "level",
    "make_table",
]
