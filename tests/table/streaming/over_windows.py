"""OVER windows under test: the operator of a query over `t`, in one or several subtasks.

The table has the columns k, v, ts, which carries the event time, and p, the processing time.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from tests.table.planned import manager_of, plan_query

from penstock.plan.transformation import Transformation
from penstock.runtime.columns import ColumnBatch
from penstock.sql.data.arrow import to_column
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.functions.definition import Session
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.nodes import SHORT
from penstock.sql.stream.over.operators import over_operator
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.planning.rule import name_columns
from penstock.sql.stream.rows.rows import ONLY_KEY
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.tables import TableReader
from penstock.state.keys import assign_key_group, subtask_of_key_group
from penstock.testing.operator_harness import OneInputOperatorHarness

TABLE = "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts)"
_COLUMNS, _NS = 4, 1_000_000


def over_node(sql: str) -> logical.Over:
    """The window of a query."""
    node = plan_query(sql, manager_of(TABLE))
    while not isinstance(node, logical.Over):
        (node,) = node.inputs()
    return node


def calls_over(calls: str, window: str) -> str:
    """A query of these calls, separated by `;`, over one window."""
    selected = ", ".join(f"{call.strip()} OVER ({window})" for call in calls.split(";"))
    return f"SELECT {selected} FROM t"


def plan_stream(sql: str, rows: str = "(VALUES ('a', 1), ('b', 2), ('a', 3))", wants_before: bool = True) -> Any:
    """The planned stream of a query over a view `u (k, v, p)` of constants."""
    manager = manager_of()
    made: list[Transformation] = []
    planner = StreamPlanner(made.append, _no_table, StreamSession(), manager.calls())
    view = f"(SELECT k, v, PROCTIME() AS p FROM {rows} AS u (k, v))"
    return planner.query(plan_query(sql.replace(" u", f" {view}"), manager), wants_before)


def _no_table(scan: logical.Scan) -> TableReader:
    raise AssertionError(scan.path)


class Window:
    """The operator in one or several subtasks. Rows are (k, v) or (k, v, time in ms), with a kind ahead if need be."""

    def __init__(self, sql: str) -> None:
        self.node = over_node(sql)
        self._width = len(self.node.input.schema)
        self._checkpoint_id = 0
        self.harnesses = self._opened(1)

    def _opened(self, parallelism: int, *snapshots: bytes) -> list[OneInputOperatorHarness]:
        operator = over_operator(self.node, name_columns(self.node.schema), StreamSession())
        found = [OneInputOperatorHarness(operator, parallelism, subtask) for subtask in range(parallelism)]
        for harness in found:
            harness.restore(*snapshots)
            harness.open()
        return found

    def rows(self, *rows: tuple[Any, ...]) -> None:
        """A batch of rows."""
        changes = [row if row[0] in SHORT else ("+I", *row) for row in rows]
        for subtask, harness in enumerate(self.harnesses):
            mine = [row for row in changes if self._find_subtask(row[1]) == subtask]
            if mine:
                harness.operator.process_batch(self._batch(mine))
                harness.context.keyed.settle()

    def _find_subtask(self, key: Any) -> int:
        group = assign_key_group(key if self.node.partition else ONLY_KEY, 128)
        return subtask_of_key_group(group, 128, len(self.harnesses))

    def _batch(self, changes: list[tuple[Any, ...]]) -> ColumnBatch:
        rows = [(k, v, time[0] * _NS if time else None, None) for _, k, v, *time in changes]
        below = self.node.input
        types = below.schema.types[:_COLUMNS]
        arrays = [to_column([row[index] for row in rows], kind) for index, kind in enumerate(types)]
        if isinstance(below, logical.Project) and len(below.schema) > _COLUMNS:
            arrays = Evaluator(below.expressions, Session())(Columns(arrays, len(rows)))
        kinds = bytes(SHORT.index(kind) for kind, *_ in changes)
        batch = pa.RecordBatch.from_arrays(arrays, name_columns(self.node.input.schema))
        return ColumnBatch(batch, None, kinds if any(kinds) else None)

    def watermark(self, time: int) -> None:
        """Event time has come to a time (ms)."""
        for harness in self.harnesses:
            harness.watermark(time)

    def wait(self, by_ms: int) -> None:
        """Processing time goes on."""
        for harness in self.harnesses:
            harness.advance_processing_time(by_ms)

    def checkpoint(self) -> list[bytes]:
        """Take a checkpoint that completes."""
        self._checkpoint_id += 1
        snapshots = [harness.snapshot(self._checkpoint_id) for harness in self.harnesses]
        for harness in self.harnesses:
            harness.notify_complete(self._checkpoint_id)
        return snapshots

    def recover(self, parallelism: int = 1) -> None:
        """Go on from a checkpoint, in so many subtasks; what was not taken of the results is lost."""
        snapshots = self.checkpoint()
        self.close()
        self.harnesses = self._opened(parallelism, *snapshots)

    def close(self) -> None:
        """Release resources."""
        for harness in self.harnesses:
            harness.close()

    def take(self) -> list[tuple[Any, ...]]:
        """The results since the last call: k, v and those of the calls, with a kind ahead unless it is +I."""
        found = []
        for harness in self.harnesses:
            for record in harness.take_output():
                values, kind = tuple(record.value), SHORT[record.value.get_row_kind().value]
                row = (*values[:2], *values[self._width :])
                found.append(row if kind == "+I" else (kind, *row))
        return found

    @property
    def held(self) -> int:
        """How many entries the state has."""
        keyed = self.harnesses[0].context.keyed
        names = ("over_frames", "over_waiting", "over_ends", "over_sorted")
        tables = [keyed.table(name) for name in names]
        return sum(len(entries) for table in tables for entries in table.panes.values())
