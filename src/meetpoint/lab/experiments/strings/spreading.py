"""How evenly values lie at nodes, and are asked for, by how many attributes there are and how long values (7.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from meetpoint.lab.experiments.cells import Metrics, Parameter, Parameters
from meetpoint.lab.experiments.experiment import Claim, Judged, Verdict
from meetpoint.lab.experiments.models.balance import draw_words, keys_of, loads, max_to_mean, max_to_min
from meetpoint.lab.experiments.models.rings import spaced
from meetpoint.lab.experiments.results import Results
from meetpoint.node.runtime.ring import Ring

__all__ = ["LOADS", "SPREADING_CLAIMS", "run_spreading"]

LOADS: Final = ("stored", "asked for values", "asked for all")
"""Entries of values; lookups of events for their values; and for all prefixes and suffixes, as figure 4 has it."""
ADEQUATE: Final = 1.25
"""The largest load to the least, at which it is balanced: the paper's best is 1.07."""


def run_spreading(parameters: Parameters, seed: int) -> Metrics:
    """Keys of values by Zipf's law, on evenly spaced nodes."""
    length, count = int(parameters["length"]), int(parameters["keys"])
    load, theta = str(parameters["load"]), float(parameters["theta"])
    random = np.random.default_rng([seed, int(theta * 10), LOADS.index(load)])
    drawn = count // (2 * length + 1) if load == "asked for all" else count
    words = draw_words(random, theta, drawn, int(parameters["attributes"]), length)
    keys = keys_of(_pieces(words) if load == "asked for all" else words)
    found = loads(keys, spaced(Ring(), int(parameters["nodes"])))
    return {"max_to_min": max_to_min(found), "max_to_mean": max_to_mean(found)}


def _pieces(words: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for name, word in words:
        yield name, word
        for size in range(1, len(word) + 1):
            yield name, word[:size]
            yield name, word[-size:]


def _verdict(holds: bool, in_part: bool = False) -> Verdict:
    return "reproduced" if holds else "in part" if in_part else "not reproduced"


def _letters(length: int) -> str:
    return "1 letter" if length == 1 else f"{length} letters"


def _counts(results: Results, parameter: str) -> list[int]:
    return [int(value) for value in results.distinct("spreading", parameter, load="stored")]


def _told(results: Results, **where: Parameter) -> str:
    return f"{results.spread('spreading', 'max_to_mean', **where).median:.2f}"


def _judge_attributes(results: Results) -> Judged:
    lengths, attributes = _counts(results, "length"), _counts(results, "attributes")
    falls = {}
    for length in lengths:
        found = [
            results.spread("spreading", "max_to_mean", load="stored", length=length, attributes=count).median
            for count in attributes
        ]
        falls[length] = found == sorted(found, reverse=True)
    short, long = lengths[0], lengths[-1]
    return Judged(
        ours="; ".join(
            f"values of {_letters(length)}: "
            + ", ".join(
                f"{_told(results, load='stored', length=length, attributes=count)} with {count}" for count in attributes
            )
            for length in lengths
        ),
        verdict=_verdict(all(falls.values()), falls[short]),
        why="The largest load to the mean, 128 evenly spaced nodes, θ = 0.5. With few values the most common ones "
        f"weigh; where there are many (values of {long} letters) it is chance that is left, which the number of "
        "entries evens out, not that of attributes. With hashed ids arcs differ by more than either.",
    )


def _judge_domains(results: Results) -> Judged:
    lengths, attributes = _counts(results, "length"), _counts(results, "attributes")
    needed: dict[int, int | None] = {}
    for length in lengths:
        needed[length] = next(
            (
                count
                for count in attributes
                if results.spread("spreading", "max_to_min", load="stored", length=length, attributes=count).median
                <= ADEQUATE
            ),
            None,
        )
    order = [attributes[-1] + 1 if count is None else count for count in needed.values()]
    return Judged(
        ours=f"attributes until the largest load is at most {ADEQUATE} times the least: "
        + "; ".join(
            (f"{count}" if count is not None else f"more than {attributes[-1]}") + f" with values of {_letters(length)}"
            for length, count in needed.items()
        ),
        verdict=_verdict(order == sorted(order, reverse=True) and order[0] > order[-1]),
        why=f"Of {', '.join(str(count) for count in attributes)} attributes that were tried, evenly spaced nodes.",
    )


def _judge_access(results: Results) -> Judged:
    length, attributes = _counts(results, "length")[-1], 6
    found = {
        load: results.spread("spreading", "max_to_mean", load=load, length=length, attributes=attributes)
        for load in LOADS
    }
    values, everything = (found[load].median / found["stored"].median for load in LOADS[1:])
    return Judged(
        ours=", ".join(f"{load} {spread.told()}" for load, spread in found.items()) + " at the busiest to the mean",
        verdict=_verdict(max(values, everything) <= ADEQUATE, values <= ADEQUATE),
        why="Values that are asked for as often as they are stored load nodes alike. But an event asks at every prefix "
        "and suffix of its values, and there are 26 letters to begin with: whoever has one of these is asked by a "
        "twenty-sixth of all events that have the attribute. Leaving out keys that nobody uses makes it better.",
    )


SPREADING_CLAIMS: Final = (
    Claim(
        id="B19",
        place="section 7.2",
        says="As the number of attributes grows, imbalances of load disappear.",
        number="none given",
        judge=_judge_attributes,
    ),
    Claim(
        id="B20",
        place="section 7.2",
        says="With smaller domains of values more attributes are needed to balance loads.",
        number="none given",
        judge=_judge_domains,
    ),
    Claim(
        id="B21",
        place="section 7.2",
        says="The same holds of the load by access as of the load by storage.",
        number="none given",
        judge=_judge_access,
    ),
)
