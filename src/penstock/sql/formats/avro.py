"""`avro`, `avro-confluent` and `debezium-avro-confluent`: Avro records as messages and in object container files.

`avro` derives the schema from the table's columns. The other two have their schemas in a schema registry. Messages are
read and written directly in the internal representation of values.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC
from typing import Any, BinaryIO, Final, Protocol, get_args

import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions, choice
from penstock.base.errors import ConfigurationError, FormatError, PenstockError, UnsupportedError
from penstock.base.types import Row
from penstock.codecs.avro_reading import READ_ERRORS, AvroType, RecordReader
from penstock.codecs.avro_row import decimals, decode_decimal
from penstock.codecs.avro_writing import WRITE_ERRORS, Logical, RecordWriter
from penstock.codecs.column_data import ColumnData
from penstock.codecs.serialization import Deserialized
from penstock.formats.avro import AvroFileFormat, AvroSchema, AvroWriterFactory, Codec
from penstock.formats.avro_confluent import RegistryReader, RegistrySettings, RegistryWriter
from penstock.formats.file_format import BatchWriter, BatchWriterFactory, BulkFile, BulkFormat
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, to_column, to_values
from penstock.sql.data.conversion import to_external, to_internal
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.formats import changelog_json, format
from penstock.sql.formats.json import switch
from penstock.sql.logical.nodes import ALL, INSERT, UPDATE_AFTER, PlanColumn, RowSchema
from penstock.sql.tables.connector import TableOptions

#: nanoseconds in one Avro unit of a timestamp
_TIMESTAMP_NS: Final = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}
_MICROSECONDS: Final = 1_000


class HeldValues:
    """Converts Avro values to and from the form in `penstock.sql.data.arrow`, for `RecordReader` and `RecordWriter`."""

    def lift(self, logical: AvroType) -> Callable[[Any], Any] | None:
        """See `Values`."""
        name = str(logical.logical)
        if name == "decimal":
            scale = logical.scale
            return lambda data: decode_decimal(data, scale)
        if name == "time-micros":
            return lambda value: value // _MICROSECONDS
        if (unit := _unit(name)) is not None:
            return lambda value: value * unit
        return None

    def record(self, fields: Sequence[str]) -> Callable[[list[Any]], Any]:
        """See `Values`."""
        return tuple

    def mapping(self, entries: dict[str, Any]) -> Any:
        """See `Values`."""
        return list(entries.items())

    def lower(self, logical: AvroType) -> Logical | None:
        """See `Lowers`."""
        name = str(logical.logical)
        if name == "decimal":
            return decimals(logical)
        if name == "time-micros":
            return Logical(_is_whole, lambda value: value * _MICROSECONDS)
        if name == "uuid" and logical.kind == "fixed":
            return Logical(lambda value: isinstance(value, str | bytes), _uuid_bytes)
        if (unit := _unit(name)) is not None:
            return Logical(_is_whole, lambda value: value // unit, lambda value: value % unit == 0)
        return None

    def entries(self, value: Any) -> Iterable[tuple[Any, Any]] | None:
        """See `Lowers`."""
        return value if isinstance(value, list) else None


def _unit(logical: str) -> int | None:
    kind, _, unit = logical.rpartition("-")
    return _TIMESTAMP_NS.get(unit) if kind in ("timestamp", "local-timestamp") else None


def _uuid_bytes(value: str | bytes) -> bytes:
    return uuid.UUID(value).bytes if isinstance(value, str) else value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class RecordsReader(Protocol):
    """Reads the records in messages as lists of values, in the order of a table's columns."""

    def values(self, message: bytes, /) -> list[Any]:
        """Return the values of one message. Raises one of `BAD_RECORD`, with the field, if it is not a valid record."""
        ...

    def many(self, messages: Sequence[bytes], /) -> list[list[Any]] | None:
        """Return the values of many messages; None if they must be read one by one.

        Raises one of `READ_ERRORS` if a message is not a valid record.
        """
        ...


class PlainRecords:
    """Records without an envelope, all of one schema."""

    def __init__(self, written: AvroSchema, reader_schema: AvroSchema) -> None:
        self._parts = written, reader_schema
        self._reader = RecordReader(written.record, reader_schema.record, HeldValues(), narrows=True)

    def values(self, message: bytes) -> list[Any]:
        """See `RecordsReader`."""
        try:
            return self._reader.values(message)
        except READ_ERRORS as error:
            raise FormatError(self._reader.reason(error)) from error

    def many(self, messages: Sequence[bytes]) -> list[list[Any]] | None:
        """See `RecordsReader`."""
        return self._reader.many(messages)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


class AvroMessageDecoder(format.MessageDecoder):
    """Reads messages of one record each as rows of these columns."""

    def __init__(self, schema: RowSchema, records: RecordsReader) -> None:
        self._schema = schema
        self._records = records

    def decode(self, messages: Sequence[bytes]) -> Deserialized:
        """See `MessageDecoder`."""
        try:
            rows = self._records.many(messages)
            if rows is not None:
                return format.decoded(format.columns_of_rows(rows, self._schema), len(messages))
        except (*READ_ERRORS, FormatError):
            pass
        return format.decode_rows(messages, self._records.values, self._schema)


class RecordsWriter(Protocol):
    """Writes rows of internal values."""

    def messages(self, rows: Sequence[Any], /) -> list[bytes]:
        """Return the message of each row. Raises FormatError for a row that does not fit the schema."""
        ...


class PlainWriting:
    """Writes records without an envelope."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._writer = RecordWriter(schema.record, HeldValues())

    def messages(self, rows: Sequence[Any]) -> list[bytes]:
        """See `RecordsWriter`."""
        return written(lambda records: list(map(self._writer.record, records)), rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._schema,)


class AvroMessageEncoder(format.MessageEncoder):
    """Writes each row as a record."""

    def __init__(self, schema: RowSchema, writing: RecordsWriter) -> None:
        self._schema = schema
        self._writing = writing

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """See `MessageEncoder`."""
        return self._writing.messages(format.rows_of_columns(columns, self._schema))


def written(write: Callable[[Sequence[Any]], list[bytes]], rows: Sequence[Any]) -> list[bytes]:
    """Return the messages that a function writes for rows. Raises FormatError instead of one of `WRITE_ERRORS`."""
    try:
        return write(rows)
    except WRITE_ERRORS as error:
        raise FormatError(f"a row cannot be written as Avro: {error}") from error


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


class AvroTableFormat(format.TableFormat):
    """See the module docstring. Columns are found by name."""

    name = "avro"
    options = (CODEC, ENCODING, LEGACY_TIMESTAMPS, IGNORE_ERRORS)

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> format.Decoding:
        """See `TableFormat`."""
        written = avro_schema(schema)  # raises for types that Avro lacks
        columns = RowSchema(tuple(schema[index] for index in wanted))
        decoder = AvroMessageDecoder(columns, PlainRecords(written, avro_schema(columns)))
        return format.Decoding(AvroColumnsFormat(columns), decoder, options.read(IGNORE_ERRORS))

    def encoding(self, schema: RowSchema, options: TableOptions) -> format.Encoding:
        """See `TableFormat`."""
        encoder = AvroMessageEncoder(schema, PlainWriting(avro_schema(schema)))
        return format.Encoding(_WriterFactory(schema, options.read(CODEC)), encoder)


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


class _Writer(format.ColumnsWriter):
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


def _text(key: str, description: str) -> ConfigOption[str | None]:
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


URL: Final = _text("url", "The URL of the schema registry, or several separated by commas. Required.")
SUBJECT: Final = _text("subject", "The subject under which the schema is registered. Required for writing.")
SCHEMA: Final = _text("schema", "The schema to register for writing; by default derived from the table's columns.")
CERTIFICATES: Final = _text("ssl.truststore.location", "A PEM file with the trusted certificates.")
OWN_CERTIFICATE: Final = _text("ssl.keystore.location", "A PEM file with a certificate and its key.")
OWN_PASSWORD: Final = _text("ssl.keystore.password", "The password of that key.")
BASIC_SOURCE: Final = ConfigOption(
    "basic-auth.credentials-source",
    choice("USER_INFO"),
    "USER_INFO",
    "The source of the name and password: the next option.",
)
USER_INFO: Final = _text("basic-auth.user-info", "The name and password, separated by a colon.")
TOKEN_SOURCE: Final = ConfigOption(
    "bearer-auth.credentials-source",
    choice("STATIC_TOKEN"),
    "STATIC_TOKEN",
    "The source of the token: the next option.",
)
TOKEN: Final = _text("bearer-auth.token", "The token.")
OPTIONS: Final = (
    URL,
    SUBJECT,
    SCHEMA,
    IGNORE_ERRORS,
    CERTIFICATES,
    OWN_CERTIFICATE,
    OWN_PASSWORD,
    BASIC_SOURCE,
    USER_INFO,
    TOKEN_SOURCE,
    TOKEN,
)


class AvroConfluentFormat(format.TableFormat):
    """Each row is a record. Columns are found by name, regardless of the schema used to write the record."""

    name = "avro-confluent"
    options = OPTIONS

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> format.Decoding:
        """See `TableFormat`."""
        columns = RowSchema(tuple(schema[index] for index in wanted))
        decoder = AvroMessageDecoder(columns, RegisteredRecords(read_settings(options), avro_schema(columns)))
        return format.Decoding(None, decoder, options.read(IGNORE_ERRORS))

    def encoding(self, schema: RowSchema, options: TableOptions) -> format.Encoding:
        """See `TableFormat`."""
        given = _given_schema(options)
        names = schema.names
        if given is not None and sorted(given.field_names) != sorted(names):
            raise options.wrong(SCHEMA.key(), f"its fields must be the table's columns {', '.join(names)}")
        writing = RegisteredWriting(read_settings(options), read_subject(options), given or avro_schema(schema), names)
        return format.Encoding(None, AvroMessageEncoder(schema, writing))


class DebeziumAvroConfluentFormat(format.TableFormat):
    """Each message is a Debezium change record."""

    name = "debezium-avro-confluent"
    options = OPTIONS

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> format.Decoding:
        """See `TableFormat`."""
        columns = RowSchema(tuple(schema[index] for index in wanted))
        envelope = DebeziumAvroEnvelope(RegisteredRecords(read_settings(options), debezium_schema(columns)))
        return format.Decoding(
            None, changelog_json.ChangelogDecoder(envelope, format.HeldRows(columns)), options.read(IGNORE_ERRORS), ALL
        )

    def encoding(self, schema: RowSchema, options: TableOptions) -> format.Encoding:
        """See `TableFormat`."""
        record_schema = _given_schema(options) or debezium_schema(schema)
        names = ["before", "after", "op"]
        if record_schema.field_names != names:
            raise options.wrong(SCHEMA.key(), f"its fields must be {', '.join(names)}")
        writing = RegisteredWriting(read_settings(options), read_subject(options), record_schema, names)
        return format.Encoding(None, DebeziumAvroEncoder(schema, writing), ALL)


class RegisteredRecords:
    """Reads records of any schema in a registry as records of one schema."""

    def __init__(self, settings: RegistrySettings, reader_schema: AvroSchema) -> None:
        self._parts = settings, reader_schema
        self._reader = RegistryReader(settings, reader_schema.record, HeldValues(), narrows=True)

    def values(self, message: bytes) -> list[Any]:
        """See `RecordsReader`."""
        return self._reader.values(message)[1]

    def many(self, messages: Sequence[bytes]) -> list[list[Any]] | None:
        """See `RecordsReader`."""
        result = self._reader.many(messages)
        return None if result is None else result[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


class RegisteredWriting:
    """Writes records prefixed with their schema id. `names`: the fields of the rows, in order."""

    def __init__(self, settings: RegistrySettings, subject: str, schema: AvroSchema, names: Sequence[str]) -> None:
        self._parts = settings, subject, schema, tuple(names)
        self._names = None if schema.field_names == list(names) else tuple(names)
        self._writer = RegistryWriter(settings, subject, schema.text, RecordWriter(schema.record, HeldValues()))

    def messages(self, rows: Sequence[Any]) -> list[bytes]:
        """See `RecordsWriter`."""
        if self._names is not None:
            names = self._names
            rows = [dict(zip(names, row, strict=True)) for row in rows]
        return written(self._writer.messages, rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


class DebeziumAvroEnvelope(changelog_json.Envelope):
    """The envelope of Debezium's change records."""

    def __init__(self, records: RegisteredRecords) -> None:
        self._records = records

    def told(self, message: bytes) -> changelog_json.Told | None:
        """See `Envelope`."""
        if not message:
            return None
        before, after, operation = self._records.values(message)
        match operation:
            case "c" | "r":
                return changelog_json.Told(
                    [changelog_json.inserted(_there(after, f'the "after" field of an INSERT ({operation!r}) message'))]
                )
            case "u":
                if before is None:
                    raise changelog_json.without_before("an UPDATE")
                return changelog_json.Told(
                    changelog_json.changed(before, _there(after, 'the "after" field of an UPDATE message'))
                )
            case "d":
                if before is None:
                    raise changelog_json.without_before("a DELETE")
                return changelog_json.Told([changelog_json.deleted(before)])
            case other:
                raise FormatError(f'unknown "op" value {other!r}: it is one of c, r, u and d')


class DebeziumAvroEncoder(format.MessageEncoder):
    """Writes changes as inserts and deletes."""

    def __init__(self, schema: RowSchema, writing: RegisteredWriting) -> None:
        self._schema = schema
        self._writing = writing

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """See `MessageEncoder`."""
        return self._writing.messages([(None, row, "c") for row in format.rows_of_columns(columns, self._schema)])

    def encode_changes(self, columns: pa.RecordBatch, kinds: bytes) -> list[bytes]:
        """See `MessageEncoder`."""
        rows = format.rows_of_columns(columns, self._schema)
        return self._writing.messages(
            [
                (None, row, "c") if kind in (INSERT, UPDATE_AFTER) else (row, None, "d")
                for kind, row in zip(kinds, rows, strict=True)
            ]
        )


def _there(row: Any, description: str) -> Any:
    if row is None:
        raise FormatError(f"{description} is null")
    return row


def read_settings(options: TableOptions) -> RegistrySettings:
    """Return the registry. Raises `ValidationError` for options that are not valid."""
    try:
        return RegistrySettings(
            tuple(url.strip() for url in options.required(URL).split(",")),
            options.read(USER_INFO),
            options.read(TOKEN),
            options.read(CERTIFICATES),
            options.read(OWN_CERTIFICATE),
            options.read(OWN_PASSWORD),
        )
    except ConfigurationError as error:
        raise options.wrong(URL.key(), str(error)) from error


def read_subject(options: TableOptions) -> str:
    """Return the subject. Raises `ValidationError` without one."""
    subject = options.read(SUBJECT)
    if subject is None:
        raise ValidationError(
            f"Option '{SUBJECT.key()}' of the format is required for writing into table {options.title}: it says under "
            "which subject the schema is registered"
        )
    return subject


def _given_schema(options: TableOptions) -> AvroSchema | None:
    text = options.read(SCHEMA)
    try:
        return None if text is None else AvroSchema.parse_string(text)
    except FormatError as error:
        raise options.wrong(SCHEMA.key(), str(error)) from error
