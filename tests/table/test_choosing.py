"""CASE and comparisons give the same in NumPy, for many rows of plain numbers, as in Arrow."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from tests.table.functions import Row, session_of, typed_sql

from penstock.sql.data.types import DataType, DateType, DoubleType, IntType, TimestampType
from penstock.sql.expressions.columns import Columns, first_that_holds
from penstock.sql.expressions.evaluator import Evaluator

ROWS = 10_000
KINDS = {
    "INT": (IntType(), pa.int32()),
    "DATE": (DateType(), pa.date32()),
    "DOUBLE": (DoubleType(), pa.float64()),
    "TIMESTAMP(3)": (TimestampType(3), pa.timestamp("ms")),
}
#: how often a value is NULL, and a condition holds
SHARES = st.sampled_from([0.0, 0.01, 0.5, 0.99, 1.0])


def make_column(kind: pa.DataType, nulls: float, seed: int, skipped: int) -> pa.Array:
    """A column that begins amid Arrow's memory; some of its numbers are equal."""
    drawn = np.random.default_rng(seed)
    numbers = drawn.integers(-50, 50, ROWS + skipped)
    stored = pa.array(numbers.astype(np.float64 if pa.types.is_floating(kind) else np.int64))
    column = (stored if stored.type == kind else stored.cast(pa.int32() if kind.bit_width == 32 else pa.int64())).cast(
        kind
    )
    return pc.if_else(pa.array(drawn.random(ROWS + skipped) < nulls), pa.scalar(None, kind), column)[skipped:]


def by_rows(conditions: list[Any], values: list[Any], otherwise: Any) -> list[Any]:
    """What CASE means, in Python."""
    columns = [one.to_pylist() if isinstance(one, pa.Array) else [one.as_py()] * ROWS for one in (*values, otherwise)]
    answers = [one.to_pylist() for one in conditions]
    return [
        next((columns[at][row] for at, answer in enumerate(answers) if answer[row]), columns[-1][row])
        for row in range(ROWS)
    ]


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(sorted(KINDS)),
    st.lists(st.tuples(SHARES, SHARES, st.booleans()), min_size=1, max_size=5),
    SHARES,
    st.sampled_from([0, 3, 8]),
)
def test_the_first_condition_that_holds_decides(
    name: str, branches: list[tuple[float, float, bool]], nulls: float, skipped: int
) -> None:
    _, kind = KINDS[name]
    drawn = np.random.default_rng(len(branches))
    conditions = [
        pa.array(drawn.random(ROWS + skipped) < holds, mask=drawn.random(ROWS + skipped) < 0.1)[skipped:]
        for holds, _, _ in branches
    ]
    values = [make_column(kind, share, seed, skipped) for seed, (_, share, _) in enumerate(branches)]
    # Some are the same for all rows, or NULL for all of them.
    values = [one[0] if is_one else one for one, (_, _, is_one) in zip(values, branches, strict=True)]
    otherwise = make_column(kind, nulls, 99, skipped)
    found = first_that_holds(conditions, values, otherwise, ROWS)
    found.validate(full=True)
    assert (found.type, found.to_pylist()) == (kind, by_rows(conditions, values, otherwise))
    for one in (pa.scalar(None, kind), otherwise[0]):
        assert first_that_holds(conditions, values, one, ROWS).to_pylist() == by_rows(conditions, values, one)


@pytest.mark.parametrize("text", [["a", None, "b"], ["a", "b", "c"]])
def test_texts_are_chosen_from_by_arrow(text: list[str | None]) -> None:
    column, other = pa.array(text * 1_000), pa.array(["x", "y", None] * 1_000)
    conditions = [pa.array([place % size == 0 for place in range(3_000)]) for size in (2, 3, 5, 7, 11)]
    for count in (1, 5):
        found = first_that_holds(conditions[:count], [column] * count, other, 3_000)
        is_first = [any(one[row].as_py() for one in conditions[:count]) for row in range(3_000)]
        assert found.to_pylist() == [
            mine if one else theirs
            for one, mine, theirs in zip(is_first, column.to_pylist(), other.to_pylist(), strict=True)
        ]


@pytest.mark.parametrize("name", sorted(KINDS))
@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize("nulls", [0.0, 0.5])
def test_comparisons_of_many_rows(name: str, operator: str, nulls: float) -> None:
    """Among them those of floats that are no number, which equal nothing."""
    data_type, kind = KINDS[name]
    left, right = make_column(kind, nulls, 1, 3), make_column(kind, nulls, 2, 0)
    if name == "DOUBLE":
        left = pc.if_else(pc.equal(left, 7.0), float("nan"), left)
    constant = {"INT": "7", "DATE": "DATE '1970-01-08'", "DOUBLE": "7e0"}.get(
        name, "TIMESTAMP '1970-01-01 00:00:00.007'"
    )
    texts = [
        f"a {operator} b",
        f"a {operator} {constant}",
        f"{constant} {operator} a",
        f"a {operator} CAST(NULL AS {name})",
    ]
    expressions = [expression for text in texts for expression in typed(text, data_type)]
    evaluate = Evaluator(expressions, session_of())
    many = [one.to_pylist() for one in evaluate(Columns([left, right], ROWS))]
    few = [
        evaluate(Columns([left[begin : begin + 1_000], right[begin : begin + 1_000]], 1_000))
        for begin in range(0, ROWS, 1_000)
    ]
    assert many == [[one for part in few for one in part[place].to_pylist()] for place in range(len(texts))]


def typed(sql: str, data_type: DataType) -> Any:
    """A text as an expression over two columns of a type."""
    return typed_sql(sql, Row(["a", "b"], [data_type, data_type], [None, None]), session_of())
