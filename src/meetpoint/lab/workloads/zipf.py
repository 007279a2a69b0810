"""A workload with parameters: attributes and their values are popular by Zipf's law, some are strings, some numbers.

- `a01` is the most popular attribute: the n-th is drawn as often as 1 / n ** `attributes_theta`, none twice in an event
  or subscription. Strings and numbers take turns by their share, so that both are popular and unpopular.
- Every attribute has `values` values. The n-th most popular is drawn as often as 1 / n ** `values_theta`; which value
  that is, is drawn for each attribute. Numbers are the whole numbers from 0 on, popular ones anywhere among them.
- A subscription asks a string for a value that is drawn as an event draws it, or for its first or last letters. It asks
  a number for a range of a `width` of all values, anywhere: so large is the share of events with this attribute that
  satisfy it, on average. Where that is one value only, it is drawn as an event draws it.

As a text it is `zipf`, or `zipf:attributes=20,values_theta=0.9`: what is not told is as here.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.errors import MeetpointError
from meetpoint.lab.workloads.long_form import Array, Draft, Mix, Rng, choose, column, some_words, zipf

ATTRIBUTES_MAX: Final = 500
VALUES_MAX: Final = 100_000
THETA_MAX: Final = 4.0
_LETTERS = (4, 8)
_SHARES = {"eq": 0.6, "prefix": 0.2, "suffix": 0.2}


class Zipf(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a workload; MeetpointError where there is no such workload."""

    attributes: int = 16
    attributes_theta: float = 0.6
    values: int = 1_000
    """The number of values of each attribute."""
    values_theta: float = 0.6
    strings: float = 0.5
    """The share of attributes that are strings; the others are numbers."""
    width: float = 0.05
    """The share of its values that a range of numbers accepts."""
    constraints: int = 3
    """The most constraints of a subscription, one an attribute: each number from one on is as likely."""
    held: int = 8
    """The number of attributes of an event; all, where there are no more."""

    def __post_init__(self) -> None:
        self._within("attributes", 1, ATTRIBUTES_MAX)
        self._within("attributes_theta", 0, THETA_MAX)
        self._within("values", 1, VALUES_MAX)
        self._within("values_theta", 0, THETA_MAX)
        self._within("strings", 0, 1)
        self._within("width", 0, 1)
        self._within("constraints", 1, ATTRIBUTES_MAX)
        self._within("held", 1, ATTRIBUTES_MAX)

    def _within(self, name: str, least: float, most: float) -> None:
        value = getattr(self, name)
        if not least <= value <= most:  # NaN is not
            raise MeetpointError(f"zipf: {name} is {value}; give {least:g} to {most:g}")

    @classmethod
    def read(cls, text: str) -> Zipf:
        """Read `name=value` with commas between; MeetpointError says what is wrong."""
        told: dict[str, Any] = {}
        for each in filter(None, text.split(",")):
            name, _, value = (part.strip() for part in each.partition("="))
            if name not in cls.__struct_fields__:
                raise MeetpointError(f"zipf: {name!r} is no parameter; there are {', '.join(cls.__struct_fields__)}")
            if name in told:
                raise MeetpointError(f"zipf: {name} is told twice; say it once")
            told[name] = _number(name, value, whole=isinstance(getattr(_PLAIN, name), int))
        return cls(**told)

    def __str__(self) -> str:
        told = [f"{name}={value!r}" for name, value in msgspec.structs.asdict(self).items()]
        return f"zipf:{','.join(told)}"

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes, the most popular first."""
        digits = max(2, len(str(self.attributes)))
        return tuple(f"a{number:0{digits}}" for number in range(1, self.attributes + 1))

    def is_string(self, attribute: int) -> bool:
        """Return whether an attribute is a string, by its number from 0: so that of the first n, for every n, the share
        is as near as can be.
        """
        return int((attribute + 1) * self.strings + 0.5) > int(attribute * self.strings + 0.5)

    @property
    def schema(self) -> str:
        """The schema as YAML."""
        number = f"{{type: float, min: 0, max: {self.values - 1}, precision: 1}}"
        types = ["string" if self.is_string(at) else number for at in range(self.attributes)]
        return "attributes:\n" + "".join(f"  {name}: {type_}\n" for name, type_ in zip(self.names, types, strict=True))


def _number(name: str, value: str, whole: bool) -> float:
    try:
        return int(value) if whole else float(value)
    except ValueError:
        raise MeetpointError(f"zipf: {name} is {value!r}; give a {'whole ' if whole else ''}number") from None


_PLAIN = Zipf()


class ZipfMix(Mix):
    """The mix of a Zipf workload: its vocabulary, and the draws from it."""

    def __init__(self, rng: Rng, shape: Zipf = _PLAIN) -> None:
        self._shape = shape
        self._words = some_words(rng, shape.values, *_LETTERS)
        self._ranked = [rng.permutation(shape.values) for _ in range(shape.attributes)]
        self._popularity = 1 / np.arange(1, shape.attributes + 1) ** shape.attributes_theta

    def events(self, rng: Rng, count: int) -> pa.Table:
        here = choose(rng, self._popularity, np.full(count, min(self._shape.held, self._shape.attributes)))
        held: dict[str, pa.Array] = {}
        for at, name in enumerate(self._shape.names):
            which = self._draw(rng, at, count)
            if self._shape.is_string(at):
                held[name] = column(self._words, np.where(here[:, at], which, -1))
            else:
                held[name] = pa.array(which.astype(np.float64), mask=~here[:, at])
        return pa.table(held)

    def subscriptions(self, rng: Rng, count: int) -> Draft:
        most = min(self._shape.constraints, self._shape.attributes)
        chosen = choose(rng, self._popularity, rng.integers(1, most + 1, count))
        draft = Draft(rng)
        for at, (name, mine) in enumerate(zip(self._shape.names, chosen.T, strict=True)):
            rows = np.flatnonzero(mine)
            if self._shape.is_string(at):
                draft.words(name, rows, self._words, self._draw(rng, at, len(rows)), _SHARES)
            else:
                draft.ranges(name, rows, *self._range(rng, at, len(rows)))
        return draft

    def _draw(self, rng: Rng, attribute: int, count: int) -> Array:
        """Draw values by their numbers."""
        ranks = zipf(rng, self._shape.values, count, self._shape.values_theta)
        drawn: Array = self._ranked[attribute][ranks]
        return drawn

    def _range(self, rng: Rng, attribute: int, count: int) -> tuple[Array, Array]:
        accepted = max(1, round(self._shape.width * self._shape.values))
        if accepted == 1:
            value = self._draw(rng, attribute, count).astype(np.float64)
            return value, value
        low = rng.integers(0, self._shape.values - accepted + 1, count).astype(np.float64)
        return low, low + accepted - 1
