"""Overlays and schemes by name, the configuration of a network, nodes made from it, and views of these for drawing.

A scheme and its options can be one text, as on a command line: `flood`, `lists:hybrid:order`, `lists:printed`. The
words after the name choose among the scheme's settings, which are the field of the same name in `NetworkConfig`. A
`Literal` setting is chosen by one of its words, a boolean is made true by its own name; other settings have no word. No
option is named here: a scheme's options are its settings.

An entry is stored where its broker's settings say, and an event is sent where its own broker's settings say: two
brokers that differ in these would silently miss each other's matches. So a handshake compares a signature of them.
Settings that each broker may choose for itself are not in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

from meetpoint.api.codec import Codec
from meetpoint.api.handshake import NewIncarnation
from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message
from meetpoint.errors import SetupError
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.message_kinds import MESSAGES
from meetpoint.node.node import Node
from meetpoint.node.overlay import Overlay, OverlayView, Upcalls
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.scheme import Scheme
from meetpoint.node.settings import NodeSettings
from meetpoint.overlays import chord, hypercube, pastry
from meetpoint.overlays.chord.routing import ChordView
from meetpoint.overlays.hypercube.routing import HypercubeView
from meetpoint.overlays.pastry.routing import PastryView
from meetpoint.placement.messages import MESSAGES as PLACEMENT_MESSAGES
from meetpoint.schemes import dmm, flood, lists, meet, reach, rebeca
from meetpoint.schemes.dmm import Dmm

__all__ = [
    "BITS",
    "OVERLAYS",
    "SCHEMES",
    "SHARED_SETTINGS",
    "NetworkConfig",
    "links_of",
    "make_codec",
    "make_link_codec",
    "make_node",
    "network_config",
    "network_signature",
    "read_options",
    "read_scheme",
    "regions_of",
    "signature_difference",
    "tree_of",
]


class NetworkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration that all nodes of a network share."""

    overlay: str = "chord"
    scheme: str = "meet"
    bits: int | None = None
    """The width of ids; None: the overlay's own (`BITS`)."""
    node: NodeSettings = NodeSettings()
    chord: chord.ChordSettings = chord.ChordSettings()
    pastry: pastry.PastrySettings = pastry.PastrySettings()
    hypercube: hypercube.HypercubeSettings = hypercube.HypercubeSettings()
    lists: lists.ListsSettings = lists.ListsSettings()
    meet: meet.MeetSettings = meet.MeetSettings()
    dmm: dmm.DmmSettings = dmm.DmmSettings()
    reach: reach.ReachSettings = reach.ReachSettings()
    rebeca: rebeca.RebecaSettings = rebeca.RebecaSettings()

    def __post_init__(self) -> None:
        for what, name, known in (("overlay", self.overlay, OVERLAYS), ("scheme", self.scheme, SCHEMES)):
            if name not in known:
                raise SetupError(f"{what}: there is no {name!r}; choose from: {', '.join(known)}")

    @property
    def ring(self) -> Ring:
        """The circle of the network's ids."""
        return Ring(BITS[self.overlay] if self.bits is None else self.bits)

    @property
    def dimensions(self) -> int:
        """The number of bits that choose a node of the hypercube.

        A scheme that places entries by the bits of ids decides it; else the overlay's setting does.
        """
        of_ids = reach.dimensions_of(self.reach) if self.scheme == "reach" else self.hypercube.dimensions
        return min(of_ids, self.ring.bits)


def _chord(config: NetworkConfig, runtime: Runtime, upcalls: Upcalls) -> Overlay:
    return chord.Chord(runtime, upcalls, config.chord)


def _pastry(config: NetworkConfig, runtime: Runtime, upcalls: Upcalls) -> Overlay:
    return pastry.Pastry(runtime, upcalls, config.pastry)


def _hypercube(config: NetworkConfig, runtime: Runtime, upcalls: Upcalls) -> Overlay:
    return hypercube.Hypercube(runtime, upcalls, config.hypercube, config.dimensions)


def _flood(config: NetworkConfig, runtime: Runtime, overlay: Overlay, home_manager: HomeManager) -> Scheme:
    return flood.Flood(runtime, overlay, home_manager)


def _lists(config: NetworkConfig, runtime: Runtime, overlay: Overlay, home_manager: HomeManager) -> Scheme:
    return lists.Lists(runtime, overlay, home_manager, config.node, config.lists)


def _meet(config: NetworkConfig, runtime: Runtime, overlay: Overlay, home_manager: HomeManager) -> Scheme:
    return meet.Meet(runtime, overlay, home_manager, config.node, config.meet)


def _dmm(config: NetworkConfig, runtime: Runtime, overlay: Overlay, home_manager: HomeManager) -> Scheme:
    return dmm.Dmm(runtime, overlay, home_manager, config.node, config.dmm)


def _reach(config: NetworkConfig, runtime: Runtime, overlay: Overlay, home_manager: HomeManager) -> Scheme:
    return reach.Reach(runtime, overlay, home_manager, config.node, config.reach)


def _rebeca(config: NetworkConfig, runtime: Runtime, overlay: Overlay, home_manager: HomeManager) -> Scheme:
    return rebeca.Rebeca(runtime, overlay, home_manager, config.node, config.rebeca)


OVERLAYS: Final[dict[str, Callable[[NetworkConfig, Runtime, Upcalls], Overlay]]] = {
    "chord": _chord,
    "pastry": _pastry,
    "hypercube": _hypercube,
}
BITS: Final[dict[str, int]] = {"chord": 160, "pastry": 128, "hypercube": 160}
"""The width of ids as in each overlay's paper; the hypercube's leaves it open, so it has Chord's."""
SCHEMES: Final[dict[str, Callable[[NetworkConfig, Runtime, Overlay, HomeManager], Scheme]]] = {
    "flood": _flood,
    "lists": _lists,
    "meet": _meet,
    "dmm": _dmm,
    "reach": _reach,
    "rebeca": _rebeca,
}
_KINDS: Final[tuple[type[Message], ...]] = (
    *MESSAGES,
    *PLACEMENT_MESSAGES,
    *chord.MESSAGES,
    *pastry.MESSAGES,
    *hypercube.MESSAGES,
    *flood.MESSAGES,
    *lists.MESSAGES,
    *meet.MESSAGES,
    *dmm.MESSAGES,
    *reach.MESSAGES,
    *rebeca.MESSAGES,
)


def make_codec() -> Codec:
    """Return the codec of all messages between nodes; tags are distinct across all overlays and schemes."""
    return Codec(_KINDS)


def make_link_codec() -> Codec:
    """Return the codec of brokers that speak over sockets: all messages and the handshake."""
    return Codec((*_KINDS, NewIncarnation))


def make_node(config: NetworkConfig, me: Peer, seed: int, codec: Codec) -> Node:
    """Make a node; it has not started."""
    return Node(
        me,
        config.ring,
        seed,
        codec,
        lambda runtime, upcalls: OVERLAYS[config.overlay](config, runtime, upcalls),
        lambda runtime, overlay, home_manager: SCHEMES[config.scheme](config, runtime, overlay, home_manager),
        config.node,
    )


# -- a scheme and its options as text ----------------------------------------------------------------------------------


def network_config(overlay: str, scheme: str) -> NetworkConfig:
    """Return the configuration of an overlay and a scheme with its options as text."""
    return NetworkConfig(overlay=overlay, **read_scheme(scheme))


def read_scheme(text: str) -> dict[str, Any]:
    """Read a scheme with its options as fields of a `NetworkConfig`."""
    name, *words = text.split(":")
    said: dict[str, Any] = {"scheme": name}
    if words and name in SCHEMES:  # else the configuration itself says which there are
        settings = [field.type for field in msgspec.structs.fields(NetworkConfig) if field.name == name]
        if not settings or not any(_choices(settings[0])):
            raise SetupError(f"scheme {name} has no options: say {name} instead of {text}")
        said[name] = read_options(name, words, settings[0])
    return said


def read_options(name: str, words: list[str], settings: type[msgspec.Struct]) -> msgspec.Struct:
    """Return a scheme's settings as the words choose them, the others at their defaults."""
    choices = dict(_choices(settings))
    chosen: dict[str, Any] = {}
    said: dict[str, str] = {}
    for word in words:
        for field, values in choices.items():
            if word not in values:
                continue
            if field in chosen:
                raise SetupError(f"scheme {name}: {said[field]} and {word} are both its {field}; say one of them")
            chosen[field], said[field] = values[word], word
            break
        else:
            told = "; ".join(f"{field}: {', '.join(values)}" for field, values in choices.items())
            raise SetupError(f"scheme {name}: there is no {word!r}; choose from {told}")
    return settings(**chosen)


def _choices(settings: type[msgspec.Struct]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each field that words can choose, with the value of each word."""
    for field in msgspec.structs.fields(settings):
        if get_origin(field.type) is Literal:
            yield field.name, {str(word): word for word in get_args(field.type)}
        elif field.type is bool:
            yield field.name, {field.name: True}


# -- settings that all brokers must share ------------------------------------------------------------------------------


SHARED_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "flood": (),
    "lists": ("mode", "hash", "schema", "first", "quantiles"),
    "meet": ("children", "plan"),
    "dmm": ("schema", "depth"),
    "reach": ("schema", "ids", "width"),
    "rebeca": ("lease_us",),
}
"""The settings of each scheme that must be the same at all brokers."""


def network_signature(config: NetworkConfig) -> str:
    """Return the overlay, the scheme and a digest of the shared settings: `chord meet 1f2e3d4c5b6a7980`."""
    settings = getattr(config, config.scheme, None)
    values = [(name, getattr(settings, name)) for name in SHARED_SETTINGS[config.scheme]]
    if config.overlay == "hypercube":
        values.append(("dimensions", config.dimensions))
    said = msgspec.json.encode((config.ring.bits, values), order="deterministic")
    return f"{config.overlay} {config.scheme} {hashlib.blake2b(said, digest_size=8).hexdigest()}"


def signature_difference(network: str, own: str) -> str | None:
    """Return what a broker must change to fit a network, or None.

    None also where one of them has no signature, as brokers of an older version.
    """
    theirs, ours = network.split(" "), own.split(" ")
    if network == own or len(theirs) != 3 or len(ours) != 3:
        return None
    for what, there, here in zip(("overlay", "scheme"), theirs, ours, strict=False):
        if there != here:
            return f"the network has the {what} {there}, not {here}; set {what} as the network has it"
    places = ("hypercube.dimensions",) if theirs[0] == "hypercube" else ()
    names = (*(f"{theirs[1]}.{name}" for name in SHARED_SETTINGS.get(theirs[1], ())), *places) or ("the width of ids",)
    return f"the network has other settings of {theirs[1]}; set {' and '.join(names)} as its other brokers have them"


# -- views of a node, for drawing --------------------------------------------------------------------------------------


def links_of(view: OverlayView) -> tuple[tuple[bytes, str], ...]:
    """Return the nodes in a node's overlay tables, each once, with its closest kind of link."""
    found: dict[bytes, str] = {}
    if view.joined:
        for node, kind in _links(view):
            found.setdefault(node, kind)
    return tuple(found.items())


def _links(view: OverlayView) -> Iterator[tuple[bytes, str]]:
    if isinstance(view, ChordView):
        yield from ((node, "successor") for node in view.succ[:1] if node != view.id)
        if view.prdc != view.id:
            yield view.prdc, "predecessor"
        yield from ((node, "successor") for node in view.succ[1:] if node != view.id)
        yield from ((node, "finger") for node in view.fingers if node != view.id)
    elif isinstance(view, PastryView):
        yield from ((node, "leaf") for node in view.leaves)
        yield from ((node, "route") for node in view.rows)
    elif isinstance(view, HypercubeView):
        yield from ((node, "neighbour") for _, node in view.links if node != view.id)
        if view.sponsor is not None:
            yield view.sponsor, "neighbour"


def regions_of(view: OverlayView) -> tuple[str, ...]:
    """Return the common last bits of each region of a hypercube's node; nothing for other overlays."""
    if not isinstance(view, HypercubeView):
        return ()
    return tuple(f"{region.bits:0{region.length}b}" if region.length else "" for region, _ in view.pieces)


def tree_of(scheme: Scheme) -> list[tuple[str, int, bool]] | None:
    """Return the regions of paper D's tree at this node: code, number of entries, whether it is split."""
    return scheme.tree() if isinstance(scheme, Dmm) else None
