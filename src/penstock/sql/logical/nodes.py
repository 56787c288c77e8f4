"""Nodes of a logical plan, the schemas of their outputs, and `Changes`, the changes that a plan may produce.

All nodes are immutable, and each knows the columns of its rows. `Changes` also records whether updates include the
previous row. The expressions of `MatchRecognize` are over references to matched rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from enum import Enum, Flag, auto
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.runtime.patterns.matcher import SkipStrategy
from penstock.sql.data.types import DataType, RowField, RowType
from penstock.sql.typed import Field, Typed
from penstock.sql.user_functions.definition import UserFunction
from penstock.sql.user_functions.signature import ProcessFunction


class Changes(Flag):
    """The kinds of changes: inserts, updates and deletes."""

    INSERT = auto()
    UPDATE = auto()
    DELETE = auto()

    def __str__(self) -> str:
        return ",".join(letter for flag, letter in zip(Changes, "IUD", strict=True) if flag in self)


INSERTS: Final = Changes.INSERT
ALL: Final = Changes.INSERT | Changes.UPDATE | Changes.DELETE

#: the byte of each row kind in a batch
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 0, 1, 2, 3
SHORT: Final = ("+I", "-U", "+U", "-D")
NAMES: Final = ("INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE")


def shown(changes: Changes, with_before: bool) -> str:
    """Return the changes as EXPLAIN shows them: `[I,UB,UA,D]`."""
    parts = ["I"] if Changes.INSERT in changes else []
    if Changes.UPDATE in changes:
        parts += ["UB", "UA"] if with_before else ["UA"]
    return f"[{','.join([*parts, *(['D'] if Changes.DELETE in changes else [])])}]"


class TimeAttribute(Enum):
    """The kinds of time attributes: event time (rowtime) and processing time."""

    ROWTIME = "*ROWTIME*"
    PROCTIME = "*PROCTIME*"


@dataclass(frozen=True, slots=True)
class PlanColumn:
    """A column. `time`: the kind of time attribute, if it is one."""

    name: str
    type: DataType
    time: TimeAttribute | None = None

    def __str__(self) -> str:
        return f"{self.type} {self.time.value}" if self.time is not None else str(self.type)


@dataclass(frozen=True, slots=True)
class RowSchema:
    """The columns of rows, in order. Names may repeat."""

    columns: tuple[PlanColumn, ...]

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[PlanColumn]:
        return iter(self.columns)

    def __getitem__(self, index: int) -> PlanColumn:
        return self.columns[index]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def types(self) -> list[DataType]:
        """The types of the columns."""
        return [column.type for column in self.columns]

    def row_type(self) -> RowType:
        """Return the columns as a ROW type."""
        return RowType([RowField(column.name, column.type) for column in self.columns], False)

    def field(self, index: int) -> Field:
        """Return a reference to a column."""
        column = self.columns[index]
        return Field(column.type, index, column.name)

    def fields(self) -> list[Field]:
        """Return references to all columns."""
        return [self.field(index) for index in range(len(self.columns))]

    def joined(self, other: RowSchema, left_nullable: bool = False, right_nullable: bool = False) -> RowSchema:
        """Return the columns of both schemas; those of an optional side become nullable."""
        left = _nullable(self.columns) if left_nullable else self.columns
        right = _nullable(other.columns) if right_nullable else other.columns
        return RowSchema((*left, *right))

    def without_time(self) -> RowSchema:
        """Return the same columns without time attributes."""
        return RowSchema(tuple(replace(column, time=None) for column in self.columns))

    def renamed(self, names: Sequence[str]) -> RowSchema:
        """Rename all columns."""
        return RowSchema(tuple(replace(column, name=name) for column, name in zip(self.columns, names, strict=True)))


def _nullable(columns: Iterable[PlanColumn]) -> tuple[PlanColumn, ...]:
    return tuple(replace(column, type=column.type.nullable()) for column in columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Base class of nodes. `schema`: the columns of its output."""

    schema: RowSchema

    def inputs(self) -> tuple[Node, ...]:
        """Return the nodes that it reads."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(Node):
    """A catalog table and its path. `options`: from the table and its hints; `key`: the primary key."""

    path: tuple[str, str, str]
    options: tuple[tuple[str, str], ...] = ()
    key: tuple[int, ...] = ()
    #: METADATA columns: their indexes and the connector's keys for them
    metadata: tuple[tuple[int, str], ...] = ()
    partition_keys: tuple[str, ...] = ()
    #: a `TableScan` with pushed-down operations, which the schema matches; None for the unchanged table
    source: object | None = None
    #: conditions that `source` has taken over from the plan, as text
    taken: tuple[str, ...] = ()
    #: everything pushed down into `source`, for EXPLAIN
    pushed: tuple[str, ...] = ()
    #: the session's time zone
    zone: tzinfo = UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class Values(Node):
    """Rows of constants."""

    rows: tuple[tuple[Typed, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowRows(Node):
    """In-memory rows of a program, as an Arrow table with a column for each one of the schema."""

    data: pa.Table = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRows(Node):
    """The records of a DataStream, as columns.

    `stream` knows their origin and layout (`penstock.sql.stream.bridge`); a plan only checks
    whether it is the same stream. `key`, `changes` and the rest are as in `penstock.sql.tables.tables`.
    """

    stream: object
    title: str
    changes: Changes = INSERTS
    has_before: bool = False
    key: tuple[int, ...] = ()
    is_upsert: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Node):
    """Base class of nodes with one input."""

    input: Node

    def inputs(self) -> tuple[Node, ...]:
        """See `Node`."""
        return (self.input,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Project(Unary):
    """Computes a column for each expression."""

    expressions: tuple[Typed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(Unary):
    """Keeps the rows that satisfy a condition."""

    condition: Typed


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkAssigner(Unary):
    """Generates watermarks from `expression`, computed for each row; `column` becomes the time attribute.

    With `drops_null`, rows with a NULL event time are dropped; otherwise they fail the job. `route` reads the dropped
    rows (`RejectedRows`) and writes them to another table. Both come from the table's options.
    """

    column: int
    expression: Typed
    drops_null: bool = field(default=False, compare=False)
    route: Write | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRows(Node):
    """Rows dropped from the stream of `table` because their event time, the column `time`, is NULL.

    The schema has all columns of the table. `key`: the indexes of the table's primary key.
    """

    table: Scan
    time: int
    key: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogNormalize(Unary):
    """Normalizes an upsert changelog by key: updates can include the previous row, and deletes the whole row."""

    key: tuple[int, ...]


class JoinType(Enum):
    """Join types. They determine the rows of a join other than matching pairs."""

    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"
    SEMI = "SEMI"
    ANTI = "ANTI"

    @property
    def keeps_left(self) -> bool:
        """Whether left rows without a match are kept."""
        return self in (JoinType.LEFT, JoinType.FULL)

    @property
    def keeps_right(self) -> bool:
        """Whether right rows without a match are kept."""
        return self in (JoinType.RIGHT, JoinType.FULL)


@dataclass(frozen=True, slots=True)
class JoinHint:
    """A join strategy of Flink that a query asks for, and the side that it names."""

    strategy: str
    is_left: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Node):
    """Joins pairs of rows that satisfy a condition, whose field indexes span both sides.

    `state_ttl_ms`: the state lifetime of each side, from a hint; None for the session's option. `hints`: the preferred
    strategies in batch, best first. They change neither its rows nor its state.
    """

    left: Node
    right: Node
    join_type: JoinType
    condition: Typed
    state_ttl_ms: tuple[int | None, int | None] = (None, None)
    hints: tuple[JoinHint, ...] = field(default=(), compare=False)

    def inputs(self) -> tuple[Node, ...]:
        """See `Node`."""
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate function over columns of the input. `condition`: aggregates only the rows that satisfy it."""

    function: str
    operands: tuple[Typed, ...]
    type: DataType
    is_distinct: bool = False
    condition: Typed | None = None
    order: tuple[SortKey, ...] = ()
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.operands)) or "*"
        text = f"{self.function}({'DISTINCT ' if self.is_distinct else ''}{inner})"
        return text if self.condition is None else f"{text} FILTER {self.condition}"


@dataclass(frozen=True, slots=True)
class UserAggregateCall(AggregateCall):
    """A call of a user-defined aggregate function. `at`: its position in the query, which distinguishes equal calls."""

    user: UserFunction = field(kw_only=True)
    at: int = field(default=-1, kw_only=True, compare=False)

    def is_same(self, other: AggregateCall) -> bool:
        """Return whether two calls can share a value. Calls of a nondeterministic function have a value each."""
        return self == other and (self.user.is_deterministic or self.at == getattr(other, "at", -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Unary):
    """Produces a row per group. `keys` are columns of the input; the output has the keys and then the aggregates.

    With several `sets`, each a subset of the keys, every set has its own groups. Then `groupings` are further columns
    after the aggregates. Each has a bit per listed key, the first key's bit the highest, which is 1 if the set omits
    the key. A grouping without keys is GROUP_ID: the number of equal sets before this one. `state_ttl_ms`: the state
    lifetime, from a hint; None for the session's option.
    """

    keys: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    sets: tuple[tuple[int, ...], ...] = ()
    groupings: tuple[tuple[int, ...], ...] = ()
    state_ttl_ms: int | None = None

    def group_ids(self) -> list[int]:
        """Return the GROUP_ID of each set."""
        return group_ids(self.sets)


def group_ids(sets: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the number of equal sets before each set, ignoring the order of their keys."""
    keys = [frozenset(key_set) for key_set in sets]
    return [keys[:index].count(key_set) for index, key_set in enumerate(keys)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expand(Unary):
    """Emits a row per projection for each input row. Each of the `projections` has an expression per column."""

    projections: tuple[tuple[Typed, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicate(Unary):
    """Repeats each row by the count in its last column, and removes this column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAggregate(Unary):
    """Produces any number of rows per group. `keys` are columns of the input; the output has keys and results."""

    keys: tuple[int, ...]
    call: UserAggregateCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct(Unary):
    """Removes duplicate rows. `state_ttl_ms`: see `Aggregate`."""

    state_ttl_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOperation(Node):
    """UNION, INTERSECT or EXCEPT."""

    operator: str
    parts: tuple[Node, ...]
    is_all: bool

    def inputs(self) -> tuple[Node, ...]:
        """See `Node`."""
        return self.parts


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column to sort by."""

    index: int
    is_descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort(Unary):
    """Sorts rows, skips `offset` rows and returns at most `fetch`."""

    keys: tuple[SortKey, ...] = ()
    offset: int = 0
    fetch: int | None = None


@dataclass(frozen=True, slots=True)
class FrameBound:
    """One end of a frame. `distance`: None for unbounded; a constant for ROWS and RANGE, 0 for the current row."""

    is_preceding: bool
    distance: Typed | None = None
    is_current: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Over(Unary):
    """Adds a column for each call, computed over a frame around the row."""

    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    is_rows: bool
    lower: FrameBound
    upper: FrameBound
    calls: tuple[AggregateCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank(Unary):
    """Keeps the rows of each partition with a rank from `start` to `end`, or to the value of `end_column`.

    `shows_number`: appends the rank as a column. `is_sort`: the node is ORDER BY with LIMIT, or LIMIT alone.
    """

    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    start: int
    end: int | None
    end_column: int | None = None
    shows_number: bool = False
    is_sort: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTable(Unary):
    """Assigns windows of a `kind`, TUMBLE, HOP, CUMULATE or SESSION: appends the start, end and time of the window.

    `sizes` in ms, in the function's order: size; slide and size; step and size; gap. `is_group`: whether the window is
    in GROUP BY, the older syntax. Only such windows may emit early and late results.
    """

    kind: str
    time: int
    sizes: tuple[int, ...]
    offset: int = 0
    partition: tuple[int, ...] = ()
    is_group: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FromChangelog(Unary):
    """Converts rows to changes: the column `operation` has the code of the change, and the other columns the row.

    `codes`: pairs of code and change; `columns`: the remaining columns, in order. `partition` finds the previous rows
    of updates that come without them.
    """

    operation: int
    codes: tuple[tuple[str, str], ...]
    columns: tuple[int, ...]
    partition: tuple[int, ...] = ()

    @property
    def is_upsert(self) -> bool:
        """Whether updates come without their previous rows."""
        changes = [change for _, change in self.codes]
        return "UPDATE_AFTER" in changes and "UPDATE_BEFORE" not in changes


@dataclass(frozen=True, slots=True, kw_only=True)
class ToChangelog(Unary):
    """Converts all changes to rows: the columns of `partition`, a column with the change's code, the other columns.

    `codes`: the code of each change; changes without a code are omitted.
    """

    codes: tuple[tuple[str, str], ...]
    partition: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TableInput:
    """A table argument of a process table function: PARTITION BY, ORDER BY, and the column of `on_time`, or -1.

    `names`: the names of its columns, which functions see; the input may be rewritten to one with other names.
    """

    name: str
    names: tuple[str, ...]
    partition: tuple[int, ...] = ()
    order: tuple[SortKey, ...] = ()
    time: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTableFunction(Node):
    """Calls a process table function. Without table arguments it has one input with a single row.

    Columns: those of PARTITION BY of each table, or all columns of a table that passes them through; those of the
    function; and the event time if `on_time` is given.

    `tables`: the table arguments, in the order of `parts`. `values`: the scalar arguments; None for those that a call
    leaves out, and the names of columns for descriptors. `prefix`: the number of columns before the function's.
    """

    parts: tuple[Node, ...]
    tables: tuple[TableInput, ...]
    user: ProcessFunction
    values: tuple[tuple[str, Typed | tuple[str, ...] | None], ...]
    result: DataType
    prefix: int
    uid: str | None = None
    function: str = ""

    def inputs(self) -> tuple[Node, ...]:
        """See `Node`."""
        return self.parts

    @property
    def has_rowtime(self) -> bool:
        """Whether the last column is the event time."""
        return any(table.time >= 0 for table in self.tables)

    def function_columns(self) -> tuple[PlanColumn, ...]:
        """Return the columns of the function itself."""
        return self.schema.columns[self.prefix : len(self.schema) - self.has_rowtime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlate(Unary):
    """Joins each row of the input with the rows that a table function returns for it. `keeps`: keeps rows without any.

    `function`: its name; `user`: the user-defined function, or None for UNNEST. The function's columns follow those of
    the input; `condition` is over both.
    """

    function: str
    operands: tuple[Typed, ...]
    keeps: bool = False
    condition: Typed | None = None
    options: tuple[str, ...] = ()
    user: UserFunction | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A model, as queries call it: its path, and the columns that it takes and gives.

    `settings`: the options of the call. `provider`: what answers; see `penstock.sql.models`.
    Both may change between two runs of a query, which keeps its state.
    """

    path: tuple[str, str, str]
    inputs: RowSchema
    outputs: RowSchema
    settings: tuple[tuple[str, str], ...] = ()
    provider: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MLPredictTableFunction(Unary):
    """Each row of the input with the rows that a model predicts for it. `arguments`: the columns of the model's input,
    cast to their types. The columns of the predictions follow those of the input.
    """

    model: Model
    arguments: tuple[Typed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSearchTableFunction(Unary):
    """Joins each row of the input with the `top_k` rows of a table whose vectors are nearest to `query`.

    `column`: the table's column of vectors. The columns of the table and the score follow those of the input. `keeps`:
    keeps rows without any; `condition` is over both. `settings`: the options of the call.
    """

    table: Scan
    column: int
    query: Typed
    top_k: int
    keeps: bool = False
    condition: Typed | None = None
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalJoin(Node):
    """Joins each left row with the version of the right side at a time (`time`: a column of the left side).

    `lookup`: the options of the LOOKUP hint for the right side.
    """

    left: Node
    right: Node
    join_type: JoinType
    condition: Typed
    time: Field
    lookup: tuple[tuple[str, str], ...] = ()

    def inputs(self) -> tuple[Node, ...]:
        """See `Node`."""
        return (self.left, self.right)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupJoin(Unary):
    """Joins each input row with the rows that a table currently has for its keys. The output has both rows' columns.

    `where` filters the rows of the table, and `expressions` compute their columns.

    Attributes:
        table: the table to look up.
        key: the indexes of the key columns in the table.
        key_values: the values to look up, over the columns of the input.
        asks: over the columns of the input; rows that do not satisfy it skip the lookup.
        condition: a further condition on pairs, over the columns of both sides.
        options: from the LOOKUP hint.
    """

    table: Scan
    join_type: JoinType
    key: tuple[int, ...]
    key_values: tuple[Typed, ...]
    where: Typed | None
    expressions: tuple[Typed, ...]
    asks: Typed | None
    condition: Typed | None
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Unary):
    """Writes rows to a table. `options`: from the table and its hints; `key`: the primary key."""

    path: tuple[str, str, str]
    options: tuple[tuple[str, str], ...] = ()
    key: tuple[int, ...] = ()
    #: the table's columns that the query fills
    columns: tuple[int, ...] = ()
    overwrites: bool = False
    conflict: str | None = None
    static_partition: tuple[tuple[str, str], ...] = field(default=())
    #: METADATA columns: their indexes and the connector's keys for them
    metadata: tuple[tuple[int, str], ...] = ()
    partition_keys: tuple[str, ...] = ()
    #: the session's time zone
    zone: tzinfo = UTC


def rejected_rows(write: Write) -> RejectedRows | None:
    """Return the rejected rows that a route writes; None for an INSERT."""
    node: Node = write
    while isinstance(node, Unary):
        node = node.input
    return node if isinstance(node, RejectedRows) else None


def list_user_functions(node: Node) -> list[UserFunction]:
    """Return the user-defined functions that a node calls itself, outside of expressions."""
    match node:
        case Correlate(user=user):
            return [] if user is None else [user]
        case Aggregate(calls=calls) | Over(calls=calls):
            return [call.user for call in calls if isinstance(call, UserAggregateCall)]
        case TableAggregate(call=call):
            return [call.user]
        case ProcessTableFunction(user=user):
            return [user]
        case _:
            return []


#: the variable that contains all rows of a match
ALL_ROWS = ""


@dataclass(frozen=True, slots=True)
class Navigation:
    """A column of one row of a variable: the row `offset` rows after the first one, or before the last one."""

    variable: str
    column: int
    type: DataType
    is_first: bool = False
    offset: int = 0

    @property
    def is_current(self) -> bool:
        """Whether it is the last row of the match: in a condition, the row under test."""
        return self.variable == ALL_ROWS and not self.is_first and not self.offset


@dataclass(frozen=True, slots=True)
class Aggregated:
    """An aggregate over all rows of a variable. Its operands are over columns of the input."""

    variable: str
    call: AggregateCall

    @property
    def type(self) -> DataType:
        """The type of its result."""
        return self.call.type


@dataclass(frozen=True, slots=True)
class MatchTime:
    """The event time of the match."""

    type: DataType


RowReference: TypeAlias = Navigation | Aggregated | MatchTime


@dataclass(frozen=True, slots=True)
class MatchedExpression:
    """An expression whose field indexes refer to `references`."""

    expression: Typed
    references: tuple[RowReference, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A pattern variable: its condition, if any, and how often it may match."""

    name: str
    condition: MatchedExpression | None
    least: int = 1
    most: int | None = 1
    is_reluctant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchRecognize(Unary):
    """Produces a row per match: the partition columns and the measures."""

    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    pattern: tuple[Variable, ...]
    strategy: SkipStrategy
    within_ms: int | None
    measures: tuple[MatchedExpression, ...]
