"""Addresses of sinks: where a webhook may go, and where it must not."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import socket
from typing import Any

import pytest

from meetpoint.gateway.http.errors import ApiError
from meetpoint.gateway.subscriptions.sinks import SinkResolver, check_sink, is_public
from meetpoint.gateway.subscriptions.webhooks import make_secret, read_secret, sign


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "224.0.0.1", "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "not an address", "",
    ],
)  # fmt: skip
def test_an_address_of_this_machine_or_its_network_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_an_address_of_the_internet_is(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "sink",
    [
        "http://example.org/", "ftp://example.org/", "file:///etc/passwd", "https://", "https:///a", "example.org",
        "https://" + "a:b@c.org/", "https://" + "a@c.org/", "https://example.org/#a", "https://a b.org/",
        "https://example.org/\r\nHost: x", "https://127.0.0.1/", "https://[::1]/", "https://[::ffff:169.254.169.254]/",
        "https://localhost/", "https://LOCALHOST:8400/", "https://db.internal/", "https://printer.local/",
        "https://example.org:0/", "https://example.org:99999/", "https://[::1", "https://ex\u00e4mple.org/",
        "https://example.org/" + "a" * 2000,
    ],
)  # fmt: skip
def test_a_sink_that_is_none_is_refused(sink: str) -> None:
    with pytest.raises(ApiError) as raised:
        check_sink(sink, private_ok=False)
    assert (raised.value.status, raised.value.kind) == (422, "sink")


def test_a_sink_of_ones_own_network_wants_a_setting() -> None:
    assert check_sink("https://example.org:8443/a?b=c", private_ok=False)
    assert check_sink("http://127.0.0.1:8000/hook", private_ok=True)
    with pytest.raises(ApiError):
        check_sink("ftp://127.0.0.1/", private_ok=True)


@pytest.mark.parametrize("found", [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["::1"]])
def test_a_name_that_leads_inside_is_not_gone_to_however_it_is_written(found: list[str], monkeypatch: Any) -> None:
    async def main() -> None:
        async def look_up(*_: object, **__: object) -> list[tuple[Any, ...]]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 443)) for each in found]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up, raising=False)
        with pytest.raises(OSError, match="not of the public internet"):
            await SinkResolver(private_ok=False).resolve("rebound.example.org", 443)
        allowed = await SinkResolver(private_ok=True).resolve("rebound.example.org", 443)
        assert [each["host"] for each in allowed] == found

    asyncio.run(main())


def test_a_signature_is_that_of_standard_webhooks() -> None:
    secret = make_secret()
    key = read_secret(secret)
    assert len(key) == 32
    headers = sign(key, "id", 1_700_000_000, b"{}")
    digest = hmac.new(base64.b64decode(secret[6:]), b"id.1700000000.{}", hashlib.sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
    assert headers["webhook-timestamp"] == "1700000000"
    changed = [
        sign(key, "ie", 1_700_000_000, b"{}"),
        sign(key, "id", 1_700_000_001, b"{}"),
        sign(key, "id", 1_700_000_000, b""),
    ]
    assert headers["webhook-signature"] not in [each["webhook-signature"] for each in changed]


@pytest.mark.parametrize("secret", ["", "secret", "whsec_", "whsec_AAAA", "whsec_!!!!", "whsec_" + "A" * 200])
def test_a_secret_that_is_none_is_refused(secret: str) -> None:
    with pytest.raises(ApiError, match="16 to 64 bytes"):
        read_secret(secret)
