"""Kinds of rows to a column of codes, and back. Nothing is held: each row says all by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import StreamOperator, UserCodeError
from penstock.core.records import Batch
from penstock.table.data.errors import TableRuntimeError
from penstock.table.streaming.rows.row_tuples import kinds_of


class ToChangelogOperator(StreamOperator):
    """All changes as inserts, with the codes of their kinds.

    Args:
        columns: the places of the columns of the input in the output, of which the first `before` are ahead of the
            code.
        before: how many.
        codes: by the byte of a kind; rows of other kinds are left out.
        names: of the columns of the output.
    """

    def __init__(self, columns: Sequence[int], before: int, codes: Mapping[int, str], names: Sequence[str]) -> None:
        self._columns = tuple(columns)
        self._before = before
        self._codes = dict(codes)
        self._names = list(names)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Put the codes of the rows between their columns."""
        taken = as_columns(batch, self.context.operator_name)
        kinds = np.frombuffer(taken.kinds or bytes(len(taken)), np.uint8)
        is_sent = np.isin(kinds, list(self._codes))
        if not is_sent.all():
            taken, kinds = taken.where(is_sent), kinds[is_sent]
        if not len(taken):
            return
        texts = pa.array([self._codes.get(kind) for kind in range(4)], pa.string())
        arrays = [taken.columns.column(place) for place in self._columns]
        arrays.insert(self._before, texts.take(pa.array(kinds)))
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), taken.rowtimes))


class FromChangelogOperator(StreamOperator):
    """Inserts as the changes that their codes name. A code that names none fails the job.

    Args:
        operation: the place of the column with the codes.
        codes: the byte of the kind of each code.
        columns: the places of the columns of the output.
        names: of them.
    """

    def __init__(self, operation: int, codes: Mapping[str, int], columns: Sequence[int], names: Sequence[str]) -> None:
        self._operation = operation
        self._codes = dict(codes)
        self._columns = tuple(columns)
        self._names = list(names)

    def open(self) -> None:
        """Make the look-up."""
        self._texts = pa.array(list(self._codes), pa.string())
        self._kinds = np.array(list(self._codes.values()), np.uint8)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Look the codes up."""
        taken = as_columns(batch, self.context.operator_name)
        operations = taken.columns.column(self._operation)
        places = pc.index_in(operations.cast(pa.string()), value_set=self._texts)
        if places.null_count:
            row = places.is_null().to_pylist().index(True)
            raise UserCodeError(self.context.operator_name, f"a batch of {len(taken)} rows") from TableRuntimeError(
                f"Received invalid op code '{operations[row].as_py()}'. Valid op codes are: {list(self._codes)}."
            )
        kinds = self._kinds[places.to_numpy(zero_copy_only=False)].tobytes()
        arrays = [taken.columns.column(place) for place in self._columns] or [pa.nulls(len(taken))]
        columns = pa.RecordBatch.from_arrays(arrays, self._names or ["c0"])
        self.output.collect(ColumnBatch(columns, taken.rowtimes, kinds_of(kinds)))
