"""An authority and a token issuer for tests, with their files for brokers and clients."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from meetpoint.security import Authority, Issuer, Rights
from meetpoint.security.tokens import Role

__all__ = ["EVERYTHING", "BrokerFiles", "TestAuthority"]

NETWORK = "meetpoint"
HOSTS = ("localhost", "127.0.0.1", "::1")
EVERYTHING = Rights(("*",))
HOUR_S = 3600.0


class BrokerFiles(NamedTuple):
    """Paths as `[tls]` of a broker's configuration names them."""

    certificate: str
    key: str
    ca: str
    revoked: str


class TestAuthority:
    """A network's certificates and tokens in one folder."""

    __test__ = False

    def __init__(self, folder: Path, network: str = NETWORK) -> None:
        self.folder = folder
        self.network = network
        self.authority = Authority.create(folder / "ca", network)
        self.issuer = Issuer.create(folder / "tokens", network)

    @property
    def ca(self) -> str:
        return str(self.folder / "ca" / "ca.pem")

    @property
    def revoked(self) -> str:
        """The authority's own list of revoked certificates, as it is now."""
        return str(self.folder / "ca" / "revoked.crl")

    @property
    def access(self) -> dict[str, str]:
        """`[access]` of a broker's configuration."""
        return {"keys": str(self.issuer.public_keys), "revoked": str(self.issuer.revoked)}

    def broker(self, name: str, *hosts: str, days: float = 30, begins_days_ago: float = 0) -> BrokerFiles:
        """A certificate for a broker; one that has expired where it began more days ago than it lasts."""
        issued = self.authority.issue(
            name, hosts or HOSTS, days, now=datetime.now(UTC) - timedelta(days=begins_days_ago)
        )
        folder = issued.write_to(self.folder / "brokers" / f"{name}-{issued.serial:x}")
        return BrokerFiles(str(folder / "certificate.pem"), str(folder / "key.pem"), self.ca, self.revoked)

    def token(
        self,
        client: str,
        *,
        tenant: str = "",
        publish: Rights = EVERYTHING,
        subscribe: Rights = EVERYTHING,
        roles: tuple[Role, ...] = (),
        seconds: float = HOUR_S,
        begins: float | None = None,
    ) -> str:
        """A token for a client; everything may be published and subscribed to, if nothing else is said."""
        return self.issuer.issue(
            client, tenant=tenant, publish=publish, subscribe=subscribe, roles=roles, seconds=seconds, begins=begins
        )
