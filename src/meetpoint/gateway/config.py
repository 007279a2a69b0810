"""What a gateway is told before it starts: one frozen object."""

from __future__ import annotations

import re
from typing import Final, get_args

import msgspec

from meetpoint.broker.config import Address, ConfigError, is_loopback, parse_address
from meetpoint.gateway.subscriptions.webhook_validation import Consent

__all__ = ["GatewayLimits", "GatewaySettings"]

SINK_ORIGIN: Final = "meetpoint-gateway"
_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_SITE: Final = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*", re.ASCII)


class GatewayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one gateway holds and does."""

    body_bytes: int = 1 << 20
    """A request's body."""
    body_s: float = 10.0
    """Until a request's body must be there."""
    header_bytes: int = 16 << 10
    """A request's line and headers."""
    header_s: float = 5.0
    """Until a request's headers must be there, once it has begun or the connection is new."""
    request_s: float = 60.0
    """Until a request that is no stream is answered, at the latest with a refusal."""
    batch_max: int = 1000
    """Events of one request."""
    connections: int = 64
    """Connections to the network at a time: one for each token in use."""
    idle_s: float = 120.0
    """After so long without use a token's connection is closed."""
    streams: int = 1000
    """Open streams and WebSockets, of all clients."""
    streams_per_client: int = 300
    """Open streams and WebSockets of one token; without tokens, of all."""
    stream_bytes: int = 1 << 20
    """What waits for one reader that does not read; more is dropped and counted."""
    stall_s: float = 30.0
    """A reader that takes nothing for so long is closed."""
    confirm_s: float = 5.0
    """What was sent of a durable subscription as server-sent events, so long ago on a connection that still stands,
    counts as taken. Brokers bring it again after 30 s."""
    socket_subscriptions: int = 64
    """Subscriptions of one WebSocket."""
    message_bytes: int = 1 << 20
    """One message on a WebSocket."""
    subscriptions_per_client: int = 100
    """Subscriptions made by /subscriptions, of one token; without tokens, of all."""
    unasked_per_minute: int = 60
    """Requests to sinks at one host that did not agree to get events; where `private_sinks` holds, as many as come."""
    dry_filters: int = 1000
    """Filters of one dry run."""
    dry_events: int = 1000
    """Events of one dry run."""
    dry_pairs: int = 100_000
    """Filters times events of one dry run."""
    dry_s: float = 5.0
    """What comparing and matching filters in a dry run may take once they are read: then `/lint` answers with what it
    found, and `/match` is refused."""


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway."""

    at: str = "mp://localhost:7400"
    """The network: the url of one or several of its brokers."""
    listen: str = "127.0.0.1:8400"
    """Where HTTP is served. Port 0 takes any that is free."""
    name: str = "gateway"
    """The client that the gateway is, where clients have no tokens."""
    network: str = "meetpoint"
    """The network's name."""
    ca: str | None = None
    """The certificate of the network's authority, for `mps://`."""
    token_file: str | None = None
    """The gateway's own token, for what it asks for itself; those of clients are passed on. Read at each connection."""
    token_keys: str | None = None
    """The public keys of tokens (`tokens.pub`). With them every client needs a token."""
    token_revoked: str | None = None
    """Tokens that were revoked."""
    certificate: str | None = None
    """The certificate for HTTPS; without, plain HTTP."""
    key: str | None = None
    """The key of that certificate."""
    insecure: bool = False
    """Listen beyond this machine without a certificate and without tokens, for everybody."""
    hosts: tuple[str, ...] = ()
    """Names by which browsers may address the gateway (the header Host, without port), beside that of `listen`."""
    origins: tuple[str, ...] = ()
    """Other sites whose pages may use the gateway, each exactly as in the header Origin: `https://app.example.org`."""
    data: str | None = None
    """The folder in which subscriptions of /subscriptions are kept; without one they end with the gateway."""
    private_sinks: bool = False
    """Whether webhooks may go to loopback and private addresses, and by plain HTTP."""
    sink_consent: Consent = "ask"
    """Whether webhooks go to sinks that agreed alone (`require`), to those also that do not know the question (`ask`),
    or to all, unasked (`off`)."""
    sink_origin: str | None = None
    """The name by which sinks are asked, like that of a site; without one the first of `hosts`, or `SINK_ORIGIN`."""
    report: str | None = None
    """The folder of the experiment report, served under /report/."""
    limits: GatewayLimits = GatewayLimits()

    def __post_init__(self) -> None:
        at = self.address
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("gateway: certificate and key come together; give both, or none")
        if not is_loopback(at.host) and not self.insecure and not (self.certificate and self.token_keys):
            raise ConfigError(
                f"gateway: {at} can be reached from other machines; give a certificate with its key and the keys of "
                "tokens, listen at 127.0.0.1, or say insecure"
            )
        if self.sink_consent not in get_args(Consent):
            raise ConfigError(f"gateway: sink_consent {self.sink_consent!r}; say one of {', '.join(get_args(Consent))}")
        if self.sink_origin is not None and not _SITE.fullmatch(self.sink_origin):
            raise ConfigError(f"gateway: sink_origin {self.sink_origin!r}; write a name like events.example.org")
        for origin in self.origins:
            scheme, _, rest = origin.partition("://")
            if scheme not in ("http", "https") or not rest or "/" in rest or "*" in rest or origin != origin.lower():
                raise ConfigError(f"gateway: origin {origin!r}; write it as browsers do: https://app.example.org")

    @property
    def asks_as(self) -> str:
        """The name by which sinks are asked."""
        return self.sink_origin or (self.hosts[0] if self.hosts else SINK_ORIGIN)

    @property
    def address(self) -> Address:
        """Where HTTP is served."""
        return parse_address(self.listen, "listen")

    @property
    def is_guarded(self) -> bool:
        """Whether clients need tokens."""
        return self.token_keys is not None

    @property
    def scheme(self) -> str:
        """`http` or `https`."""
        return "http" if self.certificate is None else "https"

    def knows_host(self, host: str) -> bool:
        """Whether a browser may say that it talks to this host: one that somebody else's name leads to must not."""
        name = host.lower()
        if name in self.hosts or name == self.address.host.lower():
            return True
        if is_loopback(self.address.host):
            return is_loopback(name)
        return self.is_guarded and not self.hosts  # elsewhere whoever has no token gets nothing, by any name
