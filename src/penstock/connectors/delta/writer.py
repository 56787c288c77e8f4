"""Writes the rows of one subtask to files that are not yet part of the table."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa

from penstock.base.errors import FormatError, OperationError, UnsupportedError
from penstock.codecs.column_data import ColumnData
from penstock.codecs.exact_cast import exact_cast_columns
from penstock.codecs.row_batches import kinds_of_rows
from penstock.connectors.delta.commits import PreparedFiles, build_transaction_name, run_name
from penstock.connectors.delta.data_files import DataFilesWriter
from penstock.connectors.delta.merging import changes_schema, with_kinds
from penstock.connectors.delta.target import Target, prepare
from penstock.core.columns.batch import to_record_batch
from penstock.core.connector import SinkWriter, SinkWriterContext


class DeltaWriter(SinkWriter[Any, PreparedFiles]):
    """Writes rows, or keyed changes if the target has a key.

    Args:
        context: the runtime context of the writer.
        target: the table.
        target_bytes: the target file size.
        by_place: whether to match columns to the target's by position.
    """

    def __init__(self, context: SinkWriterContext, target: Target, target_bytes: int, by_place: bool) -> None:
        self._context = context
        self._target = target
        self._by_place = by_place
        prepared = prepare(target)
        self._not_null = [column.name for column in prepared.columns if not column.nullable]
        self._run, self._number = build_transaction_name(context)
        digest = hashlib.blake2b(run_name(context).encode(), digest_size=16).hexdigest()
        kind = "changes" if target.key else "part"
        stem = f"{kind}-{context.subtask_index:05d}-{digest}"
        schema = changes_schema(target.columns) if target.key else target.columns
        partitions = () if target.key else prepared.partition_columns
        self._files = DataFilesWriter(target.place, schema, partitions, stem, target_bytes)

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if not values:
            return
        self._check_names(values[0])
        columns = to_record_batch(values, "DeltaSink", self._target.columns)
        names = columns.schema.names
        self._write(columns, kinds_of_rows(values), names == [f"f{index}" for index in range(len(names))])

    def _check_names(self, record: Any) -> None:
        """Raise `FormatError` for a record with other field names than the columns, which would be written as NULLs."""
        as_dict = getattr(record, "as_dict", None)
        if as_dict is not None and record.has_field_names:
            names = list(as_dict())
            absent = [name for name in self._target.columns.names if name not in names]
        elif isinstance(record, dict):
            names, absent = list(record), []
        else:
            return
        unknown = [name for name in names if name not in self._target.columns.names]
        if unknown or absent:
            raise FormatError(
                f"a record with the fields {', '.join(names)} does not go into the Delta table "
                f"{self._target.place.path}, whose sink has the columns {', '.join(self._target.columns.names)}"
            )

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._write(data.columns, None, self._by_place)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._write(data.columns, kinds, self._by_place)

    def _write(self, columns: pa.RecordBatch, kinds: bytes | None, by_place: bool) -> None:
        if kinds is not None and not any(kinds):
            kinds = None
        if kinds is not None and not self._target.key:
            raise UnsupportedError(
                f"the sink adds rows to the Delta table {self._target.place.path}, and got a change that is no insert: "
                "name the columns by which rows are replaced, by with_key_columns(), or a PRIMARY KEY"
            )
        batch = self._fitting(columns, by_place)
        self._check_nulls(batch, kinds)
        self._files.write(with_kinds(batch, kinds) if self._target.key else batch, self._context.now_ms())

    def _fitting(self, columns: pa.RecordBatch, by_place: bool) -> pa.RecordBatch:
        schema = self._target.columns
        if by_place and columns.num_columns == len(schema):
            columns = columns.rename_columns(schema.names)
        try:
            return exact_cast_columns(columns, schema)
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise FormatError(
                f"cannot write the columns {', '.join(columns.schema.names)} to the Delta table "
                f"{self._target.place.path}, which takes {', '.join(schema.names)}: {error}"
            ) from error

    def _check_nulls(self, batch: pa.RecordBatch, kinds: bytes | None) -> None:
        """Raise `OperationError` for invalid NULLs before rows enter a checkpoint. A deletion needs only its key."""
        for name in self._target.key:
            if batch.column(name).null_count:
                raise OperationError(
                    f"key column {name!r} is NULL in a change for the Delta table {self._target.place.path}: rows are "
                    "found by their key, so it must have a value"
                )
        for name in self._not_null if kinds is None else ():
            if batch.column(name).null_count:
                raise OperationError(
                    f"column {name!r} of the Delta table {self._target.place.path} may not be NULL, and is in a row "
                    "for it"
                )

    def prepare_commit(self) -> list[PreparedFiles]:
        """See `SinkWriter`."""
        files = self._files.finish(self._context.now_ms())
        if not files:
            return []
        number, self._number = self._number, self._number + 1
        return [PreparedFiles(self._run, number, files)]

    def close(self) -> None:
        """See `SinkWriter`."""
        self._files.discard()
