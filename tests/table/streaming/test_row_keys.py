"""Which rows have the same key: NaN is one, and so are 0.0 and -0.0."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from tests.table.running import Rows, run

from penstock.sql.data.types import DoubleType, IntType
from penstock.sql.stream.rows.rows import ONLY_KEY, RowKeys

NAN = float("nan")


def batch(*values: float | None) -> pa.RecordBatch:
    """One column of numbers."""
    return pa.RecordBatch.from_arrays([pa.array(values, pa.float64())], ["c0"])


def test_all_rows_without_columns_have_one_key() -> None:
    """And one number."""
    keys = RowKeys(())
    assert keys.of(batch(1.0, 2.0)) == [ONLY_KEY, ONLY_KEY]
    codes, found = keys.numbered(batch(1.0, 2.0))
    assert (codes.tolist(), found) == ([0, 0], [ONLY_KEY])


def test_numbers_that_are_alike_have_one_key_in_all_batches() -> None:
    """Python's NaN equals nothing, so a dictionary would have an entry for each."""
    keys = RowKeys([0])
    first, second = keys.of(batch(NAN, 0.0, None)), keys.of(batch(NAN, -0.0, None))
    assert first == second
    assert math.isnan(first[0])
    assert len({*first, *second}) == 3


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT COUNT(*) FROM t GROUP BY a", [(2,), (2,)]),
        ("SELECT 1 FROM (SELECT DISTINCT a FROM t)", [(1,), (1,)]),
        (
            "SELECT b FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) AS n FROM t) WHERE n = 1",
            [(1,), (3,)],
        ),
    ],
)
def test_groups_and_partitions_are_by_these_keys(sql: str, rows: list[tuple[int, ...]]) -> None:
    """Of a batch that has both zeros, too."""
    table = Rows({"a": DoubleType(), "b": IntType()}, [(NAN, 1), (float("nan"), 2), (0.0, 3), (-0.0, 4)])
    assert sorted(run(sql, t=table).rows()) == rows
