"""Drives operators of two inputs with changes, and folds changes into tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import StreamOperator
from penstock.sql.analyzer.calls import Calls
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.types import DataType
from penstock.sql.functions.definition import Session
from penstock.sql.logical.nodes import SHORT
from penstock.testing import TwoInputOperatorHarness

#: a kind such as "+I", then the values
Change = tuple[Any, ...]
CALLS = Calls(Session())


def create_batch(types: Sequence[DataType], changes: Sequence[Change]) -> ColumnBatch:
    """Changes as a batch of columns c0, c1 and on."""
    arrays = [to_column([change[place + 1] for change in changes], kind) for place, kind in enumerate(types)]
    columns = pa.RecordBatch.from_arrays(arrays, [f"c{place}" for place in range(len(types))])
    kinds = bytes(SHORT.index(change[0]) for change in changes)
    return ColumnBatch(columns, None, kinds if any(kinds) else None)


class Driven:
    """An operator of two inputs in a harness. `types`: of its inputs' columns, and of its output's."""

    def __init__(
        self,
        factory: Callable[[], StreamOperator],
        inputs: tuple[Sequence[DataType], Sequence[DataType]],
        output: Sequence[DataType],
        *snapshots: bytes,
        **options: Any,
    ) -> None:
        self._arguments = factory, inputs, output
        self.harness = TwoInputOperatorHarness(factory, **options)
        self.harness.restore(*snapshots)
        self.harness.open()
        self._batches: list[ColumnBatch] = []
        self.harness.captured.collect = self._batches.append  # type: ignore[assignment, method-assign]

    def send(self, side: int, *changes: Change) -> list[Change]:
        """A batch for one side; what comes out."""
        self.harness.operator.process_batch(create_batch(self._arguments[1][side], changes), side)
        return self.taken()

    def taken(self) -> list[Change]:
        """What has come out since the last look."""
        found: list[Change] = []
        for batch in self._batches:
            columns = batch.columns.columns
            lists = [to_values(column, kind) for column, kind in zip(columns, self._arguments[2], strict=True)]
            kinds = batch.kinds or bytes(len(batch))
            found += [(SHORT[kind], *row) for kind, row in zip(kinds, zip(*lists, strict=True), strict=True)]
        self._batches.clear()
        return found

    def restored(self, checkpoint_id: int = 1) -> Driven:
        """Another one that goes on from a snapshot of this one."""
        found = Driven(*self._arguments, self.harness.snapshot(checkpoint_id))
        self.harness.close()
        return found


def folded(changes: Iterable[Change]) -> Counter[tuple[Any, ...]]:
    """The table that changes come to."""
    table: Counter[tuple[Any, ...]] = Counter()
    for kind, *row in changes:
        table[tuple(row)] += 1 if kind in ("+I", "+U") else -1
    return Counter({row: count for row, count in table.items() if count})
