"""Reads Arrow IPC files, also known as Feather version 2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from penstock.base.errors import FormatError
from penstock.codecs.column_data import COLUMN_BATCH_ROWS, ColumnData
from penstock.formats.bulk_format import BulkFile, BulkFormat


class ArrowIpcFormat(BulkFormat[Any]):
    """Reads Arrow IPC files as columns; operators that work record by record get rows with names.

    A file is read by one subtask.

    Args:
        columns: names of the columns to read, in output order; None for all.
    """

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        self.columns = None if columns is None else list(columns)

    def open(self, file: BinaryIO) -> BulkFile[Any]:
        try:
            return _ArrowIpcFile(pa.ipc.open_file(file), self.columns)
        except pa.ArrowException as error:
            raise FormatError(f"not an Arrow IPC file: {error}") from error


class _ArrowIpcFile(BulkFile[Any]):
    """An open file; each record batch is a unit."""

    def __init__(self, file: Any, columns: list[str] | None) -> None:
        self._file = file
        self._columns = list(file.schema.names) if columns is None else columns
        if missing := [name for name in self._columns if name not in file.schema.names]:
            raise FormatError(f"the file has no column {', '.join(map(repr, missing))}")

    def units(self, start: int, end: int | None) -> Sequence[int]:
        return range(self._file.num_record_batches) if start == 0 else ()

    def read(self, unit: int, skip_records: int) -> Iterator[list[Any] | ColumnData]:
        try:
            batch = self._file.get_batch(unit).select(self._columns)
        except pa.ArrowException as error:
            raise FormatError(f"record batch {unit} cannot be read: {error}") from error
        for begin in range(skip_records, batch.num_rows, COLUMN_BATCH_ROWS):
            yield ColumnData(batch.slice(begin, COLUMN_BATCH_ROWS))
