"""MATCH_RECOGNIZE under test: the operator of clauses over `ticker`, in one or several subtasks."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from tests.table.planned import manager_of, plan_query

from penstock.runtime.columns import ColumnBatch
from penstock.sql.data.arrow import to_column
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.nodes import MatchRecognize
from penstock.sql.stream.match.operator import match_operator
from penstock.sql.stream.planning.rule import name_columns
from penstock.sql.stream.rows.rows import ONLY_KEY
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.state.keys import assign_key_group, subtask_of_key_group
from penstock.testing.operator_harness import OneInputOperatorHarness, VirtualClock

TABLE = """
CREATE TABLE ticker (symbol STRING, price INT, tax INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts)
"""
_NS = 1_000_000


def matched_plan(clauses: str) -> logical.Node:
    """The plan of a query with these clauses; DEFINE, which there has to be, says nothing of A where it is left out."""
    clauses += "" if "DEFINE" in clauses else " DEFINE A AS TRUE"
    return plan_query(f"SELECT * FROM ticker MATCH_RECOGNIZE ({clauses}) AS t", manager_of(TABLE))


def plan_node(clauses: str) -> MatchRecognize:
    """The node of these clauses."""
    node = matched_plan(clauses)
    while not isinstance(node, MatchRecognize):
        (node,) = node.inputs()
    return node


class Matching:
    """The operator. Rows are (symbol, price), then the time in ms, and the tax, which is 1 unless it is there."""

    def __init__(self, clauses: str, *snapshots: bytes) -> None:
        self.node = plan_node(clauses)
        self._checkpoint_id = 0
        self._clock = VirtualClock()
        self.harnesses = self._opened(1, *snapshots)

    def _opened(self, parallelism: int, *snapshots: bytes) -> list[OneInputOperatorHarness]:
        operator = match_operator(self.node, StreamSession())
        found = [
            OneInputOperatorHarness(operator, parallelism, subtask, clock=self._clock) for subtask in range(parallelism)
        ]
        for harness in found:
            harness.restore(*snapshots)
            harness.open()
        return found

    def rows(self, *rows: tuple[Any, ...]) -> None:
        """A batch of rows."""
        for subtask, harness in enumerate(self.harnesses):
            mine = [row for row in rows if self._find_subtask(row[0]) == subtask]
            if mine:
                harness.operator.process_batch(self._batch(mine))
                harness.context.keyed.settle()

    def _find_subtask(self, symbol: Any) -> int:
        group = assign_key_group(symbol if self.node.partition else ONLY_KEY, 128)
        return subtask_of_key_group(group, 128, len(self.harnesses))

    def _batch(self, rows: list[tuple[Any, ...]]) -> ColumnBatch:
        whole = [(*row, None, 1)[:4] if len(row) == 2 else (*row, 1)[:4] for row in rows]
        values = [
            [row[0] for row in whole],
            [row[1] for row in whole],
            [row[3] for row in whole],
            [None if row[2] is None else row[2] * _NS for row in whole],
            [0] * len(whole),
        ]
        schema = self.node.input.schema
        arrays = [to_column(column, kind) for column, kind in zip(values, schema.types, strict=True)]
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, name_columns(schema)), None)

    def watermark(self, time: int) -> None:
        """Event time has come to a time (ms)."""
        for harness in self.harnesses:
            harness.watermark(time)

    def wait(self, by_ms: int) -> None:
        """Processing time goes on."""
        target = self._clock.now_ms() + by_ms
        for harness in self.harnesses:
            harness.advance_processing_time(target - self._clock.now_ms())

    def recover(self, parallelism: int = 1) -> None:
        """Go on from a checkpoint, in so many subtasks."""
        self._checkpoint_id += 1
        snapshots = [harness.snapshot(self._checkpoint_id) for harness in self.harnesses]
        for harness in self.harnesses:
            harness.notify_complete(self._checkpoint_id)
            harness.close()
        self.harnesses = self._opened(parallelism, *snapshots)

    def take(self) -> list[tuple[Any, ...]]:
        """The matches since the last call."""
        return [tuple(record.value) for harness in self.harnesses for record in harness.take_output()]

    @property
    def held(self) -> int:
        """How many entries the state has."""
        names = ("match_memories", "match_waiting", "match_deadlines")
        tables = [harness.context.keyed.table(name) for harness in self.harnesses for name in names]
        return sum(len(entries) for table in tables for entries in table.panes.values())
