"""How often the DHT is asked for an event (sections 5 and 7.1): by its attributes, and by the length of a value.

Section 7.1 has one node an attribute. Numbers have: so its sums are tried with events of numbers, each at a node of its
own, on the algorithms as printed. A string has a node for every beginning and end.
"""

from __future__ import annotations

from random import Random
from string import ascii_lowercase
from typing import Final

from meetpoint.lab.experiments.cells import Parameters
from meetpoint.lab.experiments.models.rings import IdealRing, hashed
from meetpoint.lab.printed.lists import PlainHash, PrintedNetwork
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.lists.collection import AttributeOrder, CollectionMode, groups_of, texts_of
from meetpoint.schemes.lists.value_hash import Hashing

__all__ = ["count_keys", "count_lookups"]

_VALUES: Final = 1_000_000


def count_lookups(parameters: Parameters, seed: int) -> dict[str, float]:
    """For an event whose attributes have a node each, none of them its origin."""
    nodes, attributes = int(parameters["nodes"]), int(parameters["attributes"])
    random = Random(f"lookups/{seed}")
    ring = IdealRing(Ring(), hashed(Ring(), nodes, seed))
    hash_ = PlainHash(ring.ring)
    network = PrintedNetwork(hash_, ring.owner)
    origin = random.randrange(nodes)
    event: dict[str, int] = {}
    taken = {origin}
    while len(event) < attributes:
        value = random.randrange(_VALUES)
        owner = ring.owner(hash_("", value))
        if owner not in taken:
            taken.add(owner)
            event[f"a{len(event)}"] = value
    order = AttributeOrder()
    return {f"{mode}_lookups": network.match(event, mode, origin, order)[1].messages for mode in CollectionMode}


def count_keys(parameters: Parameters, seed: int) -> dict[str, float]:
    """For one value whose letters all differ, in an event without other attributes."""
    value = "".join(Random(f"keys/{seed}").sample(ascii_lowercase, int(parameters["length"])))
    ring = Ring()
    network = PrintedNetwork(PlainHash(ring), lambda key: 0)
    _, printed = network.match({"a": value}, CollectionMode.COORDINATED, 0, AttributeOrder())
    hashing = Hashing(ring)
    asked = groups_of(hashing, hashing.bits.flatten({"a": value}), AttributeOrder())
    return {
        "printed_lookups": printed.lookups,
        "distinct_keys": len(texts_of(value)),
        "corrected_lookups": sum(len(group.lookups) for group in asked),
    }
