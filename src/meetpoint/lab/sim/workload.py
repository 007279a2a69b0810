"""The workload of a simulation: filters and events, made quickly from a seed.

A mix of all that the language has: equality, ranges, IN, !=, prefix, suffix, substring, IS NULL, OR, and attributes
that an event may lack. About 1 to 5 % of the pairs of an event and a filter match.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from meetpoint.language.values import Value

SCHEMA: Final = """
attributes:
  symbol: string
  exchange: string
  price: {type: float, min: 0, max: 1000, precision: 0.01}
  volume: {type: integer, min: 0, max: 9999}
  change: float
  halted: boolean
"""
"""The schema of its events, for schemes that need one. Few prices lie above the maximum, and are published all the
same."""

_EXCHANGES = ("ATHEX", "LSE", "NYSE", "NASDAQ", "XETRA")
_SYLLABLES = ("al", "be", "co", "du", "el", "fi", "go", "ha", "in", "jo", "ka", "lu", "mo", "ne", "or", "pa")
_SYMBOLS = 60


class Workload:
    """Filters and events without end."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(f"workload/{seed}")
        self._symbols = sorted({"".join(random.choices(_SYLLABLES, k=3)) for _ in range(_SYMBOLS)})
        self._kinds: tuple[Callable[[], str], ...] = (
            self._equality,
            self._equality,
            self._range,
            self._one_of,
            self._prefix,
            self._suffix,
            self._substring,
            self._not_equal,
            self._absent,
            self._either,
        )

    def event(self) -> dict[str, Value]:
        """Draw an event; some attributes are missing from some."""
        random = self._random
        event: dict[str, Value] = {
            "symbol": self._symbol(),
            "exchange": random.choice(_EXCHANGES),
            "price": round(random.lognormvariate(4, 1), 2),
            "volume": random.randrange(10_000),
        }
        if random.random() < 0.8:
            event["change"] = round(random.gauss(0, 3), 2)
        if random.random() < 0.3:
            event["halted"] = random.random() < 0.5
        return event

    def filter(self) -> str:
        """Draw the text of a filter."""
        return self._random.choice(self._kinds)()

    def _symbol(self) -> str:
        """Draw a symbol; the first ones are the popular ones."""
        return self._symbols[int(len(self._symbols) * self._random.random() ** 2)]

    def _equality(self) -> str:
        return f"symbol = '{self._symbol()}'"

    def _range(self) -> str:
        low = round(self._random.lognormvariate(4, 1), 2)
        return f"price >= {low} AND price < {round(low * 1.05 + 0.01, 2)}"

    def _one_of(self) -> str:
        symbols = ", ".join(f"'{self._symbol()}'" for _ in range(3))
        return f"symbol IN ({symbols}) AND exchange = '{self._random.choice(_EXCHANGES)}'"

    def _prefix(self) -> str:
        return f"symbol LIKE '{self._symbol()[:3]}%' AND volume BETWEEN 2000 AND 8000"

    def _suffix(self) -> str:
        return f"symbol LIKE '%{self._symbol()[-3:]}' AND change > 0"

    def _substring(self) -> str:
        return f"symbol LIKE '%{self._symbol()[1:4]}%'"

    def _not_equal(self) -> str:
        exchange = self._random.choice(_EXCHANGES)
        return f"exchange != '{exchange}' AND volume < {self._random.randint(100, 500)}"

    def _absent(self) -> str:
        return f"change IS NULL AND halted IS NOT NULL AND exchange = '{self._random.choice(_EXCHANGES)}'"

    def _either(self) -> str:
        return f"symbol = '{self._symbol()}' OR (halted = TRUE AND price > {self._random.randint(200, 600)})"
