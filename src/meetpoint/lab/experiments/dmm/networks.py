"""The parts of experiment D that are about messages, on simulated networks.

Lookups in small Pastry networks; how an event finds its leaf; the claims about Pastry (section 2.2): hops, state of a
node, keys stored; and the bytes of an event in all, and at each peer (section 7, preliminary results).
"""

from __future__ import annotations

import statistics
from random import Random
from typing import Any, Final, NamedTuple

from meetpoint.api.limits import SECOND_US
from meetpoint.catalog import NetworkConfig
from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.experiment import Judged, Metrics, PaperClaim, Parameters, Results, verdict_of
from meetpoint.lab.sim.comparison import Trial, TrialInput, measure_with_report
from meetpoint.lab.sim.families import BareNodeFactory, family_of
from meetpoint.lab.sim.observers import Meter
from meetpoint.lab.sim.run import run_judged
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.lab.workloads.generator import event_rows, generate
from meetpoint.lab.workloads.long_form import filter_texts
from meetpoint.lab.workloads.zipf import Zipf
from meetpoint.overlays.pastry import PastrySettings
from meetpoint.schemes.dmm import DmmSettings
from meetpoint.schemes.dmm.walk import LeafCache

SIDE = 65_535
"""Values of an attribute; with the cell for absence they are a power of two."""
SCHEMA = f"""
attributes:
  a: {{type: integer, min: 0, max: {SIDE - 1}}}
  b: {{type: integer, min: 0, max: {SIDE - 1}}}
"""
BOX = 100
"""The width of a subscription."""
ASKING, WALK = "d.match", ("d.match", "d.matched", "elsewhere")
FOUND_US = 2 * SECOND_US
"""The time for an event to find its leaf and its subscribers."""


# -- lookups -----------------------------------------------------------------------------------------------------------


def run_lookups(parameters: Parameters, seed: int) -> Metrics:
    """Measure hops of random keys on nodes that are only Pastry, each after some lookups."""
    nodes, lookups = int(parameters["peers"]), int(parameters["lookups"])
    default = PastrySettings()
    cache = default.cache_max if parameters["routes"] == "cached" else 0
    config = NetworkConfig(overlay="pastry", pastry=PastrySettings(cache_max=cache))
    family = family_of(config, BareNodeFactory())
    before = int(parameters["before_each"]) * nodes
    net = Network("pastry", "none", nodes, seed, family=family, timing=Timing(calm_s=20.0, after_s=20.0, quiet_s=2.0))
    for _ in range(before):
        net.lookup(phase="faults")
    for _ in range(lookups):
        net.lookup()
    run_judged(net, "dmm")
    ids = {process.address: process.peer.id for process in net.cluster.processes}
    found = net.clients.history.lookups[before:]
    elsewhere = [each.hops for each in found if each.found != ids[each.address]]
    return {
        "hops": statistics.mean(each.hops for each in found),
        "hops_to_others": statistics.mean(elsewhere),
        "hops_max": max(each.hops for each in found),
    }


# -- walks -------------------------------------------------------------------------------------------------------------


class _Cost(NamedTuple):
    """The cost of one event."""

    regions: int
    messages: int
    hops: int


def grow_network(parameters: Parameters, seed: int) -> Network:
    """Grow a quiet network with many leaves: its subscriptions are small boxes."""
    overlay, nodes = str(parameters["overlay"]), int(parameters["nodes"])
    settings = DmmSettings(schema=SCHEMA, threshold=int(parameters["threshold"]), depth=int(parameters["depth"]))
    family = family_of(NetworkConfig(overlay=overlay, scheme="dmm", dmm=settings))
    net = Network(overlay, "dmm", nodes, seed, family=family)
    chance = Random(f"walks/{seed}")
    for _ in range(int(parameters["subscriptions"])):
        a, b = chance.randrange(SIDE), chance.randrange(SIDE)
        net.subscribe(f"a BETWEEN {a} AND {a + BOX} AND b BETWEEN {b} AND {b + BOX}")
    run_judged(net, "dmm")
    return net


def leaves_of(net: Network) -> list[str]:
    """Return the codes of the regions that serve, at those who hold them."""
    found = []
    for process in net.cluster.alive():
        node: Any = process.node
        scheme = node.scheme
        for home, region in scheme._store.regions():
            holder = scheme._regions.holder(region.code)
            if region.stored is not None and region.stored.serves and holder is not None and holder.id == home:
                found.append(str(region.code))
    return sorted(found)


def run_walks(parameters: Parameters, seed: int) -> Metrics:
    """Publish each event at a node that knows no leaf, another there, and the first again; measure their costs."""
    net = grow_network(parameters, seed)
    depths = [len(code) for code in leaves_of(net)]
    chance = Random(f"walks/{seed}/events")
    costs: dict[str, list[_Cost]] = {"cold": [], "near": [], "warm": []}
    for number in range(int(parameters["events"])):
        process = chance.choice(net.cluster.alive())
        node: Any = process.node
        node.scheme._walker.cache = LeafCache()
        one, other = ({name: chance.randrange(SIDE) for name in ("a", "b")} for _ in range(2))
        for kind, event in (("cold", one), ("near", other), ("warm", one)):
            meter = Meter(net.family.codec)
            net.observe(meter)
            before = net.engine.observed.get("regions_asked", 0)
            net.clients.publish(f"{kind}{number}", dict(event), process)
            net.engine.run(net.engine.now + FOUND_US)
            sent = {tag: traffic.messages for tag, traffic in meter.by_kind.items() if tag in WALK}
            asked = net.engine.observed["regions_asked"] - before
            costs[kind].append(_Cost(asked, sum(sent.values()), sent.get(ASKING, 0)))
    found: dict[str, float] = {
        "leaves": len(depths),
        "leaf_depth": statistics.mean(depths),
        "regions_by_climbing": sum((int(parameters["depth"]) - depth + 1) / 2**depth for depth in depths),
    }
    for kind, each in costs.items():
        found[f"regions_{kind}"] = statistics.mean(cost.regions for cost in each)
        found[f"messages_{kind}"] = statistics.mean(cost.messages for cost in each)
        found[f"hops_{kind}"] = sum(cost.hops for cost in each) / sum(cost.regions for cost in each)
    return found


# -- Pastry (section 2.2) ----------------------------------------------------------------------------------------------


DIGIT: Final = 1 << PastrySettings().digit_bits
"""Values of a digit: 2^b."""
EVEN: Final = 1.5
"""The largest excess over the mean at which keys count as K/N each."""


def steps_of(peers: int) -> int:
    """Return ⌈log N⌉ to the base of a digit, in whole numbers."""
    steps, reach = 0, 1
    while reach < peers:
        steps += 1
        reach *= DIGIT
    return max(steps, 1)


def run_routes(parameters: Parameters, seed: int) -> Metrics:
    """Measure hops of random keys, and links, on nodes that are only Pastry and cache no routes."""
    peers = int(parameters["peers"])
    family = family_of(NetworkConfig(overlay="pastry", pastry=PastrySettings(cache_max=0)), BareNodeFactory())
    net = Network("pastry", "none", peers, seed, family=family, timing=Timing(calm_s=20.0, after_s=20.0, quiet_s=2.0))
    for _ in range(int(parameters["lookups"])):
        net.lookup()
    run_judged(net, "dmm")
    hops = [each.hops for each in net.clients.history.lookups]
    views: list[Any] = [process.view for process in net.cluster.processes]
    known = [len({*view.leaves, *view.rows} - {bytes(view.id)}) for view in views]
    limit = steps_of(peers)
    return {
        "hops": statistics.mean(hops),
        "hops_max": max(hops),
        "longer_share": sum(each > limit for each in hops) / len(hops),
        "links": statistics.mean(known),
        "rows": statistics.mean(len(set(view.rows)) for view in views),
    }


def _sizes(results: Results) -> list[int]:
    return [int(peers) for peers in results.distinct("routes", "peers")]


def _judge_hops(results: Results) -> Judged:
    sizes = _sizes(results)
    hops = {peers: results.spread("routes", "hops", peers=peers) for peers in sizes}
    longer = {peers: results.spread("routes", "longer_share", peers=peers).high for peers in sizes}
    beyond = max(results.spread("routes", "hops_max", peers=peers).high - steps_of(peers) for peers in sizes)
    return Judged(
        ours="; ".join(
            f"{each.told()} at {peers} peers, where it is {steps_of(peers)}" for peers, each in hops.items()
        ),
        verdict=verdict_of(beyond <= 0, beyond <= 1),
        why=f"Mean hops, digits of {DIGIT.bit_length() - 1} bits, no cached routes. Up to {max(longer.values()):.0%} "
        f"of the lookups take more than the formula says, by {max(beyond, 0):.0f} at most: the last step, from whoever "
        "shares the most digits with a key to the node that is numerically closest. The formula leaves it out.",
    )


def _judge_state(results: Results) -> Judged:
    sizes = _sizes(results)
    rows = {peers: results.spread("routes", "rows", peers=peers) for peers in sizes}
    links = results.spread("routes", "links", peers=sizes[-1])
    steps = {peers: rows[peers].median / ((DIGIT - 1) * steps_of(peers)) for peers in sizes}
    return Judged(
        ours=f"{rows[sizes[-1]].told(1)} in the table of {sizes[-1]} peers, {links.told(1)} with the leaf set",
        verdict=verdict_of(max(steps.values()) <= 1),
        why="A row has a place for each other value of a digit, and there are about as many rows as hops: "
        + ", ".join(f"{rows[peers].median:.1f} of {(DIGIT - 1) * steps_of(peers)} places at {peers}" for peers in sizes)
        + ". Small networks have everybody in the leaf set anyhow.",
    )


def _judge_keys(results: Results) -> Judged:
    sizes = [int(peers) for peers in results.distinct("balance", "peers", stored="keys")]
    last = sizes[-1]
    shares = {peers: results.spread("balance", "largest_share", stored="keys", peers=peers) for peers in sizes}
    worst = {peers: peers * share.median for peers, share in shares.items()}
    return Judged(
        ours=f"the fullest of {last} peers has {worst[last]:.2f} times K/N ({last * shares[last].low:.2f} to "
        f"{last * shares[last].high:.2f}, {shares[last].seeds} seeds)",
        verdict=verdict_of(max(worst.values()) <= EVEN, min(worst.values()) <= EVEN),
        why=f"1,000 keys; over all sizes {min(worst.values()):.2f} to {max(worst.values()):.2f}. Keys are spread "
        "evenly over the circle, peers are not: a random arc may be several times the mean. Ids at equal distances, or "
        "several ids a peer, make it true.",
    )


PASTRY_CLAIMS: Final = (
    PaperClaim(
        id="D16",
        place="section 2.2",
        says="Pastry routes a message in ⌈log N⌉ hops, to the base 2^b.",
        number="⌈log_{2^b} N⌉",
        judge=_judge_hops,
    ),
    PaperClaim(
        id="D17",
        place="section 2.2",
        says="That takes O(log N) state at a node.",
        number="O(log N)",
        judge=_judge_state,
    ),
    PaperClaim(
        id="D18",
        place="section 2.2",
        says="Of K keys each of N nodes stores K/N, with high probability.",
        number="K/N",
        judge=_judge_keys,
    ),
)


# -- bandwidth (section 7) ---------------------------------------------------------------------------------------------


def run_traffic(parameters: Parameters, seed: int) -> Metrics:
    """Measure simulated brokers on Pastry; MeetpointError where the judge finds anything wrong."""
    peers, events = int(parameters["peers"]), int(parameters["events"])
    shape = Zipf(width=0.05, held=8)
    made = generate(shape, int(parameters["subscriptions"]), events, seed)
    given = TrialInput(
        filters=tuple(text for _, text in filter_texts(made)), events=tuple(event_rows(made)), schema=shape.schema
    )
    costs, _ = measure_with_report(Trial(scheme="dmm", overlay="pastry", nodes=peers, seed=seed), given)
    if not costs.good:
        raise MeetpointError(f"dmm, seed {seed}: the network was wrong: {'; '.join(costs.problems)}")
    bringing = costs.event_by_purpose["events"]
    return {
        "bytes_per_event": bringing.bytes,
        "bytes_per_event_and_peer": bringing.bytes / peers,
        "messages_per_event": bringing.messages,
    }


def _judge_traffic(results: Results) -> Judged:
    sizes = [int(peers) for peers in results.distinct("traffic", "peers")]
    (few, all_few), (many, all_many) = (
        (
            results.spread("traffic", "bytes_per_event_and_peer", peers=peers),
            results.spread("traffic", "bytes_per_event", peers=peers),
        )
        for peers in (sizes[0], sizes[-1])
    )
    falls, rises = all_few.high < all_many.low, few.low > many.high
    return Judged(
        ours=f"{all_few.told(0)} bytes an event with {sizes[0]} peers, {all_many.told(0)} with {sizes[-1]}; "
        f"{few.told(0)} and {many.told(0)} for each peer",
        verdict=verdict_of(falls and rises, falls or rises),
        why="Bytes that find an event's leaf and notify its subscribers, on simulated brokers; what keeps a network "
        "up, and events safe, is left out. Between few peers more of the way is within a peer.",
    )


TRAFFIC_CLAIMS: Final = (
    PaperClaim(
        id="D21",
        place="section 7",
        says="The smaller the network, the less bandwidth matching takes in all, and the more load has each peer.",
        number="none given (preliminary results)",
        judge=_judge_traffic,
    ),
)
