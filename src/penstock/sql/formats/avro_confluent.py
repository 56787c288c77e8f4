"""`avro-confluent` and `debezium-avro-confluent`: Avro records whose schemas are in a schema registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions, choice
from penstock.base.errors import ConfigurationError, FormatError
from penstock.codecs.avro_writing import RecordWriter
from penstock.formats.avro import AvroSchema
from penstock.formats.avro_confluent import RegistryReader, RegistrySettings, RegistryWriter
from penstock.sql.data.errors import ValidationError
from penstock.sql.formats.avro import (
    IGNORE_ERRORS,
    AvroMessageDecoder,
    AvroMessageEncoder,
    HeldValues,
    avro_schema,
    debezium_schema,
    written,
)
from penstock.sql.formats.changelog_json import (
    ChangelogDecoder,
    Envelope,
    Told,
    changed,
    deleted,
    inserted,
    without_before,
)
from penstock.sql.formats.format import Decoding, Encoding, HeldRows, MessageEncoder, TableFormat, rows_of_columns
from penstock.sql.logical.nodes import ALL, INSERT, UPDATE_AFTER, RowSchema
from penstock.sql.tables.connector import TableOptions


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


class AvroConfluentFormat(TableFormat):
    """Each row is a record. Columns are found by name, regardless of the schema used to write the record."""

    name = "avro-confluent"
    options = OPTIONS

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> Decoding:
        """See `TableFormat`."""
        columns = RowSchema(tuple(schema[index] for index in wanted))
        decoder = AvroMessageDecoder(columns, RegisteredRecords(_settings(options), avro_schema(columns)))
        return Decoding(None, decoder, options.read(IGNORE_ERRORS))

    def encoding(self, schema: RowSchema, options: TableOptions) -> Encoding:
        """See `TableFormat`."""
        given = _given_schema(options)
        names = schema.names
        if given is not None and sorted(given.field_names) != sorted(names):
            raise options.wrong(SCHEMA.key(), f"its fields must be the table's columns {', '.join(names)}")
        writing = RegisteredWriting(_settings(options), _subject(options), given or avro_schema(schema), names)
        return Encoding(None, AvroMessageEncoder(schema, writing))


class DebeziumAvroConfluentFormat(TableFormat):
    """Each message is a Debezium change record."""

    name = "debezium-avro-confluent"
    options = OPTIONS

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> Decoding:
        """See `TableFormat`."""
        columns = RowSchema(tuple(schema[index] for index in wanted))
        envelope = DebeziumAvroEnvelope(RegisteredRecords(_settings(options), debezium_schema(columns)))
        return Decoding(None, ChangelogDecoder(envelope, HeldRows(columns)), options.read(IGNORE_ERRORS), ALL)

    def encoding(self, schema: RowSchema, options: TableOptions) -> Encoding:
        """See `TableFormat`."""
        record_schema = _given_schema(options) or debezium_schema(schema)
        names = ["before", "after", "op"]
        if record_schema.field_names != names:
            raise options.wrong(SCHEMA.key(), f"its fields must be {', '.join(names)}")
        writing = RegisteredWriting(_settings(options), _subject(options), record_schema, names)
        return Encoding(None, DebeziumAvroEncoder(schema, writing), ALL)


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


class DebeziumAvroEnvelope(Envelope):
    """The envelope of Debezium's change records."""

    def __init__(self, records: RegisteredRecords) -> None:
        self._records = records

    def told(self, message: bytes) -> Told | None:
        """See `Envelope`."""
        if not message:
            return None
        before, after, operation = self._records.values(message)
        match operation:
            case "c" | "r":
                return Told([inserted(_there(after, f'the "after" field of an INSERT ({operation!r}) message'))])
            case "u":
                if before is None:
                    raise without_before("an UPDATE")
                return Told(changed(before, _there(after, 'the "after" field of an UPDATE message')))
            case "d":
                if before is None:
                    raise without_before("a DELETE")
                return Told([deleted(before)])
            case other:
                raise FormatError(f'unknown "op" value {other!r}: it is one of c, r, u and d')


class DebeziumAvroEncoder(MessageEncoder):
    """Writes changes as inserts and deletes."""

    def __init__(self, schema: RowSchema, writing: RegisteredWriting) -> None:
        self._schema = schema
        self._writing = writing

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """See `MessageEncoder`."""
        return self._writing.messages([(None, row, "c") for row in rows_of_columns(columns, self._schema)])

    def encode_changes(self, columns: pa.RecordBatch, kinds: bytes) -> list[bytes]:
        """See `MessageEncoder`."""
        rows = rows_of_columns(columns, self._schema)
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


def _settings(options: TableOptions) -> RegistrySettings:
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


def _subject(options: TableOptions) -> str:
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
