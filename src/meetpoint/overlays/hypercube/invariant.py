"""The invariant of a hypercube, and the ideal, checked over snapshots of all live members.

It shares nothing with the rules that it judges: nothing here runs a node, and it works on texts.

After every step, whatever happens (`broken`):

- somebody hosts something; a standby hosts nothing;
- what a member hosts, and what it takes its neighbours to host, has nothing in common. So no two who have heard of each
  other host one id: of two claims each member believes one.

Once it is quiet (`departures`):

- every id is hosted exactly once: no node's id ends in another's, and together they have room for all ids;
- nobody hosts two regions; a node that hosts none stands by at a member that knows of it, and has no id to share;
- a member's links are all its neighbours, as they are, and nobody else;
- lengths of neighbours differ by at most one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, Protocol

from meetpoint.overlays.hypercube.regions import Region

__all__ = ["MemberView", "broken", "departures", "gap", "not_hosted_once", "stands"]

UNEVEN_MAX = 1
"""Largest difference between the lengths of neighbours."""


class MemberView(Protocol):
    """The part of a member's state that this is about; members are named by their ids, or by anything else."""

    @property
    def pieces(self) -> Sequence[tuple[Region, int]]:
        """The regions that the member hosts, each with the epoch of its claim."""

    @property
    def sponsor(self) -> Hashable | None:
        """The member at which this one stands by."""

    @property
    def standbys(self) -> Sequence[Hashable]:
        """The standbys of the member."""

    @property
    def links(self) -> Sequence[tuple[Region, Hashable]]:
        """The regions of the member's neighbours, and who hosts them."""


def broken(members: Mapping[Any, MemberView], dimensions: int) -> str | None:
    """Return what must never be so, in a sentence, or None."""
    if members and not any(view.pieces for view in members.values()):
        return "nobody hosts anything"
    for name, view in members.items():
        own = [region for region, _ in view.pieces]
        if own and view.sponsor is not None:
            return f"{_name(name)} hosts {_list(own)} and stands by at {_name(view.sponsor)}"
        texts = sorted(_from_lowest(region) for region in chain(own, (region for region, _ in view.links)))
        if (twice := _overlap(texts)) is not None:
            return f"{_name(name)} hosts {_list(own)} and has links to {_list(r for r, _ in view.links)}: {twice}"
        if any(len(text) > dimensions for text in texts):
            return f"{_name(name)} knows an id that is longer than {dimensions}"
        if any(host == name for _, host in view.links) or name in view.standbys:
            return f"{_name(name)} is its own neighbour"
    return None


def stands(members: Mapping[Any, MemberView]) -> bool:
    """Return whether these, if they were all that is left, host something and hang together by their links.

    More is not needed: what nobody hosts is seen by whoever hosts the ids beside it.
    """
    known: dict[Any, set[Any]] = {name: set() for name in members}
    for name, view in members.items():
        for other in (*(host for _, host in view.links), *view.standbys, view.sponsor):
            if other in known:
                known[name].add(other)
                known[other].add(name)
    reached: set[Any] = set()
    ahead = list(members)[:1]
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += known[name]
    return any(view.pieces for view in members.values()) and len(reached) == len(members)


def departures(members: Mapping[Any, MemberView], dimensions: int, uneven_max: int = UNEVEN_MAX) -> str | None:
    """Return what is not ideal, in a sentence, or None; there must be nothing some time after the last change."""
    hosts: dict[Region, Any] = {}
    for name, view in members.items():
        if len(view.pieces) > 1:
            return f"{_name(name)} hosts {_list(region for region, _ in view.pieces)}"
        hosts.update((region, name) for region, _ in view.pieces)
    if (wrong := not_hosted_once((r for view in members.values() for r, _ in view.pieces), dimensions)) is not None:
        return wrong
    for name, view in members.items():
        if (wrong := _misplaced(name, view, members, dimensions)) is not None:
            return wrong
    texts = {region: _from_lowest(region) for region in hosts}
    for region, name in hosts.items():
        near = sorted(other for other in hosts if _differing(texts[region], texts[other]) == 1)
        wanted = [(other, hosts[other]) for other in near]
        if sorted(members[name].links) != wanted:
            return f"{region} of {_name(name)} has links to {_links(members[name].links)}, not {_links(wanted)}"
        uneven = [other for other in near if abs(other.length - region.length) > uneven_max]
        if uneven:
            return f"{region} and its neighbour {uneven[0]} are too uneven"
    return None


def _misplaced(name: Any, view: MemberView, members: Mapping[Any, MemberView], dimensions: int) -> str | None:
    """Return what is wrong with a standby: each has one sponsor, which knows of it and has no id to share."""
    for other in view.standbys:
        if other not in members or members[other].sponsor != name:
            return f"{_name(other)} does not stand by at {_name(name)}"
    if view.pieces:
        return None
    if view.sponsor is None:
        return f"{_name(name)} has no place"
    sponsor = members.get(view.sponsor)
    if sponsor is None or not sponsor.pieces:
        return f"{_name(name)} stands by at {_name(view.sponsor)}, which hosts nothing"
    if list(sponsor.standbys).count(name) != 1:
        return f"{_name(name)} stands by at {_name(view.sponsor)}, which does not know of it"
    if sponsor.pieces[0][0].length < dimensions:
        return f"{_name(name)} stands by at {_name(view.sponsor)}, which has {sponsor.pieces[0][0]} to share"
    return None


def not_hosted_once(regions: Iterable[Region], dimensions: int) -> str | None:
    """Return an id that nobody or more than one hosts, in a sentence, or None."""
    texts = sorted(map(_from_lowest, regions))
    if (twice := _overlap(texts)) is not None:
        return twice
    if any(len(text) > dimensions for text in texts):
        return f"an id is longer than {dimensions}"
    room = sum(1 << dimensions - len(text) for text in texts)
    return None if room == 1 << dimensions else f"{(1 << dimensions) - room} of {1 << dimensions} ids have no host"


def gap(members: Mapping[Any, MemberView]) -> int:
    """Return the global gap: the difference between the lengths of the longest and the shortest id."""
    lengths = [region.length for view in members.values() for region, _ in view.pieces]
    return max(lengths) - min(lengths)


def _overlap(texts: Sequence[str]) -> str | None:
    """Return two texts with ids in common, of texts sorted from the lowest bit on; a prefix precedes its extension."""
    for one, other in pairwise(texts):
        if other.startswith(one):
            return f"ids that end in {other[::-1]} are hosted by {one[::-1] or '*'} too"
    return None


def _differing(one: str, other: str) -> int:
    """Return in how many places two texts differ, as far as both go."""
    return sum(a != b for a, b in zip(one, other, strict=False))


def _from_lowest(region: Region) -> str:
    return f"{region.bits:b}".zfill(region.length)[::-1] if region.length else ""


def _list(regions: Iterable[Region]) -> str:
    return " ".join(map(str, sorted(regions))) or "none"


def _links(links: Iterable[tuple[Region, Any]]) -> str:
    return " ".join(f"{region} of {_name(host)}" for region, host in sorted(links)) or "none"


def _name(name: Any) -> str:
    return name.hex()[:8] if isinstance(name, bytes) else str(name)
