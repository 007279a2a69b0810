"""DataFrames of pandas: what is missing there is NULL here."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from meetpoint.errors import MeetpointError
from meetpoint.language.events.arrow import attributes_from_pandas
from tests.language.strategies import exactly


def test_missing_values_of_pandas_are_null() -> None:
    frame = pd.DataFrame(
        {
            "float": [1.5, math.nan],
            "time": [pd.Timestamp("2026-01-02"), pd.NaT],
            "zoned": [pd.Timestamp("2026-01-02", tz="America/New_York"), pd.NaT],
            "text": ["a", None],
            "string": pd.array(["a", pd.NA], dtype="string"),
            "integer": pd.array([2**63 - 1, pd.NA], dtype="Int64"),
            "boolean": pd.array([True, pd.NA], dtype="boolean"),
            "category": pd.Categorical(["a", None]),
            "decimal": [Decimal("8.30"), Decimal("NaN")],
            "object": [{"x": math.nan, "y": np.int64(3), "z": np.float32(0.5), "w": np.bool_(True)}, math.nan],
            "long": [2**70, math.nan],
            "arrow": pd.array([1.5, math.nan], dtype=pd.ArrowDtype(pa.float64())),
        },
        index=["first", "second"],
    )
    assert exactly(attributes_from_pandas(frame)) == exactly(
        [
            {
                "float": 1.5,
                "time": datetime(2026, 1, 2, tzinfo=UTC),
                "zoned": datetime(2026, 1, 2, 5, tzinfo=UTC),
                "text": "a",
                "string": "a",
                "integer": 2**63 - 1,
                "boolean": True,
                "category": "a",
                "decimal": Decimal("8.30"),
                "object": {"x": None, "y": 3, "z": 0.5, "w": True},
                "long": 2**70,
                "arrow": 1.5,
            },
            dict.fromkeys(frame.columns),
        ]
    )


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (pd.DataFrame([[1, 2]]), "event: column 0 has no name of its own, a str; rename it"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "event: column 'a' has no name of its own"),
        (pd.DataFrame({"": [1]}), "event: attribute name '' is not a non-empty string"),
        (
            pd.DataFrame({"x": [1j]}),
            "event: column x is of dtype complex128; convert it to numbers, strings, booleans or",
        ),
        (pd.DataFrame({"x": pd.to_timedelta([1])}), "event: column x is of Arrow type duration[ns]; cast it to int64"),
        (pd.DataFrame({"x": [[1]]}), "row 1: event: attribute x is of class list"),
        (pd.DataFrame({"x": [1, {"y": b""}]}), "row 2: event: attribute x.y is of class bytes"),
        (pd.DataFrame({"x": [pd.Timestamp(1)]}), "row 1: event: attribute x has nanoseconds"),
        (pd.DataFrame({"x": ["a", pd.Timestamp(1)]}), "row 2: event: attribute x has nanoseconds"),
    ],
    ids=range(9),
)
def test_a_frame_that_holds_no_attributes_is_refused(frame: Any, words: str) -> None:
    with pytest.raises(MeetpointError) as caught:
        attributes_from_pandas(frame)
    assert str(caught.value).startswith(words)


def test_a_frame_without_columns_keeps_its_rows() -> None:
    assert attributes_from_pandas(pd.DataFrame(index=[1, 2])) == [{}, {}]
