"""Numbers seen, against a plain set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meetpoint.node.home.sequence_set import SequenceRecord, SequenceSet

ADD = st.tuples(st.just("add"), st.integers(1, 30), st.just(0))
RAISE = st.tuples(st.just("raise"), st.integers(1, 30), st.just(0))
RANGE = st.tuples(st.just("range"), st.integers(1, 30), st.integers(1, 30))
ALL_BUT = st.tuples(st.just("all but"), st.integers(1, 30), st.integers(1, 30))
ABOVE = st.tuples(st.just("all but, above"), st.integers(1, 30), st.integers(1, 30))


@given(st.lists(st.one_of(ADD, RAISE, RANGE, ALL_BUT, ABOVE)))
def test_seen_is_a_set_of_numbers(steps: list[tuple[str, int, int]]) -> None:
    seen, model = SequenceSet(), set[int]()
    for how, a, b in steps:
        if how == "add":
            assert seen.add(a) == (a not in model)
            model.add(a)
        elif how == "raise":
            seen.raise_to(a)
            model |= set(range(1, a + 1))
        elif how == "range":
            seen.add_range(a, b)
            model |= set(range(a, b + 1))
        elif how == "all but":
            seen.add_all_but([b, 2 * b], a)
            model |= set(range(1, a)) - {b, 2 * b}
        else:
            seen.add_all_but([2 * b], a, b)
            model |= set(range(b + 1, a)) - {2 * b}
        assert [number in seen for number in range(1, 35)] == [number in model for number in range(1, 35)]
        assert seen.floor == next(number for number in range(35) if number + 1 not in model)
        assert list(seen.above()) == sorted(number for number in model if number > seen.floor)
        kept = seen.record()
        assert SequenceSet.of(kept).record() == kept


def test_numbers_in_a_row_take_no_room() -> None:
    seen = SequenceSet()
    for number in (3, 2, 5, 1, 4):
        seen.add(number)
    assert seen.record() == SequenceRecord(5)
    seen.add_range(1_000, 1_000_000)
    assert seen.record() == SequenceRecord(5, (), ((1_000, 1_000_000),))


def test_what_a_former_version_kept_is_read() -> None:
    assert list(SequenceSet.of(SequenceRecord(3, (5, 6, 9))).above()) == [5, 6, 9]
