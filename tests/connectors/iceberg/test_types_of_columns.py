"""As which types a column of an Iceberg table can be read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.connectors.iceberg.reading import is_readable

MS = pa.time32("ms")


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
