"""The access constraint of a subscription, which finds it, and the checks that are left then.

Every subscription is filed under one *access* constraint. Those with the same kind of access on the same attribute are
a family, which a peer holds as a table: the access keys, and columns for the other constraints, with neutral values
where a subscription has none. The plain plan takes the first constraint in a fixed order. The tuned one takes, by a
sample of events, the one that few events satisfy and that leaves cheap checks, and splits a table where many candidates
would be checked against neutral values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import IntEnum, StrEnum

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.lab.workloads.long_form import OPS, Array

FEW = 60
"""The most values of a string attribute that is held as bits of a 64-bit word."""
CELLS = 256
"""Quantiles of a number under which ranges are filed."""
SAMPLE = 4096
"""Events by which constraints are estimated."""
SAMPLE_CHARACTERS = 50_000
"""Characters of strings by which substrings are estimated."""
POINTS_MIN = 1000
"""Equalities on one number that are worth a table of their own; fewer are filed as ranges."""
PIECES_MAX = 20_000_000
"""Substrings of all events that are held at once; beyond, patterns are found by their beginnings."""

# Costs of a candidate, in checks of one number, found by trial on DuckDB. A check of a string costs far more than it
# takes: all subscriptions of a table pay for it, so that it had better be the access.
_PROBE = 5.0
_CHECK_TEXT = 50.0
_SPLIT_TEXT = 3.0
_SPLIT_MIN = 800_000.0
"""Checks against neutral values that must be saved to pay for one more join."""

_EQ, _RANGE, _PREFIX, _SUFFIX, _CONTAINS = range(len(OPS))


class Tuning(msgspec.Struct, frozen=True):
    """The additions to the plain plan: a table a family with columns for all numbers, strings as strings.

    `by_cost` chooses the access constraint by its estimated cost, and finds equal numbers by value. `split` makes more
    tables, each without the columns that nobody there needs. `codes` compares strings by number. `together` joins all
    tables in one statement.
    """

    by_cost: bool = False
    split: bool = False
    codes: bool = False
    together: bool = False


PLAIN = Tuning()
TUNED = Tuning(by_cost=True, split=True, codes=True, together=True)


class AttributeKind(StrEnum):
    """The form in which an attribute's values are held."""

    NUMBER = "number"
    CODED = "coded"
    TEXT = "text"


class AccessKind(IntEnum):
    """The key that finds a subscription: a value, the code of one, a quantile, or a part of a string."""

    VALUE = 0
    CODE = 1
    CELL = 2
    PREFIX = 3
    SUFFIX = 4
    CONTAINS = 5


_TEXT_ACCESS = {
    _EQ: AccessKind.VALUE,
    _PREFIX: AccessKind.PREFIX,
    _SUFFIX: AccessKind.SUFFIX,
    _CONTAINS: AccessKind.CONTAINS,
}


class Attribute(msgspec.Struct, frozen=True, eq=False):
    """An attribute as the events hold it: strings of few values by `values`, numbers cut into cells at `cuts`.

    `distinct` counts the values of a string, and a number is `nullable` where an event has none.
    """

    number: int
    name: str
    sort: AttributeKind
    sample: pa.Array
    values: tuple[str, ...] = ()
    cuts: Array | None = None
    distinct: int = 0
    nullable: bool = False


class Check(msgspec.Struct, frozen=True):
    """A remaining check on an attribute, and its columns in the table.

    `range` is of numbers and `code` of strings' numbers, with two columns; `mask` is of a few values, with one; the
    others are tests of strings, with one that is NULL where nothing is asked.
    """

    test: str
    attribute: Attribute
    columns: tuple[str, ...]


class TableGroup(msgspec.Struct, frozen=True):
    """A table of subscriptions of one family, or some of them: `subscription`, the key `k`, and columns to check."""

    access: AccessKind
    attribute: Attribute
    table: pa.Table
    checks: tuple[Check, ...]


class TablePlan(msgspec.Struct, frozen=True):
    """The tables of a workload, and the strings that occur in it: their places are the codes of strings."""

    groups: list[TableGroup]
    texts: pa.Array


def read_attributes(events: pa.Table) -> dict[str, Attribute]:
    """Return the attributes of plain events, by name."""
    out = {}
    for number, name in enumerate(events.column_names):
        column = pa.concat_arrays(events[name].chunks) if events.num_rows else pa.array([], events[name].type)
        sample = column.take(pa.array(np.arange(0, len(column), max(1, len(column) // SAMPLE))))
        if pa.types.is_floating(column.type):
            ordered = np.sort(sample.drop_null().to_numpy())
            cuts = np.unique(ordered[np.arange(1, CELLS) * len(ordered) // CELLS]) if len(ordered) else ordered
            out[name] = Attribute(number, name, AttributeKind.NUMBER, sample, cuts=cuts, nullable=column.null_count > 0)
            continue
        distinct = pc.unique(column).drop_null()
        few = len(distinct) <= FEW
        values = tuple(sorted(distinct.to_pylist())) if few else ()
        out[name] = Attribute(
            number, name, AttributeKind.CODED if few else AttributeKind.TEXT, sample, values, distinct=len(distinct)
        )
    return out


class _Rows(msgspec.Struct):
    """The rows of a long form as columns, with an estimate for each."""

    tuning: Tuning
    subscription: Array
    attribute: Array
    op: Array
    low: Array
    high: Array
    text: Array
    texts: list[str]
    starts: Array
    share: Array  # of the events, that satisfy it
    copies: Array  # in the table, if it is the access
    access: Array
    mask: Array  # of the values that satisfy it, where the attribute has few
    cell: Array  # the first of a range
    dead: Array  # no event satisfies it


def make_plan(
    subscriptions: pa.Table, attributes: Mapping[str, Attribute], events: int, tuning: Tuning = PLAIN
) -> TablePlan:
    """Make the tables of a workload for batches of so many events.

    A subscription that no event with these attributes can satisfy is in none of them.
    """
    if not subscriptions.num_rows:
        return TablePlan([], pa.array([], pa.string()))
    rows = _read(subscriptions, attributes, tuning)
    by_number = [*attributes.values()]
    for attribute in by_number:
        mine = np.flatnonzero(rows.attribute == attribute.number)
        if len(mine):
            _ESTIMATES[attribute.sort](rows, attribute, mine)
    leading = _choose(rows, _costs(rows, events) if tuning.by_cost else _ranks(rows, by_number))
    out = []
    for some in _families(rows, leading):
        leads = some[leading[some]]
        attribute, access = by_number[rows.attribute[leads[0]]], AccessKind(rows.access[leads[0]])
        keys, checked = _keys(rows, leads, attribute, access, events)
        left = some if checked else some[~leading[some]]
        parts = _split(rows, leads, left, by_number, events) if tuning.split else [np.arange(len(leads))]
        out += [_group(rows, leads[part], keys[part], left, by_number, access, attribute) for part in parts]
    return TablePlan(out, pa.array(rows.texts, pa.string()))


def _read(subscriptions: pa.Table, attributes: Mapping[str, Attribute], tuning: Tuning) -> _Rows:
    columns = {name: subscriptions[name].combine_chunks() for name in subscriptions.column_names}
    names, ops, texts = (columns[name].dictionary_encode() for name in ("attribute", "op", "text"))
    number_of = np.array([attributes[n].number if n in attributes else -1 for n in names.dictionary.to_pylist()])
    op_of = np.array([OPS.index(op) for op in ops.dictionary.to_pylist()])
    attribute, op = number_of[np.asarray(names.indices)], op_of[np.asarray(ops.indices)]
    text = np.asarray(texts.indices.fill_null(-1))
    values = texts.dictionary.to_pylist()
    if "" in values:  # every string begins with it, ends with it and contains it
        op[(text == values.index("")) & (op >= _PREFIX)] = _PREFIX
    count = len(op)
    subscription = columns["subscription"].to_numpy()
    whole = np.zeros(count, dtype=np.int64)
    return _Rows(
        tuning,
        subscription,
        attribute,
        op,
        columns["low"].to_numpy(zero_copy_only=False) + 0.0,  # -0.0 is 0.0
        columns["high"].to_numpy(zero_copy_only=False) + 0.0,
        text,
        values,
        starts=np.flatnonzero(np.diff(subscription, prepend=subscription[0] - 1)),
        share=np.ones(count),
        copies=whole + 1,
        access=whole.copy(),
        mask=whole.copy(),
        cell=whole.copy(),
        dead=attribute < 0,
    )


# -- estimates ---------------------------------------------------------------------------------------------------------


def _estimate_numbers(rows: _Rows, attribute: Attribute, mine: Array) -> None:
    assert attribute.cuts is not None
    rows.dead[mine] |= rows.text[mine] >= 0
    ordered = np.sort(attribute.sample.drop_null().to_numpy())
    total = max(1, len(attribute.sample))
    low, high = rows.low[mine], rows.high[mine]
    first, last = (np.searchsorted(attribute.cuts, bound, "right") for bound in (low, high))
    cells = np.maximum(last - first + 1, 1)
    found = np.searchsorted(ordered, high, "right") - np.searchsorted(ordered, low, "left")
    point = low == high
    point &= rows.tuning.by_cost and point.sum() >= POINTS_MIN
    rows.cell[mine] = first
    rows.copies[mine] = np.where(point, 1, cells)
    in_cells = cells / (len(attribute.cuts) + 1) * len(ordered)
    rows.share[mine] = np.where(point, np.maximum(found, 0.5), in_cells) / total
    rows.access[mine] = np.where(point, AccessKind.VALUE, AccessKind.CELL)


def _estimate_coded(rows: _Rows, attribute: Attribute, mine: Array) -> None:
    """Take each test as the set of values that pass it, a bit a value."""
    rows.dead[mine] |= rows.text[mine] < 0
    mine = mine[rows.text[mine] >= 0]
    total = max(1, len(attribute.sample))
    counts = Counter(attribute.sample.to_pylist())
    distinct, inverse = np.unique(rows.op[mine] * len(rows.texts) + rows.text[mine], return_inverse=True)
    tests = [divmod(one, len(rows.texts)) for one in distinct.tolist()]
    passing = [[at for at, v in enumerate(attribute.values) if _passes(op, v, rows.texts[t])] for op, t in tests]
    share = [sum(counts[attribute.values[at]] for at in values) / total for values in passing]
    rows.share[mine] = np.array(share)[inverse]
    rows.mask[mine] = np.array([sum(1 << at for at in values) for values in passing], dtype=np.int64)[inverse]
    rows.copies[mine] = np.array([len(values) for values in passing], dtype=np.int64)[inverse]
    rows.dead[mine] |= rows.mask[mine] == 0
    rows.access[mine] = AccessKind.CODE


def _passes(op: int, value: str, text: str) -> bool:
    if op == _EQ:
        return value == text
    if op == _CONTAINS:
        return text in value
    return value.startswith(text) if op == _PREFIX else value.endswith(text)


def _estimate_texts(rows: _Rows, attribute: Attribute, mine: Array) -> None:
    rows.dead[mine] |= rows.text[mine] < 0
    values = attribute.sample.drop_null().to_pylist()
    for op, access in _TEXT_ACCESS.items():
        some = mine[(rows.op[mine] == op) & (rows.text[mine] >= 0)]
        if len(some):
            rows.access[some] = access
            distinct, inverse = np.unique(rows.text[some], return_inverse=True)
            found = _count(op, values, [rows.texts[code] for code in distinct.tolist()])
            rows.share[some] = (np.maximum(found, 0.5) / max(1, len(attribute.sample)))[inverse]


def _count(op: int, values: list[str], wanted: list[str]) -> Array:
    """Count the values that pass each test, by counting all their parts of the lengths in question."""
    lengths = sorted({len(text) for text in wanted})
    parts: Counter[str] = Counter()
    seen = characters = 0
    for value in values:
        seen, characters = seen + 1, characters + len(value)
        if op == _EQ:
            parts[value] += 1
        elif op == _CONTAINS:
            parts.update({value[at : at + n] for n in lengths for at in range(len(value) - n + 1)})
            if characters > SAMPLE_CHARACTERS:
                break
        else:
            parts.update(value[:n] if op == _PREFIX else value[len(value) - n :] for n in lengths if n <= len(value))
    return np.array([parts[text] for text in wanted]) * (len(values) / max(1, seen))


_ESTIMATES = {
    AttributeKind.NUMBER: _estimate_numbers,
    AttributeKind.CODED: _estimate_coded,
    AttributeKind.TEXT: _estimate_texts,
}


# -- the choice --------------------------------------------------------------------------------------------------------


def _costs(rows: _Rows, events: int) -> Array:
    """Estimate the cost of finding a subscription by each of its rows."""
    sizes = np.diff(np.append(rows.starts, len(rows.op)))
    plain = (rows.text < 0) | (rows.access == AccessKind.CODE)
    check = np.where(plain, 1.0, np.where(rows.op == _CONTAINS, 2 * _CHECK_TEXT, _CHECK_TEXT))
    left = np.repeat(np.add.reduceat(check, rows.starts), sizes) - np.where(rows.access == AccessKind.CELL, 0, check)
    cost: Array = rows.share * (_PROBE + left) + rows.copies * _PROBE / max(1, events)
    return cost


def _ranks(rows: _Rows, by_number: list[Attribute]) -> Array:
    """Rank by the fixed order: substrings, then strings, the one with most values first, then the shortest range."""
    strings = sorted((a for a in by_number if a.sort is not AttributeKind.NUMBER), key=lambda a: -a.distinct)
    place = np.zeros(len(by_number), dtype=np.int64)
    place[[a.number for a in strings]] = np.arange(len(strings))
    rank = place[rows.attribute] - np.where(rows.access == AccessKind.CONTAINS, len(strings), 0)
    return np.where(rows.access == AccessKind.CELL, len(strings) + rows.copies, rank)


def _choose(rows: _Rows, cost: Array) -> Array:
    """Mark the row that leads to each subscription: the first of least cost, none where a row is dead."""
    sizes = np.diff(np.append(rows.starts, len(rows.op)))
    best = np.repeat(np.minimum.reduceat(cost, rows.starts), sizes)
    candidates = np.flatnonzero(cost == best)
    first = np.flatnonzero(np.diff(rows.subscription[candidates], prepend=rows.subscription[0] - 1))
    leading = np.zeros(len(rows.op), dtype=np.bool_)
    leading[candidates[first]] = True
    leading &= ~np.repeat(np.logical_or.reduceat(rows.dead, rows.starts), sizes)
    return leading


def _families(rows: _Rows, leading: Array) -> Iterator[Array]:
    """Yield the rows of the subscriptions of each family, in order."""
    sizes = np.diff(np.append(rows.starts, len(rows.op)))
    kind = np.where(leading, rows.attribute * len(AccessKind) + rows.access, -1)
    kind = np.repeat(np.maximum.reduceat(kind, rows.starts), sizes)
    order = np.argsort(kind, kind="stable")
    for some in np.split(order, np.flatnonzero(np.diff(kind[order])) + 1):
        if kind[some[0]] >= 0:
            yield some


def _split(rows: _Rows, leads: Array, left: Array, by_number: list[Attribute], events: int) -> Iterator[Array]:
    """Split a family: subscriptions that ask of an attribute go apart. Parts are places among its subscriptions."""
    used, column = np.unique(rows.attribute[left], return_inverse=True)
    asks = np.zeros((len(leads), len(used)), dtype=np.bool_)
    asks[np.searchsorted(rows.subscription[leads], rows.subscription[left]), column] = True
    cost = np.array([_SPLIT_TEXT if by_number[number].sort is AttributeKind.TEXT else 1.0 for number in used])
    candidates = rows.share[leads] * events
    waiting = [np.arange(len(leads))]
    while waiting:
        part = waiting.pop()
        neutral = (candidates[part] @ ~asks[part]) * cost * asks[part].any(axis=0)
        if not len(used) or neutral.max() < _SPLIT_MIN:
            yield part
        else:
            on = asks[part, neutral.argmax()]
            waiting += [part[on], part[~on]]


# -- tables ------------------------------------------------------------------------------------------------------------


class _Keys(msgspec.Struct, frozen=True):
    """Keys of subscriptions, some with several: the place of the subscription, and the key."""

    place: Array
    key: pa.Array

    def __getitem__(self, part: Array) -> _Keys:
        """Return the keys of some of the subscriptions, which are then numbered as they are listed."""
        at = np.full(int(max(self.place.max(initial=-1), part.max(initial=-1))) + 1, -1)
        at[part] = np.arange(len(part))
        kept = np.flatnonzero(at[self.place] >= 0)
        return _Keys(at[self.place[kept]], self.key.take(pa.array(kept)))


def _keys(rows: _Rows, leads: Array, attribute: Attribute, access: AccessKind, events: int) -> tuple[_Keys, bool]:
    """Return the access keys, and whether they say less than the constraint, so that it must still be checked."""
    if access is AccessKind.CELL:
        copies = rows.copies[leads]
        place = np.repeat(np.arange(len(leads)), copies)
        within = np.arange(len(place)) - np.repeat(np.cumsum(copies) - copies, copies)
        return _Keys(place, pa.array((rows.cell[leads][place] + within).astype(np.int32))), True
    if access is AccessKind.CODE:
        code, place = np.nonzero((rows.mask[leads] >> np.arange(FEW)[:, None]) & 1)  # those of a code stand together
        return _Keys(place, pa.array(code)), False
    place = np.arange(len(leads))
    if attribute.sort is AttributeKind.NUMBER:
        return _Keys(place, pa.array(rows.low[leads])), False
    if access is AccessKind.VALUE and rows.tuning.codes:  # the string's code: numbers hash faster
        return _Keys(place, pa.array(rows.text[leads].astype(np.int32))), False
    texts, cut = rows.texts, False
    if access is AccessKind.CONTAINS:
        texts, cut = _beginnings(
            attribute, rows.texts, {rows.texts[code] for code in rows.text[leads].tolist()}, events
        )
    return _Keys(place, pa.array(texts, pa.string()).take(pa.array(rows.text[leads]))), cut


def _beginnings(attribute: Attribute, texts: list[str], wanted: set[str], events: int) -> tuple[list[str], bool]:
    """Cut patterns to so few lengths that the events' substrings of these lengths fit into memory."""
    sizes = np.array([len(value) for value in attribute.sample.drop_null().to_pylist()] or [0])
    kept: list[int] = []
    pieces = 0.0
    for length in sorted({len(text) for text in wanted}):
        pieces += np.maximum(sizes - length + 1, 0).mean() * events
        if kept and pieces > PIECES_MAX:
            break
        kept.append(length)
    longest = {text: max(n for n in kept if n <= len(text)) for text in wanted}
    cut = any(len(text) > length for text, length in longest.items())
    return ([text[: longest.get(text)] for text in texts] if cut else texts), cut


def _group(
    rows: _Rows,
    leads: Array,
    keys: _Keys,
    left: Array,
    by_number: list[Attribute],
    access: AccessKind,
    attribute: Attribute,
) -> TableGroup:
    subscription = rows.subscription[leads]
    place = np.searchsorted(subscription, rows.subscription[left]).clip(max=len(leads) - 1)
    mine = subscription[place] == rows.subscription[left]
    left, place = left[mine], place[mine]
    small = len(subscription) == 0 or subscription[-1] < 2**31
    columns: dict[str, pa.Array] = {"subscription": pa.array(subscription.astype(np.int32 if small else np.int64))}
    checks: list[Check] = []
    wide = [] if rows.tuning.split else [a.number for a in by_number if a.sort is AttributeKind.NUMBER]
    asked = {*rows.attribute[left].tolist(), *np.intersect1d(wide, rows.attribute).astype(np.int64).tolist()}
    for number in sorted(asked, key=lambda n: (list(AttributeKind).index(by_number[n].sort), n)):  # cheap checks first
        here = rows.attribute[left] == number
        for check, made in _checks(rows, left[here], place[here], by_number[number], len(leads)):
            checks.append(check)
            columns |= zip(check.columns, made, strict=True)
    table = pa.table(columns).take(pa.array(keys.place)).append_column("k", keys.key)
    return TableGroup(access, attribute, table, tuple(checks))


def _checks(
    rows: _Rows, mine: Array, place: Array, attribute: Attribute, count: int
) -> Iterator[tuple[Check, list[pa.Array]]]:
    """Yield the checks of one attribute. A subscription that asks nothing gets a test that every event passes, NULL
    included.
    """
    number = attribute.number
    if attribute.sort is AttributeKind.NUMBER:
        low = np.full(count, -np.inf)
        high = np.full(count, np.nan if attribute.nullable else np.inf)  # peers put NaN, the largest number, for NULL
        low[place], high[place] = rows.low[mine], rows.high[mine]
        yield Check("range", attribute, (f"low{number}", f"high{number}")), [pa.array(low), pa.array(high)]
    elif attribute.sort is AttributeKind.CODED:
        mask = np.full(count, (1 << (len(attribute.values) + 1)) - 1)  # the last bit is NULL's
        mask[place] = rows.mask[mine]
        yield Check("mask", attribute, (f"mask{number}",)), [pa.array(mask)]
    else:
        for op in np.unique(rows.op[mine]).tolist():
            some = rows.op[mine] == op
            code = np.full(count, -1)
            code[place[some]] = rows.text[mine[some]]
            if op == _EQ and rows.tuning.codes:
                # a range of codes: what asks nothing accepts all of them, and -1 for other strings and NULL
                last = np.where(code < 0, np.iinfo(np.int32).max, code)
                made = [pa.array(bound.astype(np.int32)) for bound in (code, last)]
                yield Check("code", attribute, (f"first{number}", f"last{number}")), made
                continue
            texts = pa.array(rows.texts, pa.string()).take(pa.array(code, mask=code < 0))
            yield Check(OPS[op], attribute, (f"{OPS[op]}{number}",)), [texts]
