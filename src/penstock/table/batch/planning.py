"""From a logical plan to Spark SQL: each node becomes a SELECT whose columns are c0, c1 and on.

Nodes nest as queries in FROM, and Spark's optimiser sees one query. Where functions of Penstock have to run, the query
up to there becomes a frame, a step of `kernels` follows, and its result is a temporary view for what is above. Views
also stand for tables that Spark does not know by a name, and for parts of a plan that are read more than once. They are
dropped when all is planned.
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
    """What tells a table that is read from others."""
    return node.path, node.options


#: the depth of nested queries at which one becomes a view, because Spark's parser has a limit
_NESTED_QUERIES_MAX: Final = 24


class Source(NamedTuple):
    """A query, and the text of each expression over its columns."""

    query: str
    texts: list[str]


def column(index: int) -> str:
    """The name of a column."""
    return f"c{index}"


def select(texts: Sequence[str], query: str, rest: str = "") -> str:
    """The query of these expressions over another one. Where there is none it has one that nobody asks for."""
    shown = ", ".join(
        text if text == column(index) else f"{text} AS {column(index)}" for index, text in enumerate(texts)
    )
    return f"SELECT {shown or 'true AS c0'} FROM ({query}){rest}"


def with_maps(query: str, types: Sequence[DataType]) -> str:
    """A query whose columns with maps are keys (`map_keys`), with the maps again."""
    if not any(map(has_maps, types)):
        return query
    return select([value_text(column(index), kind) for index, kind in enumerate(types)], query)


def schema_text(types: Sequence[DataType]) -> str:
    """The columns of a frame, as Spark's SQL declares them."""
    return ", ".join(f"{column(index)} {spark_type(one)}" for index, one in enumerate(types))


def order_text(keys: Sequence[logical.SortKey]) -> str:
    """An order as Spark's SQL has it."""
    return ", ".join(
        f"{column(key.index)} {'DESC' if key.is_descending else 'ASC'} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
        for key in keys
    )


class BatchPlanner:
    """Plans one query.

    Args:
        queries: how each kind of node becomes a query.
        spark: Spark's session.
        reader: how tables are read.
        session: what functions know of the session.
        parallelism: how many tasks read a source that Spark does not read itself.
        tables: how tables are read in part.
        calls: makes the conditions of several filters one.
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
        #: by their names in Spark
        self._spark_tables: dict[str, SparkTable] = {}
        self._views: list[str] = []
        self._uses: Counter[int] = Counter()
        #: how many queries are being made, each for the one before
        self._nested = 0
        #: by the id of a node that is read more than once; the node is kept, because ids of others come again
        self._shared: dict[int, tuple[logical.Node, str]] = {}

    def frame(self, node: logical.Node) -> Any:
        """The Spark data frame of a plan. Raises `UnsupportedError` for what does not run in batch."""
        return self.frames([node])[0]

    def frames(self, nodes: Sequence[logical.Node]) -> list[Any]:
        """The frames of several plans, which share what they have in common."""
        nodes = [self._with_float_keys(node) for node in without_null_times(nodes, self.calls)]
        self._planned = nodes
        for node in nodes:
            self._count(node)
        return [query_frame(self.spark, self.query(node)) for node in nodes]

    def _with_float_keys(self, node: logical.Node) -> logical.Node:
        """The plan with equalities of floats moved from above a join to its keys, as in streams.

        NaN equals NaN in keys alone, so it matters where Spark is asked. All other conditions Catalyst moves itself.
        """
        is_asked = any(
            isinstance(below, logical.Filter) and any(map(_compares_floats, conjuncts(below.condition)))
            for below in all_nodes(node)
        )
        return with_early_filters(node, Calls(self.session.open())) if is_asked else node

    def close(self) -> None:
        """Drop the views. Frames that were made stay as they are."""
        for name in self._views:
            self.spark.catalog.dropTempView(name)
        self._views.clear()

    def _count(self, node: logical.Node) -> None:
        self._uses[id(node)] += 1
        if self._uses[id(node)] == 1:
            if isinstance(node, logical.Scan):
                self._scans.setdefault(table_key(node), node)
            for one in node.inputs():
                self._count(one)

    def is_shared(self, node: logical.Node) -> bool:
        """Whether a node is read more than once, and so has a view of its own."""
        return self._uses[id(node)] > 1

    def query(self, node: logical.Node) -> str:
        """The query of a node."""
        if not self.is_shared(node):
            self._nested += 1
            found_text = self._query(node)
            self._nested -= 1
            is_too_deep = self._nested and not self._nested % _NESTED_QUERIES_MAX
            return f"SELECT * FROM {self.view(query_frame(self.spark, found_text))}" if is_too_deep else found_text
        found = self._shared.get(id(node))
        if found is None:
            found = self._shared[id(node)] = (node, self.view(query_frame(self.spark, self._query(node))))
        return f"SELECT * FROM {found[1]}"

    def _query(self, node: logical.Node) -> str:
        make = self._queries.get(type(node))
        if make is None:
            raise UnsupportedError(f"{type(node).__name__} is not supported in batch yet: {node_text(node)}")
        return make(self, node)

    # --- for the modules of nodes -------------------------------------------------------------------------------------

    def table_reader(self, node: logical.Scan) -> TableReader:
        """How a whole table is read."""
        key = table_key(node)
        if key not in self._readers:
            self._readers[key] = self.reader(node)
        return self._readers[key]

    def spark_table(self, name: str) -> SparkTable:
        """A table of Spark as it is now. The first that is asked for brings those of all plans with it."""
        if name not in self._spark_tables:
            others = (self.table_reader(scan).spark_table for scan in self._scans.values())
            names = dict.fromkeys([name, *(one for one in others if one is not None)])
            self._spark_tables |= tables_named(self.spark, {one: table_text(one) for one in names})
        return self._spark_tables[name]

    def part_of(self, node: logical.Scan) -> Part:
        """What the plans read of a table."""
        return self._reads.part(node)

    @cached_property
    def _reads(self) -> Reads:
        """It is found out when a table is read that Spark does not read itself."""
        return Reads(self._planned, Calls(self.session.open()), self._tables)

    def view(self, frame: Any) -> str:
        """The name of a view of a frame."""
        name = f"penstock_{uuid.uuid4().hex}"
        frame.createOrReplaceTempView(name)
        self._views.append(name)
        return name

    def step(self, query: str, work: Work, takes: Sequence[DataType], gives: Sequence[DataType]) -> str:
        """A query and then a step: the name of the view of its result."""
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
        """Expressions over the columns of a query. Those that Spark does not answer alike are columns of the result.

        `kept`: columns that are needed besides those that expressions read.
        """
        texts = [native_text(one, name) for one in expressions]
        wanted = [one for one, text in zip(expressions, texts, strict=True) if text is None]
        if not wanted:
            return Source(query, [text for text in texts if text is not None])
        read = sorted({one.index for part in expressions for one in part.walk() if isinstance(one, Field)} | set(kept))
        place = {index: at for at, index in enumerate(read)}
        native = [one for one, text in zip(expressions, texts, strict=True) if text is not None]
        passed = sorted({one.index for part in native for one in part.walk() if isinstance(one, Field)} | set(kept))
        types = schema.types
        moved = tuple(_moved(one, place) for one in wanted)
        work = Computed(tuple(place[index] for index in passed), moved, self.session)
        gives = [*(types[index] for index in passed), *(one.type for one in wanted)]
        view = self.step(select([name(index) for index in read], query), work, [types[index] for index in read], gives)
        names = [*(name(index) for index in passed), *(f"k{at}" for at in range(len(wanted)))]
        renamed = ", ".join(f"{column(at)} AS {one}" for at, one in enumerate(names))
        computed = iter(f"k{at}" for at in range(len(wanted)))
        found = [text if text is not None else next(computed) for text in texts]
        return Source(f"SELECT {renamed} FROM {view}", found)


def _compares_floats(part: Typed) -> bool:
    """Whether a condition says that two floats of columns are equal."""
    if not isinstance(part, FunctionCall) or part.function != "=":
        return False
    is_float = isinstance(part.operands[0].type, FloatType | DoubleType)
    return is_float and all(any(isinstance(one, Field) for one in operand.walk()) for operand in part.operands)


def _moved(expression: Typed, place: dict[int, int]) -> Typed:
    return transformed(
        expression, lambda node: replace(node, index=place[node.index]) if isinstance(node, Field) else node
    )
