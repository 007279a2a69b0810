"""The claims of paper C, judged by measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from meetpoint.lab.experiments.experiment import (
    Judged,
    NotMeasured,
    PaperClaim,
    Parameter,
    Results,
    SeedSpread,
    verdict_of,
)

NEAR = 0.1
"""The largest relative distance of a mean from its formula."""
GROWTH = 0.25
"""The largest growth of a value / log k, from the smallest size to the largest, that is O(log k)."""
EVEN = 1.5
"""The largest ratio of the busiest to the mean that still counts as evenly spread."""


def _sum(results: Results, part: str, metric: str) -> int:
    """Sum over all cells."""
    values = [row.value for row in results.rows if (row.part, row.metric) == (part, metric)]
    if not values:
        raise NotMeasured(f"{part}: {metric} was not measured")
    return round(sum(values))


def _sizes(results: Results, part: str, parameter: str = "nodes", **where: Parameter) -> list[int]:
    return [int(value) for value in results.distinct(part, parameter, **where)]


def _powers(sizes: Iterable[int]) -> list[int]:
    found = [size for size in sizes if size.bit_count() == 1]
    if not found:
        raise NotMeasured("no network with ids of one length was measured")
    return found


# -- ways --------------------------------------------------------------------------------------------------------------


def _exact_paths(results: Results) -> Judged:
    sizes = _sizes(results, "paths")
    even = _powers(sizes)
    off = sum(sum(results.by_seed("paths", "off_hamming", nodes=nodes).values()) for nodes in even)
    lookups = sum(sum(results.by_seed("paths", "lookups", nodes=nodes).values()) for nodes in even)
    above = _sum(results, "paths", "above_hamming")
    return Judged(
        ours=f"{off:,.0f} of {lookups:,.0f} lookups took another number of hops",
        verdict=verdict_of(off == 0 and above == 0),
        why=(
            f"Networks of {even[0]} to {even[-1]} nodes with ids of one length. With ids of different lengths a step "
            f"may put several bits right at once; {above} lookups took more hops than bits were wrong."
        ),
    )


def _mean_path(results: Results) -> Judged:
    nodes = _powers(_sizes(results, "paths"))[-1]
    found, spread = results.spread("paths", "hops", nodes=nodes), results.spread("paths", "hops_deviation", nodes=nodes)
    half = math.log2(nodes) / 2
    return Judged(
        ours=f"{found.told()} hops at {nodes} nodes, m / 2 = {half:g}",
        verdict=verdict_of(abs(found.median - half) <= NEAR * half),
        why=f"A lookup of a random key is half of m away; the deviation is {spread.median:.2f}, that of random bits "
        f"{math.sqrt(math.log2(nodes)) / 2:.2f}.",
    )


def _uneven_path(results: Results) -> Judged:
    sizes = [nodes for nodes in _sizes(results, "paths") if nodes.bit_count() > 1]
    if not sizes:
        raise NotMeasured("no network with ids of different lengths was measured")
    nodes = sizes[-1]
    found = results.spread("paths", "hops", nodes=nodes)
    lower, upper = math.floor(math.log2(nodes)) / 2, math.ceil(math.log2(nodes)) / 2
    return Judged(
        ours=f"{found.told()} hops at {nodes} nodes",
        verdict=verdict_of(lower * (1 - NEAR) <= found.median <= upper * (1 + NEAR)),
        why=f"It lies between m / 2 of the powers of two below and above, {lower:g} and {upper:g}.",
    )


def _registering(results: Results) -> Judged:
    nodes = _sizes(results, "paths")[-1]
    found, most = results.spread("paths", "hops", nodes=nodes), results.spread("paths", "hops_max", nodes=nodes)
    return Judged(
        ours=f"{found.told()} of {nodes} nodes, at most {most.high:.0f}",
        verdict=verdict_of(most.high <= math.ceil(math.log2(nodes)) + 1),
        why="A conjunction goes to the host of its id and nowhere else, as a lookup does; each conjunction of an OR by "
        "itself. The paper means n as the number of nodes here.",
    )


def _long_paths(results: Results) -> Judged:
    nodes = _sizes(results, "gaps")[-1]
    ratio = results.ratio("gaps", "hops_to_nodes", {"joins": "passed on"}, nodes=nodes, joins="anywhere")
    thin = results.ratio(
        "gaps", "hops_to_nodes_by_one_link_a_bit", {"joins": "passed on"}, nodes=nodes, joins="anywhere"
    )
    gaps, links = (
        {joins: results.spread("gaps", metric, nodes=nodes, joins=joins) for joins in ("passed on", "anywhere")}
        for metric in ("global_gap", "links_max")
    )
    return Judged(
        ours=f"{ratio.told()} times as many hops with a gap of {gaps['anywhere'].median:.0f} "
        f"as with one of {gaps['passed on'].median:.0f}, {nodes} nodes",
        verdict=verdict_of(ratio.median > 1, in_part=thin.median > 1),
        why=(
            "On the model. A node with a short id is next to everybody in a long stretch of ids: it knows up to "
            f"{links['anywhere'].median:.0f} nodes instead of {links['passed on'].median:.0f}, and ways over it are "
            f"short. A gap costs tables and balance. With one link for each bit ways are {thin.told()} times as "
            "long, as the paper has it; but its own rule links all nodes at Hamming distance one."
        ),
    )


# -- sends -------------------------------------------------------------------------------------------------------------


def _sends(results: Results) -> Judged:
    off, events = _sum(results, "sends", "off_formula"), _sum(results, "sends", "events")
    nodes = _sizes(results, "sends")[-1]
    bits = _sizes(results, "sends", "set_bits", nodes=nodes)[-1]
    found = results.spread("sends", "sends", nodes=nodes, set_bits=bits)
    return Judged(
        ours=f"2^b - 1 + l for all but {off} of {events:,} events; {found.told()} with b = {bits} and {nodes} nodes",
        verdict=verdict_of(off == 0),
        why="One less than printed: 2^b nodes have the event, and the first of them by the l hops. Ids of one length, "
        "nothing quenched or copied.",
    )


def _uneven_sends(results: Results) -> Judged:
    off, events = _sum(results, "uneven", "off_required"), _sum(results, "uneven", "events")
    sizes = _sizes(results, "uneven")
    return Judged(
        ours=f"required nodes - 1 + l for all but {off} of {events:,} events, {sizes[0]} to {sizes[-1]} nodes",
        verdict=verdict_of(False, in_part=off == 0),
        why="The formula is for ids of one length. With others b is not defined; what an event takes is a send for "
        "each node that hosts a subset, beyond the first, and l, which is at most the Hamming distance.",
    )


def _once(results: Results) -> Judged:
    twice, missed = (
        sum(_sum(results, part, metric) for part in ("sends", "uneven")) for metric in ("nodes_twice", "nodes_missed")
    )
    model = _sum(results, "printed", "missed_by_ours") + _sum(results, "printed", "twice_by_ours")
    events = _sum(results, "sends", "events") + _sum(results, "uneven", "events")
    return Judged(
        ours=f"{twice} nodes had an event twice, {missed} not at all, of {events:,} events",
        verdict=verdict_of(twice == missed == model == 0),
        why="The paper leaves the rule open. Ours fixes bits one after the other, in an order that a hash of the "
        f"message's id chooses; on tables of nodes that joined one by one it was off {model} times.",
    )


def _examples(results: Results) -> Judged:
    told, misses, ours = [], 0.0, True
    for event in results.distinct("examples", "event"):
        required, printed, reached, notified = (
            results.spread("examples", metric, event=event)
            for metric in ("nodes_required", "nodes_reached_printed", "nodes_reached", "notified")
        )
        told.append(f"{event}: {printed.median:.0f} of {required.median:.0f} nodes")
        misses += required.median - printed.median
        ours = ours and reached.low == required.high and notified.low == 1
    return Judged(
        ours="; ".join(told),
        verdict=verdict_of(misses == 0),
        why=(
            "The node without set bits is left out. It hosts 1000000, a subset of figure 2's event, and whoever wants "
            f"everything. In our network the event {'comes' if ours else 'does not come'} to all of them, and the "
            f"subscriber there {'is' if ours else 'is not'} notified. The figure's event has 7 bits, not n = 8."
        ),
    )


def _varying_lengths(results: Results) -> Judged:
    required, missed, examples = (
        _sum(results, "printed", name) for name in ("nodes_required", "missed_with_zero", "missed")
    )
    sizes = _sizes(results, "printed")
    even = _powers(sizes)
    at_even = sum(sum(results.by_seed("printed", "missed_with_zero", nodes=nodes).values()) for nodes in even)
    return Judged(
        ours=f"{missed:,} of {required:,} nodes missed ({missed / required:.1%}), {sizes[0]} to {sizes[-1]} nodes",
        verdict=verdict_of(missed == 0),
        why=(
            "A child is at Hamming distance one and has one set bit less: 11 is next to 101, which hosts subsets of "
            f"it, and is never its parent. {at_even:.0f} are missed where the nodes are a power of two. Without the "
            f"node of the empty suffix, as in the examples, it is {examples:,} ({examples / required:.1%}). It is true "
            "of a walk over regions, as ours is."
        ),
    )


# -- joins and leaves --------------------------------------------------------------------------------------------------


def _touched(results: Results, what: str) -> Judged:
    sizes = _sizes(results, "changes")
    least, most = (results.spread("changes", f"{what}_touched", nodes=nodes) for nodes in (sizes[0], sizes[-1]))
    if len(sizes) < 2:
        raise NotMeasured("changes: one size says nothing of growth")
    first, last = least.median / math.log2(sizes[0]), most.median / math.log2(sizes[-1])
    top = results.spread("changes", f"{what}_touched_max", nodes=sizes[-1])
    why = f"{first:.2f} log2 k at {sizes[0]} nodes, {last:.2f} log2 k at {sizes[-1]}, there {top.high:.0f} at most."
    if what == "leave":
        why += " In the paper the sibling takes over; here a leave is passed on as joins are, which moves two regions."
    return Judged(
        ours=f"{most.told(1)} nodes at {sizes[-1]}", verdict=verdict_of(last <= (1 + GROWTH) * first), why=why
    )


def _limit(results: Results) -> Judged:
    told, holds = [], True
    for attributes in _sizes(results, "full", "attributes"):
        nodes = _sizes(results, "full", attributes=attributes)[-1]
        hosting, members = (
            results.spread("full", metric, nodes=nodes, attributes=attributes) for metric in ("hosting", "members")
        )
        told.append(f"{hosting.told(0)} of {members.median:.0f} nodes host ids of {attributes} bits")
        holds = holds and hosting.high <= 2**attributes and members.low == nodes
    return Judged(
        ours="; ".join(told),
        verdict=verdict_of(holds),
        why="The paper says nothing of the next node. Here it stands by: it serves clients, and is the first to host a "
        "region that needs a host. Where few stand by, some may do so while an id could still be shared.",
    )


def _gap(results: Results) -> Judged:
    at_once = results.distinct("churn", "at_once")[-1]
    meanwhile, after, settled = (
        results.spread("churn", metric, at_once=at_once)
        for metric in ("global_gap_while", "global_gap_after", "settled_s")
    )
    return Judged(
        ours=f"{meanwhile.told(0)} bits while {at_once} leave and {at_once} come at once, {after.median:.0f} after",
        verdict=verdict_of(meanwhile.high <= 3 and after.high <= 2),
        why="The paper would let a node process few requests between heartbeats. Here regions are claimed with epochs, "
        f"and who is two bits shorter than a neighbour gives half away; all was ideal after {settled.median:.0f} s.",
    )


# -- load --------------------------------------------------------------------------------------------------------------


def _rendezvous(results: Results) -> Judged:
    roots, visits, share = (
        results.spread("load", metric, tree="by hash")
        for metric in ("rendezvous_top_to_mean", "visits_top_to_mean", "visits_of_busiest_share")
    )
    return Judged(
        ours=f"the busiest is the rendezvous {roots.told()} times as often as the mean",
        verdict=verdict_of(roots.high <= EVEN and visits.high <= EVEN, in_part=roots.high <= EVEN),
        why=f"Random ids of events fall evenly on nodes, within chance. But work is visits, not only rendezvous: the "
        f"node of the empty suffix has {share.median:.0%} of all events, {visits.median:.1f} times the mean.",
    )


def _trees(results: Results) -> Judged:
    hashed, one = (
        results.spread("load", "handed_on_by_busiest", tree=tree) for tree in ("by hash", "lowest bit first")
    )
    return Judged(
        ours=f"{hashed.told()} sends of the busiest node below the root, {one.told()} in one tree",
        verdict=verdict_of(hashed.high < one.low),
        why="The paper names the hash as a possible rule against duplicates; that it spreads the load is ours to say.",
    )


def _copies(results: Results) -> Judged:
    duties, messages = (
        results.ratio("copies", metric, {"copies": "uncopied"}, copies="copied")
        for metric in ("duties_busiest_per_event", "messages_per_event")
    )
    return Judged(
        ours=f"{duties.told()} of the duties at the busiest node, {messages.told()} of the messages",
        verdict=verdict_of(duties.high < 1),
        why="Most events have the same attributes. The root of their tree stays: what is published comes to it in any "
        "case. A copy says in its answer for whom it stood in, so that nothing is served twice or lost.",
    )


def _pushing(results: Results) -> Judged:
    entries, messages = (
        results.ratio("pushing", metric, {"pushing": "unpushed"}, pushing="pushed")
        for metric in ("entries_fullest", "messages_per_event")
    )
    return Judged(
        ours=f"{entries.told()} of the entries at the fullest node, {messages.told()} of the messages",
        verdict=verdict_of(entries.high < 1),
        why="Half of the subscriptions need the first two attributes. One id alone cannot be parted: where it is all "
        "that a node has, nothing is pushed.",
    )


def _quenching(results: Results) -> Judged:
    counts = _sizes(results, "quenching", "subscriptions")

    def saved(count: int) -> SeedSpread:
        over = {"quench": "unquenched"}
        return results.ratio("quenching", "messages_per_event", over, subscriptions=count, quench="quenched")

    few, many = saved(counts[0]), saved(counts[-1])
    return Judged(
        ours=f"{few.told()} of the messages with {counts[0]} subscriptions, {many.told()} with {counts[-1]}",
        verdict=verdict_of(few.high < 1 and many.high < 1, in_part=few.high < 1),
        why="It keeps events from where nothing is wanted, and one bit says little: a subscription wakes all nodes "
        "above its own, one without the attributes that choose nodes wakes all. Where nothing is idle, asking "
        "costs. The paper's bits are never taken back and race with publishing; ours are leases, which cost no match.",
    )


def _semantic(results: Results) -> Judged:
    found = {
        overlay: results.spread("overlays", "duties_per_event", overlay=overlay)
        for overlay in results.distinct("overlays", "overlay")
    }
    if "hypercube" not in found or len(found) < 2:
        raise NotMeasured("overlays: there is nothing to compare")
    cube = found.pop("hypercube")
    return Judged(
        ours=f"{cube.told(1)} messages an event on the hypercube; "
        + "; ".join(f"{spread.told(1)} on {overlay}" for overlay, spread in found.items()),
        verdict=verdict_of(all(cube.high < other.low for other in found.values())),
        why="The same duties, on the same subscriptions and events. On a ring an arc is several regions, and the next "
        "one is a route away; in a small Pastry network that is little more than a hop.",
    )


def _naming(results: Results) -> Judged:
    equalities = results.distinct("ids", "equalities")[-1]
    kinds = [str(ids) for ids in results.distinct("ids", "ids", equalities=equalities) if ids != "attributes"]
    if not kinds:
        raise NotMeasured("ids: no signatures were measured")
    sixteen = "signatures 16" if "signatures 16" in kinds else kinds[0]
    over = {"ids": "attributes"}
    messages = results.ratio("ids", "duties_per_event", over, ids=sixteen, equalities=equalities)
    fullest = results.ratio("ids", "fullest_share", over, ids=sixteen, equalities=equalities)
    return Judged(
        ours=f"{sixteen}: {messages.told()} of the messages, {fullest.told()} times the share at the fullest",
        verdict=verdict_of(fullest.median <= EVEN, in_part=True),
        why="The same network runs with ids that hash attributes and values, and its oracle finds nothing missed. But "
        "what it costs depends on them: values in ids save visits, and may spoil balance, as only the lowest bits "
        "choose a node.",
    )


CLAIMS: Final = (
    PaperClaim(
        id="C1",
        place="section 3.1",
        says="A message takes exactly as many hops as the Hamming distance.",
        number="Hamming distance",
        judge=_exact_paths,
    ),
    PaperClaim(
        id="C2",
        place="section 3.1",
        says="The average path of 2^m nodes is O(m).",
        number="O(m); random ids are m / 2 apart",
        judge=_mean_path,
    ),
    PaperClaim(
        id="C3",
        place="section 3.3",
        says="With ids of different lengths the average path is still O(log k), for k to 2k nodes.",
        number="O(log k)",
        judge=_uneven_path,
    ),
    PaperClaim(
        id="C4",
        place="section 3.2",
        says="An event takes 2^b + l messages, b its bits that choose nodes, l the hops to the rendezvous.",
        number="2^b + l",
        judge=_sends,
    ),
    PaperClaim(
        id="C5",
        place="sections 3.2 and 3.3",
        says="The same holds with ids of different lengths.",
        number="2^b + l",
        judge=_uneven_sends,
    ),
    PaperClaim(
        id="C6",
        place="section 3.2",
        says="A deterministic rule reaches every node that hosts subsets, and none twice.",
        number="exactly once",
        judge=_once,
    ),
    PaperClaim(
        id="C7",
        place="section 3.2, figure 2",
        says="Figure 2's tree, and that of event 1001, reach all nodes that host subsets.",
        number="7 nodes of event 1100111, 3 of 1001",
        judge=_examples,
    ),
    PaperClaim(
        id="C8",
        place="section 3.3",
        says="Dissemination goes on in exactly the same manner with ids of different lengths.",
        number="none given",
        judge=_varying_lengths,
    ),
    PaperClaim(
        id="C9",
        place="section 3.3",
        says="A join affects O(log k) nodes.",
        number="O(log k)",
        judge=lambda results: _touched(results, "join"),
    ),
    PaperClaim(
        id="C10",
        place="section 3.3",
        says="A leave affects O(log k) nodes.",
        number="O(log k)",
        judge=lambda results: _touched(results, "leave"),
    ),
    PaperClaim(
        id="C11",
        place="section 3.3",
        says="The network can grow to at most 2^n nodes.",
        number="2^n",
        judge=_limit,
    ),
    PaperClaim(
        id="C12",
        place="section 3.3",
        says="The global gap can be kept small although nodes join and leave at once.",
        number="none given",
        judge=_gap,
    ),
    PaperClaim(
        id="C13",
        place="section 3.3",
        says="Networks with a large global gap have longer average paths.",
        number="none given",
        judge=_long_paths,
    ),
    PaperClaim(
        id="C14",
        place="section 3.2",
        says="Without neighbours that are subsets, each subset needs a separate message over the overlay.",
        number="none given",
        judge=_semantic,
    ),
    PaperClaim(
        id="C15",
        place="section 3.2",
        says="A public hash of the message can choose who is responsible for common children.",
        number="none given",
        judge=_trees,
    ),
    PaperClaim(
        id="C16",
        place="section 4.1",
        says="How content becomes bits is independent of the architecture.",
        number="none given",
        judge=_naming,
    ),
    PaperClaim(
        id="C17",
        place="section 4.4",
        says="With random subscriptions and events the load is spread evenly over rendezvous nodes.",
        number="none given",
        judge=_rendezvous,
    ),
    PaperClaim(
        id="C18",
        place="section 4.4",
        says="Subscriptions copied up the tree relieve nodes with popular ids.",
        number="none given",
        judge=_copies,
    ),
    PaperClaim(
        id="C19",
        place="section 4.4",
        says="An overloaded node can push an id to one with less.",
        number="none given",
        judge=_pushing,
    ),
    PaperClaim(
        id="C20",
        place="section 4.5",
        says="Interest bits spare communication where nobody is interested.",
        number="none given",
        judge=_quenching,
    ),
    PaperClaim(
        id="C21",
        place="section 5.1",
        says="Registering a subscription is no broadcast: it traverses log(n) nodes.",
        number="log n",
        judge=_registering,
    ),
)
