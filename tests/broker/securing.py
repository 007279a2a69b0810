"""Brokers with certificates, and strangers whose certificates are wrong in one way each."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from meetpoint.api.ids import NodeId, Peer
from meetpoint.broker import Broker
from meetpoint.broker.config import Tls
from meetpoint.node.runtime.ring import Ring
from tests.broker.talking import broker
from tests.security.authorities import BrokerFiles, TestAuthority

__all__ = ["as_broker", "as_client", "peer_of", "secured", "secured_network", "tls_of"]


def tls_of(files: BrokerFiles) -> Tls:
    """`[tls]` of a broker with these files."""
    return Tls(certificate=files.certificate, key=files.key, ca=files.ca, revoked=files.revoked)


@contextlib.asynccontextmanager
async def secured(authority: TestAuthority, name: str, **said: Any) -> AsyncIterator[Broker]:
    """A broker with a certificate of its own."""
    async with broker(name=name, tls=tls_of(authority.broker(name)), network=authority.network, **said) as one:
        yield one


@contextlib.asynccontextmanager
async def secured_network(authority: TestAuthority, *names: str, **said: Any) -> AsyncIterator[list[Broker]]:
    """Some brokers with certificates that have found together."""
    async with contextlib.AsyncExitStack() as stack:
        found: list[Broker] = []
        for name in names:
            join = (found[0].address,) if found else ()
            found.append(await stack.enter_async_context(secured(authority, name, join=join, **said)))
        yield found


def peer_of(name: str, address: str = "127.0.0.1:1") -> Peer:
    """Return a broker's peer by its name."""
    return Peer(NodeId(Ring().hash(name.encode())), address)


def as_client(ca: str | Path | None) -> ssl.SSLContext:
    """A client's TLS, which believes everybody where there is no authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(ca)
    return context


def as_broker(files: BrokerFiles) -> ssl.SSLContext:
    """A broker's TLS, as whoever has these files could make it."""
    context = as_client(None)
    context.load_cert_chain(files.certificate, files.key)
    return context
