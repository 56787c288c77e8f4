"""What an expression gives: its value, its type, and its values for the rows of some columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.table.functions import Row, results, session_of, typed_sql
from tests.table.row_forms import check_forms

from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.types import DataType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.functions.definition import STRING


def value(sql: str) -> Any:
    """The value of an expression of constants."""
    row, session = Row([], [], []), session_of()
    (found,) = results(typed_sql(sql, row, session), row, session)
    return found


def type_text(sql: str) -> str:
    """The type of an expression of constants."""
    (found,) = typed_sql(sql, Row([], [], []), session_of())
    return str(found.type)


def column(sql: str, types: Mapping[str, DataType] | None = None, **columns: list[Any]) -> list[Any]:
    """The values of an expression for rows, whose columns are of STRING unless `types` says otherwise."""
    kinds = [(types or {}).get(name, STRING) for name in columns]
    session = session_of()
    (found,) = typed_sql(sql, Row(list(columns), kinds, [None] * len(kinds)), session)
    arrays = [to_column(values, kind) for values, kind in zip(columns.values(), kinds, strict=True)]
    check_forms(None, [found], list(zip(*columns.values(), strict=True)), kinds, session)
    (array,) = Evaluator([found], session)(Columns(arrays, len(arrays[0])))
    return to_values(array, found.type)
