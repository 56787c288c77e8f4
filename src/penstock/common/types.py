"""Rows: the record type of tables, and of streams whose fields have names."""

from penstock.base.types import Row, RowKind
from penstock.base.types import _make_row as _make_row  # savepoints of release 0.1 name it here
from penstock.base.types import _make_row_of_kind as _make_row_of_kind

__all__ = ["Row", "RowKind"]
