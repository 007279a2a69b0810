"""One script, all schemes on all overlays: the same notifications, and nothing wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meetpoint import sim
from meetpoint.catalog import OVERLAYS, SCHEMES
from tests.scripts import SCRIPTS, Network


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_every_scheme_gives_the_same_notifications(script: Callable[[Network], None]) -> None:
    told = {}
    for overlay in OVERLAYS:
        for scheme in SCHEMES:
            net = sim.Network(overlay=overlay, scheme=scheme, nodes=5, seed=7)
            script(net)
            net.run()
            report = net.report()
            assert (report.counts, report.problems) == (dict.fromkeys(report.counts, 0), []), (overlay, scheme)
            assert report.notifications_expected > 0
            told[overlay, scheme] = {name: sorted(events) for name, events in net.notifications.items()}
    assert all(each == told["chord", "flood"] for each in told.values())
