"""The simulator's speed: `python -m benchmarks.simulator [--json]`.

The baseline is a bare loop in the same run: messages are made, encoded, put on a heap where 10,000 are on their way,
taken from it and decoded, and nobody acts on them. It runs before and after the lookups of each round, as the
machine's speed changes with what else it does. Lookups on a ring must reach `GOAL` of its speed: 100,000 messages a
second where it does 470,000. The speed of a network of whole nodes is told beside it, without a goal: most of that
time is filters and durable records.
"""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Sequence
from random import Random

import msgspec

from benchmarks.figures import Figure, asked, figure, tell
from meetpoint.api.ids import Peer
from meetpoint.catalog import make_codec
from meetpoint.lab.sim.run import RunConfig, make_network
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.chord.messages import ChordFind

GOAL = 100 / 470
ROUNDS = 5
BARE = 100_000
ON_THEIR_WAY = 10_000


def bare_per_s() -> float:
    """Return messages a second through a codec and a heap."""
    codec, ring, random = make_codec(), Ring(), Random(7)
    peer, key = Peer(ring.node(5), "n5", 1), ring.key(1)
    delays = [random.randrange(1_000_000) for _ in range(BARE)]
    heap: list[tuple[int, int, bytes]] = []
    begin = time.process_time()
    for serial, delay in enumerate(delays):
        heapq.heappush(heap, (serial * 100 + delay, serial, codec.encode(ChordFind(key, peer, serial, 3))))
        if len(heap) > ON_THEIR_WAY:
            codec.decode(heapq.heappop(heap)[2])
    return BARE / (time.process_time() - begin)


def simulated_per_s(config: RunConfig) -> float:
    """Return messages a second of CPU in a whole run, its judgement aside."""
    network = make_network(config, 7)
    network.run()
    return network.report().messages_per_s


def figures(quick: bool) -> list[Figure]:
    """Return all figures, of rounds in which the loads alternate."""
    share = 50 if quick else 1
    lookups = RunConfig(nodes=64, subscriptions=0, events=0, lookups=30_000 // share, scheme="none")
    events = RunConfig(nodes=64, subscriptions=0, events=500 // share, lookups=0, scheme="flood")
    all_of_it = RunConfig(nodes=64, subscriptions=500 // share, events=500 // share, scheme="flood")
    bare, ring, carried, whole = [], [], [], []
    for _ in range(2 if quick else ROUNDS):
        before = bare_per_s()
        ring.append(simulated_per_s(lookups))
        bare.append((before + bare_per_s()) / 2)
        carried.append(simulated_per_s(events))
        whole.append(simulated_per_s(all_of_it))
    shares = [one / other for one, other in zip(ring, bare, strict=True)]
    return [
        figure("a bare codec and heap", bare, "messages/s"),
        figure("lookups on a ring of 64", ring, "messages/s"),
        figure("lookups, of the bare loop", shares, "x", goal=GOAL),
        figure("flood, 64 nodes, 500 events, nobody subscribes", carried, "messages/s"),
        figure("flood, 64 nodes, 500 subscriptions, 500 events", whole, "messages/s"),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    told = asked(__doc__, ["speed"], arguments)
    found = figures(told.quick)
    if told.json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    else:
        tell(found, not told.quick)


if __name__ == "__main__":
    main()
