"""`Table`: a query, made step by step. Nothing runs before a method that executes it or gives its rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.errors import WrongTypeError
from penstock.plan.description import Plan
from penstock.table.analyser.planned import PlannedQuery
from penstock.table.catalog.columns import Column, ResolvedSchema
from penstock.table.catalog.manager import CatalogManager
from penstock.table.catalog.table_schema import TableSchema
from penstock.table.data.errors import ValidationError
from penstock.table.expression import Expression
from penstock.table.expressions import col
from penstock.table.frames import arrow_of, frame_of, polars_of
from penstock.table.function_plans import flat_mapped, lateral, mapped
from penstock.table.grouped_tables import (
    AggregatedTable,
    FlatAggregateTable,
    GroupedTable,
    GroupWindowedTable,
    OverWindowedTable,
    WindowGroupedTable,
)
from penstock.table.plan.executor import ChangelogRow
from penstock.table.plan.logical import Node
from penstock.table.sql.statement_parser import StatementParser
from penstock.table.table_plans import Plans
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
    "Table",
    "WindowGroupedTable",
]


class TableEnvironmentLike(Protocol):
    """What a table asks of the environment that it belongs to."""

    _manager: CatalogManager

    def _collect(self, plan: Node) -> Any:
        """Start a job that gives the rows of a plan to the program; a `TableResult`."""

    def _held_rows(self, plan: Node) -> AbstractContextManager[tuple[Iterator[ChangelogRow], tzinfo]]:
        """Run a query: its rows as tables hold them, and the session's time zone."""

    def _frame(self, plan: Node) -> Any:
        """The rows of a plan as a Spark data frame."""

    def _write(self, plan: Node, path: tuple[str, ...], overwrite: bool) -> Any:
        """What writes the rows of a plan into a table; a `TablePipeline`."""

    def _drawn(self, plans: Sequence[Node]) -> Plan:
        """The job of plans, to look at."""

    def _explain(self, plans: Sequence[Node], details: Sequence[Any] = ()) -> str:
        """Plans as text."""

    def _sink_path(self, descriptor: Any) -> tuple[str, ...]:
        """The path of a table that a descriptor describes."""

    def _inline_name(self, plan: Node) -> str:
        """A name by which SQL knows a plan."""


class Table:
    """Columns and rows that a query gives. Each method gives a new table; the table itself never changes.

    Fields are expressions such as `col("a") + 1`, or names of columns. In an f-string with SQL a table stands for a
    name that SQL knows it by.
    """

    def __init__(self, plan: Node, environment: TableEnvironmentLike) -> None:
        self._plan = plan
        self._environment = environment

    @property
    def _plans(self) -> Plans:
        return Plans(self._environment._manager)

    def _with(self, plan: Node) -> Table:
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
        """These columns alone; with aggregates, one row."""
        return self._with(self._plans.select(self._plan, fields))

    def alias(self, field: str, *fields: str) -> Table:
        """The same columns under these names, from the first one on; the rest keep theirs."""
        return self._with(self._plans.renamed(self._plan, (field, *fields)))

    def add_columns(self, *fields: object) -> Table:
        """All columns, and these after them. Raises `ValidationError` for a name that is there already."""
        return self._with(self._plans.added(self._plan, fields, replaces=False))

    def add_or_replace_columns(self, *fields: object) -> Table:
        """All columns, and these: in place of those of the same name, or after all."""
        return self._with(self._plans.added(self._plan, fields, replaces=True))

    def rename_columns(self, *fields: object) -> Table:
        """The same columns, some under other names: `col("a").alias("b")`."""
        return self._with(self._plans.columns_renamed(self._plan, fields))

    def drop_columns(self, *fields: object) -> Table:
        """All columns but these."""
        return self._with(self._plans.dropped(self._plan, fields))

    def map(self, func: Any) -> Table:
        """What a scalar function gives for each row; a ROW is taken apart into columns.

        `func`: a call such as `f(col("a"))`, or a function alone, which gets the whole row: a `Row`, or with
        `func_type="pandas"` a data frame.
        """
        return self._with(mapped(self._plans, self._plan, func))

    def flat_map(self, func: Any) -> Table:
        """The rows that a table function gives for each row, and none of its columns. `func`: as in `map`."""
        return self._with(flat_mapped(self._plans, self._plan, func))

    # --- rows --------------------------------------------------------------------------------------------------------

    def filter(self, predicate: object) -> Table:
        """The rows for which a condition is true."""
        return self._with(self._plans.filtered(self._plan, predicate))

    def where(self, predicate: object) -> Table:
        """The rows for which a condition is true."""
        return self.filter(predicate)

    def distinct(self) -> Table:
        """Each row once."""
        return self._with(self._plans.distinct(self._plan))

    def order_by(self, *fields: object) -> Table:
        """Rows in order, ascending unless a field has `desc`. NULL is the least value."""
        return self._with(self._plans.ordered(self._plan, fields))

    def offset(self, offset: int) -> Table:
        """All rows but the first `offset`; after `order_by`."""
        return self._with(self._plans.offset(self._plan, offset))

    def fetch(self, fetch: int) -> Table:
        """The first `fetch` rows; after `order_by`, and after `offset` if there is one."""
        return self._with(self._plans.fetch(self._plan, fetch))

    def limit(self, fetch: int, offset: int = 0) -> Table:
        """`fetch` rows after the first `offset`, which are left out."""
        return (self.offset(offset) if offset else self).fetch(fetch)

    # --- groups and windows ------------------------------------------------------------------------------------------

    def group_by(self, *fields: object) -> GroupedTable[Table]:
        """Rows that have the same of these are a group; `select` says what is wanted of each."""
        return GroupedTable(self, fields)

    def window(self, window: GroupWindow) -> GroupWindowedTable[Table]:
        """Rows in windows, for `group_by` to group them by a window and by more."""
        if not isinstance(window, GroupWindow):
            raise WrongTypeError(
                f"a window is one of Tumble, Slide and Session with on(…) and alias(…), not {window!r}"
            )
        return GroupWindowedTable(self, window)

    def over_window(self, *over_windows: OverWindow) -> OverWindowedTable[Table]:
        """Windows around each row, over which aggregates of `select` go."""
        if not over_windows or not all(isinstance(one, OverWindow) for one in over_windows):
            raise WrongTypeError("over_window takes windows that Over makes, with alias(…)")
        names = [one.name for one in over_windows]
        if len(set(names)) < len(names):
            raise ValidationError(f"the names of over windows must differ: {', '.join(names)}")
        return OverWindowedTable(self, over_windows)

    def aggregate(self, func: Any) -> AggregatedTable[Table]:
        """One row of all, of an aggregate function of the program."""
        return self.group_by().aggregate(func)

    def flat_aggregate(self, func: Any) -> FlatAggregateTable[Table]:
        """Any number of rows of all, of a table aggregate function of the program."""
        return self.group_by().flat_aggregate(func)

    # --- other tables ------------------------------------------------------------------------------------------------

    def join(self, right: Table, join_predicate: object | None = None) -> Table:
        """Pairs of rows of both tables for which a condition is true; all pairs without one.

        Raises:
            ValidationError: if both have a column of the same name.
        """
        return self._joined(right, "INNER", join_predicate)

    def left_outer_join(self, right: Table, join_predicate: object | None = None) -> Table:
        """As `join`, and rows of this table that have no match, with NULL for the other one's columns."""
        return self._joined(right, "LEFT", join_predicate)

    def right_outer_join(self, right: Table, join_predicate: object) -> Table:
        """As `join`, and rows of the other table that have no match, with NULL for this one's columns."""
        return self._joined(right, "RIGHT", join_predicate)

    def full_outer_join(self, right: Table, join_predicate: object) -> Table:
        """As `join`, and rows of both tables that have no match, with NULL for the other one's columns."""
        return self._joined(right, "FULL", join_predicate)

    def _joined(self, right: Table, join_type: str, condition: object | None) -> Table:
        other = self._other(right, "joined")
        return self._with(self._plans.joined(self._plan, other, join_type, condition))

    def _other(self, right: Table, what: str) -> Node:
        if not isinstance(right, Table):
            raise WrongTypeError(f"a table is {what} with another one, not with {right!r}")
        if right._environment is not self._environment:
            raise ValidationError(f"Only tables from the same TableEnvironment can be {what}.")
        return right._plan

    def join_lateral(self, table_function_call: Any, join_predicate: object | None = None) -> Table:
        """Each row with each row that a table function makes of it.

        Args:
            table_function_call: such as `split(col("words")).alias("word", "length")`.
            join_predicate: a condition over the columns of both; None for all rows.

        Raises:
            ValidationError: if it is no call of a table function, or a column has the name of one that is there.
        """
        return self._with(lateral(self._plans, self._plan, table_function_call, "INNER", join_predicate))

    def left_outer_join_lateral(self, table_function_call: Any, join_predicate: object | None = None) -> Table:
        """As `join_lateral`, and rows of which the function makes none, with NULL for its columns."""
        return self._with(lateral(self._plans, self._plan, table_function_call, "LEFT", join_predicate))

    def union(self, right: Table) -> Table:
        """The rows of both tables, each once."""
        return self._combined(right, "UNION", False)

    def union_all(self, right: Table) -> Table:
        """The rows of both tables."""
        return self._combined(right, "UNION", True)

    def intersect(self, right: Table) -> Table:
        """The rows that are in both tables, each once."""
        return self._combined(right, "INTERSECT", False)

    def intersect_all(self, right: Table) -> Table:
        """The rows that are in both tables, each as often as in the one that has fewer of it."""
        return self._combined(right, "INTERSECT", True)

    def minus(self, right: Table) -> Table:
        """The rows that are not in the other table, each once."""
        return self._combined(right, "EXCEPT", False)

    def minus_all(self, right: Table) -> Table:
        """The rows without those of the other table, each of which takes away one."""
        return self._combined(right, "EXCEPT", True)

    def _combined(self, right: Table, operator: str, is_all: bool) -> Table:
        return self._with(self._plans.combined(self._plan, self._other(right, "combined"), operator, is_all))

    # --- running -----------------------------------------------------------------------------------------------------

    def execute(self) -> Any:
        """Start the query; its rows come to the program, as the `TableResult` gives them."""
        return self._environment._collect(self._plan)

    def insert_into(self, table_path_or_descriptor: Any, overwrite: bool = False) -> Any:
        """A `TablePipeline` that writes the rows into a table, by its path or a `TableDescriptor`."""
        path = table_path_or_descriptor
        where = _path_of(path) if isinstance(path, str) else self._environment._sink_path(path)
        return self._environment._write(self._plan, where, overwrite)

    def execute_insert(self, table_path_or_descriptor: Any, overwrite: bool = False) -> Any:
        """Start a job that writes the rows into a table. `overwrite`: they take the place of those that are there."""
        return self.insert_into(table_path_or_descriptor, overwrite).execute()

    def to_pandas(self) -> pandas.DataFrame:
        """Run the query and wait for all its rows, as a data frame. Retracted rows are not in it.

        Whole numbers are `int64` and the like, and with a NULL pandas' nullable `Int64`, so they stay exact. TIMESTAMP
        is `datetime64` with all its digits, and TIMESTAMP_LTZ has the session's time zone. A NULL of FLOAT or DOUBLE is
        NaN. BOOLEAN with a NULL, DECIMAL, DATE, TIME and ROW are objects.

        Raises:
            NotImplementedError: where pandas is not installed.
        """
        with self._environment._held_rows(self._plan) as (changes, zone):
            return frame_of(changes, self._plan.schema, zone)

    def to_arrow(self) -> pa.Table:
        """Run the query and wait for all its rows, as an Arrow table. Retracted rows are not in it.

        TIMESTAMP keeps all its digits, and TIMESTAMP_LTZ has the session's time zone.
        """
        with self._environment._held_rows(self._plan) as (changes, zone):
            return arrow_of(changes, self._plan.schema, zone)

    def to_polars(self) -> Any:
        """Run the query and wait for all its rows, as a Polars data frame. Those that it takes back are not in it.

        Raises:
            NotImplementedError: where Polars is not installed.
        """
        return polars_of(self.to_arrow())

    def to_dataframe(self) -> Any:
        """The query as a Spark data frame, which runs when Spark is asked for its rows. In batch only.

        TIMESTAMP is TIMESTAMP_NTZ there, and TIMESTAMP_LTZ is TIMESTAMP; ROW is STRUCT, and MULTISET a MAP of counts.

        Raises:
            ConfigurationError: in a stream.
            UnsupportedError: for what does not run in batch, and for columns of types that Spark does not have.
        """
        return self._environment._frame(self._plan)

    # --- what it is --------------------------------------------------------------------------------------------------

    def explain(self, *extra_details: Any) -> str:
        """The plan of the query as text."""
        return self._environment._explain([self._plan], extra_details)

    def print_explain(self, *extra_details: Any) -> None:
        """Print the plan of the query."""
        sys.stdout.write(f"{self.explain(*extra_details)}\n")

    def plan(self) -> Plan:
        """The job that would run, to look at: as text, JSON, Mermaid or SVG; notebooks show it. In streams only."""
        return self._environment._drawn([self._plan])

    def get_resolved_schema(self) -> ResolvedSchema:
        """The columns and their types."""
        return ResolvedSchema(tuple(Column(one.name, one.type, time=one.time) for one in self._plan.schema))

    def get_schema(self) -> TableSchema:
        """The names of the columns and their types."""
        return TableSchema(self._plan.schema.names, self._plan.schema.types)

    def print_schema(self) -> None:
        """Print the columns and their types."""
        sys.stdout.write(f"{self.get_resolved_schema()}\n")

    def from_changelog(self, *arguments: object) -> Table:
        """The table that changes make, whose kinds are codes in a column (Flink: FROM_CHANGELOG).

        Args:
            arguments: in order, or by name with `as_argument`: `descriptor("op")` for the column, and as `op_mapping` a
                map of codes to INSERT, UPDATE_BEFORE, UPDATE_AFTER and DELETE. By default the codes are these names.
        """
        return self._with(self._plans.changelog("FROM_CHANGELOG", self._plan, arguments))

    def to_changelog(self, *arguments: object) -> Table:
        """A row for each change, with a code for its kind (Flink: TO_CHANGELOG).

        Args:
            arguments: in order, or by name with `as_argument`: `descriptor("op")` for the column, and as `op_mapping` a
                map of INSERT, UPDATE_BEFORE, UPDATE_AFTER and DELETE to codes; changes without one are left out.
        """
        return self._with(self._plans.changelog("TO_CHANGELOG", self._plan, arguments))


def _path_of(text: str) -> tuple[str, ...]:
    parser = StatementParser(text)
    path = parser.path()
    parser.finish()
    return path
