"""Rows as JSON objects: one message, one object.

Dates, times and timestamps are ISO-8601 text, in UTC where no zone is named; bytes are base64; whole and decimal
numbers keep all their digits. The classes are PyFlink's of `datastream.formats.json`; they live here because
`penstock.codecs` offers them and needs only the standard library.
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
    """Reads rows from JSON objects; make one with `JsonRowDeserializationSchema.builder()`."""

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
        """Starts a schema."""
        return JsonRowDeserializationSchema.Builder()

    def deserialize(self, message: bytes) -> Row | None:
        """Returns the row of a message, with the fields' names.

        A null is None for every type, and so is a field that is missing. A message that is null becomes None. A message
        that cannot be read is dropped if such messages are skipped.

        Raises:
            FormatError: if the message is not a JSON object of the right form.
        """
        try:
            return self._record(message)
        except BAD_RECORD as error:
            if self.on_error == "skip":
                return None
            raise FormatError(f"cannot read JSON {shorten(repr(message))}: {error}") from error

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Returns the rows of many messages."""
        try:
            if self._arrow is None:
                return Deserialized(self._read_struct.rows(messages))
            return Deserialized(columns_by_name(self._read_struct.columns(messages), self._arrow))
        except BAD_RECORD:
            found = decode_each(self._record, messages)
            return found if self._arrow is None else to_columns(found, self._arrow)

    def _record(self, message: bytes) -> Row | None:
        try:
            return self._read_struct.row(message)
        except BAD_RECORD:
            return self._record_at_length(message)

    def _record_at_length(self, message: bytes) -> Row | None:
        """As `StructReader` reads it, taking more: a number as text and the like. Its errors name the field."""
        parsed = parse_strictly(message)
        if parsed is None:
            return None
        if not isinstance(parsed, dict):
            raise FormatError("not a JSON object")
        row: Row = self._read(parsed)
        return row

    def get_produced_type(self) -> TypeInformation:
        """The type of the rows."""
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
            """Sets the type of the rows, whose field names are looked up in the objects."""
            self._type_info = type_info
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """Derives the type of the rows from a JSON schema.

            Raises:
                TypeError: if the schema is None.
                FormatError: if it is not the JSON schema of an object, or uses what is not supported.
            """
            if json_schema is None:
                raise WrongTypeError("the JSON schema must not be None")
            self._type_info = type_of_json_schema(json_schema)
            return self

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Makes a missing field an error; without this it is None."""
            self._fail_on_missing_field = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Drops messages that cannot be read; without this they are errors."""
            self._ignore_parse_errors = True
            return self

        def as_columns(self) -> JsonRowDeserializationSchema.Builder:
            """Hands rows over as columns; where an operator works record by record they are rows all the same.

            PyFlink has no such method.
            """
            self._as_columns = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """Returns the schema.

            Raises:
                TypeError: if no row type is set.
                ValueError: if missing fields are to fail while errors are ignored.
                ConfigurationError: if rows are wanted as columns, and Arrow has no column of a field's type.
            """
            if not isinstance(self._type_info, RowTypeInfo):
                raise WrongTypeError(f"set a row type with type_info or json_schema, not {self._type_info!r}")
            if self._fail_on_missing_field and self._ignore_parse_errors:
                raise WrongValueError("fail_on_missing_field and ignore_parse_errors cannot both be set")
            return JsonRowDeserializationSchema(
                self._type_info, self._fail_on_missing_field, self._ignore_parse_errors, self._as_columns
            )


class JsonRowSerializationSchema(SerializationSchema[Any]):
    """Writes rows as JSON objects in UTF-8; make one with `JsonRowSerializationSchema.builder()`."""

    def __init__(self, row_type: RowTypeInfo) -> None:
        self._row_type = row_type
        self._write = StructWriter(row_type)

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """Starts a schema."""
        return JsonRowSerializationSchema.Builder()

    def serialize(self, element: Any) -> bytes:
        """Returns the JSON object for a row, tuple, or dict.

        Raises:
            FormatError: if the record does not fit the row type.
        """
        try:
            return self._objects([element])[0]
        except BAD_VALUE as error:
            raise FormatError(f"cannot write {shorten(repr(element))} as {self._row_type}: {error}") from error

    def serialize_batch(self, elements: Sequence[Any] | ColumnData) -> list[bytes]:
        """Returns the JSON object for each of many rows, tuples or dicts."""
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
            """Sets the type of the rows, whose field names become the objects' keys."""
            self._type_info = type_info
            return self

        def build(self) -> JsonRowSerializationSchema:
            """Returns the schema.

            Raises:
                TypeError: if no row type is set, or a field's type cannot be written as JSON.
            """
            if not isinstance(self._type_info, RowTypeInfo):
                raise WrongTypeError(f"set a row type with with_type_info, not {self._type_info!r}")
            return JsonRowSerializationSchema(self._type_info)
