"""Tables between two steps: rows in groups or windows, of which `select` makes a table again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from penstock.table.aggregate_plans import Aggregated, flat_aggregated, selected_after
from penstock.table.data.errors import ValidationError
from penstock.table.methods.operand import Operand
from penstock.table.plan.logical import Node
from penstock.table.selection import expanded
from penstock.table.sql import syntax
from penstock.table.table_plans import Plans
from penstock.table.window import GroupWindow, OverWindow


class Selectable(Protocol):
    """What these steps need of a table."""

    _plan: Node

    @property
    def _plans(self) -> Plans: ...

    def _with(self, plan: Node) -> Self: ...

    def select(self, *fields: object) -> Self:
        """The columns of a table."""


TableT = TypeVar("TableT", bound=Selectable)


class GroupedTable(Generic[TableT]):
    """A table whose rows are in groups. Made by `group_by`."""

    def __init__(self, table: TableT, keys: Sequence[object]) -> None:
        self._table = table
        self._keys = expanded(keys, table._plan.schema.names)

    def select(self, *fields: object) -> TableT:
        """A row for each group: what is grouped by, and aggregates."""
        table = self._table
        return table._with(table._plans.grouped(table._plan, self._keys, fields))

    def aggregate(self, func: Any) -> AggregatedTable[TableT]:
        """A row for each group, of an aggregate function of the program. A ROW is taken apart into columns.

        `func`: a call such as `f(col("a")).alias("x", "y")`, or a function alone, which gets the whole row: a `Row`, or
        with `func_type="pandas"` a data frame of all rows.
        """
        return AggregatedTable(self._table, self._keys, func)

    def flat_aggregate(self, func: Any) -> FlatAggregateTable[TableT]:
        """Any number of rows for each group, of a table aggregate function of the program. `func`: as in `aggregate`.

        When the rows of a group change, all that were sent are taken back, and the new ones are sent.
        """
        return FlatAggregateTable(self._table, self._keys, func)


class GroupWindowedTable(Generic[TableT]):
    """A table whose rows are in windows. Made by `window`."""

    def __init__(self, table: TableT, window: GroupWindow) -> None:
        self._table = table
        self._window = window

    def group_by(self, *fields: object) -> WindowGroupedTable[TableT]:
        """The groups in each window: the window itself, by its name, and what else is grouped by.

        Raises:
            ValidationError: if the window is not among the fields.
        """
        keys = expanded(fields, self._table._plan.schema.names)
        others = [key for key in keys if key._node != syntax.Reference((self._window.name,))]
        if len(others) == len(keys):
            raise ValidationError(f'GroupBy must contain the window: add col("{self._window.name}") to its fields')
        return WindowGroupedTable(self._table, self._window, others)


class WindowGroupedTable(Generic[TableT]):
    """A table whose rows are in groups in windows. Made by `window` and `group_by`."""

    def __init__(self, table: TableT, window: GroupWindow, keys: Sequence[Operand]) -> None:
        self._table = table
        self._window = window
        self._keys = keys

    def select(self, *fields: object) -> TableT:
        """A row for each group in each window: what is grouped by, parts of the window as `start`, and aggregates."""
        table = self._table
        return table._with(table._plans.window_grouped(table._plan, self._window, self._keys, fields))

    def aggregate(self, func: Any) -> AggregatedTable[TableT]:
        """A row for each group in each window, of an aggregate function of the program. `func`: see `GroupedTable`."""
        return AggregatedTable(self._table, self._keys, func, self._window)


class OverWindowedTable(Generic[TableT]):
    """A table with windows around each row. Made by `over_window`."""

    def __init__(self, table: TableT, windows: Sequence[OverWindow]) -> None:
        self._table = table
        self._windows = windows

    def select(self, *fields: object) -> TableT:
        """Columns, and aggregates over the windows: `col("a").sum.over(col("w"))`."""
        table = self._table
        return table._with(table._plans.select(table._plan, fields, self._windows))


class AggregatedTable(Generic[TableT]):
    """What an aggregate function of the program gives for groups. Made by `aggregate`."""

    def __init__(
        self, table: TableT, keys: Sequence[Operand], function: object, window: GroupWindow | None = None
    ) -> None:
        self._table = table
        self._aggregated = Aggregated(table._plans, table._plan, keys, function, window)

    def select(self, *fields: object) -> TableT:
        """Columns of what is grouped by and of what the function gives, and parts of the window; no aggregates.

        Raises:
            ValidationError: if an aggregate is called in a field.
        """
        return self._table._with(self._aggregated.select(fields))


class FlatAggregateTable(Generic[TableT]):
    """The rows that a table aggregate function of the program gives for groups. Made by `flat_aggregate`."""

    def __init__(self, table: TableT, keys: Sequence[Operand], function: object) -> None:
        self._table = table
        self._plan = flat_aggregated(table._plans, table._plan, keys, function)

    def select(self, *fields: object) -> TableT:
        """Columns of what is grouped by and of what the function gives; no aggregates.

        Raises:
            ValidationError: if an aggregate is called in a field.
        """
        return self._table._with(selected_after(self._table._plans, self._plan, fields, "flat_aggregate"))
