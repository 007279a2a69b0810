"""The scheme `rebeca`: filters routed over the Chord graph (paper E), corrected; see `docs/rebeca.md`."""

from meetpoint.schemes.rebeca.edges import EdgeAck, EdgeQuery, Edges, EdgeState
from meetpoint.schemes.rebeca.graph import Graph, GraphPart, Range, Split, fingers, level
from meetpoint.schemes.rebeca.messages import MESSAGES
from meetpoint.schemes.rebeca.scheme import Rebeca
from meetpoint.schemes.rebeca.settings import RebecaSettings
from meetpoint.schemes.rebeca.tables import ALL, STRATEGIES, FilterTable, Rows, Sample, Strategy, accepts, make_table

__all__ = [
    "ALL",
    "MESSAGES",
    "STRATEGIES",
    "EdgeAck",
    "EdgeQuery",
    "EdgeState",
    "Edges",
    "FilterTable",
    "Graph",
    "GraphPart",
    "Range",
    "Rebeca",
    "RebecaSettings",
    "Rows",
    "Sample",
    "Split",
    "Strategy",
    "accepts",
    "fingers",
    "level",
    "make_table",
]
