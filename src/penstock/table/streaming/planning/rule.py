"""How a kind of node is planned, and what its rule may ask the planner."""

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

    #: takes the transformations of the job
    add: Callable[[Transformation], None]
    session: StreamSession
    options: PlanOptions
    calls: Calls
    upsert_keys: UpsertKeys
    lookups: Lookups
    #: the steps that need not complete deletions, by their ids, see `plan_normalize`
    by_key: set[int]

    def changes(self, node: Node) -> Changes:
        """Which changes the rows of a node are."""

    def updates(self, node: Node) -> bool:
        """Whether rows of a node are updated."""

    def accept(self, consumer: str, node: Node, accepts: Changes) -> None:
        """Raise `ValidationError` where a node sends changes that its consumer does not take."""

    def table(self, node: Scan) -> TableReader:
        """How a table is read."""

    def calc_of(self, node: Node) -> Calc:
        """The filters and projections from a node down, as far as they are one step."""

    def stream(self, node: Node, wants_before: bool) -> Stream:
        """The stream of a node. `wants_before`: whether updates have to come with the row as it was before."""

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
        """The stream of a table with watermarks that are made where it is read; None where the table has none."""

    def route(self, write: Write, rows: Callable[[], Stream]) -> None:
        """Write a table's rejected rows into another table, unless another read of the table does so already.

        `rows`: adds the steps that produce them.
        """

    def rejected(self, node: RejectedRows) -> Stream:
        """The stream of a table's rejected rows."""


class Rule(ABC, Generic[NodeT]):
    """How nodes of some types are planned."""

    nodes: ClassVar[tuple[type[Node], ...]]

    @abstractmethod
    def changes(self, node: NodeT, planning: Planning) -> Changes:
        """Which changes its rows are."""

    def asks_before(self, node: NodeT, planning: Planning, wants_before: bool) -> bool:
        """Whether its inputs have to send updates with the rows as they were; as for its own rows by default."""
        return wants_before

    @abstractmethod
    def stream(self, node: NodeT, planning: Planning, wants_before: bool) -> Stream:
        """Add its steps."""
