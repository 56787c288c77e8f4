"""Groups of which nothing is aggregated are those that grouping gives; pairs by one number are all pairs."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import given

from penstock.sql.data.types import BigIntType, IntType
from penstock.sql.logical.nodes import AggregateCall
from penstock.sql.stream.aggregates.kernels import ColumnAggregates, distinct_groups
from penstock.sql.stream.joins import window as joins
from penstock.sql.typed import Field

NUMBERS = st.one_of(st.none(), st.integers(0, 3), st.integers(0, 10**12))
TEXTS = st.one_of(st.none(), st.text("ab", max_size=2))
KINDS = [pa.int64(), pa.int64(), pa.string(), pa.int32()]


@given(
    st.lists(st.tuples(st.integers(0, 2), NUMBERS, TEXTS, st.integers(0, 99)), max_size=12),
    st.integers(1, 4),
    st.data(),
)
def test_groups_are_those_of_grouping(rows: list[Any], width: int, data: st.DataObject) -> None:
    """As also where a column has one value, where a number differs in all rows, and in chunks."""
    same = data.draw(st.sets(st.integers(0, width - 1)))
    columns = [
        pa.array([rows[0][place] if place in same else row[place] for row in rows], KINDS[place])
        for place in range(width)
    ]
    names = [f"k{place}" for place in range(width)]
    table = pa.Table.from_arrays(columns, names)
    cut = data.draw(st.integers(0, len(rows)))
    found = pa.Table.from_arrays(
        distinct_groups(pa.concat_tables([table.slice(0, cut), table.slice(cut)]), names), names
    )
    wanted = pa.TableGroupBy(table, names, use_threads=False).aggregate([])
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))
    assert found.schema.types == table.schema.types


def test_counts_of_distinct_values_are_merged_again() -> None:
    """Merged partials have their columns in the order in which others come."""
    call = AggregateCall("COUNT", (Field(IntType(), 0),), BigIntType(), is_distinct=True)
    aggregates = ColumnAggregates([call], False)

    def partials(values: list[int]) -> pa.Table:
        return aggregates.compute_partials(
            {"k": pa.array([1] * len(values))}, pa.record_batch({"c0": pa.array(values)})
        )

    merged = aggregates.merged([partials([1, 2]), partials([2, 3])], ["k"])
    again = aggregates.merged([merged, partials([3, 4])], ["k"])
    assert aggregates.settled(again, ["k"]).to_pylist() == [{"k": 1, "0.count": 4}]


KEYS = st.lists(st.one_of(st.none(), st.integers(0, 30)), min_size=1, max_size=20)


@given(KEYS, KEYS)
def test_pairs_of_one_number(keys: list[int | None], others: list[int | None]) -> None:
    left, right = pa.array(keys, pa.int64()), pa.array(others, pa.int64())
    found = joins._pairs_of_one(left, right)
    if None in keys or None in others or len(set(keys)) < len(keys):
        assert found is None
        return
    wanted = [(mine, other) for mine, key in enumerate(keys) for other, one in enumerate(others) if one == key]
    assert found is not None
    assert list(zip(*(one.tolist() for one in found), strict=True)) == wanted


def test_texts_are_paired_otherwise() -> None:
    assert joins._pairs_of_one(pa.array(["a"]), pa.array(["a"])) is None
