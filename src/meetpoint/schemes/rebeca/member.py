"""Members of the graph, ranges that homes here own, and where their edges lead (paper E, section 5.1).

The keys of a member are the range, its place the range's last key. On a ring that is one for each home, at the home's
own id; elsewhere a home may have several, or none. `Ownership` says who answers for a key, so no two members ever have
one in common, whatever is believed of others. A member that begins anew, after a restart or with a range that ends
elsewhere, has another *life*.

Of all contacts of the node, edges lead to those that Chord's fingers would. So an edge that fails is followed at once
by the next one that is known: the first of all by the next in *reserve*. Where all of these are silent it is followed
by the nearest that is known by any other edge, in or out, and that one names those between: step by step the ring
closes again (`graph`).

Whether an edge is right it shows itself: it says where its keys begin, and the key that the finger begins at is one of
them or not. What is not so is looked for (`discovery`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
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

if TYPE_CHECKING:
    from meetpoint.schemes.rebeca.members import Members

__all__ = ["BESIDE_MAX", "EdgeTargets", "Member", "digest_of"]


class Member:
    """A member of this node, and what it knows of those at its edges."""

    __slots__ = ("arc", "askers", "edges", "home", "homes", "life", "listed", "listed_by", "place", "tellers")

    def __init__(self, home: HomeId, arc: KeyRange, life: int, edges: Edges) -> None:
        self.home = home
        self.arc = arc
        self.place = bytes(arc.high)
        self.life = life
        self.edges = edges
        self.homes: dict[int, HomeId] = {}
        """The homes of the members that edges lead to."""
        self.tellers: dict[int, tuple[HomeId, int]] = {}
        """The homes and lives of members that have told what is wanted there; also of some that edges led to before."""
        self.askers: dict[int, tuple[HomeId, int]] = {}
        """The homes and lives of members whose edges lead here."""
        self.listed: tuple[Contact, ...] = ()
        """The members that follow clockwise, as the first edge has said last."""
        self.listed_by = (-1, 0)
        """The place of the member that said so, and a digest of it."""

    @property
    def name(self) -> Named:
        """The member as messages name it."""
        return Named(self.home, self.place, self.life)

    def contact(self, host: Peer) -> Contact:
        """Return the member as others know it, which is hosted at `host`."""
        return Contact(self.home, self.edges.place, self.edges.graph.own.begin, host)

    @property
    def first(self) -> int | None:
        """The place that the first edge leads to: the next one clockwise that is known and answers."""
        return next(iter(self.edges.graph.nodes), None)


# -- edge targets ------------------------------------------------------------------------------------------------------

BETWEEN_MAX: Final = 4
"""Members between that are named: the nearest may be silent to the asker."""
RESERVES_MAX: Final = 128
BESIDE_MAX: Final = BETWEEN_MAX + RESERVES_MAX
"""Neighbours that are named at a time."""


def digest_of(cards: Iterable[PackedContact]) -> int:
    """Return a digest that tells lists of neighbours apart; never 0."""
    return crc32(msgspec.msgpack.encode(tuple(cards))) + 1


class EdgeTargets:
    """The members that edges of this node's members lead to."""

    def __init__(
        self,
        runtime: Runtime,
        directory: Directory,
        contacts: Contacts,
        settings: RebecaSettings,
        members: Members,
    ) -> None:
        self._runtime = runtime
        self._directory = directory
        self._contacts = contacts
        self._settings = settings
        self._members = members

    @property
    def levels(self) -> int:
        """About how deep the trees are."""
        return levels_of(len(self._directory.homes()))

    def known(self) -> dict[int, Contact]:
        """Return all members that edges may lead to, by their places; with those here."""
        members, me = self._members.all(), self._runtime.me
        listed = {each.place: each for member in members for each in member.listed if self._contacts.may_serve(each)}
        return listed | self._contacts.live() | {each.edges.place: each.contact(me) for each in members}

    def links(self, member: Member) -> dict[int, int]:
        """Return where the edges of a member lead, and where the keys there begin.

        Of edges that there are, these know it best.
        """
        known, begins = self.known(), member.edges.begins
        found = fingers(member.edges.place, sorted({*known, member.edges.place}), self._runtime.ring.size)
        member.homes = {place: known[place].home for place in found}
        return {place: begins.get(place, known[place].begin) for place in found}

    def reserve(self, member: Member) -> list[Contact]:
        """Return the members in reserve: the next ones clockwise that the first edge named and that are not silent.

        The first edge is among them.
        """
        known = self.known()
        places = [each.place for each in member.listed] + ([] if member.first is None else [member.first])
        count = reserve_count(len(self._directory.homes()), self._settings.reserves_per_level)
        near = (place for place in places if place in known)
        size = self._runtime.ring.size
        return [known[place] for place in following(member.edges.place, near, min(count, RESERVES_MAX), size)]

    def beside(self, member: Member, asker: int) -> tuple[PackedContact, ...]:
        """Return the contacts for a member whose first edge leads here: who lies between, and who follows."""
        ring, known = self._runtime.ring, self.known()
        nearer = [known[place] for place in between(asker, member.edges.place, known, BETWEEN_MAX, ring.size)]
        return tuple([PackedContact.of(ring, each) for each in (*nearer, *self.reserve(member)) if each.place != asker])

    def after(self, key: int) -> tuple[PackedContact, ...]:
        """Return the contacts that are known from a key on."""
        ring, known = self._runtime.ring, self.known()
        count = reserve_count(len(self._directory.homes()), self._settings.reserves_per_level)
        places = following((key - 1) % ring.size, known, min(count, RESERVES_MAX), ring.size)
        return tuple([PackedContact.of(ring, known[place]) for place in places])

    def unknown(self, member: Member) -> list[int]:
        """Return keys that fingers begin at and that no known member has, the nearest first.

        Keys before the first edge are not looked for so: nobody is known who could hand it on.
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
        """Return whether nobody is known who has the keys that follow a member's own."""
        first, graph = member.first, member.edges.graph
        return first is None or graph.responsible[first].begin != graph.own.end(graph.size)
