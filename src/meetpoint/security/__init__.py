"""Who brokers and clients are, and what they may do: certificates, tokens and permissions.

Nothing here opens a socket: `net` and `client` ask, and act on the answer. Names are loaded when they are first used: a
broker without certificates and tokens needs neither `cryptography` nor `jwt`, which take 9 MB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meetpoint.security.authority import Authority, Issued
    from meetpoint.security.certificates import (
        BrokerIdentity,
        Certificate,
        CertificateError,
        identity_of,
        read_certificate,
        read_revoked,
    )
    from meetpoint.security.grants import Grant, Rights, TokenError
    from meetpoint.security.keys import KeyFileError
    from meetpoint.security.permissions import Permit
    from meetpoint.security.tokens import Issuer, Verifier

__all__ = [
    "Authority",
    "BrokerIdentity",
    "Certificate",
    "CertificateError",
    "Grant",
    "Issued",
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
    "authority": ("Authority", "Issued"),
    "certificates": (
        "BrokerIdentity",
        "Certificate",
        "CertificateError",
        "identity_of",
        "read_certificate",
        "read_revoked",
    ),
    "grants": ("Grant", "Rights", "TokenError"),
    "keys": ("KeyFileError",),
    "permissions": ("Permit",),
    "tokens": ("Issuer", "Verifier"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
