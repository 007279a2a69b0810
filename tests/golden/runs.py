"""Whole networks in the simulator, in a few characters: every message that was delivered, and every record on disk."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from meetpoint.catalog import OVERLAYS, SCHEMES
from meetpoint.lab.sim.run import RunConfig, make_network

__all__ = ["CASES", "SEEDS", "digest"]

SEEDS = 20
CASES = [(scheme, seed) for scheme in SCHEMES for seed in range(SEEDS)]


def digest(scheme: str, seed: int) -> str:
    """Run a network of a scheme under all faults, on an overlay that the seed chooses; return what came of it."""
    overlays = list(OVERLAYS)
    config = RunConfig(
        overlay=overlays[seed % len(overlays)],
        scheme=scheme,
        nodes=6,
        subscriptions=12,
        events=15,
        lookups=5,
        faults="all",
        fault_seconds=10,
        recovery_seconds=20,
    )
    network = make_network(config, seed)
    network.run()
    disks = blake2b(digest_size=16)
    for name, process in sorted(network.engine.processes.items()):
        disks.update(name.encode())
        for record in process.disk.recover():
            disks.update(msgspec.msgpack.encode(record))
    return f"{network.engine.digest} {disks.hexdigest()}"
