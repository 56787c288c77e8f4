"""From a logical plan to Spark SQL: each node becomes a SELECT with the columns c0, c1 and so on.

Nodes nest as queries in FROM, so Spark's optimiser sees one query. Where Penstock's functions must run, the query up to
there becomes a DataFrame, a step of `kernels` follows, and its result is a temporary view for the nodes above. Views
also represent tables that have no name in Spark, and parts of a plan that are read more than once. They are dropped
after planning.

`Reads` has the parts of tables that queries read: columns, and rows that meet conditions. Spark finds these itself for
the tables that it reads. For Penstock's sources they are derived from copies of the plans. The plans themselves stay
unchanged: all conditions are evaluated again, and unread columns are NULL.

The leaves of a plan are tables, constants, and rows of the program. A `DeclaredTable` is a Spark table with declared
columns and their texts in Spark SQL.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.drivers.spark import table_queries
from penstock.drivers.spark.frames import find_columns, packed_frame
from penstock.runtime.columns import as_columns
from penstock.runtime.connector import Boundedness
from penstock.runtime.records import Batch
from penstock.sql.analyzer.calls import Calls
from penstock.sql.catalogs.ddl import NULL_TIME
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    LocalZonedTimestampType,
    TimestampType,
    has_variants,
    is_of_spark,
    quoted,
)
from penstock.sql.expressions.evaluator import columns_of_rows
from penstock.sql.functions.definition import Session
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.explain import node_text
from penstock.sql.logical.nodes import INSERTS, Filter, Node, RowSchema, Scan, WatermarkAssigner, rejected_rows
from penstock.sql.logical.properties import all_nodes, with_inputs
from penstock.sql.optimizer.pruning import ScanKey, Used, columns_read, scan_key
from penstock.sql.optimizer.pushdown import asked_of_tables, with_early_filters
from penstock.sql.spark.kernels import BatchSession, Computed, Step, Work
from penstock.sql.spark.native import native_text
from penstock.sql.spark.stored import (
    MICROSECOND_DIGITS,
    has_maps,
    spark_type,
    stored_type,
    text_literal,
    to_stored,
    value_text,
)
from penstock.sql.tables.tables import NO_PUSH_DOWN, PushDown, TableReader
from penstock.sql.typed import Field, FunctionCall, Typed, conjuncts, transformed


class Part(NamedTuple):
    """The part of a table that is read. `columns`: their indexes in the whole table."""

    scan: Scan
    columns: tuple[int, ...]


class Reads:
    """See the module docstring. `plans` are planned together, and read each table once."""

    def __init__(self, plans: Sequence[Node], calls: Calls, tables: PushDown) -> None:
        self._calls = calls
        self._tables = tables
        self._columns: dict[ScanKey, Used] = {}
        self._asked: dict[ScanKey, list[Typed]] = {}
        for plan in plans:
            early = with_early_filters(_without_watermarks(plan), calls)
            for key, columns in columns_read(early).items():
                self._columns[key] = self._columns.get(key, frozenset()) | columns
            for key, conditions in asked_of_tables(early).items():
                before = self._asked.get(key)
                self._asked[key] = (
                    conditions if before is None else [condition for condition in before if condition in conditions]
                )

    def part(self, node: Scan) -> Part:
        """Return the part of a table to read; all of it if its connector supports no push-down."""
        key = scan_key(node)
        filtered = self._tables.filtered(node, self._asked.get(key, ()), self._calls.session)
        scan = node if filtered is None else filtered.scan
        columns = tuple(sorted(self._columns.get(key, ())))
        narrowed = self._tables.narrowed(scan, columns) if 0 < len(columns) < len(node.schema) else None
        return Part(scan, tuple(range(len(node.schema)))) if narrowed is None else Part(narrowed, columns)


def without_null_times(plans: Sequence[Node], calls: Calls) -> list[Node]:
    """Add a filter above each table whose options drop rows with a NULL event time.

    Raises:
        UnsupportedError: for a table that routes such rows into another table; only streams can.
    """
    known: dict[int, tuple[Node, Node]] = {}

    def changed(node: Node) -> Node:
        # Keep nodes shared between plans.
        entry = known.get(id(node))
        if entry is None:
            entry = known[id(node)] = (
                node,
                _filtered(with_inputs(node, [changed(child) for child in node.inputs()]), calls),
            )
        return entry[1]

    return [changed(plan) for plan in plans]


def _filtered(node: Node, calls: Calls) -> Node:
    if not isinstance(node, WatermarkAssigner) or not node.drops_null:
        return node
    if node.route is not None:
        rejected, side = rejected_rows(node.route), ".".join(node.route.path)
        assert rejected is not None
        table, column = ".".join(rejected.table.path), node.schema.names[node.column]
        hint = f"/*+ OPTIONS('{NULL_TIME.key()}' = 'fail') */"
        raise UnsupportedError(
            f"option '{NULL_TIME.key()}' = 'route' of table {table} is not supported in batch, where a query writes no "
            "other table. Set it to 'drop' for this query by the hint OPTIONS, and write the other table separately: "
            f"INSERT INTO {side} SELECT * FROM {table} {hint} WHERE {column} IS NULL"
        )
    condition = calls.call("IS NOT NULL", [node.input.schema.field(node.column)])
    return Filter(schema=node.schema, input=node.input, condition=condition)


def _without_watermarks(node: Node) -> Node:
    """Remove watermarks: a batch has all rows, so conditions may be evaluated before them."""
    inputs = [_without_watermarks(child) for child in node.inputs()]
    return inputs[0] if isinstance(node, WatermarkAssigner) else with_inputs(node, inputs)


#: a name that consists of plain identifiers
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_][A-Za-z_0-9]*)*")


def table_text(name: str) -> str:
    """Return the FROM text of a Spark table; quoted names are cheaper for Spark than names that it must parse."""
    return f"`{name.replace('.', '`.`')}`" if _PLAIN.fullmatch(name) else f"IDENTIFIER({text_literal(name)})"


class DeclaredColumn(NamedTuple):
    """A column: its quoted name in Spark, its declared type, and its type in Spark.

    A column made by Penstock already has the planned type, and None as its type in Spark. A column that is not read may
    have None as its name.
    """

    name: str | None
    declared: DataType
    found: str | None = None

    def text(self, table: str = "") -> str | None:
        """Return the column in the declared type; None if values would change. `table`: the prefix of the name."""
        if self.name is None:
            return f"CAST(NULL AS {spark_type(self.declared)})"
        name = table + self.name
        return name if self.found is None else _cast(name, self.found, self.declared)


class DeclaredTable(NamedTuple):
    """A table: its FROM text, and its columns, all of which have a text."""

    source: str
    columns: tuple[DeclaredColumn, ...]

    def texts(self, table: str = "") -> list[str]:
        """Return the text of each column."""
        return [text for text in (column.text(table) for column in self.columns) if text is not None]


def _cast(text: str, actual: str, declared: DataType) -> str | None:
    """Cast a Spark column to the declared type; return None if values would change."""
    expected = spark_type(declared, "VARIANT")
    if isinstance(declared, TimestampType | LocalZonedTimestampType):
        is_same = actual == expected and declared.precision == MICROSECOND_DIGITS
        return text if is_same else _cut(text, actual, declared)
    if not is_of_spark(declared):
        return None
    if actual == expected or (actual.startswith(("CHAR(", "VARCHAR(")) and expected == "STRING"):
        return text
    if actual in _WHOLE and expected in _WHOLE and _WHOLE.index(actual) <= _WHOLE.index(expected):
        return f"CAST({text} AS {expected})"
    if (actual, expected) == ("FLOAT", "DOUBLE"):
        return f"CAST({text} AS DOUBLE)"
    if actual.startswith("DECIMAL(") and isinstance(declared, DecimalType):
        precision, scale = map(int, actual[8:-1].split(","))
        if precision - scale <= declared.precision - declared.scale and scale <= declared.scale:
            return f"CAST({text} AS {expected})"
    return None


_WHOLE: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def _cut(text: str, actual: str, declared: TimestampType | LocalZonedTimestampType) -> str | None:
    """Truncate a point in time to fewer digits than Spark's."""
    kind = "TIMESTAMP_NTZ" if isinstance(declared, TimestampType) else "TIMESTAMP"
    if actual != kind or declared.precision > MICROSECOND_DIGITS:
        return None
    step = 10 ** (MICROSECOND_DIGITS - declared.precision)
    rest = f"CAST(extract(SECOND FROM {text}) * 1000000 AS BIGINT) % {step}"
    return f"({text} - make_dt_interval(0, 0, 0, CAST(({rest}) / 1000000 AS DECIMAL(18,6))))"


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
        options: the options of the session.
        vectors: returns the search for vectors in a column of a table.
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
        options: Mapping[str, str] | None = None,
        vectors: Callable[[logical.Scan, int], Any] | None = None,
    ) -> None:
        self._queries = queries
        self.vectors = vectors
        self.options = options or {}
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
        self._spark_tables: dict[str, table_queries.SparkTable] = {}
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
        nodes = [self._with_keys(node) for node in without_null_times(nodes, self.calls)]
        self._planned = nodes
        for node in nodes:
            self._count(node)
        return [table_queries.query_frame(self.spark, self.query(node)) for node in nodes]

    def _with_keys(self, node: logical.Node) -> logical.Node:
        """Move equalities from above a join to its keys, as in streams, where it matters.

        NaN equals NaN only in keys, so it matters where Spark evaluates equalities of floats. The keys also decide
        which of several hints fits a join. Catalyst moves all other conditions itself.
        """
        is_asked = any(
            (isinstance(below, logical.Filter) and any(map(_compares_floats, conjuncts(below.condition))))
            or (isinstance(below, logical.Join) and len(below.hints) > 1)
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
            return (
                f"SELECT * FROM {self.view(table_queries.query_frame(self.spark, found_text))}"
                if is_too_deep
                else found_text
            )
        shared = self._shared.get(id(node))
        if shared is None:
            shared = self._shared[id(node)] = (
                node,
                self.view(table_queries.query_frame(self.spark, self._query(node))),
            )
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

    def spark_table(self, name: str) -> table_queries.SparkTable:
        """Return a Spark table as currently defined. The first request fetches the tables of all plans."""
        if name not in self._spark_tables:
            table_names = (self.table_reader(scan).spark_table for scan in self._scans.values())
            names = dict.fromkeys([name, *(table_name for table_name in table_names if table_name is not None)])
            self._spark_tables |= table_queries.tables_named(
                self.spark, {table_name: table_text(table_name) for table_name in names}
            )
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
        return self.view(table_queries.query_frame(self.spark, query).mapInArrow(step, schema_text(gives)))

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


def values(planner: BatchPlanner, node: logical.Values) -> str:
    """Return rows of constants."""
    types = node.schema.types
    if not types:
        return f"SELECT true AS c0 FROM range({len(node.rows)})"
    return _rows(planner, columns_of_rows(node.rows, types, planner.session.open()), types)


def arrow_rows(planner: BatchPlanner, node: logical.ArrowRows) -> str:
    """Return rows of the program."""
    arrays = [chunked.combine_chunks() for chunked in node.data.columns]
    return _rows(planner, arrays, node.schema.types)


def _rows(planner: BatchPlanner, arrays: list[Any], types: list[DataType]) -> str:
    stored = [to_stored(array, kind) for array, kind in zip(arrays, types, strict=True)]
    fields = [pa.field(column(index), stored_type(kind)) for index, kind in enumerate(types)]
    table = pa.Table.from_arrays(stored, schema=pa.schema(fields))
    return f"SELECT * FROM {planner.view(table_queries.frame_of_arrow(planner.spark, table, schema_text(types)))}"


def scan(planner: BatchPlanner, node: logical.Scan) -> str:
    """Return all columns of a table."""
    table = declared_table(planner, node)
    texts = [f"{text} AS {column(index)}" for index, text in enumerate(table.texts())]
    return f"SELECT {', '.join(texts) or 'true AS c0'} FROM {table.source}"


def declared_table(planner: BatchPlanner, node: logical.Scan) -> DeclaredTable:
    """Return a table: the DataFrame of its connector, or the rows of its source. Each plan looks it up once."""
    key = table_key(node)
    table = planner.tables.get(key)
    if table is None:
        table = planner.tables[key] = _table(planner, node)
    return table


def _table(planner: BatchPlanner, node: logical.Scan) -> DeclaredTable:
    reader = planner.table_reader(node)
    title = ".".join(node.path)
    if reader.changes != INSERTS:
        raise ValidationError(
            "Querying a table in batch mode is currently only possible for INSERT-only table sources. But the source "
            f"for table '{title}' produces other changelog messages than just INSERT."
        )
    if reader.frame is not None:
        return _of_spark(planner, partial(reader.frame, planner.spark), reader.spark_table, node)
    part = planner.plan_scan(node)
    view = planner.view(
        _read(planner, planner.reader(part.scan) if part.scan is not node else reader, part.scan, title)
    )
    positions = {index: at for at, index in enumerate(part.columns)}
    columns = [
        DeclaredColumn(column(positions[index]) if index in positions else None, kind)
        for index, kind in enumerate(node.schema.types)
    ]
    return DeclaredTable(view, tuple(columns))


def _read(planner: BatchPlanner, reader: TableReader, node: logical.Scan, title: str) -> Any:
    source, types = reader.source, tuple(node.schema.types)
    if source is None:
        raise ValidationError(f"table '{title}' has neither a source nor a Spark data frame")
    if source.boundedness is not Boundedness.BOUNDED:
        raise _unbounded(title)
    return table_queries.frame_of_source(
        planner.spark, source, planner.parallelism(), _Stored(types), schema_text(types)
    )


class _Stored:
    """Converts a batch of a source to Spark's columns."""

    def __init__(self, types: tuple[DataType, ...]) -> None:
        self._types = types

    def __call__(self, batch: Batch) -> pa.RecordBatch:
        columns = as_columns(batch, "Source").columns.columns
        stored = [to_stored(array, kind) for array, kind in zip(columns, self._types, strict=False)]
        return pa.RecordBatch.from_arrays(stored, [column(index) for index in range(len(stored))])


def _unbounded(title: str) -> ValidationError:
    return ValidationError(
        f"Querying an unbounded table '{title}' in batch mode is not allowed. The table source is unbounded."
    )


def _of_spark(planner: BatchPlanner, frame: Callable[[], Any], name: str | None, node: logical.Scan) -> DeclaredTable:
    """Return a table that Spark reads, in the declared types. `name`: its name in Spark, if any."""
    title = ".".join(node.path)
    dataframe: Any = frame() if name is None else None
    table = table_queries.table_of_frame(dataframe) if name is None else planner.spark_table(name)
    if table.is_streaming:
        raise _unbounded(title)
    cols = table.columns
    names = [field.name for field in cols]
    places = find_columns([field.name for field in node.schema], names)
    if places is not None:
        cols, names = tuple(cols[place] for place in places), [names[place] for place in places]
    if len(cols) != len(node.schema):
        raise ValidationError(
            f"table '{title}' has {len(node.schema)} columns, and the Spark data frame that it reads has {len(cols)}: "
            f"{', '.join(names)}"
        )
    if len({column_name.lower() for column_name in names}) < len(names):
        names = [column(index) for index in range(len(names))]
        dataframe, name = (frame() if dataframe is None else dataframe).toDF(*names), None
    if any(has_variants(column_type) for column_type in node.schema.types):
        dataframe, name = packed_frame(frame() if dataframe is None else dataframe), None
    columns = []
    for spark_name, spark_column, declared in zip(names, cols, node.schema, strict=True):
        declared_column = DeclaredColumn(quoted(spark_name), declared.type, spark_column.type)
        if declared_column.text() is None:
            raise ValidationError(
                f"column '{declared.name}' of table '{title}' is declared as {declared.type}, and Spark has "
                f"{spark_column.type} there: declare it as what Spark has"
            )
        columns.append(declared_column)
    source = planner.view(dataframe) if name is None else table_text(name)
    return DeclaredTable(source, tuple(columns))
