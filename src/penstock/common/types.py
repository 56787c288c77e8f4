"""Rows: the record type of tables, and of streams with named fields."""

from penstock.base.types import Row, RowKind
from penstock.base.types import _make_row as _make_row  # savepoints of release 0.1 refer to it here
from penstock.base.types import _make_row_of_kind as _make_row_of_kind

__all__ = ["Row", "RowKind"]
