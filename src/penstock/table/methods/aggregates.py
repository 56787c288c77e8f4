"""Aggregates, over windows, and properties of group windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Self

from penstock.table.data.errors import ValidationError
from penstock.table.methods.operand import Operand, Unary, to_node
from penstock.table.sql import syntax

#: placeholder calls for window properties, used until the window is known, and the columns that replace them
WINDOW_PARTS: Final = {
    "$START": "window_start",
    "$END": "window_end",
    "$ROWTIME": "window_time",
    "$PROCTIME": "window_time",
}


class Aggregates(Operand):
    """Aggregate methods."""

    count = Unary("COUNT", "The number of rows whose value is not NULL.")
    sum = Unary("SUM", "The sum, or NULL for zero values.")
    sum0 = Unary("SUM0", "The sum, or 0 for zero values.")
    avg = Unary("AVG", "The average.")
    min = Unary("MIN", "The minimum.")
    max = Unary("MAX", "The maximum.")
    first_value = Unary("FIRST_VALUE", "The first value that is not NULL.")
    last_value = Unary("LAST_VALUE", "The last value that is not NULL.")
    stddev_pop = Unary("STDDEV_POP", "The population standard deviation.")
    stddev_samp = Unary("STDDEV_SAMP", "The sample standard deviation.")
    var_pop = Unary("VAR_POP", "The population variance.")
    var_samp = Unary("VAR_SAMP", "The sample variance.")
    collect = Unary("COLLECT", "A multiset of all values.")
    array_agg = Unary("ARRAY_AGG", "An array of all values.")

    def list_agg(self, separator: object | None = None) -> Self:
        """Concatenate all strings with a separator, by default a comma."""
        return self._called("LISTAGG", separator)

    def percentile(self, percentage: object, frequency: object | None = None) -> Self:
        """Return the percentile at a percentage from 0 to 1. `frequency`: how often each value counts."""
        return self._called("PERCENTILE", percentage, frequency)

    @property
    def distinct(self) -> Self:
        """The aggregate over distinct values only: `col("a").sum.distinct`."""
        if not isinstance(self._node, syntax.Call):
            raise ValidationError(f"distinct belongs to an aggregate, such as {self}.count.distinct")
        return self._new(replace(self._node, is_distinct=True))

    def over(self, alias: object) -> Self:
        """Compute the aggregate over a window of `over_window`, given by its name."""
        name = to_node(alias)
        if not isinstance(name, syntax.Reference):
            raise ValidationError(f'over takes the name of a window, as col("w"), and not {alias}')
        return self._new(syntax.Over(self._node, name.path[-1]))

    # --- a window ----------------------------------------------------------------------------------------------------

    start = Unary("$START", "The start of the group window, inclusive.")
    end = Unary("$END", "The end of the group window, exclusive.")
    rowtime = Unary("$ROWTIME", "The event time of the window, its last millisecond, as a time attribute.")
    proctime = Unary("$PROCTIME", "The processing time of the window as a time attribute.")
