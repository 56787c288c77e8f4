"""Rows as JSON objects, one object per message.

Dates, times and timestamps are ISO-8601 text, in UTC unless a zone is given; bytes are base64; integers and decimals
keep all their digits. The classes mirror PyFlink's `datastream.formats.json`; they live here because `penstock.codecs`
exports them and they need only the standard library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.base.basic_types import TypeInformation
from penstock.base.composite_types import RowTypeInfo
from penstock.base.errors import FormatError, WrongTypeError, WrongValueError, shorten
from penstock.base.types import Row
from penstock.codecs.arrow_types import arrow_schema
from penstock.codecs.column_data import ColumnData
from penstock.codecs.json_schema import type_of_json_schema
from penstock.codecs.json_structs import StructReader, StructWriter
from penstock.codecs.json_text import parse_strictly
from penstock.codecs.json_values import row_reader
from penstock.codecs.messages import BAD_RECORD, Deserialized, decode_each
from penstock.codecs.row_columns import BAD_VALUE, columns_by_name, fields_of_rows, to_columns
from penstock.codecs.serialization import DeserializationSchema, SerializationSchema

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]


class JsonRowDeserializationSchema(DeserializationSchema[Row]):
    """Parses JSON objects into rows; create one with `JsonRowDeserializationSchema.builder()`."""

    def __init__(
        self, row_type: RowTypeInfo, fail_on_missing_field: bool, ignore_parse_errors: bool, as_columns: bool = False
    ) -> None:
        self._row_type = row_type
        self._fail_on_missing_field = fail_on_missing_field
        if ignore_parse_errors:
            self.on_error = "skip"
        self._arrow = arrow_schema(row_type) if as_columns else None
        self._read_struct = StructReader(row_type, fail_on_missing_field)
        self._read = row_reader(row_type, fail_on_missing_field)

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """Return a builder."""
        return JsonRowDeserializationSchema.Builder()

    def deserialize(self, message: bytes) -> Row | None:
        """Return the row parsed from a message, with field names.

        A JSON null becomes None for every type, as does a missing field. A message that is null becomes None. A message
        that cannot be parsed is dropped if malformed messages are skipped.

        Raises:
            FormatError: if the message is not a JSON object of the expected form.
        """
        try:
            return self._record(message)
        except BAD_RECORD as error:
            if self.on_error == "skip":
                return None
            raise FormatError(f"cannot read JSON {shorten(repr(message))}: {error}") from error

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Return the rows parsed from many messages."""
        try:
            if self._arrow is None:
                return Deserialized(self._read_struct.rows(messages))
            return Deserialized(columns_by_name(self._read_struct.columns(messages), self._arrow))
        except BAD_RECORD:
            decoded = decode_each(self._record, messages)
            return decoded if self._arrow is None else to_columns(decoded, self._arrow)

    def _record(self, message: bytes) -> Row | None:
        try:
            return self._read_struct.row(message)
        except BAD_RECORD:
            return self._record_at_length(message)

    def _record_at_length(self, message: bytes) -> Row | None:
        """Parse leniently where `StructReader` fails, such as a number in place of text. Errors name the field."""
        parsed = parse_strictly(message)
        if parsed is None:
            return None
        if not isinstance(parsed, dict):
            raise FormatError("not a JSON object")
        row: Row = self._read(parsed)
        return row

    def get_produced_type(self) -> TypeInformation:
        """Return the row type."""
        return self._row_type

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = self._row_type, self._fail_on_missing_field, False, self._arrow is not None
        return type(self), arguments, self.malformed_handling()

    class Builder:
        """Collects the settings of a `JsonRowDeserializationSchema`."""

        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None
            self._fail_on_missing_field = False
            self._ignore_parse_errors = False
            self._as_columns = False

        def type_info(self, type_info: TypeInformation) -> JsonRowDeserializationSchema.Builder:
            """Set the row type; its field names are looked up in the objects."""
            self._type_info = type_info
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """Derive the row type from a JSON schema.

            Raises:
                TypeError: if the schema is None.
                FormatError: if it is not the JSON schema of an object, or uses an unsupported feature.
            """
            if json_schema is None:
                raise WrongTypeError("the JSON schema must not be None")
            self._type_info = type_of_json_schema(json_schema)
            return self

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Make a missing field an error; by default it is None."""
            self._fail_on_missing_field = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Drop messages that cannot be parsed; by default they are errors."""
            self._ignore_parse_errors = True
            return self

        def as_columns(self) -> JsonRowDeserializationSchema.Builder:
            """Make the schema return columns. Operators that work record by record still see rows.

            PyFlink has no such method.
            """
            self._as_columns = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """Build the schema.

            Raises:
                TypeError: if no row type is set.
                ValueError: if missing fields should fail while errors are ignored.
                ConfigurationError: if rows are requested as columns and a field's type has no Arrow equivalent.
            """
            if not isinstance(self._type_info, RowTypeInfo):
                raise WrongTypeError(f"set a row type with type_info or json_schema, not {self._type_info!r}")
            if self._fail_on_missing_field and self._ignore_parse_errors:
                raise WrongValueError("fail_on_missing_field and ignore_parse_errors cannot both be set")
            return JsonRowDeserializationSchema(
                self._type_info, self._fail_on_missing_field, self._ignore_parse_errors, self._as_columns
            )


class JsonRowSerializationSchema(SerializationSchema[Any]):
    """Writes rows as UTF-8 JSON objects; create one with `JsonRowSerializationSchema.builder()`."""

    def __init__(self, row_type: RowTypeInfo) -> None:
        self._row_type = row_type
        self._write = StructWriter(row_type)

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """Return a builder."""
        return JsonRowSerializationSchema.Builder()

    def serialize(self, element: Any) -> bytes:
        """Return the JSON object for a row, tuple or dict.

        Raises:
            FormatError: if the record does not fit the row type.
        """
        try:
            return self._objects([element])[0]
        except BAD_VALUE as error:
            raise FormatError(f"cannot write {shorten(repr(element))} as {self._row_type}: {error}") from error

    def serialize_batch(self, elements: Sequence[Any] | ColumnData) -> list[bytes]:
        """Return the JSON object for each row, tuple or dict."""
        try:
            return self._objects(elements)
        except BAD_VALUE:
            return super().serialize_batch(elements)

    def _objects(self, elements: Sequence[Any] | ColumnData) -> list[bytes]:
        return self._write.objects(fields_of_rows(elements, self._row_type.get_field_names()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._row_type,)

    class Builder:
        """Collects the settings of a `JsonRowSerializationSchema`."""

        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None

        def with_type_info(self, type_info: TypeInformation) -> JsonRowSerializationSchema.Builder:
            """Set the row type; its field names become the objects' keys."""
            self._type_info = type_info
            return self

        def build(self) -> JsonRowSerializationSchema:
            """Build the schema.

            Raises:
                TypeError: if no row type is set, or a field's type cannot be written as JSON.
            """
            if not isinstance(self._type_info, RowTypeInfo):
                raise WrongTypeError(f"set a row type with with_type_info, not {self._type_info!r}")
            return JsonRowSerializationSchema(self._type_info)
