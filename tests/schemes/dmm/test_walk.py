"""Walks through a tree that stands, and through one that changes all the time."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.schemes.dmm.rules import Verdict
from meetpoint.schemes.dmm.space import Code
from meetpoint.schemes.dmm.walk import ASKED_MAX, LeafCache, Walk
from tests.work import count_calls

DEPTH = 12


class Tree:
    """Leaves of a binary tree; regions above them are interior, those below absent."""

    def __init__(self, depth: int = DEPTH) -> None:
        self.depth = depth
        self.leaves: dict[Code, None] = {Code(""): None}
        self.busy: set[Code] = set()

    def split(self, leaf: Code) -> None:
        if len(leaf) < self.depth:
            del self.leaves[leaf]
            self.leaves[Code(leaf + "0")] = self.leaves[Code(leaf + "1")] = None

    def merge(self, leaf: Code) -> None:
        sibling = Code(leaf[:-1] + ("1" if leaf.endswith("0") else "0"))
        if leaf and sibling in self.leaves:
            del self.leaves[leaf], self.leaves[sibling]
            self.leaves[Code(leaf[:-1])] = None

    def split_to(self, code: Code) -> None:
        """Have a leaf at a code."""
        for length in range(len(code)):
            if code[:length] in self.leaves:
                self.split(Code(code[:length]))

    def ask(self, code: Code) -> Verdict:
        if code in self.leaves:
            return Verdict.BUSY if code in self.busy else Verdict.SERVED
        if any(leaf.startswith(code) for leaf in self.leaves):
            return Verdict.INTERIOR
        return Verdict.ABSENT

    def meeting(self, points: frozenset[str]) -> set[Code]:
        """The leaves that have one of some points, which are codes of full length."""
        return {leaf for leaf in self.leaves if any(point.startswith(leaf) for point in points)}


def grown(random: Random, splits: int, depth: int = DEPTH) -> Tree:
    tree = Tree(depth)
    for _ in range(splits):
        tree.split(random.choice(list(tree.leaves)))
    return tree


def code_of(random: Random, length: int) -> Code:
    return Code("".join(random.choice("01") for _ in range(length)))


def enclosing(points: frozenset[str]) -> Code:
    first, last = min(points), max(points)
    length = next((at for at in range(len(first)) if first[at] != last[at]), len(first))
    return Code(first[:length])


def walk_to(points: frozenset[str]) -> Walk:
    """A walk to a set of points: a box of any shape."""
    depth = len(min(points))

    def below(code: Code) -> Iterator[Code]:
        if len(code) < depth:
            for half in (Code(code + "0"), Code(code + "1")):
                if any(point.startswith(half) for point in points):
                    yield half

    goal = enclosing(points)
    return Walk(goal, below, len(goal) if len(points) > 1 else None)


def finish(walk: Walk, tree: Tree, limit: int = 10_000) -> list[Code]:
    """Answer at once; the regions that served."""
    served = []
    while not walk.is_done:
        codes = walk.ready()
        assert codes or walk.is_paused, "nothing is asked, and nothing waits"
        assert len(codes) <= ASKED_MAX
        assert len(set(codes)) == len(codes)
        for code in codes:
            verdict = tree.ask(code)
            walk.answered(code, verdict)
            if verdict is Verdict.SERVED:
                served.append(code)
        if not codes:
            walk.resume()
        limit -= 1
        assert limit, "it does not end"
    return served


@given(st.integers(0, 2**32), st.integers(0, 200))
def test_a_point_is_found_by_binary_search_on_the_length_of_its_code(seed: int, splits: int) -> None:
    random = Random(seed)
    tree = grown(random, splits)
    point = code_of(random, DEPTH)
    walk = walk_to(frozenset([point]))
    served = finish(walk, tree)
    assert set(served) == tree.meeting(frozenset([point]))
    assert walk.steps <= ceil(log2(DEPTH + 2))
    assert not walk.rounds


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 7, 8, 16, 63, 64])
def test_no_depth_of_a_leaf_takes_longer(depth: int) -> None:
    point = Code("01" * (depth // 2) + "0" * (depth % 2))
    for length in range(depth + 1):
        tree = Tree(depth)
        tree.split_to(Code(point[:length]))
        walk = Walk(point, lambda _: ())
        assert finish(walk, tree) == [point[:length]]
        assert walk.steps <= ceil(log2(depth + 2))


def test_a_leaf_that_is_remembered_takes_one_step_and_one_that_moved_two_or_three() -> None:
    point = Code("010101010101")
    for length, steps in ((6, 1), (7, 2), (5, 3)):
        tree = Tree()
        tree.split_to(Code(point[:length]))
        walk = Walk(point, lambda _: (), 6)
        assert finish(walk, tree) == [point[:length]]
        assert walk.steps <= steps


@given(st.integers(0, 2**32), st.integers(0, 60))
def test_a_wrong_memory_costs_little(seed: int, splits: int) -> None:
    random = Random(seed)
    tree = grown(random, splits)
    point = code_of(random, DEPTH)
    walk = Walk(point, lambda _: (), random.randrange(DEPTH + 1))
    assert set(finish(walk, tree)) == tree.meeting(frozenset([point]))
    assert walk.steps <= 2 + ceil(log2(DEPTH + 2))


@given(st.integers(0, 2**32), st.integers(0, 200), st.integers(1, 40))
def test_a_box_is_served_by_all_leaves_that_it_meets_each_asked_once(seed: int, splits: int, size: int) -> None:
    random = Random(seed)
    tree = grown(random, splits)
    points = frozenset(code_of(random, DEPTH) for _ in range(size))
    walk = walk_to(points)
    served = finish(walk, tree)
    assert len(served) == len(set(served))
    assert set(served) == tree.meeting(points)
    assert not walk.rounds


def test_a_box_asks_no_region_twice_and_none_that_it_does_not_meet() -> None:
    tree = Tree(4)
    for code in ("0011", "1100"):
        tree.split_to(Code(code))
    walk = walk_to(frozenset(["0011", "1100"]))
    asked: list[Code] = []
    while not walk.is_done:
        codes = walk.ready()
        asked += codes
        for code in codes:
            walk.answered(code, tree.ask(code))
    assert sorted(asked) == ["", "0", "00", "001", "0011", "1", "11", "110", "1100"]


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(0, 30))
def test_a_walk_through_a_changing_tree_ends_and_covers_all(seed: int, size: int, splits: int) -> None:
    """Leaves split and merge, are busy and answer late, as long as the walk goes on for some time, and what a leaf took
    moves with it: at the end all leaves that the box meets have it.
    """
    random = Random(seed)
    depth = 6
    tree = grown(random, splits, depth)
    points = frozenset(code_of(random, depth) for _ in range(size))
    covered: set[str] = set()  # points whose leaf has the entry
    walk = walk_to(points)
    on_the_way: list[Code] = []
    for step in range(3_000):
        if walk.is_done:
            break
        if step < 400 and random.random() < 0.4:
            leaf = random.choice(list(tree.leaves))
            random.choice((tree.split, tree.merge))(leaf)
            tree.busy = {leaf for leaf in tree.leaves if random.random() < 0.1} if step < 390 else set()
        on_the_way += walk.ready()
        if on_the_way and random.random() < 0.8:
            code = on_the_way.pop(random.randrange(len(on_the_way)))
            verdict = tree.ask(code)
            if verdict is Verdict.SERVED:
                covered |= {point for point in points if point.startswith(code)}
            walk.answered(code, verdict)
        elif walk.is_paused:
            walk.resume()
    assert walk.is_done
    assert covered == points


@given(st.integers(0, 2**32))
def test_what_is_busy_is_asked_again_only_after_a_pause(seed: int) -> None:
    random = Random(seed)
    tree = grown(random, 20)
    point = code_of(random, DEPTH)
    (leaf,) = tree.meeting(frozenset([point]))
    tree.busy = {leaf}
    walk = walk_to(frozenset([point]))
    for rounds in range(5):
        assert walk.rounds == rounds
        while codes := walk.ready():
            for code in codes:
                walk.answered(code, tree.ask(code))
        assert walk.is_paused
        assert not walk.ready()
        before = walk.steps
        walk.resume()
    tree.busy = set()
    assert finish(walk, tree) == [leaf]
    assert walk.steps == before + 1, "it is asked first"


def test_a_region_that_cannot_be_interior_is_asked_again_after_a_pause() -> None:
    walk = Walk(Code("01"), lambda _: (), 2)
    assert walk.ready() == ["01"]
    walk.answered(Code("01"), Verdict.INTERIOR)
    assert walk.is_paused
    assert not walk.is_done


def test_a_leaf_above_ends_all_parts_below_it_and_late_answers_do_nothing() -> None:
    walk = walk_to(frozenset(["00", "01", "10", "11"]))
    assert walk.ready() == [""]
    walk.answered(Code(""), Verdict.INTERIOR)
    assert walk.ready() == ["0", "1"]
    walk.answered(Code("0"), Verdict.ABSENT)
    assert walk.is_paused
    walk.resume()
    assert walk.ready() == ["0"], "what was absent may be there by now"
    walk.answered(Code("0"), Verdict.ABSENT)
    assert walk.ready() == [""]
    walk.answered(Code(""), Verdict.SERVED)
    assert walk.is_done
    walk.answered(Code("1"), Verdict.INTERIOR)
    assert walk.is_done


# -- what is remembered ------------------------------------------------------------------------------------------------


def test_the_cache_gives_the_deepest_leaf_above() -> None:
    cache = LeafCache()
    assert cache.find(Code("0101")) is None
    cache.learn(Code("01"), Verdict.SERVED)
    cache.learn(Code("00"), Verdict.SERVED)
    assert cache.find(Code("0101")) == "01"
    assert cache.find(Code("01")) == "01"
    assert cache.find(Code("0")) is None
    cache.learn(Code("010"), Verdict.SERVED)
    assert cache.find(Code("0101")) == "010"
    assert cache.find(Code("0111")) is None, "what is above a leaf is none"
    cache.learn(Code("010"), Verdict.INTERIOR)
    assert cache.find(Code("0101")) is None
    assert len(cache) == 1
    assert (cache.guess(Code("0011")), cache.guess(Code("1111"))) == (2, 2), "another leaf may be as deep"
    assert LeafCache().guess(Code("0011")) is None


def test_the_cache_forgets_what_was_not_used_for_longest() -> None:
    cache = LeafCache(3)
    for code in ("000", "001", "010"):
        cache.learn(Code(code), Verdict.SERVED)
    cache.find(Code("0000"))
    cache.learn(Code("011"), Verdict.SERVED)
    assert len(cache) == 3
    assert [cache.find(Code(code)) is None for code in ("000", "001", "010", "011")] == [False, True, False, False]


# -- what is wide ------------------------------------------------------------------------------------------------------


def test_a_walk_to_many_leaves_takes_calls_in_proportion() -> None:
    """Not with the square: each of 4,096 leaves takes about as many calls as each of 256."""

    def calls(depth: int) -> int:
        walk = Walk(Code(""), lambda code: (Code(code + "0"), Code(code + "1")), 0)
        leaves = 0

        def go() -> None:
            nonlocal leaves
            while not walk.is_done:
                for code in walk.ready():
                    leaf = len(code) == depth
                    leaves += leaf
                    walk.answered(code, Verdict.SERVED if leaf else Verdict.INTERIOR)

        made = count_calls(go)
        assert leaves == 2**depth
        return made

    assert calls(12) < 16 * calls(8) * 1.25


def test_gaps_are_where_an_interior_region_misses_a_half() -> None:
    walk = walk_to(frozenset(["00", "01", "10", "11"]))
    assert walk.ready() == [""]
    walk.answered(Code(""), Verdict.INTERIOR)
    assert walk.ready() == ["0", "1"]
    walk.answered(Code("0"), Verdict.ABSENT)
    walk.answered(Code("1"), Verdict.BUSY)
    assert walk.gaps() == [""]
    walk.resume()
    assert walk.gaps() == []
