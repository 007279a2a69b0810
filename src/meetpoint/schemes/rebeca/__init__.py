"""The scheme `rebeca`: filters routed over the Chord graph (paper E), corrected; see `docs/rebeca.md`."""

from meetpoint.schemes.rebeca.edges import Ack, Ask, Edges, State
from meetpoint.schemes.rebeca.graph import Graph, Part, Split, fingers, level
from meetpoint.schemes.rebeca.messages import MESSAGES
from meetpoint.schemes.rebeca.ranges import Range
from meetpoint.schemes.rebeca.rebeca import Rebeca
from meetpoint.schemes.rebeca.settings import RebecaSettings
from meetpoint.schemes.rebeca.tables import ALL, STRATEGIES, Rows, Sample, Strategy, Table, accepts, make_table

__all__ = [
    "ALL",
    "MESSAGES",
    "STRATEGIES",
    "Ack",
    "Ask",
    "Edges",
    "Graph",
    "Part",
    "Range",
    "Rebeca",
    "RebecaSettings",
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
