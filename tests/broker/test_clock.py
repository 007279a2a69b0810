"""A broker's clock beside the one on the wall, which is set; with real processes in `tests.processes.test_clocks`."""

from __future__ import annotations

import pytest

from meetpoint.broker import clock as clock_module
from meetpoint.broker.clock import Clock


@pytest.mark.parametrize("by_s", [3600, -3600])
def test_it_goes_on_as_it_was_and_knows_how_far_the_wall_is_off(monkeypatch: pytest.MonkeyPatch, by_s: int) -> None:
    passed_s, set_s = 0, 0
    monkeypatch.setattr(clock_module, "monotonic_ns", lambda: (70 + passed_s) * 10**9)
    monkeypatch.setattr(clock_module, "time_ns", lambda: (1_700_000_000 + passed_s + set_s) * 10**9)
    clock = Clock()
    assert (clock.now(), clock.off_s) == (1_700_000_000 * 10**6, 0)
    passed_s, set_s = 5, by_s
    assert (clock.now(), clock.off_s) == (1_700_000_005 * 10**6, by_s)
    assert Clock().now() - clock.now() == by_s * 10**6, "the next life has the new time"
