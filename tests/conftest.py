"""Settings of the whole suite.

Hypothesis draws the same examples in every run, so that a red suite is red for everyone; `make soak` draws new ones.
"""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("new", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("MEETPOINT_EXAMPLES", "same"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in what a shell runs in the background: tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
