"""Random filters and events that agree on a handful of typed attributes, from one seed.

Both oracles and every matcher are compared on what is made here. Values and literals come from the same small, nasty
pools (NaN, infinities, -0.0, neighbours of 2**53, literals that round to one double, empty and non-ASCII strings,
LIKE's own characters), so that constraints are hit, missed and just missed about equally often.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from meetpoint.language import Attributes, Type, Value

TYPES: dict[str, Type] = {
    "i": Type.INTEGER,
    "binary": Type.INTEGER,
    "d": Type.DECIMAL,
    "f": Type.FLOAT,
    "date": Type.FLOAT,
    "s": Type.STRING,
    "user": Type.STRING,
    "b": Type.BOOLEAN,
    "t": Type.TIMESTAMP,
    "o.x": Type.INTEGER,
    "o.`odd name`": Type.STRING,
}

INTEGERS = [-(2**63), -5, -1, 0, 1, 2, 3, 5, 8, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1]
DECIMALS = [
    Decimal(x)
    for x in ("-5.0000", "-0.1000", "0.0000", "0.1000", "0.5000", "1.0000", "8.3000", "8.3001", "9999999.9999")
]
FLOATS = [-math.inf, -1e300, -5.0, -0.1, -0.0, 0.0, 5e-324, 0.1, 0.5, 1.0, 8.3, 2.0**53, 1e300, math.inf, math.nan]
STRINGS = [
    "",
    "A",
    "AB",
    "ABA",
    "ABBA",
    "B",
    "BA",
    "NYSE",
    "NASDAQ",
    "50%",
    "a_b",
    "a\\b",
    "it's",
    'say "hi"',
    "ÄÖ",
    "🙂",
    "🙂A",
    "\uffff",
    "line\nbreak",
]
START = datetime(2026, 1, 1, tzinfo=UTC)
TIMESTAMPS = [START + timedelta(seconds=s) for s in (-1, 0, 1, 3600)] + [
    START + timedelta(microseconds=1),
    datetime(1900, 1, 1, tzinfo=UTC),
]
NUMBER_TEXTS = [
    "0", "-0", "1", "2", "3", "5", "8", "-1", "-5", "1.0", "1.", ".5", "0.5", "0.1", "-0.1",
    "0.10000000000000000555", "8.3", "8.30", "8.3001", "8.30005", "1e0", "5e-1", "1E-1", "83e-1",
    "9007199254740991", "9007199254740992", "9007199254740993", "9223372036854775807", "-9223372036854775808",
    "9223372036854775808", "1e300", "-1e300", "1.0E15", "12345678901234567890.5", "- 5",
]  # fmt: skip
PATTERNS = [
    "%",
    "A%",
    "%A",
    "A%A",
    "%B%",
    "AB%BA",
    "_",
    "_%",
    "%_",
    "A_A",
    "",
    "AB",
    "%\\%",
    "%\\_%",
    "a\\\\\\\\b",
    "%S%",
    "%🙂%",
    "_A",
    "%\n%",
    "N%Q",
    "%%",
    "%A%B%",
    "_B_A",
]


def random_events(rng: random.Random, count: int) -> list[Attributes]:
    """Events with every attribute now and then missing, null or odd."""
    return [_event(rng) for _ in range(count)]


def _event(rng: random.Random) -> Attributes:
    def pick(pool: Sequence[Value]) -> Value:
        return None if rng.random() < 0.12 else rng.choice(pool)

    event: dict[str, Value] = {
        "i": pick(INTEGERS),
        "binary": pick(INTEGERS[1:9]),
        "d": pick(DECIMALS),
        "f": pick(FLOATS),
        "date": pick(FLOATS),
        "s": pick(STRINGS),
        "user": pick(STRINGS),
        "b": pick([True, False]),
        "t": pick(TIMESTAMPS),
    }
    if rng.random() < 0.9:
        event["o"] = {"x": pick(INTEGERS), "odd name": pick(STRINGS)}
    for name in [name for name, value in event.items() if value is None and rng.random() < 0.5]:
        del event[name]  # missing and null are one
    return event


def random_filter(rng: random.Random, depth: int = 3) -> str:
    """The text of a filter on the attributes above, every constraint of its attribute's kind."""
    roll = rng.random()
    if depth == 0 or roll < 0.35:
        return _predicate(rng)
    if roll < 0.5:
        return f"{_word(rng, 'NOT')} ({random_filter(rng, depth - 1)})"
    word = _word(rng, "AND" if roll < 0.72 else "OR")
    parts = [random_filter(rng, depth - 1) for _ in range(rng.choice([2, 2, 3]))]
    return f" {word} ".join(f"({part})" for part in parts)


def _word(rng: random.Random, word: str) -> str:
    return rng.choice([word, word, word.lower(), word.title()])


def _predicate(rng: random.Random) -> str:
    if rng.random() < 0.03:
        return _word(rng, rng.choice(["TRUE", "FALSE"]))
    name, type_ = rng.choice(list(TYPES.items()))
    if rng.random() < 0.12:
        return f"{name} {_word(rng, 'IS')} {rng.choice(['', _word(rng, 'NOT') + ' '])}{_word(rng, 'NULL')}"
    if type_ is Type.BOOLEAN and rng.random() < 0.3:
        return name
    if type_ is Type.STRING and rng.random() < 0.5:
        return _text_predicate(rng, name)
    return _line_predicate(rng, name, type_)


def _text_predicate(rng: random.Random, name: str) -> str:
    if rng.random() < 0.3:
        test = _word(rng, rng.choice(["startswith", "endswith", "contains"]))
        return f"{test}({name}, {literal(rng, Type.STRING)})"
    negation = rng.choice(["", "", _word(rng, "NOT") + " "])
    if rng.random() < 0.2:
        pattern = rng.choice(["%!%", "%!_%", "A!!%", "A%", "%A"])
        return f"{name} {negation}LIKE '{pattern}' {_word(rng, 'ESCAPE')} '!'"
    return f"{name} {negation}{_word(rng, 'LIKE')} '{rng.choice(PATTERNS)}'"


def _line_predicate(rng: random.Random, name: str, type_: Type) -> str:
    roll = rng.random()
    negation = rng.choice(["", "", _word(rng, "NOT") + " "])
    if roll < 0.2:
        low, high = literal(rng, type_), literal(rng, type_)
        return f"{name} {negation}{_word(rng, 'BETWEEN')} {low} {_word(rng, 'AND')} {high}"
    if roll < 0.4:
        values = ", ".join(literal(rng, type_) for _ in range(rng.randint(1, 4)))
        return f"{name} {negation}{_word(rng, 'IN')} ({values})"
    op = rng.choice(["=", "!=", "<>", "<", "<=", ">", ">="])
    space = rng.choice(["", " ", "  ", "\n"])
    if rng.random() < 0.15:
        return f"{literal(rng, type_)} {op} {name}"
    return f"{name}{space}{op}{space}{literal(rng, type_)}"


def literal(rng: random.Random, type_: Type) -> str:
    """The text of a literal of the kind of a type."""
    if type_ is Type.STRING:
        return quote(rng, rng.choice(STRINGS))
    if type_ is Type.BOOLEAN:
        return _word(rng, rng.choice(["TRUE", "FALSE"]))
    if type_ is Type.TIMESTAMP:
        return _timestamp(rng, rng.choice(TIMESTAMPS))
    return rng.choice(NUMBER_TEXTS)


def quote(rng: random.Random, text: str) -> str:
    """A string literal in one of the ways that Spark and we both read."""
    way = rng.randrange(4)
    escaped = text.replace("\\", "\\\\").replace("\n", rng.choice(["\n", "\\n"]))
    if way == 0:
        return "'" + escaped.replace("'", "\\'") + "'"
    if way == 1:
        return '"' + escaped.replace('"', '\\"') + '"'
    if way == 2 and text:
        return "'" + "".join(f"\\U{ord(c):08X}" if c not in "%_" else c for c in text) + "'"
    return "'" + escaped.replace("'", "''") + "'"


def _timestamp(rng: random.Random, instant: datetime) -> str:
    plain = instant.strftime("%Y-%m-%d %H:%M:%S.%f")
    shifted = (instant + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%S.%f+02:00")
    text = rng.choice([plain, plain.replace(" ", "T") + "Z", shifted])
    return f"{_word(rng, 'TIMESTAMP')} '{text}'"
