"""Intermediate tables of grouped or windowed rows. `select` returns a table again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from penstock.sql.data.errors import ValidationError
from penstock.sql.expressions.builder import Operand
from penstock.sql.logical.nodes import Node
from penstock.sql.parser import syntax
from penstock.table.expression import Expression
from penstock.table.plans import Aggregated, Plans, expanded, flat_aggregated, selected_after
from penstock.table.window import GroupWindow, OverWindow


class Selectable(Protocol):
    """The part of a table that these classes use."""

    _plan: Node

    @property
    def _plans(self) -> Plans: ...

    def _derive_table(self, plan: Node) -> Self: ...

    def select(self, *fields: object) -> Self:
        """Select columns of the table."""


TableT = TypeVar("TableT", bound=Selectable)


class GroupedTable(Generic[TableT]):
    """A table with grouped rows. Created by `group_by`.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> orders = t_env.from_elements([("tea", 2), ("rum", 1), ("tea", 3)], ["drink", "cups"])
        >>> by_drink = orders.group_by(col("drink"))
        >>> sorted(by_drink.select(col("drink"), col("cups").sum.alias("total")).to_pandas()["total"])
        [1, 5]
    """

    def __init__(self, table: TableT, keys: Sequence[object]) -> None:
        self._table = table
        self._keys = expanded(keys, table._plan.schema.names)

    def select(self, *fields: object) -> TableT:
        """Select grouping keys and aggregates, one row per group."""
        table = self._table
        return table._derive_table(table._plans.grouped(table._plan, self._keys, fields))

    def aggregate(self, func: Any) -> AggregatedTable[TableT]:
        """Apply a user-defined aggregate function, one row per group. A ROW result is expanded to columns.

        `func`: a call such as `f(col("a")).alias("x", "y")`, or a function alone, which receives the whole row: a
        `Row`, or with `func_type="pandas"` a data frame of all rows.
        """
        return AggregatedTable(self._table, self._keys, func)

    def flat_aggregate(self, func: Any) -> FlatAggregateTable[TableT]:
        """Apply a user-defined table aggregate function, any number of rows per group. `func`: as in `aggregate`.

        When the rows of a group change, all emitted rows are retracted and the new ones are emitted.
        """
        return FlatAggregateTable(self._table, self._keys, func)


class PartitionedTable(Generic[TableT]):
    """A table as an argument of a process table function, with set semantics. Created by `partition_by`.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col
        >>> from penstock.table.udf import ArgumentTrait, ProcessTableFunction, ProcessTableFunctionArgument, udptf
        >>> class Shout(ProcessTableFunction):
        ...     def eval(self, order):
        ...         yield order.drink.upper()
        >>> order = ProcessTableFunctionArgument.table("order", [ArgumentTrait.SET_SEMANTIC_TABLE])
        >>> shout = udptf(Shout(), arguments=[order], result_type="STRING")
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> orders = t_env.from_elements([("tea", 2)], ["drink", "cups"])
        >>> list(orders.partition_by(col("cups")).process(shout).execute().collect())
        [<Row(2, 'TEA')>]
    """

    def __init__(self, table: TableT, keys: Sequence[object], order: Sequence[object] = ()) -> None:
        self._table = table
        self._keys = keys
        self._order = order

    def order_by(self, *fields: object) -> PartitionedTable[TableT]:
        """Pass the rows of each partition in this order. The first field is the event time, ascending."""
        return PartitionedTable(self._table, self._keys, fields)

    def as_argument(self, name: str) -> Expression:
        """Return the table as the argument of this name, for `TableEnvironment.from_call`."""
        return Expression(syntax.NamedArgument(name, self._argument()))

    def process(self, function: Any, *arguments: object) -> TableT:
        """Call a process table function with the table as its first table argument. See `Table.process`."""
        table = self._table
        return table._derive_table(table._plans.process(function, arguments, self._argument()))

    def _argument(self) -> syntax.TableArgument:
        return self._table._plans.table_argument(self._table._plan, self._keys, self._order)


class GroupWindowedTable(Generic[TableT]):
    """A table with windowed rows. Created by `window`.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col, lit
        >>> from penstock.table.window import Tumble
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> orders = t_env.sql_query("SELECT drink, PROCTIME() AS paid FROM (VALUES ('tea')) AS orders (drink)")
        >>> minutes = orders.window(Tumble.over(lit(1).minutes).on(col("paid")).alias("w"))
        >>> by_minute = minutes.group_by(col("w"))
        >>> by_minute.select(col("w").start.alias("since"), col("drink").count.alias("n")).print_schema()
        (
          `since` TIMESTAMP(3) NOT NULL,
          `n` BIGINT NOT NULL
        )
    """

    def __init__(self, table: TableT, window: GroupWindow) -> None:
        self._table = table
        self._window = window

    def group_by(self, *fields: object) -> WindowGroupedTable[TableT]:
        """Group by the window, by its name, and optionally by further keys.

        Raises:
            ValidationError: if the window is not among the fields.
        """
        keys = expanded(fields, self._table._plan.schema.names)
        group_keys = [key for key in keys if key._node != syntax.Reference((self._window.name,))]
        if len(group_keys) == len(keys):
            raise ValidationError(f'GroupBy must contain the window: add col("{self._window.name}") to its fields')
        return WindowGroupedTable(self._table, self._window, group_keys)


class WindowGroupedTable(Generic[TableT]):
    """A table with rows grouped by window. Created by `window` and `group_by`.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col, lit
        >>> from penstock.table.window import Tumble
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> orders = t_env.sql_query("SELECT drink, PROCTIME() AS paid FROM (VALUES ('tea')) AS orders (drink)")
        >>> minutes = orders.window(Tumble.over(lit(1).minutes).on(col("paid")).alias("w"))
        >>> grouped = minutes.group_by(col("w"), col("drink"))
        >>> grouped.select(col("drink"), col("w").end, lit(1).count.alias("orders")).print_schema()
        (
          `drink` CHAR(3) NOT NULL,
          `EXPR$0` TIMESTAMP(3) NOT NULL,
          `orders` BIGINT NOT NULL
        )
    """

    def __init__(self, table: TableT, window: GroupWindow, keys: Sequence[Operand]) -> None:
        self._table = table
        self._window = window
        self._keys = keys

    def select(self, *fields: object) -> TableT:
        """Select grouping keys, window properties such as `start`, and aggregates, one row per window and group."""
        table = self._table
        return table._derive_table(table._plans.window_grouped(table._plan, self._window, self._keys, fields))

    def aggregate(self, func: Any) -> AggregatedTable[TableT]:
        """Apply a user-defined aggregate function, one row per window and group. `func`: see `GroupedTable`."""
        return AggregatedTable(self._table, self._keys, func, self._window)


class OverWindowedTable(Generic[TableT]):
    """A table with over windows. Created by `over_window`.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import UNBOUNDED_ROW, col
        >>> from penstock.table.window import Over
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> orders = t_env.sql_query("SELECT cups, PROCTIME() AS paid FROM (VALUES (2), (3)) AS orders (cups)")
        >>> so_far = orders.over_window(Over.order_by(col("paid")).preceding(UNBOUNDED_ROW).alias("w"))
        >>> so_far.select(col("cups").sum.over(col("w")).alias("total")).to_pandas()["total"].tolist()
        [2, 5]
    """

    def __init__(self, table: TableT, windows: Sequence[OverWindow]) -> None:
        self._table = table
        self._windows = windows

    def select(self, *fields: object) -> TableT:
        """Select columns, and aggregates over the windows: `col("a").sum.over(col("w"))`."""
        table = self._table
        return table._derive_table(table._plans.select(table._plan, fields, self._windows))


class AggregatedTable(Generic[TableT]):
    """The results of a user-defined aggregate function. Created by `aggregate`."""

    def __init__(
        self, table: TableT, keys: Sequence[Operand], function: object, window: GroupWindow | None = None
    ) -> None:
        self._table = table
        self._aggregated = Aggregated(table._plans, table._plan, keys, function, window)

    def select(self, *fields: object) -> TableT:
        """Select grouping keys, results of the function, and window properties; no aggregates.

        Raises:
            ValidationError: if an aggregate is called in a field.
        """
        return self._table._derive_table(self._aggregated.select(fields))


class FlatAggregateTable(Generic[TableT]):
    """The rows that a user-defined table aggregate function returns for groups. Created by `flat_aggregate`."""

    def __init__(self, table: TableT, keys: Sequence[Operand], function: object) -> None:
        self._table = table
        self._plan = flat_aggregated(table._plans, table._plan, keys, function)

    def select(self, *fields: object) -> TableT:
        """Select grouping keys and results of the function; no aggregates.

        Raises:
            ValidationError: if an aggregate is called in a field.
        """
        return self._table._derive_table(selected_after(self._table._plans, self._plan, fields, "flat_aggregate"))
