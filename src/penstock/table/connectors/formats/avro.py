"""`avro`: records whose schema is derived from the table's columns, as messages and in object container files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from typing import Any, BinaryIO, Final, get_args

import pyarrow as pa

from penstock.base.config_options import ConfigOption
from penstock.base.errors import FormatError, PenstockError, UnsupportedError
from penstock.base.types import Row
from penstock.base.value_types import choice
from penstock.codecs.column_data import ColumnData
from penstock.formats.avro_files import AvroFileFormat, AvroWriterFactory, Codec
from penstock.formats.avro_schema import AvroSchema
from penstock.formats.bulk_format import BatchWriter, BatchWriterFactory, BulkFile, BulkFormat
from penstock.table.connectors.formats.avro_messages import (
    AvroMessageDecoder,
    AvroMessageEncoder,
    PlainRecords,
    PlainWriting,
)
from penstock.table.connectors.formats.format import Decoding, Encoding, TableFormat
from penstock.table.connectors.formats.json_options import switch
from penstock.table.connectors.formats.lines import ColumnsWriter
from penstock.table.connectors.table_options import TableOptions
from penstock.table.data import logical_types as types
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.conversion import to_external, to_internal
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import to_column, to_values
from penstock.table.plan.row_schema import PlanColumn, RowSchema

CODEC: Final = ConfigOption(
    "codec",
    choice(*get_args(Codec)),
    "deflate",
    "The compression of blocks in files; no effect on messages. Flink's default is `snappy`.",
)
ENCODING: Final = ConfigOption(
    "encoding", choice("binary"), "binary", "The encoding of messages; JSON is not supported."
)
LEGACY_TIMESTAMPS: Final = ConfigOption(
    "timestamp_mapping.legacy",
    choice("true"),
    "true",
    "TIMESTAMP and TIMESTAMP_LTZ are both written as an instant; no other mapping is supported.",
)
IGNORE_ERRORS: Final = switch("ignore-parse-errors", "Whether to skip and count messages that are not rows.")
_PLAIN: Final[dict[type[DataType], str]] = {
    types.BooleanType: "boolean",
    types.TinyIntType: "int",
    types.SmallIntType: "int",
    types.IntType: "int",
    types.BigIntType: "long",
    types.FloatType: "float",
    types.DoubleType: "double",
    types.CharType: "string",
    types.VarCharType: "string",
    types.BinaryType: "bytes",
    types.VarBinaryType: "bytes",
}
_TEXTS: Final = (types.CharType, types.VarCharType)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MICROSECOND_DIGITS: Final = 6
#: the namespace of the records that Flink derives from tables
_NAMESPACE: Final = "org.apache.flink.avro.generated"


class AvroTableFormat(TableFormat):
    """See the module docstring. Columns are found by name."""

    name = "avro"
    options = (CODEC, ENCODING, LEGACY_TIMESTAMPS, IGNORE_ERRORS)

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> Decoding:
        """See `TableFormat`."""
        written = avro_schema(schema)  # raises for types that Avro lacks
        columns = RowSchema(tuple(schema[index] for index in wanted))
        decoder = AvroMessageDecoder(columns, PlainRecords(written, avro_schema(columns)))
        return Decoding(AvroColumnsFormat(columns), decoder, options.read(IGNORE_ERRORS))

    def encoding(self, schema: RowSchema, options: TableOptions) -> Encoding:
        """See `TableFormat`."""
        encoder = AvroMessageEncoder(schema, PlainWriting(avro_schema(schema)))
        return Encoding(_WriterFactory(schema, options.read(CODEC)), encoder)


def avro_schema(schema: RowSchema) -> AvroSchema:
    """Return the record schema of a row. Raises `UnsupportedError` for columns that Avro cannot store."""
    return AvroSchema.parse_string(json.dumps(_record(schema)))


def debezium_schema(schema: RowSchema) -> AvroSchema:
    """Return the schema of Debezium's change records, with the previous and the new row."""
    before, after = (["null", _record(schema, f"record_{part}", namespace=None)] for part in ("before", "after"))
    fields = [
        {"name": "before", "type": before, "default": None},
        {"name": "after", "type": after, "default": None},
        {"name": "op", "type": ["null", "string"], "default": None},
    ]
    return AvroSchema.parse_string(
        json.dumps({"type": "record", "name": "record", "namespace": _NAMESPACE, "fields": fields})
    )


def _record(schema: RowSchema, name: str = "record", namespace: str | None = _NAMESPACE) -> dict[str, Any]:
    fields = [_field(column.name, column.type, column, name) for column in schema]
    named = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {"type": "record", **named, "fields": fields}


def _field(name: str, kind: DataType, column: PlanColumn, inside: str) -> dict[str, Any]:
    """Return a field; a nullable one defaults to NULL if the data lacks it."""
    return {
        "name": _checked(name),
        "type": _type(kind, column, f"{inside}_{name}"),
        **({"default": None} if kind.is_nullable else {}),
    }


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UnsupportedError(f"Avro has no field '{name}': names are letters, digits and _")
    return name


def _type(kind: DataType, column: PlanColumn, name: str) -> Any:
    inner = _not_null(kind, column, name)
    return ["null", inner] if kind.is_nullable else inner


def _not_null(kind: DataType, column: PlanColumn, name: str) -> Any:
    if type(kind) in _PLAIN:
        return _PLAIN[type(kind)]
    match kind:
        case types.DecimalType(precision=precision, scale=scale):
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        case types.DateType():
            return {"type": "int", "logicalType": "date"}
        case types.TimeType():
            return {"type": "int", "logicalType": "time-millis"}
        case types.TimestampType(precision=digits) | types.LocalZonedTimestampType(precision=digits):
            if digits <= _MICROSECOND_DIGITS:
                return {"type": "long", "logicalType": "timestamp-millis" if digits <= 3 else "timestamp-micros"}
        case types.RowType():
            fields = [_field(field.name, field.data_type, column, name) for field in kind.fields]
            return {"type": "record", "name": name, "fields": fields}
        case types.MultisetType(element_type=element) if isinstance(element, _TEXTS):
            return {"type": "map", "values": "int"}
        case types.MapType(key_type=key, value_type=item) if isinstance(key, _TEXTS):
            return {"type": "map", "values": _type(item, column, name)}
        case types.ArrayType(element_type=element) if not isinstance(kind, types.MultisetType):
            return {"type": "array", "items": _type(element, column, name)}
    raise UnsupportedError(f"Avro has no form for column '{column.name}' of type {column.type}")


class AvroColumnsFormat(BulkFormat[Any]):
    """Reads the records of a file as columns."""

    def __init__(self, schema: RowSchema) -> None:
        self._schema = schema

    def open(self, file: BinaryIO) -> BulkFile[Any]:
        """See `BulkFormat`."""
        return _ColumnsFile(AvroFileFormat().open(file), self._schema)


class _ColumnsFile(BulkFile[Any]):
    def __init__(self, inner: BulkFile[Row], schema: RowSchema) -> None:
        self._inner = inner
        self._schema = schema
        self._helds = [_to_internal(kind) for kind in schema.types]

    def units(self, start: int, end: int | None) -> Sequence[int]:
        return self._inner.units(start, end)

    def read(self, unit: int, skip_records: int) -> Iterator[list[Any] | ColumnData]:
        for records in self._inner.read(unit, skip_records):
            assert isinstance(records, list)
            present = records[0].as_dict() if records else self._schema.names
            arrays = []
            for column, convert in zip(self._schema, self._helds, strict=True):
                try:
                    if column.type.is_nullable and column.name not in present:
                        arrays.append(pa.nulls(len(records), arrow_type(column.type)))
                        continue
                    values = [convert(record[column.name]) for record in records]
                    arrays.append(to_column(values, column.type))
                except KeyError as error:
                    raise FormatError(f"the file has no column '{column.name}', which is NOT NULL") from error
                except (pa.ArrowException, PenstockError, TypeError, ValueError, OverflowError) as error:
                    raise FormatError(f"column '{column.name}' cannot be read as {column.type}: {error}") from error
            yield ColumnData(pa.RecordBatch.from_arrays(arrays, self._schema.names))


def _to_internal(kind: DataType) -> Callable[[Any], Any]:
    """Return `to_internal` for values whose nested rows may lack fields; these are NULL."""
    convert, complete = to_internal(kind, UTC), _build_completion(kind)
    return convert if complete is None else lambda value: convert(complete(value))


def _build_completion(kind: DataType) -> Callable[[Any], Any] | None:
    """Return a function that adds missing fields to nested rows, by name; None for types that contain no rows."""
    if isinstance(kind, types.RowType):
        return _row_completion(kind)
    if isinstance(kind, types.MapType):
        of_item = _build_completion(kind.value_type)
        if of_item is None:
            return None
        return lambda value: None if value is None else {key: of_item(item) for key, item in value.items()}
    if isinstance(kind, types.ArrayType) and not isinstance(kind, types.MultisetType):
        of_element = _build_completion(kind.element_type)
        if of_element is None:
            return None
        return lambda value: None if value is None else [of_element(element) for element in value]
    return None


def _row_completion(kind: types.RowType) -> Callable[[Any], Any]:
    fields = [(field.name, field.data_type, _build_completion(field.data_type)) for field in kind.fields]

    def complete(value: Any) -> Any:
        if not isinstance(value, Row):
            return value
        present, values = value.as_dict(), []
        for name, data_type, of_field in fields:
            if name not in present and not data_type.is_nullable:
                raise FormatError(f"the file has no field '{name}', which is NOT NULL")
            field = present.get(name)
            values.append(field if of_field is None else of_field(field))
        return tuple(values)

    return complete


class _WriterFactory(BatchWriterFactory[Any]):
    def __init__(self, schema: RowSchema, codec: Any) -> None:
        self._schema = schema
        self._inner = AvroWriterFactory(avro_schema(schema), codec)

    def create(self, stream: BinaryIO) -> BatchWriter[Any]:
        return _Writer(self._schema, self._inner.create(stream))


class _Writer(ColumnsWriter):
    def __init__(self, schema: RowSchema, inner: BatchWriter[Any]) -> None:
        super().__init__(schema)
        self._inner = inner
        self._seens = [to_external(kind, UTC) for kind in schema.types]

    def add_columns(self, data: ColumnData) -> None:
        columns = [
            [convert(value) for value in to_values(column, kind)]
            for column, kind, convert in zip(data.columns.columns, self._schema.types, self._seens, strict=True)
        ]
        self._inner.add_elements(list(zip(*columns, strict=True)))

    def flush(self) -> None:
        self._inner.flush()

    def finish(self) -> None:
        self._inner.finish()

    def discard(self) -> None:
        self._inner.discard()
