"""The interface of planning rules: how a kind of node is planned, and which functions the planner provides.

A `Stream` of columns is the output of a step. A `PlannedJoin` is the operator of a join and its inputs.

`with_relations` rewrites set operations and grouping sets to joins, groups and repeated rows. INTERSECT and EXCEPT
become a semi or anti join in which NULL equals NULL. With ALL, the rows are counted on each side and repeated
accordingly.

Grouping sets repeat each row once per set, with NULL for keys that are not in the set. The number of the set is also a
key, so that a NULL of the data and a NULL of the set form two groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.columns import ColumnKey
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.task.channels.result_partition import GlobalPartitioner, HashPartitioner, Partitioner
from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.subqueries import conjoin, shifted
from penstock.sql.functions.definition import BIGINT
from penstock.sql.logical.nodes import (
    Aggregate,
    AggregateCall,
    Changes,
    Distinct,
    Expand,
    Filter,
    Join,
    JoinType,
    Node,
    PlanColumn,
    Project,
    RejectedRows,
    Replicate,
    RowSchema,
    Scan,
    SetOperation,
    Write,
)
from penstock.sql.logical.properties import with_inputs
from penstock.sql.optimizer.pushdown import Calc
from penstock.sql.stream.planning.options import Lookups, PlanOptions
from penstock.sql.stream.planning.upsert_keys import UpsertKeys
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.tables import TableReader
from penstock.sql.typed import Constant, Field, Typed, transformed


@dataclass(frozen=True, slots=True)
class Stream:
    """The output of a step: where to read its rows, its changelog mode, and whether updates include both rows."""

    upstreams: tuple[Upstream, ...]
    schema: RowSchema
    changes: Changes
    has_before: bool


def name_columns(schema: RowSchema) -> list[str]:
    """Return the names of columns within streams, built from indexes, because names in a schema may repeat."""
    return [f"c{index}" for index in range(len(schema))]


def by_columns(stream: Stream, columns: Sequence[int]) -> list[Upstream]:
    """Partition a stream by these columns. Without columns, all rows go to one subtask."""
    partitioner: Partitioner = GlobalPartitioner()
    if columns:
        names = name_columns(stream.schema)
        partitioner = HashPartitioner(ColumnKey(tuple(names[column] for column in columns)))
    return [Upstream(upstream.transformation, partitioner, upstream.side_tag) for upstream in stream.upstreams]


def parallelism_in_order(inputs: Sequence[Upstream], are_changes: bool) -> int | None:
    """Return the parallelism of a step that passes rows on in order: the parallelism of its inputs.

    With another parallelism, the rows of an input with its own parallelism would be distributed round-robin. A
    retraction could then overtake its row, and a watermark the rows before it. None stands for the job's parallelism.
    `are_changes`: whether rows may be updated or deleted; a step that unites such inputs has one subtask if their
    parallelism differs.
    """
    if any(upstream.partitioner is not None for upstream in inputs):
        return None
    own = _parallelisms(inputs)
    if len(own) == 1:
        return own.pop()
    return 1 if own and are_changes else None


def differ_in_parallelism(inputs: Sequence[Upstream]) -> bool:
    """Return whether the parallelism of these streams differs. None stands for the job's parallelism."""
    return len(_parallelisms(inputs)) > 1


def _parallelisms(inputs: Sequence[Upstream]) -> set[int | None]:
    reads = [upstream.transformation for upstream in inputs]
    return {
        transformation.parallelism or (1 if transformation.parallelism_limit == 1 else None) for transformation in reads
    }


NodeT = TypeVar("NodeT", bound=Node)
Factory = Callable[[], StreamOperator]


class Planning(Protocol):
    """The planner, as rules see it."""

    #: receives the transformations of the job
    add: Callable[[Transformation], None]
    session: StreamSession
    options: PlanOptions
    calls: Calls
    upsert_keys: UpsertKeys
    lookups: Lookups
    #: the ids of the steps that need not complete deletions, see `changelog`
    by_key: set[int]

    def changes(self, node: Node) -> Changes:
        """Return the changelog mode of a node."""

    def updates(self, node: Node) -> bool:
        """Return whether a node emits updates."""

    def accept(self, consumer: str, node: Node, accepts: Changes) -> None:
        """Raise `ValidationError` if a node emits changes that its consumer does not accept."""

    def table(self, node: Scan) -> TableReader:
        """Return the reader of a table."""

    def extract_calc(self, node: Node) -> Calc:
        """Return the filters and projections from a node down that form one step."""

    def stream(self, node: Node, wants_before: bool) -> Stream:
        """Return the stream of a node. `wants_before`: whether updates must include UPDATE_BEFORE."""

    def step(
        self, kind: str, operator: Factory, inputs: Sequence[Upstream], are_changes: bool = False, **more: Any
    ) -> tuple[Upstream, ...]:
        """Add a step of the job.

        `are_changes`: whether rows of its inputs may be updated or deleted, see `parallelism_in_order`; `more`: see
        `Transformation`.
        """

    def with_before(self, stream: Stream, key: Sequence[int]) -> Stream:
        """Return a stream whose updates include the previous row, for one with updates by these columns."""

    def deleted_by_key(self, node: Node) -> set[int]:
        """Return the ids of the steps that need not complete deletions if the consumer accepts deletions by key."""

    def source(self, title: str, table: TableReader, schema: RowSchema, parallelism: int | None = None) -> Stream:
        """Add a step that reads a table."""

    def timed(self, node: Scan, strategy: WatermarkStrategy, wants_before: bool) -> Stream | None:
        """Return the stream of a table whose source generates watermarks; None if it does not."""

    def route(self, write: Write, rows: Callable[[], Stream]) -> None:
        """Write a table's rejected rows to another table, unless another read of the table does so already.

        `rows`: adds the steps that produce them.
        """

    def rejected(self, node: RejectedRows) -> Stream:
        """Return the stream of a table's rejected rows."""


class Rule(ABC, Generic[NodeT]):
    """Plans the nodes of some types."""

    nodes: ClassVar[tuple[type[Node], ...]]

    @abstractmethod
    def changes(self, node: NodeT, planning: Planning) -> Changes:
        """Return the changelog mode of a node."""

    def asks_before(self, node: NodeT, planning: Planning, wants_before: bool) -> bool:
        """Return whether the inputs must include UPDATE_BEFORE; by default, if the node's own output must."""
        return wants_before

    @abstractmethod
    def stream(self, node: NodeT, planning: Planning, wants_before: bool) -> Stream:
        """Add the steps of a node, and return its stream."""

    def advice(self, node: NodeT, planning: Planning, wants_before: bool) -> str | None:
        """Return advice on the options of the session, or a warning about the changes of the step, for EXPLAIN."""
        return None


@dataclass(frozen=True, slots=True)
class PlannedJoin:
    """The operator of a join, its inputs, and the columns that each input is partitioned by."""

    title: str
    inputs: tuple[Node, Node]
    keys: tuple[tuple[int, ...], tuple[int, ...]]
    operator: Factory
    #: whether updates of its inputs, and its own, must include UPDATE_BEFORE
    has_before: bool


def with_keys(node: Node, keys: Sequence[Typed]) -> tuple[Node, tuple[int, ...]]:
    """Append the expressions that are not columns of the node yet. Returns the node, and the indices of all
    expressions.
    """
    expressions: list[Typed] = list(node.schema.fields())
    columns = list(node.schema)
    indices: list[int] = []
    for key in keys:
        if isinstance(key, Field):
            indices.append(key.index)
        else:
            indices.append(len(columns))
            columns.append(PlanColumn(f"$key{len(columns)}", key.type))
            expressions.append(key)
    if len(columns) == len(node.schema):
        return node, tuple(indices)
    return Project(schema=RowSchema(tuple(columns)), input=node, expressions=tuple(expressions)), tuple(indices)


_COUNT = BIGINT.not_null()


def with_relations(plan: Node, calls: Calls) -> Node:
    """Rewrite a plan without INTERSECT, EXCEPT and grouping sets. Unchanged parts remain the same objects."""
    plan = with_inputs(plan, [with_relations(part, calls) for part in plan.inputs()])
    if isinstance(plan, Aggregate) and plan.sets:
        return _expanded(plan)
    if isinstance(plan, SetOperation) and plan.operator != "UNION":
        return _counted(plan, calls) if plan.is_all else _matched(plan, calls)
    return plan


def _matched(node: SetOperation, calls: Calls) -> Node:
    """Rewrite INTERSECT and EXCEPT: the rows of the first part that the others have, or do not have, each once."""
    width = len(node.schema)
    kind = JoinType.SEMI if node.operator == "INTERSECT" else JoinType.ANTI

    def joined(left: Node, right: Node) -> Node:
        rights = [shifted(other, width) for other in right.schema.fields()]
        same = [_same(left_field, other, calls) for left_field, other in zip(left.schema.fields(), rights, strict=True)]
        return Join(schema=left.schema, left=left, right=right, join_type=kind, condition=conjoin(same, calls))

    return Distinct(schema=node.schema, input=reduce(joined, node.parts))


def _same(column: Typed, other: Typed, calls: Calls) -> Typed:
    """Return the condition that two columns are equal: `=` if neither is nullable, so that window joins match."""
    has_nulls = column.type.is_nullable or other.type.is_nullable
    return calls.call("IS NOT DISTINCT FROM" if has_nulls else "=", [column, other])


def _counted(node: SetOperation, calls: Calls) -> Node:
    """Rewrite INTERSECT ALL and EXCEPT ALL: count the copies of each row."""
    width, is_intersection = len(node.schema), node.operator == "INTERSECT"
    sides = len(node.parts) if is_intersection else 1
    numbers = tuple(PlanColumn(f"$count{index}", _COUNT) for index in range(sides))
    marked = RowSchema((*node.schema.columns, *numbers))

    def numbered(position: int, part: Node) -> Node:
        sign = -1 if position else 1
        marks = [int(index == position) for index in range(sides)] if is_intersection else [sign]
        expressions = (*part.schema.fields(), *(Constant(_COUNT, mark) for mark in marks))
        return Project(schema=marked, input=part, expressions=expressions)

    parts = tuple(numbered(position, part) for position, part in enumerate(node.parts))
    union = SetOperation(schema=marked, operator="UNION", parts=parts, is_all=True)
    sums = tuple(AggregateCall("$SUM0", (marked.field(width + index),), _COUNT) for index in range(sides))
    counted = Aggregate(schema=marked, input=union, keys=tuple(range(width)), calls=sums)
    counts: list[Typed] = list(marked.fields()[width:])
    times = counts[0] if len(counts) == 1 else calls.call("LEAST", counts)
    filtered = Filter(schema=marked, input=counted, condition=calls.call(">", [times, Constant(_COUNT, 0)]))
    schema = RowSchema((*node.schema.columns, PlanColumn("$times", _COUNT)))
    rows = Project(schema=schema, input=filtered, expressions=(*marked.fields()[:width], times))
    return Replicate(schema=node.schema, input=rows)


def _expanded(node: Aggregate) -> Node:
    """Rewrite the groups of several sets as groups of rows that are repeated once for each set."""
    rows, width = node.input, len(node.keys)
    used = sorted({field.index for call in node.calls for field in _fields(call)})
    number = PlanColumn("$set", _COUNT)
    groupings = node.schema.columns[width + len(node.calls) :]
    columns = (*node.schema.columns[:width], *(rows.schema[index] for index in used), number, *groupings)
    expanded = Expand(
        schema=RowSchema(columns),
        input=rows,
        projections=tuple(_projection(node, set_index, used) for set_index in range(len(node.sets))),
    )
    keys = (*range(width), *range(width + len(used), len(columns)))
    mapping = {index: width + position for position, index in enumerate(used)}
    calls = tuple(_moved(call, mapping) for call in node.calls)
    results = node.schema.columns[width : width + len(calls)]
    schema = RowSchema((*(columns[key] for key in keys), *results))
    grouped = Aggregate(schema=schema, input=expanded, keys=keys, calls=calls, state_ttl_ms=node.state_ttl_ms)
    order = (*range(width), *range(len(keys), len(schema)), *range(width + 1, len(keys)))
    return Project(schema=node.schema, input=grouped, expressions=tuple(schema.field(index) for index in order))


def _projection(node: Aggregate, set_index: int, used: list[int]) -> tuple[Typed, ...]:
    """Return the expressions of a set for a row: keys, aggregated columns, the set's number, and GROUPING values."""
    rows, among = node.input.schema, node.sets[set_index]
    keys: list[Typed] = []
    for number, key in enumerate(node.keys):
        keys.append(rows.field(key) if number in among else Constant(node.schema[number].type, None))
    groupings = []
    for grouping in node.groupings:
        bits = "".join("0" if key in among else "1" for key in grouping)
        groupings.append(Constant(_COUNT, int(bits, 2) if bits else node.group_ids()[set_index]))
    return (*keys, *(rows.field(index) for index in used), Constant(_COUNT, set_index), *groupings)


def _fields(call: AggregateCall) -> list[Field]:
    parts = call.operands if call.condition is None else (*call.operands, call.condition)
    return [expression for part in parts for expression in part.walk() if isinstance(expression, Field)]


def _moved(call: AggregateCall, mapping: dict[int, int]) -> AggregateCall:
    def change(expression: Typed) -> Typed:
        return replace(expression, index=mapping[expression.index]) if isinstance(expression, Field) else expression

    condition = None if call.condition is None else transformed(call.condition, change)
    order = tuple(replace(key, index=mapping.get(key.index, key.index)) for key in call.order)
    return replace(
        call,
        operands=tuple(transformed(operand, change) for operand in call.operands),
        condition=condition,
        order=order,
    )
