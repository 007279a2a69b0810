"""From a configuration to a node: which overlays and schemes there are, by name."""

from meetpoint.catalog.agreement import difference, way_of
from meetpoint.catalog.catalog import BITS, OVERLAYS, SCHEMES, NetworkConfig, make_codec, make_link_codec, make_node
from meetpoint.catalog.scheme_names import network_config, read_scheme

__all__ = [
    "BITS",
    "OVERLAYS",
    "SCHEMES",
    "NetworkConfig",
    "difference",
    "make_codec",
    "make_link_codec",
    "make_node",
    "network_config",
    "read_scheme",
    "way_of",
]
