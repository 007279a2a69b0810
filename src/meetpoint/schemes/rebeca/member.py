"""A member of the graph: an arc that a home here answers for.

Its keys are the arc, its place the arc's last key. On a ring that is one for each home, at the home's own id; elsewhere
a home may have several, or none. Custody says who answers for a key, so no two members ever have one in common,
whatever is believed of others. A member that begins anew, after a restart or with an arc that ends elsewhere, has
another *life*.
"""

from __future__ import annotations

from meetpoint.api.ids import HomeId, Peer
from meetpoint.placement.ownership.key_range import KeyRange
from meetpoint.schemes.rebeca.contacts import Contact
from meetpoint.schemes.rebeca.edges import Edges
from meetpoint.schemes.rebeca.messages import MemberRef as Named

__all__ = ["Member"]


class Member:
    """One member of this node, and what it knows of those that its edges lead to and that lead to it."""

    __slots__ = ("arc", "askers", "edges", "home", "homes", "life", "listed", "listed_by", "place", "tellers")

    def __init__(self, home: HomeId, arc: KeyRange, life: int, edges: Edges) -> None:
        self.home = home
        self.arc = arc
        self.place = bytes(arc.high)
        self.life = life
        self.edges = edges
        self.homes: dict[int, HomeId] = {}
        """Of the members that edges lead to."""
        self.tellers: dict[int, tuple[HomeId, int]] = {}
        """The homes and lives of members that have told what is wanted there; also of some that edges led to before."""
        self.askers: dict[int, tuple[HomeId, int]] = {}
        """The homes and lives of members whose edges lead here."""
        self.listed: tuple[Contact, ...] = ()
        """Who follows clockwise, as the first edge has said last."""
        self.listed_by = (-1, 0)
        """The place of who said so, and a digest of it."""

    @property
    def name(self) -> Named:
        """How others name it."""
        return Named(self.home, self.place, self.life)

    def contact(self, host: Peer) -> Contact:
        """What others know of it, where this node is known so."""
        return Contact(self.home, self.edges.place, self.edges.graph.own.begin, host)

    @property
    def first(self) -> int | None:
        """Where the first edge leads: to the next one clockwise that is known and answers."""
        return next(iter(self.edges.graph.nodes), None)
