"""Expressions over columns, for `DataStream.select` and `filter` and for `WindowedStream.select`."""

from penstock.core.columns.aggregates import Aggregate
from penstock.core.columns.expressions import Expression, col, lit

__all__ = ["Aggregate", "Expression", "col", "lit"]
