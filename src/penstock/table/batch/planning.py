"""From a logical plan to Spark SQL: each node becomes a SELECT with the columns c0, c1 and so on.

Nodes nest as queries in FROM, so Spark's optimiser sees one query. Where Penstock's functions must run, the query up to
there becomes a DataFrame, a step of `kernels` follows, and its result is a temporary view for the nodes above. Views
also represent tables that have no name in Spark, and parts of a plan that are read more than once. They are dropped
after planning.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from penstock.base.errors import UnsupportedError
from penstock.drivers.spark.table_queries import SparkTable, query_frame, tables_named
from penstock.table.analyser.calls import Calls
from penstock.table.batch.declared import DeclaredTable, table_text
from penstock.table.batch.kernels import BatchSession, Computed, Step, Work
from penstock.table.batch.map_keys import has_maps, value_text
from penstock.table.batch.native import native_text
from penstock.table.batch.reads import Part, Reads, without_null_times
from penstock.table.batch.stored import spark_type
from penstock.table.connectors.push_down import NO_PUSH_DOWN, PushDown
from penstock.table.connectors.tables import TableReader
from penstock.table.data.logical_types import DataType, DoubleType, FloatType
from penstock.table.functions.definition import Session
from penstock.table.plan import logical
from penstock.table.plan.inputs import all_nodes
from penstock.table.plan.row_schema import RowSchema
from penstock.table.plan.text import node_text
from penstock.table.streaming.rewrites.filters import with_early_filters
from penstock.table.typed.nodes import Field, FunctionCall, Typed, conjuncts, transformed

#: the path and the options of a table
TableKey = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]


def table_key(node: logical.Scan) -> TableKey:
    """Return the key that identifies the table of a scan."""
    return node.path, node.options


#: the depth of nested queries at which one becomes a view, because Spark's parser has a limit
_NESTED_QUERIES_MAX: Final = 24


class Source(NamedTuple):
    """A query, and the text of each expression over its columns."""

    query: str
    texts: list[str]


def column(index: int) -> str:
    """Return the name of a column."""
    return f"c{index}"


def select(texts: Sequence[str], query: str, rest: str = "") -> str:
    """Select expressions from a query. Without expressions, the result has one unused column."""
    select_list = ", ".join(
        text if text == column(index) else f"{text} AS {column(index)}" for index, text in enumerate(texts)
    )
    return f"SELECT {select_list or 'true AS c0'} FROM ({query}){rest}"


def with_maps(query: str, types: Sequence[DataType]) -> str:
    """Convert the map keys (`map_keys`) in the columns of a query back to maps."""
    if not any(map(has_maps, types)):
        return query
    return select([value_text(column(index), kind) for index, kind in enumerate(types)], query)


def schema_text(types: Sequence[DataType]) -> str:
    """Return the columns of a DataFrame as Spark SQL declares them."""
    return ", ".join(f"{column(index)} {spark_type(kind)}" for index, kind in enumerate(types))


def order_text(keys: Sequence[logical.SortKey]) -> str:
    """Return a sort order in Spark SQL."""
    return ", ".join(
        f"{column(key.index)} {'DESC' if key.is_descending else 'ASC'} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
        for key in keys
    )


class BatchPlanner:
    """Plans one query.

    Args:
        queries: turns each kind of node into a query.
        spark: the Spark session.
        reader: returns the reader of a table.
        session: the session as functions see it.
        parallelism: the number of tasks that read a source that Spark does not read itself.
        tables: pushes column selections and filters down to tables.
        calls: combines the conditions of several filters.
    """

    def __init__(
        self,
        queries: Mapping[type[logical.Node], Callable[[BatchPlanner, Any], str]],
        spark: Any,
        reader: Callable[[logical.Scan], TableReader],
        session: BatchSession,
        parallelism: Callable[[], int],
        tables: PushDown = NO_PUSH_DOWN,
        calls: Calls | None = None,
    ) -> None:
        self._queries = queries
        self.calls = calls or Calls(Session())
        self.spark = spark
        self.reader = reader
        self.session = session
        self.parallelism = parallelism
        self._tables = tables
        self._planned: Sequence[logical.Node] = ()
        #: the tables that are read, by path and options
        self.tables: dict[TableKey, DeclaredTable] = {}
        self._scans: dict[TableKey, logical.Scan] = {}
        self._readers: dict[TableKey, TableReader] = {}
        #: by name in Spark
        self._spark_tables: dict[str, SparkTable] = {}
        self._views: list[str] = []
        self._uses: Counter[int] = Counter()
        #: the current nesting depth of queries
        self._nested = 0
        #: by the id of a node that is read more than once; the node is kept so that its id is not reused
        self._shared: dict[int, tuple[logical.Node, str]] = {}

    def frame(self, node: logical.Node) -> Any:
        """Return the Spark DataFrame of a plan. Raises `UnsupportedError` for plans that do not run in batch."""
        return self.frames([node])[0]

    def frames(self, nodes: Sequence[logical.Node]) -> list[Any]:
        """Return the DataFrames of several plans, which share common parts."""
        nodes = [self._with_float_keys(node) for node in without_null_times(nodes, self.calls)]
        self._planned = nodes
        for node in nodes:
            self._count(node)
        return [query_frame(self.spark, self.query(node)) for node in nodes]

    def _with_float_keys(self, node: logical.Node) -> logical.Node:
        """Move equalities of floats from above a join to its keys, as in streams.

        NaN equals NaN only in keys, so it matters where Spark evaluates them. Catalyst moves all other conditions
        itself.
        """
        is_asked = any(
            isinstance(below, logical.Filter) and any(map(_compares_floats, conjuncts(below.condition)))
            for below in all_nodes(node)
        )
        return with_early_filters(node, Calls(self.session.open())) if is_asked else node

    def close(self) -> None:
        """Drop the views. DataFrames already made are not affected."""
        for name in self._views:
            self.spark.catalog.dropTempView(name)
        self._views.clear()

    def _count(self, node: logical.Node) -> None:
        self._uses[id(node)] += 1
        if self._uses[id(node)] == 1:
            if isinstance(node, logical.Scan):
                self._scans.setdefault(table_key(node), node)
            for child in node.inputs():
                self._count(child)

    def is_shared(self, node: logical.Node) -> bool:
        """Return whether a node is read more than once, and so has its own view."""
        return self._uses[id(node)] > 1

    def query(self, node: logical.Node) -> str:
        """Return the query of a node."""
        if not self.is_shared(node):
            self._nested += 1
            found_text = self._query(node)
            self._nested -= 1
            is_too_deep = self._nested and not self._nested % _NESTED_QUERIES_MAX
            return f"SELECT * FROM {self.view(query_frame(self.spark, found_text))}" if is_too_deep else found_text
        shared = self._shared.get(id(node))
        if shared is None:
            shared = self._shared[id(node)] = (node, self.view(query_frame(self.spark, self._query(node))))
        return f"SELECT * FROM {shared[1]}"

    def _query(self, node: logical.Node) -> str:
        make = self._queries.get(type(node))
        if make is None:
            raise UnsupportedError(f"{type(node).__name__} is not supported in batch yet: {node_text(node)}")
        return make(self, node)

    # --- for the modules of nodes -------------------------------------------------------------------------------------

    def table_reader(self, node: logical.Scan) -> TableReader:
        """Return the reader of a whole table."""
        key = table_key(node)
        if key not in self._readers:
            self._readers[key] = self.reader(node)
        return self._readers[key]

    def spark_table(self, name: str) -> SparkTable:
        """Return a Spark table as currently defined. The first request fetches the tables of all plans."""
        if name not in self._spark_tables:
            table_names = (self.table_reader(scan).spark_table for scan in self._scans.values())
            names = dict.fromkeys([name, *(table_name for table_name in table_names if table_name is not None)])
            self._spark_tables |= tables_named(self.spark, {table_name: table_text(table_name) for table_name in names})
        return self._spark_tables[name]

    def plan_scan(self, node: logical.Scan) -> Part:
        """Return the part of a table that the plans read."""
        return self._reads.part(node)

    @cached_property
    def _reads(self) -> Reads:
        """Computed when the first table is read that Spark does not read itself."""
        return Reads(self._planned, Calls(self.session.open()), self._tables)

    def view(self, frame: Any) -> str:
        """Create a view of a DataFrame and return its name."""
        name = f"penstock_{uuid.uuid4().hex}"
        frame.createOrReplaceTempView(name)
        self._views.append(name)
        return name

    def step(self, query: str, work: Work, takes: Sequence[DataType], gives: Sequence[DataType]) -> str:
        """Run a step on a query and return the name of the view of its result."""
        step = Step(work, tuple(takes), tuple(gives))
        return self.view(query_frame(self.spark, query).mapInArrow(step, schema_text(gives)))

    def over(
        self,
        query: str,
        schema: RowSchema,
        expressions: Sequence[Typed],
        kept: Sequence[int] = (),
        name: Callable[[int], str] = column,
    ) -> Source:
        """Return expressions over the columns of a query. If Spark evaluates one differently, it becomes a column.

        `kept`: columns that are needed in addition to the ones that expressions read.
        """
        texts = [native_text(expression, name) for expression in expressions]
        non_native = [expression for expression, text in zip(expressions, texts, strict=True) if text is None]
        if not non_native:
            return Source(query, [text for text in texts if text is not None])
        read = sorted(
            {node.index for part in expressions for node in part.walk() if isinstance(node, Field)} | set(kept)
        )
        positions = {index: at for at, index in enumerate(read)}
        native = [expression for expression, text in zip(expressions, texts, strict=True) if text is not None]
        passed = sorted({node.index for part in native for node in part.walk() if isinstance(node, Field)} | set(kept))
        types = schema.types
        moved = tuple(_moved(expression, positions) for expression in non_native)
        work = Computed(tuple(positions[index] for index in passed), moved, self.session)
        gives = [*(types[index] for index in passed), *(expression.type for expression in non_native)]
        view = self.step(select([name(index) for index in read], query), work, [types[index] for index in read], gives)
        names = [*(name(index) for index in passed), *(f"k{at}" for at in range(len(non_native)))]
        renamed = ", ".join(f"{column(at)} AS {old_name}" for at, old_name in enumerate(names))
        computed = iter(f"k{at}" for at in range(len(non_native)))
        result_texts = [text if text is not None else next(computed) for text in texts]
        return Source(f"SELECT {renamed} FROM {view}", result_texts)


def _compares_floats(part: Typed) -> bool:
    """Return whether a condition compares two floats of columns for equality."""
    if not isinstance(part, FunctionCall) or part.function != "=":
        return False
    is_float = isinstance(part.operands[0].type, FloatType | DoubleType)
    return is_float and all(any(isinstance(node, Field) for node in operand.walk()) for operand in part.operands)


def _moved(expression: Typed, positions: dict[int, int]) -> Typed:
    return transformed(
        expression, lambda node: replace(node, index=positions[node.index]) if isinstance(node, Field) else node
    )
