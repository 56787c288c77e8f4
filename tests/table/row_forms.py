"""Both forms of expressions, compared: kernels, and the row program that small batches run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import pyarrow as pa

from penstock.codecs.column_data import ColumnData
from penstock.sql.data.arrow import arrow_type, to_column, to_values
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.row_data import RowData, RowLayout
from penstock.sql.data.types import DataType
from penstock.sql.expressions import row_program
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Condition, Evaluator, compile_expressions
from penstock.sql.expressions.row_program import RowProgram, build_row_program
from penstock.sql.functions.definition import Session
from penstock.sql.typed import Typed, conjuncts

Rows = list[tuple[Any, ...]]


def results_by_kernels(
    condition: Typed | None, expressions: Sequence[Typed], rows: Rows, types: Sequence[DataType], session: Session
) -> Rows | None:
    """What kernels give for rows, as tuples; None if they fail."""
    columns = Columns.of(arrow_batch(rows, types))
    conditions = [] if condition is None else conjuncts(condition)
    parts = compile_expressions([*conditions, *expressions], session)
    try:
        if conditions:
            columns = Condition(parts[: len(conditions)]).chosen(columns)
        if not columns.rows:
            return []
        arrays = Evaluator((), session, parts[len(conditions) :])(columns)
    except TableRuntimeError:
        return None
    for array, expression in zip(arrays, expressions, strict=True):
        assert array.type == arrow_type(expression.type), f"{expression} gives {array.type}, not {expression.type}"
    values = [to_values(array, one.type) for array, one in zip(arrays, expressions, strict=True)]
    return list(zip(*values, strict=True)) if values else [()] * columns.rows


def results_by_program(program: RowProgram, data: ColumnData) -> Rows | None:
    """What a row program gives for a batch, as tuples; None if it fails."""
    try:
        chosen = program.choose(data)
        return program.project(data, range(len(data)) if chosen is None else chosen)
    except TableRuntimeError:
        return None


def arrow_batch(rows: Rows, types: Sequence[DataType]) -> pa.RecordBatch:
    """Rows as columns named c0 and on."""
    arrays = [to_column([row[index] for row in rows], kind) for index, kind in enumerate(types)]
    arrays = arrays or [pa.nulls(len(rows))]  # rows of constants exist, too
    return pa.RecordBatch.from_arrays(arrays, [f"c{index}" for index in range(len(arrays))])


def check_forms(
    condition: Typed | None, expressions: Sequence[Typed], rows: Rows, types: Sequence[DataType], session: Session
) -> bool:
    """Compare the forms for a batch; return False if there is no row form.

    The texts of values are compared too, which tell 0.0 from -0.0, 1.5 from 1.50 and True from 1. What a program gives
    is also compared after it has become columns, as consumers of columns see it.
    """
    program = build_row_program(condition, expressions, session)
    if program is None:
        return False
    expected = results_by_kernels(condition, expressions, rows, types, session)
    names = [f"c{index}" for index in range(len(types))]
    sources = [ColumnData(arrow_batch(rows, types)), RowData(RowLayout(names, types), rows)]
    for data in sources:
        with mock.patch.multiple(row_program, ROWS_MAX=len(rows), TUPLES_MAX=len(rows)):
            assert program.takes(data)
        given = results_by_program(program, data)
        title = f"{condition}: {', '.join(map(str, expressions))} from {type(data).__name__}"
        assert repr(given) == repr(expected), f"{title}\nkernels: {expected}\nprogram: {given}"
        if given and expressions:
            output = [one.type for one in expressions]
            layout = RowLayout([f"c{index}" for index in range(len(output))], output)
            again = [to_values(one, kind) for one, kind in zip(RowData(layout, given).columns, output, strict=True)]
            assert repr(list(zip(*again, strict=True))) == repr(expected), title
    return True
