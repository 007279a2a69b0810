"""Joins, leaves and crashes: paper C, section 3.3, a claim a test."""

from __future__ import annotations

import random
from math import log2

import pytest

from meetpoint.overlays.hypercube.invariant import not_hosted_once
from meetpoint.overlays.hypercube.regions import WHOLE, Region
from meetpoint.overlays.hypercube.rules import STANDBYS_MAX
from tests.overlays.hypercube.growing import Cube, broken, grown, lopsided
from tests.overlays.hypercube.members import (
    Link,
    Member,
    admit,
    found,
    merge,
    pass_join,
    pass_leave,
    told,
)


def four(dimensions: int = 4) -> Cube:
    """The network of figure 3 (a): nodes 00, 01, 10 and 11."""
    cube = Cube(dimensions, "a")
    cube.join("b", WHOLE)
    cube.join("c", Region.read("0"))
    cube.join("d", Region.read("1"))
    return cube


def links(cube: Cube, node: str) -> list[str]:
    return [str(link) for link in cube.links(Region.read(node))]


def test_figure_3_step_by_step() -> None:
    cube = four()
    assert sorted(map(str, cube.members)) == ["00", "01", "10", "11"]
    before = cube.members[Region.read("01")]
    effort = cube.join("new", Region.read("01"))
    assert sorted(map(str, cube.members)) == ["00", "001", "10", "101", "11"]
    assert cube.members[Region.read("001")].host == before.host, "it updates its own id to 001"
    assert cube.members[Region.read("101")].host == "new", "and labels the new node 101"
    assert links(cube, "001") == ["00", "11", "101"]
    assert links(cube, "101") == ["00", "001", "11"]
    assert links(cube, "00") == ["001", "10", "101"], "its neighbour is told of both"
    assert links(cube, "11") == ["001", "10", "101"]
    assert links(cube, "10") == ["00", "11"], "not a neighbour: not touched"
    assert effort == (1, 4)


def test_a_join_is_passed_on_where_a_neighbours_id_is_shorter() -> None:
    cube = four()
    cube.join("new", Region.read("01"))
    longer = cube.members[Region.read("101")]
    assert pass_join(longer) == Region.read("00"), "both neighbours that are shorter will do: the first"
    assert pass_join(cube.members[Region.read("00")]) is None
    cube.join("next", Region.read("101"))
    assert sorted(map(str, cube.members)) == ["000", "001", "10", "100", "101", "11"]


def test_a_split_drops_a_neighbour_that_is_two_steps_away_now() -> None:
    member = Member(Region.read("001"), "a", (), (Link(Region.read("011"), "b"), Link(Region.read("1011"), "c")))
    split = admit(member, "new", 5)
    assert split is not None
    assert Region.read("1011") not in [link.region for link in split.member.links]
    assert split.joined is not None
    assert Region.read("1011") in [link.region for link in split.joined.links]


def test_a_leaving_nodes_sibling_takes_over() -> None:
    cube = four()
    cube.join("new", Region.read("01"))
    effort = cube.leave("new")
    assert sorted(map(str, cube.members)) == ["00", "01", "10", "11"]
    assert broken(cube.members, 4) is None
    assert effort.touched == 3


def test_where_the_sibling_has_split_a_pair_merges_and_one_of_it_moves() -> None:
    cube = four()
    cube.join("new", Region.read("01"))
    sibling_of_split = cube.members[Region.read("11")].host
    cube.leave(sibling_of_split)
    assert sorted(map(str, cube.members)) == ["00", "01", "10", "11"]
    assert cube.members[Region.read("11")].host == "new", "the upper of the pair moved"
    assert broken(cube.members, 4) is None


def test_a_leave_is_passed_on_where_a_neighbours_id_is_longer() -> None:
    cube = four()
    cube.join("new", Region.read("01"))
    assert pass_leave(cube.members[Region.read("00")]) == Region.read("101")
    assert pass_leave(cube.members[Region.read("001")]) is None
    cube.leave(cube.members[Region.read("00")].host)  # its sibling 10 could take over, and would be two bits shorter
    assert sorted(map(str, cube.members)) == ["00", "01", "10", "11"]


def test_merging_undoes_a_split() -> None:
    for member in four().members.values():
        split = admit(member, "new", 4)
        assert split is not None
        assert split.joined is not None
        again, change = merge(split.member, split.joined)
        assert again == member
        for link in member.links:
            other = four().members[link.region]
            assert told(told(other, split.change), change) == other


# -- at most 2^n nodes -------------------------------------------------------------------------------------------------


def test_a_network_has_at_most_2_to_the_n_hosts_and_further_nodes_stand_by() -> None:
    cube = grown(3, 8, random.Random(1))
    assert {region.length for region in cube.members} == {3}
    cube.join("late", Region.read("000"))
    assert len(cube.members) == 8
    assert cube.members[cube.place("late")].standbys == ("late",)
    assert broken(cube.members, 3) is None


def test_those_who_stand_by_are_spread_like_ids() -> None:
    cube = grown(3, 8 + 12, random.Random(2))
    standby_count = sorted(len(member.standbys) for member in cube.members.values())
    assert sum(standby_count) == 12
    assert standby_count[-1] - standby_count[0] <= 2
    assert broken(cube.members, 3) is None


def test_one_who_stands_by_takes_over_before_any_regions_merge() -> None:
    cube = grown(3, 9, random.Random(3))
    ready = cube.place("n8")
    cube.leave(cube.members[ready].host)
    assert cube.members[ready].host == "n8"
    assert len(cube.members) == 8


def test_one_who_stands_by_moves_to_a_neighbour_that_needs_a_host() -> None:
    cube = grown(3, 9, random.Random(4))
    ready = cube.place("n8")
    needy = cube.links(ready)[0]
    cube.crash(cube.members[needy].host)
    cube.repair()
    assert cube.members[needy].host == "n8"
    assert broken(cube.members, 3) is None


def test_a_join_is_refused_only_where_as_many_stand_by_as_may() -> None:
    cube = grown(1, 2 + 2 * STANDBYS_MAX, random.Random(5))
    assert cube.refused == 0
    assert [len(member.standbys) for member in cube.members.values()] == [STANDBYS_MAX, STANDBYS_MAX]
    cube.join("one more", Region.read("0"))
    assert cube.refused == 1
    assert broken(cube.members, 1) is None


# -- the invariant -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "wrong"),
    [
        ("", "16 of 16 ids have no host"),
        ("0 1", None),
        ("0 01 11", None),
        ("0 01 011", "2 of 16"),
        ("0 1 01", "hosted by 1 too"),
        ("0 0", "hosted by 0 too"),
        ("0 01 0011 1011", "2 of 16"),
        ("0 01 11 00011", "too"),
    ],
)
def test_the_invariant_sees_what_is_hosted_twice_or_not_at_all(nodes: str, wrong: str | None) -> None:
    said = not_hosted_once(map(Region.read, nodes.split()), 4)
    assert said is None if wrong is None else said is not None and wrong in said


def test_the_invariant_sees_wrong_links_names_and_lengths() -> None:
    cube = four()
    one, other = Region.read("00"), Region.read("01")
    good = cube.members[one]
    for bad in (
        good._replace(links=good.links[1:]),
        good._replace(links=(good.links[0]._replace(standby_count=1), good.links[1])),
        good._replace(host=cube.members[other].host),
        good._replace(standbys=("x", "x")),
    ):
        assert broken({**cube.members, one: bad}, 4) is not None
    assert broken(cube.members, 4) is None
    assert broken({WHOLE: found("a")}, 4) is None


def test_the_invariant_sees_uneven_lengths() -> None:
    cube = four()
    for at in ("00", "000"):
        split = admit(cube.members.pop(Region.read(at)), f"below {at}", 4)
        assert split is not None
        assert split.joined is not None
        cube.members |= {split.member.region: split.member, split.joined.region: split.joined}
        cube.members = {r: m if m in split else told(m, split.change) for r, m in cube.members.items()}
    said = broken(cube.members, 4)
    assert said is not None
    assert "uneven" in said
    assert broken(cube.members, 4, uneven_max=2) is None


@pytest.mark.parametrize("seed", range(10))
def test_links_are_right_however_uneven_lengths_are(seed: int) -> None:
    cube = lopsided(7, 30, random.Random(seed))
    assert broken(cube.members, 7, uneven_max=7) is None


@pytest.mark.parametrize("seed", range(20))
def test_each_id_has_one_host_also_where_nobody_is_told_of_anything(seed: int) -> None:
    rng = random.Random(seed)
    members = {WHOLE: found("n0")}
    for number in range(1, 200):
        member = members.pop(rng.choice(sorted(members)))
        sibling = members.get(member.region.sibling) if member.region.length else None
        if sibling is not None and rng.random() < 0.5:
            del members[sibling.region]
            merged, _ = merge(member, sibling)
            members[merged.region] = merged
        else:
            split = admit(member, f"n{number}", 6)
            assert split is not None
            for each in (split.member, split.joined):
                if each is not None:
                    members[each.region] = each
        assert not_hosted_once(members, 6) is None
        assert all(sum(region.hosts(point) for region in members) == 1 for point in range(64))


# -- how much a change touches -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [8, 32, 128, 512])
def test_a_join_touches_of_the_order_of_log_k_nodes(count: int) -> None:
    rng = random.Random(count)
    cube = grown(12, count, rng)
    efforts = [cube.join(f"late{at}", rng.choice(sorted(cube.members))) for at in range(count)]
    most = max(region.length for region in cube.members)
    assert max(effort.touched for effort in efforts) <= 2 * most + 2, "two neighbours a bit, and the two halves"
    assert sum(effort.touched for effort in efforts) / count <= 1.6 * log2(2 * count) + 1
    assert max(effort.asked for effort in efforts) <= most + 1


@pytest.mark.parametrize("count", [8, 32, 128])
def test_a_leave_touches_of_the_order_of_log_k_nodes(count: int) -> None:
    rng = random.Random(count)
    cube = grown(12, 2 * count, rng)
    efforts = [cube.leave(rng.choice(cube.names)) for _ in range(count)]
    most = max(region.length for region in cube.members) + 1
    assert max(effort.touched for effort in efforts) <= 3 * (2 * most + 1), "the pair's and the leaver's neighbours"
    assert sum(effort.touched for effort in efforts) / count <= 3 * (log2(2 * count) + 2)
