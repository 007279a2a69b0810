"""How much of the code one event, and one subscription, runs through: the fewer modules, the easier it is to follow."""

from __future__ import annotations

import pytest

from tests.walks import walks

MODULES = {"publish": 64, "subscribe": 56}
CLOSURES = {"publish": 4, "subscribe": 15}


@pytest.mark.slow
def test_the_walks_are_no_longer_than_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    for name, walk in walks().items():
        with capsys.disabled():
            print(f"\n{name}: {walk}")  # noqa: T201
        assert "broker.driver" in walk.modules, "an operation that no broker saw"
        assert len(walk.modules) <= MODULES[name], walk
        assert len(walk.closures) <= CLOSURES[name], walk.closures
