"""The claims of paper B, judged by measurements.

Figures 9 to 11 depend on choices that the paper leaves open, the number of attributes and the constraints, and on
whether impossible matches are pruned. So each is judged for every schema that was run, corrected and as printed. It is
reproduced if it holds for all of them, in part if for some.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Final, NamedTuple

from meetpoint.lab.experiments.experiment import (
    Judged,
    NotMeasured,
    PaperClaim,
    Parameter,
    Results,
    SeedSpread,
    Verdict,
)
from meetpoint.schemes.lists.collection import CollectionMode

SLIGHTLY: Final = 1.25
"""The largest ratio that is slightly or marginally more."""
CONSIDERABLY: Final = 1.5
"""The least ratio that is considerably more."""
TIE: Final = 0.99
"""From this ratio on, sending less is no better."""
BALANCED: Final = 1.07
BALANCED_MAX: Final = 1.08
"""The largest ratio of the largest to the smallest load that reproduces the paper's."""
NEAR: Final = 0.1
"""The largest relative distance of the measured crossover from the rule's; one home is never too far."""
_LAST_STEP: Final = 0.8
"""Hops of a lookup beyond ½ log2 N."""

_OPEN: Final = (
    "The paper gives no schema. With fewer attributes lists are longer, so that filtering them on the way, as hybrid "
    "does, saves more. Where prefixes and suffixes are asked for too, a group's lists lie at many nodes and are sent "
    "to its leader before they are filtered, which costs hybrid and distributed one more sending. As printed, what "
    "declares an attribute that the event lacks is sent along to the end."
)

_CO, _DI, _HY = (str(mode) for mode in (CollectionMode.COORDINATED, CollectionMode.DISTRIBUTED, CollectionMode.HYBRID))


def _verdict(holds: int, of: int) -> Verdict:
    return "reproduced" if holds == of else "in part" if holds else "not reproduced"


# -- figures 9 to 11 ---------------------------------------------------------------------------------------------------


class _Schema(NamedTuple):
    """A reading of the choices that the paper leaves open, for one figure."""

    results: Results
    figure: int
    version: str
    attributes: Parameter
    constraints: Parameter

    @property
    def told(self) -> str:
        version = "as printed" if self.version == "printed" else self.version
        return f"{version}, {self.attributes} attributes, {self.constraints}"

    @property
    def where(self) -> dict[str, Parameter]:
        return {"figure": self.figure, "attributes": self.attributes, "constraints": self.constraints}

    @property
    def thetas(self) -> list[Parameter]:
        return self.results.distinct("traffic", "theta", **self.where)

    def ratio(self, mode: str, to: str, theta: Parameter) -> SeedSpread:
        """Return the SubIDs that one mode sends to those of another, seed by seed."""
        ours, theirs = (
            self.results.by_seed("traffic", f"{self.version}_{each}_subids", theta=theta, **self.where)
            for each in (mode, to)
        )
        return SeedSpread.of(ours[seed] / theirs[seed] for seed in ours if theirs.get(seed))

    def range(self, mode: str, to: str) -> tuple[float, float]:
        """Return the least and the largest median over all θ."""
        medians = [self.ratio(mode, to, theta).median for theta in self.thetas]
        return min(medians), max(medians)


def _schemas(results: Results, figure: int) -> list[_Schema]:
    attributes, constraints = (
        results.distinct("traffic", name, figure=figure) for name in ("attributes", "constraints")
    )
    return [
        _Schema(results, figure, version, *each)
        for version, *each in product(("corrected", "printed"), attributes, constraints)
    ]


def _span(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}"


class _SchemaSummary(NamedTuple):
    """Whether a claim holds, schema by schema."""

    verdict: Verdict
    text: str
    where: str


def _over_schemas(results: Results, figure: int, tell: Callable[[_Schema], tuple[bool, str]]) -> _SchemaSummary:
    """Judge each schema, and list those where the claim holds."""
    told = [(schema.told, *tell(schema)) for schema in _schemas(results, figure)]
    holding = [name for name, holds, _ in told if holds]
    return _SchemaSummary(
        _verdict(len(holding), len(told)),
        "; ".join(f"{name}: {words}" for name, _, words in told),
        f"It holds where: {'; '.join(holding)}." if holding else "It holds for no schema.",
    )


def _seeds(results: Results) -> str:
    count = len({row.seed for row in results.rows if row.part == "traffic"})
    return f"{count} seed{'s' if count > 1 else ''}"


def _figure_9(results: Results) -> Judged:
    def tell(schema: _Schema) -> tuple[bool, str]:
        hybrid, distributed = schema.range(_HY, _CO), schema.range(_DI, _CO)
        holds = hybrid[0] >= TIE and hybrid[1] <= SLIGHTLY and distributed[0] >= CONSIDERABLY
        return holds, f"hybrid {_span(*hybrid)}, distributed {_span(*distributed)}"

    told = _over_schemas(results, 9, tell)
    return Judged(
        ours=f"times what coordinated sends, medians over θ ({_seeds(results)}): {told.text}",
        verdict=told.verdict,
        why=f"{told.where} Slightly is at most {SLIGHTLY} times as much, considerably at least {CONSIDERABLY}. {_OPEN}",
    )


def _figure_10(results: Results) -> Judged:
    def tell(schema: _Schema) -> tuple[bool, str]:
        hybrid = schema.range(_HY, _CO)
        last = schema.ratio(_HY, _CO, schema.thetas[-1])
        return hybrid[0] >= TIE and hybrid[1] <= SLIGHTLY, f"{_span(*hybrid)}, at the largest θ {last.told()}"

    told = _over_schemas(results, 10, tell)
    return Judged(
        ours=f"hybrid to coordinated, medians over θ: {told.text}",
        verdict=told.verdict,
        why=f"{told.where} Marginally better is a ratio of {TIE} to {SLIGHTLY} at every θ. {_OPEN}",
    )


def _figure_11(results: Results) -> Judged:
    def tell(schema: _Schema) -> tuple[bool, str]:
        first = schema.ratio(_HY, _CO, schema.thetas[0])
        return first.median < TIE, first.told()

    told = _over_schemas(results, 11, tell)
    return Judged(
        ours=f"hybrid to coordinated at the least θ: {told.text}",
        verdict=told.verdict,
        why=(
            f"{told.where} Below 1 hybrid sends less. Popular attributes with uniform values return short lists, and "
            f"where they are asked first, these filter the long lists of the others. {_OPEN}"
        ),
    )


def _convergence(results: Results) -> Judged:
    ends: list[tuple[float, float]] = []

    def tell(schema: _Schema) -> tuple[bool, str]:
        first, last = (_apart(schema, theta) for theta in (schema.thetas[0], schema.thetas[-1]))
        ends.append((first, last))
        return last <= SLIGHTLY, f"{first:.2f} at the least θ, {last:.2f} at the largest"

    told = _over_schemas(results, 11, tell)
    nearer = sum(last < first for first, last in ends)
    return Judged(
        ours=f"most to least of the three modes: {told.text}",
        verdict="in part" if nearer and told.verdict == "not reproduced" else told.verdict,
        why=(
            f"{told.where} The same is taken as at most {SLIGHTLY} times. In {nearer} of {len(ends)} schemas the modes "
            "come nearer to each other as θ grows, since events have fewer attributes then. With several, distributed "
            "still sends from group to group what has matched already."
        ),
    )


def _apart(schema: _Schema, theta: Parameter) -> float:
    """Return the ratio of the mode that sends most to the one that sends least."""
    ratios = [schema.ratio(mode, _CO, theta).median for mode in (_CO, _DI, _HY)]
    return max(ratios) / min(ratios)


# -- lookups and hops --------------------------------------------------------------------------------------------------


def _lookups(results: Results) -> Judged:
    formulas: dict[str, Callable[[int], int]] = {_CO: lambda k: 2 * k, _DI: lambda k: k + 1, _HY: lambda k: 2 * k}
    sizes = [int(size) for size in results.distinct("lookups", "attributes")]
    off = sum(
        value != formula(size)
        for mode, formula in formulas.items()
        for size in sizes
        for value in results.by_seed("lookups", f"{mode}_lookups", attributes=size).values()
    )
    most = sizes[-1]
    counted = {mode: results.spread("lookups", f"{mode}_lookups", attributes=most) for mode in formulas}
    live = _live_lookups(results)
    return Judged(
        ours=f"at k = {most}: " + ", ".join(f"{mode} {found.median:.0f}" for mode, found in counted.items()) + live,
        verdict="not reproduced" if off else "reproduced",
        why=(
            "With one node an attribute, k nodes in all. A string has many nodes, and each of a group is asked and "
            "answers: then the three hardly differ, since distributed saves one lookup an attribute only."
        ),
    )


def _live_lookups(results: Results) -> str:
    try:
        attributes = results.distinct("traffic", "attributes", figure=9, constraints="mixed")[-1]
        theta = results.distinct("traffic", "theta", figure=9, constraints="mixed")[0]
        found = {
            mode: results.spread(
                "traffic",
                f"corrected_{mode}_lookups",
                figure=9,
                constraints="mixed",
                attributes=attributes,
                theta=theta,
            )
            for mode in (_CO, _DI, _HY)
        }
    except NotMeasured:
        return ""
    return "; an event with strings: " + ", ".join(f"{mode} {each.median:.0f}" for mode, each in found.items())


def _keys(results: Results) -> Judged:
    lengths = [int(length) for length in results.distinct("keys", "length")]
    printed, distinct, live = (
        {length: results.spread("keys", metric, length=length).median for length in lengths}
        for metric in ("printed_lookups", "distinct_keys", "corrected_lookups")
    )
    as_told = all(printed[length] == 1 + 2 * length for length in lengths)
    longest = lengths[-1]
    return Judged(
        ours=f"{printed[longest]:.0f} for {longest} characters, {distinct[longest]:.0f} distinct",
        verdict="reproduced" if as_told else "not reproduced",
        why=(
            f"2l - 1 keys are enough, since the whole value is its own longest prefix and suffix: "
            f"{'so for every length' if all(distinct[n] == 2 * n - 1 for n in lengths) else 'not for every length'}. "
            f"What brokers run asks {live[longest]:.0f} times for {longest} characters: at these keys, at one for "
            "substrings, and at one for what needs no attribute."
        ),
    )


def _crossover(results: Results) -> Judged:
    sizes = [int(size) for size in results.distinct("crossover", "nodes")]
    told, near = [], 0
    for nodes in sizes:
        measured, rule = (results.spread("crossover", f"{each}_homes", nodes=nodes) for each in ("measured", "rule"))
        near += abs(measured.median - rule.median) <= max(1, NEAR * rule.median)
        told.append(f"N = {nodes}: {measured.median:.0f}, by the rule {rule.median:.0f}")
    largest = results.spread("crossover", "hops", nodes=sizes[-1])
    return Judged(
        ours="; ".join(told),
        verdict=_verdict(near, len(sizes)),
        why=(
            f"From so many homes on the walk takes no more hops. A message to a home takes {largest.told()} hops at "
            f"{sizes[-1]} brokers, ½ log2 N is {math.log2(sizes[-1]) / 2:.1f}. The paper counts SubIDs; a home with "
            "several is contacted once here."
        ),
    )


def _against_flooding(results: Results) -> Judged:
    where: dict[str, Parameter] = {"figure": 9, "constraints": "mixed"}
    attributes = results.distinct("traffic", "attributes", **where)[-1]
    theta = results.distinct("traffic", "theta", **where)[0]
    where |= {"attributes": attributes, "theta": theta}
    nodes = int(results.distinct("traffic", "nodes", **where)[-1])
    sent = {
        version: results.spread("traffic", f"{version}_{_CO}_messages", **where) for version in ("printed", "corrected")
    }
    asked = results.spread("traffic", f"printed_{_CO}_lookups", **where).median / 2
    enough = next(size for size in _powers() if asked * (math.log2(size) / 2 + _LAST_STEP + 1) < size)
    return Judged(
        ours=f"{sent['printed'].told(0)} messages an event as printed, {sent['corrected'].told(0)} corrected, with "
        f"{nodes} brokers; one to each broker is {nodes - 1}",
        verdict="reproduced" if sent["printed"].median < nodes - 1 else "not reproduced",
        why=(
            f"An event asks {asked:.0f} times, whether anyone subscribed or not, each time ½ log2 N hops and an "
            f"answer: less than N only from about {enough:,} brokers on. It grows with log N, as the paper says."
        ),
    )


def _powers() -> Iterator[int]:
    return (1 << exponent for exponent in range(4, 64))


# -- balance, faults ---------------------------------------------------------------------------------------------------


def _balance(results: Results) -> Judged:
    entries = [int(count) for count in results.distinct("balance", "entries", theta=0.5)]
    spaced = {
        count: results.spread("balance", "max_to_min", ids="spaced", entries=count, theta=0.5) for count in entries
    }
    hashed = results.spread("balance", "max_to_min", ids="hashed", entries=entries[-1], theta=0.5)
    told = "; ".join(f"{count:,} entries {spread.told()}" for count, spread in spaced.items())
    reached = [count for count in entries if spaced[count].median <= BALANCED_MAX]
    return Judged(
        ours=f"evenly spaced ids: {told}; hashed ids: {entries[-1]:,} entries {hashed.told(0)}",
        verdict=_verdict(bool(reached) + (hashed.median <= BALANCED_MAX), 2),
        why=(
            f"128 brokers, θ of values 0.5. {BALANCED} is reached with evenly spaced ids"
            + (f" and {reached[0]:,} entries" if reached else f" in no case: {entries[-1]:,} entries are too few")
            + ". The paper gives neither the placement nor the number of entries. Ids are hashes in every network that "
            "nodes join by themselves: then arcs differ by far more than loads."
        ),
    )


def _faults(results: Results) -> Judged:
    where: dict[str, Parameter] = {"figure": 9, "constraints": "mixed"}
    attributes = results.distinct("traffic", "attributes", **where)[-1]
    theta = results.distinct("traffic", "theta", **where)[0]
    where |= {"attributes": attributes, "theta": theta}
    found = {
        (mode, what): results.spread("traffic", f"printed_{mode}_{what}", **where)
        for mode in (_CO, _DI, _HY)
        for what in ("spurious", "missing")
    }
    matches = results.spread("traffic", "matches", **where)
    wrong = sum(spread.high for spread in found.values())
    told = ", ".join(f"{mode} {found[mode, 'spurious'].told()}" for mode in (_CO, _DI, _HY))
    missing = max(found[mode, "missing"].high for mode in (_CO, _DI, _HY))
    return Judged(
        ours=f"an event reaches wrongly, subscriptions: {told}; of {matches.told()} true matches {missing:.2f} missed",
        verdict="not reproduced" if wrong else "reproduced",
        why=(
            f"{attributes} attributes, the least θ. Half of an affix counts as the whole in every mode, halves that "
            "overlap too; distributed and hybrid never drop what declares an attribute that the event lacks. This "
            "workload has one constraint an attribute and no empty prefix: what the paper misses (a value and a prefix "
            "at once, `*` alone) is in tests. As corrected, all modes find exactly what the oracle finds, or the run "
            "would have failed."
        ),
    )


CLAIMS: Final = (
    PaperClaim(
        id="B1",
        place="section 7.1",
        says="Distributed matching takes the fewest DHT lookups; the other two take as many as each other.",
        number="2k coordinated, k + 1 distributed, 2k hybrid",
        judge=_lookups,
    ),
    PaperClaim(
        id="B2",
        place="section 5, figure 4",
        says="A value of length l is looked up once for equality, and l times each for prefixes and suffixes.",
        number="1 + 2l",
        judge=_keys,
    ),
    PaperClaim(
        id="B3",
        place="section 5.1",
        says="It is cheaper to contact k homes apart as long as that takes fewer hops than a walk round the ring.",
        number="k · ½ log2 N < N",
        judge=_crossover,
    ),
    PaperClaim(
        id="B4",
        place="section 7.1, figure 9",
        says="Whatever the skew of values, coordinated sends slightly fewer SubIDs than hybrid and considerably fewer "
        "than distributed.",
        number="none given",
        judge=_figure_9,
    ),
    PaperClaim(
        id="B5",
        place="section 7.1, figure 10",
        says="Whatever the skew of attributes, coordinated sends marginally fewer SubIDs than hybrid.",
        number="none given",
        judge=_figure_10,
    ),
    PaperClaim(
        id="B6",
        place="section 7.1, figure 11",
        says="Where popular attributes have uniform values and unpopular ones skewed, hybrid sends fewer SubIDs than "
        "coordinated for small θ of attributes.",
        number="none given",
        judge=_figure_11,
    ),
    PaperClaim(
        id="B7",
        place="section 7.1, figure 11",
        says="There, all three send about the same as θ comes near 1.",
        number="none given",
        judge=_convergence,
    ),
    PaperClaim(
        id="B8",
        place="section 7.2",
        says="128 nodes, 6 attributes with values of 7 characters: the largest storage load is hardly more than the "
        "smallest.",
        number=f"{BALANCED}",
        judge=_balance,
    ),
    PaperClaim(
        id="B9",
        place="section 5, figures 4 and 5; section 6",
        says="What is found in as many lists as it has attributes is what matches the event.",
        number="none given",
        judge=_faults,
    ),
    PaperClaim(
        id="B10",
        place="section 5.1",
        says="With O(log N) hops for each lookup an event takes fewer hops than in systems that take it to all N "
        "brokers.",
        number="O((l + k) log N) against O(N)",
        judge=_against_flooding,
    ),
)
