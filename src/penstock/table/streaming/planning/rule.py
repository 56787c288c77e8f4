"""The interface of planning rules: how a kind of node is planned, and which functions the planner provides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.core.operators.base import StreamOperator
from penstock.plan.transformation import Transformation, Upstream
from penstock.table.analyser.calls import Calls
from penstock.table.connectors.tables import TableReader
from penstock.table.plan.changes import Changes
from penstock.table.plan.logical import Node, RejectedRows, Scan, Write
from penstock.table.plan.row_schema import RowSchema
from penstock.table.streaming.planning.lookups import Lookups
from penstock.table.streaming.planning.options import PlanOptions
from penstock.table.streaming.planning.streams import Stream
from penstock.table.streaming.planning.upsert_keys import UpsertKeys
from penstock.table.streaming.rewrites.calc import Calc
from penstock.table.streaming.rows.sessions import StreamSession

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
    #: the ids of the steps that need not complete deletions, see `plan_normalize`
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
