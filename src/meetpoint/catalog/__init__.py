"""From a configuration to a node: which overlays and schemes there are, by name."""

from meetpoint.catalog.catalog import OVERLAYS, SCHEMES, NetworkConfig, make_codec, make_node

__all__ = ["OVERLAYS", "SCHEMES", "NetworkConfig", "make_codec", "make_node"]
