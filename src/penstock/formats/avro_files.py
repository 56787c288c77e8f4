"""Avro's object container files, as a sink writes them: the schema, then blocks of records."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

from penstock.codecs.avro_row import AvroRowSerializationSchema, write_long
from penstock.formats.avro_schema import AvroSchema
from penstock.formats.bulk_format import BatchWriter, BatchWriterFactory

_MAGIC: Final = b"Obj\x01"
#: A block is written when it has this many bytes.
_BLOCK_BYTES: Final = 64 << 10


class AvroWriterFactory(BatchWriterFactory[Any]):
    """Writes records (dicts, rows or tuples) to Avro files without compression, for `FileSink.for_bulk_format`."""

    def __init__(self, schema: AvroSchema) -> None:
        self.schema = schema

    def create(self, stream: BinaryIO) -> BatchWriter[Any]:
        """Returns a writer to a new, empty file."""
        return _AvroWriter(self.schema, stream)


class _AvroWriter(BatchWriter[Any]):
    def __init__(self, schema: AvroSchema, stream: BinaryIO) -> None:
        self._serialize = AvroRowSerializationSchema(avro_schema_string=schema.text).serialize
        self._stream = stream
        self._block: list[bytes] = []
        self._block_bytes = 0
        # What stands between blocks should be unlike the records; it need not be secret.
        self._sync = hashlib.blake2b(schema.text.encode(), digest_size=16, person=b"avro sync").digest()
        header = bytearray(_MAGIC)
        metadata = {"avro.schema": schema.text.encode(), "avro.codec": b"null"}
        write_long(header, len(metadata))
        for name, value in metadata.items():
            for part in (name.encode(), value):
                write_long(header, len(part))
                header += part
        write_long(header, 0)
        stream.write(bytes(header) + self._sync)

    def add_elements(self, elements: Sequence[Any]) -> None:
        for element in elements:
            data = self._serialize(element)
            self._block.append(data)
            self._block_bytes += len(data)
            if self._block_bytes >= _BLOCK_BYTES:
                self.flush()

    def flush(self) -> None:
        if self._block:
            head = bytearray()
            write_long(head, len(self._block))
            write_long(head, self._block_bytes)
            self._stream.write(b"".join([bytes(head), *self._block, self._sync]))
            self._block, self._block_bytes = [], 0

    def finish(self) -> None:
        self.flush()

    def discard(self) -> None:
        self._block = []
