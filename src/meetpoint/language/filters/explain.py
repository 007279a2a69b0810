"""Why a filter accepts an event, or why not: the filter as a tree of verdicts, and the shortest sufficient reason.

TRUE is ✓, FALSE is ✗, NULL is ?. The reason is facts from which the verdict follows whatever else the event holds: of
a failing AND the part with the fewest, of a failing OR those of every part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from meetpoint.language.events.event import Event
from meetpoint.language.filters.facts import Fact, judge, show
from meetpoint.language.filters.filter import Filter, on_one_line, parse_filter
from meetpoint.language.syntax.tree import And, Constant, Node, Not, Or
from meetpoint.language.values import Attributes, clean_attributes

if TYPE_CHECKING:
    from rich.tree import Tree

__all__ = ["Explanation", "Step", "explain"]

_MARKS = {True: "✓", False: "✗", None: "?"}
_COLOURS = {True: "green", False: "red", None: "yellow"}
_NAMES = {True: "true", False: "false", None: "unknown"}


class Step(msgspec.Struct, frozen=True):
    """One node of the filter: AND, OR, NOT, a predicate's text or a constant, with its verdict."""

    label: str
    verdict: bool | None
    fact: Fact | None = None
    children: tuple[Step, ...] = ()


class Explanation(msgspec.Struct, frozen=True):
    """The verdict on one event, the facts it follows from, and the whole tree."""

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
        """The tree in plain text, the event's values beside the constraints."""
        lines: list[tuple[str, str]] = []
        _lay_out(self.tree, "", "", lines)
        width = max(len(left) for left, _ in lines)
        rows = [f"{left:<{width}}  {right}".rstrip() for left, right in lines]
        return "\n".join([self.headline, *rows])

    def to_dict(self) -> dict[str, Any]:
        """The same for a program, ready for JSON."""
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
    """Why a filter accepts an event or its attributes, or why not."""
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
    """Facts, as few as can be had part by part, for a step being `wanted` (or, without `holds`, not being it)."""
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
