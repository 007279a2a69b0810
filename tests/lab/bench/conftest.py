"""The command, run in this process, with turns as short as they can be."""

from __future__ import annotations

import pytest

from meetpoint.lab.bench import rounds as measurements
from tests.cli.conftest import meetpoint as meetpoint


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "SLICE_S", 0.0)
