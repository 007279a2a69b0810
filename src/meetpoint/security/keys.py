"""Keys that sign tokens, and those that check them.

tokens.key      the private key: whoever has it issues tokens, so it belongs on no broker
tokens.pub      public keys, the newest first; every broker gets a copy

Both are JSON around JSON Web Keys (RFC 8037) of Ed25519, and name the network they are for. A key's id is the beginning
of the SHA-256 of its public part, so that nobody needs to give it one, and a token says which key to take.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from meetpoint.errors import MeetpointError
from meetpoint.security.files import PRIVATE, PUBLIC, read, replace, write_new

__all__ = ["KEYS_MAX", "PRIVATE_KEY", "PUBLIC_KEYS", "KeyFileError", "PublicKey", "PublicKeys", "SigningKey"]

PRIVATE_KEY = "tokens.key"
PUBLIC_KEYS = "tokens.pub"
KEYS_MAX = 16
"""Public keys that a file may hold: one in use, and those whose tokens have not all expired."""
KEY_ID_DIGITS = 16
_KEY_BYTES = 32

_T = TypeVar("_T")


class KeyFileError(MeetpointError):
    """A file of token keys was refused."""


class PublicKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key that tokens are checked with (the parameter names are RFC 8037's)."""

    kty: Literal["OKP"] = "OKP"
    crv: Literal["Ed25519"] = "Ed25519"
    x: str
    since: datetime

    @property
    def id(self) -> str:
        return hashlib.sha256(_decoded(self.x)).hexdigest()[:KEY_ID_DIGITS]

    def loaded(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(_decoded(self.x))


class PublicKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of one network."""

    network: str
    keys: tuple[PublicKey, ...]

    @classmethod
    def read(cls, path: str | Path) -> PublicKeys:
        """The keys in a file."""
        found = _read(Path(path), cls, "public keys")
        if not 0 < len(found.keys) <= KEYS_MAX:
            raise KeyFileError(f"{path}: holds {len(found.keys)} keys; there must be 1 to {KEYS_MAX}")
        for key in found.keys:
            _check(Path(path), key.x)
        return found

    def write(self, path: Path) -> None:
        """Replace what the file holds."""
        replace(path, _indented(self), PUBLIC)

    def with_key(self, key: PublicKey) -> PublicKeys:
        """These and one more, which is the newest."""
        return msgspec.structs.replace(self, keys=(key, *self.keys))

    def without(self, key_id: str) -> PublicKeys:
        """These but one."""
        return msgspec.structs.replace(self, keys=tuple(key for key in self.keys if key.id != key_id))


class SigningKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The key that tokens are signed with, and for which network."""

    network: str
    kty: Literal["OKP"] = "OKP"
    crv: Literal["Ed25519"] = "Ed25519"
    d: str
    since: datetime

    @classmethod
    def make(cls, network: str, now: datetime | None = None) -> SigningKey:
        """A new key."""
        secret = _encoded(Ed25519PrivateKey.generate().private_bytes_raw())
        return cls(network=network, d=secret, since=(now or datetime.now(UTC)).replace(microsecond=0))

    @classmethod
    def read(cls, path: Path) -> SigningKey:
        """The key in a file."""
        found = _read(path, cls, "private key")
        _check(path, found.d)
        return found

    def write_new(self, path: Path) -> None:
        """Into a new file that only its owner may read."""
        write_new(path, _indented(self), PRIVATE)

    def replace(self, path: Path) -> None:
        """Instead of the key that a file holds."""
        replace(path, _indented(self), PRIVATE)

    def loaded(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(_decoded(self.d))

    def public(self) -> PublicKey:
        return PublicKey(x=_encoded(self.loaded().public_key().public_bytes_raw()), since=self.since)


def _read(path: Path, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(read(path, what), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KeyFileError(f"{path}: holds no {what}: {error}; give a file of: meetpoint token key") from None


def _check(path: Path, key: str) -> None:
    try:
        length = len(_decoded(key))
    except (binascii.Error, ValueError):
        length = 0
    if length != _KEY_BYTES:
        raise KeyFileError(f"{path}: a key in it is not {_KEY_BYTES} bytes in base64url; copy the file again")


def _indented(value: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
