"""Workloads made from a seed: a mix says what events hold and what subscriptions ask of them.

All is drawn in whole columns, so that a million subscriptions take seconds. The same mix, sizes and seed give the same
workload on every machine with the same NumPy.
"""

from __future__ import annotations

import numpy as np

from meetpoint.errors import MeetpointError
from meetpoint.workloads.longform import LONG_FORM, OPS, Workload, filter_texts, long_form
from meetpoint.workloads.mixes import MIXES

__all__ = [
    "LONG_FORM",
    "MIXES",
    "OPS",
    "SUBSCRIPTIONS",
    "Workload",
    "default_subscriptions",
    "filter_texts",
    "generate",
    "long_form",
]

SUBSCRIPTIONS = 100_000
"""How many subscriptions where nobody says."""
_WIDE_PART = 10


def default_subscriptions(mix: str) -> int:
    """How many subscriptions a mix has where nobody says: of wide ones a tenth, since each matches so much."""
    return SUBSCRIPTIONS // _WIDE_PART if mix == "wide" else SUBSCRIPTIONS


def generate(mix: str, subscriptions: int, events: int, seed: int) -> Workload:
    """So many subscriptions and events of a mix."""
    if mix not in MIXES:
        raise MeetpointError(f"mix {mix!r}: there is none of this name; choose one of {', '.join(MIXES)}")
    if subscriptions < 1 or events < 1:
        raise MeetpointError(f"a workload of {subscriptions} subscriptions and {events} events; ask for 1 each or more")
    draft, columns = MIXES[mix](np.random.default_rng(seed), subscriptions, events)
    return Workload(mix, draft.table(), columns)
