"""Settings of the whole suite.

Hypothesis draws the same examples in every run, so that a red suite is red for everyone; `make soak` draws new ones.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("new", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("MEETPOINT_EXAMPLES", "same"))
