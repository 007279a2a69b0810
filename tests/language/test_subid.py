from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.language import SubId, SubIdLayout

widths = st.integers(1, 200)


@given(widths, widths, widths, st.data())
def test_unpack_undoes_pack_at_any_widths(home: int, number: int, attributes: int, data: st.DataObject) -> None:
    layout = SubIdLayout(home, number, attributes)
    sub_id = SubId(*(data.draw(st.integers(0, 2**width - 1)) for width in (home, number, attributes)))
    packed = layout.pack(sub_id)
    assert 0 <= packed < 2**layout.bits
    assert layout.unpack(packed) == sub_id
    assert int(layout.text(sub_id).replace(" ", ""), 2) == packed


def test_packed_order_is_the_order_of_the_fields() -> None:
    layout = SubIdLayout(2, 2, 2)
    ids = [layout.unpack(packed) for packed in range(2**6)]
    assert ids == sorted(ids)


@pytest.mark.parametrize("sub_id", [SubId(8, 0, 0), SubId(0, 8, 0), SubId(0, 0, 8), SubId(-1, 0, 0)])
def test_a_field_that_does_not_fit_is_refused(sub_id: SubId) -> None:
    layout = SubIdLayout(3, 3, 3)
    assert layout.pack(SubId(7, 7, 7)) == 2**9 - 1
    with pytest.raises(ValueError, match="does not fit 3 bits"):
        layout.pack(sub_id)


def test_a_number_too_wide_and_a_field_without_bits_are_refused() -> None:
    layout = SubIdLayout(3, 3, 3)
    assert layout.unpack(2**9 - 1) == SubId(7, 7, 7)
    for packed in (2**9, -1):
        with pytest.raises(ValueError, match="not a SubID of 9 bits"):
            layout.unpack(packed)
    with pytest.raises(ValueError, match="number_bits is 0"):
        SubIdLayout(3, 0, 3)
