"""Files of messages, one per line, read and written as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from penstock.codecs.column_data import ChangeData, ColumnData
from penstock.formats.bulk_format import BatchWriter, BatchWriterFactory
from penstock.formats.message_lines import MessageLinesDecoder
from penstock.formats.stream_format import LineDecoder, StreamFormat
from penstock.table.connectors.formats.format import MessageDecoder, MessageEncoder
from penstock.table.data.values import to_column
from penstock.table.plan.row_schema import RowSchema


class LinesFormat(StreamFormat[Any]):
    """Reads lines as columns.

    Args:
        decoder: turns lines into rows.
        skips_empty: whether empty lines are skipped.
        skips_bad: whether invalid lines are skipped.
        splittable: whether several readers may share a file.
    """

    def __init__(self, decoder: MessageDecoder, *, skips_empty: bool, skips_bad: bool, splittable: bool = True) -> None:
        super().__init__("skip" if skips_bad else "fail")
        self.splittable = splittable
        self._decoder = decoder
        self._skips_empty = skips_empty

    def create_decoder(self, header: bytes) -> LineDecoder[Any]:
        """See `StreamFormat`."""
        return MessageLinesDecoder(self._decoder.decode, self._skips_empty)


class LinesWriterFactory(BatchWriterFactory[Any]):
    """Writes each row as a line. `schema`: the columns of rows that arrive one by one."""

    def __init__(self, encoder: MessageEncoder, schema: RowSchema) -> None:
        self._encoder = encoder
        self._schema = schema

    def create(self, stream: BinaryIO) -> BatchWriter[Any]:
        """See `BatchWriterFactory`."""
        return _LinesWriter(self._encoder, self._schema, stream)


class ColumnsWriter(BatchWriter[Any]):
    """Base class of writers that take columns. Rows are tuples of internal values; see `data.values`."""

    def __init__(self, schema: RowSchema) -> None:
        self._schema = schema

    def add_elements(self, elements: Sequence[Any]) -> None:
        """Turn rows into columns and write them."""
        columns = list(zip(*elements, strict=True))
        arrays = [to_column(values, kind) for values, kind in zip(columns, self._schema.types, strict=True)]
        self.add_columns(ColumnData(pa.RecordBatch.from_arrays(arrays, self._schema.names)))

    def flush(self) -> None:
        """Do nothing: rows are not buffered."""

    def finish(self) -> None:
        """Do nothing: all data is already written."""


class _LinesWriter(ColumnsWriter):
    def __init__(self, encoder: MessageEncoder, schema: RowSchema, stream: BinaryIO) -> None:
        super().__init__(schema)
        self._encoder = encoder
        self._stream = stream

    def add_columns(self, data: ColumnData) -> None:
        if isinstance(data, ChangeData):
            changes = self._encoder.encode_changes(data.columns, data.kinds)
            self._stream.write(b"".join([change + b"\n" for change in changes]))
        else:
            self._stream.write(self._encoder.lines(data.columns))
