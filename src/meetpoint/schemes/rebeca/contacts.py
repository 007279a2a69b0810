"""The members of the graph that this node knows by name, and which of them answer.

A contact is a member as others know it: its home, its place, where its keys begin, and which node hosts it. What a
member says of itself counts, and of two who claim the same keys the one that spoke last. What others say of it counts
only where that contradicts nobody who has spoken just now. Where a home is the directory knows best, once it has heard
of it. All of it may be old or wrong: it decides only where edges lead (`member`), which costs messages and never a
match.

A home that leaves a few questions in a row unanswered is *silent*: no edge leads to it until it is heard of again. It
is remembered a good while, and asked now and then: after a partition nobody else may tell that it is back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from meetpoint.api.ids import HomeId, Peer
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.schemes.rebeca.graph import Range

__all__ = ["MISSED_MAX", "Contact", "Contacts"]

MISSED_MAX: Final = 3
"""Questions in a row that a home may leave unanswered before it counts as silent."""
WORD_PERIODS: Final = 3
"""Periods for which what a member says of itself counts for more than what others say."""
KNOWN_PERIODS: Final = 10
"""Periods for which a contact is remembered of which nothing is heard, and that nobody here has use for."""
SILENT_PERIODS: Final = 600
"""Periods for which a silent one is remembered."""
ABSENT_PERIODS: Final = 3
"""Periods for which others are not believed who name a member that its home denies."""
CONTACTS_MAX: Final = 1_024


class Contact(NamedTuple):
    """A member, as others know it: the home that has it, its place, where its keys begin, and which node hosts it."""

    home: HomeId
    place: int
    begin: int
    host: Peer

    def keys(self, size: int) -> Range:
        """Return the keys that the member has."""
        return Range(self.begin, (self.place - self.begin) % size + 1)


class _KnownContact(NamedTuple):
    contact: Contact
    at: int
    word_until: int
    """Until when it counts for more than what others say."""


class Contacts:
    """All contacts of one node. Homes at this node need none."""

    def __init__(self, runtime: Runtime, home_manager: HomeManager, period_us: int) -> None:
        self._runtime = runtime
        self._home_manager = home_manager
        self._period_us = period_us
        self._entries: dict[int, _KnownContact] = {}  # by place, who was heard of last at the end
        self._absent: dict[int, int] = {}  # places, and until when others are not believed who name them
        self._missed: dict[HomeId, int] = {}
        self._hosts: dict[HomeId, Peer] = {}

    # -- what is heard -------------------------------------------------------------------------------------------------

    def heard(self, contact: Contact) -> bool:
        """Learn what a member says of itself; return whether it is news."""
        if self._is_here(contact.home):
            return False
        size = self._runtime.ring.size
        before = self._entries.pop(contact.place, None)
        is_news = before is None or before.contact != contact
        if is_news:
            keys = contact.keys(size)
            for place in [place for place in self._entries if keys.holds(place, size)]:
                del self._entries[place]
        self._absent.pop(contact.place, None)
        self._put(contact, self._runtime.now + WORD_PERIODS * self._period_us)
        return is_news

    def told(self, contacts: Iterable[Contact]) -> bool:
        """Learn what others say; return whether any of it is news that is believed."""
        is_news = False
        for contact in contacts:
            known = self._entries.get(contact.place)
            if self._is_credible(contact):
                self._entries.pop(contact.place, None)
                self._put(contact, 0)
                is_news = is_news or known is None
        return is_news

    def _is_here(self, home: HomeId) -> bool:
        return home in self._home_manager.homes

    def _is_credible(self, contact: Contact) -> bool:
        if self._is_here(contact.home) or self._absent.get(contact.place, 0) > self._runtime.now:
            return False
        size, now = self._runtime.ring.size, self._runtime.now
        claims = (each.contact.keys(size) for each in self._entries.values() if each.word_until > now)
        return not any(keys.holds(contact.place, size) for keys in claims)

    def _put(self, contact: Contact, word_until: int) -> None:
        self._entries[contact.place] = _KnownContact(contact, self._runtime.now, word_until)
        self._hosts[contact.home] = contact.host
        if len(self._entries) > CONTACTS_MAX:
            del self._entries[next(iter(self._entries))]

    def absent(self, place: int) -> None:
        """Note that the home that was to have a place says that it has no such member."""
        self._entries.pop(place, None)
        if len(self._absent) < CONTACTS_MAX:
            self._absent[place] = self._runtime.now + ABSENT_PERIODS * self._period_us

    # -- who answers ---------------------------------------------------------------------------------------------------

    def missed(self, home: HomeId) -> None:
        """Note that a home left a question unanswered, or has not answered it yet."""
        self._missed[home] = self._missed.get(home, 0) + 1

    def answered(self, home: HomeId) -> bool:
        """Note that a home was heard of; return whether that is news."""
        return self._missed.pop(home, 0) >= MISSED_MAX

    def is_suspected(self, home: HomeId) -> bool:
        """Return whether a home has left a question unanswered."""
        return home in self._missed and not self._is_here(home)

    def is_silent(self, home: HomeId) -> bool:
        """Return whether edges lead past a home."""
        return self._missed.get(home, 0) >= MISSED_MAX and not self._is_here(home)

    def may_serve(self, contact: Contact) -> bool:
        """Return whether an edge may lead to a member.

        It may where its home is somewhere else, has not denied it, and answers.
        """
        if self._is_here(contact.home) or self._absent.get(contact.place, 0) > self._runtime.now:
            return False
        return not self.is_silent(contact.home) and self.host(contact.home) is not None

    def host(self, home: HomeId) -> Peer | None:
        """Return the node that hosts a home: as the directory has it, which may not have heard of it yet."""
        entry = self._home_manager.directory.get(home)
        if entry is None:
            return self._hosts.get(home)
        return None if entry.gone else entry.host

    # -- what is known -------------------------------------------------------------------------------------------------

    def live(self) -> dict[int, Contact]:
        """Return all contacts to which edges may lead, by their places."""
        return {place: each.contact for place, each in self._entries.items() if self.may_serve(each.contact)}

    def silent(self) -> list[Contact]:
        """Return the contacts that do not answer, in the order of their places."""
        return [self._entries[place].contact for place in sorted(self._entries) if self._is_silent_at(place)]

    def _is_silent_at(self, place: int) -> bool:
        return self.is_silent(self._entries[place].contact.home)

    def forget(self, in_use: Mapping[int, HomeId]) -> None:
        """Forget contacts that nobody here has use for and of which nothing was heard; `in_use` are places, with their
        homes.
        """
        now, period_us = self._runtime.now, self._period_us
        self._absent = {place: until for place, until in self._absent.items() if until > now}
        for place, entry in list(self._entries.items()):
            periods = SILENT_PERIODS if self._is_silent_at(place) else KNOWN_PERIODS
            if place not in in_use and entry.at + periods * period_us <= now:
                del self._entries[place]
        homes = {*in_use.values(), *(entry.contact.home for entry in self._entries.values())}
        self._hosts = {home: host for home, host in self._hosts.items() if home in homes}
        for home in [home for home in self._missed if home not in homes or self.host(home) is None]:
            del self._missed[home]
