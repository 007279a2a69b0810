"""The claims of paper E, judged by measurements. The paper has none of its own: its claims are proofs and words."""

from __future__ import annotations

from math import exp, log2

from meetpoint.lab.experiments.experiment import (
    Judged,
    NotMeasured,
    PaperClaim,
    Parameter,
    Results,
    SeedSpread,
    verdict_of,
)

MOST_TO_LOG = 1.6
"""The largest multiple of log2 N, at every N, that counts as O(log N). At the largest N it may exceed that at the
smallest only by `GROWTH`."""
GROWTH = 1.1
EVEN = 1.5
"""The largest ratio of the busiest member to the mean at which a load is even."""
FEWER = 0.5
"""The largest share of the rows at which a table is significantly smaller."""


def _sizes(results: Results, part: str, metric: str, **where: Parameter) -> list[int]:
    return [int(size) for size in results.distinct(part, "nodes", metric, **where)]


def _all(results: Results, part: str, metric: str, **where: Parameter) -> list[float]:
    """Return the values of all cells, whatever their sizes and seeds."""
    return [
        value
        for size in _sizes(results, part, metric, **where)
        for value in results.by_seed(part, metric, **where, nodes=size).values()
    ]


def _by_log(results: Results, part: str, metric: str, **where: Parameter) -> tuple[list[int], list[float]]:
    """Return sizes, and the median of a metric at each in multiples of log2 N; NotMeasured of one size."""
    sizes = _sizes(results, part, metric, **where)
    if len(sizes) < 2:
        raise NotMeasured(f"{part}: {metric} was measured at one size only")
    return sizes, [results.spread(part, metric, **where, nodes=size).median / log2(size) for size in sizes]


def _is_logarithmic(ratios: list[float]) -> bool:
    return max(ratios) <= MOST_TO_LOG and ratios[-1] <= GROWTH * ratios[0]


def _told_by_log(sizes: list[int], ratios: list[float]) -> str:
    return f"{ratios[0]:.2f} log2 N at {sizes[0]:,} members and {ratios[-1]:.2f} log2 N at {sizes[-1]:,}"


def _depth(results: Results) -> Judged:
    sizes, ratios = _by_log(results, "trees", "deepest", ids="hashed")
    deepest = results.spread("trees", "deepest", ids="hashed", nodes=sizes[-1])
    return Judged(
        ours=f"{deepest.told(0)} at {sizes[-1]:,} members",
        verdict=verdict_of(_is_logarithmic(ratios)),
        why=f"The deepest member of all trees lies at {_told_by_log(sizes, ratios)}, with hashed ids.",
    )


def _binomial(results: Results) -> Judged:
    even = _all(results, "trees", "off_binomial", ids="even")
    off = max(even)
    size = _sizes(results, "trees", "deepest", ids="hashed")[-1]
    hashed = results.spread("trees", "deepest", ids="hashed", nodes=size)
    return Judged(
        ours=f"{off:,.0f} members at another depth than in a binomial tree",
        verdict=verdict_of(off == 0),
        why=f"Of 2^k members at equal distances, of every size. With hashed ids trees are of the same kind, not the "
        f"same: the deepest at {size:,} members is {hashed.told(0)}, where a binomial tree has {log2(size):.0f}.",
    )


def _once(results: Results) -> Judged:
    kinds = ("even", "hashed")
    model = [value for ids in kinds for value in _all(results, "trees", "reached_twice", ids=ids)]
    never = sum(sum(_all(results, "trees", "never_reached", ids=ids)) for ids in kinds)
    running = _of_updates(results, "reached_twice")
    twice = sum(model) + sum(running)
    return Judged(
        ours=f"{twice:,.0f} reached twice, {never:,.0f} never",
        verdict=verdict_of(twice == 0 and never == 0),
        why=f"In {len(model)} graphs of the model from several roots each, and in {len(running)} running networks at "
        "rest. In times of change an event may come to a broker again; what reaches subscribers is told apart.",
    )


def _of_updates(results: Results, metric: str) -> list[float]:
    return [
        value
        for strategy in results.distinct("updates", "strategy", metric)
        for count in results.distinct("updates", "subscriptions", metric, strategy=strategy)
        for value in results.by_seed("updates", metric, strategy=strategy, subscriptions=count).values()
    ]


def _edges_out(results: Results) -> Judged:
    sizes, ratios = _by_log(results, "trees", "edges_out_most", ids="hashed")
    most = results.spread("trees", "edges_out_most", ids="hashed", nodes=sizes[-1])
    return Judged(
        ours=f"{most.told(0)} at {sizes[-1]:,} members",
        verdict=verdict_of(_is_logarithmic(ratios)),
        why=f"The member with the most has {_told_by_log(sizes, ratios)}.",
    )


def _edges_in(results: Results) -> Judged:
    sizes, ratios = _by_log(results, "trees", "edges_in_most", ids="hashed")
    most = results.spread("trees", "edges_in_most", ids="hashed", nodes=sizes[-1])
    least = results.spread("trees", "edges_in_least", ids="hashed", nodes=sizes[-1])
    even = results.spread("trees", "edges_in_most", ids="even", nodes=sizes[-1])
    return Judged(
        ours=f"{least.median:.0f} to {most.told(0)} at {sizes[-1]:,} members",
        verdict=verdict_of(_is_logarithmic(ratios)),
        why=f"With hashed ids the most are {_told_by_log(sizes, ratios)}: who follows a long gap is the edge of many. "
        f"At equal distances it is so: {even.median:.0f} each. Only the mean is log2 N whatever the ids are.",
    )


def _even_load(results: Results) -> Judged:
    size = _sizes(results, "load", "busiest_to_mean", ids="hashed")[-1]
    hashed = results.spread("load", "busiest_to_mean", ids="hashed", nodes=size)
    even = results.spread("load", "busiest_to_mean", ids="even", nodes=size)
    one = results.spread("load", "one_tree_busiest_to_mean", ids="hashed", nodes=size)
    is_better = hashed.high < one.low
    return Judged(
        ours=f"busiest to mean {hashed.told()} at {size:,} members",
        verdict=verdict_of(hashed.median <= EVEN, even.median <= EVEN and is_better),
        why=f"Everybody publishes once, to all. At equal distances it is {even.told()}; with hashed ids who follows a "
        f"long gap hands more on, though less than the busiest of one tree for all, {one.told()}. Ids at equal "
        "distances make it true.",
    )


def _attenuated(results: Results) -> Judged:
    count = results.distinct("updates", "subscriptions", "sends_per_event", strategy="covering")[-1]
    sends = results.spread("updates", "sends_per_event", strategy="covering", subscriptions=count)
    nothing = results.spread("updates", "for_nothing", strategy="covering", subscriptions=count)
    nodes = int(results.distinct("updates", "nodes", "sends_per_event")[-1])
    return Judged(
        ours=f"{sends.told()} messages an event of {nodes - 1} to all, {nothing.told(3)} of them for nothing",
        verdict=verdict_of(nothing.median < 0.01, sends.median < FEWER * (nodes - 1)),
        why=f"Our workload ({count} subscriptions for topics and prices), as the paper has none. That some go for "
        "nothing although filters are exact is the graph's: one filter stands for all that an edge may answer for, and "
        "within a range it answers for less. A filter for each range would make it true.",
    )


def _growth(results: Results, strategy: str, metric: str) -> tuple[int, int, float]:
    """Return the least and the largest number of subscriptions, and the ratio of a metric between them."""
    counts = [int(count) for count in results.distinct("updates", "subscriptions", metric, strategy=strategy)]
    if len(counts) < 2:
        raise NotMeasured("updates: there is only one number of subscriptions")
    first, last = (
        results.spread("updates", metric, strategy=strategy, subscriptions=count).median
        for count in (counts[0], counts[-1])
    )
    return counts[0], counts[-1], last / first


def _linear(results: Results) -> Judged:
    few, many, grown = _growth(results, "simple", "rows_per_edge")
    rows = results.spread("updates", "rows_per_edge", strategy="simple", subscriptions=many)
    share = grown / (many / few)
    return Judged(
        ours=f"{rows.told(1)} rows an edge with {many} subscriptions",
        verdict=verdict_of(0.8 <= share <= 1.25),
        why=f"{many / few:g} times the subscriptions have {grown:.2f} times the rows.",
    )


def _fewer_rows(results: Results, than: str, strategy: str) -> tuple[int, SeedSpread]:
    count = int(results.distinct("updates", "subscriptions", "rows_per_edge", strategy=strategy)[-1])
    where: dict[str, Parameter] = {"strategy": strategy, "subscriptions": count}
    return count, results.ratio("updates", "rows_per_edge", {"strategy": than}, **where)


def _covering(results: Results) -> Judged:
    count, ratio = _fewer_rows(results, "simple", "covering")
    _, to_identity = _fewer_rows(results, "identity", "covering")
    return Judged(
        ours=f"{ratio.told()} of the rows of simple routing, with {count} subscriptions",
        verdict=verdict_of(ratio.median <= FEWER, ratio.median < 1),
        why=f"Our workload, in which many ask for the same topics; {to_identity.told()} of the rows that are left when "
        "equal ones are one. Where no filter covers another, covering saves nothing.",
    )


def _identity(results: Results) -> Judged:
    count, rows = _fewer_rows(results, "simple", "identity")
    updates = results.ratio(
        "updates", "updates_per_subscription", {"strategy": "simple"}, strategy="identity", subscriptions=count
    )
    return Judged(
        ours=f"{rows.told()} of the rows of simple routing, with {count} subscriptions",
        verdict=verdict_of(rows.high < 1),
        why=f"Updates are {updates.told()} of those of simple routing. How much it is depends on how many ask for the "
        "same: here 40 topics, and prices that are seldom equal.",
    )


def _covered(results: Results) -> Judged:
    few, many, grown = _growth(results, "covering", "updates_per_subscription")
    ratio = results.ratio(
        "updates", "updates_per_subscription", {"strategy": "simple"}, strategy="covering", subscriptions=many
    )
    ours = results.spread("updates", "updates_per_subscription", strategy="covering", subscriptions=many)
    return Judged(
        ours=f"{ours.told()} updates a subscription with {many}, {ratio.told()} of those of simple routing",
        verdict=verdict_of(ratio.median <= FEWER and grown < 1, ratio.median < 1),
        why=f"From {few} to {many} subscriptions it is {grown:.2f} times as many: the more is wanted, the more is "
        "covered. Whoever is told also acknowledges, which the paper does not have.",
    )


def _merging(results: Results) -> Judged:
    count, rows = _fewer_rows(results, "covering", "merging")
    where: dict[str, Parameter] = {"strategy": "merging", "subscriptions": count}
    updates = results.ratio("updates", "updates_per_subscription", {"strategy": "covering"}, **where)
    nothing = [
        results.spread("updates", "for_nothing", strategy=strategy, subscriptions=count).median
        for strategy in ("merging", "covering")
    ]
    return Judged(
        ours=f"{rows.told()} of the rows of covering, with {count} subscriptions",
        verdict=verdict_of(rows.median < 1 and abs(nothing[0] - nothing[1]) < 0.005, rows.median < 1),
        why=f"And perfect: {nothing[0]:.1%} of messages go for nothing, with covering {nothing[1]:.1%}. Updates are "
        f"{updates.told()} of those of covering: a row that grows has to be told like a new one.",
    )


def _imperfect(results: Results) -> Judged:
    count, rows = _fewer_rows(results, "merging", "imperfect")
    where: dict[str, Parameter] = {"strategy": "imperfect", "subscriptions": count}
    updates = results.ratio("updates", "updates_per_subscription", {"strategy": "merging"}, **where)
    sends = results.ratio("updates", "sends_per_event", {"strategy": "merging"}, **where)
    return Judged(
        ours=f"{sends.told()} times the messages with events, {updates.told()} of the updates of perfect merging",
        verdict=verdict_of(sends.median > 1 and updates.median < 1, sends.median > 1 or updates.median < 1),
        why=f"{count} subscriptions; {rows.told()} of the rows. Each edge may let a tenth through for nothing, by its "
        "own sample of events; along a way that adds up. Where to draw the line the paper leaves open.",
    )


def _steps(results: Results) -> Judged:
    sizes, ratios = _by_log(results, "steps", "steps_most")
    updates = results.spread("steps", "updates_per_subscription", nodes=sizes[-1])
    return Judged(
        ours=f"{results.spread('steps', 'steps_most', nodes=sizes[-1]).told(0)} at {sizes[-1]:,} members",
        verdict=verdict_of(_is_logarithmic(ratios)),
        why=f"The longest way of an update is {_told_by_log(sizes, ratios)}. It ends at every member, though: a "
        f"subscription that nobody else has takes {updates.told(0)} updates there.",
    )


def _unsubscribing(results: Results) -> Judged:
    ended = results.distinct("unsubscribing", "ended", "rows_left", rule="printed")[-1]
    where: dict[str, Parameter] = {"rule": "printed", "ended": ended}
    printed = SeedSpread.of(
        left / full
        for left, full in zip(
            results.by_seed("unsubscribing", "rows_left", **where).values(),
            results.by_seed("unsubscribing", "rows_full", **where).values(),
            strict=True,
        )
    )
    ours = results.spread("unsubscribing", "rows_left", rule="corrected", ended=ended)
    sends = results.spread("unsubscribing", "sends_per_event", rule="printed", ended=ended)
    running = max(_of_updates(results, "rows_left"))
    return Judged(
        ours=f"as printed {printed.told()} of all rows are left when {float(ended):.0%} of subscriptions have ended",
        verdict=verdict_of(printed.median < 1),
        why=f"A smaller filter is covered by the one that is there, and whoever leaves that as it is, as section 4.4 "
        f"allows, never shrinks it: an event still takes {sends.told()} messages. Numbered whole tables that replace "
        f"what was there make it true: {ours.told(1)} rows an edge are left, and {running:.0f} in running networks.",
    )


def _notices(results: Results) -> Judged:
    sizes, ratios = _by_log(results, "notices", "location_most", ids="hashed")
    location = results.spread("notices", "location_mean", ids="hashed", nodes=sizes[-1])
    joins, join_ratios = _by_log(results, "notices", "join_mean", ids="hashed")
    join = results.spread("notices", "join_mean", ids="hashed", nodes=joins[-1])
    targets = results.spread("notices", "join_for", ids="hashed", nodes=joins[-1])
    return Judged(
        ours=f"node-location {location.told()}, node-join {join.told(1)} messages at {sizes[-1]:,} members",
        verdict=verdict_of(_is_logarithmic(ratios) and _is_logarithmic(join_ratios), _is_logarithmic(ratios)),
        why=f"A node-location takes {_told_by_log(sizes, ratios)} at most. A node-join is for {targets.median:.1f} "
        f"members and takes {_told_by_log(joins, join_ratios)} on average, as with hashed ids these lie scattered; at "
        "equal distances it takes as many messages as it is for members.",
    )


def _edge_failures(results: Results) -> Judged:
    size = _sizes(results, "trees", "edges_in_least", ids="hashed")[-1]
    where: dict[str, Parameter] = {"ids": "hashed", "nodes": size}
    least = results.spread("trees", "edges_in_least", **where)
    reserved = results.spread("trees", "known_by_least", **where)
    enough = log2(size)
    return Judged(
        ours=f"{least.told(0)} failed edges cut a member off, with the reserve {reserved.told(0)}",
        verdict=verdict_of(least.low >= enough, reserved.low >= enough),
        why=f"At {size:,} members log2 N - 1 is {enough - 1:.0f}. The edges that events use do not bear that; with the "
        "log2 N in reserve that the same paper keeps, as edges for retransmission, they do.",
    )


def _half(results: Results) -> Judged:
    sizes = _sizes(results, "survival", "whole_alone", per_level=1)
    size = sizes[-1]
    paper = results.spread("survival", "whole_alone", per_level=1, nodes=size)
    twice = SeedSpread.of(_all(results, "survival", "whole_alone", per_level=2))
    repaired = SeedSpread.of(_all(results, "survival", "whole_repaired", per_level=1))
    return Judged(
        ours=f"{paper.median:.1%} of the rings ({paper.low:.1%} to {paper.high:.1%}, {paper.seeds} seeds) are whole at "
        f"{size:,} members",
        verdict=verdict_of(paper.median >= 0.99, repaired.median >= 0.99),
        why=f"With log2 N in reserve, by reserves alone; e^-½ is {exp(-0.5):.1%}. Twice as many make it true "
        f"({twice.low:.2%} to {twice.high:.2%}, over all sizes), and so does repair by fingers and incoming edges: "
        f"{repaired.low:.1%} to {repaired.high:.1%} are whole then.",
    )


def _half_running(results: Results) -> Judged:
    nodes = _sizes(results, "halves", "missed", per_level=2)[-1]
    where: dict[str, Parameter] = {"per_level": 2, "nodes": nodes}
    missed = sum(_all(results, "halves", "missed", per_level=2) + _all(results, "halves", "missed", per_level=1))
    expected = sum(_all(results, "halves", "expected", per_level=2) + _all(results, "halves", "expected", per_level=1))
    whole = results.spread("halves", "whole_s", **where)
    repaired = min(_all(results, "halves", "whole_repaired", per_level=2))
    waited = results.spread("halves", "waited_share", **where)
    longest = results.spread("halves", "longest_wait_s", **where)
    return Judged(
        ours=f"{missed:,.0f} of {expected:,.0f} notifications missed; the ring whole after {whole.told(1)} s",
        verdict=verdict_of(missed == 0 and repaired == 1, missed == 0),
        why=f"{nodes} brokers and fewer, of which half crash; the others publish from the first second on. "
        f"{waited.median:.0%} of notifications come later than a second, the longest after {longest.told(1)} s: an "
        "attempt that meets a silent broker begins anew after a while, and later events of the same publisher keep "
        "their order. When the crashed are back everything has come to everybody, once.",
    )


CLAIMS = (
    PaperClaim(
        id="E1",
        place="abstract, sections 4.3 and 8",
        says="The way of a notification is at most O(log N) messages long.",
        number="O(log N)",
        judge=_depth,
    ),
    PaperClaim(
        id="E2",
        place="section 4.3, figure 7",
        says="On 2^k nodes at equal distances every tree is binomial.",
        number="depth k",
        judge=_binomial,
    ),
    PaperClaim(
        id="E3",
        place="section 4.3",
        says="No node receives a notification twice, and every node that wants it receives it.",
        number="0",
        judge=_once,
    ),
    PaperClaim(
        id="E4",
        place="section 4.1",
        says="Edges that leave a node are O(log N).",
        number="O(log N)",
        judge=_edges_out,
    ),
    PaperClaim(
        id="E5",
        place="section 4.1",
        says="Edges that enter a node are O(log N).",
        number="O(log N)",
        judge=_edges_in,
    ),
    PaperClaim(
        id="E6",
        place="sections 1 and 8",
        says="A tree for each node distributes the load equally.",
        number="none given",
        judge=_even_load,
    ),
    PaperClaim(
        id="E7",
        place="sections 2.1 and 3.2",
        says="Filters direct notifications to interested nodes only; broadcasts are heavily attenuated.",
        number="none given",
        judge=_attenuated,
    ),
    PaperClaim(
        id="E8",
        place="section 2.1",
        says="With simple routing tables grow linearly with the number of subscriptions.",
        number="linear",
        judge=_linear,
    ),
    PaperClaim(
        id="E9",
        place="section 2.1",
        says="Covering makes tables significantly smaller.",
        number="none given",
        judge=_covering,
    ),
    PaperClaim(
        id="E10",
        place="sections 3.2 and 4.4",
        says="Filter updates are attenuated by covering: one that is covered goes no further.",
        number="none given",
        judge=_covered,
    ),
    PaperClaim(
        id="E11",
        place="section 2.1",
        says="Perfect merging makes tables smaller still, and lets nothing else through.",
        number="none given",
        judge=_merging,
    ),
    PaperClaim(
        id="E12",
        place="section 2.1",
        says="Imperfect merging makes for more notifications and fewer updates.",
        number="none given",
        judge=_imperfect,
    ),
    PaperClaim(
        id="E13",
        place="section 4.4",
        says="An update ends after O(log N) steps.",
        number="O(log N)",
        judge=_steps,
    ),
    PaperClaim(
        id="E14",
        place="section 4.4",
        says="Unsubscribing works by the same procedure as subscribing.",
        number="none given",
        judge=_unsubscribing,
    ),
    PaperClaim(
        id="E15",
        place="section 5.1",
        says="Notifications of maintenance are routed in O(log N) messages.",
        number="O(log N)",
        judge=_notices,
    ),
    PaperClaim(
        id="E16",
        place="section 5",
        says="By retransmission everybody can be reached under any log N - 1 failures of edges.",
        number="log N - 1",
        judge=_edge_failures,
    ),
    PaperClaim(
        id="E17",
        place="sections 5.1 and 8",
        says="With log N neighbours in reserve the network survives when half of its nodes fail at once.",
        number="none given",
        judge=_half,
    ),
    PaperClaim(
        id="E18",
        place="sections 5.1, 5.2 and 8",
        says="After such a failure graph and filters are restored, and delivery is right.",
        number="none given",
        judge=_half_running,
    ),
    PaperClaim(
        id="E19",
        place="section 2.1",
        says="To combine filters that are equal is a first improvement.",
        number="none given",
        judge=_identity,
    ),
)
