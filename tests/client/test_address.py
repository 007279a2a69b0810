"""Urls: what they name, and what is said of those that name nothing."""

from __future__ import annotations

import pytest

from meetpoint.client.arguments import read_address, read_url
from meetpoint.client.errors import NetworkError


@pytest.mark.parametrize(
    ("url", "addresses", "is_tls"),
    [
        ("mp://localhost:7400", ("localhost:7400",), False),
        ("mp://localhost", ("localhost:7400",), False),
        ("mp://localhost:7400/", ("localhost:7400",), False),
        ("localhost:1", ("localhost:1",), False),
        ("mp://a:1,b:2, a:1", ("a:1", "b:2"), False),
        ("mp://[::1]:7400", ("[::1]:7400",), False),
        ("mp://127.0.0.1:65535", ("127.0.0.1:65535",), False),
        ("mps://localhost", ("localhost:7400",), True),
        ("mps://a:1,b:2", ("a:1", "b:2"), True),
    ],
)
def test_a_url_names_addresses(url: str, addresses: tuple[str, ...], is_tls: bool) -> None:
    assert read_url(url) == (addresses, is_tls)


@pytest.mark.parametrize(
    "url", ["", "mp://", "mps://", "http://localhost:7400", "mp://a:0", "mp://a:65536", "mp://a:x", "mp://a b:1", "mp://a:1,,b:2",
            "mp://user@host:1", "mp://host:1/path", "mp://::1:7400"]
)  # fmt: skip
def test_what_names_nothing_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(NetworkError, match=r"write mp://localhost:7400") as refused:
        read_url(url)
    assert "\n" not in str(refused.value)
    assert repr(url) in str(refused.value)


def test_hosts_and_ports_are_as_sockets_want_them() -> None:
    assert read_address("[::1]:7400") == ("::1", 7400)
    assert read_address("localhost:1") == ("localhost", 1)
    with pytest.raises(NetworkError, match="is no host:port"):
        read_address("localhost")
