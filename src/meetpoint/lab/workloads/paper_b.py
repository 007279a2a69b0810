"""Paper B's workload with its schema stated: strings only, popular and unpopular attributes and values (section 7).

The paper gives 10,000 subscriptions, 30,000 events, 1 to 10 attributes each, and Zipf's law with θ from 0.1 to 1.0 for
both attributes and values. It does not give the schema, how attributes are drawn, nor which constraints there are; the
figures depend on all three. Chosen here, and the same for every scheme:

- 50 attributes (the figures depend on their number, so that it is a parameter), `a01` the most popular. An event or
  subscription draws 1 to 10 times, each number as likely; what is drawn again counts once, so that there are fewer
  attributes where popularity is skewed, as the paper says.
- Each attribute has 1,000 values of its own, of 4 to 7 small letters: many more than the paper's 128 nodes, and few
  enough that events find somebody. Subscriptions and events draw values from one distribution.
- A constraint is made from a value that is drawn as an event would draw it, so that everything asked for exists. By
  `SHARES` it is the value, its first or last letters (2 at least, one less than all at most), or some first and some
  last letters at once (1 or 2 each, as in the paper's `N*E`). Or (`constraints`) it is always the value.

`skew` says whose values are skewed: those of all attributes alike (figures 9 and 10), or those of the unpopular ones
only, from uniform values of `a01` to θ = 1 of the last, in even steps (figure 11).

Of the 10,000 subscriptions an event matches about 0.4: nearly all of these have one attribute only, and there are about
a thousand of them. A smaller domain would make more matches and shorter routes for nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate
from random import Random
from typing import Final, Literal, TypeAlias

import msgspec

from meetpoint.errors import MeetpointError

SUBSCRIPTIONS: Final = 10_000
EVENTS: Final = 30_000
"""The paper's number of each."""
ATTRIBUTES_MAX: Final = 99
ATTRIBUTES: Final = tuple(f"a{number:02}" for number in range(1, 51))
"""The default schema: all strings, the most popular first."""
DRAWS_MAX: Final = 10
VALUES: Final = 1_000
"""The number of an attribute's values."""
LENGTHS: Final = (4, 7)
"""The shortest and the longest value, in letters."""
SHARES: Final = {"equality": 0.4, "prefix": 0.25, "suffix": 0.25, "affix": 0.1}
"""The shares of the kinds of constraints."""
PART_MIN: Final = 2
"""The shortest prefix and suffix."""
HALF_MAX: Final = 2
"""The longest half of an affix."""

Skew: TypeAlias = Literal["all", "unpopular"]
Constraints: TypeAlias = Literal["mixed", "equality"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class PaperB(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A workload that is decided by these parameters and nothing else. A larger one begins with the smaller."""

    seed: int = 7
    attributes: int = len(ATTRIBUTES)
    """The number of attributes in the schema."""
    attributes_theta: float = 0.6
    values_theta: float = 0.5
    """The skew of values where those of all attributes are skewed alike."""
    skew: Skew = "all"
    constraints: Constraints = "mixed"

    def __post_init__(self) -> None:
        if not 2 <= self.attributes <= ATTRIBUTES_MAX:
            raise MeetpointError(f"paper B: {self.attributes} attributes; give 2 to {ATTRIBUTES_MAX}")
        for what, theta in (("attributes", self.attributes_theta), ("values", self.values_theta)):
            if not 0.0 <= theta <= 2.0:
                raise MeetpointError(
                    f"paper B: θ of {what} is {theta}; give 0 (all alike) to 2, the paper has 0.1 to 1"
                )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the attributes, the most popular first."""
        return tuple(f"a{number:02}" for number in range(1, self.attributes + 1))

    @property
    def schema(self) -> str:
        """The schema as YAML."""
        return "attributes:\n" + "".join(f"  {name}: string\n" for name in self.names)

    def subscriptions(self, count: int = SUBSCRIPTIONS) -> Iterator[str]:
        """Yield filters, each a conjunction."""
        random = self._random("subscriptions")
        for _ in range(count):
            yield " AND ".join(f"{self.names[at]} {self._constraint(at, random)}" for at in self._attributes(random))

    def events(self, count: int = EVENTS) -> Iterator[dict[str, str]]:
        """Yield so many events."""
        random = self._random("events")
        for _ in range(count):
            yield {self.names[at]: self._value(at, random) for at in self._attributes(random)}

    def values(self, attribute: str) -> tuple[str, ...]:
        """Return the values of an attribute, the most popular first."""
        return self._domains[self.names.index(attribute)]

    # -- drawing -------------------------------------------------------------------------------------------------------

    def _random(self, what: str) -> Random:
        return Random(f"paper b/{self.seed}/{what}")

    def _attributes(self, random: Random) -> list[int]:
        """Draw attributes by their numbers, in order."""
        draws = random.randint(1, DRAWS_MAX)
        return sorted(set(random.choices(range(self.attributes), cum_weights=self._popularity, k=draws)))

    def _value(self, attribute: int, random: Random) -> str:
        return random.choices(self._domains[attribute], cum_weights=self._weights[attribute])[0]

    def _constraint(self, attribute: int, random: Random) -> str:
        value = self._value(attribute, random)
        kind = random.choices(_KINDS, cum_weights=_KINDS_CUMULATED)[0]
        if kind == "equality" or self.constraints == "equality":
            return f"= '{value}'"
        if kind == "affix":
            return f"LIKE '{value[: random.randint(1, HALF_MAX)]}%{value[-random.randint(1, HALF_MAX) :]}'"
        length = random.randint(PART_MIN, len(value) - 1)
        return f"LIKE '{value[:length]}%'" if kind == "prefix" else f"LIKE '%{value[-length:]}'"

    # -- made once -----------------------------------------------------------------------------------------------------

    @cached_property
    def _popularity(self) -> list[float]:
        return _zipf(self.attributes, self.attributes_theta)

    @cached_property
    def _weights(self) -> list[list[float]]:
        """Return the cumulated weights of the values of each attribute."""
        if self.skew == "all":
            return [_zipf(VALUES, self.values_theta)] * self.attributes
        return [_zipf(VALUES, at / (self.attributes - 1)) for at in range(self.attributes)]

    @cached_property
    def _domains(self) -> list[tuple[str, ...]]:
        return [_words(self._random(attribute)) for attribute in self.names]


_KINDS = tuple(SHARES)
_KINDS_CUMULATED = list(accumulate(SHARES.values()))


def _zipf(count: int, theta: float) -> list[float]:
    """Return the cumulated weights of so many items, the n-th as often as 1 / n ** theta; 0 is all alike."""
    return list(accumulate(number**-theta for number in range(1, count + 1)))


def _words(random: Random) -> tuple[str, ...]:
    """Draw distinct values of random letters, in random order."""
    words: dict[str, None] = {}
    while len(words) < VALUES:
        words["".join(random.choices(_LETTERS, k=random.randint(*LENGTHS)))] = None
    return tuple(words)
