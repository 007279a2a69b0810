"""Explanations: why a filter accepts an event, or why not.

An explanation is the filter as a tree of verdicts, and the shortest sufficient reason. TRUE is ✓, FALSE is ✗, NULL is
?. The reason is facts from which the verdict follows whatever else the event holds: of a failing AND the part with the
fewest, of a failing OR those of every part.

A fact is structured first (a relation between the attribute's value and some literals) and worded second, so that a
test can check that it is true.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from meetpoint.errors import one_line
from meetpoint.language.events.event import Event
from meetpoint.language.filters.constraints import accepts
from meetpoint.language.filters.filter import Filter, on_one_line, parse_filter
from meetpoint.language.filters.like import PatternSort, parse_like
from meetpoint.language.filters.normal_form import make_atom
from meetpoint.language.names import find, split_name
from meetpoint.language.syntax.render import literal_text
from meetpoint.language.syntax.tree import (
    And,
    Between,
    Compare,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    LiteralValue,
    Node,
    Not,
    Or,
    Predicate,
    TextTest,
    kind_compared,
    literals_of,
)
from meetpoint.language.timestamps import format_timestamp
from meetpoint.language.values import Attributes, Kind, clean_attributes, kind_of

if TYPE_CHECKING:
    from rich.tree import Tree

__all__ = ["Explanation", "Fact", "Relation", "Step", "explain", "judge", "show"]


_SHOWN_MAX = 60
_LISTED_MAX = 5


class Relation(StrEnum):
    """A relation of a value to the literals of a predicate."""

    MISSING = "missing"
    OTHER_KIND = "other kind"
    PRESENT = "present"
    BELOW = "below"
    EQUAL = "equal"
    ABOVE = "above"
    WITHIN = "within"
    LISTED = "listed"
    UNLISTED = "unlisted"
    FITS = "fits"
    UNFIT = "unfit"


class Fact(msgspec.Struct, frozen=True):
    """A true statement about an event."""

    attribute: str
    value: object
    relation: Relation
    literals: tuple[LiteralValue, ...]
    text: str


def judge(predicate: Predicate, attributes: Attributes) -> tuple[bool | None, Fact]:
    """Return whether the predicate is TRUE, FALSE or NULL of an event's attributes, and why."""
    value = find(attributes, split_name(predicate.attribute))
    verdict = _verdict(predicate, value)
    return verdict, _fact(predicate, value)


def _verdict(predicate: Predicate, value: object) -> bool | None:
    values = {literal.slot: literal.value for literal in literals_of(predicate)}
    slots = [values.get(slot, False) for slot in range(max(values, default=-1) + 1)]
    for negated in (False, True):
        constraint = make_atom(predicate, negated).make(slots)
        if constraint is not None and accepts(constraint, value):
            return not negated
    return None  # NULL satisfies neither a predicate nor its NOT


def _fact(predicate: Predicate, value: object) -> Fact:
    name = predicate.attribute
    literals = tuple(literal.value for literal in literals_of(predicate))
    if value is None:
        return Fact(name, value, Relation.MISSING, literals, f"{name} is missing")
    if isinstance(predicate, IsNull):
        return Fact(name, value, Relation.PRESENT, literals, f"{name} is {show(value)}")
    kind = kind_compared(predicate)
    if kind_of(value) is not kind:
        found = kind_of(value) or "object"
        text = f"{name} is {_article(found)} {found}, not {_article(str(kind))} {kind}: {show(value)}"
        return Fact(name, value, Relation.OTHER_KIND, literals, text)
    relation, words = _relation(predicate, value, literals)
    if relation is Relation.EQUAL:
        return Fact(name, value, relation, literals, f"{name} is {show(value)}")
    return Fact(name, value, relation, literals, f"{name} {show(value)} {words}")


def _relation(predicate: Predicate, value: object, literals: tuple[LiteralValue, ...]) -> tuple[Relation, str]:
    match predicate:
        case Compare(literal=literal):
            relation = _order(value, literal)
            if predicate.op in ("=", "!=") and literal.kind is not Kind.NUMBER:
                return relation, f"is not {_show_literal(literal)}"
            return relation, f"{_WORDS[literal.kind][relation]} {_show_literal(literal)}"
        case Between(low=low, high=high):
            to_low, to_high = _order(value, low), _order(value, high)
            if to_low is Relation.BELOW:
                return to_low, f"{_WORDS[low.kind][to_low]} {_show_literal(low)}"
            if to_high is Relation.ABOVE:
                return to_high, f"{_WORDS[low.kind][to_high]} {_show_literal(high)}"
            return Relation.WITHIN, f"is between {_show_literal(low)} and {_show_literal(high)}"
        case In(literals=listed):
            held = any(_order(value, literal) is Relation.EQUAL for literal in listed)
            shown = ", ".join(_show_literal(literal) for literal in listed[:_LISTED_MAX])
            more = f" and {len(listed) - _LISTED_MAX} more" if len(listed) > _LISTED_MAX else ""
            return (
                (Relation.LISTED, f"is one of {shown}{more}")
                if held
                else (Relation.UNLISTED, f"is none of {shown}{more}")
            )
        case Like():
            pattern = parse_like(*map(str, literals))
            fits = pattern.matches(str(value))
            words = (
                _like_words(pattern.sort, pattern.pieces, fits)
                or f"{_does(fits)} fit{_s(fits)} {_show_literal(predicate.pattern)}"
            )
            return (Relation.FITS if fits else Relation.UNFIT), words.strip()
        case TextTest(test=test):
            part = str(literals[0])
            verb = {"startswith": "begin", "endswith": "end", "contains": "contain"}[test]
            text = str(value)
            fits = {"startswith": text.startswith, "endswith": text.endswith, "contains": text.__contains__}[test](part)
            tail = "" if test == "contains" else " with"
            return (Relation.FITS if fits else Relation.UNFIT), _verb(verb, fits, tail, part)
        case IsNull():
            raise AssertionError("IS NULL has no literals")


def _order(value: object, literal: Literal) -> Relation:
    for op, relation in (("=", Relation.EQUAL), ("<", Relation.BELOW)):
        predicate = Compare("value", 0, 0, op, msgspec.structs.replace(literal, slot=0))  # type: ignore[arg-type]
        if literal.kind is Kind.BOOLEAN:
            holds = value == literal.value if op == "=" else value < literal.value  # type: ignore[operator]
        else:
            constraint = make_atom(predicate, False).make([literal.value])
            holds = constraint is not None and accepts(constraint, value)
        if holds:
            return relation
    return Relation.ABOVE


_WORDS = {
    Kind.NUMBER: {Relation.BELOW: "is below", Relation.EQUAL: "is", Relation.ABOVE: "is above"},
    Kind.STRING: {Relation.BELOW: "comes before", Relation.EQUAL: "is", Relation.ABOVE: "comes after"},
    Kind.TIMESTAMP: {Relation.BELOW: "is before", Relation.EQUAL: "is", Relation.ABOVE: "is after"},
    Kind.BOOLEAN: {Relation.BELOW: "is before", Relation.EQUAL: "is", Relation.ABOVE: "is after"},
}


def _like_words(sort: PatternSort, pieces: tuple[str, ...], fits: bool) -> str | None:
    match sort:
        case PatternSort.PREFIX if pieces[0]:
            return _verb("begin", fits, " with", pieces[0])
        case PatternSort.SUFFIX:
            return _verb("end", fits, " with", pieces[1])
        case PatternSort.SUBSTRING:
            return _verb("contain", fits, "", pieces[1])
    return None


def _verb(verb: str, fits: bool, tail: str, part: str) -> str:
    return f"{_does(fits)} {verb}{_s(fits)}{tail} {show(part)}".strip()


def _does(fits: bool) -> str:
    return "" if fits else "does not"


def _s(fits: bool) -> str:
    return "s" if fits else ""


def _article(word: str) -> str:
    return "an" if word[0] in "aeio" else "a"


def _show_literal(literal: Literal) -> str:
    value = literal.value
    if isinstance(value, Decimal):
        return str(value)  # as written: 8.70, not 8.7
    return show(value)


def show(value: object) -> str:
    """Return a value in words, cut if it is long."""
    match value:
        case None:
            return "NULL"
        case str():
            return one_line(literal_text(value if len(value) <= _SHOWN_MAX else value[: _SHOWN_MAX - 1] + "…"))
        case datetime():
            return format_timestamp(value)
        case bool():
            return literal_text(value)
        case dict():
            return "an object"
        case _:
            return str(value)


_MARKS = {True: "✓", False: "✗", None: "?"}
_COLOURS = {True: "green", False: "red", None: "yellow"}
_NAMES = {True: "true", False: "false", None: "unknown"}


class Step(msgspec.Struct, frozen=True):
    """A node of the filter: AND, OR, NOT, a predicate's text or a constant, with its verdict."""

    label: str
    verdict: bool | None
    fact: Fact | None = None
    children: tuple[Step, ...] = ()


class Explanation(msgspec.Struct, frozen=True):
    """The verdict on one event, the facts from which it follows, and the whole tree."""

    filter: str
    verdict: bool | None
    facts: tuple[Fact, ...]
    tree: Step

    @property
    def accepted(self) -> bool:
        return self.verdict is True

    @property
    def reason(self) -> str:
        """The shortest reason for the verdict, in words."""
        return " and ".join(dict.fromkeys(fact.text for fact in self.facts)) or f"the filter is {self.filter}"

    @property
    def headline(self) -> str:
        return f"{_MARKS[self.verdict]} {'accepted' if self.accepted else 'not accepted'}: {self.reason}"

    def text(self) -> str:
        """Return the tree in plain text, the event's values beside the constraints."""
        lines: list[tuple[str, str]] = []
        _lay_out(self.tree, "", "", lines)
        width = max(len(left) for left, _ in lines)
        rows = [f"{left:<{width}}  {right}".rstrip() for left, right in lines]
        return "\n".join([self.headline, *rows])

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation for a program, ready for JSON."""
        return {
            "accepted": self.accepted,
            "verdict": _NAMES[self.verdict],
            "reason": self.reason,
            "filter": self.filter,
            "tree": _to_dict(self.tree),
        }

    def __rich__(self) -> Tree:
        from rich.text import Text
        from rich.tree import Tree

        def line(step: Step) -> Text:
            shown = Text(f"{_MARKS[step.verdict]} {step.label}", style=_COLOURS[step.verdict])
            return shown if step.fact is None else shown.append(f"   {step.fact.text}", style="dim")

        def grow(branch: Tree, step: Step) -> None:
            for child in step.children:
                grow(branch.add(line(child)), child)

        root = Tree(Text(self.headline, style=f"bold {_COLOURS[self.verdict]}"))
        grow(root.add(line(self.tree)), self.tree)
        return root


def explain(filter_: Filter | str, event: Event | Mapping[str, object]) -> Explanation:
    """Return why a filter accepts an event or its attributes, or why not; FilterError if a text is refused.

    explain("price > 8 AND symbol = 'OTE'", {"price": 7, "symbol": "OTE"}).reason  # 'price 7 is below 8'
    """
    wanted = parse_filter(filter_) if isinstance(filter_, str) else filter_
    attributes: Attributes = event.attributes if isinstance(event, Event) else clean_attributes(event)
    tree = _walk(wanted.tree, wanted.text, attributes)
    return Explanation(wanted.text, tree.verdict, _because(tree, True, tree.verdict is True), tree)


def _walk(node: Node, text: str, attributes: Attributes) -> Step:
    match node:
        case Constant(value):
            return Step("TRUE" if value else "FALSE", value)
        case Not(child):
            inner = _walk(child, text, attributes)
            return Step("NOT", None if inner.verdict is None else not inner.verdict, children=(inner,))
        case And(children) | Or(children):
            steps = tuple(_walk(child, text, attributes) for child in children)
            verdicts = [step.verdict for step in steps]
            decisive = isinstance(node, Or)
            verdict = decisive if decisive in verdicts else None if None in verdicts else not decisive
            return Step("OR" if decisive else "AND", verdict, children=steps)
        case _:
            verdict, fact = judge(node, attributes)
            return Step(on_one_line(text[node.start : node.end]), verdict, fact)


def _because(step: Step, wanted: bool, holds: bool) -> tuple[Fact, ...]:
    """Return facts for a step being `wanted` or, without `holds`, not being it.

    They are as few as can be had part by part.
    """
    if step.label == "NOT" and step.children:
        return _because(step.children[0], not wanted, holds)
    if not step.children:
        return () if step.fact is None else (step.fact,)
    one_suffices = (step.label == ("OR" if holds else "AND")) is wanted
    speaking = [child for child in step.children if (child.verdict is wanted) is holds]
    found = [_because(child, wanted, holds) for child in speaking]
    return min(found, key=_cost) if one_suffices else tuple(fact for facts in found for fact in facts)


def _cost(facts: tuple[Fact, ...]) -> tuple[int, int]:
    return len(facts), sum(len(fact.text) for fact in facts)


def _lay_out(step: Step, before: str, below: str, lines: list[tuple[str, str]]) -> None:
    lines.append((f"{before}{_MARKS[step.verdict]} {step.label}", step.fact.text if step.fact else ""))
    for number, child in enumerate(step.children):
        last = number == len(step.children) - 1
        _lay_out(child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "), lines)


def _to_dict(step: Step) -> dict[str, Any]:
    shown: dict[str, Any] = {"label": step.label, "verdict": _NAMES[step.verdict]}
    if step.fact is not None:
        shown |= {"attribute": step.fact.attribute, "value": show(step.fact.value), "fact": step.fact.text}
    if step.children:
        shown["children"] = [_to_dict(child) for child in step.children]
    return shown
