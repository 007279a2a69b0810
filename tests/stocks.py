"""The example of papers A and B: stocks, and one of their events."""

from __future__ import annotations

from decimal import Decimal

from meetpoint.language import Schema

__all__ = ["FIGURE_1", "STOCKS"]

STOCKS = Schema.from_yaml(
    """
    attributes:
      Exchange: string
      Symbol: string
      Price: {type: decimal, min: 0.0, max: 20.0, precision: 0.01}
      High: {type: decimal, min: 0.0, max: 20.0, precision: 0.01}
      Low: {type: decimal, min: 0.0, max: 20.0, precision: 0.01}
    """
)
FIGURE_1 = {
    "Exchange": "NYSE",
    "Symbol": "OTE",
    "Price": Decimal("8.40"),
    "High": Decimal("8.80"),
    "Low": Decimal("8.22"),
}
