"""`Table`: a query that is built step by step. Nothing runs until a method executes it or returns its rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.errors import WrongTypeError
from penstock.plan.stream_graph import Plan
from penstock.sql.analyzer.queries import PlannedQuery
from penstock.sql.catalogs.columns import Column, ResolvedSchema, TableSchema
from penstock.sql.catalogs.manager import CatalogManager
from penstock.sql.data.errors import ValidationError
from penstock.sql.executor import ChangelogRow
from penstock.sql.logical.nodes import Node
from penstock.sql.parser import syntax
from penstock.sql.parser.statement_parser import StatementParser
from penstock.table.expression import Expression
from penstock.table.expressions import col
from penstock.table.frames import build_arrow_table, build_pandas_frame, build_polars_frame
from penstock.table.grouped_tables import (
    AggregatedTable,
    FlatAggregateTable,
    GroupedTable,
    GroupWindowedTable,
    OverWindowedTable,
    PartitionedTable,
    WindowGroupedTable,
)
from penstock.table.plans import Plans, flat_mapped, lateral, mapped
from penstock.table.window import GroupWindow, OverWindow

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa

__all__ = [
    "AggregatedTable",
    "FlatAggregateTable",
    "GroupWindowedTable",
    "GroupedTable",
    "OverWindowedTable",
    "PartitionedTable",
    "Table",
    "WindowGroupedTable",
]


class TableEnvironmentLike(Protocol):
    """The methods that a table needs from its environment."""

    _manager: CatalogManager

    def _collect(self, plan: Node) -> Any:
        """Start a job that returns the rows of a plan to the client, as a `TableResult`."""

    def _held_rows(self, plan: Node) -> AbstractContextManager[tuple[Iterator[ChangelogRow], tzinfo]]:
        """Run a query. Returns its rows as internal values, and the session's time zone."""

    def _frame(self, plan: Node) -> Any:
        """Return the rows of a plan as a Spark data frame."""

    def _write(self, plan: Node, path: tuple[str, ...], overwrite: bool) -> Any:
        """Return a `TablePipeline` that writes the rows of a plan to a table."""

    def _drawn(self, plans: Sequence[Node]) -> Plan:
        """Return the job graph of these plans."""

    def _explain(self, plans: Sequence[Node], details: Sequence[Any] = ()) -> str:
        """Return plans as text."""

    def _sink_path(self, descriptor: Any) -> tuple[str, ...]:
        """Return the path of the table that a descriptor describes."""

    def _inline_name(self, plan: Node) -> str:
        """Return a name that refers to a plan in SQL."""


class Table:
    """The columns and rows of a query. Each method returns a new table; the table itself never changes.

    Fields are expressions such as `col("a") + 1`, or names of columns. In an f-string with SQL, a table becomes a name
    that refers to it.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> orders = t_env.from_elements([("tea", 2), ("rum", 1), ("tea", 3)], ["drink", "cups"])
        >>> orders.filter(col("cups") > 1).execute().print()
        +----+--------------------------------+----------------------+
        | op |                          drink |                 cups |
        +----+--------------------------------+----------------------+
        | +I |                            tea |                    2 |
        | +I |                            tea |                    3 |
        +----+--------------------------------+----------------------+
        2 rows in set
    """

    def __init__(self, plan: Node, environment: TableEnvironmentLike, declared: ResolvedSchema | None = None) -> None:
        self._plan = plan
        self._environment = environment
        #: the schema of a table that is read as it was declared, which a query's schema is not
        self._declared = declared

    @property
    def _plans(self) -> Plans:
        return Plans(self._environment._manager)

    def _derive_table(self, plan: Node) -> Table:
        return Table(plan, self._environment)

    def _query(self) -> PlannedQuery:
        return PlannedQuery(self._plan)

    def __str__(self) -> str:
        return self._environment._inline_name(self._plan)

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_") or name not in self._plan.schema.names:
            columns = "" if name.startswith("_") else f": its columns are {', '.join(self._plan.schema.names)}"
            raise AttributeError(f"the table has no method and no column {name!r}{columns}")
        return col(name)

    # --- columns -----------------------------------------------------------------------------------------------------

    def select(self, *fields: object) -> Table:
        """Select these columns. Aggregates return one row.

        Args:
            fields: expressions, or names of columns.

        Raises:
            ValidationError: if a column does not exist, or an expression does not fit its operands.

        Examples:
            >>> list(orders.select(col("drink"), (col("cups") * 2).alias("doubled")).execute().collect())
            [<Row('tea', 4)>, <Row('rum', 2)>, <Row('tea', 6)>]
        """
        return self._derive_table(self._plans.select(self._plan, fields))

    def alias(self, field: str, *fields: str) -> Table:
        """Rename the columns, from the first one on. The rest keep their names."""
        return self._derive_table(self._plans.renamed(self._plan, (field, *fields)))

    def add_columns(self, *fields: object) -> Table:
        """Append columns. Raises `ValidationError` for a name that already exists.

        Examples:
            >>> list(orders.add_columns((col("cups") > 1).alias("many")).limit(1).execute().collect())
            [<Row('tea', 2, True)>]
        """
        return self._derive_table(self._plans.added(self._plan, fields, replaces=False))

    def add_or_replace_columns(self, *fields: object) -> Table:
        """Add columns. A column with an existing name replaces that column; others are appended."""
        return self._derive_table(self._plans.added(self._plan, fields, replaces=True))

    def rename_columns(self, *fields: object) -> Table:
        """Rename some columns: `col("a").alias("b")`."""
        return self._derive_table(self._plans.columns_renamed(self._plan, fields))

    def drop_columns(self, *fields: object) -> Table:
        """Drop these columns.

        Raises:
            ValidationError: if a column does not exist.

        Examples:
            >>> orders.drop_columns(col("cups")).get_resolved_schema().get_column_names()
            ['drink']
        """
        return self._derive_table(self._plans.dropped(self._plan, fields))

    def map(self, func: Any) -> Table:
        """Apply a scalar function to each row. A ROW becomes one column per field.

        `func`: a call such as `f(col("a"))`, or a function alone, which takes the whole row: a `Row`, or with
        `func_type="pandas"` a data frame.
        """
        return self._derive_table(mapped(self._plans, self._plan, func))

    def flat_map(self, func: Any) -> Table:
        """Apply a table function to each row, and return its rows without the input columns. `func`: as in `map`."""
        return self._derive_table(flat_mapped(self._plans, self._plan, func))

    # --- rows --------------------------------------------------------------------------------------------------------

    def filter(self, predicate: object) -> Table:
        """Keep the rows that satisfy a condition.

        Args:
            predicate: an expression of type BOOLEAN; rows for which it is NULL are dropped.

        Raises:
            ValidationError: if it is not a condition, or a column does not exist.

        Examples:
            >>> list(orders.filter(col("cups") > 1).execute().collect())
            [<Row('tea', 2)>, <Row('tea', 3)>]
        """
        return self._derive_table(self._plans.filtered(self._plan, predicate))

    def where(self, predicate: object) -> Table:
        """Keep the rows that satisfy a condition.

        Args:
            predicate: an expression of type BOOLEAN; rows for which it is NULL are dropped.

        Raises:
            ValidationError: if it is not a condition, or a column does not exist.

        Examples:
            >>> list(orders.where(col("drink") == "rum").execute().collect())
            [<Row('rum', 1)>]
        """
        return self.filter(predicate)

    def distinct(self) -> Table:
        """Remove duplicate rows.

        Examples:
            >>> list(orders.select(col("drink")).distinct().execute().collect())
            [<Row('tea')>, <Row('rum')>]
        """
        return self._derive_table(self._plans.distinct(self._plan))

    def order_by(self, *fields: object) -> Table:
        """Sort the rows, ascending unless a field has `desc`. NULL is the least value.

        Args:
            fields: expressions, or names of columns; the first one decides first. In a stream the first is a time
                attribute, ascending, unless `fetch` limits the number of rows.

        Examples:
            >>> orders.order_by(col("cups").desc).fetch(1).to_pandas()["cups"].tolist()
            [3]
        """
        return self._derive_table(self._plans.ordered(self._plan, fields))

    def offset(self, offset: int) -> Table:
        """Skip the first `offset` rows. Use it after `order_by`."""
        return self._derive_table(self._plans.offset(self._plan, offset))

    def fetch(self, fetch: int) -> Table:
        """Keep the first `fetch` rows. Use it after `order_by`, and after `offset` if there is one."""
        return self._derive_table(self._plans.fetch(self._plan, fetch))

    def limit(self, fetch: int, offset: int = 0) -> Table:
        """Keep `fetch` rows after skipping the first `offset`.

        Args:
            fetch: the number of rows to keep, from 0 on.
            offset: the number of rows to skip before them.

        Raises:
            ValidationError: if a number is negative.

        Examples:
            >>> len(list(orders.limit(2).execute().collect()))
            2
        """
        return (self.offset(offset) if offset else self).fetch(fetch)

    # --- groups and windows ------------------------------------------------------------------------------------------

    def group_by(self, *fields: object) -> GroupedTable[Table]:
        """Group the rows by these fields. `select` defines the output for each group.

        Examples:
            >>> totals = orders.group_by(col("drink")).select(col("drink"), col("cups").sum.alias("total"))
            >>> sorted(totals.to_pandas()["total"])
            [1, 5]
        """
        return GroupedTable(self, fields)

    def window(self, window: GroupWindow) -> GroupWindowedTable[Table]:
        """Assign the rows to windows. `group_by` then groups them by the window and other fields."""
        if not isinstance(window, GroupWindow):
            raise WrongTypeError(
                f"a window is one of Tumble, Slide and Session with on(…) and alias(…), not {window!r}"
            )
        return GroupWindowedTable(self, window)

    def over_window(self, *over_windows: OverWindow) -> OverWindowedTable[Table]:
        """Define windows around each row, for aggregates in `select`."""
        if not over_windows or not all(isinstance(window, OverWindow) for window in over_windows):
            raise WrongTypeError("over_window takes windows that Over makes, with alias(…)")
        names = [window.name for window in over_windows]
        if len(set(names)) < len(names):
            raise ValidationError(f"the names of over windows must differ: {', '.join(names)}")
        return OverWindowedTable(self, over_windows)

    def aggregate(self, func: Any) -> AggregatedTable[Table]:
        """Apply a user-defined aggregate function to all rows. Returns one row."""
        return self.group_by().aggregate(func)

    def flat_aggregate(self, func: Any) -> FlatAggregateTable[Table]:
        """Apply a user-defined table aggregate function to all rows. Returns any number of rows."""
        return self.group_by().flat_aggregate(func)

    # --- process table functions -------------------------------------------------------------------------------------

    def partition_by(self, *fields: object) -> PartitionedTable[Table]:
        """Partition the rows for a process table function. `process` or `as_argument` passes them to it.

        Args:
            fields: columns; rows with the same values in them are processed together.
        """
        return PartitionedTable(self, fields)

    def process(self, function: Any, *arguments: object) -> Table:
        """Call a process table function with this table as its first table argument (Flink: "Process Table Functions").

        Args:
            function: its registered name, its class, or what `udptf` made.
            arguments: the other arguments in order, or by name with `as_argument`; then `descriptor(…)` for `on_time`,
                and a text for `uid`. None leaves an argument out.

        Raises:
            ValidationError: if the function does not exist, or an argument does not fit.

        Examples:
            >>> from penstock.table.udf import ProcessTableFunction, ProcessTableFunctionArgument, udptf
            >>> class Repeat(ProcessTableFunction):
            ...     def eval(self, order):
            ...         yield from [order.drink] * order.cups
            >>> order = ProcessTableFunctionArgument.table("order")
            >>> repeat = udptf(Repeat(), arguments=[order], result_type="STRING")
            >>> len(list(orders.process(repeat).execute().collect()))
            6
        """
        return self._derive_table(self._plans.process(function, arguments, self._plans.table_argument(self._plan)))

    def as_argument(self, name: str) -> Expression:
        """Return the table as the argument of this name, for `TableEnvironment.from_call`."""
        return Expression(syntax.NamedArgument(name, self._plans.table_argument(self._plan)))

    # --- other tables ------------------------------------------------------------------------------------------------

    def join(self, right: Table, join_predicate: object | None = None) -> Table:
        """Join with the rows of another table that satisfy a condition, or with all rows without one.

        Raises:
            ValidationError: if both tables have a column of the same name.

        Examples:
            >>> prices = t_env.from_elements([("tea", 4)], ["name", "price"])
            >>> joined = orders.join(prices, col("drink") == col("name"))
            >>> sorted(joined.select((col("cups") * col("price")).alias("paid")).to_pandas()["paid"])
            [8, 12]
        """
        return self._joined(right, "INNER", join_predicate)

    def left_outer_join(self, right: Table, join_predicate: object | None = None) -> Table:
        """Like `join`, plus the unmatched rows of this table, with NULL for the other table's columns.

        Examples:
            >>> prices = t_env.from_elements([("tea", 4)], ["name", "price"])
            >>> joined = orders.left_outer_join(prices, col("drink") == col("name"))
            >>> joined.where(col("price").is_null).to_pandas()["drink"].tolist()
            ['rum']
        """
        return self._joined(right, "LEFT", join_predicate)

    def right_outer_join(self, right: Table, join_predicate: object) -> Table:
        """Like `join`, plus the unmatched rows of the other table, with NULL for this table's columns."""
        return self._joined(right, "RIGHT", join_predicate)

    def full_outer_join(self, right: Table, join_predicate: object) -> Table:
        """Like `join`, plus the unmatched rows of both tables, with NULL for the other table's columns."""
        return self._joined(right, "FULL", join_predicate)

    def _joined(self, right: Table, join_type: str, condition: object | None) -> Table:
        other = self._other(right, "joined")
        return self._derive_table(self._plans.joined(self._plan, other, join_type, condition))

    def _other(self, right: Table, action: str) -> Node:
        if not isinstance(right, Table):
            raise WrongTypeError(f"a table is {action} with another one, not with {right!r}")
        if right._environment is not self._environment:
            raise ValidationError(f"Only tables from the same TableEnvironment can be {action}.")
        return right._plan

    def join_lateral(self, table_function_call: Any, join_predicate: object | None = None) -> Table:
        """Join each row with the rows that a table function returns for it.

        Args:
            table_function_call: such as `split(col("words")).alias("word", "length")`.
            join_predicate: a condition over the columns of both; None for all rows.

        Raises:
            ValidationError: if it is not a call of a table function, or a column name already exists.
        """
        return self._derive_table(lateral(self._plans, self._plan, table_function_call, "INNER", join_predicate))

    def left_outer_join_lateral(self, table_function_call: Any, join_predicate: object | None = None) -> Table:
        """Like `join_lateral`, plus the rows without results of the function, with NULL for its columns."""
        return self._derive_table(lateral(self._plans, self._plan, table_function_call, "LEFT", join_predicate))

    def union(self, right: Table) -> Table:
        """Return the rows of both tables, without duplicates."""
        return self._combined(right, "UNION", False)

    def union_all(self, right: Table) -> Table:
        """Return the rows of both tables, with duplicates.

        Raises:
            ValidationError: if the columns of the tables do not match.

        Examples:
            >>> len(list(orders.union_all(orders).execute().collect()))
            6
        """
        return self._combined(right, "UNION", True)

    def intersect(self, right: Table) -> Table:
        """Return the rows that are in both tables, without duplicates."""
        return self._combined(right, "INTERSECT", False)

    def intersect_all(self, right: Table) -> Table:
        """Return the rows that are in both tables, each as often as in the table where it is rarer."""
        return self._combined(right, "INTERSECT", True)

    def minus(self, right: Table) -> Table:
        """Return the rows that are not in the other table, without duplicates."""
        return self._combined(right, "EXCEPT", False)

    def minus_all(self, right: Table) -> Table:
        """Return the rows of this table, with duplicates. Each row of the other table removes one equal row."""
        return self._combined(right, "EXCEPT", True)

    def _combined(self, right: Table, operator: str, is_all: bool) -> Table:
        return self._derive_table(self._plans.combined(self._plan, self._other(right, "combined"), operator, is_all))

    # --- running -----------------------------------------------------------------------------------------------------

    def execute(self) -> Any:
        """Start the query. The `TableResult` returns its rows to the client.

        Examples:
            >>> with orders.execute().collect() as rows:
            ...     print(next(rows))
            +I[tea, 2]
        """
        return self._environment._collect(self._plan)

    def insert_into(self, table_path_or_descriptor: Any, overwrite: bool = False) -> Any:
        """Return a `TablePipeline` that writes the rows to a table, given by its path or a `TableDescriptor`."""
        path = table_path_or_descriptor
        where = _parse_table_path(path) if isinstance(path, str) else self._environment._sink_path(path)
        return self._environment._write(self._plan, where, overwrite)

    def execute_insert(self, table_path_or_descriptor: Any, overwrite: bool = False) -> Any:
        """Start a job that writes the rows to a table. `overwrite`: whether they replace the existing rows.

        Args:
            table_path_or_descriptor: the target, by its path or as a `TableDescriptor`.
            overwrite: whether the rows replace the existing ones; only some connectors support it.

        Returns:
            The result, at once; its `wait()` waits for the end of the job.

        Raises:
            ValidationError: if the target does not exist, or its columns do not match.

        Examples:
            >>> _ = t_env.execute_sql("CREATE TABLE shown (drink STRING, cups BIGINT) WITH ('connector' = 'print')")
            >>> orders.execute_insert("shown").wait()
            +I[tea, 2]
            +I[rum, 1]
            +I[tea, 3]
        """
        return self.insert_into(table_path_or_descriptor, overwrite).execute()

    def to_pandas(self) -> pandas.DataFrame:
        """Run the query and wait for all its rows. Returns a pandas data frame without retracted rows.

        Integers are `int64` and the like, or pandas' nullable `Int64` if there is a NULL, so they stay exact. TIMESTAMP
        is `datetime64` with all its digits, and TIMESTAMP_LTZ has the session's time zone. A NULL of FLOAT or DOUBLE is
        NaN. BOOLEAN with a NULL, DECIMAL, DATE, TIME and ROW are objects.

        Raises:
            NotImplementedError: if pandas is not installed.

        Examples:
            >>> orders.to_pandas()["cups"].tolist()
            [2, 1, 3]
        """
        with self._environment._held_rows(self._plan) as (changes, zone):
            return build_pandas_frame(changes, self._plan.schema, zone)

    def to_arrow(self) -> pa.Table:
        """Run the query and wait for all its rows. Returns an Arrow table without retracted rows.

        TIMESTAMP keeps all its digits, and TIMESTAMP_LTZ has the session's time zone.
        """
        with self._environment._held_rows(self._plan) as (changes, zone):
            return build_arrow_table(changes, self._plan.schema, zone)

    def to_polars(self) -> Any:
        """Run the query and wait for all its rows. Returns a Polars data frame without retracted rows.

        Raises:
            NotImplementedError: if Polars is not installed.
        """
        return build_polars_frame(self.to_arrow())

    def to_dataframe(self) -> Any:
        """Return the query as a Spark data frame, which runs when Spark needs its rows. Batch only.

        TIMESTAMP becomes TIMESTAMP_NTZ, TIMESTAMP_LTZ becomes TIMESTAMP, ROW becomes STRUCT, and MULTISET a MAP of
        counts.

        Raises:
            ConfigurationError: in a stream.
            UnsupportedError: for queries that do not run in batch, and for columns of types that Spark does not have.
        """
        return self._environment._frame(self._plan)

    # --- what it is --------------------------------------------------------------------------------------------------

    def explain(self, *extra_details: Any) -> str:
        """Return the plan of the query as text.

        Examples:
            >>> print(orders.filter(col("cups") > 1).explain())
            == Abstract Syntax Tree ==
            Filter(where=(cups > 1))
              ArrowRows(3 rows, fields=[drink, cups])
            <BLANKLINE>
            == Streams ==
            Filter(where=(cups > 1), changelogMode=[I])
              ArrowRows(3 rows, fields=[drink, cups], changelogMode=[I])
        """
        return self._environment._explain([self._plan], extra_details)

    def print_explain(self, *extra_details: Any) -> None:
        """Print the plan of the query."""
        sys.stdout.write(f"{self.explain(*extra_details)}\n")

    def plan(self) -> Plan:
        """Return the job graph of the query: as text, JSON, Mermaid or SVG; notebooks display it. Streams only."""
        return self._environment._drawn([self._plan])

    def get_resolved_schema(self) -> ResolvedSchema:
        """Return the columns and their types.

        A table that is read as it was declared keeps its computed columns, watermark and primary key; a query and a
        view have none.
        """
        if self._declared is not None:
            return self._declared
        return ResolvedSchema(tuple(Column(column.name, column.type, time=column.time) for column in self._plan.schema))

    def get_schema(self) -> TableSchema:
        """Return the names of the columns and their types."""
        return TableSchema(self._plan.schema.names, self._plan.schema.types)

    def print_schema(self) -> None:
        """Print the columns and their types.

        Examples:
            >>> orders.print_schema()
            (
              `drink` STRING,
              `cups` BIGINT
            )
        """
        sys.stdout.write(f"{self.get_resolved_schema()}\n")

    def from_changelog(self, *arguments: object) -> Table:
        """Interpret each row as a change, with the code of its kind in a column (Flink: FROM_CHANGELOG).

        Args:
            arguments: in order, or by name with `as_argument`: `descriptor("op")` for the column, and as `op_mapping` a
                map of codes to INSERT, UPDATE_BEFORE, UPDATE_AFTER and DELETE. By default the codes are these names.
        """
        return self._derive_table(self._plans.changelog("FROM_CHANGELOG", self._plan, arguments))

    def to_changelog(self, *arguments: object) -> Table:
        """Return a row for each change, with a code for its kind (Flink: TO_CHANGELOG).

        Args:
            arguments: in order, or by name with `as_argument`: `descriptor("op")` for the column, and as `op_mapping` a
                map of INSERT, UPDATE_BEFORE, UPDATE_AFTER and DELETE to codes; changes without a code are dropped.
        """
        return self._derive_table(self._plans.changelog("TO_CHANGELOG", self._plan, arguments))


def _parse_table_path(text: str) -> tuple[str, ...]:
    parser = StatementParser(text)
    path = parser.path()
    parser.finish()
    return path
