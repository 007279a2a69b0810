"""The summaries that this node has of homes elsewhere: they tell which homes an event can skip."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping, Sequence

from meetpoint.api.ids import HomeId
from meetpoint.matching.keys.key_plan import KeyPlan, LiveKeys
from meetpoint.matching.keys.meet_keys import MeetKey
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries.leases import holder_us
from meetpoint.placement.key_range import KeyRange
from meetpoint.schemes.meet.entries import place_of
from meetpoint.schemes.meet.messages import KeySummary, ungroup_keys

__all__ = ["SummaryCache"]


class _HomeSummary:
    """The summary and the ranges of one home, as far as they are known here."""

    __slots__ = ("arcs", "base", "keys", "refused_at", "serial", "until", "version")

    def __init__(self) -> None:
        self.base = 0
        self.serial = 0
        self.version = 0
        self.arcs: tuple[KeyRange, ...] = ()
        self.keys: dict[MeetKey, None] = {}
        self.until = 0
        self.refused_at = -1  # news came then that could not be used: what was asked before may lack them


class SummaryCache:
    """All summaries that one node has."""

    def __init__(self, runtime: Runtime, plan: KeyPlan, lease_us: int) -> None:
        self._runtime = runtime
        self._plan = plan
        self._lease_us = holder_us(lease_us)
        self._leases: dict[HomeId, _HomeSummary] = {}
        self._live = LiveKeys()
        self._homes: dict[MeetKey, dict[HomeId, None]] = {}

    # -- what is learnt ------------------------------------------------------------------------------------------------

    def known(self, home: HomeId) -> tuple[int, int, int]:
        """Return the base, the serial and the version of the ranges that are known of a home."""
        lease = self._leases.setdefault(home, _HomeSummary())  # from when it is asked on, news of it count
        return lease.base, lease.serial, lease.version

    def learn(
        self, home: HomeId, asked_at: int, version: int, arcs: Sequence[KeyRange] | None, summary: KeySummary | None
    ) -> None:
        """Learn from the answer of a home to a request that was sent at `asked_at`."""
        lease = self._leases.setdefault(home, _HomeSummary())
        if version < lease.version and lease.until > self._runtime.now:
            return  # it was overtaken by another answer
        if arcs is not None:
            lease.version, lease.arcs = version, tuple(arcs)
        base, is_new = lease.base, version == lease.version and asked_at > lease.refused_at
        if summary is not None and is_new and self._apply(home, lease, summary):
            until = asked_at + self._lease_us
            lease.until = max(lease.until, until) if lease.base == base else until
        elif arcs is not None:
            self._drop(home, lease)  # its keys, as they are known, do not go with its arcs

    def note(self, home: HomeId, version: int, summary: KeySummary) -> None:
        """Learn that keys came into use at a home: a summary without them is not good any more.

        A home that owns other ranges than before has no keys of those that went: without its ranges the update says
        nothing.
        """
        lease = self._leases.get(home)
        if lease is not None and (version != lease.version or not self._apply(home, lease, summary)):
            self._drop(home, lease)
            lease.refused_at = self._runtime.now

    def _drop(self, home: HomeId, lease: _HomeSummary) -> None:
        self._set_keys(home, lease, ())
        lease.until = lease.base = lease.serial = 0

    def _apply(self, home: HomeId, lease: _HomeSummary, summary: KeySummary) -> bool:
        """Return whether the summary is known as of its serial, or a later one, afterwards."""
        if summary.base == lease.base and summary.serial <= lease.serial:
            return True
        if summary.whole:
            self._set_keys(home, lease, ungroup_keys(summary.added))
        elif summary.base != lease.base or lease.serial < summary.since:
            return False
        else:
            for key in ungroup_keys(summary.removed):
                self._discard(home, lease, key)
            for key in ungroup_keys(summary.added):
                self._add(home, lease, key)
        lease.base, lease.serial = summary.base, summary.serial
        return True

    def _set_keys(self, home: HomeId, lease: _HomeSummary, keys: Iterable[MeetKey]) -> None:
        for key in list(lease.keys):
            self._discard(home, lease, key)
        for key in keys:
            self._add(home, lease, key)

    def _add(self, home: HomeId, lease: _HomeSummary, key: MeetKey) -> None:
        if key not in lease.keys:
            lease.keys[key] = None
            self._live.add(key)
            self._homes.setdefault(key, {})[home] = None

    def _discard(self, home: HomeId, lease: _HomeSummary, key: MeetKey) -> None:
        if key in lease.keys:
            del lease.keys[key]
            self._live.discard(key)
            homes = self._homes[key]
            del homes[home]
            if not homes:
                del self._homes[key]

    def arcs(self, home: HomeId) -> tuple[KeyRange, ...]:
        """Return the ranges that a home is known to own."""
        lease = self._leases.get(home)
        return () if lease is None else lease.arcs

    def forget(self, home: HomeId) -> None:
        """Forget a home that is gone, or that is here."""
        lease = self._leases.pop(home, None)
        if lease is not None:
            self._set_keys(home, lease, ())

    # -- what an event must visit --------------------------------------------------------------------------------------

    def homes_for(self, attributes: Mapping[str, object]) -> list[HomeId]:
        """Return the homes whose summaries say that they have keys of the event."""
        now = self._runtime.now
        keys = self._live.keys_of_event(attributes)
        found = {home for key in keys for home in self._homes[key] if self._leases[home].until > now}
        return sorted(found)

    def arcs_without(self, wanted: Container[HomeId]) -> list[KeyRange]:
        """Return the ranges of homes whose summaries lack all keys of an event; `wanted` are the others."""
        now = self._runtime.now
        without = (lease for home, lease in self._leases.items() if lease.until > now and home not in wanted)
        return [arc for lease in without for arc in lease.arcs]

    def places_for(self, attributes: Mapping[str, object], known: Iterable[KeyRange] = ()) -> list[bytes]:
        """Return the places of an event's keys that no summary speaks of; `known` are ranges that are asked anyway."""
        now = self._runtime.now
        arcs = [*known, *(arc for lease in self._leases.values() if lease.until > now for arc in lease.arcs)]
        arcs.sort(key=lambda arc: arc.high)
        if arcs and all(arc.low == arcs[at - 1].high for at, arc in enumerate(arcs)):
            return []  # they are the whole circle
        return _uncovered(self.all_places(attributes), arcs)

    def all_places(self, attributes: Mapping[str, object]) -> list[bytes]:
        """Return where all keys lie that the event could have, in use or not."""
        ring = self._runtime.ring
        return sorted({place_of(ring, key) for key in self._plan.keys_of_event(attributes)})


def _uncovered(places: Sequence[bytes], arcs: Sequence[KeyRange]) -> list[bytes]:
    """Return the places that lie in none of some ranges, which are sorted."""
    if not arcs:
        return list(places)
    highs = [arc.high for arc in arcs]
    return [place for place in places if not _is_covered(place, arcs, highs)]


def _is_covered(place: bytes, arcs: Sequence[KeyRange], highs: Sequence[bytes]) -> bool:
    """Return whether a place lies in a range of some, which are sorted; where two overlap, either is enough."""
    at = bisect_left(highs, place)
    return arcs[at % len(arcs)].holds(place) or arcs[at - 1].holds(place)
