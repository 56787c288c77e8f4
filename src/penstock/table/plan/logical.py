"""The operations of a logical plan. All are values; each knows the columns of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from enum import Enum

import pyarrow as pa

from penstock.table.data.logical_types import DataType
from penstock.table.plan.changes import INSERTS, Changes
from penstock.table.plan.row_schema import RowSchema
from penstock.table.typed.nodes import Field, Typed
from penstock.table.user_functions.definition import UserFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The base of all. `schema`: the columns of the rows that it gives."""

    schema: RowSchema

    def inputs(self) -> tuple[Node, ...]:
        """The nodes that it reads."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(Node):
    """A table of a catalog, with its path. `options`: the table's and those of hints; `key`: its primary key."""

    path: tuple[str, str, str]
    options: tuple[tuple[str, str], ...] = ()
    key: tuple[int, ...] = ()
    #: METADATA columns: their places, and the keys by which the connector knows them
    metadata: tuple[tuple[int, str], ...] = ()
    partition_keys: tuple[str, ...] = ()
    #: a `TableScan` into which something was pushed, and to which the schema fits; None for the table as it is
    source: object | None = None
    #: conditions that `source` has taken from the plan, as text
    taken: tuple[str, ...] = ()
    #: all that was pushed into `source`, for EXPLAIN
    pushed: tuple[str, ...] = ()
    #: the time zone of the session
    zone: tzinfo = UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class Values(Node):
    """Rows of constants."""

    rows: tuple[tuple[Typed, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowRows(Node):
    """Rows that the program has in memory, as an Arrow table with a column for each one of the schema."""

    data: pa.Table = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRows(Node):
    """The records of a stream of the program, as columns.

    `stream` knows where they come from and what they are (`penstock.table.streaming.records.record_stream`); a plan
    only asks whether it is the same one. `key`, `changes` and the rest are as in `penstock.table.connectors.tables`.
    """

    stream: object
    title: str
    changes: Changes = INSERTS
    has_before: bool = False
    key: tuple[int, ...] = ()
    is_upsert: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Node):
    """The base of what reads one input."""

    input: Node

    def inputs(self) -> tuple[Node, ...]:
        """See `Node`."""
        return (self.input,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Project(Unary):
    """A column for each expression."""

    expressions: tuple[Typed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(Unary):
    """The rows for which a condition is true."""

    condition: Typed


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkAssigner(Unary):
    """Says how far event time has come: `expression` of each row; `column` becomes the time attribute.

    With `drops_null`, rows with a NULL event time leave the stream; otherwise they fail the job. `route` reads these
    `RejectedRows` and writes them into another table. Both come from the table's options.
    """

    column: int
    expression: Typed
    drops_null: bool = field(default=False, compare=False)
    route: Write | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRows(Node):
    """The rows that leave the stream of `table` because their event time, the column `time`, is NULL.

    The schema has all columns of the table. `key`: the places of the table's primary key.
    """

    table: Scan
    time: int
    key: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogNormalize(Unary):
    """Rows of a table by its key: an update may come with the row as it was, and a deletion with the whole row."""

    key: tuple[int, ...]


class JoinType(Enum):
    """Which rows a join gives besides the pairs that match."""

    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"
    SEMI = "SEMI"
    ANTI = "ANTI"

    @property
    def keeps_left(self) -> bool:
        """Whether rows of the left side come without a match."""
        return self in (JoinType.LEFT, JoinType.FULL)

    @property
    def keeps_right(self) -> bool:
        """Whether rows of the right side come without a match."""
        return self in (JoinType.RIGHT, JoinType.FULL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Node):
    """Pairs of rows for which a condition is true; its fields count through both sides.

    `state_ttl_ms`: how long the state of either side lives, by a hint; None for what the session says.
    """

    left: Node
    right: Node
    join_type: JoinType
    condition: Typed
    state_ttl_ms: tuple[int | None, int | None] = (None, None)

    def inputs(self) -> tuple[Node, ...]:
        """See `Node`."""
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate function over columns of the input. `condition`: only rows for which this column is true."""

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
    """A call of an aggregate function of the program. `at`: where it is written, which tells two calls apart."""

    user: UserFunction = field(kw_only=True)
    at: int = field(default=-1, kw_only=True, compare=False)

    def is_same(self, other: AggregateCall) -> bool:
        """Whether one value of both is enough: a function that is not deterministic gives one for each call."""
        return self == other and (self.user.is_deterministic or self.at == getattr(other, "at", -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Unary):
    """A row for each group. `keys` are columns of the input; its rows are keys and then aggregates.

    With several `sets`, each of which has some of the keys, there are groups for each set. Then `groupings` are further
    columns after the calls: each has a bit for each of its keys, the first the highest, which is 1 where a set leaves
    the key out. A grouping without keys is GROUP_ID: the number of equal sets before this one. `state_ttl_ms`: how long
    state lives, by a hint; None for the session's option.
    """

    keys: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    sets: tuple[tuple[int, ...], ...] = ()
    groupings: tuple[tuple[int, ...], ...] = ()
    state_ttl_ms: int | None = None

    def group_ids(self) -> list[int]:
        """GROUP_ID of each set."""
        return group_ids(self.sets)


def group_ids(sets: Sequence[tuple[int, ...]]) -> list[int]:
    """The number of equal sets before each set, whatever the order of their keys."""
    keys = [frozenset(one) for one in sets]
    return [keys[:place].count(one) for place, one in enumerate(keys)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expand(Unary):
    """For each row a row of each of the `projections`, which have a column for each expression."""

    projections: tuple[tuple[Typed, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicate(Unary):
    """Each row as often as its last column says, without this column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAggregate(Unary):
    """Any number of rows for each group. `keys` are columns of the input; its rows are keys and what `call` gives."""

    keys: tuple[int, ...]
    call: UserAggregateCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct(Unary):
    """Each row once. `state_ttl_ms`: see `Aggregate`."""

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
    """Rows in order; `offset` rows are left out, then at most `fetch` come."""

    keys: tuple[SortKey, ...] = ()
    offset: int = 0
    fetch: int | None = None


@dataclass(frozen=True, slots=True)
class FrameBound:
    """One end of a frame. `distance`: None for unbounded, a constant for ROWS and RANGE; 0 for the current row."""

    is_preceding: bool
    distance: Typed | None = None
    is_current: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Over(Unary):
    """The columns of the input, and for each call what it gives over a frame around the row."""

    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    is_rows: bool
    lower: FrameBound
    upper: FrameBound
    calls: tuple[AggregateCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank(Unary):
    """The rows of each partition whose number in the order is from `start` to an end: `end`, or what a column says.

    `shows_number`: the number is a column behind those of the input. `is_sort`: it is ORDER BY with LIMIT, or LIMIT.
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
    """TUMBLE, HOP, CUMULATE or SESSION (`kind`): the columns of the input, and start, end and time of the window.

    `sizes` in ms, as the function has them: size; slide and size; step and size; gap. `is_group`: whether it stands in
    GROUP BY, the older way to write it. Such windows alone may give results early and late.
    """

    kind: str
    time: int
    sizes: tuple[int, ...]
    offset: int = 0
    partition: tuple[int, ...] = ()
    is_group: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FromChangelog(Unary):
    """The rows that changes make: the columns of the input but for `operation`, whose codes name the changes.

    `codes`: the change of each code; `columns`: the columns that are left, in order. Updates that come without the
    rows as they were are found by `partition`.
    """

    operation: int
    codes: tuple[tuple[str, str], ...]
    columns: tuple[int, ...]
    partition: tuple[int, ...] = ()

    @property
    def is_upsert(self) -> bool:
        """Whether updates come without the rows as they were."""
        changes = [change for _, change in self.codes]
        return "UPDATE_AFTER" in changes and "UPDATE_BEFORE" not in changes


@dataclass(frozen=True, slots=True, kw_only=True)
class ToChangelog(Unary):
    """All changes as rows: the columns of `partition`, a column with the code of the change, the other columns.

    `codes`: the code of each change; those without one are left out.
    """

    codes: tuple[tuple[str, str], ...]
    partition: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlate(Unary):
    """Each row of the input with each row that a table function makes of it. `keeps`: also rows without any.

    `function`: its name; `user`: the function of the program, and None for UNNEST. The columns of the function come
    after those of the input; `condition` is over both.
    """

    function: str
    operands: tuple[Typed, ...]
    keeps: bool = False
    condition: Typed | None = None
    options: tuple[str, ...] = ()
    user: UserFunction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalJoin(Node):
    """Each row of the left side with the version of the right side at a time (`time`: a column of the left side).

    `lookup`: the options of the hint LOOKUP for the right side.
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
    """Each row of the input with the rows that a table has for its keys now: columns of both.

    Of the rows of the table those are left for which `where` is true, and `expressions` are their columns.

    Attributes:
        table: is asked for the rows of keys.
        key: the places of the columns of keys in the table.
        key_values: what they have to be equal to, over the columns of the input.
        asks: over the columns of the input; rows for which it is not true ask for nothing.
        condition: over the columns of both sides, what else has to be true of pairs.
        options: those of the hint LOOKUP.
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
    """Rows go into a table. `options`: the table's and those of hints; `key`: its primary key."""

    path: tuple[str, str, str]
    options: tuple[tuple[str, str], ...] = ()
    key: tuple[int, ...] = ()
    #: columns of the table that the query fills
    columns: tuple[int, ...] = ()
    overwrites: bool = False
    conflict: str | None = None
    static_partition: tuple[tuple[str, str], ...] = field(default=())
    #: METADATA columns: their places, and the keys by which the connector knows them
    metadata: tuple[tuple[int, str], ...] = ()
    partition_keys: tuple[str, ...] = ()
    #: the time zone of the session
    zone: tzinfo = UTC


def rejected_rows(write: Write) -> RejectedRows | None:
    """The rejected rows that a route writes; None for an INSERT."""
    node: Node = write
    while isinstance(node, Unary):
        node = node.input
    return node if isinstance(node, RejectedRows) else None


def users_of(node: Node) -> list[UserFunction]:
    """The functions of the program that a node calls itself, outside of expressions."""
    match node:
        case Correlate(user=user):
            return [] if user is None else [user]
        case Aggregate(calls=calls) | Over(calls=calls):
            return [call.user for call in calls if isinstance(call, UserAggregateCall)]
        case TableAggregate(call=call):
            return [call.user]
        case _:
            return []
