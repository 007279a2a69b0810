"""Networks of brokers for the gateway's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import meetpoint as mp
from meetpoint.local_network import Local, LocalNetwork
from tests.virtual_time import local_network


@pytest.fixture
def here() -> Iterator[LocalNetwork]:
    """Two brokers on virtual time, in the loop in which `run` runs the test."""
    with local_network(brokers=2) as running:
        yield running


@pytest.fixture(scope="package")
def in_thread() -> Iterator[Local]:
    """Two brokers in a thread, for clients without asyncio; tests share them and have names of their own."""
    with mp.local(brokers=2) as running:
        yield running
