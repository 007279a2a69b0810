"""Tokens: what a client may do, signed by whoever holds the network's token key.

A token is a JSON Web Token signed with Ed25519. Brokers hold public keys only, so that no broker can make one. Nothing
in it is secret but the whole is: whoever has it may do what it says until it expires or is revoked.

Rules of reading, each fails closed: the algorithm is ours and never the token's choice; a claim that is not known is
refused, since it might take a right away; the audience is this network; times are compared with a clock that is passed
in.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from meetpoint.security.files import PRIVATE, PUBLIC, append_line, locked, make_folder, read
from meetpoint.security.grants import EVERYTHING, Grant, Rights, Role, TokenError, TokenProblem, show_time
from meetpoint.security.keys import KEYS_MAX, PRIVATE_KEY, PUBLIC_KEYS, KeyFileError, PublicKeys, SigningKey
from meetpoint.security.permissions import Permit

__all__ = [
    "CLOCKS_APART_S",
    "EVERYTHING",
    "NAME_MAX",
    "REVOKED",
    "TOKEN_MAX",
    "Grant",
    "Issuer",
    "Rights",
    "Role",
    "TokenError",
    "TokenProblem",
    "Verifier",
]

TOKEN_MAX = 3072
"""Characters of a token: it fits a hello of 4 KiB with the rest of what is said there."""
NAME_MAX = 100
"""Characters of a client's and a tenant's name."""
CLOCKS_APART_S = 60.0
"""So much earlier than it says a token counts, for brokers whose clocks are behind the issuer's."""
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


class _Record(msgspec.Struct, frozen=True):
    """One line of what was issued, for revoking by the client's name. The token itself is not kept."""

    id: str
    client: str
    tenant: str
    expires: int


class Issuer:
    """Makes tokens, with the private key in a folder."""

    def __init__(self, folder: Path, key: SigningKey) -> None:
        self.folder = folder
        self.network = key.network
        self._key = key
        self._key_id = key.public().id

    @classmethod
    def create(cls, folder: str | Path, network: str, *, now: datetime | None = None) -> Issuer:
        """A new key pair in a folder that has none."""
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
        """The key in a folder."""
        within = Path(folder)
        if not (within / PRIVATE_KEY).exists():
            raise KeyFileError(f"{within}: holds no token key; make one with: meetpoint token key {within}")
        return cls(within, SigningKey.read(within / PRIVATE_KEY))

    @property
    def key_id(self) -> str:
        """The id of the key that signs now."""
        return self._key_id

    @property
    def public_keys(self) -> Path:
        """The file that brokers get a copy of."""
        return self.folder / PUBLIC_KEYS

    @property
    def revoked(self) -> Path:
        """The list of revoked tokens, which brokers get a copy of."""
        return self.folder / REVOKED

    def rotate(self, *, now: datetime | None = None) -> Issuer:
        """A new key from now on. Tokens of the old one count until they expire, or until its public key is forgotten.

        The public file is written first: brokers can have the new key before any token is signed with it.
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
        """A token for a client that counts for some seconds, from `begins` on or from now."""
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
        Permit(_grant(claims, self._key_id))
        header = {"alg": _ALGORITHM, "typ": _TYPE, "kid": self._key_id}
        signer = jwt.PyJWS(algorithms=[_ALGORITHM])
        token = signer.encode(msgspec.json.encode(claims), self._key.loaded(), algorithm=_ALGORITHM, headers=header)
        if len(token) > TOKEN_MAX:
            raise TokenError(
                "malformed",
                f"it would have {len(token):,} characters, and the limit is {TOKEN_MAX:,}; give fewer filters, "
                "or shorter ones",
            )
        record = _Record(claims.jti, client, tenant, claims.exp)
        with locked(self.folder):  # noted first: what was handed out can be revoked
            append_line(self.folder / _ISSUED, msgspec.json.encode(record).decode(), PRIVATE)
        return token

    def revoke(self, token_ids: Iterable[str]) -> tuple[str, ...]:
        """Refuse tokens by their ids, as soon as brokers have the new list; gives those not revoked before."""
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
        """The ids of a client's tokens that have not expired."""
        at = time.time() if now is None else now
        path = self.folder / _ISSUED
        found = []
        for number, line in enumerate(read(path, "what was issued").splitlines() if path.exists() else (), start=1):
            try:
                record = msgspec.json.decode(line, type=_Record)
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise KeyFileError(f"{path}: line {number} cannot be read; put back a copy of the file") from None
            if (record.client, record.tenant) == (client, tenant) and record.expires > at:
                found.append(record.id)
        return tuple(found)


class Verifier:
    """Reads tokens, with public keys and the list of revoked ones. Made anew where a file has changed."""

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
        """What a token grants at a moment (seconds since 1970); TokenError where it is refused."""
        grant = self._genuine(token)
        self.check(grant, now)
        return grant

    def check(self, grant: Grant, now: float) -> None:
        """Whether a token that was read before still counts: its time, its key, and whether it was revoked."""
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
    """What a token says, whoever signed it: for a person who wants to look at one, never for a decision."""
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
    """Ids, one a line; what follows a # is for people."""
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
