"""Converts row kinds to a column of codes, and back. No state is needed: each row is self-contained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import StreamOperator, UserCodeError
from penstock.core.records import Batch
from penstock.table.data.errors import TableRuntimeError
from penstock.table.streaming.rows.row_tuples import pack_kinds


class ToChangelogOperator(StreamOperator):
    """Emits all changes as inserts with the codes of their kinds.

    Args:
        columns: the indexes of the input columns, in output order; the first `before` ones precede the code.
        before: the number of columns before the code.
        codes: kind byte -> code; rows of other kinds are dropped.
        names: the names of the output columns.
    """

    def __init__(self, columns: Sequence[int], before: int, codes: Mapping[int, str], names: Sequence[str]) -> None:
        self._columns = tuple(columns)
        self._before = before
        self._codes = dict(codes)
        self._names = list(names)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Insert the column of codes."""
        records = as_columns(batch, self.context.operator_name)
        kinds = np.frombuffer(records.kinds or bytes(len(records)), np.uint8)
        is_sent = np.isin(kinds, list(self._codes))
        if not is_sent.all():
            records, kinds = records.where(is_sent), kinds[is_sent]
        if not len(records):
            return
        texts = pa.array([self._codes.get(kind) for kind in range(4)], pa.string())
        arrays = [records.columns.column(index) for index in self._columns]
        arrays.insert(self._before, texts.take(pa.array(kinds)))
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), records.rowtimes))


class FromChangelogOperator(StreamOperator):
    """Emits inserts as the changes that their codes denote. An unknown code fails the job.

    Args:
        operation: the index of the column with the codes.
        codes: code -> kind byte.
        columns: the input indexes of the output columns.
        names: the names of the output columns.
    """

    def __init__(self, operation: int, codes: Mapping[str, int], columns: Sequence[int], names: Sequence[str]) -> None:
        self._operation = operation
        self._codes = dict(codes)
        self._columns = tuple(columns)
        self._names = list(names)

    def open(self) -> None:
        """Build the arrays for the lookup."""
        self._texts = pa.array(list(self._codes), pa.string())
        self._kinds = np.array(list(self._codes.values()), np.uint8)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Look up the codes."""
        records = as_columns(batch, self.context.operator_name)
        operations = records.columns.column(self._operation)
        code_indices = pc.index_in(operations.cast(pa.string()), value_set=self._texts)
        if code_indices.null_count:
            row = code_indices.is_null().to_pylist().index(True)
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from TableRuntimeError(
                f"Received invalid op code '{operations[row].as_py()}'. Valid op codes are: {list(self._codes)}."
            )
        kinds = self._kinds[code_indices.to_numpy(zero_copy_only=False)].tobytes()
        arrays = [records.columns.column(index) for index in self._columns] or [pa.nulls(len(records))]
        columns = pa.RecordBatch.from_arrays(arrays, self._names or ["c0"])
        self.output.collect(ColumnBatch(columns, records.rowtimes, pack_kinds(kinds)))
