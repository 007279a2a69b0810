"""Paper D's z-codes (figures 4 and 5), as printed, read carelessly, and corrected. Nothing is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.experiments.experiment import Claim, Judged, Verdict
from meetpoint.lab.experiments.results import Results
from meetpoint.lab.printed.dmm import (
    Range,
    careless_range,
    corrected_code,
    corrected_range,
    corrected_weave,
    printed_code,
    printed_range,
    printed_weave,
)

__all__ = ["CODE_CLAIMS", "run_codes", "run_weaving"]


def _halved(domain: int) -> Iterator[tuple[Range, Range]]:
    """The two halves of every range of more than one value that figure 4 comes to, as printed."""
    waiting = [""]
    for code in waiting:  # grows as we go
        low, high = printed_range(code, 1, domain)
        if low < high:
            yield printed_range(f"{code}0", 1, domain), printed_range(f"{code}1", 1, domain)
            waiting += [f"{code}{bit}" for bit in "01" if printed_range(f"{code}{bit}", 1, domain) != (low, high)]


def run_codes(parameters: Parameters, seed: int) -> Metrics:
    """Values from 1 to `domain`: halves that overlap, and values whose event goes where no subscription for them is.

    The latter for a tree of two leaves.
    """
    domain = int(parameters["domain"])
    halves = list(_halved(domain))
    values = range(1, domain + 1)

    def lost(value: int) -> bool:
        low, high = careless_range(printed_code(value, value, 1, domain)[:1], 1, domain)
        return not low <= value <= high

    def lost_by_ours(value: int) -> bool:
        return corrected_range(corrected_code(value, value, 1, domain), 1, domain) != (value, value)

    return {
        "halvings": len(halves),
        "overlapping": sum(lower[1] >= upper[0] for lower, upper in halves),
        "lost_carelessly": sum(map(lost, values)),
        "lost_by_ours": sum(map(lost_by_ours, values)),
    }


def run_weaving(parameters: Parameters, seed: int) -> Metrics:
    """A boolean and a number of so many bits: how long the code of a point is, which is how deep it may be divided."""
    bits = int(parameters["bits"])
    codes = [corrected_code(1, 1, 1, 2), corrected_code(1, 1, 1, 1 << bits)]
    return {"as_printed": len(printed_weave(codes)), "as_corrected": len(corrected_weave(codes, [True, True]))}


def _verdict(holds: bool, in_part: bool = False) -> Verdict:
    return "reproduced" if holds else "in part" if in_part else "not reproduced"


def _judge_codes(results: Results) -> Judged:
    domains = [int(domain) for domain in results.distinct("codes", "domain")]
    overlapping, lost, ours = (
        {domain: results.spread("codes", metric, domain=domain).median for domain in domains}
        for metric in ("overlapping", "lost_carelessly", "lost_by_ours")
    )
    bad = [domain for domain in domains if overlapping[domain]]
    powers = [domain for domain in domains if domain.bit_count() == 1]
    is_right = all(not overlapping[domain] for domain in powers)
    return Judged(
        ours=f"halves overlap in {len(bad)} of {len(domains)} domains of {domains[0]} to {domains[-1]} values",
        verdict=_verdict(not bad, is_right),
        why="Where l + u is even the lower half ends at m and the upper one begins at it. Read with halves that do not "
        f"overlap, line 7 sends the event m to the half that does not have it: a value is lost at the first split in "
        f"{sum(map(bool, lost.values()))} of the domains. Where a domain has a power of two values it is "
        f"{'right' if is_right else 'wrong too'}. Halves that end at ⌊m⌋ and begin after it make it true of all: "
        f"{sum(ours.values()):.0f} values are lost.",
    )


def _judge_weaving(results: Results) -> Judged:
    sizes = [int(bits) for bits in results.distinct("weaving", "bits")]
    printed, ours = (
        {bits: results.spread("weaving", metric, bits=bits).median for bits in sizes}
        for metric in ("as_printed", "as_corrected")
    )
    last = sizes[-1]
    return Judged(
        ours=f"{printed[last]:.0f} bits for a boolean and a number of {last} bits, where a point has {1 + last}",
        verdict=_verdict(all(printed[bits] == 1 + bits for bits in sizes), printed[sizes[0]] == 1 + sizes[0]),
        why="As many bits of each are taken as the shortest has: one boolean attribute caps the depth, and a full leaf "
        f"cannot be split. A dimension that is down to one value misses its turns in ours: {ours[last]:.0f} bits.",
    )


CODE_CLAIMS: Final = (
    Claim(
        id="D19",
        place="section 4.1.1, figure 4",
        says="Each bit of a z-code divides a region in half.",
        number="none given",
        judge=_judge_codes,
    ),
    Claim(
        id="D20",
        place="section 4.1.1, figure 5",
        says="The z-code of several attributes is that of each, interleaved.",
        number="none given",
        judge=_judge_weaving,
    ),
)
