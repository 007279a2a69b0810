"""Certificates of brokers, and the lists of revoked ones.

A broker's certificate names it by one URI among its alternative names, `meetpoint://NETWORK/broker/NAME`, each part
percent-encoded. A broker's id follows from its name, so that a certificate is good for one id. The hosts that clients
reach the broker by stand beside the URI.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from meetpoint.errors import MeetpointError, optional_imports
from meetpoint.security.files import read

with optional_imports():
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding

__all__ = [
    "NAME_MAX",
    "BrokerIdentity",
    "Certificate",
    "CertificateError",
    "certificate_of",
    "identity_of",
    "network_of",
    "network_uri",
    "read_certificate",
    "read_revoked",
    "uri_of",
]

NAME_MAX = 200
"""The longest name of a broker or a network, in characters."""

_SCHEME = "meetpoint://"
_HOST_MAX = 253
_CRL = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)


class CertificateError(MeetpointError):
    """A certificate, or a revocation list, was refused."""


class BrokerIdentity(NamedTuple):
    """A broker's name and network."""

    network: str
    name: str

    def __str__(self) -> str:
        return f"broker {self.name} of network {self.network}"


class Certificate(NamedTuple):
    """The content of a certificate, as far as brokers look at it."""

    identity: BrokerIdentity | None
    network: str | None
    """The network of the broker, or of the authority."""
    addresses: tuple[str, ...]
    serial: int
    begins: datetime
    ends: datetime
    is_authority: bool
    fingerprint: str
    """SHA-256 over the whole certificate, in hexadecimal digits."""

    def why_not_now(self, now: float) -> str | None:
        """Return why the certificate is not valid at a moment (seconds since 1970), or None."""
        at = datetime.fromtimestamp(now, UTC)
        if at < self.begins:
            return f"it counts only from {self.begins:%Y-%m-%d %H:%M:%S} UTC on"
        if at > self.ends:
            return f"it expired at {self.ends:%Y-%m-%d %H:%M:%S} UTC"
        return None


def identity_of(der: bytes) -> BrokerIdentity | None:
    """Return the broker that a certificate names, or None.

    None also where it names more than one, or spells one in another way: two spellings of a name would be two ids.
    """
    try:
        loaded = x509.load_der_x509_certificate(der)
    except (ValueError, UnsupportedAlgorithm):
        return None
    return _identity(loaded)


def certificate_of(der: bytes) -> Certificate:
    """Read a certificate in DER; raise CertificateError where the bytes are none."""
    try:
        return _facts(x509.load_der_x509_certificate(der))
    except (ValueError, UnsupportedAlgorithm):
        raise CertificateError("the certificate cannot be read; have it issued again: meetpoint ca issue") from None


def read_certificate(path: str | Path) -> Certificate:
    """Read the first certificate of a PEM file."""
    return _facts(load_certificate(Path(path)))


def read_revoked(path: str | Path, authority: str | Path) -> frozenset[int]:
    """Return the serial numbers that a file lists as revoked, in lists that the authority signed.

    Both files may hold several: while one authority follows another, each has a list.
    """
    signers = [signer.public_key() for signer in load_certificates(Path(authority))]
    found: set[int] = set()
    for revoked in load_revoked(Path(path)):
        if not any(isinstance(key, ec.EllipticCurvePublicKey) and revoked.is_signature_valid(key) for key in signers):
            raise CertificateError(f"{path}: the list was not signed by the authority {authority}; copy the right one")
        found.update(entry.serial_number for entry in revoked)
    return frozenset(found)


def load_certificate(path: Path) -> x509.Certificate:
    """Load the first certificate of a PEM file."""
    return load_certificates(path)[0]


def load_certificates(path: Path) -> list[x509.Certificate]:
    """Load all certificates of a PEM file: at least one."""
    try:
        return x509.load_pem_x509_certificates(read(path, "certificate"))
    except (ValueError, UnsupportedAlgorithm):
        raise CertificateError(f"{path}: holds no certificate in PEM; give a file of: meetpoint ca issue") from None


def load_revoked(path: Path) -> list[x509.CertificateRevocationList]:
    """Load all revocation lists of a PEM file: at least one."""
    blocks = _CRL.findall(read(path, "revoked certificates"))
    try:
        if blocks:
            return [x509.load_pem_x509_crl(block) for block in blocks]
    except (ValueError, UnsupportedAlgorithm):
        pass
    raise CertificateError(f"{path}: holds no list of revoked certificates in PEM; copy revoked.crl")


def uri_of(identity: BrokerIdentity) -> str:
    """Return the one spelling of a broker in its certificate."""
    return f"{network_uri(identity.network)}broker/{_part(identity.name, 'name')}"


def network_uri(network: str) -> str:
    """Return the one spelling of a network in its authority's certificate."""
    return f"{_SCHEME}{_part(network, 'network')}/"


def network_of(authority: x509.Certificate) -> str | None:
    """Return the network of an authority."""
    uri = _only_uri(authority)
    network = unquote(uri.removeprefix(_SCHEME).rstrip("/"))
    try:
        return network if network_uri(network) == uri else None
    except CertificateError:
        return None


def host_name(address: str) -> x509.GeneralName:
    """Return a host as a certificate names it: an IP address or a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(address.removeprefix("[").removesuffix("]")))
    except ValueError:
        pass
    try:
        name = address.encode("idna").decode("ascii").lower()
    except UnicodeError:
        name = ""
    if len(name) > _HOST_MAX or not name or not all(map(_LABEL.fullmatch, name.split("."))):
        raise CertificateError(
            f"address {address!r} is no host; write a host name or an IP address, without a port or a star"
        )
    return x509.DNSName(name)


def fingerprint_of(certificate: x509.Certificate) -> str:
    """Return the SHA-256 digest of the whole certificate, in hexadecimal digits."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def _part(text: str, what: str) -> str:
    if not 0 < len(text) <= NAME_MAX:
        raise CertificateError(f"{what}: it has {len(text)} characters; give it 1 to {NAME_MAX}")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise CertificateError(f"{what}: {text!r} is no text that can be written; give it another") from None


def _identity(certificate: x509.Certificate) -> BrokerIdentity | None:
    uri = _only_uri(certificate)
    parts = uri.removeprefix(_SCHEME).split("/")
    if len(parts) != 3 or parts[1] != "broker":
        return None
    identity = BrokerIdentity(unquote(parts[0]), unquote(parts[2]))
    try:
        return identity if uri_of(identity) == uri else None
    except CertificateError:
        return None


def _only_uri(certificate: x509.Certificate) -> str:
    """Return the one URI of Meetpoint; empty where there is none, or more than one."""
    # Several would leave it to the reader which broker the certificate is for.
    named = [uri for uri in _alternative(certificate, x509.UniformResourceIdentifier) if uri.startswith(_SCHEME)]
    return named[0] if len(named) == 1 else ""


def _facts(certificate: x509.Certificate) -> Certificate:
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        is_authority = constraints.ca
    except (ValueError, x509.ExtensionNotFound):
        is_authority = False
    identity = _identity(certificate)
    return Certificate(
        identity=identity,
        network=network_of(certificate) if identity is None else identity.network,
        addresses=(*_alternative(certificate, x509.DNSName), *map(str, _alternative(certificate, x509.IPAddress))),
        serial=certificate.serial_number,
        begins=certificate.not_valid_before_utc,
        ends=certificate.not_valid_after_utc,
        is_authority=is_authority,
        fingerprint=fingerprint_of(certificate),
    )


def _alternative(
    certificate: x509.Certificate, kind: type[x509.DNSName | x509.IPAddress | x509.UniformResourceIdentifier]
) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):  # there are extensions that cannot be read, or there is none of these
        return []
    return [str(name) for name in names.get_values_for_type(kind)]


def pem_of(certificates: Iterable[x509.Certificate]) -> bytes:
    """Encode certificates as PEM."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
