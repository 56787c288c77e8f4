"""Avro: object container files (the schema, then blocks of records), schemas, and compression of blocks.

An `AvroSchema` is parsed once, and also serves Parquet as Arrow types. Codecs have the names of Avro's specification.
"""

from __future__ import annotations

import bz2
import functools
import hashlib
import json
import lzma
import os
import zlib
from collections.abc import Iterator, Sequence
from io import SEEK_CUR, BytesIO
from typing import Any, BinaryIO, Final, Literal, get_args

import pyarrow as pa

from penstock.base.errors import FormatError
from penstock.base.types import Row
from penstock.codecs.avro_reading import AvroType, parse_record
from penstock.codecs.avro_row import AvroRowDeserializationSchema, AvroRowSerializationSchema
from penstock.codecs.avro_writing import read_long, write_long
from penstock.formats.file_format import BatchWriter, BatchWriterFactory, BulkFile, BulkFormat

_PRIMITIVES: dict[str, Any] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: dict[str, Any] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms"),
    "timestamp-micros": pa.timestamp("us"),
}


class AvroSchema:
    """The Avro schema of a record. Create one with `parse_string` or `parse_file`.

    Attributes:
        text: the schema as JSON.

    Examples:
        >>> from penstock.datastream.formats.avro import AvroSchema
        >>> schema = AvroSchema.parse_string(
        ...     '{"type": "record", "name": "Cup", "fields": [{"name": "drink", "type": "string"}]}'
        ... )
        >>> schema.field_names
        ['drink']
    """

    def __init__(self, text: str) -> None:
        self.text = text
        parse_record(text)  # raises if it is not a record schema

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """Parse the schema in a string.

        Raises:
            FormatError: if it does not describe a record.
        """
        return AvroSchema(json_schema)

    @staticmethod
    def parse_file(file_path: str | os.PathLike[str]) -> AvroSchema:
        """Parse the schema in a file.

        Raises:
            FormatError: if it does not describe a record.
            OSError: if it cannot be read.
        """
        with open(file_path, encoding="utf-8") as file:
            return AvroSchema(file.read())

    @functools.cached_property
    def record(self) -> AvroType:
        """The schema as a tree."""
        return parse_record(self.text)

    @property
    def field_names(self) -> list[str]:
        """The names of the record's fields."""
        return [field["name"] for field in json.loads(self.text)["fields"]]

    def to_arrow(self) -> pa.Schema:
        """Convert to an Arrow schema.

        Raises:
            FormatError: if it has a union of more than null and one type, or refers to a type by its name.
        """
        fields = json.loads(self.text)["fields"]
        return pa.schema([pa.field(field["name"], *_arrow(field["type"])) for field in fields])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSchema) and json.loads(self.text) == json.loads(other.text)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.text,)

    def __hash__(self) -> int:
        return hash(json.dumps(json.loads(self.text), sort_keys=True))

    def __repr__(self) -> str:
        return f"AvroSchema({self.text!r})"


def _arrow(schema: Any) -> tuple[pa.DataType, bool]:
    """Return the Arrow type, and whether it is nullable."""
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) != 1:
            raise FormatError(f"Parquet has no column for the union {schema}: only one of null and one type")
        return _arrow(branches[0])[0], len(branches) < len(schema)
    if isinstance(schema, str):
        if schema not in _PRIMITIVES:
            raise FormatError(f"the Avro type {schema!r} cannot be written to Parquet: define it where it is used")
        return _PRIMITIVES[schema], False
    kind, logical = schema["type"], schema.get("logicalType")
    if logical in _LOGICAL:
        return _LOGICAL[logical], False
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0)), False
    if kind == "record":
        return pa.struct([pa.field(field["name"], *_arrow(field["type"])) for field in schema["fields"]]), False
    if kind == "array":
        return pa.list_(pa.field("element", *_arrow(schema["items"]))), False
    if kind == "map":
        return pa.map_(pa.string(), pa.field("value", *_arrow(schema["values"]))), False
    if kind == "enum":
        return pa.string(), False
    if kind == "fixed":
        return pa.binary(schema["size"]), False
    return _arrow(kind)


#: Avro's deflated blocks have no header.
_RAW_DEFLATE: Final = -15
_CHECKSUM_BYTES: Final = 4
_VARINT_BYTES_MAX: Final = 5


def compress_block(data: bytes, codec: str) -> bytes:
    """Compress a block for a file. Raises `FormatError` for a codec unknown to Avro."""
    match codec:
        case "null":
            return data
        case "deflate":
            deflating = zlib.compressobj(wbits=_RAW_DEFLATE)
            return deflating.compress(data) + deflating.flush()
        case "snappy":
            compressed: bytes = pa.compress(data, "snappy", asbytes=True)
            return compressed + zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "big")
        case "bzip2":
            return bz2.compress(data)
        case "xz":
            return lzma.compress(data)
        case "zstandard":
            result: bytes = pa.compress(data, "zstd", asbytes=True)
            return result
    raise FormatError(f"Avro has no codec {codec!r}")


def decompress_block(data: bytes, codec: str) -> bytes:
    """Decompress a block of a file. Raises `FormatError` for damaged bytes and unknown codecs."""
    try:
        match codec:
            case "null":
                return data
            case "deflate":
                return zlib.decompress(data, _RAW_DEFLATE)
            case "snappy":
                return _snappy(data)
            case "bzip2":
                return bz2.decompress(data)
            case "xz":
                return lzma.decompress(data)
            case "zstandard":
                # A block need not state its uncompressed size.
                decompressed: bytes = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
                return decompressed
    except (zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, pa.ArrowException) as error:
        raise FormatError(f"it cannot be decompressed by {codec}: {error}") from error
    raise FormatError(f"Avro has no codec {codec!r}")


def _snappy(data: bytes) -> bytes:
    compressed, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    size = 0
    for index, byte in enumerate(compressed[:_VARINT_BYTES_MAX]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    decompressed: bytes = pa.decompress(compressed, size, "snappy", asbytes=True)
    if zlib.crc32(decompressed).to_bytes(_CHECKSUM_BYTES, "big") != checksum:
        raise ValueError("its checksum is another one")
    return decompressed


_MAGIC: Final = b"Obj\x01"
#: A block is written once it has this many bytes.
_BLOCK_BYTES: Final = 64 << 10
_SYNC_BYTES: Final = 16
#: The maximum size of a count or length prefix.
_LONG_BYTES_MAX: Final = 10
_HEADER_BYTES_MAX: Final = 16 << 20

Codec = Literal["null", "deflate", "snappy", "bzip2", "xz", "zstandard"]


class AvroWriterFactory(BatchWriterFactory[Any]):
    """Writes records (dicts, rows or tuples) to Avro files, for `FileSink.for_bulk_format`.

    Args:
        schema: the schema of a record.
        codec: the compression of blocks, by Avro's name; `null` for none.

    Examples:
        >>> from pathlib import Path
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import BucketAssigner, FileSink
        >>> from penstock.datastream.formats.avro import AvroSchema, AvroWriterFactory
        >>> schema = AvroSchema.parse_string(
        ...     '{"type": "record", "name": "Cup", "fields": [{"name": "drink", "type": "string"}]}'
        ... )
        >>> files = FileSink.for_bulk_format("orders", AvroWriterFactory(schema))
        >>> files = files.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.from_elements({"drink": "tea"}).sink_to(files.build())
        >>> result = env.execute()
        >>> (path,) = Path("orders").glob("part-*")
        >>> path.read_bytes()[:3]
        b'Obj'
    """

    def __init__(self, schema: AvroSchema, codec: Codec = "null") -> None:
        self.schema = schema
        self.codec = codec

    def create(self, stream: BinaryIO) -> BatchWriter[Any]:
        """Create a writer for a new, empty file."""
        return _AvroWriter(self.schema, stream, self.codec)


class _AvroWriter(BatchWriter[Any]):
    def __init__(self, schema: AvroSchema, stream: BinaryIO, codec: Codec) -> None:
        self._serialize = AvroRowSerializationSchema(avro_schema_string=schema.text).serialize
        self._stream = stream
        self._codec = codec
        self._block: list[bytes] = []
        self._block_bytes = 0
        # The sync marker between blocks should be unlike the records; it need not be secret.
        self._sync = hashlib.blake2b(schema.text.encode(), digest_size=16, person=b"avro sync").digest()
        header = bytearray(_MAGIC)
        metadata = {"avro.schema": schema.text.encode(), "avro.codec": codec.encode()}
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
            data = b"".join(self._block)
            data = compress_block(data, self._codec)
            head = bytearray()
            write_long(head, len(self._block))
            write_long(head, len(data))
            self._stream.write(b"".join([bytes(head), data, self._sync]))
            self._block, self._block_bytes = [], 0

    def finish(self) -> None:
        self.flush()

    def discard(self) -> None:
        self._block = []


class AvroFileFormat(BulkFormat[Row]):
    """Reads Avro files, shared by blocks. Each record becomes a `Row` with the names of the file's own schema.

    Blocks may use any codec of Avro's specification. The schema may be a union of null and a record, as in Flink's
    files.
    """

    def open(self, file: BinaryIO) -> BulkFile[Row]:
        """See `BulkFormat`."""
        return _AvroFile(file)


class _AvroFile(BulkFile[Row]):
    """An open file; each block is a unit."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        file.seek(0)
        source = BytesIO(file.read(_HEADER_BYTES_MAX))
        if source.read(len(_MAGIC)) != _MAGIC:
            raise FormatError("not an Avro file")
        try:
            metadata = _metadata(source)
            schema, self._is_union = _to_record_schema(metadata["avro.schema"].decode())
            self._schema = AvroRowDeserializationSchema(avro_schema_string=schema)
        except (EOFError, KeyError, ValueError) as error:
            raise FormatError(f"the header of the Avro file cannot be read: {error}") from error
        self._codec = metadata.get("avro.codec", b"null").decode()
        if self._codec not in get_args(Codec):
            raise FormatError(f"Avro's codec {self._codec!r} is not supported. There are {', '.join(get_args(Codec))}")
        self._sync = source.read(_SYNC_BYTES)
        self._blocks = self._find_blocks(source.tell())

    def units(self, start: int, end: int | None) -> Sequence[int]:
        ends = float("inf") if end is None else end
        return [unit for unit, (at, _, _, _) in enumerate(self._blocks) if start <= at < ends]

    def read(self, unit: int, skip_records: int) -> Iterator[list[Row]]:
        _, data_at, count, size = self._blocks[unit]
        self._file.seek(data_at)
        data = self._file.read(size)
        if self._file.read(_SYNC_BYTES) != self._sync:
            raise FormatError(f"block {unit + 1} is damaged: it does not end with the file's mark")
        try:
            records = self._schema.deserialize_many(decompress_block(data, self._codec), count)
        except FormatError as error:
            raise FormatError(f"block {unit + 1}: {error}") from error
        if self._is_union:
            records = [record[0] for record in records]
            for number, record in enumerate(records, start=1):
                if record is None:
                    raise FormatError(f"block {unit + 1}: record {number} is null")
        yield records[skip_records:]

    def _find_blocks(self, at: int) -> list[tuple[int, int, int, int]]:
        """Return, for each block, its start, the start of its data, its number of records, and its size in bytes."""
        blocks: list[tuple[int, int, int, int]] = []
        while True:
            self._file.seek(at)
            source = BytesIO(self._file.read(2 * _LONG_BYTES_MAX))
            if not source.getbuffer().nbytes:
                return blocks
            try:
                count, size = read_long(source), read_long(source)
            except (EOFError, ValueError) as error:
                raise FormatError(f"block {len(blocks) + 1} has no beginning: {error}") from error
            if count < 0 or size < 0:
                raise FormatError(f"block {len(blocks) + 1} has a negative size")
            data_at = at + source.tell()
            blocks.append((at, data_at, count, size))
            at = data_at + size + _SYNC_BYTES


def _to_record_schema(schema: str) -> tuple[str, bool]:
    """Return the record schema for a file's schema, and whether the latter is a union of null and a record.

    Byte for byte, a value of such a union is a record with one field of that type.
    """
    parsed = json.loads(schema)
    if not isinstance(parsed, list):
        return schema, False
    records = [branch for branch in parsed if isinstance(branch, dict) and branch.get("type") == "record"]
    if len(records) != 1 or len(parsed) > 2 or any(branch not in ("null", records[0]) for branch in parsed):
        return schema, False
    return json.dumps({"type": "record", "name": "penstock_row", "fields": [{"name": "row", "type": parsed}]}), True


def read_header(file: BinaryIO) -> bytes:
    """Read the header of a file, up to and with its mark; the file is then at its first block.

    Raises:
        FormatError: if it is not an Avro file.
    """
    start = file.tell()
    source = BytesIO(file.read(_HEADER_BYTES_MAX))
    try:
        if source.read(len(_MAGIC)) != _MAGIC:
            raise FormatError("not an Avro file")
        _metadata(source)
    except (EOFError, ValueError) as error:
        raise FormatError(f"the header of the Avro file cannot be read: {error}") from error
    source.seek(_SYNC_BYTES, SEEK_CUR)
    header = source.getvalue()[: source.tell()]
    file.seek(start + len(header))
    return header


def _metadata(source: BytesIO) -> dict[str, bytes]:
    metadata = {}
    while count := read_long(source):
        if count < 0:
            read_long(source)
        for _ in range(abs(count)):
            name = source.read(read_long(source)).decode()
            metadata[name] = source.read(read_long(source))
    return metadata
