"""K4: a value that a column cannot hold fails; Arrow alone cuts 7.9 to 7 in a column of whole numbers."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.codecs.arrow_columns import exact_array

STRUCT = pa.struct([("n", pa.int32()), ("s", pa.string())])


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (7.9, pa.int32()),
        (Decimal("7.9"), pa.int64()),
        (np.float64(7.9), pa.int8()),
        (np.float32(0.5), pa.uint16()),
        (float("nan"), pa.int32()),
        (float("inf"), pa.int32()),
        (7.5, pa.date32()),
        (1.5, pa.timestamp("us")),
        (0.5, pa.time64("us")),
        (0.5, pa.duration("ms")),
        ([1, 7.9], pa.list_(pa.int32())),
        ({"n": 7.9}, STRUCT),
        ([("n", 7.9)], STRUCT),
        ([{"n": 1}, {"n": 7.9}], pa.list_(STRUCT)),
        ({"a": 7.9}, pa.map_(pa.string(), pa.int32())),
        ([(7.9, "a")], pa.map_(pa.int32(), pa.string())),
    ],
)
def test_value_with_a_fraction_fails_in_a_column_of_whole_numbers(value: Any, kind: pa.DataType) -> None:
    with pytest.raises((TypeError, ValueError)):
        exact_array([None, value], kind)


def test_error_shows_the_value() -> None:
    with pytest.raises(ValueError, match=r"^7\.9 is not a whole number$"):
        exact_array([1, 7.9], pa.int32())


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, 2**31 - 1], pa.int32()),
        ([7.0, Decimal(7), np.int64(7)], pa.int32()),
        ([0.5, None], pa.float32()),
        ([Decimal("1.50")], pa.decimal128(5, 2)),
        ([datetime.date(2020, 1, 1), 3], pa.date32()),
        ([[1, None], None, []], pa.list_(pa.int64())),
        ([{"n": 1, "s": "a"}, None, {}], STRUCT),
        ([{"a": 1}, [("b", None)], None], pa.map_(pa.string(), pa.int32())),
    ],
)
def test_values_that_fit_are_those_of_arrow(values: list[Any], kind: pa.DataType) -> None:
    assert exact_array(values, kind).equals(pa.array(values, kind))
