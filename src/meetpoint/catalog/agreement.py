"""What all brokers of a network must have in common, in one word, so that one that differs is told at the door.

A subscription lies where its broker's settings say, and an event looks where its own say: two brokers that differ in
these would miss each other's matches without a word. Settings of which each broker may have its own are not in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from meetpoint.catalog.catalog import NetworkConfig

__all__ = ["AGREED", "difference", "way_of"]

AGREED: Final[Mapping[str, tuple[str, ...]]] = {
    "flood": (),
    "lists": ("mode", "hash", "schema", "first", "quantiles"),
    "meet": ("children", "plan"),
    "dmm": ("schema", "depth"),
    "reach": ("schema", "ids", "width"),
    "rebeca": ("lease_us",),
}
"""By scheme, the settings by which brokers would miss each other."""


def way_of(config: NetworkConfig) -> str:
    """The overlay, the scheme, and a digest of the settings that must be the same: `chord meet 1f2e3d4c5b6a7980`."""
    settings = getattr(config, config.scheme, None)
    values = [(name, getattr(settings, name)) for name in AGREED[config.scheme]]
    if config.overlay == "hypercube":
        values.append(("dimensions", config.dimensions))
    said = msgspec.json.encode((config.ring.bits, values), order="deterministic")
    return f"{config.overlay} {config.scheme} {hashlib.blake2b(said, digest_size=8).hexdigest()}"


def difference(network: str, own: str) -> str | None:
    """What a broker must change to fit a network, in a sentence; None where it fits, or does not say (an older one)."""
    theirs, ours = network.split(" "), own.split(" ")
    if network == own or len(theirs) != 3 or len(ours) != 3:
        return None
    for what, there, here in zip(("overlay", "scheme"), theirs, ours, strict=False):
        if there != here:
            return f"the network has the {what} {there}, not {here}; set {what} as the network has it"
    places = ("hypercube.dimensions",) if theirs[0] == "hypercube" else ()
    names = (*(f"{theirs[1]}.{name}" for name in AGREED.get(theirs[1], ())), *places) or ("the width of ids",)
    return f"the network has other settings of {theirs[1]}; set {' and '.join(names)} as its other brokers have them"
