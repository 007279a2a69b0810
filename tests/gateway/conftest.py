"""The network that the gateway's tests share; each test has events and names of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import meetpoint as mp
from meetpoint.local import Local


@pytest.fixture(scope="package")
def here() -> Iterator[Local]:
    """Two brokers."""
    with mp.local(brokers=2) as running:
        yield running
