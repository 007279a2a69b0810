"""The configuration of a gateway: one frozen object."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from meetpoint.broker.config import Address, ConfigError, is_loopback, parse_address

__all__ = ["ConsentPolicy", "GatewayLimits", "GatewaySettings"]

ConsentPolicy: TypeAlias = Literal["require", "ask", "off"]
"""Whether sinks must agree, are asked, or are not."""
SINK_ORIGIN: Final = "meetpoint-gateway"
_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_SITE: Final = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*", re.ASCII)


class GatewayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one gateway: sizes, counts and times."""

    body_bytes: int = 1 << 20
    """The largest body of a request."""
    body_s: float = 10.0
    """The time for a request's body to arrive."""
    header_bytes: int = 16 << 10
    """The largest request line with headers."""
    header_s: float = 5.0
    """The time for a request's headers to arrive, from its first byte or from the start of the connection."""
    request_s: float = 60.0
    """The time until a request that is no stream is answered, at the latest with a refusal."""
    batch_max: int = 1000
    """The most events of one request."""
    connections: int = 64
    """The most connections to the network at a time: one for each token in use."""
    idle_s: float = 120.0
    """After so long without use a token's connection is closed."""
    streams: int = 1000
    """The most open streams and WebSockets of all clients."""
    streams_per_client: int = 300
    """The most open streams and WebSockets of one token; without tokens, of all clients."""
    stream_bytes: int = 1 << 20
    """The most bytes that wait for a slow reader; more is dropped and counted."""
    stall_s: float = 30.0
    """A reader that takes nothing for so long is closed."""
    confirm_s: float = 5.0
    """The time after which events sent to a durable stream count as received, on an open connection.

    They are acknowledged then; brokers redeliver after 30 s.
    """
    socket_subscriptions: int = 64
    """The most subscriptions of one WebSocket."""
    message_bytes: int = 1 << 20
    """The largest message on a WebSocket."""
    subscriptions_per_client: int = 100
    """The most subscriptions made by /subscriptions of one token; without tokens, of all clients."""
    unasked_per_minute: int = 60
    """The most requests to sinks at one host that did not agree to get events; without limit where `private_sinks`
    holds.
    """
    dry_filters: int = 1000
    """The most filters of one dry run."""
    dry_events: int = 1000
    """The most events of one dry run."""
    dry_pairs: int = 100_000
    """The most pairs of a filter and an event in one dry run."""
    dry_s: float = 5.0
    """The time for comparing and matching parsed filters in a dry run: then `/lint` answers with what it found, and
    `/match` is refused.
    """


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one gateway."""

    at: str = "mp://localhost:7400"
    """The network: the url of one or several of its brokers."""
    listen: str = "127.0.0.1:8400"
    """The address where HTTP is served; port 0 takes any that is free."""
    name: str = "gateway"
    """The gateway's client name, where clients have no tokens."""
    network: str = "meetpoint"
    """The network's name."""
    ca: str | None = None
    """The certificate of the network's authority, for `mps://`."""
    token_file: str | None = None
    """The file of the gateway's own token, for its own requests; clients' tokens are passed on.

    It is read at each connection.
    """
    token_keys: str | None = None
    """The public keys of tokens (`tokens.pub`). With them every client needs a token."""
    token_revoked: str | None = None
    """The file of revoked tokens."""
    certificate: str | None = None
    """The certificate for HTTPS; without one, plain HTTP."""
    key: str | None = None
    """The key of that certificate."""
    insecure: bool = False
    """Whether to listen beyond this machine without a certificate and without tokens, for everybody."""
    hosts: tuple[str, ...] = ()
    """Names by which browsers may address the gateway (the header Host, without port), beside that of `listen`."""
    origins: tuple[str, ...] = ()
    """Other sites whose pages may use the gateway, each exactly as in the header Origin: `https://app.example.org`."""
    data: str | None = None
    """The folder where subscriptions of /subscriptions are stored; without one they end with the gateway."""
    private_sinks: bool = False
    """Whether webhooks may go to loopback and private addresses, and by plain HTTP."""
    sink_consent: ConsentPolicy = "ask"
    """Which sinks webhooks may go to.

    `require`: only those that agreed; `ask`: also those that do not know the question; `off`: all, unasked.
    """
    sink_origin: str | None = None
    """The name by which sinks are asked, like that of a site; by default the first of `hosts`, or `SINK_ORIGIN`."""
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
        if self.sink_consent not in get_args(ConsentPolicy):
            raise ConfigError(
                f"gateway: sink_consent {self.sink_consent!r}; say one of {', '.join(get_args(ConsentPolicy))}"
            )
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
        """The address where HTTP is served."""
        return parse_address(self.listen, "listen")

    @property
    def is_guarded(self) -> bool:
        """Whether clients need tokens."""
        return self.token_keys is not None

    @property
    def scheme(self) -> str:
        """The scheme of its urls: `http` or `https`."""
        return "http" if self.certificate is None else "https"

    def knows_host(self, host: str) -> bool:
        """Return whether a request may name this host: a foreign name that leads here would make its page our own."""
        name = host.lower()
        if name in self.hosts or name == self.address.host.lower():
            return True
        if is_loopback(self.address.host):
            return is_loopback(name)
        return self.is_guarded and not self.hosts  # elsewhere whoever has no token gets nothing, by any name
