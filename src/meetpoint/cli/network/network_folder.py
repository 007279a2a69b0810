"""The folder of a network that `meetpoint up` runs: what it must remember, and the keys of `--secure`.

A broker that is left out has data that the others wait for, so the folder remembers which brokers there are.

Keys: an authority, a certificate for each broker and a token are made on the spot. Those that are in the folder already
are used as they are: the same network comes up again, and its clients' tokens are still valid. A network that serves
others keeps its authority's key elsewhere (docs/security.md).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from meetpoint.errors import MeetpointError, SetupError

if TYPE_CHECKING:
    from meetpoint.security import Issuer


__all__ = ["NetworkKeys", "NetworkNotes", "read_notes", "write_notes", "write_settings"]


BROKERS, OVERLAY, SCHEME = 8, "chord", "meet"
NOTES = "network.json"
SETTINGS_FILE = "brokers.toml"
"""The name of the file that is every broker's --config, where it exists."""


class NetworkNotes(msgspec.Struct, forbid_unknown_fields=True):
    """The file that a network's folder remembers it by."""

    scheme: str
    brokers: list[int]
    overlay: str = OVERLAY
    secure: str = ""
    """The folder of its keys, where it has TLS and tokens."""
    archive: bool = False
    """Whether brokers archive what they accept."""


def read_notes(data: Path, brokers: int | None, scheme: str | None, overlay: str | None) -> NetworkNotes:
    from meetpoint.catalog.catalog import network_config

    file = data / NOTES
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        if data.is_dir() and any(data.iterdir()):
            raise SetupError(f"{data}: holds other things; give --data an empty folder, or a new one") from None
        network_config(overlay or OVERLAY, scheme or SCHEME)
        return NetworkNotes(scheme or SCHEME, list(range(1, (brokers or BROKERS) + 1)), overlay or OVERLAY)
    except OSError as error:
        raise SetupError(f"{file}: {(error.strerror or '').lower()}; give --data a folder you may write to") from None
    try:
        found = msgspec.json.decode(text, type=NetworkNotes)
    except msgspec.DecodeError as error:
        raise SetupError(f"{file}: cannot be read ({error}); restore it, or give --data another folder") from None
    for what, given, known in (("scheme", scheme, found.scheme), ("overlay", overlay, found.overlay)):
        if given is not None and given != known:
            raise SetupError(f"{data}: holds a network of {what} {known}, not {given}; give --data another folder")
    if brokers is not None and brokers < len(found.brokers):
        raise SetupError(
            f"{data}: holds {len(found.brokers)} brokers, and what each has is needed; "
            "leave --brokers out, and have some leave with: meetpoint leave HOST:PORT"
        )
    last = max(found.brokers, default=0)
    more = 0 if brokers is None else brokers - len(found.brokers)
    return msgspec.structs.replace(found, brokers=found.brokers + list(range(last + 1, last + more + 1)))


def write_notes(data: Path, notes: NetworkNotes) -> None:
    part = data / f"{NOTES}.part"
    try:
        data.mkdir(parents=True, exist_ok=True)
        part.write_bytes(msgspec.json.encode(notes))  # beside it first: a crash must not leave half a file
        os.replace(part, data / NOTES)
    except OSError as error:
        raise SetupError(f"{data}: {(error.strerror or '').lower()}; give --data a folder you may write to") from None


def write_settings(data: Path) -> None:
    """Write the settings that all brokers of a network of flights share."""
    from meetpoint.cli.flights import SETTINGS

    (data / SETTINGS_FILE).write_text(SETTINGS, encoding="utf-8")


# -- keys --------------------------------------------------------------------------------------------------------------


NETWORK = "meetpoint"
HOSTS = ("localhost", "127.0.0.1")
CLIENT = "operator"
TOKEN_DAYS = 30
DAY_S = 86_400
RENEW_S = 7 * DAY_S
"""Certificates and tokens that end sooner are renewed when the network comes up."""


class NetworkKeys:
    """The folder with all keys of a network on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca = folder / "ca" / "ca.pem"
        self.token = folder / "operator.token"

    def make(self, names: Iterable[str]) -> None:
        """Make what is missing: the authority, a certificate for each broker, and a token for everything."""
        from meetpoint.security import Authority, Issuer

        ca, tokens = self._folder / "ca", self._folder / "tokens"
        authority = Authority.open(ca) if self.ca.exists() else Authority.create(ca, NETWORK)
        for name in names:
            if not self._is_valid(name):
                authority.issue(name, HOSTS).write_to(self._folder_of(name), renew=True)
        issuer = Issuer.open(tokens) if (tokens / "tokens.key").exists() else Issuer.create(tokens, NETWORK)
        self._make_token(issuer)

    def _is_valid(self, name: str) -> bool:
        from meetpoint.security import read_certificate

        path = self._folder_of(name) / "certificate.pem"
        return path.exists() and read_certificate(path).ends.timestamp() > time.time() + RENEW_S

    def _make_token(self, issuer: Issuer) -> None:
        from meetpoint.security import Rights, Verifier
        from meetpoint.security.files import PRIVATE, replace

        verifier = Verifier(issuer.public_keys, issuer.revoked, NETWORK)
        try:
            known = verifier.read(self.token.read_text(encoding="ascii").strip(), time.time())
            lasts = known.expires > time.time() + RENEW_S
        except (OSError, UnicodeDecodeError, MeetpointError):  # there is none, or none that counts
            lasts = False
        if not lasts:
            everything = Rights(("*",))
            text = issuer.issue(
                CLIENT, seconds=TOKEN_DAYS * DAY_S, publish=everything, subscribe=everything, roles=("operate",)
            )
            replace(self.token, text.encode() + b"\n", PRIVATE)

    def options(self, name: str) -> list[str]:
        """Return the security options of a broker's command."""
        own, tokens = self._folder_of(name), self._folder / "tokens"
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
        """Return the settings of a gateway with HTTPS and tokens."""
        own, tokens = self._folder_of(name), self._folder / "tokens"
        return {
            "ca": str(self.ca),
            "token_file": str(self.token),
            "token_keys": str(tokens / "tokens.pub"),
            "token_revoked": str(tokens / "revoked.txt"),
            "certificate": str(own / "certificate.pem"),
            "key": str(own / "key.pem"),
        }

    def _folder_of(self, name: str) -> Path:
        return self._folder / "brokers" / name
