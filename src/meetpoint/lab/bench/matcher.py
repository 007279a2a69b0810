"""The benchmark of the matcher: the index and its peers on the same subscriptions and events, in one run.

Figures of different runs and machines do not compare; those of one run do. The index and the peers alternate, round by
round, so that a slow moment of the machine meets all of them. Rates are events per CPU second of this process, with all
pairs materialised on every side, and ratios are of medians. Before anything is measured all sides have matched
everything once, and their answers have been compared event by event.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.errors import MeetpointError
from meetpoint.lab.bench import rounds as measurements
from meetpoint.lab.bench.duckdb_peer import DuckDBPeer, TunedDuckDBPeer
from meetpoint.lab.bench.peers import NumpyPeer, Peer, plain_events
from meetpoint.lab.bench.rounds import (
    Engine,
    EventRates,
    Threads,
    check_agreement,
    latencies,
    measure_in_rounds,
    measure_threads,
    rates_of,
    seconds,
    single_rows,
)
from meetpoint.lab.workloads.long_form import Workload, long_form
from meetpoint.language.filters.filter import Filter

PEERS: Mapping[str, Callable[[pa.Table, pa.Table], Peer]] = {
    peer.name: peer for peer in (DuckDBPeer, TunedDuckDBPeer, NumpyPeer)
}
LOAD_ROUNDS = 3
_RAW_LOADERS = (DuckDBPeer.name, TunedDuckDBPeer.name)
_WARM_SUBSCRIPTIONS = 1000
_WARM_EVENTS = 200


class Side(msgspec.Struct, frozen=True):
    """The measurements of the index, or of a peer; `events` are those that it was given."""

    name: str
    events: int
    matches: int
    load_s: float
    rates: EventRates


class MatcherReport(msgspec.Struct, frozen=True):
    """All measurements. `engine` is the index; `compared` is the same for the filters that peers can hold."""

    name: str
    path: str
    rounds: int
    subscriptions: int
    engine: Side
    bytes_per_subscription: float
    p50_us: float
    p99_us: float
    peers: tuple[Side, ...]
    prepare_s: dict[str, float]
    compared: Side | None = None
    left_out: int = 0
    threads: Threads | None = None

    def ratio(self, peer: Side) -> float:
        """Return how many times as many events a second the index matches."""
        return (self.compared or self.engine).rates.median / peer.rates.median

    @property
    def build_ratio(self) -> float | None:
        """The time to build the index, in multiples of DuckDB's time to load the raw long form; None where it was not
        loaded.
        """
        raw = next((peer.load_s for peer in self.peers if peer.name in _RAW_LOADERS), None)
        return None if raw is None else (self.compared or self.engine).load_s / max(raw, 1e-9)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that is ready for JSON."""
        out: dict[str, Any] = {
            "mix": self.name,
            "path": self.path,
            "rounds": self.rounds,
            "subscriptions": self.subscriptions,
            "bytes_per_subscription": self.bytes_per_subscription,
            **_side_to_dict(self.engine),
            "single_event_us": {"p50": self.p50_us, "p99": self.p99_us},
            "peers": {
                peer.name: {
                    **_side_to_dict(peer),
                    "prepare_s": self.prepare_s[peer.name],
                    "ratio": self.ratio(peer),
                }
                for peer in self.peers
            },
            "build_to_raw_load": self.build_ratio,
            "left_out": self.left_out,
        }
        if self.compared is not None:
            out["compared"] = {"subscriptions": self.subscriptions - self.left_out, **_side_to_dict(self.compared)}
        if self.threads is not None:
            out["threads"] = {"count": self.threads.count, "one": self.threads.one, "all": self.threads.all}
            out["threads"]["speedup"] = self.threads.speedup
        return out


def _side_to_dict(side: Side) -> dict[str, Any]:
    return {
        "events": side.events,
        "matches": side.matches,
        "load_s": side.load_s,
        "events_per_s": side.rates.median,
        "median": side.rates.median,
        "best": side.rates.best,
        "spread": {"worst": side.rates.worst, "best": side.rates.best},
    }


def check_peers(names: Iterable[str]) -> list[str]:
    """Return the names, once each; MeetpointError where one is unknown."""
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name not in PEERS:
            raise MeetpointError(f"peer {name!r}: there is none of this name; choose of {', '.join(PEERS)}, or none")
    return wanted


def measure(workload: Workload, peers: Iterable[str], rounds: int, path: str, *, threads: int = 1) -> MatcherReport:
    """Measure a workload in long form, which every peer can hold."""
    from meetpoint.matching.index import Index

    table = workload.subscriptions
    numbers = table["subscription"].to_numpy()
    few = table.slice(0, int(np.searchsorted(numbers, numbers[0] + _WARM_SUBSCRIPTIONS)) if len(numbers) else 0)
    warm = Engine(lambda: Index.from_columns(few, sample=workload.events), path)
    engine = Engine(lambda: Index.from_columns(table, sample=workload.events), path)
    return _measure(workload, check_peers(peers), rounds, path, threads, warm=warm, engine=engine)


def measure_filters(
    filters: Sequence[Filter], events: pa.Table, peers: Iterable[str], rounds: int, path: str, *, threads: int = 1
) -> MatcherReport:
    """Measure filters and events of any kind. Filters that peers cannot hold are counted, and left out where peers are
    asked.
    """
    from meetpoint.matching.index import Index

    wanted = check_peers(peers)
    table, kept = _comparable(filters, events) if wanted else (None, range(len(filters)))
    numbered = list(enumerate(filters))
    some = [(place, filters[number]) for place, number in enumerate(kept)]
    warm = Engine(lambda: Index.from_filters(numbered[:_WARM_SUBSCRIPTIONS], sample=events), path)
    engine = Engine(lambda: Index.from_filters(numbered, sample=events), path)
    compared = None
    if len(some) < len(numbered):
        compared = Engine(lambda: Index.from_filters(some, sample=events), path)
    workload = Workload("files", table, events)
    return _measure(workload, wanted, rounds, path, threads, warm=warm, engine=engine, compared=compared)


def _comparable(filters: Sequence[Filter], events: pa.Table) -> tuple[pa.Table, list[int]]:
    """Return the long form of the filters that ask only what doubles and strings answer, and their numbers."""
    table, _ = long_form(enumerate(filters))
    unfit = plain_events(events).unfit
    numbers = table["subscription"].to_numpy()
    asked = pc.is_in(table["attribute"], pa.array(sorted(unfit), pa.string())).to_numpy()
    keep = ~np.isin(numbers, numbers[asked])
    kept = np.unique(numbers[keep])
    table = table.filter(pa.array(keep))
    return table.set_column(0, "subscription", pa.array(np.searchsorted(kept, numbers[keep]))), kept.tolist()


def _measure(
    workload: Workload,
    names: list[str],
    rounds: int,
    path: str,
    threads: int,
    *,
    warm: Engine,
    engine: Engine,
    compared: Engine | None = None,
) -> MatcherReport:
    events = workload.events
    if not events.num_rows:
        raise MeetpointError("events: there are none to measure with; give at least one")
    # Kernels are compiled here, or the first measurement would pay for it.
    warm.load()
    warm.match(events.slice(0, _WARM_EVENTS))
    engines = [engine] if compared is None else [engine, compared]
    peers: list[Peer] = [PEERS[name](workload.subscriptions, events) for name in names]
    everyone: list[Engine | Peer] = [*engines, *peers]
    loads = measure_in_rounds([side.load for side in everyone], min(rounds, LOAD_ROUNDS))
    if not len(engine.index):
        raise MeetpointError("subscriptions: there are none to measure with; give at least one")
    prepared = {peer.name: seconds(peer.prepare) for peer in peers}
    shares = {peer.name: peer.share(events) for peer in peers}
    for peer in peers:
        peer.stage(shares[peer.name])
    digests = [side.digest(events) for side in engines]
    counts = [int(digest.counts.sum()) for digest in digests]
    for peer in peers:
        found = peer.digest(shares[peer.name])
        check_agreement(digests[-1], found, peer.name)
        counts.append(int(found.counts.sum()))
    given = [shares.get(side.name, events) for side in everyone]
    works = [partial(side.match, some) for side, some in zip(everyone, given, strict=True)]
    spent = measure_in_rounds(works, rounds, measurements.SLICE_S)
    sides = [
        Side(side.name, some.num_rows, count, statistics.median(load), rates_of(some.num_rows, times))
        for side, some, count, load, times in zip(everyone, given, counts, loads, spent, strict=True)
    ]
    p50, p99 = np.percentile(latencies(engine.index, single_rows(events), path), [50, 99]).tolist()
    return MatcherReport(
        name=workload.name,
        path=path,
        rounds=rounds,
        subscriptions=len(engine.index),
        engine=sides[0],
        bytes_per_subscription=engine.index.nbytes / len(engine.index),
        p50_us=p50,
        p99_us=p99,
        peers=tuple(sides[len(engines) :]),
        prepare_s=prepared,
        compared=sides[1] if compared is not None else None,
        left_out=len(engine.index) - len(compared.index) if compared is not None else 0,
        threads=measure_threads(engine, events, threads, rounds) if threads > 1 else None,
    )
