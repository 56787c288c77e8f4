"""Rows as JSON objects, one object per message.

Dates, times and timestamps are ISO-8601 text, in UTC unless a zone is given; bytes are base64; integers and decimals
keep all their digits. The classes mirror PyFlink's `datastream.formats.json`; they live here because `penstock.codecs`
exports them and they need only the standard library.

`type_of_json_schema` derives a row type from a JSON schema. Supported: `type` (also a list of types with "null"),
`properties`, `items` (one schema, or a list for a tuple as a row), `format` date, time and date-time, `contentEncoding`
base64, and `$ref` within the document. All numbers, including integers, become decimals, because JSON does not limit
their size.

`StructReader` and `StructWriter` parse and write JSON objects of a row type with msgspec, in a fraction of the time
that dicts take. msgspec rejects values that do not match the type exactly, such as a number where the type is text. The
schema then falls back to `json_values`, which is more lenient. The two must agree on every message that msgspec
accepts, so where they might differ, this module parses the field as text and lets `json_values` convert it.
"""

from __future__ import annotations

import decimal
import itertools
import json
import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec

from penstock.base import typeinfo
from penstock.base.errors import FormatError, WrongTypeError, WrongValueError, shorten
from penstock.base.types import Row
from penstock.codecs import json_values, serialization
from penstock.codecs.arrow_columns import BAD_VALUE, arrow_schema, columns_by_name, fields_of_rows, to_columns
from penstock.codecs.column_data import ColumnData
from penstock.codecs.pickling import make_rows

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema", "type_of_json_schema"]


_DEPTH_MAX = 64


def type_of_json_schema(text: str) -> typeinfo.RowTypeInfo:
    """Return the row type for the JSON schema of an object.

    Raises:
        FormatError: if the text is not such a schema, or is recursive.
    """
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise FormatError(f"the JSON schema is not valid JSON: {error}") from error
    result = _convert(schema, schema, "the schema", 0)
    if not isinstance(result, typeinfo.RowTypeInfo):
        raise FormatError(f"the JSON schema must describe an object, not {result}")
    return result


def _convert(schema: Any, root: Any, path: str, depth: int) -> typeinfo.TypeInformation:
    if not isinstance(schema, dict):
        raise FormatError(f"{path} is not a JSON schema: {schema!r}")
    if depth > _DEPTH_MAX:
        raise FormatError(f"{path} is nested more than {_DEPTH_MAX} levels deep, or refers to itself")
    if "$ref" in schema:
        return _convert(_resolve(schema["$ref"], root), root, path, depth + 1)
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else [kind for kind in kinds or [] if kind != "null"]
    if len(names) != 1:
        raise FormatError(f"{path} must have exactly one type besides null, not {kinds!r}")
    match names[0]:
        case "object":
            fields = schema.get("properties", {})
            types = [_convert(field, root, f"{path}.{name}", depth + 1) for name, field in fields.items()]
            return typeinfo.Types.ROW_NAMED(list(fields), types)
        case "array":
            items = schema.get("items")
            if isinstance(items, list):
                return typeinfo.Types.ROW(
                    [_convert(item, root, f"{path}[{i}]", depth + 1) for i, item in enumerate(items)]
                )
            return typeinfo.Types.OBJECT_ARRAY(_convert(items, root, f"{path}[]", depth + 1))
        case "string":
            return _text_type(schema)
        case "number" | "integer":
            return typeinfo.Types.BIG_DEC()
        case "boolean":
            return typeinfo.Types.BOOLEAN()
        case other:
            raise FormatError(f"{path} has a type that is not supported: {other!r}")


def _text_type(schema: dict[str, Any]) -> typeinfo.TypeInformation:
    if schema.get("contentEncoding") == "base64":
        return typeinfo.Types.PRIMITIVE_ARRAY(typeinfo.Types.BYTE())
    formats = {
        "date": typeinfo.Types.SQL_DATE,
        "time": typeinfo.Types.SQL_TIME,
        "date-time": typeinfo.Types.SQL_TIMESTAMP,
    }
    return formats.get(str(schema.get("format")), typeinfo.Types.STRING)()


def _resolve(reference: Any, root: Any) -> Any:
    """Return the part of the document that a reference such as `#/definitions/address` points to."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise FormatError(f"only references within the JSON schema are supported, not {reference!r}")
    node = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or name not in node:
            raise FormatError(f"nothing at {reference} in the JSON schema")
        node = node[name]
    return node


_INTEGER_BITS: Final = {
    typeinfo.BasicType.BYTE: 8,
    typeinfo.BasicType.SHORT: 16,
    typeinfo.BasicType.INT: 32,
    typeinfo.BasicType.LONG: 64,
}
_PLAIN: Final[dict[typeinfo.BasicType, Any]] = {
    typeinfo.BasicType.STRING: str,
    typeinfo.BasicType.CHAR: str,
    typeinfo.BasicType.BOOLEAN: bool,
    typeinfo.BasicType.FLOAT: float,
    typeinfo.BasicType.DOUBLE: float,
    typeinfo.BasicType.BIG_INT: int,
}


class StructReader:
    """Parses JSON objects into rows of a type.

    Args:
        row_type: the row type.
        is_strict: whether every field must be present.
    """

    def __init__(self, row_type: typeinfo.RowTypeInfo, is_strict: bool) -> None:
        self._names = tuple(row_type.get_field_names())
        struct, self._converts = _struct(row_type, is_strict)
        self._decode = msgspec.json.Decoder(struct, float_hook=decimal.Decimal).decode
        self._values = _build_getter(struct)

    def row(self, message: bytes) -> Row:
        """Return the row of an object. Raises one of `BAD_RECORD` if the object does not match the type exactly."""
        return self.rows([message])[0]

    def rows(self, messages: Sequence[bytes]) -> list[Row]:
        """Return the row of each object. Raises one of `BAD_RECORD` if any object does not match the type exactly."""
        if any(self._converts):
            return make_rows(self._names, map(list, zip(*self.columns(messages), strict=True)))
        json_values.check_utf8(b"\n".join(messages))
        return make_rows(self._names, map(list, map(self._values, map(self._decode, messages))))

    def columns(self, messages: Sequence[bytes]) -> list[Sequence[Any]]:
        """Return the values of each field. Raises one of `BAD_RECORD` if any object does not match the type exactly."""
        json_values.check_utf8(b"\n".join(messages))
        columns: list[Sequence[Any]] = list(zip(*map(self._values, map(self._decode, messages)), strict=True))
        return [
            column if convert is None else list(map(convert, column))
            for column, convert in zip(columns or [()] * len(self._names), self._converts, strict=True)
        ]


def _struct(
    row_type: typeinfo.RowTypeInfo, is_strict: bool
) -> tuple[type[msgspec.Struct], list[json_values.Convert | None]]:
    """Return a struct class with fields f0, f1, ... and the converters from its field values to row values."""
    fields: list[Any] = []
    converts: list[json_values.Convert | None] = []
    for index, field in enumerate(row_type.get_field_types()):
        kind, convert = _typed(field, is_strict)
        fields.append((f"f{index}", kind | None) if is_strict else (f"f{index}", kind | None, None))
        converts.append(None if convert is None else json_values.nullable(convert))
    names = {f"f{position}": name for position, name in enumerate(row_type.get_field_names())}
    return msgspec.defstruct("Object", fields, rename=names, gc=False), converts


def _build_getter(struct: type[msgspec.Struct]) -> Callable[[Any], tuple[Any, ...]]:
    names = struct.__struct_fields__
    return attrgetter(*names) if len(names) > 1 else msgspec.structs.astuple


def _typed(type_info: typeinfo.TypeInformation, is_strict: bool) -> tuple[Any, json_values.Convert | None]:
    """Return the type that msgspec parses and a converter to the row value, or None if they are the same."""
    if isinstance(type_info, typeinfo.RowTypeInfo):
        return _nested(type_info, is_strict)
    if type_info == json_values.BYTES:
        return str, json_values.reader(type_info, is_strict)
    if isinstance(type_info, json_values.ARRAYS):
        kind, convert = _typed(type_info.element_type, is_strict)
        return list[kind | None], _each(convert)  # type: ignore[valid-type]
    if isinstance(type_info, typeinfo.TupleTypeInfo):
        parts = [_typed(field, is_strict) for field in type_info.get_field_types()]
        return tuple[tuple(kind | None for kind, _ in parts)], _tuple([convert for _, convert in parts])  # type: ignore[misc]
    if isinstance(type_info, typeinfo.MapTypeInfo):
        key, (kind, convert) = (
            json_values.reader(type_info.key_type_info, is_strict),
            _typed(type_info.value_type_info, is_strict),
        )
        item = json_values.nullable(convert or _same)
        return dict[str, kind | None], lambda value: {key(k): item(v) for k, v in value.items()}  # type: ignore[valid-type]
    if isinstance(type_info, typeinfo.BasicTypeInfo):
        basic = type_info.basic_type
        if basic in _INTEGER_BITS:
            limit = 1 << _INTEGER_BITS[basic] - 1
            return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)], None
        if basic in _PLAIN:
            return _PLAIN[basic], None
        if basic is typeinfo.BasicType.BIG_DEC:
            # If the type were Decimal, msgspec would accept any text that Python's class does, such as "1_0".
            return Any, _decimal_reader(type_info)
    return str, json_values.reader(type_info, is_strict)  # dates and times


def _decimal_reader(type_info: typeinfo.BasicTypeInfo) -> json_values.Convert:
    read = json_values.reader(type_info, False)
    return lambda value: value if type(value) is decimal.Decimal else read(value)


def _nested(row_type: typeinfo.RowTypeInfo, is_strict: bool) -> tuple[Any, json_values.Convert]:
    names = tuple(row_type.get_field_names())
    struct, converts = _struct(row_type, is_strict)
    values_of = _build_getter(struct)
    each = [convert or _same for convert in converts]

    def convert(value: Any) -> Row:
        values = [of(part) for of, part in zip(each, values_of(value), strict=True)]
        return make_rows(names, (values,))[0]

    return struct, convert


def _each(convert: json_values.Convert | None) -> json_values.Convert | None:
    if convert is None:
        return None
    element = json_values.nullable(convert)
    return lambda value: list(map(element, value))


def _tuple(converts: list[json_values.Convert | None]) -> json_values.Convert | None:
    if not any(converts):
        return None
    each = [json_values.nullable(convert or _same) for convert in converts]
    return lambda value: tuple(of(part) for of, part in zip(each, value, strict=True))


def _same(value: Any) -> Any:
    return value


class StructWriter:
    """Writes rows of a type as JSON objects, column by column; plain columns are passed through unconverted.

    Args:
        row_type: the row type.
    """

    def __init__(self, row_type: typeinfo.RowTypeInfo) -> None:
        names = row_type.get_field_names()
        fields = [(f"f{index}", Any) for index in range(len(names))]
        renamed = {f"f{index}": name for index, name in enumerate(names)}
        self._struct = msgspec.defstruct("Object", fields, rename=renamed, gc=False)
        self._writes = [
            (_is_plain(field), json_values.nullable(json_values.writer(field))) for field in row_type.get_field_types()
        ]
        self._encode = msgspec.json.Encoder().encode

    def objects(self, columns: Sequence[Sequence[Any]]) -> list[bytes]:
        """Return each row's JSON object, given the values of each field. Raises as `writer` does for invalid values."""
        encodable = [
            column if is_plain(column) else list(map(write, column))
            for column, (is_plain, write) in zip(columns, self._writes, strict=True)
        ]
        return list(map(self._encode, itertools.starmap(self._struct, zip(*encodable, strict=True))))


def _is_plain(type_info: typeinfo.TypeInformation) -> Callable[[Sequence[Any]], bool]:
    """Return a predicate: whether msgspec writes all values of a column exactly as `writer` does."""
    basic = type_info.basic_type if isinstance(type_info, typeinfo.BasicTypeInfo) else None
    if basic in (typeinfo.BasicType.STRING, typeinfo.BasicType.CHAR):
        return lambda column: set(map(type, column)) <= {str, type(None)}
    if basic is typeinfo.BasicType.BOOLEAN:
        return lambda column: set(map(type, column)) <= {bool, type(None)}
    if basic in _INTEGER_BITS:
        limit = 1 << _INTEGER_BITS[basic] - 1
        return lambda column: set(map(type, column)) == {int} and -limit <= min(column) and max(column) < limit
    if basic is typeinfo.BasicType.DOUBLE:
        return lambda column: set(map(type, column)) == {float} and all(map(math.isfinite, column))
    return lambda column: False


class JsonRowDeserializationSchema(serialization.DeserializationSchema[Row]):
    """Parses JSON objects into rows; create one with `JsonRowDeserializationSchema.builder()`.

    Examples:
        >>> from penstock.common import JsonRowDeserializationSchema, Types
        >>> row_type = Types.ROW_NAMED(["drink", "cups"], [Types.STRING(), Types.INT()])
        >>> schema = JsonRowDeserializationSchema.builder().type_info(row_type).build()
        >>> schema.deserialize(b'{"drink": "tea", "cups": 2}')
        Row(drink='tea', cups=2)
    """

    def __init__(
        self,
        row_type: typeinfo.RowTypeInfo,
        fail_on_missing_field: bool,
        ignore_parse_errors: bool,
        as_columns: bool = False,
    ) -> None:
        self._row_type = row_type
        self._fail_on_missing_field = fail_on_missing_field
        if ignore_parse_errors:
            self.on_error = "skip"
        self._arrow = arrow_schema(row_type) if as_columns else None
        self._read_struct = StructReader(row_type, fail_on_missing_field)
        self._read = json_values.row_reader(row_type, fail_on_missing_field)

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
        except serialization.BAD_RECORD as error:
            if self.on_error == "skip":
                return None
            raise FormatError(f"cannot read JSON {shorten(repr(message))}: {error}") from error

    def deserialize_batch(self, messages: Sequence[bytes]) -> serialization.Deserialized:
        """Return the rows parsed from many messages."""
        try:
            if self._arrow is None:
                return serialization.Deserialized(self._read_struct.rows(messages))
            return serialization.Deserialized(columns_by_name(self._read_struct.columns(messages), self._arrow))
        except serialization.BAD_RECORD:
            decoded = serialization.decode_each(self._record, messages)
            return decoded if self._arrow is None else to_columns(decoded, self._arrow)

    def _record(self, message: bytes) -> Row | None:
        try:
            return self._read_struct.row(message)
        except serialization.BAD_RECORD:
            return self._record_at_length(message)

    def _record_at_length(self, message: bytes) -> Row | None:
        """Parse leniently where `StructReader` fails, such as a number in place of text. Errors name the field."""
        parsed = json_values.parse_strictly(message)
        if parsed is None:
            return None
        if not isinstance(parsed, dict):
            raise FormatError("not a JSON object")
        row: Row = self._read(parsed)
        return row

    def get_produced_type(self) -> typeinfo.TypeInformation:
        """Return the row type."""
        return self._row_type

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = self._row_type, self._fail_on_missing_field, False, self._arrow is not None
        return type(self), arguments, self.malformed_handling()

    class Builder:
        """Collects the settings of a `JsonRowDeserializationSchema`."""

        def __init__(self) -> None:
            self._type_info: typeinfo.TypeInformation | None = None
            self._fail_on_missing_field = False
            self._ignore_parse_errors = False
            self._as_columns = False

        def type_info(self, type_info: typeinfo.TypeInformation) -> JsonRowDeserializationSchema.Builder:
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
            if not isinstance(self._type_info, typeinfo.RowTypeInfo):
                raise WrongTypeError(f"set a row type with type_info or json_schema, not {self._type_info!r}")
            if self._fail_on_missing_field and self._ignore_parse_errors:
                raise WrongValueError("fail_on_missing_field and ignore_parse_errors cannot both be set")
            return JsonRowDeserializationSchema(
                self._type_info, self._fail_on_missing_field, self._ignore_parse_errors, self._as_columns
            )


class JsonRowSerializationSchema(serialization.SerializationSchema[Any]):
    """Writes rows as UTF-8 JSON objects; create one with `JsonRowSerializationSchema.builder()`.

    Examples:
        >>> from penstock.common import JsonRowSerializationSchema, Types
        >>> row_type = Types.ROW_NAMED(["drink", "cups"], [Types.STRING(), Types.INT()])
        >>> schema = JsonRowSerializationSchema.builder().with_type_info(row_type).build()
        >>> schema.serialize(("tea", 2))
        b'{"drink":"tea","cups":2}'
    """

    def __init__(self, row_type: typeinfo.RowTypeInfo) -> None:
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
            self._type_info: typeinfo.TypeInformation | None = None

        def with_type_info(self, type_info: typeinfo.TypeInformation) -> JsonRowSerializationSchema.Builder:
            """Set the row type; its field names become the objects' keys."""
            self._type_info = type_info
            return self

        def build(self) -> JsonRowSerializationSchema:
            """Build the schema.

            Raises:
                TypeError: if no row type is set, or a field's type cannot be written as JSON.
            """
            if not isinstance(self._type_info, typeinfo.RowTypeInfo):
                raise WrongTypeError(f"set a row type with with_type_info, not {self._type_info!r}")
            return JsonRowSerializationSchema(self._type_info)
