"""MATCH_RECOGNIZE in streams: by event time, unless a test says otherwise."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from tests.state.rocks import CanonicalRocks
from tests.table.planned import manager_of, plan_of

from penstock.base.errors import UnsupportedError
from penstock.core.columns.batch import ColumnBatch
from penstock.core.operators.base import UserCodeError
from penstock.core.operators.watermarks import LATE_RECORDS
from penstock.core.records import MAX_WATERMARK
from penstock.plan.transformation import Transformation
from penstock.state.key_groups import key_group_of, subtask_of_key_group
from penstock.table.connectors.tables import TableReader
from penstock.table.data.errors import ValidationError
from penstock.table.data.values import column_of, values_of
from penstock.table.plan import logical
from penstock.table.plan.patterns import MatchRecognize
from penstock.table.plan.text import plan_text
from penstock.table.streaming.planning.plan_patterns import match_operator
from penstock.table.streaming.planning.planner import StreamPlanner
from penstock.table.streaming.rows.row_keys import ONLY_KEY
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.testing import operator_harness
from penstock.testing.operator_harness import OneInputOperatorHarness

TABLE = """
CREATE TABLE ticker (symbol STRING, price INT, tax INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts)
"""
_NS = 1_000_000


def node_of(clauses: str) -> MatchRecognize:
    """The node of these clauses over `ticker`."""
    node: logical.Node = plan_of(f"SELECT * FROM ticker MATCH_RECOGNIZE ({clauses}) AS t", manager_of(TABLE))
    while not isinstance(node, MatchRecognize):
        (node,) = node.inputs()
    return node


class Matching:
    """The operator of clauses, in one or several subtasks. Rows are (symbol, price) or (symbol, price, time in ms)."""

    def __init__(self, clauses: str) -> None:
        self.node = node_of(clauses)
        self._checkpoint_id = 0
        self._tax = 1
        self.harnesses = self._opened(1)

    def _opened(self, parallelism: int, *snapshots: bytes) -> list[OneInputOperatorHarness]:
        operator = match_operator(self.node, StreamSession())
        found = [OneInputOperatorHarness(operator, parallelism, subtask) for subtask in range(parallelism)]
        for harness in found:
            harness.restore(*snapshots)
            harness.open()
        return found

    def rows(self, *rows: tuple[Any, ...], tax: int = 1) -> None:
        """A batch of rows."""
        for subtask, harness in enumerate(self.harnesses):
            mine = [row for row in rows if self._subtask_of(row) == subtask]
            times = [row[2] * _NS if len(row) > 2 else None for row in mine]
            values = [[row[0] for row in mine], [row[1] for row in mine], [tax] * len(mine), times, times]
            types = self.node.input.schema.types
            arrays = [column_of(column, kind) for column, kind in zip(values, types, strict=True)]
            names = [f"c{place}" for place in range(len(arrays))]
            if mine:
                harness.process_batch(ColumnBatch(pa.RecordBatch.from_arrays(arrays, names), None))

    def _subtask_of(self, row: tuple[Any, ...]) -> int:
        key = row[0] if self.node.partition else ONLY_KEY
        parallelism = len(self.harnesses)
        return subtask_of_key_group(key_group_of(key, 128), 128, parallelism)

    def watermark(self, timestamp: int) -> None:
        """Event time goes on."""
        for harness in self.harnesses:
            harness.process_watermark(timestamp)

    def take(self) -> list[tuple[Any, ...]]:
        """The matches since the last call."""
        found: list[tuple[Any, ...]] = []
        for harness in self.harnesses:
            for batch in harness.batches:
                columns = [
                    values_of(column, kind)
                    for column, kind in zip(batch.columns.columns, self.node.schema.types, strict=True)
                ]
                found += zip(*columns, strict=True)
            harness.batches.clear()
        return found

    def restore(self, parallelism: int) -> None:
        """Go on from a snapshot in so many subtasks."""
        self._checkpoint_id += 1
        snapshots = [harness.snapshot(self._checkpoint_id) for harness in self.harnesses]
        self.harnesses = self._opened(parallelism, *snapshots)
