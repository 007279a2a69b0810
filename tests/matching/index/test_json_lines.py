"""JSON lines as columns against `json_rows`: the same rows, values, types and reasons, whatever the bytes are."""

from __future__ import annotations

import io
import json
import random
import re
from datetime import timedelta
from decimal import Decimal
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meetpoint.language import Attribute, Schema, Type
from meetpoint.language.events.json import attributes_from_json, attributes_to_json
from meetpoint.language.names import find, split_name
from meetpoint.language.timestamps import EPOCH
from meetpoint.matching.index import json_lines
from meetpoint.matching.index.json_lines import JsonLines, LineReader
from meetpoint.matching.io import events as sources
from meetpoint.matching.io.rejects import Reject, reject
from meetpoint.matching.tables.columns import ColumnPart, PartSort
from tests.workloads import random_events

NAMES = [
    "a",
    "b",
    "o",
    "o.x",
    "o.p.q",
    "`a.b`",
    "größe",
    '`say "hi"`',
    "`back``tick`",
    "`größe`",
    "\ud800",
    "`" + "k" * 300 + "`",
]
SCHEMA = Schema(
    (
        *(Attribute(name, type_) for name, type_ in zip("ifdsbt", Type, strict=True)),
        Attribute("o.x", Type.FLOAT),
        Attribute('o.`q"`', Type.INTEGER),
        Attribute("größe", Type.DECIMAL),
    )
)
TYPED_NAMES = [*SCHEMA.names, "o", "a", "o.y"]


@cache
def reader(schema: Schema | None) -> LineReader:
    return LineReader(NAMES if schema is None else TYPED_NAMES, schema)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """The kernels are compiled before Hypothesis counts the time."""
    reader(None).read(b"{}")


def _words(text: str) -> list[str]:
    return text.split()


KEYS = [
    "a",
    "b",
    "o",
    "x",
    "p",
    "q",
    "a.b",
    "größe",
    'say \\"hi\\"',
    "back`tick",
    "i",
    "f",
    "d",
    "s",
    "t",
    "\\u0061",
    "",
]
KEYS += ["k" * 300, "k" * 31, "k" * 32, "k" * 33, "\\ud800", "🙂", "y"]
NUMBERS = _words("""
0 -0 1 -1 00 01 -01 - +1 1. .5 0.5 -0.0 0.0 -0e0 1e5 1E5 1e+05 1e-05 1e 1e+ 1.e5 12345678 123456789 1234567890123456789
9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809 18446744073709551615
18446744073709551616 99999999999999999999999999999999999999 999999999999999999999999999999999999999
9007199254740992 9007199254740993 -9007199254740993 0.1 0.30000000000000004 123456789.123456789 1e22 1e23 1.5e300 1e308
1e309 -1e309 1e400 1e-400 5e-324 2e-324 2.2250738585072014e-308 1.7976931348623157e308 1.7976931348623159e308 0e99999
9007199254740993.0 9007199254740992.5 9007199254740993.5 0.000000000000000000000000000012345678901234567 1e99999999999
0.00012345678901234567 100000000000000000000.0 8.5e-5 1.50 84.05 0.1234567890123456789 12345678901234567.89 3.0e0 2.50E1
NaN Infinity -Infinity nan 1_000 0x10 1e5.0 1-2
""")
TEXTS = [
    "",
    "A",
    "NYSE",
    "ÄÖ",
    "🙂",
    "x" * 31,
    "x" * 32,
    "x" * 33,
    "ü" * 20,
    "\x7f",
    "NaN",
    "-Infinity",
    "\u2028",
    "\ufeff",
]
ESCAPES = [
    "\\n",
    "\\\\",
    "\\/",
    '\\"',
    "\\u00e9",
    "\\u20ac",
    "\\ud83d\\ude42",
    "\\ud83d",
    "\\ude42",
    "\\u0000",
    "\\b\\f\\r\\t",
]
ESCAPES += ["\\x", "\\u12", "\\uD83D\\u0041", "\\ud83dx", "\\u00gg", "\\U0041", "\\", "\t", "\x00"]
TIMES = _words("""
2026-01-02 2026-01-02T03:04 2026-01-02T03:04:05 2026-01-02T03:04:05Z 2026-01-02T03:04:05.6Z 2026-01-02T03:04:05.678901Z
2026-01-02T03:04:05.6789012Z 2026-01-02T03:04:05+02:00 2026-01-02T03:04:05.5-18:00 2026-01-02T03:04:05+18:01
2026-02-29 2024-02-29 1900-02-29 2000-02-29 0001-01-01T00:00:00+01:00 9999-12-31T23:59:59-01:00 0000-01-01
1969-12-31T23:59:59.999999Z 2026-13-01 2026-00-10 2026-04-31 2026-01-32 2026-01-00 2026-01-02T24:00:00
2026-01-02T23:60:00 2026-01-02T23:59:60 2026-01-02T03:04:05UTC 2026-01-02t03:04:05 2026-01-02T03:04:05.
2026-01-02T03:04:05.Z 2026-1-2 2026-01-02T03:04:05+0200 2026-01-02T03:04:05ZZ 2026-01-02T03:04:05+02:60
""")
OTHERS = [
    "true",
    "false",
    "null",
    "{}",
    "[]",
    "[1]",
    "tru",
    "nulll",
    "True",
    "{]",
    "",
    '{"x":{"x":{}}}',
    "[" * 50,
    "nul",
]


def expected(data: bytes, schema: Schema | None) -> tuple[int, dict[int, dict[str, Any]], list[tuple[int, str]]]:
    """Rows, good events by row, rejects: from the slow path."""
    rejects: list[Reject] = []
    with patch.object(sources, "open_source", lambda path: io.BytesIO(data)):
        good = dict(sources.json_rows("-", "events", rejects.append, schema))
    return len(good) + len(rejects), good, [(r.row, r.reason) for r in rejects]


def value_of(part: ColumnPart, row: int) -> object:
    match part.sort:
        case PartSort.TEXT:
            assert part.starts is not None
            assert part.ends is not None
            return part.values[part.starts[row] : part.ends[row]].tobytes().decode()
        case PartSort.DECIMAL:
            return Decimal(f"{part.values[row]}E-{part.scale}")
        case PartSort.INSTANT:
            return EPOCH + timedelta(microseconds=int(part.values[row]))
        case PartSort.EXACT:
            assert isinstance(part.values[row], Decimal) or not -(2**63) <= part.values[row] < 2**63
            return part.values[row]
        case PartSort.OTHER:
            assert part.values[row]
            return {}
    return part.values[row].item()


def exactly(value: object) -> tuple[str, object]:
    """Return what equal values share: -0.0 is not 0.0, 1 is not 1.0; but decimals are numbers."""
    if isinstance(value, float):
        return "float", value.hex()
    return type(value).__name__, {} if isinstance(value, dict) else value


def check(data: bytes, schema: Schema | None = None) -> JsonLines:
    names = NAMES if schema is None else TYPED_NAMES
    rows, events, rejects = expected(data, schema)
    read = reader(schema).read(data)
    assert read.rows == rows
    assert [(row, reject("events", row, reason, "").reason) for row, reason in read.rejects] == rejects
    assert np.flatnonzero(read.good).tolist() == sorted(events)
    assert read.lines == len(list(io.BytesIO(data)))
    assert list(read.parts) == list(dict.fromkeys(names))
    for name in names:
        parts = read.parts[name]
        assert len({part.sort for part in parts}) == len(parts)
        found: list[list[object]] = [[] for _ in range(rows)]
        for part in parts:
            assert part.valid is None or (len(part.valid) == rows and part.valid.any() and not part.valid.all())
            for row in range(rows):
                if part.valid is None or part.valid[row]:
                    found[row].append(value_of(part, row))
                elif part.starts is not None and part.ends is not None:
                    assert part.starts[row] == part.ends[row] == 0
                else:
                    assert not part.values[row]
        for row in range(rows):
            value = find(events.get(row, {}), split_name(name))
            assert list(map(exactly, found[row])) == ([] if value is None else [exactly(value)]), (name, row)
    return read


# -- Random lines ------------------------------------------------------------------------------------------------------

SPACES = st.sampled_from(["", "", "", "", " ", " ", "\t", "\r", "\x0b", "  "])
STRINGS = st.one_of(
    st.sampled_from(TEXTS + TIMES),
    st.lists(st.sampled_from(TEXTS + ESCAPES), max_size=4).map("".join),
    st.text(max_size=40),
    st.text(max_size=10).map(lambda text: json.dumps(text)[1:-1]),
).map(lambda text: f'"{text}"')
NUMBER_TEXTS = st.one_of(
    st.sampled_from(NUMBERS),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers().map(str),
    st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)
ATOMS = st.one_of(NUMBER_TEXTS, STRINGS, st.sampled_from(OTHERS))


@st.composite
def objects(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    pairs = draw(st.lists(st.tuples(st.sampled_from(KEYS), values), max_size=5))
    if draw(st.integers(0, 9)):
        pairs = list(dict(pairs).items())
    space = draw(SPACES)
    comma = "," if draw(st.integers(0, 30)) else ",,"
    return "{" + comma.join(f'{space}"{key}"{space}:{space}{value}{space}' for key, value in pairs) + "}"


VALUES = st.recursive(ATOMS, objects, max_leaves=6)
LINES = st.one_of(
    objects(VALUES),
    objects(VALUES),
    objects(VALUES),
    st.builds(str.__add__, objects(ATOMS), SPACES),
    st.builds(str.__add__, SPACES, objects(ATOMS)),
    st.sampled_from(
        ["", " ", "\t\r", "\x0b\x0c", "\ufeff", "\ufeff{}", "null", "1", '"x"', "{}", "{}{}", "{", "}", "{,}"]
    ),
).map(lambda line: line.encode("utf-8", "surrogatepass"))
ENDS = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r\r\n", b"\n\n", b"\r", b"\n \n"])


@st.composite
def files(draw: st.DrawFn) -> bytes:
    data = b"".join(draw(st.lists(st.tuples(LINES, ENDS).map(b"".join), max_size=6)))
    if draw(st.booleans()):
        data = data.rstrip(b"\n")
    if not draw(st.integers(0, 5)):
        data = b"\xef\xbb\xbf" + data
    return data


SCHEMAS = pytest.mark.parametrize("schema", [None, SCHEMA], ids=["plain", "schema"])


@pytest.mark.slow
@SCHEMAS
@given(data=files())
@example(data=b"")
@example(data=b"\n")
@example(data=b"\xef\xbb\xbf")
@example(data=b"\xef\xbb\xbf\xef\xbb\xbf{}")
@example(data=b'{"s":"\\n"} {"a":1}\n{"a":2}')
@example(data=b'{"s":"\\n","s":1}\n{"a":2}')
@example(data=b'{"o":{"x":1},"o":{"x":2}}\n{"x":{"x":1}}')
@example(data=b'{"\xed\xa0\x80":1}\n{"a":"\xc3"}\n{"a":"\xc3\\u00a9"}\n{"a":"\xf4\x90\x80\x80"}\n{"a":"\xe0\x80\x80"}')
def test_any_lines(schema: Schema | None, data: bytes) -> None:
    check(data, schema)


@SCHEMAS
def test_every_value_everywhere(schema: Schema | None) -> None:
    """Under each type, wanted and not."""
    lines = []
    for value in NUMBERS + OTHERS + [f'"{text}"' for text in TEXTS + ESCAPES + TIMES]:
        lines += [f'{{"{key}":{value}}}' for key in ["a", "i", "f", "d", "s", "b", "t", "größe", "unwanted"]]
        lines += [f'{{"o":{{"x": {value} }}, "y":{{"x":{value}}}}}', f'{{"o":{value}}}']
    check("\n".join(lines).encode(), schema)


@pytest.mark.slow
@given(texts=st.lists(NUMBER_TEXTS, min_size=20, max_size=40))
def test_numbers(texts: list[str]) -> None:
    check("\n".join(f'{{"a":{text},"b":-{text}}}' for text in texts).encode())


def plain_lines(rng: random.Random, count: int) -> list[str]:
    """Lines of one shape, with values of the nasty pools that all matchers are tested with."""
    lines = [attributes_to_json(event).decode() for event in random_events(rng, count)]
    return [re.sub(r"[^ -~]", escaped, line) if rng.random() < 0.5 else line for line in lines]


def escaped(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


EDITS = [b"", b"", b'"', b"\\", b"{", b"}", b"[", b",", b":", b"0", b"1", b".", b"e", b"-", b" ", b"\n", b"\r", b"\x00"]
EDITS += [
    b"\xc3",
    b"\xa4",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x99\x82",
    b"\\u00",
    b"\\ud83d",
    b"null",
    b"u",
    b"\x1f",
    b"\xef\xbb\xbf",
]


@SCHEMAS
@pytest.mark.parametrize("seed", range(4))
def test_edited_bytes(schema: Schema | None, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray("\n".join(plain_lines(rng, 400)).encode())
    for _ in range(len(data) // 300):
        at = rng.randrange(len(data))
        data[at : at + rng.choice([0, 1, 1, 2])] = rng.choice(EDITS)
    read = check(bytes(data), schema)
    assert 20 < len(read.rejects) < read.rows - 20


# -- What is quick -----------------------------------------------------------------------------------------------------


def check_quick(lines: list[str], schema: Schema | None = None) -> None:
    """None of these lines is left to Python."""
    data = "\n".join(lines).encode()
    with patch.object(json_lines, "attributes_from_json", side_effect=AssertionError):
        reader(schema).read(data)
    assert not check(data, schema).rejects


def test_plain_lines_are_quick() -> None:
    rare = re.compile(f"5e-324|{-(2**63)}")
    check_quick([line for line in plain_lines(random.Random(0), 200) if rare.search(line) is None])
    check_quick(
        [
            '{"a": 84.05, "b": "NYSE", "o": {"x": -3, "p": {"q": true}}, "a.b": null, "größe": "Ä\\n\\u20ac"}',
            '{"a": "\\u00e9\\ud83d\\ude42\\/"}',
            ' { "b" : false , "unknown" : { "a" : {} } , "a" : 1.7976931348623157e308 } \r',
            '{"a": 9223372036854775807, "b": 0.30000000000000004, "o": 1e-5, "' + "k" * 255 + '": "' + "x" * 500 + '"}',
            "",
            "{}",
        ]
    )
    check_quick([f'{{"key{number}": {number}, "a": {number}}}' for number in range(500)])


def test_declared_lines_are_quick() -> None:
    check_quick(
        [
            '{"i": -0, "f": 3, "d": 84.050, "s": "\\"", "b": true, "t": "2026-01-02T03:04:05.678901Z", "größe": 12}',
            '{"f": -0, "d": -1, "t": "2024-02-29 23:59:59-17:30", "o": {"x": 1e3, "y": "z"}, "größe": 12.5}',
            '{"t": "1969-12-31", "o": null, "i": null, "f": 0.5, "a": {"b": 1}}',
        ],
        SCHEMA,
    )


def test_ever_new_keys_are_still_mostly_quick() -> None:
    data = b"\n".join(b'{"%d": {"%d": 1}, "a": %d}' % (number, number, number) for number in range(3000))
    with patch.object(json_lines, "attributes_from_json", wraps=attributes_from_json) as slow:
        check(data)
    assert 0 < slow.call_count < 30


def test_more_keys_than_can_be_learnt() -> None:
    line = "{" + ",".join(f'"k{number}":{number}' for number in range(2000))
    check(f'{line},"a":1}}\n{line},"k7":1,"a":1}}\n{{"a":2}}'.encode())


# -- What is told ------------------------------------------------------------------------------------------------------


def test_decimals_of_one_scale() -> None:
    (part,) = LineReader(["d"], SCHEMA).read(b'{"d":1}\n{"d":1.50}\n{}\n{"d":-0.125}\n{"d":2e1}').parts["d"]
    assert (part.sort, part.scale, part.values.tolist()) == (PartSort.DECIMAL, 3, [1000, 1500, 0, -125, 20000])
    assert part.valid is not None
    assert part.valid.tolist() == [True, True, False, True, True]


def test_decimals_beyond_64_bits_are_exact() -> None:
    data = b'{"d":1000000000000}\n{"d":0.000000000000000001}\n{"d":5}\n{"d":12345678901234567890123456789}'
    check(data, SCHEMA)
    scaled, exact = LineReader(["d"], SCHEMA).read(data).parts["d"]
    assert (scaled.scale, scaled.values.tolist()) == (18, [0, 1, 5 * 10**18, 0])
    assert exact.values.tolist() == [Decimal(10**12), 0, 0, Decimal("12345678901234567890123456789")]


def test_a_stretch_of_a_file() -> None:
    """Lines count on from the first, and only a file starts with a byte order mark."""
    read = LineReader(["a"]).read(b'\n{"a":1}\n\xef\xbb\xbf{}\n[]', first_line=7)
    assert (read.rows, read.lines, read.good.tolist()) == (3, 4, [True, False, False])
    assert [(row, reason.split(":")[0]) for row, reason in read.rejects] == [
        (1, "line 9, column 1"),
        (2, "line 10, column 1"),
    ]
    assert (
        LineReader(["a"])
        .read(b"\xef\xbb\xbf{}", first_line=2)
        .rejects[0][1]
        .startswith("line 2, column 1: starts with")
    )
    assert read.bounds.tolist() == [[1, 8], [9, 14], [15, 17]]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, dtype=np.uint8)])
def test_kinds_of_buffers(kind: Any) -> None:
    data = b'{"a":"\\u00e9","b":[]}\n{"a":"\\u00e9"}\n'
    (part,) = LineReader(["a"]).read(kind(data)).parts["a"]
    assert value_of(part, 1) == "é"
    assert data == b'{"a":"\\u00e9","b":[]}\n{"a":"\\u00e9"}\n'


def test_nothing_wanted() -> None:
    read = LineReader([]).read(b'{"a":1}\n{')
    assert (read.rows, read.parts, read.good.tolist()) == (2, {}, [True, False])
