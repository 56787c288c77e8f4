"""Operators without state over columns, and the expressions that they compute."""

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Row
from penstock.runtime.columns import ColumnBatch, Expression, col, computed, lit
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.columnar.column_operators import MapBatchesOperator, SelectOperator, WhereOperator
from penstock.testing import OneInputOperatorHarness, Record

PRICES = pa.RecordBatch.from_pydict({"item": ["tea", "rye", None], "price": [3, 5, 4], "part": [2.0, None, 0.5]})


def batch(columns: pa.RecordBatch = PRICES, times: Any = (10, 20, 30)) -> ColumnBatch:
    return ColumnBatch(columns, None if times is None else np.array(times, np.int64))


def run(factory: Any, given: ColumnBatch) -> OneInputOperatorHarness:
    harness = OneInputOperatorHarness(factory, name="Prices")
    with harness:
        harness.operator.process_batch(given)
    return harness


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        (col("price") + 1, [4, 6, 5]),
        (1 + col("price"), [4, 6, 5]),
        (col("price") - 1, [2, 4, 3]),
        (10 - col("price"), [7, 5, 6]),
        (col("price") * col("part"), [6.0, None, 2.0]),
        (2 * col("price"), [6, 10, 8]),
        (col("price") / 2, [1, 2, 2]),
        (12 / col("price"), [4, 2, 3]),
        (col("price") % 3, [0, 2, 1]),
        (-col("price") % 3, [0, -2, -1]),
        (-col("price"), [-3, -5, -4]),
        ((-col("price")).abs, [3, 5, 4]),
        (col("price") > 3, [False, True, True]),
        (col("price") >= 4, [False, True, True]),
        (col("price") < 4, [True, False, False]),
        (col("price") <= 3, [True, False, False]),
        (col("item") == "tea", [True, False, None]),
        (col("item") != "tea", [False, True, None]),
        ((col("price") > 3) & (col("item") == "rye"), [False, True, None]),
        ((col("price") > 3) | (col("item") == "rye"), [False, True, True]),
        (~(col("price") > 3), [True, False, False]),
        (col("item").is_null, [False, False, True]),
        (col("item").is_not_null, [True, True, False]),
        (col("item").upper_case, ["TEA", "RYE", None]),
        (col("item").upper_case.lower_case, ["tea", "rye", None]),
        (col("price").in_(3, 4), [True, False, True]),
        (col("price").cast(pa.string()), ["3", "5", "4"]),
        (col("item").call("utf8_length"), [3, 3, None]),
        (lit(7), [7, 7, 7]),
    ],
    ids=lambda value: str(value) if isinstance(value, Expression) else "",
)
def test_expressions(expression: Expression, values: list[Any]) -> None:
    found = computed([expression.alias("it")], PRICES)
    assert found.schema.names == ["it"]
    assert found.column(0).to_pylist() == values


def test_an_expression_is_neither_true_nor_false() -> None:
    with pytest.raises(TypeError, match=r"use &, \| and ~"):
        bool(col("price") > 3)


def test_select_computes_columns_and_keeps_timestamps() -> None:
    harness = run(partial(SelectOperator, [col("item"), (col("price") * 2).alias("double")]), batch())
    assert harness.output[1] == Record(Row(item="rye", double=10), 20)


def test_select_names_the_column_that_is_not_there() -> None:
    with pytest.raises(UserCodeError) as raised:
        run(partial(SelectOperator, [col("colour")]), batch())
    assert raised.value.operator_name == "Prices"
    assert "no column 'colour'; there are item, price, part" in str(raised.value.__cause__)


def test_where_keeps_what_is_true() -> None:
    assert run(partial(WhereOperator, col("part") > 1), batch()).output == [
        Record(Row(item="tea", price=3, part=2.0), 10)
    ]


def test_where_leaves_records_what_they_are() -> None:
    """Tuples become columns to be judged, and stay tuples."""
    harness = OneInputOperatorHarness(partial(WhereOperator, col("f1") > 3))
    with harness:
        harness.process_batch([("tea", 3), ("rye", 5)], [1, 2])
        harness.process_batch([{"f1": 9}])
        assert harness.output == [Record(("rye", 5), 2), Record({"f1": 9}, None)]


def test_map_batches_hands_over_arrow() -> None:
    def total(columns: pa.RecordBatch) -> pa.RecordBatch:
        return columns.append_column("row", pa.array(range(columns.num_rows)))

    harness = run(partial(MapBatchesOperator, total, "arrow", None), batch())
    assert [(r.value.row, r.timestamp) for r in harness.output] == [(0, 10), (1, 20), (2, 30)]


def test_map_batches_hands_over_pandas_and_takes_any_frame() -> None:
    def dear(frame: Any) -> Any:
        return frame[frame.price > 3][["price"]].assign(at=[1, 2])

    harness = run(partial(MapBatchesOperator, dear, "pandas", "at"), batch())
    assert harness.output == [Record(Row(price=5, at=1), 1), Record(Row(price=4, at=2), 2)]


def test_map_batches_takes_tables_and_nothing_else() -> None:
    harness = run(partial(MapBatchesOperator, lambda b: pa.table({"n": [b.num_rows] * 3}), "arrow", None), batch())
    assert harness.values == [Row(n=3)] * 3
    with pytest.raises(UserCodeError) as raised:
        run(partial(MapBatchesOperator, lambda b: 7, "arrow", None), batch())
    assert "must return a pyarrow RecordBatch or Table" in str(raised.value.__cause__)


def test_map_batches_does_not_guess_timestamps() -> None:
    def first(columns: pa.RecordBatch) -> pa.RecordBatch:
        return columns.slice(0, 1)

    with pytest.raises(TypeError, match="map_batches turned 3 records into 1"):
        run(partial(MapBatchesOperator, first, "arrow", None), batch())
    assert run(partial(MapBatchesOperator, first, "arrow", None), batch(times=None)).output == [
        Record(Row(item="tea", price=3, part=2.0), None)
    ]


def test_map_batches_opens_and_closes_its_function() -> None:
    calls = []

    class Doubler:
        def open(self, runtime_context: Any) -> None:
            calls.append(runtime_context.get_index_of_this_subtask())

        def map_batch(self, columns: pa.RecordBatch) -> pa.RecordBatch:
            return columns

        def close(self) -> None:
            calls.append("closed")

    run(partial(MapBatchesOperator, Doubler(), "arrow", None), batch())
    assert calls == [0, "closed"]


def test_columns_are_rows_for_whoever_goes_record_by_record() -> None:
    given = batch()
    assert given.values[1] == Row(item="rye", price=5, part=None)
    assert given.timestamps == [10, 20, 30]
    assert given.slice(1, 3).values == given.values[1:]
    assert given.slice(1, 3).timestamps == [20, 30]
