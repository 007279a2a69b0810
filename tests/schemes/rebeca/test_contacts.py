"""Who is known: what a member says of itself, what others say, and who is silent."""

from __future__ import annotations

import pytest

from meetpoint.api.ids import Peer
from meetpoint.schemes.rebeca.contacts import (
    ABSENT_PERIODS,
    CONTACTS_MAX,
    KNOWN_PERIODS,
    MISSED_MAX,
    SILENT_PERIODS,
    WORD_PERIODS,
    Contact,
    Contacts,
)
from tests.node.world import RING
from tests.placement.small_world import home
from tests.schemes.rebeca.small_world import NUMBERS, QUICK, RebecaWorld


class Book:
    """Contacts of a node that knows all homes, and a clock."""

    def __init__(self) -> None:
        world = RebecaWorld()
        world.run(1)
        self.node = world.nodes[4]
        self.runtime = self.node._runtime
        self.contacts = Contacts(self.runtime, self.node.home_manager, QUICK.period_us)

    def wait(self, periods: int) -> None:
        self.runtime.begin(self.runtime.now + periods * QUICK.period_us)  # type: ignore[arg-type]

    def places(self) -> list[int]:
        return sorted(place // 1000 for place in self.contacts.live())


@pytest.fixture
def book() -> Book:
    return Book()


def contact(number: int, begin: int | None = None) -> Contact:
    """The member of a node, whose keys begin at a number; else at its place."""
    host = Peer(RING.node(1000 * number), f"n{number}", 1)
    return Contact(home(number), 1000 * number, 1000 * number if begin is None else begin, host)


def test_what_a_member_says_of_itself_counts_for_more_than_what_others_say(book: Book) -> None:
    assert book.contacts.heard(contact(20, 12_001))
    assert not book.contacts.told([contact(20, 5)]), "of the same"
    assert book.contacts.live()[20_000].begin == 12_001
    stranger = contact(20)._replace(place=15_000)
    assert not book.contacts.told([stranger]), "its place is one of the other's keys"
    assert book.places() == [20]
    book.wait(WORD_PERIODS)
    assert book.contacts.told([stranger]), "that was long ago"
    assert book.places() == [15, 20]


def test_of_two_who_claim_the_same_keys_whoever_spoke_last_counts(book: Book) -> None:
    book.contacts.told([contact(12)])
    book.contacts.heard(contact(20, 8_001))
    assert book.places() == [20]
    book.contacts.heard(contact(12, 8_001))
    assert book.places() == [12, 20]
    assert not book.contacts.heard(contact(12, 8_001)), "no news"
    assert book.contacts.heard(contact(20, 12_001))
    assert book.places() == [12, 20]


def test_a_home_that_leaves_some_questions_unanswered_is_silent_until_it_is_heard(book: Book) -> None:
    book.contacts.heard(contact(20))
    for _ in range(MISSED_MAX - 1):
        book.contacts.missed(home(20))
    assert book.contacts.is_suspected(home(20))
    assert book.places() == [20]
    book.contacts.missed(home(20))
    assert book.places() == []
    assert book.contacts.silent() == [contact(20)]
    assert book.contacts.answered(home(20))
    assert book.places() == [20]
    assert not book.contacts.answered(home(20)), "no news"


def test_nobody_here_is_a_contact_or_silent(book: Book) -> None:
    assert not book.contacts.heard(contact(4))
    assert not book.contacts.told([contact(4)])
    for _ in range(MISSED_MAX):
        book.contacts.missed(home(4))
    assert not book.contacts.is_silent(home(4))
    assert book.places() == []


def test_others_are_not_believed_who_name_what_its_home_has_denied(book: Book) -> None:
    book.contacts.heard(contact(20))
    book.contacts.absent(20_000)
    assert book.places() == []
    assert not book.contacts.told([contact(20)])
    book.wait(ABSENT_PERIODS)
    assert book.contacts.told([contact(20)])
    book.contacts.absent(20_000)
    assert book.contacts.heard(contact(20)), "it says so itself"
    assert book.places() == [20]


def test_the_directory_knows_best_where_a_home_is_and_a_contact_where_it_has_not_heard_of_it(book: Book) -> None:
    moved = Peer(RING.node(8000), "elsewhere", 9)
    book.contacts.heard(contact(20)._replace(host=moved))
    host = book.contacts.host(home(20))
    assert host is not None
    assert host.address == "n20"
    new = contact(50)._replace(host=moved)
    assert book.contacts.host(new.home) is None
    book.contacts.heard(new)
    assert book.contacts.host(new.home) == moved
    assert book.places() == [20, 50]


def test_whom_nobody_has_use_for_is_forgotten_and_one_that_is_silent_later(book: Book) -> None:
    for number in (8, 12, 20):
        book.contacts.heard(contact(number))
    for _ in range(MISSED_MAX):
        book.contacts.missed(home(20))
    book.wait(KNOWN_PERIODS - 1)
    book.contacts.forget({})
    assert book.places() == [8, 12]
    book.wait(1)
    book.contacts.forget({8000: home(8)})
    assert book.places() == [8]
    assert book.contacts.silent() == [contact(20)]
    book.wait(SILENT_PERIODS)
    book.contacts.forget({})
    assert book.contacts.silent() == []
    assert not book.contacts.is_suspected(home(20)), "should it be named again, it gets another chance"


def test_however_many_are_named_a_bounded_number_is_kept(book: Book) -> None:
    book.contacts.told([contact(20)._replace(place=place, begin=place) for place in range(2 * CONTACTS_MAX)])
    assert len(book.contacts.live()) == CONTACTS_MAX


def test_the_small_world_has_the_homes_that_are_named_here() -> None:
    assert {8, 12, 20} <= set(NUMBERS)
    assert 50 not in NUMBERS
