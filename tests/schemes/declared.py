"""A schema for the events of `tests.workloads`, which they fit only in part: schemes must not rely on it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from meetpoint.language import Attribute, Schema, Type
from tests.workloads import START

__all__ = ["DECLARED"]

# Some attributes are declared more narrowly than events are, some with a grid that events miss, some as another kind,
# some not at all.
DECLARED = Schema(
    (
        Attribute("i", Type.INTEGER, minimum=-3, maximum=8),
        Attribute("binary", Type.INTEGER),
        Attribute("d", Type.DECIMAL, minimum=Decimal(-5), maximum=Decimal(10), precision=Decimal("0.1")),
        Attribute("f", Type.FLOAT, minimum=Decimal("-0.05"), maximum=Decimal(100)),
        Attribute("date", Type.FLOAT, precision=Decimal(2)),
        Attribute("s", Type.STRING),
        Attribute("user", Type.INTEGER, minimum=0, maximum=10),  # and events hold strings
        Attribute("b", Type.BOOLEAN),
        Attribute("t", Type.TIMESTAMP, minimum=START, maximum=START + timedelta(hours=1)),
        Attribute("o.x", Type.INTEGER, minimum=0, maximum=2),
    )
)
