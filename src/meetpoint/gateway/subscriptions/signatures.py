"""Signatures on webhooks, as the Standard Webhooks specification has them.

A sink that shares the secret sees that a request is the gateway's and is not an old one: the signature covers the id,
the time and the body. `webhook-id` stays the same when an event is sent again, so that a sink knows a repeat.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

from meetpoint.gateway.http.errors import ApiError

__all__ = ["make_secret", "read_secret", "sign"]

PREFIX: Final = "whsec_"
SECRET_BYTES: Final = 32
_BYTES_MIN, _BYTES_MAX = 16, 64


def make_secret() -> str:
    """A new secret."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def read_secret(text: str) -> bytes:
    """The bytes of a secret."""
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True) if text.startswith(PREFIX) else b""
    except (binascii.Error, ValueError):
        key = b""
    if not _BYTES_MIN <= len(key) <= _BYTES_MAX:
        rule = f"{PREFIX} and {_BYTES_MIN} to {_BYTES_MAX} bytes in base64"
        raise ApiError(422, "secret", f"secret: write {rule}, or leave it out to get one")
    return key


def sign(key: bytes, id_: str, at_s: int, body: bytes) -> dict[str, str]:
    """The headers of a request with this id, time and body."""
    digest = hmac.new(key, b"%b.%d.%b" % (id_.encode(), at_s, body), hashlib.sha256).digest()
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
