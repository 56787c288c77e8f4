"""Which types a column of an Iceberg table takes, and as which types it can be read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.connectors.iceberg.data_files import fits, is_readable

INT, LONG, FLOAT, DOUBLE, TEXT = pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()
MS = pa.time32("ms")


@pytest.mark.parametrize(
    ("kind", "other", "answer"),
    [
        (INT, LONG, True),
        (LONG, INT, False),
        (FLOAT, DOUBLE, True),
        (INT, DOUBLE, False),
        (TEXT, TEXT, True),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), True),
        (pa.decimal128(9, 2), pa.decimal128(5, 2), False),
        (pa.decimal128(5, 2), pa.decimal128(9, 3), False),
        (pa.list_(INT), pa.list_(LONG), True),
        (pa.list_(LONG), pa.list_(INT), False),
        (pa.map_(INT, FLOAT), pa.map_(LONG, DOUBLE), True),
        (pa.map_(TEXT, LONG), pa.map_(TEXT, INT), False),
        (pa.map_(LONG, TEXT), pa.map_(INT, TEXT), False),
        (pa.struct({"a": INT, "b": TEXT}), pa.struct({"a": LONG, "b": TEXT}), True),
        (pa.struct({"a": INT, "b": LONG}), pa.struct({"a": LONG, "b": INT}), False),
        (pa.struct({"a": INT}), pa.struct({"b": INT}), False),
        (pa.list_(INT), pa.struct({"a": INT}), False),
    ],
)
def test_a_type_fits_when_all_its_values_are_of_the_other_one(
    kind: pa.DataType, other: pa.DataType, answer: bool
) -> None:
    assert fits(kind, other) is answer


@pytest.mark.parametrize(
    ("kind", "wanted", "is_possible"),
    [
        (pa.time64("us"), MS, True),
        (pa.int64(), MS, False),
        (pa.string(), MS, False),
        (pa.timestamp("us"), MS, False),
        (pa.time64("us"), pa.timestamp("ms"), False),
        (pa.timestamp("us"), pa.timestamp("ms"), True),
        (pa.timestamp("us", "UTC"), pa.timestamp("ms"), False),
        (pa.list_(pa.time64("us")), pa.list_(MS), True),
        (pa.list_(pa.int64()), pa.list_(MS), False),
    ],
)
def test_times_are_read_as_times_alone(kind: pa.DataType, wanted: pa.DataType, is_possible: bool) -> None:
    """Of whatever precision. A point in time with a zone is not one without."""
    assert is_readable(kind, wanted) is is_possible
