"""Certificates, tokens and permissions: the identity of brokers and clients, and what they may do.

Nothing here opens a socket: `broker` and `client` ask, and act on the answer. Names are loaded when they are first
used: a broker without certificates and tokens needs neither `cryptography` nor `jwt`, which take 9 MB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meetpoint.security.authority import Authority, IssuedCertificate
    from meetpoint.security.certificates import (
        BrokerIdentity,
        Certificate,
        CertificateError,
        identity_of,
        read_certificate,
        read_revoked,
    )
    from meetpoint.security.grants import Grant, Permit, Rights, TokenError
    from meetpoint.security.tokens import Issuer, KeyFileError, Verifier

__all__ = [
    "Authority",
    "BrokerIdentity",
    "Certificate",
    "CertificateError",
    "Grant",
    "IssuedCertificate",
    "Issuer",
    "KeyFileError",
    "Permit",
    "Rights",
    "TokenError",
    "Verifier",
    "identity_of",
    "read_certificate",
    "read_revoked",
]

_MODULES = {
    "authority": ("Authority", "IssuedCertificate"),
    "certificates": (
        "BrokerIdentity",
        "Certificate",
        "CertificateError",
        "identity_of",
        "read_certificate",
        "read_revoked",
    ),
    "grants": ("Grant", "Permit", "Rights", "TokenError"),
    "tokens": ("Issuer", "KeyFileError", "Verifier"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
