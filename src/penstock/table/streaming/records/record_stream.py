"""A data stream that is read as a table, and the operator that converts its records to columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, get_row_kinds
from penstock.core.operators.base import StreamOperator, UserCodeError
from penstock.core.records import Batch
from penstock.plan.transformation import Upstream
from penstock.table.data.errors import TableRuntimeError
from penstock.table.plan.changes import DELETE, SHORT
from penstock.table.records.layout import RecordLayout
from penstock.table.streaming.rows.sessions import StreamSession


@dataclass(frozen=True, eq=False)
class RecordStream:
    """The source of records, their layout, and the row kinds that they may have, one byte each.

    Instances are compared by identity, because their columns do not identify their records.
    """

    upstreams: tuple[Upstream, ...]
    layout: RecordLayout
    kinds: bytes


class FromRecordsOperator(StreamOperator):
    """Converts records to columns and keeps their timestamps.

    Args:
        layout: the layout of the records.
        kinds: the row kinds that records may have.
        names: the names of the columns within streams.
        required: the indexes of NOT NULL columns, each with its name in the table.
        key: the columns that a deletion has; empty if it has all.
        session: provides the time zone of times that have none.
    """

    def __init__(
        self,
        layout: RecordLayout,
        kinds: bytes,
        names: Sequence[str],
        required: Sequence[tuple[int, str]],
        key: Sequence[int],
        session: StreamSession,
    ) -> None:
        self._layout = layout
        self._allowed = kinds
        self._names = list(names)
        self._required = list(required)
        self._key = frozenset(key)
        self._session = session

    def open(self) -> None:
        """Create the converter of records."""
        self._columns = self._layout.open(self._session.zone, self.context.operator_name)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Convert records to columns."""
        kinds = get_row_kinds(batch)
        if kinds is not None:
            self._check_kinds(kinds, batch)
        columns = self._columns(batch)
        for column_index, name in self._required:
            if columns[column_index].null_count:
                self._check_null(columns[column_index], column_index, name, kinds, batch)
        if isinstance(batch, ColumnBatch):
            times = batch.rowtimes
        else:
            times = None if batch.timestamps is None else np.asarray(batch.timestamps, np.int64)
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(columns, self._names), times, kinds))

    def _check_kinds(self, kinds: bytes, batch: Batch) -> None:
        for kind, record in zip(kinds, batch.values, strict=True):
            if kind not in self._allowed:
                known = ", ".join(SHORT[allowed] for allowed in self._allowed)
                raise UserCodeError(self.context.operator_name, record) from TableRuntimeError(
                    f"the stream may have rows of the kinds {known} and has one of the kind {SHORT[kind]}: read it "
                    "with from_changelog_stream and a changelog mode that has this kind"
                )

    def _check_null(self, column: pa.Array, column_index: int, name: str, kinds: bytes | None, batch: Batch) -> None:
        for index, valid in enumerate(column.is_valid().to_pylist()):
            has_key_alone = self._key and column_index not in self._key and kinds is not None and kinds[index] == DELETE
            if not valid and not has_key_alone:
                raise UserCodeError(self.context.operator_name, batch.values[index]) from TableRuntimeError(
                    f"column '{name}' is NOT NULL, and the record has no value for it: declare the column as one that "
                    "may be NULL, in a Schema or in the type of the stream"
                )
