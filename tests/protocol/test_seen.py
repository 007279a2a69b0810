"""Numbers seen, against a plain set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meetpoint.protocol.seen import Seen


@given(st.lists(st.one_of(st.integers(1, 30), st.integers(-30, -1))))
def test_seen_is_a_set_of_numbers(steps: list[int]) -> None:
    seen, model = Seen(), set[int]()
    for step in steps:
        if step > 0:
            assert seen.add(step) == (step not in model)
            model.add(step)
        else:
            seen.raise_to(-step)
            model |= set(range(1, -step + 1))
        assert [number in seen for number in range(1, 35)] == [number in model for number in range(1, 35)]
        kept = seen.record()
        assert Seen(kept.floor, kept.above).record() == kept


def test_numbers_in_a_row_take_no_room() -> None:
    seen = Seen()
    for number in (3, 2, 5, 1, 4):
        seen.add(number)
    assert seen.record().floor == 5
    assert not seen.above
