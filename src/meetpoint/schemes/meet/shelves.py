"""What is placed at the homes here, by its key, and which of it an event matches.

A few conjunctions are tried one by one, those under the keys that the event has. Many are the matcher's business
(`matching.Index`), which files them under the same keys, and more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from meetpoint.language.filters import Filter
from meetpoint.language.normal import Conjunction
from meetpoint.matching.key_plan import LiveKeys
from meetpoint.matching.keys import MeetKey
from meetpoint.matching.matcher import Matcher
from meetpoint.protocol.hosting import Hosting
from meetpoint.protocol.records import HomeId
from meetpoint.protocol.services import Services
from meetpoint.rendezvous.conjunctions import conjunction_in
from meetpoint.rendezvous.custody import Keeping
from meetpoint.rendezvous.messages import Entry
from meetpoint.schemes.meet.filed import Filed, child_keys, read_filed
from meetpoint.schemes.meet.granting import Granting
from meetpoint.schemes.meet.settings import MeetSettings

__all__ = ["FEW_MAX", "Shelf", "Shelves"]

FEW_MAX = 2_000
"""Entries of a home that are tried one by one."""


class Shelf:
    """What is placed at one home."""

    def __init__(self, grant: Callable[[Callable[[], Iterable[MeetKey]]], Granting]) -> None:
        self._live = LiveKeys()
        self._filed: dict[MeetKey, dict[str, tuple[Filed, Conjunction]]] = {}
        self._marks: dict[MeetKey, dict[str, Filed]] = {}
        self._keys: dict[str, MeetKey] = {}
        self._counts: dict[tuple[MeetKey, tuple[int, ...]], int] = {}
        self._matcher: Matcher[str] | None = None
        self.granting = grant(lambda: self._live)

    def regrant(self, grant: Callable[[Callable[[], Iterable[MeetKey]]], Granting]) -> None:
        """Summaries begin anew."""
        self.granting.close()
        self.granting = grant(lambda: self._live)

    def add(self, name: str, filed: Filed) -> None:
        """One more conjunction, or a mark that its key is crowded."""
        key = filed.key
        self._keys[name] = key
        if not filed.text:
            self._marks.setdefault(key, {})[name] = filed
        else:
            conjunction = conjunction_in(filed.text, filed.at)
            assert conjunction is not None, "what is read is well formed"
            self._filed.setdefault(key, {})[name] = (filed, conjunction)
            self._counts[key, filed.path] = self.count(key, filed.path) + 1
            if self._matcher is not None:
                self._matcher.add(name, Filter(filed.text, (conjunction,)))
        if key not in self._live:
            self.granting.changed(key, added=True)
        self._live.add(key)

    def remove(self, name: str) -> None:
        """One less."""
        key = self._keys.pop(name, None)
        if key is None:
            return
        if self._marks.get(key, {}).pop(name, None) is None:
            filed, _ = self._filed[key].pop(name)
            self._counts[key, filed.path] -= 1
            if not self._counts[key, filed.path]:
                del self._counts[key, filed.path]
            if self._matcher is not None:
                self._matcher.remove(name)
        self._live.discard(key)
        if key not in self._live:
            self._filed.pop(key, None)
            self._marks.pop(key, None)
            self.granting.changed(key, added=False)

    def count(self, key: MeetKey, path: tuple[int, ...]) -> int:
        """How many conjunctions lie under a key, or a child of it."""
        return self._counts.get((key, path), 0)

    def match(self, attributes: Mapping[str, object]) -> tuple[dict[HomeId, tuple[int, ...]], list[Filed]]:
        """By home, the SubIDs of the conjunctions that an event satisfies; and the marks of its crowded keys."""
        if self._matcher is None and len(self._keys) > FEW_MAX:
            self._matcher = self._index()
        keys = sorted(self._live.keys_of_event(attributes))
        if self._matcher is None:
            names = [
                name
                for key in keys
                for name, (_, conjunction) in self._filed.get(key, {}).items()
                if conjunction.accepts(attributes)
            ]
        else:
            names = self._matcher.match(attributes)
        matched: dict[HomeId, set[int]] = {}
        for name in names:
            filed, _ = self._filed[self._keys[name]][name]
            matched.setdefault(_home_of(name), set()).add(filed.subid)
        marks = [mark for key in keys for mark in self._marks.get(key, {}).values()]
        return {home: tuple(sorted(matched[home])) for home in sorted(matched)}, marks

    def _index(self) -> Matcher[str]:
        from meetpoint.matching.index import Index  # most shelves hold few, and need no compiler

        return Index.from_filters(
            (name, Filter(filed.text, (conjunction,)))
            for at_key in self._filed.values()
            for name, (filed, conjunction) in at_key.items()
        )


def _home_of(name: str) -> HomeId:
    return HomeId(bytes.fromhex(name.partition("/")[0]))


class Shelves(Keeping):
    """All homes here."""

    def __init__(
        self, services: Services, hosting: Hosting, settings: MeetSettings, version: Callable[[HomeId], int]
    ) -> None:
        self._services = services
        self._hosting = hosting
        self._settings = settings
        self._version = version
        self.shelves: dict[HomeId, Shelf] = {}

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """A home holds arcs that it did not hold before: publishers may have summaries that nobody here knows of."""
        lease = self._settings.lease_us
        unknown_us = lease if owed_us is None else min(owed_us, lease)
        shelf = self.shelves.get(home)
        if shelf is not None:
            unknown_us = max(unknown_us, shelf.granting.owed_us)

        def grant(keys: Callable[[], Iterable[MeetKey]]) -> Granting:
            version = lambda: self._version(home)  # noqa: E731 - read beside the others
            return Granting(home, self._services, self._hosting, lease, keys, version, unknown_us=unknown_us)

        if shelf is None:
            self.shelves[home] = Shelf(grant)
        else:
            shelf.regrant(grant)

    def owed_us(self, home: HomeId) -> int:
        """How long publishers may still have a summary of a home here."""
        shelf = self.shelves.get(home)
        return self._settings.lease_us if shelf is None else shelf.granting.owed_us

    def ended(self, home: HomeId) -> None:
        """A home holds nothing here any more."""
        shelf = self.shelves.pop(home, None)
        if shelf is not None:
            shelf.granting.close()

    def added(self, home: HomeId, name: str, entry: Entry) -> None:
        """An entry lies at a home here."""
        filed = read_filed(entry.body)
        if filed is None:
            self._services.observe("entry_malformed")
        else:
            self.shelves[home].add(name, filed)

    def removed(self, home: HomeId, name: str) -> None:
        """An entry does no longer."""
        self.shelves[home].remove(name)

    def further(self, marks: Iterable[Filed]) -> tuple[bytes, ...]:
        """Where the children of crowded keys lie."""
        ring, children = self._services.ring, self._settings.children
        return tuple(place for mark in marks for place in child_keys(ring, mark.key, mark.path, children))
