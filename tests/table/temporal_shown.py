"""What expressions of points in time give, as text: for tests that read as a specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

from tests.table.functions import NOW_NS, Row, typed_sql

from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.types import LENGTH_MAX, DataType, VarCharType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.functions.definition import Session
from penstock.sql.typed import FunctionCall, Typed


def session(zone: str = "UTC") -> Session:
    """A session whose clock stands still, at 2023-11-14 22:13:20.123456789 UTC."""
    return Session(ZoneInfo(zone), lambda: NOW_NS)


def typed(sql: str, zone: str = "UTC", columns: dict[str, DataType] | None = None) -> Typed:
    """The one typed expression of a text."""
    names = columns or {}
    row = Row(list(names), list(names.values()), [None] * len(names))
    (found,) = typed_sql(sql, row, session(zone))
    return found


def shown(sql: str, zone: str = "UTC") -> tuple[str | None, str]:
    """The value as text and the type."""
    found = typed(sql, zone)
    text = FunctionCall(VarCharType(LENGTH_MAX), "CAST", (found,))
    (column,) = Evaluator([text], session(zone))(Columns([], 1))
    return column[0].as_py(), str(found.type)


def of_rows(sql: str, values: Sequence[Any], kind: DataType, zone: str = "UTC") -> list[Any]:
    """The values for rows of one column `x`."""
    found = typed(sql, zone, {"x": kind})
    (column,) = Evaluator([found], session(zone))(Columns([to_column(values, kind)], len(values)))
    return to_values(column, found.type)
