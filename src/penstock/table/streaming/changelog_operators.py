"""Changes as rows that say which changes they are, and such rows as changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import StreamOperator, UserCodeError
from penstock.core.records import Batch
from penstock.table.data.errors import TableRuntimeError
from penstock.table.plan.changes import INSERT


class ToChangelogOperator(StreamOperator):
    """Puts the code of its kind in front of each row, which is an insert then. A kind without code is dropped."""

    def __init__(self, codes: Sequence[str | None], names: Sequence[str]) -> None:
        self._codes = list(codes)
        self._names = list(names)

    def open(self) -> None:
        """Make the columns that codes are taken from."""
        self._column = pa.array(self._codes, pa.string())
        self._kept = np.array([code is not None for code in self._codes])

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Pass rows on with their codes."""
        taken = as_columns(batch, self.context.operator_name)
        kinds = bytes([INSERT]) * len(taken) if taken.kinds is None else taken.kinds
        mask = self._kept[np.frombuffer(kinds, np.uint8)]
        if not mask.all():
            taken = taken.where(mask)
            kinds = np.frombuffer(kinds, np.uint8)[mask].tobytes()
        if len(taken):
            codes = self._column.take(pa.array(np.frombuffer(kinds, np.uint8)))
            columns = pa.RecordBatch.from_arrays([codes, *taken.columns.columns], self._names)
            self.output.collect(ColumnBatch(columns, taken.rowtimes))


class FromChangelogOperator(StreamOperator):
    """Takes the code out of each row, which is the change then that the code says.

    Args:
        column: where the codes are.
        kinds: each code, and the byte of its kind.
        names: of the other columns.
    """

    def __init__(self, column: int, kinds: Sequence[tuple[str, int]], names: Sequence[str]) -> None:
        self._column = column
        self._kinds = list(kinds)
        self._names = list(names)

    def open(self) -> None:
        """Make the column in which codes are looked up."""
        self._codes = pa.array([code for code, _ in self._kinds], pa.string())
        self._bytes = np.array([kind for _, kind in self._kinds], np.uint8)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Pass rows on with their kinds."""
        taken = as_columns(batch, self.context.operator_name)
        codes = taken.columns.column(self._column)
        places = pc.index_in(codes, self._codes)
        if places.null_count:
            unknown = codes.filter(pc.is_null(places))[0].as_py()
            raise UserCodeError(self.context.operator_name, f"a batch of {len(taken)} rows") from TableRuntimeError(
                f"Received invalid op code '{unknown}': the mapping has {', '.join(code for code, _ in self._kinds)}"
            )
        kinds = self._bytes[places.to_numpy()]
        columns = [column for place, column in enumerate(taken.columns.columns) if place != self._column]
        data = pa.RecordBatch.from_arrays(columns, self._names)
        self.output.collect(ColumnBatch(data, taken.rowtimes, kinds.tobytes() if kinds.any() else None))
