"""Text columns: parsing to columns of values with a report of invalid texts; and `raw`, messages of one value.

A `raw` table has one column, whose value is the whole message; in files each line is a message.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.config_options import ConfigOption, ConfigOptions, choice
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.codecs.serialization import BadMessage, Deserialized
from penstock.formats.file_format import check_charset
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, to_column, to_values
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.formats import format
from penstock.sql.functions.definition import Session
from penstock.sql.functions.text_casts import from_text_kernel
from penstock.sql.logical.nodes import PlanColumn, RowSchema
from penstock.sql.tables.connector import TableOptions

_STRING: Final = types.VarCharType(types.LENGTH_MAX)
_WHOLE: Final = r"^[+-]?[0-9]+$"
_MOMENTS: Final = (types.TimestampType, types.LocalZonedTimestampType)
_PLAIN: Final = (types.NumericType, types.BooleanType, types.DateType, types.TimeType, *_MOMENTS)


class Read(NamedTuple):
    """Parsed values, with NULL for invalid texts; `bad` marks the invalid texts, and is None if all are valid."""

    values: pa.Array
    bad: pa.Array | None = None


#: parses a column of texts
ReadColumn = Callable[[pa.Array], Read]


@dataclass(frozen=True, slots=True)
class TextRules:
    """How values are written as text.

    Attributes:
        null: the text for NULL, if any.
        separator: separates the elements of an array, and the fields of a nested row.
        is_iso: whether timestamps have a T between date and time; otherwise a space. None for either.
    """

    null: str | None = None
    separator: str = ";"
    is_iso: bool | None = None


def column_reader(kind: DataType, rules: TextRules, what: str) -> ReadColumn:
    """Return the function that parses texts to a type. Raises `UnsupportedError`, naming `what`, for other types."""
    read = _reader(kind, rules, what)
    if rules.null is None:
        return read
    null = pa.scalar(rules.null)

    def read_nulls(texts: pa.Array) -> Read:
        return read(pc.if_else(pc.equal(texts, null), pa.scalar(None, pa.string()), texts))

    return read_nulls


def _reader(kind: DataType, rules: TextRules, what: str) -> ReadColumn:
    match kind:
        case types.CharType() | types.VarCharType():
            return Read
        case types.BinaryType() | types.VarBinaryType():
            return _binaries
        case types.BooleanType():
            return _booleans
        case types.MultisetType() | types.MapType():
            raise UnsupportedError(f"{what} of type {kind} cannot be written as text in a line")
        case types.ArrayType(element_type=element):
            return _array(column_reader(element, rules, what), rules.separator, kind)
        case types.RowType():
            return _row(
                [column_reader(field_type, rules, what) for field_type in kind.field_types()], rules.separator, kind
            )
        case _ if isinstance(kind, _PLAIN):
            return _plain(kind, rules)
        case _:
            raise UnsupportedError(f"{what} of type {kind} cannot be written as text in a line")


def _plain(kind: DataType, rules: TextRules) -> ReadColumn:
    convert = from_text_kernel(_STRING, kind, Session(), True)

    def read(texts: pa.Array) -> Read:
        given = pc.utf8_trim_whitespace(texts)
        given = pc.if_else(pc.equal(given, ""), pa.scalar(None, pa.string()), given)
        candidates = given
        if isinstance(kind, types.IntegralType):
            candidates = pc.if_else(pc.match_substring_regex(given, _WHOLE), given, pa.scalar(None, pa.string()))
        elif isinstance(kind, _MOMENTS):
            candidates = _moments(given, kind, rules.is_iso)
        return _checked(given, convert(candidates))

    return read


def _moments(texts: pa.Array, kind: DataType, is_iso: bool | None) -> pa.Array:
    """Return timestamps in the form that a cast reads. TIMESTAMP_LTZ values end with Z."""
    if is_iso is not None:
        pattern = r"^[^ T]*T[^ T]*$" if is_iso else r"^[^T]*$"
        texts = pc.if_else(pc.match_substring_regex(texts, pattern), texts, pa.scalar(None, pa.string()))
    if isinstance(kind, types.LocalZonedTimestampType):
        texts = pc.replace_substring_regex(texts, r"Z$", "")
    return pc.replace_substring(texts, "T", " ")


def _checked(given: pa.Array, converted: pa.Array) -> Read:
    if converted.null_count == given.null_count:
        return Read(converted)
    return Read(converted, pc.and_(given.is_valid(), converted.is_null()))


def _booleans(texts: pa.Array) -> Read:
    """Parse like Java's `Boolean.parseBoolean`, which Flink uses: TRUE for `true`, NULL for blank text, else FALSE."""
    given = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    given = pc.if_else(pc.equal(given, ""), pa.scalar(None, pa.string()), given)
    return Read(pc.equal(given, "true"))


def _binaries(texts: pa.Array) -> Read:
    given = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    return _checked(given, _base64(given))


def _base64(texts: pa.Array) -> pa.Array:
    def decode_text(text: str | None) -> bytes | None:
        try:
            return None if text is None else base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return None

    return pa.array(list(map(decode_text, texts.to_pylist())), pa.binary())


def _array(read: ReadColumn, separator: str, kind: DataType) -> ReadColumn:
    target_type = arrow_type(kind)

    def read_array(texts: pa.Array) -> Read:
        parts = pc.split_pattern(texts, separator)
        empty = pc.equal(texts, "")
        # An empty text is an empty array, not an array with one empty element.
        parts = pc.if_else(empty, pa.scalar([], parts.type), parts)
        elements, bad = read(parts.flatten())
        offsets = parts.offsets if not parts.null_count else _offsets(parts)
        values = pa.ListArray.from_arrays(offsets, elements, type=target_type)
        if bad is None:
            return Read(values)
        flags = pa.ListArray.from_arrays(parts.offsets, bad)
        return Read(values, pa.array([any(element_flags or ()) for element_flags in flags.to_pylist()], pa.bool_()))

    return read_array


def _offsets(parts: pa.Array) -> pa.Array:
    missing = [*parts.is_null().to_pylist(), False]
    return pa.array(
        [None if is_missing else at for is_missing, at in zip(missing, parts.offsets.to_pylist(), strict=True)],
        pa.int32(),
    )


def _row(reads: list[ReadColumn], separator: str, kind: types.RowType) -> ReadColumn:
    target_type = arrow_type(kind)

    def read_row(texts: pa.Array) -> Read:
        given = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
        rows = [None if text is None else text.split(separator) for text in given.to_pylist()]
        columns, bad = [], pa.array([row is not None and len(row) != len(reads) for row in rows], pa.bool_())
        for index, read in enumerate(reads):
            texts_of = [row[index] if row is not None and len(row) == len(reads) else None for row in rows]
            array, wrong = read(pa.array(texts_of, pa.string()))
            columns.append(array)
            bad = bad if wrong is None else pc.or_(bad, wrong)
        values = pa.StructArray.from_arrays(columns, fields=list(target_type), mask=pc.or_(given.is_null(), bad))
        return Read(values, bad)

    return read_row


CHARSET: Final = (
    ConfigOptions.key("charset").string_type().default_value("UTF-8").with_description("The character set of strings.")
)
ENDIANNESS: Final = ConfigOption(
    "endianness", choice("big-endian", "little-endian"), "big-endian", "The byte order of numbers."
)
#: the `struct` codes of numbers
_CODES: Final[dict[type[DataType], str]] = {
    types.TinyIntType: "b",
    types.SmallIntType: "h",
    types.IntType: "i",
    types.BigIntType: "q",
    types.FloatType: "f",
    types.DoubleType: "d",
    types.BooleanType: "?",
}


class RawTableFormat(format.TableFormat):
    """See the module docstring."""

    name = "raw"
    options = (CHARSET, ENDIANNESS)

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> format.Decoding:
        """See `TableFormat`."""
        decoder = RawDecoder(_column(schema, options), len(wanted), *_rules(options))
        return format.Decoding(format.LinesFormat(decoder, skips_empty=False, skips_bad=False), decoder)

    def encoding(self, schema: RowSchema, options: TableOptions) -> format.Encoding:
        """See `TableFormat`."""
        encoder = RawEncoder(_column(schema, options), *_rules(options))
        return format.Encoding(format.LinesWriterFactory(encoder, schema), encoder)


class RawDecoder(format.MessageDecoder):
    """Reads the value of the only column. `times`: how often the column is selected."""

    def __init__(self, column: PlanColumn, times: int, charset: str, order: str) -> None:
        self._parts = column, times, charset, order
        self._column = column
        self._times = times
        self._read = _create_raw_reader(column.type, charset, order)

    def decode(self, messages: Sequence[bytes]) -> Deserialized:
        """See `MessageDecoder`."""
        values, bad = [], []
        for index, message in enumerate(messages):
            try:
                values.append(self._read(message))
            except (UnicodeDecodeError, struct.error) as error:
                name, kind = self._column.name, self._column.type
                bad.append(BadMessage(index, f"column '{name}': the bytes are no {kind}: {error}"))
        array = to_column(values, self._column.type)
        columns = pa.RecordBatch.from_arrays([array] * self._times, [self._column.name] * self._times)
        return format.decoded(columns, len(messages), bad)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


class RawEncoder(format.MessageEncoder):
    """Writes the value of the only column; NULL is empty."""

    def __init__(self, column: PlanColumn, charset: str, order: str) -> None:
        self._parts = column, charset, order
        self._type = column.type
        self._write = _writer(column.type, charset, order)

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """See `MessageEncoder`."""
        write = self._write
        return [b"" if value is None else write(value) for value in to_values(columns.column(0), self._type)]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


def _column(schema: RowSchema, options: TableOptions) -> PlanColumn:
    if len(schema) != 1:
        raise ValidationError(
            f"The 'raw' format only supports single physical column. But table {options.title} has "
            f"{len(schema)}: {', '.join(schema.names)}"
        )
    column = schema[0]
    if not isinstance(column.type, (types.CharType, types.VarCharType, types.BinaryType, types.VarBinaryType, *_CODES)):
        raise UnsupportedError(f"the format 'raw' has no form for column '{column.name}' of type {column.type}")
    return column


def _rules(options: TableOptions) -> tuple[str, str]:
    try:
        charset = check_charset(options.read(CHARSET))
    except ConfigurationError as error:
        raise options.wrong(CHARSET.key(), str(error)) from error
    return charset, ">" if options.read(ENDIANNESS) == "big-endian" else "<"


def _create_raw_reader(kind: DataType, charset: str, order: str) -> Callable[[bytes], Any]:
    if isinstance(kind, types.CharType | types.VarCharType):
        return lambda message: message.decode(charset)
    if type(kind) in _CODES:
        number = struct.Struct(order + _CODES[type(kind)])
        return lambda message: number.unpack(message)[0]
    return lambda message: message


def _writer(kind: DataType, charset: str, order: str) -> Callable[[Any], bytes]:
    if isinstance(kind, types.CharType | types.VarCharType):
        return lambda value: bytes(value.encode(charset))
    if type(kind) in _CODES:
        return struct.Struct(order + _CODES[type(kind)]).pack
    return lambda value: bytes(value)
