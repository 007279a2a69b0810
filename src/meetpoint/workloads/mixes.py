"""The mixes: what events hold, and what subscriptions ask of them.

An event matches a thousandth to a hundredth of the subscriptions, of `wide` ones a tenth or less, and of `narrow` ones
hardly any: results that grow with everything else would measure how fast pairs are written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from meetpoint.workloads.drafts import Array, Draft, Rng, choose, column, cut_words, joined, pick, some_words, zipf

__all__ = ["MIXES"]

Mix: TypeAlias = Callable[[Rng, int, int], tuple[Draft, pa.Table]]

_EXCHANGES = (
    "NYSE NASDAQ LSE ASE XETRA TSE HKEX SSE BSE NSE ASX TSX SIX JSE MOEX KRX OSE BME WSE BIST".split()  # noqa: SIM905
)
_SECTORS = [
    f"{field}-{part}"
    for field in ("tech", "energy", "health", "finance", "retail")
    for part in ("large", "mid", "small", "micro", "nano", "em", "eu", "us", "asia", "fx")
]
_EQ_PREFIX_SUFFIX = {"eq": 0.7, "prefix": 0.2, "suffix": 0.1}


def _ticks(rng: Rng, subscriptions: int, events: int) -> tuple[Draft, pa.Table]:
    """Stock ticks: every op, one to five constraints, popular and rare symbols."""
    symbols = [word.upper() for word in some_words(rng, 5000, 2, 5)]
    words = some_words(rng, 2000, 3, 8)
    price = np.round(rng.lognormal(4, 1, events).clip(0.01, 999), 2)
    held = {
        "exchange": column(_EXCHANGES, zipf(rng, len(_EXCHANGES), events, 0.5)),
        "symbol": column(symbols, zipf(rng, len(symbols), events, 0.8)),
        "sector": column(_SECTORS, zipf(rng, len(_SECTORS), events, 0.5)),
        "price": price,
        "high": np.round((price * rng.uniform(1, 1.05, events)).clip(0, 1000), 2),
        "low": np.round(price * rng.uniform(0.95, 1, events), 2),
        "volume": np.floor((rng.pareto(1.2, events) * 1000).clip(0, 1_000_000)),
        "change": np.round(rng.normal(0, 2.5, events).clip(-20, 20), 2),
        "headline": joined([column(words, zipf(rng, len(words), events, 0.6)) for _ in range(4)], " "),
    }
    weights = {"symbol": 10, "price": 6, "change": 4, "exchange": 3, "volume": 3}
    weights |= {"sector": 2, "headline": 1.5, "high": 1, "low": 1}  # type: ignore[dict-item]
    sizes = pick(rng, {1: 0.05, 2: 0.3, 3: 0.35, 4: 0.2, 5: 0.1}, subscriptions)
    chosen = choose(rng, list(weights.values()), sizes)
    chosen[sizes == 1] = np.arange(len(weights)) == 0  # one alone is on the symbol: others would match too much
    draft = Draft(rng)
    for attribute, mine in zip(weights, chosen.T, strict=True):
        rows = np.flatnonzero(mine)
        if attribute == "symbol":
            draft.words(attribute, rows, symbols, zipf(rng, len(symbols), len(rows), 0.8), _EQ_PREFIX_SUFFIX)
        elif attribute in ("exchange", "sector"):
            values = _EXCHANGES if attribute == "exchange" else _SECTORS
            draft.words(attribute, rows, values, rng.integers(0, len(values), len(rows)), _EQ_PREFIX_SUFFIX)
        elif attribute == "headline":
            which = rng.integers(0, len(words), len(rows))
            lengths = np.array([len(word) for word in words])[which]
            draft.texts(
                attribute, "contains", rows, words, which, np.maximum(3, lengths - rng.integers(0, 3, len(rows)))
            )
        else:
            draft.ranges(attribute, rows, *_tick_range(rng, attribute, len(rows)))
    return draft, pa.table(held)


def _tick_range(rng: Rng, attribute: str, count: int) -> tuple[Array, Array]:
    """Ranges of a tenth of the line on average, most of them where prices and volumes are."""
    least, most, digits = {"volume": (0, 1_000_000, 0), "change": (-20, 20, 2)}.get(attribute, (0, 1000, 2))
    width = (most - least) * rng.beta(1, 8, count)
    low = rng.uniform(least, most - width)
    if attribute != "change":
        near = rng.lognormal(4, 1, count) * (100 if attribute == "volume" else 1)
        low = np.where(rng.random(count) < 0.7, np.minimum(low, near), low)
    step = 10.0**-digits
    return np.round(low, digits), np.round(low + np.maximum(width, step), digits)


def _wide(rng: Rng, subscriptions: int, events: int) -> tuple[Draft, pa.Table]:
    """Few constraints that accept much: long ranges, first letters, one of a few values."""
    names = some_words(rng, 3000, 4, 9)
    regions = ["africa", "america", "asia", "europe", "oceania"]
    states = ["new", "open", "held", "closed"]
    numbers = {
        "price": np.round(rng.lognormal(3, 1, events), 2),
        "score": np.round(rng.uniform(0, 100, events), 1),
        "volume": np.floor(rng.pareto(1.2, events) * 1000),
    }
    held = {
        "name": column(names, zipf(rng, len(names), events, 0.3)),
        "region": column(regions, zipf(rng, len(regions), events, 0.3)),
        "state": column(states, zipf(rng, len(states), events, 0.3)),
        **numbers,
    }
    chosen = choose(rng, [2, 2, 2, 4, 4, 4], pick(rng, {1: 0.1, 2: 0.5, 3: 0.4}, subscriptions))
    draft = Draft(rng)
    for attribute, mine in zip(held, chosen.T, strict=True):
        rows = np.flatnonzero(mine)
        if attribute in numbers:
            draft.ranges_of(attribute, rows, numbers[attribute], 0.1, 0.5)
        elif attribute == "name":
            one = np.ones(len(rows), dtype=np.int64)
            draft.texts(attribute, "prefix", rows, names, rng.integers(0, len(names), len(rows)), one)
        else:
            values = regions if attribute == "region" else states
            draft.texts(attribute, "eq", rows, values, rng.integers(0, len(values), len(rows)))
    return draft, pa.table(held)


def _narrow(rng: Rng, subscriptions: int, events: int) -> tuple[Draft, pa.Table]:
    """One of very many symbols, or an account by its number, and mostly a tight range too."""
    symbols = [word.upper() for word in some_words(rng, 20_000, 4, 8)]
    numbers = {
        "price": np.round(rng.lognormal(4, 1, events), 2),
        "volume": np.floor(rng.pareto(1.2, events) * 1000),
        "change": np.round(rng.normal(0, 2.5, events), 2),
    }
    account = 1e6 + zipf(rng, 20_000, events, 0.7)
    held = {"symbol": column(symbols, zipf(rng, len(symbols), events, 0.7)), "account": account, **numbers}
    draft = Draft(rng)
    everyone = np.arange(subscriptions)
    by_account = rng.random(subscriptions) < 0.2
    rows = everyone[~by_account]
    draft.texts("symbol", "eq", rows, symbols, zipf(rng, len(symbols), len(rows), 0.7))
    rows = everyone[by_account]
    value = 1e6 + zipf(rng, 20_000, len(rows), 0.7)
    draft.ranges("account", rows, value, value)
    sizes = pick(rng, {1: 0.7, 2: 0.3}, subscriptions)
    chosen = choose(rng, [1, 1, 1], sizes)
    chosen[rng.random(subscriptions) < 0.2] = False
    for attribute, mine in zip(numbers, chosen.T, strict=True):
        draft.ranges_of(attribute, np.flatnonzero(mine), numbers[attribute], 0.005, 0.05)
    return draft, pa.table(held)


def _strings(rng: Rng, subscriptions: int, events: int) -> tuple[Draft, pa.Table]:
    """Only strings, some of them with signs that mean something in patterns and literals."""
    odd = ["50%", "a_b", "it's", 'say "so"', "back\\slash", "größe", "tab\there", "東京都", "100%_sure", "naïve"]
    users = [*odd, *some_words(rng, 5000, 3, 9)]
    cities = [*odd[:5], *some_words(rng, 400, 4, 10)]
    words = [*odd, *some_words(rng, 2000, 3, 8)]
    parts = some_words(rng, 40, 3, 7)
    paths = [f"/{a}/{b}/{c}" for a in parts[:8] for b in parts[8:20] for c in parts[20:]]
    hosts = [f"{a}.{b}.{c}" for a in parts[:20] for b in parts[20:] for c in ("org", "com", "example")]
    rng.shuffle(paths)
    rng.shuffle(hosts)
    values = {"user": users, "city": cities, "path": paths, "host": hosts}
    shares = {
        "user": {"eq": 0.8, "prefix": 0.1, "suffix": 0.1},
        "city": {"eq": 0.6, "prefix": 0.2, "suffix": 0.2},
        "path": {"eq": 0.3, "prefix": 0.7},
        "host": {"eq": 0.3, "suffix": 0.7},
    }
    held = {name: column(some, zipf(rng, len(some), events, 0.7)) for name, some in values.items()}
    held["message"] = joined([column(words, zipf(rng, len(words), events, 0.6)) for _ in range(5)], " ")
    chosen = choose(rng, [3, 3, 3, 3, 2], pick(rng, {1: 0.3, 2: 0.5, 3: 0.2}, subscriptions))
    draft = Draft(rng)
    for (attribute, some), mine in zip(values.items(), chosen.T, strict=False):
        rows = np.flatnonzero(mine)
        draft.words(attribute, rows, some, zipf(rng, len(some), len(rows), 0.7), shares[attribute])
    rows = np.flatnonzero(chosen[:, -1])
    which = rng.integers(0, len(words), len(rows))
    draft.texts("message", "contains", rows, words, which, cut_words(rng, words, which, 3))
    return draft, pa.table(held)


def _ranges(rng: Rng, subscriptions: int, events: int) -> tuple[Draft, pa.Table]:
    """Only ranges, two to four of them on five numbers."""
    held = {
        "price": np.round(rng.lognormal(4, 1, events), 2),
        "volume": np.floor(rng.pareto(1.2, events) * 1000),
        "change": np.round(rng.normal(0, 2.5, events), 2),
        "weight": np.round(rng.gamma(2, 10, events), 3),
        "distance": rng.uniform(0, 20_000, events),
    }
    chosen = choose(rng, [3, 2, 2, 1, 1], pick(rng, {2: 0.5, 3: 0.3, 4: 0.2}, subscriptions))
    draft = Draft(rng)
    for (attribute, values), mine in zip(held.items(), chosen.T, strict=True):
        draft.ranges_of(attribute, np.flatnonzero(mine), values, 0.01, 0.2)
    return draft, pa.table(held)


def _skewed(rng: Rng, subscriptions: int, events: int) -> tuple[Draft, pa.Table]:
    """A handful of values that most events hold and most subscriptions ask for."""
    values = {name: some_words(rng, count, 3, 8) for name, count in (("topic", 1000), ("country", 200), ("user", 5000))}
    held = {name: column(some, zipf(rng, len(some), events, 1.3)) for name, some in values.items()}
    score = np.floor(zipf(rng, 1000, events, 1.3) * 1.0)
    chosen = choose(rng, [3, 3, 3, 2], pick(rng, {2: 0.6, 3: 0.4}, subscriptions))
    draft = Draft(rng)
    for (attribute, some), mine in zip(values.items(), chosen.T, strict=False):
        rows = np.flatnonzero(mine)
        shares = {"eq": 0.9, "prefix": 0.1}
        draft.words(attribute, rows, some, zipf(rng, len(some), len(rows), 1.3), shares)
    rows = np.flatnonzero(chosen[:, -1])
    low = np.floor(zipf(rng, 1000, len(rows), 1.3) * 1.0)
    draft.ranges("score", rows, low, low + rng.integers(0, 4, len(rows)))
    return draft, pa.table({**held, "score": score})


_ATTRIBUTES = 64
_SORTS = 16
_EACH = 6


def _sparse(rng: Rng, subscriptions: int, events: int) -> tuple[Draft, pa.Table]:
    """Many attributes of which an event holds few: events are of sorts, and a subscription is about one sort."""
    names = [f"a{number:02}" for number in range(_ATTRIBUTES)]
    texts = some_words(rng, 200, 3, 8)
    usual = np.zeros((_SORTS, _ATTRIBUTES), dtype=np.bool_)
    for sort in range(_SORTS):
        usual[sort, rng.permutation(_ATTRIBUTES)[:_EACH]] = True
    here = usual[zipf(rng, _SORTS, events, 0.5)] & (rng.random((events, _ATTRIBUTES)) < 0.95)
    here |= rng.random((events, _ATTRIBUTES)) < 0.005
    about = usual[zipf(rng, _SORTS, subscriptions, 0.5)]
    chosen = choose(rng, about, pick(rng, {1: 0.3, 2: 0.5, 3: 0.2}, subscriptions))
    draft = Draft(rng)
    held: dict[str, pa.Array] = {}
    for at, name in enumerate(names):
        rows = np.flatnonzero(chosen[:, at])
        if at % 2:
            which = np.where(here[:, at], zipf(rng, len(texts), events, 0.9), -1)
            held[name] = column(texts, which)
            draft.words(name, rows, texts, zipf(rng, len(texts), len(rows), 0.9), {"eq": 0.6, "prefix": 0.4})
        else:
            numbers = np.where(here[:, at], np.round(rng.normal(100, 30, events), 1), np.nan)
            held[name] = pa.array(numbers, mask=~here[:, at])
            some = np.array([100.0]) if np.isnan(numbers).all() else numbers
            draft.ranges_of(name, rows, some, 0.02, 0.4)
    return draft, pa.table(held)


MIXES: dict[str, Mix] = {
    "ticks": _ticks,
    "wide": _wide,
    "narrow": _narrow,
    "strings": _strings,
    "ranges": _ranges,
    "skewed": _skewed,
    "sparse": _sparse,
}
