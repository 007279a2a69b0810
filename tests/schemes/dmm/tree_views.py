"""Looks into all nodes of a network that runs `dmm` at once: which regions serve, and what lies in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from meetpoint.api.ids import HomeId
from meetpoint.schemes.dmm.entries import StoredRegion, read_name
from meetpoint.schemes.dmm.rules import RegionRecord, RegionState
from meetpoint.schemes.dmm.space import ROOT, Box, Code


def held(scheme: Any) -> Iterator[StoredRegion]:
    """The regions that homes at a node answer for; the root too where nothing is kept of it."""
    yield from _root(scheme)
    for home, region in scheme._store.regions():
        if region.code:
            holder = scheme._regions.holder(region.code)
            if holder is not None and holder.id == home:
                yield region


def kept_of(all_schemes: Iterable[Any]) -> dict[Code, RegionRecord]:
    """Where all regions stand that anyone answers for."""
    regions = [region for scheme in all_schemes for region in held(scheme)]
    return {region.code: region.record for region in regions if region.record is not None}


def served_twice(all_schemes: Iterable[Any]) -> list[str]:
    """Points that two regions serve; there are none at any moment.

    Whose regions are held is asked only where some overlap: most of the time none do, whoever holds them.
    """
    everyone = list(all_schemes)
    if not _overlaps(region for scheme in everyone for region in _known(scheme)):
        return []
    return _overlaps(region for scheme in everyone for region in held(scheme))


def _known(scheme: Any) -> Iterator[StoredRegion]:
    """The regions of which a node knows anything, held or not, and the root where it is held."""
    yield from _root(scheme)
    yield from (region for _, region in scheme._store.regions() if region.code)


def _root(scheme: Any) -> Iterator[StoredRegion]:
    at_root = scheme._regions.holder(ROOT)
    if at_root is not None:
        yield scheme._store.region(at_root.id, ROOT)


def _overlaps(regions: Iterable[StoredRegion]) -> list[str]:
    serving = sorted(region.code for region in regions if region.record is not None and region.record.serves)
    # what lies around another comes right before the first of those
    return [f"{one!r} and {other!r} both serve" for one, other in pairwise(serving) if other.startswith(one)]


def served_by_nobody(all_schemes: Iterable[Any]) -> list[str]:
    """Parts of the space that no region serves, and what is not at rest; there are none when all is quiet."""
    there = kept_of(all_schemes)
    wrong = [
        f"{code!r} is {kept}"
        for code, kept in there.items()
        if kept.state not in (RegionState.LEAF, RegionState.INTERIOR, RegionState.GONE) or not kept.is_informed
    ]
    leaves = [code for code, kept in there.items() if kept.serves]
    served = sum(2.0 ** -len(code) for code in leaves)
    return wrong if served == 1.0 else [*wrong, f"{served} of the space is served, by {sorted(leaves)}"]


def misplaced(all_schemes: list[Any]) -> list[str]:
    """Entries that are not in every leaf they meet, or are where nobody wants them; none when all is quiet."""
    wanted: dict[tuple[HomeId, int], Box] = {}
    for scheme in all_schemes:
        for home, subscriptions in scheme._placement._places.items():
            for places in subscriptions.values():
                assert not places.open, "something is still to be placed"
                for entry, placed in places.entries.items():
                    wanted[home, placed.number] = scheme._walker._box(entry)
    wrong: list[str] = []
    for scheme in all_schemes:
        for region in held(scheme):
            names = {read_name(name, scheme._space)[:2]: name for name in region.items}  # type: ignore[index]
            if region.record is None or not region.record.serves:
                wrong += [f"{region.code!r} does not serve, and has {name}" for name in names.values()]
                continue
            for key, box in wanted.items():
                if scheme._space.meets(region.code, box) is not (key in names):
                    there = "there" if key in names else "not there"
                    wrong.append(f"{region.code!r}: {key[0].hex()[:6]}/{key[1]} is {there}")
            strays = [name for key, name in names.items() if key not in wanted]
            wrong += [f"{region.code!r} has {name}, which nobody wants" for name in strays]
    return wrong
