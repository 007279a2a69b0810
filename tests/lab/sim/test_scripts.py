"""Every scheme runs every script: the same notifications whatever the overlay, and nothing wrong."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from meetpoint.catalog import OVERLAYS, SCHEMES
from meetpoint.lab import sim
from tests.scripts import SCRIPTS, Network
from tests.tiers import SOAK


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_every_scheme_gives_the_same_notifications(script: Callable[[Network], None]) -> None:
    told = []
    for overlay, scheme in _networks(SCRIPTS.index(script)):
        net = sim.Network(overlay=overlay, scheme=scheme, nodes=5, seed=7)
        script(net)
        net.run()
        report = net.report()
        assert (report.counts, report.problems) == (dict.fromkeys(report.counts, 0), []), (overlay, scheme)
        assert report.notifications_expected > 0
        told.append({name: sorted(events) for name, events in net.notifications.items()})
    assert all(each == told[0] for each in told)


def _networks(script: int) -> list[tuple[str, str]]:
    """Return the overlay and scheme of each network that runs a script: every pair in `make soak`.

    Else every scheme runs every script, and the scripts take turns with the overlays.
    """
    if SOAK:
        return list(product(OVERLAYS, SCHEMES))
    overlays = list(OVERLAYS)
    return [(overlays[(script + at) % len(overlays)], scheme) for at, scheme in enumerate(SCHEMES)]
