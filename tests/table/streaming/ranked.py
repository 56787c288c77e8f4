"""Operators over the columns k, v and ts (event time in ms) under test, with a recovery whenever one is asked for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import StreamOperator
from penstock.sql.data.arrow import to_column
from penstock.sql.data.types import DataType, IntType, TimestampType, VarCharType
from penstock.sql.logical.nodes import SHORT
from penstock.state.keys import assign_key_group, subtask_of_key_group
from penstock.testing.operator_harness import OneInputOperatorHarness, VirtualClock

K, V, TS = 0, 1, 2
TYPES: tuple[DataType, ...] = (VarCharType(10), IntType(), TimestampType(3))
NAMES = ["c0", "c1", "c2"]
NUMBERED = [*NAMES, "c3"]
_NS = 1_000_000
_EPOCH = datetime(1970, 1, 1)


class Under:
    """One or several subtasks of an operator. Rows are (k, v) or (k, v, ms), with a kind ahead if need be."""

    def __init__(self, operator: Callable[[], StreamOperator], is_partitioned: bool = True) -> None:
        self._operator = operator
        self._is_partitioned = is_partitioned
        self._checkpoint_id = 0
        self._watermark: int | None = None
        self._clock = VirtualClock()
        self.harnesses = self._opened(1)

    def _opened(self, parallelism: int, *snapshots: bytes) -> list[OneInputOperatorHarness]:
        found = [
            OneInputOperatorHarness(self._operator, parallelism, subtask, clock=self._clock)
            for subtask in range(parallelism)
        ]
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
                harness.operator.process_batch(_batch(mine))
                harness.context.keyed.settle()

    def _find_subtask(self, key: Any) -> int:
        group = assign_key_group(key if self._is_partitioned else 0, 128)
        return subtask_of_key_group(group, 128, len(self.harnesses))

    def watermark(self, timestamp: int) -> None:
        """Event time goes on."""
        self._watermark = timestamp
        for harness in self.harnesses:
            harness.watermark(timestamp)

    def later(self, by_ms: int) -> None:
        """Processing time goes on, and timers that are due fire."""
        for number, harness in enumerate(self.harnesses):
            harness.advance_processing_time(0 if number else by_ms)

    def unnoticed(self, by_ms: int) -> None:
        """Processing time goes on, and no timer fires yet."""
        self._clock.advance(by_ms)

    def held(self, state: str) -> int:
        """How many keys a state has."""
        return sum(len(harness.context.keyed.table(state).entries(None)) for harness in self.harnesses)

    def recover(self, parallelism: int = 1, knows_time: bool = True) -> None:
        """Stop with a snapshot, and go on from it, from the watermark that was there if `knows_time`."""
        self._checkpoint_id += 1
        kept = [record for harness in self.harnesses for record in harness.take_output()]
        snapshots = [harness.snapshot(self._checkpoint_id) for harness in self.harnesses]
        self.harnesses = self._opened(parallelism, *snapshots)
        self.harnesses[0].captured.records[:0] = kept
        if self._watermark is not None and knows_time:
            self.watermark(self._watermark)

    def take(self) -> list[tuple[Any, ...]]:
        """What was sent since the last call: (kind, k, v), with the time if there is one, and the number."""
        return [_shown(record.value) for harness in self.harnesses for record in harness.take_output()]


def _batch(changes: list[tuple[Any, ...]]) -> ColumnBatch:
    rows = [(row[1], row[2], row[3] * _NS if len(row) > 3 else None) for row in changes]
    arrays = [to_column(values, kind) for values, kind in zip(zip(*rows, strict=True), TYPES, strict=True)]
    kinds = bytes(SHORT.index(row[0]) for row in changes)
    return ColumnBatch(pa.RecordBatch.from_arrays(arrays, NAMES), None, kinds if any(kinds) else None)


def _shown(row: Any) -> tuple[Any, ...]:
    values = [(one - _EPOCH) // timedelta(milliseconds=1) if isinstance(one, datetime) else one for one in row]
    time = [] if values[TS] is None else [values[TS]]
    return (SHORT[row.get_row_kind().value], *values[:TS], *time, *values[TS + 1 :])
