"""Files made of messages: each is a line, read and written as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from penstock.codecs.column_data import ColumnData
from penstock.formats.bulk_format import BatchWriter, BatchWriterFactory
from penstock.formats.stream_format import DecodedBlock, LineDecoder, Malformed, StreamFormat, split_lines
from penstock.table.connectors.formats.format import MessageDecoder, MessageEncoder
from penstock.table.data.values import column_of
from penstock.table.plan.row_schema import RowSchema


class LinesFormat(StreamFormat[Any]):
    """Reads lines as columns. `skips_empty`: whether an empty line is no row."""

    def __init__(self, decoder: MessageDecoder, *, skips_empty: bool, skips_bad: bool) -> None:
        super().__init__("skip" if skips_bad else "fail")
        self._decoder = decoder
        self._skips_empty = skips_empty

    def create_decoder(self, header: bytes) -> LineDecoder[Any]:
        """See `StreamFormat`."""
        return _LinesDecoder(self._decoder, self._skips_empty)


class _LinesDecoder(LineDecoder[Any]):
    def __init__(self, decoder: MessageDecoder, skips_empty: bool) -> None:
        self._decoder = decoder
        self._skips_empty = skips_empty

    def decode(self, block: bytes, last: bool) -> DecodedBlock:
        lines = split_lines(block)
        kept = [place for place, line in enumerate(lines) if line] if self._skips_empty else list(range(len(lines)))
        found = self._decoder.decode(lines if len(kept) == len(lines) else [lines[place] for place in kept])
        bad = [
            Malformed(kept[one.place], one.reason, lines[kept[one.place]].decode("utf-8", "replace"))
            for one in found.bad
        ]
        return DecodedBlock(ColumnData(found.columns), bad, len(block))

    def decode_lines(self, block: bytes) -> list[Any]:
        return list(self.decode(block, True).values)

    def decode_line(self, line: bytes) -> Any:
        return self.decode_lines(line)[0]


class LinesWriterFactory(BatchWriterFactory[Any]):
    """Writes each row as a line. `types`: those of the columns, for rows that come one by one."""

    def __init__(self, encoder: MessageEncoder, schema: RowSchema) -> None:
        self._encoder = encoder
        self._schema = schema

    def create(self, stream: BinaryIO) -> BatchWriter[Any]:
        """See `BatchWriterFactory`."""
        return _LinesWriter(self._encoder, self._schema, stream)


class ColumnsWriter(BatchWriter[Any]):
    """The base of writers that take columns. Rows are tuples of held values, see `data.values`."""

    def __init__(self, schema: RowSchema) -> None:
        self._schema = schema

    def add_elements(self, elements: Sequence[Any]) -> None:
        """Makes columns of rows."""
        columns = list(zip(*elements, strict=True))
        arrays = [column_of(values, kind) for values, kind in zip(columns, self._schema.types, strict=True)]
        self.add_columns(ColumnData(pa.RecordBatch.from_arrays(arrays, self._schema.names)))

    def flush(self) -> None:
        """Nothing is held back."""

    def finish(self) -> None:
        """Nothing is left to do."""


class _LinesWriter(ColumnsWriter):
    def __init__(self, encoder: MessageEncoder, schema: RowSchema, stream: BinaryIO) -> None:
        super().__init__(schema)
        self._encoder = encoder
        self._stream = stream

    def add_columns(self, data: ColumnData) -> None:
        self._stream.write(self._encoder.lines(data.columns))
