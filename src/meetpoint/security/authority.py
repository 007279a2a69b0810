"""A private certificate authority: one folder, one network.

ca.pem          its certificate; every broker and every client gets a copy ca.key          its private key: anyone who
has it can make brokers, so it belongs on no broker issued.jsonl    a line for each certificate that was issued or
revoked; the revocation list is made from it revoked.crl     the signed revocation list; brokers get a copy

Keys are ECDSA over P-256, which every TLS 1.3 stack supports. The revocation list is valid until the authority's own
end: with an earlier date, a broker that still had an old list would refuse everyone on that day.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

import msgspec

from meetpoint.errors import optional_imports
from meetpoint.security.certificates import (
    BrokerIdentity,
    CertificateError,
    host_name,
    load_certificate,
    network_of,
    network_uri,
    pem_of,
    uri_of,
)
from meetpoint.security.files import PRIVATE, PUBLIC, append_line, locked, make_folder, read, replace, write_new

with optional_imports():
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["DAYS", "Authority", "IssuedCertificate"]

DAYS = 365
"""The default lifetime of a broker's certificate."""
AUTHORITY_DAYS = 3650
CLOCKS_APART = timedelta(hours=1)
"""Certificates begin this much earlier, for brokers whose clocks are behind."""
COMMON_NAME_MAX = 64
CERTIFICATE = "certificate.pem"
KEY = "key.pem"
CA = "ca.pem"
REVOKED = "revoked.crl"
_CA_KEY = "ca.key"
_RECORD = "issued.jsonl"


class _LogEntry(msgspec.Struct, frozen=True):
    """A line of the authority's log."""

    did: Literal["issued", "revoked"]
    name: str
    serial: str
    at: datetime
    ends: datetime


class IssuedCertificate(NamedTuple):
    """A broker's certificate with its key and the authority's files, all in PEM."""

    identity: BrokerIdentity
    certificate: bytes
    key: bytes
    authority: bytes
    revoked: bytes
    serial: int
    ends: datetime

    def write_to(self, folder: str | Path, *, renew: bool = False) -> Path:
        """Write all files that a broker needs into a folder; `renew` replaces those of an earlier certificate."""
        into = Path(folder)
        make_folder(into)
        write = replace if renew else write_new
        write(into / KEY, self.key, PRIVATE)
        write(into / CERTIFICATE, self.certificate, PUBLIC)
        replace(into / CA, self.authority, PUBLIC)
        replace(into / REVOKED, self.revoked, PUBLIC)
        return into


class Authority:
    """Issues and revokes the certificates of one network's brokers."""

    def __init__(
        self, folder: Path, network: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> None:
        self.folder = folder
        self.network = network
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(
        cls, folder: str | Path, network: str, *, days: float = AUTHORITY_DAYS, now: datetime | None = None
    ) -> Authority:
        """Make a new authority in a folder that has none."""
        into, at = Path(folder), now or datetime.now(UTC)
        uri = network_uri(network)
        make_folder(into)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _common_name(f"Meetpoint CA of {network}")
        certificate = (
            _builder(name, name, key.public_key(), at, days)
            # Path length 0: a broker's certificate can never sign another one.
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(authority=True), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False)
            .sign(key, hashes.SHA256())
        )
        with locked(into):
            write_new(into / _CA_KEY, _pem_of_key(key), PRIVATE)
            write_new(into / CA, pem_of([certificate]), PUBLIC)
            made = cls(into, network, certificate, key)
            made._write_revoked([], at)
        return made

    @classmethod
    def open(cls, folder: str | Path) -> Authority:
        """Load the authority of a folder."""
        within = Path(folder)
        if not (within / _CA_KEY).exists():
            raise CertificateError(f"{within}: holds no authority; make one with: meetpoint ca init {within}")
        certificate = load_certificate(within / CA)
        try:
            key = load_pem_private_key(read(within / _CA_KEY, "private key"), password=None)
        except (TypeError, ValueError):
            raise CertificateError(
                f"{within / _CA_KEY}: holds no private key in PEM; put the right file there"
            ) from None
        network = network_of(certificate)
        if network is None or not isinstance(key, ec.EllipticCurvePrivateKey):
            raise CertificateError(f"{within}: is no authority of Meetpoint; make one with: meetpoint ca init DIR")
        if key.public_key() != certificate.public_key():
            raise CertificateError(
                f"{within}: {_CA_KEY} is not the key of {CA}; put back the two that were made together"
            )
        return cls(within, network, certificate, key)

    def issue(
        self, name: str, addresses: Sequence[str], days: float = DAYS, *, now: datetime | None = None
    ) -> IssuedCertificate:
        """Issue a certificate to a broker, for the hosts that it is reached by."""
        at = now or datetime.now(UTC)
        identity = BrokerIdentity(self.network, name)
        uri = uri_of(identity)
        if not addresses:
            raise CertificateError(f"{name}: no address; give each host that clients and brokers reach it by")
        if not days > 0:
            raise CertificateError(f"{name}: {days:g} days is no time; give 1 or more")
        last = self._certificate.not_valid_after_utc
        if days > (last - at) / timedelta(days=1):
            raise CertificateError(
                f"{name}: {days:g} days end after the authority itself, at {last:%Y-%m-%d}; give fewer days, "
                "or make a new authority"
            )
        ends = at + timedelta(days=days)
        hosts = list(dict.fromkeys(map(host_name, addresses)))
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_common_name(name), self._certificate.subject, key.public_key(), at, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(authority=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri), *hosts]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        with locked(self.folder):  # noted first: what was handed out can be revoked
            self._note(_LogEntry("issued", name, f"{certificate.serial_number:x}", at, ends))
        return IssuedCertificate(
            identity,
            pem_of([certificate]),
            _pem_of_key(key),
            pem_of([self._certificate]),
            read(self.folder / REVOKED, "revoked certificates"),
            certificate.serial_number,
            ends,
        )

    def revoke(self, name: str, *, serial: int | None = None, now: datetime | None = None) -> tuple[int, ...]:
        """Revoke all certificates of a broker, or the one with this serial number; return the serial numbers.

        Brokers refuse them as soon as they have the new list. The same broker may be issued another afterwards.
        """
        at = now or datetime.now(UTC)
        with locked(self.folder):
            entries = self._entries()
            gone = {entry.serial for entry in entries if entry.did == "revoked"}
            held = [entry for entry in entries if entry.did == "issued" and entry.name == name]
            if serial is not None:
                held = [entry for entry in held if int(entry.serial, 16) == serial]
            if not held:
                which = f"no certificate {serial:x}" if serial is not None else "no certificate"
                known = ", ".join(dict.fromkeys(entry.name for entry in entries)) or "none"
                raise CertificateError(f"{name}: was issued {which} by {self.folder}; issued to: {known}")
            revoked = [_LogEntry("revoked", e.name, e.serial, at, e.ends) for e in held if e.serial not in gone]
            for entry in revoked:
                self._note(entry)
            self._write_revoked([*entries, *revoked], at)
        return tuple(int(entry.serial, 16) for entry in revoked)

    def folder_of(self, name: str) -> Path:
        """Return the default folder for a broker's certificate."""
        spelled = quote(name, safe="")
        return self.folder / (spelled if spelled.strip(".") else spelled.replace(".", "%2E"))

    def _entries(self) -> list[_LogEntry]:
        path = self.folder / _RECORD
        lines = read(path, "what was issued").splitlines() if path.exists() else []
        entries = []
        for number, line in enumerate(lines, start=1):
            try:
                entries.append(msgspec.json.decode(line, type=_LogEntry))
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise CertificateError(f"{path}: line {number} cannot be read; put back a copy of the file") from None
        return entries

    def _note(self, entry: _LogEntry) -> None:
        append_line(self.folder / _RECORD, msgspec.json.encode(entry).decode(), PRIVATE)

    def _write_revoked(self, entries: Sequence[_LogEntry], at: datetime) -> None:
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(at - CLOCKS_APART)
            .next_update(self._certificate.not_valid_after_utc)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.CRLNumber(sum(entry.did == "revoked" for entry in entries)), critical=False)
        )
        for entry in entries:
            if entry.did == "revoked":
                one = x509.RevokedCertificateBuilder().serial_number(int(entry.serial, 16)).revocation_date(entry.at)
                builder = builder.add_revoked_certificate(one.build())
        signed = builder.sign(self._key, hashes.SHA256())
        replace(self.folder / REVOKED, signed.public_bytes(Encoding.PEM), PUBLIC)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, at: datetime, days: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - CLOCKS_APART)
        .not_valid_after(at + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _common_name(text: str) -> x509.Name:
    """Return a subject for people to read; the full identity is the URI among the alternative names."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:COMMON_NAME_MAX])])


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
