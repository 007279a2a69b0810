"""Tokens of clients, and the keys that sign and check them.

tokens.key      the private key: anyone who has it issues tokens, so it belongs on no broker tokens.pub      public
keys, the newest first; every broker gets a copy revoked.txt     ids of revoked tokens; every broker gets a copy

A token is a JSON Web Token signed with Ed25519. Brokers hold public keys only, so that no broker can make one. Nothing
in it is secret but the whole is: anyone who has it may do what it says until it expires or is revoked.

Both key files are JSON around JSON Web Keys (RFC 8037), and name their network. A key's id is the beginning of the
SHA-256 of its public part, so that nobody needs to choose one, and a token says which key to take.

Rules of reading, each fails closed: the algorithm is fixed and never the token's choice; an unknown claim is refused,
since it might take a right away; the audience is this network; times are compared with a clock that is passed in.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from meetpoint.errors import MeetpointError, optional_imports
from meetpoint.security.files import PRIVATE, PUBLIC, append_line, locked, make_folder, read, replace, write_new
from meetpoint.security.grants import EVERYTHING, Grant, Permit, Rights, Role, TokenError, TokenProblem, show_time

with optional_imports():
    import jwt
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = [
    "CLOCKS_APART_S",
    "EVERYTHING",
    "KEYS_MAX",
    "NAME_MAX",
    "PRIVATE_KEY",
    "PUBLIC_KEYS",
    "REVOKED",
    "TOKEN_MAX",
    "Grant",
    "Issuer",
    "KeyFileError",
    "PublicKey",
    "PublicKeys",
    "Rights",
    "Role",
    "SigningKey",
    "TokenError",
    "TokenProblem",
    "Verifier",
]


# -- keys --------------------------------------------------------------------------------------------------------------


PRIVATE_KEY = "tokens.key"
PUBLIC_KEYS = "tokens.pub"
KEYS_MAX = 16
"""The most public keys in a file: one in use, and those whose tokens have not all expired."""
KEY_ID_DIGITS = 16
_KEY_BYTES = 32

_T = TypeVar("_T")


class KeyFileError(MeetpointError):
    """A file of token keys was refused."""


class PublicKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key that checks tokens (the parameter names are RFC 8037's)."""

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
    """The public keys of one network."""

    network: str
    keys: tuple[PublicKey, ...]

    @classmethod
    def read(cls, path: str | Path) -> PublicKeys:
        """Read and check the keys of a file."""
        found = _read(Path(path), cls, "public keys")
        if not 0 < len(found.keys) <= KEYS_MAX:
            raise KeyFileError(f"{path}: holds {len(found.keys)} keys; there must be 1 to {KEYS_MAX}")
        for key in found.keys:
            _check(Path(path), key.x)
        return found

    def write(self, path: Path) -> None:
        """Replace the content of a file."""
        replace(path, _indented(self), PUBLIC)

    def with_key(self, key: PublicKey) -> PublicKeys:
        """Return these keys and a newer one before them."""
        return msgspec.structs.replace(self, keys=(key, *self.keys))

    def without(self, key_id: str) -> PublicKeys:
        """Return these keys but one."""
        return msgspec.structs.replace(self, keys=tuple(key for key in self.keys if key.id != key_id))


class SigningKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The private key that signs the tokens of a network."""

    network: str
    kty: Literal["OKP"] = "OKP"
    crv: Literal["Ed25519"] = "Ed25519"
    d: str
    since: datetime

    @classmethod
    def make(cls, network: str, now: datetime | None = None) -> SigningKey:
        """Generate a new key."""
        secret = _encoded(Ed25519PrivateKey.generate().private_bytes_raw())
        return cls(network=network, d=secret, since=(now or datetime.now(UTC)).replace(microsecond=0))

    @classmethod
    def read(cls, path: Path) -> SigningKey:
        """Read and check the key of a file."""
        found = _read(path, cls, "private key")
        _check(path, found.d)
        return found

    def write_new(self, path: Path) -> None:
        """Write the key into a new file that only its owner may read."""
        write_new(path, _indented(self), PRIVATE)

    def replace(self, path: Path) -> None:
        """Replace the key of a file."""
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


# -- tokens ------------------------------------------------------------------------------------------------------------


TOKEN_MAX = 3072
"""The longest token, in characters: it fits a hello of 4 KiB with the rest of the hello."""
NAME_MAX = 100
"""The longest name of a client or a tenant, in characters."""
CLOCKS_APART_S = 60.0
"""A token is accepted this much before it begins, for brokers whose clocks are behind the issuer's."""
REVOKED = "revoked.txt"
_ISSUED = "issued.jsonl"
_ALGORITHM = "EdDSA"
_TYPE = "meetpoint+jwt"


class _Claims(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The token's content; the short names are RFC 7519's."""

    aud: str
    sub: str
    jti: str
    nbf: int
    exp: int
    tenant: str = ""
    publish: Rights = Rights()
    subscribe: Rights = Rights()
    roles: tuple[Role, ...] = ()


class _Header(msgspec.Struct, frozen=True):
    kid: str


class _IssuedToken(msgspec.Struct, frozen=True):
    """A line of the issuer's log, for revoking by the client's name; the token itself is not kept."""

    id: str
    client: str
    tenant: str
    expires: int


class Issuer:
    """Issues and revokes tokens, with the private key of a folder."""

    def __init__(self, folder: Path, key: SigningKey) -> None:
        self.folder = folder
        self.network = key.network
        self._key = key
        self._key_id = key.public().id

    @classmethod
    def create(cls, folder: str | Path, network: str, *, now: datetime | None = None) -> Issuer:
        """Make a new key pair in a folder that has none."""
        into = Path(folder)
        if not network:
            raise KeyFileError("network: it is empty; give the network's name")
        make_folder(into)
        key = SigningKey.make(network, now)
        with locked(into):
            key.write_new(into / PRIVATE_KEY)
            PublicKeys(network=network, keys=(key.public(),)).write(into / PUBLIC_KEYS)
            if not (into / REVOKED).exists():
                append_line(into / REVOKED, "# ids of revoked tokens, one a line", PUBLIC)
        return cls(into, key)

    @classmethod
    def open(cls, folder: str | Path) -> Issuer:
        """Load the key of a folder."""
        within = Path(folder)
        if not (within / PRIVATE_KEY).exists():
            raise KeyFileError(f"{within}: holds no token key; make one with: meetpoint token key {within}")
        return cls(within, SigningKey.read(within / PRIVATE_KEY))

    @property
    def key_id(self) -> str:
        """The id of the key that signs new tokens."""
        return self._key_id

    @property
    def public_keys(self) -> Path:
        """The file of public keys, for brokers to copy."""
        return self.folder / PUBLIC_KEYS

    @property
    def revoked(self) -> Path:
        """The file of revoked ids, for brokers to copy."""
        return self.folder / REVOKED

    def rotate(self, *, now: datetime | None = None) -> Issuer:
        """Sign with a new key from now on.

        Tokens of the old key are valid until they expire, or until its public key is forgotten. The public file is
        written first: brokers can have the new key before any token is signed with it.
        """
        with locked(self.folder):
            known = PublicKeys.read(self.public_keys)
            if len(known.keys) >= KEYS_MAX:
                raise KeyFileError(f"{self.public_keys}: holds {KEYS_MAX} keys; forget one first, with --forget ID")
            key = SigningKey.make(self.network, now)
            known.with_key(key.public()).write(self.public_keys)
            key.replace(self.folder / PRIVATE_KEY)
        return Issuer(self.folder, key)

    def forget(self, key_id: str) -> None:
        """Take a public key off the list: brokers that have the new list refuse every token of that key."""
        with locked(self.folder):
            known = PublicKeys.read(self.public_keys)
            if key_id == self._key_id:
                raise KeyFileError(f"{self.public_keys}: {key_id} signs new tokens; make another first, with --rotate")
            left = known.without(key_id)
            if left == known:
                ids = ", ".join(key.id for key in known.keys)
                raise KeyFileError(f"{self.public_keys}: holds no key {key_id}; there are: {ids}")
            left.write(self.public_keys)

    def issue(
        self,
        client: str,
        *,
        seconds: float,
        tenant: str = "",
        publish: Rights = Rights(),  # noqa: B008 - frozen
        subscribe: Rights = Rights(),  # noqa: B008 - frozen
        roles: Sequence[Role] = (),
        begins: float | None = None,
        now: float | None = None,
    ) -> str:
        """Issue a token to a client, valid for some seconds from `begins` or from now."""
        at = time.time() if now is None else now
        start = at if begins is None else begins
        _check_name(client, "client")
        if tenant:
            _check_name(tenant, "tenant")
        if not seconds >= 1:
            raise TokenError("malformed", f"{seconds:g} seconds is no lifetime; give one second or more")
        claims = _Claims(
            aud=self.network,
            sub=client,
            jti=secrets.token_hex(12),
            nbf=int(start),
            exp=int(start + seconds),
            tenant=tenant,
            publish=publish,
            subscribe=subscribe,
            roles=tuple(dict.fromkeys(roles)),
        )
        Permit(_grant(claims, self._key_id))  # brokers would refuse a token with a bad filter at every connection
        header = {"alg": _ALGORITHM, "typ": _TYPE, "kid": self._key_id}
        signer = jwt.PyJWS(algorithms=[_ALGORITHM])
        token = signer.encode(msgspec.json.encode(claims), self._key.loaded(), algorithm=_ALGORITHM, headers=header)
        if len(token) > TOKEN_MAX:
            raise TokenError(
                "malformed",
                f"it would have {len(token):,} characters, and the limit is {TOKEN_MAX:,}; give fewer filters, "
                "or shorter ones",
            )
        record = _IssuedToken(claims.jti, client, tenant, claims.exp)
        with locked(self.folder):  # noted first: what was handed out can be revoked
            append_line(self.folder / _ISSUED, msgspec.json.encode(record).decode(), PRIVATE)
        return token

    def revoke(self, token_ids: Iterable[str]) -> tuple[str, ...]:
        """Revoke tokens by their ids; return those that were not revoked before.

        Brokers refuse them as soon as they have the new list.
        """
        with locked(self.folder):
            known = _read_revoked(self.revoked) if self.revoked.exists() else frozenset()
            wanted = tuple(each for each in dict.fromkeys(token_ids) if each not in known)
            for each in wanted:
                if not (each.isascii() and each.isalnum()):
                    raise TokenError("malformed", f"{each!r} is no id of a token; see: meetpoint token show TOKEN")
            for each in wanted:
                append_line(self.revoked, each, PUBLIC)
        return wanted

    def issued_to(self, client: str, tenant: str = "", *, now: float | None = None) -> tuple[str, ...]:
        """Return the ids of a client's tokens that have not expired."""
        at = time.time() if now is None else now
        path = self.folder / _ISSUED
        found = []
        for number, line in enumerate(read(path, "what was issued").splitlines() if path.exists() else (), start=1):
            try:
                record = msgspec.json.decode(line, type=_IssuedToken)
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise KeyFileError(f"{path}: line {number} cannot be read; put back a copy of the file") from None
            if (record.client, record.tenant) == (client, tenant) and record.expires > at:
                found.append(record.id)
        return tuple(found)


class Verifier:
    """Checks tokens against public keys and a revocation list; make a new one when a file changes."""

    def __init__(
        self,
        keys: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        revoked: str | os.PathLike[str] | None,
        network: str,
    ) -> None:
        paths = [keys] if isinstance(keys, (str, os.PathLike)) else list(keys)
        self._network = network
        self._keys: dict[str, Ed25519PublicKey] = {}
        for path in map(Path, paths):
            found = PublicKeys.read(path)
            if found.network != network:
                raise KeyFileError(
                    f"{path}: holds keys of network {found.network!r}, and this is {network!r}; give this network's"
                )
            self._keys |= {key.id: key.loaded() for key in found.keys}
        self._revoked = frozenset() if revoked is None else _read_revoked(Path(revoked))
        self._signatures = jwt.PyJWS(algorithms=[_ALGORITHM])

    def read(self, token: str, now: float) -> Grant:
        """Return the grant of a token at a moment (seconds since 1970); raise TokenError where it is refused."""
        grant = self._genuine(token)
        self.check(grant, now)
        return grant

    def check(self, grant: Grant, now: float) -> None:
        """Check again the time, key and revocation of a grant; raise TokenError where it is refused."""
        if grant.key not in self._keys:
            raise TokenError("signature", f"its key {grant.key} is no longer trusted here; ask for a new token")
        if now >= grant.expires:
            raise TokenError("expired", f"it expired at {show_time(grant.expires)}; ask for a new one")
        if now < grant.begins - CLOCKS_APART_S:
            raise TokenError("not_yet", f"it counts only from {show_time(grant.begins)} on; wait, or check the clocks")
        if grant.id in self._revoked:
            raise TokenError("revoked", f"{grant.id} was revoked; ask for a new one")

    def _genuine(self, token: str) -> Grant:
        if not token:
            raise TokenError(
                "missing",
                "none was given, and this network wants one; give token=…, in a shell --token-file",
            )
        if len(token) > TOKEN_MAX:
            raise TokenError("malformed", f"it has {len(token):,} characters, and the limit is {TOKEN_MAX:,}")
        header = _header(token)
        key = self._keys.get(header.kid)
        if key is None:
            raise TokenError(
                "signature", "it was signed with a key that is not trusted here; ask for one of this network"
            )
        try:
            # The header's own `alg` is ignored: with `none` a forged token would need no signature.
            content = self._signatures.decode(token, key, algorithms=[_ALGORITHM])
        except jwt.InvalidSignatureError:
            raise TokenError("signature", "its signature is wrong; ask for a new one") from None
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise _no_token() from None
        try:
            claims = msgspec.json.decode(content, type=_Claims)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise TokenError("malformed", f"its content is not known here: {error}; ask for a new one") from None
        if claims.aud != self._network:
            raise TokenError("network", f"it is for network {claims.aud!r}, and this is {self._network!r}")
        return _grant(claims, header.kid)


def read_unverified(token: str) -> Grant:
    """Return the content of a token without checking its signature: to show it, never for a decision."""
    if len(token) > TOKEN_MAX:
        raise TokenError("malformed", f"it has {len(token):,} characters, and the limit is {TOKEN_MAX:,}")
    header = _header(token)
    try:
        content = jwt.PyJWS(algorithms=[_ALGORITHM]).decode(token, options={"verify_signature": False})
        return _grant(msgspec.json.decode(content, type=_Claims), header.kid)
    except (jwt.PyJWTError, msgspec.DecodeError, ValueError, RecursionError):
        raise _no_token() from None


def _no_token() -> TokenError:
    return TokenError("malformed", "it is no token; give what `meetpoint token issue` printed")


def _header(token: str) -> _Header:
    try:
        return msgspec.convert(jwt.get_unverified_header(token), _Header)
    except (jwt.PyJWTError, msgspec.ValidationError, ValueError, RecursionError):
        raise _no_token() from None


def _grant(claims: _Claims, key_id: str) -> Grant:
    return Grant(
        client=claims.sub,
        tenant=claims.tenant,
        publish=claims.publish,
        subscribe=claims.subscribe,
        roles=claims.roles,
        id=claims.jti,
        key=key_id,
        begins=float(claims.nbf),
        expires=float(claims.exp),
    )


def _read_revoked(path: Path) -> frozenset[str]:
    """Read the ids of a file, one a line; the text after a # is a comment."""
    try:
        lines = read(path, "revoked tokens").decode().splitlines()
    except UnicodeDecodeError:
        raise KeyFileError(f"{path}: is no text in UTF-8; write one id a line") from None
    ids = [line.partition("#")[0].strip() for line in lines]
    for number, each in enumerate(ids, start=1):
        if each and not (each.isascii() and each.isalnum()):
            raise KeyFileError(f"{path}: line {number} is no id of a token; write one id a line")
    return frozenset(filter(None, ids))


def _check_name(name: str, what: str) -> None:
    if not 0 < len(name) <= NAME_MAX:
        raise TokenError("malformed", f"{what}: it has {len(name)} characters; give it 1 to {NAME_MAX}")
    if not name.isprintable() or "/" in name:
        raise TokenError("malformed", f"{what}: {name!r} has a slash or what cannot be printed; give it another name")
