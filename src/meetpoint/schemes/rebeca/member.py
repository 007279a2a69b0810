"""A member of the graph: an arc that a home here answers for.

Its keys are the arc, its place the arc's last key. On a ring that is one for each home, at the home's own id; elsewhere
a home may have several, or none. Custody says who answers for a key, so no two members ever have one in common,
whatever is believed of others. A member that begins anew, after a restart or with an arc that ends elsewhere, has
another *life*.

Whom a member's edges lead to, and who is in reserve (paper E, section 5.1).

Of all that the node knows (`contacts`), edges lead to those that Chord's fingers would. So an edge that fails is
followed at once by the next one that is known: the first of all by the next in *reserve*. Where all of these are silent
it is followed by the nearest that is known by any other edge, in or out, and that one names those between: step by step
the ring closes again (`reserves`).

Whether an edge is right it shows itself: it says where its keys begin, and the key that the finger begins at is one of
them or not. What is not so is looked for (`locating`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final
from zlib import crc32

import msgspec

from meetpoint.api.ids import HomeId, Peer
from meetpoint.node.cluster.directory import Directory
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.key_range import KeyRange
from meetpoint.schemes.rebeca.contacts import Contact, Contacts
from meetpoint.schemes.rebeca.edges import Edges
from meetpoint.schemes.rebeca.graph import between, fingers, following, levels_of, reserve_count
from meetpoint.schemes.rebeca.messages import MemberRef as Named
from meetpoint.schemes.rebeca.messages import PackedContact
from meetpoint.schemes.rebeca.settings import RebecaSettings

__all__ = ["BESIDE_MAX", "EdgeTargets", "Member", "digest_of"]


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


# -- edge targets ------------------------------------------------------------------------------------------------------

BETWEEN_MAX: Final = 4
"""How many are named that lie between: the nearest may be silent to whoever asks."""
RESERVES_MAX: Final = 128
BESIDE_MAX: Final = BETWEEN_MAX + RESERVES_MAX
"""How many neighbours are named at a time."""


def digest_of(cards: Iterable[PackedContact]) -> int:
    """Tells lists of neighbours apart; never 0."""
    return crc32(msgspec.msgpack.encode(tuple(cards))) + 1


class EdgeTargets:
    """All members of one node; `members` are those."""

    def __init__(
        self,
        runtime: Runtime,
        directory: Directory,
        contacts: Contacts,
        settings: RebecaSettings,
        members: Callable[[], Iterable[Member]],
    ) -> None:
        self._runtime = runtime
        self._directory = directory
        self._contacts = contacts
        self._settings = settings
        self._members = members

    @property
    def levels(self) -> int:
        """How deep the trees are, about."""
        return levels_of(len(self._directory.homes()))

    def known(self) -> dict[int, Contact]:
        """All members that edges may lead to, by their places; with those here."""
        members, me = list(self._members()), self._runtime.me
        listed = {each.place: each for member in members for each in member.listed if self._contacts.may_serve(each)}
        return listed | self._contacts.live() | {each.edges.place: each.contact(me) for each in members}

    def links(self, member: Member) -> dict[int, int]:
        """Whom edges lead to, and where the keys there begin; of edges that there are, these know it best."""
        known, begins = self.known(), member.edges.begins
        found = fingers(member.edges.place, sorted({*known, member.edges.place}), self._runtime.ring.size)
        member.homes = {place: known[place].home for place in found}
        return {place: begins.get(place, known[place].begin) for place in found}

    def reserve(self, member: Member) -> list[Contact]:
        """The next ones clockwise, of those that the first edge named and that are not silent; the first among them."""
        known = self.known()
        places = [each.place for each in member.listed] + ([] if member.first is None else [member.first])
        count = reserve_count(len(self._directory.homes()), self._settings.reserves_per_level)
        near = (place for place in places if place in known)
        size = self._runtime.ring.size
        return [known[place] for place in following(member.edges.place, near, min(count, RESERVES_MAX), size)]

    def beside(self, member: Member, asker: int) -> tuple[PackedContact, ...]:
        """What one is told whose first edge leads to a member: who lies between, and who follows."""
        ring, known = self._runtime.ring, self.known()
        nearer = [known[place] for place in between(asker, member.edges.place, known, BETWEEN_MAX, ring.size)]
        return tuple([PackedContact.of(ring, each) for each in (*nearer, *self.reserve(member)) if each.place != asker])

    def after(self, key: int) -> tuple[PackedContact, ...]:
        """Those that are known from a key on."""
        ring, known = self._runtime.ring, self.known()
        count = reserve_count(len(self._directory.homes()), self._settings.reserves_per_level)
        places = following((key - 1) % ring.size, known, min(count, RESERVES_MAX), ring.size)
        return tuple([PackedContact.of(ring, known[place]) for place in places])

    def unknown(self, member: Member) -> list[int]:
        """Keys that fingers begin at and that nobody who is known has, the nearest first.

        What lies before the first edge is not looked for so: nobody is known who could hand it on.
        """
        size, place, own, first = self._runtime.ring.size, member.edges.place, member.edges.graph.own, member.first
        if first is None:
            return []
        known = self.known()
        places = sorted(known)
        missing = []
        for exponent in range(((first - place) % size).bit_length() - 1, (size - 1).bit_length()):
            key = (place + (1 << exponent)) % size
            if own.holds(key, size) or (1 << exponent) <= (first - place) % size:
                continue
            next_one = known[places[bisect_left(places, key) % len(places)]]
            if not next_one.keys(size).holds(key, size):
                missing.append(key)
        return missing

    def has_gap(self, member: Member) -> bool:
        """Whether nobody is known who has the keys that follow a member's own."""
        first, graph = member.first, member.edges.graph
        return first is None or graph.responsible[first].begin != graph.own.end(graph.size)
