"""Rows as lines of comma-separated values, one line per message.

Dates, times and timestamps are ISO-8601 text. The elements of an array or nested row share one field and are separated
by a delimiter of their own. The classes mirror PyFlink's `datastream.formats.csv`; they live here because
`penstock.codecs` exports them and they need only the standard library.
"""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from penstock.base import typeinfo
from penstock.base.errors import FormatError, WrongTypeError, WrongValueError, shorten
from penstock.base.types import Row, values_by_names
from penstock.codecs import serialization
from penstock.codecs.arrow_columns import BAD_VALUE, arrow_schema, columns_by_name, fields_of_rows, to_columns
from penstock.codecs.column_data import ColumnData
from penstock.codecs.pickling import make_rows

__all__ = ["CsvRowDeserializationSchema", "CsvRowSerializationSchema"]

_ARRAYS = (
    typeinfo.BasicArrayTypeInfo,
    typeinfo.ListTypeInfo,
    typeinfo.ObjectArrayTypeInfo,
    typeinfo.PrimitiveArrayTypeInfo,
)


@dataclass(frozen=True, slots=True)
class _Dialect:
    """The CSV dialect. If `null_literal` is None, an empty field of any non-text type is null."""

    row_type: typeinfo.RowTypeInfo
    field_delimiter: str = ","
    array_element_delimiter: str = ";"
    quote_character: str | None = '"'
    escape_character: str | None = None
    null_literal: str | None = None
    line_delimiter: str = "\n"
    allow_comments: bool = False
    ignore_parse_errors: bool = False
    as_columns: bool = False

    def format_parameters(self) -> dict[str, Any]:
        """Return the keyword arguments for the csv module."""
        return {
            "delimiter": self.field_delimiter,
            "quotechar": self.quote_character,
            "quoting": csv.QUOTE_NONE if self.quote_character is None else csv.QUOTE_MINIMAL,
            "escapechar": self.escape_character,
            "doublequote": self.escape_character is None,
        }


class CsvRowDeserializationSchema(serialization.DeserializationSchema[Row]):
    """Parses lines into rows; create one with `CsvRowDeserializationSchema.Builder(row_type)`.

    Examples:
        >>> from penstock.common import CsvRowDeserializationSchema, Types
        >>> row_type = Types.ROW_NAMED(["drink", "cups"], [Types.STRING(), Types.INT()])
        >>> schema = CsvRowDeserializationSchema.Builder(row_type).set_field_delimiter(";").build()
        >>> schema.deserialize(b"tea;2")
        Row(drink='tea', cups=2)
    """

    def __init__(self, dialect: _Dialect) -> None:
        self._dialect = dialect
        if dialect.ignore_parse_errors:
            self.on_error = "skip"
        self._arrow = arrow_schema(dialect.row_type) if dialect.as_columns else None
        self._names = tuple(dialect.row_type.get_field_names())
        self._readers = [_reader(field, dialect) for field in dialect.row_type.get_field_types()]

    def deserialize(self, message: bytes) -> Row | None:
        """Return the row parsed from a line, with field names.

        A field equal to the null literal becomes None; without a null literal, an empty non-text field does. Comments
        are dropped if allowed, and malformed lines if `set_ignore_parse_errors` is set.

        Raises:
            FormatError: if the line cannot be parsed.
        """
        try:
            return self._record(message)
        except serialization.BAD_RECORD as error:
            if self.on_error == "skip":
                return None
            raise FormatError(f"cannot read CSV {shorten(repr(message))}: {error}") from error

    def deserialize_batch(self, messages: Sequence[bytes]) -> serialization.Deserialized:
        """Return the rows parsed from many lines."""
        try:
            columns = self._columns(messages)
            if self._arrow is not None:
                return serialization.Deserialized(columns_by_name(columns, self._arrow))
            return serialization.Deserialized(make_rows(self._names, map(list, zip(*columns, strict=True))))
        except serialization.BAD_RECORD:
            decoded = serialization.decode_each(self._record, messages)
            return decoded if self._arrow is None else to_columns(decoded, self._arrow)

    def _columns(self, messages: Sequence[bytes]) -> list[list[Any]]:
        """Return the values of each field. Raises one of `BAD_RECORD` unless each message is one record."""
        texts = [message.decode() for message in messages]
        if self._dialect.allow_comments and any(map(_is_comment, texts)):
            raise FormatError("a message is a comment")
        lines = list(csv.reader(texts, strict=True, **self._dialect.format_parameters()))
        if len(lines) != len(texts):
            raise FormatError("a message is not one line")
        fields = list(zip(*[line or [""] for line in lines], strict=True)) or [()] * len(self._readers)
        return [list(map(read, column)) for read, column in zip(self._readers, fields, strict=True)]

    def _record(self, message: bytes) -> Row | None:
        text = message.decode()
        if self._dialect.allow_comments and _is_comment(text):
            return None
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True, **self._dialect.format_parameters()))
        if len(lines) > 1:
            raise FormatError(f"{len(lines)} lines in one message")
        fields = lines[0] if lines and lines[0] else [""]
        if len(fields) == len(self._readers) + 1 and not fields[-1].strip():
            fields = fields[:-1]  # the line ends with a delimiter
        if len(fields) != len(self._readers):
            raise FormatError(f"{len(fields)} fields, expected {len(self._readers)}")
        values = []
        for name, read, field in zip(self._names, self._readers, fields, strict=True):
            try:
                values.append(read(field))
            except serialization.BAD_RECORD as error:
                raise FormatError(f"field {name!r}: {serialization.format_reason(error)}") from error
        return make_rows(self._names, (values,))[0]

    def get_produced_type(self) -> typeinfo.TypeInformation:
        """Return the row type."""
        return self._dialect.row_type

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._dialect,), self.malformed_handling()

    class Builder:
        """Collects the settings of a `CsvRowDeserializationSchema`.

        Raises:
            TypeError: if `type_info` is not a row type.
        """

        def __init__(self, type_info: typeinfo.TypeInformation) -> None:
            self._dialect = _Dialect(_row_type(type_info))

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set the field delimiter; a comma by default."""
            self._dialect = replace(self._dialect, field_delimiter=_character(delimiter))
            return self

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """Set whether to drop lines that start with `#`."""
            self._dialect = replace(self._dialect, allow_comments=allow_comments)
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set the delimiter between array elements; a semicolon by default."""
            self._dialect = replace(self._dialect, array_element_delimiter=_not_empty(delimiter))
            return self

        def set_quote_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character that quotes fields containing delimiters; a double quote by default."""
            self._dialect = replace(self._dialect, quote_character=_character(c))
            return self

        def set_escape_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set the escape character; none by default."""
            self._dialect = replace(self._dialect, escape_character=_character(c))
            return self

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            """Set the text that represents None."""
            self._dialect = replace(self._dialect, null_literal=null_literal)
            return self

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> CsvRowDeserializationSchema.Builder:
            """Set whether to drop lines that cannot be parsed instead of failing."""
            self._dialect = replace(self._dialect, ignore_parse_errors=ignore_parse_errors)
            return self

        def as_columns(self) -> CsvRowDeserializationSchema.Builder:
            """Make the schema return columns. Operators that work record by record still see rows.

            PyFlink has no such method.
            """
            self._dialect = replace(self._dialect, as_columns=True)
            return self

        def build(self) -> CsvRowDeserializationSchema:
            """Build the schema.

            Raises:
                ConfigurationError: if rows are requested as columns and a field's type has no Arrow equivalent.
            """
            return CsvRowDeserializationSchema(self._dialect)


class CsvRowSerializationSchema(serialization.SerializationSchema[Any]):
    """Writes rows as UTF-8 lines; create one with `CsvRowSerializationSchema.Builder(row_type)`.

    Examples:
        >>> from penstock.common import CsvRowSerializationSchema, Types
        >>> row_type = Types.ROW_NAMED(["drink", "cups"], [Types.STRING(), Types.INT()])
        >>> CsvRowSerializationSchema.Builder(row_type).set_line_delimiter("").build().serialize(("tea", 2))
        b'tea,2'
    """

    def __init__(self, dialect: _Dialect) -> None:
        self._dialect = dialect
        self._writers = [_writer(field, dialect) for field in dialect.row_type.get_field_types()]

    def serialize(self, element: Any) -> bytes:
        """Return the line for a row or tuple, including the line delimiter.

        Raises:
            FormatError: if the record does not fit the row type, or needs quoting or escaping that is disabled.
        """
        try:
            return self._lines([element])[0]
        except (*BAD_VALUE, csv.Error) as error:
            raise FormatError(f"cannot write {shorten(repr(element))} as CSV: {error}") from error

    def serialize_batch(self, elements: Sequence[Any] | ColumnData) -> list[bytes]:
        """Return the lines for many rows or tuples."""
        try:
            return self._lines(elements)
        except (*BAD_VALUE, csv.Error):
            return super().serialize_batch(elements)

    def _lines(self, elements: Sequence[Any] | ColumnData) -> list[bytes]:
        columns = fields_of_rows(elements, self._dialect.row_type.get_field_names())
        texts = [list(map(write, column)) for write, column in zip(self._writers, columns, strict=True)]
        lines: list[str] = []
        # The csv writer passes each line in one call of `write`.
        out = SimpleNamespace(write=lines.append)
        parameters = self._dialect.format_parameters()
        csv.writer(out, lineterminator=self._dialect.line_delimiter, **parameters).writerows(zip(*texts, strict=True))
        return [line.encode() for line in lines]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._dialect,)

    class Builder:
        """Collects the settings of a `CsvRowSerializationSchema`.

        Raises:
            TypeError: if `type_info` is not a row type.
        """

        def __init__(self, type_info: typeinfo.TypeInformation) -> None:
            self._dialect = _Dialect(_row_type(type_info))

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the field delimiter; a comma by default."""
            self._dialect = replace(self._dialect, field_delimiter=_character(c))
            return self

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            r"""Sets what ends a line: `\n`, which is the default, `\r`, `\r\n`, or nothing.

            Raises:
                ValueError: for anything else.
            """
            if delimiter not in ("\n", "\r", "\r\n", ""):
                raise WrongValueError(f"a line may end in \\n, \\r, \\r\\n or nothing, not {delimiter!r}")
            self._dialect = replace(self._dialect, line_delimiter=delimiter)
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set the delimiter between array elements; a semicolon by default."""
            self._dialect = replace(self._dialect, array_element_delimiter=_not_empty(delimiter))
            return self

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            """Disable quoting; a field that contains a delimiter then needs an escape character."""
            self._dialect = replace(self._dialect, quote_character=None)
            return self

        def set_quote_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character that quotes fields containing delimiters; a double quote by default."""
            self._dialect = replace(self._dialect, quote_character=_character(c))
            return self

        def set_escape_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the escape character; none by default."""
            self._dialect = replace(self._dialect, escape_character=_character(c))
            return self

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            """Set the text that represents None; empty by default."""
            self._dialect = replace(self._dialect, null_literal=s)
            return self

        def build(self) -> CsvRowSerializationSchema:
            """Build the schema."""
            return CsvRowSerializationSchema(self._dialect)


def _is_comment(text: str) -> bool:
    return text.lstrip().startswith("#")


def _reader(type_info: typeinfo.TypeInformation, dialect: _Dialect) -> Callable[[str], Any]:
    """Return a function that parses a field's text into a value of the type, or None."""
    null = dialect.null_literal
    if null is None:
        null = None if type_info in _TEXTS else ""
    read = _value_reader(type_info, dialect)
    return lambda text: None if text == null else read(text)


def _value_reader(type_info: typeinfo.TypeInformation, dialect: _Dialect) -> Callable[[str], Any]:
    delimiter = dialect.array_element_delimiter
    if isinstance(type_info, _ARRAYS):
        element = _reader(type_info.element_type, dialect)
        return lambda text: [element(item) for item in text.split(delimiter)] if text else []
    if isinstance(type_info, typeinfo.RowTypeInfo):
        names = tuple(type_info.get_field_names())
        readers = [_reader(field, dialect) for field in type_info.get_field_types()]

        def read_row(text: str) -> Row:
            row = Row(*[read(item) for read, item in zip(readers, text.split(delimiter), strict=True)])
            row.set_field_names(names)
            return row

        return read_row
    if isinstance(type_info, typeinfo.DateTypeInfo):
        return datetime.date.fromisoformat
    if isinstance(type_info, typeinfo.TimeTypeInfo):
        return datetime.time.fromisoformat
    if isinstance(type_info, typeinfo.TimestampTypeInfo):
        return datetime.datetime.fromisoformat
    if isinstance(type_info, typeinfo.BasicTypeInfo) and type_info.basic_type is not typeinfo.BasicType.INSTANT:
        parse = _PARSERS.get(type_info.basic_type, _to_integer)

        def read_basic(text: str) -> Any:
            value = parse(text)
            if not type_info.accepts(value):
                raise FormatError(f"{text!r} is not of type {type_info}")
            return value

        return read_basic
    raise WrongTypeError(f"{type_info!r} cannot be read from CSV")


def _writer(type_info: typeinfo.TypeInformation, dialect: _Dialect) -> Callable[[Any], str]:
    """Return a function that formats a value of the type, or None, as a field's text."""
    null = dialect.null_literal or ""
    delimiter = dialect.array_element_delimiter
    writers: list[Callable[[Any], str]]
    if isinstance(type_info, _ARRAYS):
        element = _writer(type_info.element_type, dialect)
        return lambda value: null if value is None else _join(delimiter, [element(item) for item in value])
    if isinstance(type_info, typeinfo.RowTypeInfo):
        writers = [_writer(field, dialect) for field in type_info.get_field_types()]
        names = tuple(type_info.get_field_names())

        def write_row(value: Any) -> str:
            if value is None:
                return null
            values = values_by_names(value, names) if isinstance(value, Row) else value
            return _join(delimiter, [write(item) for write, item in zip(writers, values, strict=True)])

        return write_row
    if isinstance(type_info, typeinfo.BasicTypeInfo) and type_info.basic_type is typeinfo.BasicType.INSTANT:
        raise WrongTypeError(f"{type_info!r} cannot be written as CSV")
    if not isinstance(
        type_info, (typeinfo.BasicTypeInfo, typeinfo.DateTypeInfo, typeinfo.TimeTypeInfo, typeinfo.TimestampTypeInfo)
    ):
        raise WrongTypeError(f"{type_info!r} cannot be written as CSV")

    def write_value(value: Any) -> str:
        if value is None:
            return null
        if not type_info.accepts(value):
            raise FormatError(f"{value!r} is not of type {type_info}")
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if isinstance(type_info, typeinfo.BasicTypeInfo) else str(value.isoformat())

    return write_value


def _join(delimiter: str, items: list[str]) -> str:
    for item in items:
        if delimiter in item:
            raise FormatError(f"the element {item!r} contains the element delimiter {delimiter!r}")
    return delimiter.join(items)


def _to_boolean(text: str) -> bool:
    """Parse a Boolean as Flink does, by Java's `Boolean.parseBoolean`: any text except `true` is False."""
    return text.strip().lower() == "true"


def _to_integer(text: str) -> int:
    return int(serialization.number_text(text))


_TEXTS = (typeinfo.BasicTypeInfo(typeinfo.BasicType.STRING), typeinfo.BasicTypeInfo(typeinfo.BasicType.CHAR))
_PARSERS: dict[typeinfo.BasicType, Callable[[str], Any]] = {
    typeinfo.BasicType.STRING: str,
    typeinfo.BasicType.CHAR: str,
    typeinfo.BasicType.BOOLEAN: _to_boolean,
    typeinfo.BasicType.FLOAT: lambda text: float(serialization.number_text(text)),
    typeinfo.BasicType.DOUBLE: lambda text: float(serialization.number_text(text)),
    typeinfo.BasicType.BIG_DEC: serialization.read_decimal,
}


def _row_type(type_info: typeinfo.TypeInformation) -> typeinfo.RowTypeInfo:
    if not isinstance(type_info, typeinfo.RowTypeInfo):
        raise WrongTypeError(f"CSV needs a row type such as Types.ROW_NAMED(...), not {type_info!r}")
    return type_info


def _character(text: str) -> str:
    if len(text) != 1:
        raise WrongValueError(f"expected one character, not {text!r}")
    return text


def _not_empty(text: str) -> str:
    if not text:
        raise WrongValueError("the delimiter of array elements must not be empty")
    return text
