"""Networks of brokers for the client's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import meetpoint as mp
from meetpoint.local_network import Local, LocalNetwork
from tests.client.running import HASTY
from tests.virtual_time import local_network


@pytest.fixture
def here() -> Iterator[LocalNetwork]:
    """Three brokers on virtual time, in the loop in which `run` runs the test."""
    with local_network(brokers=3, node=HASTY) as running:
        yield running


@pytest.fixture(scope="package")
def in_thread() -> Iterator[Local]:
    """Three brokers in a thread, for clients without asyncio; tests share them and have names of their own."""
    with mp.local(brokers=3, node=HASTY) as running:
        yield running
