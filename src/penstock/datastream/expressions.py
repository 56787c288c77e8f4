"""Expressions over columns, for `DataStream.select` and `filter` and for `WindowedStream.select`."""

from penstock.core.columns.expressions import Aggregate, Expression, col, lit

__all__ = ["Aggregate", "Expression", "col", "lit"]
