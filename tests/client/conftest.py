"""Networks of real brokers for the client's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import meetpoint as mp
from meetpoint.local import Local
from tests.client.running import HASTY


@pytest.fixture(scope="package")
def here() -> Iterator[Local]:
    """Three brokers that all tests of the package share; each test has names of its own."""
    with mp.local(brokers=3, node=HASTY) as running:
        yield running
