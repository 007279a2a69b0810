"""Covering: what need not be placed, since another conjunction of the same home is met by every event that it accepts.

A home checks every event that comes to it against all its subscriptions, so one placed conjunction brings the events of
all that it covers. Which are placed follows from the home's subscriptions alone: a conjunction is left out where
another one covers it that is strictly wider, or accepts the same and comes first: of equal ones the oldest, by the
number of its subscription; of those that only mean the same, by their text. Where the algebra is not certain (some LIKE
patterns) it also depends on the order in which they came; what is left out is covered by something placed in any case.

Equal conjunctions form a *class*. Classes form trees, each below one that covers it; the roots are placed. Only roots
are compared with, and of those only such as `extents` finds: where one conjunction covers another, its ranges enclose
the other's.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Protocol

from meetpoint.language.filters.algebra import covers
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.syntax.render import render
from meetpoint.placement.entries.extents import Extents, Range, encloses, ranges_of

__all__ = ["Coverage", "Covering"]


class Coverage(Protocol):
    """What a scheme knows of conjunctions that may cover each other."""

    def code(self, conjunction: Conjunction) -> str:
        """Some "0" and "1"; where one conjunction covers another, its code is a prefix of the other's."""


class _Class:
    """All conjunctions of a home that are equal."""

    __slots__ = ("alone", "attributes", "children", "members", "parent", "ranges", "text")

    def __init__(self, conjunction: Conjunction, ranges: tuple[Range, ...]) -> None:
        self.alone = Filter("", (conjunction,))
        self.attributes = conjunction.attributes
        self.ranges = ranges
        self.members: list[tuple[int, int, str]] = []
        """Number and name of the subscription, and in between which conjunction of it: sorted, the oldest first."""
        self.parent: _Class | None = None
        self.children: dict[_Class, None] = {}
        self.text = ""

    def comes_before(self, other: _Class) -> bool:
        """Which of two that mean the same is placed."""
        for each in (self, other):
            each.text = each.text or render(each.alone.conjunctions)
        return self.text < other.text

    def covers(self, other: _Class) -> bool:
        """Whether the other, of which the ranges lie within, need not be placed where this one is."""
        if not covers(self.alone, other.alone):
            return False
        alike = self.attributes == other.attributes and encloses(other.ranges, self.ranges)
        return not (alike and covers(other.alone, self.alone)) or self.comes_before(other)


class Covering:
    """The subscriptions of one home, and which of their conjunctions are placed."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._versions: dict[str, tuple[int, Filter]] = {}
        self._classes: dict[Conjunction, _Class] = {}
        self._roots: Extents[_Class] = Extents()
        self._placed: dict[str, dict[int, None]] = {}
        self._touched: dict[_Class, tuple[int, int, str] | None] = {}  # what was placed before the change, if anything

    def change(self, name: str, number: int, filter_: Filter | None) -> list[str]:
        """A subscription is new, changed or gone (None): the names of all of which something else is placed now."""
        before = self._versions.pop(name, None)
        if filter_ is not None:
            self._versions[name] = (number, filter_)
        old = {} if before is None else self._members(name, *before)
        new = {} if filter_ is None else self._members(name, number, filter_)
        self._touched = {}
        for member, conjunction in new.items():
            if old.get(member) != conjunction:
                self._join(member, conjunction)
        for member, conjunction in old.items():
            if new.get(member) != conjunction:
                self._part(member, conjunction)
        return self._note()

    def _members(self, name: str, number: int, filter_: Filter) -> dict[tuple[int, int, str], Conjunction]:
        return {(number, at, name): conjunction for at, conjunction in enumerate(filter_.conjunctions)}

    def _note(self) -> list[str]:
        """Write down what is placed now; whose that is, or was."""
        names: dict[str, None] = {}
        changes = [(was, self._shown(each)) for each, was in self._touched.items()]
        changes = [(was, now) for was, now in changes if was != now]
        for was, _ in changes:
            if was is not None:
                placed = self._placed[was[2]]
                del placed[was[1]]
                if not placed:
                    del self._placed[was[2]]
                names[was[2]] = None
        for _, now in changes:
            if now is not None:
                self._placed.setdefault(now[2], {})[now[1]] = None
                names[now[2]] = None
        return list(names)

    # -- what is asked -------------------------------------------------------------------------------------------------

    def version(self, name: str) -> tuple[int, Filter] | None:
        """The number and the filter of a subscription, as of its last change."""
        return self._versions.get(name)

    def placed(self, name: str) -> list[int]:
        """Which conjunctions of a subscription are placed."""
        return sorted(self._placed.get(name, ()))

    def coverers(self, name: str) -> list[str]:
        """The other subscriptions that have a conjunction in the place of one of this."""
        version = self._versions.get(name)
        conjunctions = () if version is None else version[1].conjunctions
        names = dict.fromkeys(self._root(self._classes[each]).members[0][2] for each in conjunctions)
        return [each for each in names if each != name]

    # -- classes -------------------------------------------------------------------------------------------------------

    def _touch(self, each: _Class) -> None:
        if each not in self._touched:
            self._touched[each] = self._shown(each)

    def _shown(self, each: _Class) -> tuple[int, int, str] | None:
        """Which of a class is placed."""
        return each.members[0] if each in self._roots and each.members else None

    def _join(self, member: tuple[int, int, str], conjunction: Conjunction) -> None:
        found = self._classes.get(conjunction)
        if found is not None:
            self._touch(found)
            insort(found.members, member)
            return
        ranges = ranges_of(conjunction, self._coverage.code(conjunction))
        made = self._classes[conjunction] = _Class(conjunction, ranges)
        self._touch(made)
        made.members.append(member)
        self._insert(made)

    def _part(self, member: tuple[int, int, str], conjunction: Conjunction) -> None:
        found = self._classes[conjunction]
        self._touch(found)
        del found.members[bisect_left(found.members, member)]
        if found.members:
            return
        del self._classes[conjunction]
        children = list(found.children)
        parent = found.parent
        if parent is not None:
            self._hang(found, None)
            for child in children:  # what covers it covers those that it covers
                self._hang(child, parent)
            return
        self._roots.remove(found)
        for child in children:
            self._hang(child, None)
            self._insert(child)

    def _insert(self, each: _Class) -> None:
        """A class with all below it gets its place: below a root, or as one, above those that it covers."""
        self._touch(each)
        for root in self._roots.enclosing(each.attributes, each.ranges):
            if root.covers(each):
                self._hang(each, root)
                return
        for root in list(self._roots.within(each.attributes, each.ranges)):
            if each.covers(root):
                self._touch(root)
                self._roots.remove(root)
                self._hang(root, each)
        self._roots.add(each, each.attributes, each.ranges)

    def _hang(self, each: _Class, parent: _Class | None) -> None:
        if each.parent is not None:
            del each.parent.children[each]
        each.parent = parent
        if parent is not None:
            parent.children[each] = None

    def _root(self, each: _Class) -> _Class:
        """The root above a class; the way there is shorter the next time."""
        root = each
        while root.parent is not None:
            root = root.parent
        while each.parent is not None and each.parent is not root:
            onward = each.parent
            self._hang(each, root)
            each = onward
        return root

    def check(self) -> None:
        """Assert what must hold at all times."""
        placed = {(each.members[0][2], each.members[0][1]) for each in self._classes.values() if each in self._roots}
        assert placed == {(name, at) for name, ats in self._placed.items() for at in ats}
        assert len(self._roots) == len(placed)
        assert all((each.parent is None) is (each in self._roots) for each in self._classes.values())
