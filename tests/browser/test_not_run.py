"""Where nobody says which browser there is, one line says that the others here were not run."""

from __future__ import annotations

import pytest


@pytest.mark.skip(reason="the dashboard was not tried in a browser; run: make test-browser")
def test_the_dashboard_in_a_browser() -> None:
    """All the other files of this folder."""
