"""The invariant sees what is wrong with a hypercube, and does not take right for wrong."""

from __future__ import annotations

import random

import pytest

from meetpoint.overlays.hypercube.invariant import broken, departures, gap, stands
from meetpoint.overlays.hypercube.regions import Region
from tests.overlays.hypercube.growing import Cube, Seen, grown, seen


def at(*texts: str, epoch: int = 1) -> tuple[tuple[Region, int], ...]:
    return tuple((Region.read(text), epoch) for text in texts)


def to(**hosts: str) -> tuple[tuple[Region, str], ...]:
    """Links by host: `to(b="01")`."""
    return tuple(sorted((Region.read(text), host) for host, text in hosts.items()))


FOUR = {
    "a": Seen(at("00"), links=to(b="01", c="10")),
    "b": Seen(at("01"), links=to(a="00", d="11")),
    "c": Seen(at("10"), links=to(a="00", d="11")),
    "d": Seen(at("11"), links=to(b="01", c="10")),
}
"""Figure 3 (a)."""
FULL = {**FOUR, "a": FOUR["a"]._replace(standbys=("e",)), "e": Seen(sponsor="a")}
"""A network with one node more than there are ids."""


def test_a_network_as_it_should_be_is_neither_broken_nor_departs() -> None:
    for views in (FOUR, FULL):
        assert broken(views, 2) is None
        assert departures(views, 2) is None
        assert stands(views)
    assert gap(FULL) == 0
    assert departures({"a": Seen(at(""))}, 8) is None


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"a": Seen(sponsor="b"), "b": Seen(sponsor="a"), "c": Seen(sponsor="a"), "d": Seen(sponsor="a")}, "nobody"),
        ({"a": FOUR["a"]._replace(sponsor="b")}, "stands by at"),
        ({"a": Seen(at("00", "100"))}, "too"),
        ({"a": Seen(at("00"), links=to(b="1", c="01"))}, "too"),
        ({"a": Seen(at("00"), links=to(b="01", d="00"))}, "too"),
        ({"a": Seen(at("000"))}, "longer than 2"),
        ({"a": Seen(at("00"), links=to(a="01"))}, "own neighbour"),
        ({"a": Seen(at("00"), standbys=("a",))}, "own neighbour"),
    ],
)
def test_what_must_never_be_is_seen(changes: dict[str, Seen], wrong: str) -> None:
    assert wrong in str(broken({**FOUR, **changes}, 2))


def test_what_is_settled_later_is_not_broken() -> None:
    """A region that is given is hosted by both until the one who gave it hears so; one whose host crashed by nobody."""
    given = {"a": Seen(at("0"), links=to(b="01", d="11")), "c": Seen(at("10", epoch=2), links=to(a="00"))}
    assert broken({**FOUR, **given}, 2) is None
    assert "too" in str(departures({**FOUR, **given}, 2))
    crashed = {name: view for name, view in FOUR.items() if name != "d"}
    assert broken(crashed, 2) is None
    assert "1 of 4 ids have no host" in str(departures(crashed, 2))


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"a": Seen(at("00", "11"), links=FOUR["a"].links), "d": Seen(sponsor="a")}, "hosts 00 11"),
        ({"a": FULL["a"]._replace(links=to(b="01"))}, "has links to"),
        ({"a": FULL["a"]._replace(links=to(b="01", d="10"))}, "has links to"),
        ({"a": FULL["a"]._replace(links=to(b="01", c="10", d="11"))}, "has links to"),
        ({"a": FOUR["a"]}, "does not know of it"),
        ({"a": FOUR["a"]._replace(standbys=("e", "f"))}, "does not stand by"),
        ({"b": FOUR["b"]._replace(standbys=("e",))}, "does not stand by"),
        ({"a": FOUR["a"], "e": Seen(sponsor="x")}, "which hosts nothing"),
        ({"a": FOUR["a"], "e": Seen()}, "has no place"),
        ({"e": Seen(sponsor="b")}, "does not stand by"),
    ],
)
def test_what_departs_is_seen(changes: dict[str, Seen], wrong: str) -> None:
    assert wrong in str(departures({**FULL, **changes}, 2))


def test_nobody_stands_by_where_there_is_something_to_share() -> None:
    assert "00 to share" in str(departures(FULL, 3))


def test_lengths_of_neighbours_are_compared() -> None:
    uneven = {
        "a": Seen(at("0"), links=to(b="001", c="011", d="101", e="111")),
        "b": Seen(at("001"), links=to(a="0", c="011", d="101")),
        "c": Seen(at("011"), links=to(a="0", b="001", e="111")),
        "d": Seen(at("101"), links=to(a="0", b="001", e="111")),
        "e": Seen(at("111"), links=to(a="0", c="011", d="101")),
    }
    assert "too uneven" in str(departures(uneven, 4))
    assert departures(uneven, 4, uneven_max=2) is None
    assert gap(uneven) == 2


def test_a_network_stands_while_it_hangs_together_and_hosts_something() -> None:
    assert not stands({})
    assert stands({name: FULL[name] for name in "abe"})
    assert not stands({name: FULL[name] for name in "ad"}), "neither has heard of the other"
    assert not stands({name: FULL[name] for name in "be"}), "only one that has gone knew who stood by there"
    assert not stands({"e": FULL["e"]})


@pytest.mark.parametrize("seed", range(20))
def test_no_member_may_be_missing(seed: int) -> None:
    """Take any one away: it is seen, also where it only stood by."""
    rng = random.Random(seed)
    cube: Cube = grown(rng.randint(2, 5), rng.randint(2, 40), rng)
    views = seen(cube.members)
    assert departures(views, cube.dimensions) is None
    assert broken(views, cube.dimensions) is None
    for name in views:
        assert departures({other: view for other, view in views.items() if other != name}, cube.dimensions) is not None
