"""The catalog: overlays and schemes by name, and nodes made from a configuration."""

from meetpoint.catalog.catalog import (
    BITS,
    OVERLAYS,
    SCHEMES,
    NetworkConfig,
    make_codec,
    make_link_codec,
    make_node,
    network_config,
    network_signature,
    read_scheme,
    signature_difference,
)

__all__ = [
    "BITS",
    "OVERLAYS",
    "SCHEMES",
    "NetworkConfig",
    "make_codec",
    "make_link_codec",
    "make_node",
    "network_config",
    "network_signature",
    "read_scheme",
    "signature_difference",
]
