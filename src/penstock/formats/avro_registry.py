"""Avro records whose schemas are in a registry, in Confluent's format: a zero byte, the schema id, the record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.base.errors import FormatError, shorten
from penstock.base.types import Row
from penstock.codecs.avro_reading import READ_ERRORS, RecordReader, Values
from penstock.codecs.avro_types import AvroType, parse_record
from penstock.codecs.avro_values import PythonValues
from penstock.codecs.avro_writing import WRITE_ERRORS, RecordWriter
from penstock.codecs.messages import Deserialized, decode_each
from penstock.codecs.row_batches import make_rows
from penstock.codecs.serialization import DeserializationSchema, SerializationSchema
from penstock.formats.avro_schema import AvroSchema
from penstock.formats.schema_registry import (
    HEADER_BYTES,
    RegistrySettings,
    decode_schema_id,
    encode_schema_id,
    get_registry,
)

_READ: Final = (*READ_ERRORS, FormatError)


class RegistryReader:
    """Reads records of any schema as records of one schema.

    Args:
        settings: the registry.
        reader_schema: the schema to read records as; None for the schema that each record was written with.
        values: the representation of values.
        narrows: see `RecordReader`.
    """

    def __init__(
        self, settings: RegistrySettings, reader_schema: AvroType | None, values: Values, narrows: bool = False
    ) -> None:
        self._settings = settings
        self._wanted = reader_schema
        self._values = values
        self._narrows = narrows
        self._readers: dict[int, tuple[RecordReader, tuple[str, ...]]] = {}

    def values(self, message: bytes) -> tuple[tuple[str, ...], list[Any]]:
        """Return the field names of a message's record, and their values.

        Raises:
            FormatError: if the message does not hold such a record; it names the field.
            OperationError: if the registry does not answer.
        """
        reader, names = self._reader(decode_schema_id(message))
        try:
            return names, reader.values(message, HEADER_BYTES)
        except READ_ERRORS as error:
            raise FormatError(reader.reason(error)) from error

    def many(self, messages: Sequence[bytes]) -> tuple[tuple[str, ...], list[list[Any]]] | None:
        """Read many messages likewise, if all were written with the same schema; otherwise return None.

        Raises:
            ValueError: or another of `READ_ERRORS`, if a message does not hold such a record.
        """
        headers = {message[:HEADER_BYTES] for message in messages}
        if len(headers) != 1:
            return None
        reader, names = self._reader(decode_schema_id(messages[0]))
        return names, reader.many(messages, HEADER_BYTES)

    def _reader(self, schema_id: int) -> tuple[RecordReader, tuple[str, ...]]:
        entry = self._readers.get(schema_id)
        if entry is None:
            written = parse_record(get_registry(self._settings).schema(schema_id))
            reader_schema = self._wanted or written
            try:
                reader = RecordReader(written, reader_schema, self._values, self._narrows)
            except FormatError as error:
                raise FormatError(f"records of schema {schema_id} cannot be read: {error}") from error
            entry = self._readers[schema_id] = reader, tuple(field.name for field in reader_schema.fields)
        return entry


class RegistryWriter:
    """Writes records of a schema, and registers the schema with the first of them."""

    def __init__(self, settings: RegistrySettings, subject: str, schema: str, writer: RecordWriter) -> None:
        self._parts = settings, subject, schema
        self._writer = writer
        self._header: bytes | None = None

    def messages(self, records: Sequence[Any]) -> list[bytes]:
        """Return the message of each record. Raises one of `WRITE_ERRORS` if one does not fit the schema."""
        if self._header is None:
            settings, subject, schema = self._parts
            self._header = encode_schema_id(get_registry(settings).register(subject, schema))
        header, write = self._header, self._writer.record
        return [header + write(record) for record in records]


class ConfluentRegistryAvroDeserializationSchema(DeserializationSchema[Row]):
    """Reads rows from Avro records whose schemas are in a registry; create one with `for_generic`.

    A source then reads records written with any schema that can be read as this one.
    """

    def __init__(self, schema: AvroSchema | None, settings: RegistrySettings) -> None:
        self._parts = schema, settings
        reader_schema = None if schema is None else schema.record
        self._reader = RegistryReader(settings, reader_schema, PythonValues())

    @staticmethod
    def for_generic(
        schema: AvroSchema | None, schema_registry_url: str, **settings: Any
    ) -> ConfluentRegistryAvroDeserializationSchema:
        """Create a schema for rows.

        Args:
            schema: the schema of the rows; None for the schema that each record was written with.
            schema_registry_url: the registry's address, or several, separated by commas.
            settings: more of `RegistrySettings`, such as `user_info`.

        Raises:
            ConfigurationError: if the settings are invalid.
        """
        return ConfluentRegistryAvroDeserializationSchema(schema, _settings(schema_registry_url, settings))

    def deserialize(self, message: bytes) -> Row | None:
        """Return the row of a message. Return None for an unreadable message if such messages are skipped.

        Raises:
            FormatError: if the message does not hold such a record.
            OperationError: if the registry does not answer.
        """
        try:
            return self._record(message)
        except FormatError as error:
            if self.on_error == "skip":
                return None
            raise FormatError(f"cannot read Avro {shorten(repr(message))}: {error}") from error

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Return the rows of many messages."""
        try:
            decoded = self._reader.many(messages)
        except _READ:
            decoded = None
        return decode_each(self._record, messages) if decoded is None else Deserialized(make_rows(*decoded))

    def _record(self, message: bytes) -> Row:
        names, values = self._reader.values(message)
        return make_rows(names, (values,))[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts, self.malformed_handling()


class ConfluentRegistryAvroSerializationSchema(SerializationSchema[Any]):
    """Writes rows, tuples or dicts as Avro records whose schema is in a registry; create one with `for_generic`."""

    def __init__(self, subject: str, schema: AvroSchema, settings: RegistrySettings) -> None:
        self._parts = subject, schema, settings
        writer = RecordWriter(schema.record, PythonValues())
        self._writer = RegistryWriter(settings, subject, schema.text, writer)

    @staticmethod
    def for_generic(
        subject: str, schema: AvroSchema, schema_registry_url: str, **settings: Any
    ) -> ConfluentRegistryAvroSerializationSchema:
        """Create a schema for rows.

        Args:
            subject: the subject to register the schema under; for the values of a topic usually `topic-value`.
            schema: the schema of the rows.
            schema_registry_url: the registry's address, or several, separated by commas.
            settings: more of `RegistrySettings`, such as `user_info`.

        Raises:
            ConfigurationError: if the settings are invalid.
        """
        return ConfluentRegistryAvroSerializationSchema(subject, schema, _settings(schema_registry_url, settings))

    def serialize(self, element: Any) -> bytes:
        """Return the message for a record.

        Raises:
            FormatError: if the record does not fit the schema.
            OperationError: if the registry refuses the schema, or does not answer.
        """
        try:
            return self._writer.messages([element])[0]
        except WRITE_ERRORS as error:
            raise FormatError(f"cannot write {shorten(repr(element))} as Avro: {error}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


def _settings(urls: str, more: dict[str, Any]) -> RegistrySettings:
    return RegistrySettings(tuple(url.strip() for url in urls.split(",")), **more)
