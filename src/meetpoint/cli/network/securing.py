"""`meetpoint up --secure DIR`: an authority, certificates and a token for a network on this machine, made on the spot.

What is in the folder already is taken as it is: the same network comes up again, and its clients' tokens still count. A
network that serves others keeps its authority's key elsewhere (docs/security.md).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from meetpoint.errors import MeetpointError

if TYPE_CHECKING:
    from meetpoint.security import Issuer

__all__ = ["Keys"]

NETWORK = "meetpoint"
HOSTS = ("localhost", "127.0.0.1")
CLIENT = "operator"
TOKEN_DAYS = 30
DAY_S = 86_400
RENEW_S = 7 * DAY_S
"""What ends sooner is made anew when the network comes up."""


class Keys:
    """The folder with all keys of a network on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca = folder / "ca" / "ca.pem"
        self.token = folder / "operator.token"

    def make(self, names: Iterable[str]) -> None:
        """Make what is not there: the authority, a certificate for each broker, and a token that may do everything."""
        from meetpoint.security import Authority, Issuer

        ca, tokens = self._folder / "ca", self._folder / "tokens"
        authority = Authority.open(ca) if self.ca.exists() else Authority.create(ca, NETWORK)
        for name in names:
            if not self._lasts(name):
                authority.issue(name, HOSTS).write_to(self._of(name), renew=True)
        issuer = Issuer.open(tokens) if (tokens / "tokens.key").exists() else Issuer.create(tokens, NETWORK)
        self._make_token(issuer)

    def _lasts(self, name: str) -> bool:
        from meetpoint.security import read_certificate

        path = self._of(name) / "certificate.pem"
        return path.exists() and read_certificate(path).ends.timestamp() > time.time() + RENEW_S

    def _make_token(self, issuer: Issuer) -> None:
        from meetpoint.security import Rights, Verifier
        from meetpoint.security.files import PRIVATE, replace

        verifier = Verifier(issuer.public_keys, issuer.revoked, NETWORK)
        try:
            held = verifier.read(self.token.read_text(encoding="ascii").strip(), time.time())
            lasts = held.expires > time.time() + RENEW_S
        except (OSError, UnicodeDecodeError, MeetpointError):  # there is none, or none that counts
            lasts = False
        if not lasts:
            everything = Rights(("*",))
            text = issuer.issue(
                CLIENT, seconds=TOKEN_DAYS * DAY_S, publish=everything, subscribe=everything, roles=("operate",)
            )
            replace(self.token, text.encode() + b"\n", PRIVATE)

    def options(self, name: str) -> list[str]:
        """What the command of a broker says more."""
        own, tokens = self._of(name), self._folder / "tokens"
        files = {
            "--certificate": own / "certificate.pem",
            "--key": own / "key.pem",
            "--ca": self.ca,
            "--revoked": self._folder / "ca" / "revoked.crl",
            "--token-keys": tokens / "tokens.pub",
            "--revoked-tokens": tokens / "revoked.txt",
        }
        return [word for option, file in files.items() for word in (option, str(file))]

    def gateway(self, name: str) -> dict[str, str]:
        """The settings of a gateway beside the brokers: HTTPS, and a token for each who asks."""
        own, tokens = self._of(name), self._folder / "tokens"
        return {
            "ca": str(self.ca),
            "token_file": str(self.token),
            "token_keys": str(tokens / "tokens.pub"),
            "token_revoked": str(tokens / "revoked.txt"),
            "certificate": str(own / "certificate.pem"),
            "key": str(own / "key.pem"),
        }

    def _of(self, name: str) -> Path:
        return self._folder / "brokers" / name
