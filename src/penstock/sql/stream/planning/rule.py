"""The interface of planning rules: how a kind of node is planned, and which functions the planner provides.

The streams of columns that the steps of a plan produce.

The operator of a join and its inputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.columns.batch import ColumnKey
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.task.channels.partitioners import GlobalPartitioner, HashPartitioner, Partitioner
from penstock.sql.analyzer.calls import Calls
from penstock.sql.logical.nodes import Changes, Node, PlanColumn, Project, RejectedRows, RowSchema, Scan, Write
from penstock.sql.optimizer.pushdown import Calc
from penstock.sql.stream.planning.options import Lookups, PlanOptions
from penstock.sql.stream.planning.upsert_keys import UpsertKeys
from penstock.sql.stream.rows.evaluation import StreamSession
from penstock.sql.tables.tables import TableReader
from penstock.sql.typed import Field, Typed


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
    #: the ids of the steps that need not complete deletions, see `changelog.plan`
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
