"""`raw`: one column, whose value is the whole message; in files each line is a message."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions, choice
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.codecs.serialization import BadMessage, Deserialized
from penstock.formats.file_format import check_charset
from penstock.sql.data import types
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.formats.format import (
    Decoding,
    Encoding,
    LinesFormat,
    LinesWriterFactory,
    MessageDecoder,
    MessageEncoder,
    TableFormat,
    decoded,
)
from penstock.sql.logical.nodes import PlanColumn, RowSchema
from penstock.sql.tables.connector import TableOptions

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


class RawTableFormat(TableFormat):
    """See the module docstring."""

    name = "raw"
    options = (CHARSET, ENDIANNESS)

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> Decoding:
        """See `TableFormat`."""
        decoder = RawDecoder(_column(schema, options), len(wanted), *_rules(options))
        return Decoding(LinesFormat(decoder, skips_empty=False, skips_bad=False), decoder)

    def encoding(self, schema: RowSchema, options: TableOptions) -> Encoding:
        """See `TableFormat`."""
        encoder = RawEncoder(_column(schema, options), *_rules(options))
        return Encoding(LinesWriterFactory(encoder, schema), encoder)


class RawDecoder(MessageDecoder):
    """Reads the value of the only column. `times`: how often the column is selected."""

    def __init__(self, column: PlanColumn, times: int, charset: str, order: str) -> None:
        self._parts = column, times, charset, order
        self._column = column
        self._times = times
        self._read = _reader(column.type, charset, order)

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
        return decoded(columns, len(messages), bad)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


class RawEncoder(MessageEncoder):
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


def _reader(kind: DataType, charset: str, order: str) -> Callable[[bytes], Any]:
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
