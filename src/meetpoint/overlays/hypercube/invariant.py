"""What must be so of a hypercube, checked over all members. Apart from the rules that it judges: it works on texts.

- Every id is hosted exactly once: no node's id ends in another's, and together they have room for all ids.
- No name hosts two regions, stands by twice, or both.
- A member's links are all its neighbours, as they are, and nobody else.
- Lengths of neighbours differ by at most one. A network in which nodes decide on what is out of date may break this one
  for a while, and none of the others once it is quiet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise

from meetpoint.overlays.hypercube.regions import Region
from meetpoint.overlays.hypercube.rules import Member

__all__ = ["broken", "not_hosted_once"]

UNEVEN_MAX = 1
"""By how much the lengths of neighbours may differ."""


def not_hosted_once(regions: Iterable[Region], dimensions: int) -> str | None:
    """An id that nobody or more than one hosts, in a sentence, or None."""
    from_lowest = sorted(_text(region)[::-1] for region in regions)
    for one, other in pairwise(from_lowest):
        if other.startswith(one):  # what begins with a text follows it at once
            return f"ids that end in {other[::-1]} are hosted by {one[::-1] or '*'} too"
    if any(len(text) > dimensions for text in from_lowest):
        return f"an id is longer than {dimensions}"
    room = sum(1 << dimensions - len(text) for text in from_lowest)
    return None if room == 1 << dimensions else f"{(1 << dimensions) - room} of {1 << dimensions} ids have no host"


def broken(members: Mapping[Region, Member], dimensions: int, uneven_max: int = UNEVEN_MAX) -> str | None:
    """What is wrong, in a sentence, or None."""
    if (wrong := not_hosted_once(members, dimensions)) is not None:
        return wrong
    names = Counter(name for member in members.values() for name in (member.host, *member.standbys))
    for name, times in names.items():
        if times > 1:
            return f"{name} has {times} places"
    texts = {region: _text(region) for region in members}
    for region, member in members.items():
        wanted = sorted(other for other in members if _differing(texts[region], texts[other]) == 1)
        if [link.region for link in member.links] != wanted:
            return f"{region} has links to {_list(link.region for link in member.links)}, not {_list(wanted)}"
        for link in member.links:
            there = members[link.region]
            if (link.host, link.spare) != (there.host, len(there.standbys)):
                return f"{region} takes {link.region} for what it is not: {link}"
            if abs(link.region.length - region.length) > uneven_max:
                return f"{region} and its neighbour {link.region} are too uneven"
    return None


def _differing(one: str, other: str) -> int:
    """In how many places two texts differ, from their ends, as far as both go."""
    return sum(a != b for a, b in zip(reversed(one), reversed(other), strict=False))


def _text(region: Region) -> str:
    return f"{region.bits:b}".zfill(region.length) if region.length else ""


def _list(regions: Iterable[Region]) -> str:
    return " ".join(map(str, regions)) or "none"
