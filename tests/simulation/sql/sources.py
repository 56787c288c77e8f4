"""A source that tells of a table: the same changes in every run, split by split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from tests.table.running import Change

from penstock.drivers.simulation.connectors import SimulatedSource, Split
from penstock.drivers.simulation.outside_world import outside
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.records import Batch
from penstock.sql.data.arrow import to_column
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import SHORT

#: By world: when (ms) all rows were first seen to be committed that are to expire.
expiring_since: dict[str, int] = {}


class ChangelogSource(SimulatedSource):
    """Yields changes as columns.

    A source with event time, or one that waits, has one split: how far event time has come follows from its rows.
    `waits_at`: where it waits until each row before it has given a committed one, and that is `ttl_ms` ago.
    """

    def __init__(
        self,
        world: str,
        number: int,
        splits: Sequence[Sequence[Change]],
        types: Sequence[DataType],
        is_lazy: bool,
        waits_at: int | None,
        ttl_ms: int,
    ) -> None:
        super().__init__(world, number, len(splits), 0, 0, is_lazy)
        self.splits = [replace(one, stop=len(split)) for one, split in zip(self.splits, splits, strict=True)]
        self._tables = [_columns(split, types) for split in splits]
        self._kinds = [bytes(SHORT.index(kind) for kind, _ in split) for split in splits]
        self._waits_at = waits_at
        self._ttl_ms = ttl_ms

    def max_parallelism(self) -> int | None:
        """One subtask reads the only split."""
        return 1 if len(self.splits) == 1 else None

    def readable(self, split: Split, now_ms: int) -> int:
        """See `SimulatedSource`."""
        if self._waits_at is None or split.position > self._waits_at:
            return split.stop
        committed = outside(self.world).committed.get("sink", [])
        if len(committed) < self._waits_at:
            return self._waits_at
        since = expiring_since.setdefault(self.world, now_ms)
        return split.stop if now_ms > since + self._ttl_ms else self._waits_at

    def batch(self, split: Split, stop: int) -> Batch:
        """See `SimulatedSource`."""
        kinds = self._kinds[split.index][split.position : stop]
        rows = self._tables[split.index].slice(split.position, stop - split.position)
        return ColumnBatch(rows, None, kinds if any(kinds) else None)


def _columns(split: Sequence[Change], types: Sequence[DataType]) -> pa.RecordBatch:
    arrays = [to_column([row[place] for _, row in split], kind) for place, kind in enumerate(types)]
    return pa.RecordBatch.from_arrays(arrays, [f"c{place}" for place in range(len(types))])
