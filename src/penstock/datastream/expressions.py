"""Column expressions for `DataStream.select`, `DataStream.filter` and `WindowedStream.select`."""

from penstock.runtime.columns import Aggregate, Expression, col, lit

__all__ = ["Aggregate", "Expression", "col", "lit"]
