"""The mixes: the contents of events, and the constraints of subscriptions.

An event matches a thousandth to a hundredth of the subscriptions, of `wide` ones a tenth or less, of `narrow` ones
hardly any, and of a million `selective` ones about ten: results that grow with everything else would measure how fast
pairs are written.

A mix is made with one generator, from which it draws its vocabulary: the words and symbols that there are, and the
values by which ranges are chosen. Events and subscriptions are then drawn from the vocabulary with whatever generator
is given, so that blocks of them are drawn apart from each other and still belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from meetpoint.errors import MeetpointError
from meetpoint.lab.workloads.long_form import (
    Array,
    Draft,
    Mix,
    Rng,
    choose,
    column,
    cut_words,
    joined,
    lengths_of,
    pick,
    some_words,
    zipf,
)
from meetpoint.lab.workloads.zipf import Zipf, ZipfMix

_REFERENCE = 16_384
"""Values of each number that ranges are chosen by."""
_EXCHANGES = (
    "NYSE NASDAQ LSE ASE XETRA TSE HKEX SSE BSE NSE ASX TSX SIX JSE MOEX KRX OSE BME WSE BIST".split()  # noqa: SIM905
)
_SECTORS = [
    f"{field}-{part}"
    for field in ("tech", "energy", "health", "finance", "retail")
    for part in ("large", "mid", "small", "micro", "nano", "em", "eu", "us", "asia", "fx")
]
_EQ_PREFIX_SUFFIX = {"eq": 0.7, "prefix": 0.2, "suffix": 0.1}


def _in_order(numbers: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.sort(values) for name, values in numbers.items()}


class Ticks(Mix):
    """Stock ticks: every op, one to five constraints, popular and rare symbols."""

    def __init__(self, rng: Rng) -> None:
        self.symbols = [word.upper() for word in some_words(rng, 5000, 2, 5)]
        self.words = some_words(rng, 2000, 3, 8)

    def events(self, rng: Rng, count: int) -> pa.Table:
        price = np.round(rng.lognormal(4, 1, count).clip(0.01, 999), 2)
        held = {
            "exchange": column(_EXCHANGES, zipf(rng, len(_EXCHANGES), count, 0.5)),
            "symbol": column(self.symbols, zipf(rng, len(self.symbols), count, 0.8)),
            "sector": column(_SECTORS, zipf(rng, len(_SECTORS), count, 0.5)),
            "price": price,
            "high": np.round((price * rng.uniform(1, 1.05, count)).clip(0, 1000), 2),
            "low": np.round(price * rng.uniform(0.95, 1, count), 2),
            "volume": np.floor((rng.pareto(1.2, count) * 1000).clip(0, 1_000_000)),
            "change": np.round(rng.normal(0, 2.5, count).clip(-20, 20), 2),
            "headline": joined([column(self.words, zipf(rng, len(self.words), count, 0.6)) for _ in range(4)], " "),
        }
        return pa.table(held)

    def subscriptions(self, rng: Rng, count: int) -> Draft:
        weights = {"symbol": 10.0, "price": 6.0, "change": 4.0, "exchange": 3.0, "volume": 3.0}
        weights |= {"sector": 2.0, "headline": 1.5, "high": 1.0, "low": 1.0}
        sizes = pick(rng, {1: 0.05, 2: 0.3, 3: 0.35, 4: 0.2, 5: 0.1}, count)
        chosen = choose(rng, list(weights.values()), sizes)
        chosen[sizes == 1] = np.arange(len(weights)) == 0  # one alone is on the symbol: others would match too much
        draft = Draft(rng)
        for attribute, mine in zip(weights, chosen.T, strict=True):
            rows = np.flatnonzero(mine)
            if attribute == "symbol":
                which = zipf(rng, len(self.symbols), len(rows), 0.8)
                draft.words(attribute, rows, self.symbols, which, _EQ_PREFIX_SUFFIX)
            elif attribute in ("exchange", "sector"):
                values = _EXCHANGES if attribute == "exchange" else _SECTORS
                draft.words(attribute, rows, values, rng.integers(0, len(values), len(rows)), _EQ_PREFIX_SUFFIX)
            elif attribute == "headline":
                which = rng.integers(0, len(self.words), len(rows))
                cut = np.maximum(3, lengths_of(self.words, which) - rng.integers(0, 3, len(rows)))
                draft.texts(attribute, "contains", rows, self.words, which, cut)
            else:
                draft.ranges(attribute, rows, *_tick_range(rng, attribute, len(rows)))
        return draft


def _tick_range(rng: Rng, attribute: str, count: int) -> tuple[Array, Array]:
    """Draw ranges of a tenth of the line on average, most of them where prices and volumes are."""
    least, most, digits = {"volume": (0, 1_000_000, 0), "change": (-20, 20, 2)}.get(attribute, (0, 1000, 2))
    width = (most - least) * rng.beta(1, 8, count)
    low = rng.uniform(least, most - width)
    if attribute != "change":
        near = rng.lognormal(4, 1, count) * (100 if attribute == "volume" else 1)
        low = np.where(rng.random(count) < 0.7, np.minimum(low, near), low)
    step = 10.0**-digits
    return np.round(low, digits), np.round(low + np.maximum(width, step), digits)


class Wide(Mix):
    """Few constraints that accept much: long ranges, first letters, one of a few values."""

    regions = ("africa", "america", "asia", "europe", "oceania")
    states = ("new", "open", "held", "closed")

    def __init__(self, rng: Rng) -> None:
        self.names = some_words(rng, 3000, 4, 9)
        self.reference = _in_order(self.numbers(rng, _REFERENCE))

    def numbers(self, rng: Rng, count: int) -> dict[str, Array]:
        return {
            "price": np.round(rng.lognormal(3, 1, count), 2),
            "score": np.round(rng.uniform(0, 100, count), 1),
            "volume": np.floor(rng.pareto(1.2, count) * 1000),
        }

    def events(self, rng: Rng, count: int) -> pa.Table:
        held = {
            "name": column(self.names, zipf(rng, len(self.names), count, 0.3)),
            "region": column(self.regions, zipf(rng, len(self.regions), count, 0.3)),
            "state": column(self.states, zipf(rng, len(self.states), count, 0.3)),
            **self.numbers(rng, count),
        }
        return pa.table(held)

    def subscriptions(self, rng: Rng, count: int) -> Draft:
        attributes = ("name", "region", "state", *self.reference)
        chosen = choose(rng, [2, 2, 2, 4, 4, 4], pick(rng, {1: 0.1, 2: 0.5, 3: 0.4}, count))
        draft = Draft(rng)
        for attribute, mine in zip(attributes, chosen.T, strict=True):
            rows = np.flatnonzero(mine)
            if attribute in self.reference:
                draft.ranges_of(attribute, rows, self.reference[attribute], 0.1, 0.5)
            elif attribute == "name":
                one = np.ones(len(rows), dtype=np.int64)
                draft.texts(attribute, "prefix", rows, self.names, rng.integers(0, len(self.names), len(rows)), one)
            else:
                values = self.regions if attribute == "region" else self.states
                draft.texts(attribute, "eq", rows, values, rng.integers(0, len(values), len(rows)))
        return draft


class Narrow(Mix):
    """A very rare symbol, or an account by its number, and mostly a tight range too."""

    def __init__(self, rng: Rng) -> None:
        self.symbols = [word.upper() for word in some_words(rng, 20_000, 4, 8)]
        self.reference = _in_order(_trade_numbers(rng, _REFERENCE))

    def events(self, rng: Rng, count: int) -> pa.Table:
        held = {
            "symbol": column(self.symbols, zipf(rng, len(self.symbols), count, 0.7)),
            "account": 1e6 + zipf(rng, 20_000, count, 0.7),
            **_trade_numbers(rng, count),
        }
        return pa.table(held)

    def subscriptions(self, rng: Rng, count: int) -> Draft:
        draft = Draft(rng)
        everyone = np.arange(count)
        by_account = rng.random(count) < 0.2
        rows = everyone[~by_account]
        draft.texts("symbol", "eq", rows, self.symbols, zipf(rng, len(self.symbols), len(rows), 0.7))
        rows = everyone[by_account]
        value = 1e6 + zipf(rng, 20_000, len(rows), 0.7)
        draft.ranges("account", rows, value, value)
        chosen = choose(rng, [1, 1, 1], pick(rng, {1: 0.7, 2: 0.3}, count))
        chosen[rng.random(count) < 0.2] = False
        for (attribute, values), mine in zip(self.reference.items(), chosen.T, strict=True):
            draft.ranges_of(attribute, np.flatnonzero(mine), values, 0.005, 0.05)
        return draft


def _trade_numbers(rng: Rng, count: int) -> dict[str, Array]:
    return {
        "price": np.round(rng.lognormal(4, 1, count), 2),
        "volume": np.floor(rng.pareto(1.2, count) * 1000),
        "change": np.round(rng.normal(0, 2.5, count), 2),
    }


class Selective(Mix):
    """Precise alerts: a very rare symbol, always with a range, some with more."""

    def __init__(self, rng: Rng) -> None:
        self.symbols = [word.upper() for word in some_words(rng, 50_000, 4, 8)]
        self.reference = _in_order(_trade_numbers(rng, _REFERENCE))

    def events(self, rng: Rng, count: int) -> pa.Table:
        held = {
            "symbol": column(self.symbols, zipf(rng, len(self.symbols), count, 0.5)),
            "exchange": column(_EXCHANGES, zipf(rng, len(_EXCHANGES), count, 0.5)),
            **_trade_numbers(rng, count),
        }
        return pa.table(held)

    def subscriptions(self, rng: Rng, count: int) -> Draft:
        draft = Draft(rng)
        shares = {"eq": 0.97, "prefix": 0.03}
        which = zipf(rng, len(self.symbols), count, 0.5)
        draft.words("symbol", np.arange(count), self.symbols, which, shares, 5)
        rows = np.flatnonzero(rng.random(count) < 0.2)
        draft.texts("exchange", "eq", rows, _EXCHANGES, rng.integers(0, len(_EXCHANGES), len(rows)))
        chosen = choose(rng, [3, 1, 2], pick(rng, {1: 0.8, 2: 0.2}, count))
        for (attribute, values), mine in zip(self.reference.items(), chosen.T, strict=True):
            draft.ranges_of(attribute, np.flatnonzero(mine), values, 0.05, 0.5)
        return draft


class Strings(Mix):
    """Only strings, some of them with characters that are special in patterns and literals."""

    shares: Mapping[str, Mapping[str, float]] = {
        "user": {"eq": 0.8, "prefix": 0.1, "suffix": 0.1},
        "city": {"eq": 0.6, "prefix": 0.2, "suffix": 0.2},
        "path": {"eq": 0.3, "prefix": 0.7},
        "host": {"eq": 0.3, "suffix": 0.7},
    }

    def __init__(self, rng: Rng) -> None:
        odd = ["50%", "a_b", "it's", 'say "so"', "back\\slash", "größe", "tab\there", "東京都", "100%_sure", "naïve"]
        users = [*odd, *some_words(rng, 5000, 3, 9)]
        cities = [*odd[:5], *some_words(rng, 400, 4, 10)]
        self.words = [*odd, *some_words(rng, 2000, 3, 8)]
        parts = some_words(rng, 40, 3, 7)
        paths = [f"/{a}/{b}/{c}" for a in parts[:8] for b in parts[8:20] for c in parts[20:]]
        hosts = [f"{a}.{b}.{c}" for a in parts[:20] for b in parts[20:] for c in ("org", "com", "example")]
        rng.shuffle(paths)
        rng.shuffle(hosts)
        self.values = {"user": users, "city": cities, "path": paths, "host": hosts}

    def events(self, rng: Rng, count: int) -> pa.Table:
        held = {name: column(some, zipf(rng, len(some), count, 0.7)) for name, some in self.values.items()}
        held["message"] = joined([column(self.words, zipf(rng, len(self.words), count, 0.6)) for _ in range(5)], " ")
        return pa.table(held)

    def subscriptions(self, rng: Rng, count: int) -> Draft:
        chosen = choose(rng, [3, 3, 3, 3, 2], pick(rng, {1: 0.3, 2: 0.5, 3: 0.2}, count))
        draft = Draft(rng)
        for (attribute, some), mine in zip(self.values.items(), chosen.T, strict=False):
            rows = np.flatnonzero(mine)
            draft.words(attribute, rows, some, zipf(rng, len(some), len(rows), 0.7), self.shares[attribute])
        rows = np.flatnonzero(chosen[:, -1])
        which = rng.integers(0, len(self.words), len(rows))
        draft.texts("message", "contains", rows, self.words, which, cut_words(rng, self.words, which, 3))
        return draft


class Ranges(Mix):
    """Only ranges, two to four of them on five numbers."""

    def __init__(self, rng: Rng) -> None:
        self.reference = _in_order(self.numbers(rng, _REFERENCE))

    def numbers(self, rng: Rng, count: int) -> dict[str, Array]:
        return {
            **_trade_numbers(rng, count),
            "weight": np.round(rng.gamma(2, 10, count), 3),
            "distance": rng.uniform(0, 20_000, count),
        }

    def events(self, rng: Rng, count: int) -> pa.Table:
        return pa.table(self.numbers(rng, count))

    def subscriptions(self, rng: Rng, count: int) -> Draft:
        chosen = choose(rng, [3, 2, 2, 1, 1], pick(rng, {2: 0.5, 3: 0.3, 4: 0.2}, count))
        draft = Draft(rng)
        for (attribute, values), mine in zip(self.reference.items(), chosen.T, strict=True):
            draft.ranges_of(attribute, np.flatnonzero(mine), values, 0.01, 0.2)
        return draft


class Skewed(Mix):
    """A handful of values that most events hold and most subscriptions ask for."""

    def __init__(self, rng: Rng) -> None:
        counts = {"topic": 1000, "country": 200, "user": 5000}
        self.values = {name: some_words(rng, count, 3, 8) for name, count in counts.items()}

    def events(self, rng: Rng, count: int) -> pa.Table:
        held = {name: column(some, zipf(rng, len(some), count, 1.3)) for name, some in self.values.items()}
        return pa.table({**held, "score": np.floor(zipf(rng, 1000, count, 1.3) * 1.0)})

    def subscriptions(self, rng: Rng, count: int) -> Draft:
        chosen = choose(rng, [3, 3, 3, 2], pick(rng, {2: 0.6, 3: 0.4}, count))
        draft = Draft(rng)
        for (attribute, some), mine in zip(self.values.items(), chosen.T, strict=False):
            rows = np.flatnonzero(mine)
            draft.words(attribute, rows, some, zipf(rng, len(some), len(rows), 1.3), {"eq": 0.9, "prefix": 0.1})
        rows = np.flatnonzero(chosen[:, -1])
        low = np.floor(zipf(rng, 1000, len(rows), 1.3) * 1.0)
        draft.ranges("score", rows, low, low + rng.integers(0, 4, len(rows)))
        return draft


class Sparse(Mix):
    """Many attributes of which an event holds few: events are of sorts, and a subscription is about one sort."""

    names = tuple(f"a{number:02}" for number in range(64))
    sorts, each = 16, 6

    def __init__(self, rng: Rng) -> None:
        self.texts = some_words(rng, 200, 3, 8)
        self.usual = np.zeros((self.sorts, len(self.names)), dtype=np.bool_)
        for sort in range(self.sorts):
            self.usual[sort, rng.permutation(len(self.names))[: self.each]] = True
        self.reference = np.sort(self.numbers(rng, _REFERENCE))

    def numbers(self, rng: Rng, count: int) -> Array:
        return np.round(rng.normal(100, 30, count), 1)

    def events(self, rng: Rng, count: int) -> pa.Table:
        shape = (count, len(self.names))
        here = self.usual[zipf(rng, self.sorts, count, 0.5)] & (rng.random(shape) < 0.95)
        here |= rng.random(shape) < 0.005
        held: dict[str, pa.Array] = {}
        for at, name in enumerate(self.names):
            if at % 2:
                which = np.where(here[:, at], zipf(rng, len(self.texts), count, 0.9), -1)
                held[name] = column(self.texts, which)
            else:
                held[name] = pa.array(self.numbers(rng, count), mask=~here[:, at])
        return pa.table(held)

    def subscriptions(self, rng: Rng, count: int) -> Draft:
        about = self.usual[zipf(rng, self.sorts, count, 0.5)]
        chosen = choose(rng, about, pick(rng, {1: 0.3, 2: 0.5, 3: 0.2}, count))
        draft = Draft(rng)
        for at, name in enumerate(self.names):
            rows = np.flatnonzero(chosen[:, at])
            if at % 2:
                which = zipf(rng, len(self.texts), len(rows), 0.9)
                draft.words(name, rows, self.texts, which, {"eq": 0.6, "prefix": 0.4})
            else:
                draft.ranges_of(name, rows, self.reference, 0.02, 0.4)
        return draft


MIXES: dict[str, type[Mix]] = {
    "ticks": Ticks,
    "wide": Wide,
    "narrow": Narrow,
    "selective": Selective,
    "strings": Strings,
    "ranges": Ranges,
    "skewed": Skewed,
    "sparse": Sparse,
    "zipf": ZipfMix,
}


def find_mix(mix: str) -> Callable[[Rng], Mix]:
    """Return the maker of a mix, by its name and, for `zipf`, its parameters; MeetpointError if there is none."""
    name, _, told = mix.partition(":")
    if name not in MIXES:
        raise MeetpointError(f"mix {mix!r}: there is none of this name; choose one of {', '.join(MIXES)}")
    if name == "zipf":
        return partial(ZipfMix, shape=Zipf.read(told))
    if told:
        raise MeetpointError(f"mix {mix!r}: {name} has no parameters; write {name}, or take zipf, which has some")
    return MIXES[name]
