"""What must fit before a broker begins: its data, the network it joins, and the settings of its scheme.

Ids are as wide as the overlay says, so that data that was kept on another overlay is known by the width of its ids.
"""

from __future__ import annotations

from collections.abc import Iterable

from meetpoint.catalog import difference
from meetpoint.net.config import BrokerConfig
from meetpoint.net.errors import BrokerError
from meetpoint.protocol.messages import Peer
from meetpoint.protocol.records import Record
from meetpoint.wire.handshake import Welcome

__all__ = ["advice", "check_met", "check_records"]


def check_records(config: BrokerConfig, records: Iterable[Record]) -> None:
    """Homes have ids of the overlay: what was kept under those of another one fits nowhere here."""
    width = config.network_config().ring.width
    other = next((len(record.home) for record in records if len(record.home) not in (0, width)), None)
    if other is not None:
        raise BrokerError(
            f"data {config.data}: was kept on an overlay of {8 * other}-bit ids, {config.overlay} has {8 * width}; "
            "set overlay as it was, or use another folder"
        )


def check_met(config: BrokerConfig, address: str, welcome: Welcome, me: Peer, name: str) -> None:
    """Whoever answers at an address to join must be another broker, and its network like this one's."""
    met = welcome.broker
    differs = difference(welcome.way, config.way)
    if differs is not None:
        raise BrokerError(f"join {address}: {differs}")
    if met.id == me.id:
        raise BrokerError(f"join {address}: the broker there has this broker's name, {name!r}; give one another name")


def advice(config: BrokerConfig) -> dict[str, str]:
    """What is allowed and hardly wanted, and what to do: the fields of a warning; empty where there is nothing."""
    network = config.network_config()
    told = {"dmm": network.dmm.schema, "reach": network.reach.schema or network.reach.ids == "signatures"}
    if told.get(network.scheme, True):
        return {}
    return {
        "problem": f"{network.scheme} without attributes: one broker holds all subscriptions",
        "todo": f"list them as YAML in {network.scheme}.schema, the same at all brokers (docs/{network.scheme}.md)",
    }
