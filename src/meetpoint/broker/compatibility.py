"""What must fit before a broker begins: its data, and the settings of its scheme.

Ids are as wide as the overlay says, so that data that was kept on another overlay is known by the width of its ids.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from meetpoint.broker.config import BrokerConfig, parse_address
from meetpoint.broker.errors import BrokerError
from meetpoint.broker.transport.tls import Guard
from meetpoint.node.runtime.records import Record

__all__ = ["Advice", "advice", "advice_on_tls", "check_records"]

CERTIFICATE_S_MIN: Final = 14 * 86_400.0
"""When a certificate ends sooner, it is said."""


def check_records(config: BrokerConfig, records: Iterable[Record]) -> None:
    """Homes have ids of the overlay: what was kept under those of another one fits nowhere here."""
    width = config.network_config().ring.width
    other = next((len(record.home) for record in records if len(record.home) not in (0, width)), None)
    if other is not None:
        raise BrokerError(
            f"data {config.data}: was kept on an overlay of {8 * other}-bit ids, {config.overlay} has {8 * width}; "
            "set overlay as it was, or use another folder"
        )


class Advice(NamedTuple):
    """What is allowed and hardly wanted, and what to do."""

    problem: str
    todo: str


def advice(config: BrokerConfig) -> list[Advice]:
    """What to warn of when a broker begins."""
    found: list[Advice] = []
    network = config.network_config()
    scheme = network.scheme
    told = {"dmm": network.dmm.schema, "reach": network.reach.schema or network.reach.ids == "signatures"}
    if not told.get(scheme, True):
        problem = f"{scheme} without attributes: one broker holds all subscriptions"
        todo = f"list them as YAML in {scheme}.schema, the same at all brokers (docs/{scheme}.md)"
        found.append(Advice(problem, todo))
    if (address := config.open_address) is not None and config.unguarded:
        problem = (
            f"insecure: other machines can connect to {address}, and there is no {' and no '.join(config.unguarded)}"
        )
        found.append(Advice(problem, "give both (docs/security.md), or listen at 127.0.0.1"))
    return found


def advice_on_tls(config: BrokerConfig, guard: Guard, address: str) -> list[Advice]:
    """What to warn of a certificate when a broker begins, and when it has read another."""
    found: list[Advice] = []
    if guard.identity is None:
        return found
    certificate, host = config.tls.certificate, parse_address(address, "address").host
    left_s = guard.expires - time.time()
    if left_s < CERTIFICATE_S_MIN:
        problem = f"tls.certificate {certificate} ends in {max(0.0, left_s / 86_400):.1f} days"
        found.append(Advice(problem, "have another issued (meetpoint ca issue), copy it there, and send SIGHUP"))
    if not guard.names(host):
        problem = f"tls.certificate {certificate} does not name {host}, where this broker is reached: clients refuse it"
        found.append(Advice(problem, f"have one issued with --address {host} (meetpoint ca issue), and send SIGHUP"))
    return found
