"""A broker's clock beside the one on the wall, which is set; with real processes in `tests.brokers.test_clocks`."""

from __future__ import annotations

import time

import pytest

from meetpoint.net import clock as clock_module
from meetpoint.net.clock import Clock


@pytest.mark.parametrize("by_s", [3600, -3600])
def test_it_goes_on_as_it_was_and_knows_how_far_the_wall_is_off(monkeypatch: pytest.MonkeyPatch, by_s: int) -> None:
    clock = Clock()
    assert clock.off_s == pytest.approx(0, abs=1)
    before = clock.now()
    monkeypatch.setattr(clock_module, "time_ns", lambda: time.time_ns() + by_s * 10**9)
    assert 0 <= clock.now() - before < 60 * 10**6
    assert clock.off_s == pytest.approx(by_s, abs=1)
    assert Clock().now() - clock.now() == pytest.approx(by_s * 10**6, abs=10**6), "the next life has the new time"
