"""Values of MySQL and MariaDB: decoded from the rows of the log, and parsed from the answers of queries, to the same.

`TypeMapping` defines the type of a value in memory: an int, a Decimal, a `datetime`, a str, bytes. A value that this
type cannot hold is *unrepresentable*: a zero date such as `0000-00-00`, or a TIME outside of 24 hours. It fails the
job, or becomes NULL if the settings ask for that; a column that is read as text has the server's text.

The log does not say whether an integer is unsigned, has text in the column's character set, and has the words of an
ENUM as numbers, so each column is decoded by its definition. Single-byte character sets are decoded with a table that
the server provides.
"""

from __future__ import annotations

import codecs
import datetime
import ipaddress
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.base.errors import FormatError, OperationError, UnsupportedError
from penstock.connectors.mysql import client
from penstock.connectors.mysql.cdc.binlog import LoggedTable
from penstock.connectors.mysql.cdc.packed_values import decode_json, find_decimal_decoder
from penstock.connectors.mysql.cdc.tables import (
    BYTES,
    GEOMETRIES,
    INTEGERS,
    TEXTS,
    ColumnDefinition,
    TableDefinition,
    TypeMapping,
)

#: Decodes the value at an offset; returns it and the offset after it.
Decoder: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
#: Parses a value of a query's answer.
Parser: TypeAlias = Callable[[Any], Any]

FAIL, NULL = "fail", "null"
#: the option for unrepresentable values
OPTION: Final = "unrepresentable-values"

#: the character sets that Python decodes as the server does; single-byte character sets come from the server
_CODECS: Final[Mapping[str, str]] = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "utf8": "utf-8",
    "ascii": "ascii",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "gbk": "gbk",
    "gb2312": "gb2312",
    "gb18030": "gb18030",
    "big5": "big5",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
}
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_DAY: Final = datetime.timedelta(days=1)
_ZERO: Final = datetime.timedelta(0)
_MIDNIGHT: Final = datetime.datetime(1970, 1, 1)

# Types of columns in the log.
DECIMAL_OLD, TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24, DATE, TIME, DATETIME, YEAR = (
    *(0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13),
)
NEWDATE, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 14, 15, 16, 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED, VECTOR, JSON, NEWDECIMAL, ENUM, SET = 140, 141, 242, 245, 246, 247, 248
TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, VAR_STRING, STRING, GEOMETRY = 249, 250, 251, 252, 253, 254, 255


class Charsets:
    """The character sets of a server: how their bytes become text."""

    def __init__(self) -> None:
        self._tables: dict[str, str] = {}

    def load(self, connection: Any, charsets: set[str]) -> None:
        """Load from the server the character sets that Python lacks or decodes differently."""
        for charset in sorted(charsets - set(_CODECS) - set(self._tables)):
            all_bytes = bytes(range(256)).hex()
            sql = f"SELECT HEX(CONVERT(CONVERT(UNHEX('{all_bytes}') USING {charset}) USING utf32))"
            with client.naming(f"character set {charset} cannot be read"):
                ((answer,),) = client.query(connection, sql)
            table = bytes.fromhex(answer or "").decode("utf-32-be")
            if len(table) != 256 or charset == "sjis":
                raise UnsupportedError(
                    f"columns of the character set {charset} are not supported: convert them to utf8mb4"
                )
            self._tables[charset] = table

    def find_decoder(self, charset: str | None) -> Callable[[bytes], str]:
        """Return the decoder of a character set.

        Raises:
            UnsupportedError: if the character set was not loaded.
        """
        codec = _CODECS.get(charset or "utf8mb4")
        if codec is not None:
            decode = codecs.lookup(codec).decode
            return lambda data: decode(data, "strict")[0]
        table = self._tables.get(charset or "")
        if table is None:
            raise UnsupportedError(f"columns of the character set {charset} are not supported: convert them to utf8mb4")
        return lambda data: codecs.charmap_decode(data, "strict", table)[0]


@dataclass(frozen=True, slots=True)
class ValueSettings:
    """How values are read.

    Attributes:
        types: the mapping of types.
        unrepresentable: `fail` or `null`.
        as_text: the columns whose unrepresentable values are the server's text, by name in lower case.
        as_number: the columns that are never BOOLEAN, by name in lower case.
    """

    types: TypeMapping = field(default_factory=TypeMapping)
    unrepresentable: str = FAIL
    as_text: frozenset[str] = frozenset()
    as_number: frozenset[str] = frozenset()

    def is_boolean(self, column: ColumnDefinition) -> bool:
        """Return whether a column is read as BOOLEAN."""
        name = column.name.lower()
        return self.types.is_boolean(column) and name not in self.as_text and name not in self.as_number

    def convert(self, column: ColumnDefinition) -> pa.DataType:
        """Return the type of a column's values in memory."""
        if self.types.is_boolean(column) and not self.is_boolean(column):
            return pa.int8() if column.kind == "tinyint" else pa.binary()
        return self.types.convert(column)[0]

    def find_fallback(self, column: ColumnDefinition) -> Callable[[str], Any]:
        """Return the function for texts of the server that the column's type cannot hold."""
        if column.name.lower() in self.as_text:
            return lambda text: text
        if self.unrepresentable == NULL:
            return lambda text: None

        def refuse(text: str) -> Any:
            raise FormatError(
                f"column {column.name!r} has the value {text!r}, which its type {self.types.convert(column)[1]} cannot "
                f"hold: read it as NULL ('{OPTION}' = '{NULL}'), or declare the column as STRING"
            )

        return refuse


# --- rows of the log -----------------------------------------------------------------------------------------------


def find_column_decoder(
    column: ColumnDefinition | None, code: int, metadata: int, charsets: Charsets, settings: ValueSettings
) -> Decoder:
    """Return the decoder of a column of the log.

    Args:
        column: its definition; None for a column that only the server knows, whose values are skipped.
        code: the type in the log.
        metadata: the metadata of the type in the log.
        charsets: how text is read.
        settings: how values are read.

    Raises:
        UnsupportedError: for a type that is not supported.
    """
    if code in (STRING, VAR_STRING):
        code, metadata = _unpack_string(code, metadata)
    if code in (BLOB_COMPRESSED, VARCHAR_COMPRESSED):
        name = "" if column is None else f" {column.name!r}"
        raise UnsupportedError(f"column{name} is COMPRESSED, which is not supported: ALTER TABLE … MODIFY it without")
    raw = _find_raw(code, metadata, column)
    if column is None:
        return raw
    convert = _find_conversion(column, code, metadata, charsets, settings)
    if convert is None:
        return raw

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        value, at = raw(data, at)
        return convert(value), at

    return decode


def _unpack_string(code: int, metadata: int) -> tuple[int, int]:
    """Return the real type and its length: the two are packed for CHAR, BINARY, ENUM and SET."""
    first, second = metadata & 0xFF, metadata >> 8
    if first & 0x30 != 0x30:
        return first | 0x30, second | (((first & 0x30) ^ 0x30) << 4)
    return (first, second) if first in (ENUM, SET, STRING) else (code, second)


def _fixed(size: int, layout: str) -> Decoder:
    unpack = struct.Struct(layout).unpack_from
    return lambda data, at: (unpack(data, at)[0], at + size)


def _little(size: int, is_signed: bool) -> Decoder:
    from_bytes = int.from_bytes
    return lambda data, at: (from_bytes(data[at : at + size], "little", signed=is_signed), at + size)


def _big(size: int) -> Decoder:
    from_bytes = int.from_bytes
    return lambda data, at: (from_bytes(data[at : at + size], "big"), at + size)


def _prefixed(size: int) -> Decoder:
    """Return the decoder of bytes with a length prefix."""
    if size == 1:

        def decode_short(data: bytes, at: int) -> tuple[bytes, int]:
            end = at + 1 + data[at]
            return data[at + 1 : end], end

        return decode_short
    from_bytes = int.from_bytes

    def decode(data: bytes, at: int) -> tuple[bytes, int]:
        begin = at + size
        end = begin + from_bytes(data[at:begin], "little")
        return data[begin:end], end

    return decode


def _raw_bytes(size: int) -> Decoder:
    return lambda data, at: (data[at : at + size], at + size)


def _find_raw(code: int, metadata: int, column: ColumnDefinition | None) -> Decoder:
    """Return the decoder of the raw form of a value."""
    is_unsigned = column is not None and column.is_unsigned
    if code in _INTEGER_LAYOUTS:
        size, layout = _INTEGER_LAYOUTS[code]
        return _fixed(size, layout.upper() if is_unsigned else layout)
    match code:
        case 9:
            return _little(3, not is_unsigned)
        case 4 | 5:
            return _fixed(4, "<f") if metadata == 4 else _fixed(8, "<d")
        case 13:
            return _fixed(1, "<B")
        case 15 | 253:
            return _prefixed(1 if metadata < 256 else 2)
        case 254:
            return _prefixed(1 if metadata < 256 else 2)
        case 252 | 245 | 255 | 242 | 249 | 250 | 251:
            return _prefixed(metadata)
        case 247 | 248:
            return _little(metadata, False)
        case 16:
            return _raw_bytes((metadata >> 8) + (1 if metadata & 0xFF else 0))
        case 246:
            return find_decimal_decoder(metadata & 0xFF, metadata >> 8)
        case 10 | 14:
            return _little(3, False)
        case 7:
            return _fixed(4, "<I")
        case 11:
            return _little(3, True)
        case 12:
            return _fixed(8, "<Q")
        case 17:
            return _raw_bytes(4 + (metadata + 1) // 2)
        case 18:
            return _raw_bytes(5 + (metadata + 1) // 2)
        case 19:
            return _raw_bytes(3 + (metadata + 1) // 2)
    raise UnsupportedError(f"the log has a column of type {code}, which is not supported: leave out its table")


_INTEGER_LAYOUTS: Final = {TINY: (1, "<b"), SHORT: (2, "<h"), LONG: (4, "<i"), LONGLONG: (8, "<q")}


def _find_conversion(
    column: ColumnDefinition, code: int, metadata: int, charsets: Charsets, settings: ValueSettings
) -> Callable[[Any], Any] | None:
    """Return the conversion of a raw value of `_find_raw`; None if it needs no conversion."""
    kind = column.kind
    fallback = settings.find_fallback(column)
    if settings.is_boolean(column):
        return (lambda value: value != b"\0") if kind == "bit" else _boolean(column)
    if kind == "enum" or code == ENUM:
        words: Sequence[str] = ("", *column.words)
        return words.__getitem__
    if kind == "set" or code == SET:
        return _set_words(column.words)
    if kind in TEXTS:
        return charsets.find_decoder(column.charset)
    if kind == "year":
        return lambda value: value + 1900 if value else 0
    if kind == "json" and code == JSON:
        return decode_json
    if kind == "json":
        return charsets.find_decoder(column.charset or "utf8mb4")
    if kind == "decimal" and (column.length or 10) > 38:
        return lambda value: format(value, "f")
    if kind == "binary":
        length = column.length or 1
        return lambda value: value.ljust(length, b"\0")
    if kind == "vector":
        return _read_vector
    if kind == "uuid":
        return lambda value: _uuid(value.ljust(16, b"\0"))
    if kind in ("inet4", "inet6"):
        return _read_address(4 if kind == "inet4" else 16)
    if kind == "date":
        return lambda value: _date(value >> 9, value >> 5 & 15, value & 31, fallback)
    if kind == "time":
        digits = column.length or 0
        return _compose(_time_of_log(code, metadata), lambda value: _time_of_day(value, digits, fallback))
    if kind == "datetime":
        return _datetime_of_log(code, metadata, column.length or 0, fallback)
    if kind == "timestamp":
        return _timestamp_of_log(code, metadata, column.length or 0, fallback)
    return None


def _compose(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: second(first(value))


def _boolean(column: ColumnDefinition) -> Callable[[int], bool]:
    def read(value: int) -> bool:
        if value not in (0, 1):
            raise FormatError(
                f"column {column.name!r} is a TINYINT(1) with the value {value}, which is not a BOOLEAN: read such "
                "columns as TINYINT ('treat-tinyint1-as-boolean.enabled' = 'false')"
            )
        return bool(value)

    return read


def _set_words(words: Sequence[str]) -> Callable[[int], str]:
    def read(bits: int) -> str:
        return ",".join(word for index, word in enumerate(words) if bits >> index & 1)

    return read


def _read_vector(data: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def _uuid(data: bytes) -> str:
    """Return the text of a UUID of MariaDB, which stores the parts of most of them in the opposite order."""
    text = data.hex()
    if data[6] & 0x80 and not data[8] & 0x80:  # see MariaDB's plugin/type_uuid: variant and version are swapped
        return f"{text[24:32]}-{text[20:24]}-{text[16:20]}-{text[12:16]}-{text[:12]}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _read_address(size: int) -> Callable[[bytes], str]:
    def read(data: bytes) -> str:
        data = data.ljust(size, b"\0")
        if size == 4:
            return ".".join(map(str, data))
        text = str(ipaddress.IPv6Address(data))
        if data[:12] == b"\0" * 10 + b"\xff\xff" or (data[:12] == b"\0" * 12 and data[12:14] != b"\0\0"):
            return f"::{'ffff:' if data[10] else ''}{'.'.join(map(str, data[12:]))}"
        return text

    return read


# --- dates and times -----------------------------------------------------------------------------------------------


def _date(year: int, month: int, day: int, fallback: Callable[[str], Any]) -> Any:
    try:
        return datetime.date(year, month, day)
    except ValueError:
        return fallback(f"{year:04}-{month:02}-{day:02}")


def _fraction_text(micros: int, digits: int) -> str:
    return f".{micros:06}"[: digits + 1] if digits else ""


def _datetime(
    date: tuple[int, int, int], time: tuple[int, int, int], micros: int, digits: int, fallback: Callable[[str], Any]
) -> Any:
    try:
        return datetime.datetime(*date, *time, micros)
    except ValueError:
        text = "{:04}-{:02}-{:02} {:02}:{:02}:{:02}".format(*date, *time)
        return fallback(text + _fraction_text(micros, digits))


def _micros(data: bytes, begin: int, metadata: int) -> int:
    """Return the fraction of a second, in µs."""
    size = (metadata + 1) // 2
    return int.from_bytes(data[begin : begin + size], "big") * 100 ** (3 - size) if size else 0


def _datetime_of_log(code: int, metadata: int, digits: int, fallback: Callable[[str], Any]) -> Callable[[Any], Any]:
    def read(data: bytes) -> Any:
        bits = int.from_bytes(data[:5], "big") - 0x8000000000
        date, time = bits >> 17, bits & 0x1FFFF
        months = date >> 5
        parts = (months // 13, months % 13, date & 31)
        return _datetime(parts, (time >> 12, time >> 6 & 63, time & 63), _micros(data, 5, metadata), digits, fallback)

    def read_old(value: int) -> Any:
        date, time = divmod(value, 1_000_000)
        parts = (date // 10_000, date // 100 % 100, date % 100)
        return _datetime(parts, (time // 10_000, time // 100 % 100, time % 100), 0, digits, fallback)

    if code == DATETIME2:
        return read
    if code == DATETIME and digits == 0:
        return read_old
    raise _old_format("DATETIME")


def _old_format(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"the log has a {name} in the format of MariaDB before 10.1: SET GLOBAL mysql56_temporal_format = ON, and "
        "ALTER TABLE … FORCE"
    )


def _timestamp_of_log(code: int, metadata: int, digits: int, fallback: Callable[[str], Any]) -> Callable[[Any], Any]:
    def convert(seconds: int, micros: int) -> Any:
        if not seconds and not micros:
            return fallback("0000-00-00 00:00:00" + _fraction_text(0, digits))
        return _EPOCH + datetime.timedelta(seconds=seconds, microseconds=micros)

    if code == TIMESTAMP2:
        return lambda data: convert(int.from_bytes(data[:4], "big"), _micros(data, 4, metadata))
    if code == TIMESTAMP and digits == 0:
        return lambda seconds: convert(seconds, 0)
    raise _old_format("TIMESTAMP")


def _time_of_log(code: int, metadata: int) -> Callable[[Any], datetime.timedelta]:
    size = 3 + (metadata + 1) // 2
    zero = 0x800000 << (8 * (size - 3))

    def read(data: bytes) -> datetime.timedelta:
        # The sign applies to the number as a whole, including the fraction.
        bits = int.from_bytes(data, "big") - zero
        sign, bits = (-1, -bits) if bits < 0 else (1, bits)
        fraction_bits = 8 * (size - 3)
        whole, fraction = bits >> fraction_bits, bits & ((1 << fraction_bits) - 1)
        micros = fraction * 100 ** (6 - size) if size > 3 else 0
        seconds = (whole >> 12 & 0x3FF) * 3_600 + (whole >> 6 & 63) * 60 + (whole & 63)
        return sign * datetime.timedelta(seconds=seconds, microseconds=micros)

    def read_old(value: int) -> datetime.timedelta:
        sign, value = (-1, -value) if value < 0 else (1, value)
        return sign * datetime.timedelta(hours=value // 10_000, minutes=value // 100 % 100, seconds=value % 100)

    if code == TIME2:
        return read
    if code == TIME and not metadata:
        return read_old
    raise _old_format("TIME")


def _time_of_day(value: datetime.timedelta, digits: int, fallback: Callable[[str], Any]) -> Any:
    if _ZERO <= value < _DAY:
        return (_MIDNIGHT + value).time()
    sign, value = ("-", -value) if value < _ZERO else ("", value)
    minutes, seconds = divmod(value.days * 86_400 + value.seconds, 60)
    text = f"{sign}{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
    return fallback(text + _fraction_text(value.microseconds, digits))


# --- answers of queries ----------------------------------------------------------------------------------------------


def select_expression(column: ColumnDefinition) -> str:
    """Return the expression to select for a column, so that the text of the answer loses nothing."""
    name = client.quoted(column.name)
    if column.kind == "float":
        return f"({name} + 0e0)"
    if column.kind == "vector":
        return f"HEX({name})"
    return name


def find_parser(column: ColumnDefinition, settings: ValueSettings) -> Parser | None:
    """Return the parser of the str or bytes of `select_expression`; None if they need no parsing."""
    kind = column.kind
    fallback = settings.find_fallback(column)
    if settings.is_boolean(column):
        if kind == "bit":
            return lambda data: data != b"\0"
        boolean = _boolean(column)
        return lambda text: boolean(int(text))
    if kind in INTEGERS or kind == "year":
        return int
    if kind in ("float", "double"):
        return float
    if kind == "decimal":
        return str if (column.length or 10) > 38 else Decimal
    if kind == "vector":
        return lambda text: _read_vector(bytes.fromhex(text))
    if kind == "date":
        return lambda text: _date(int(text[:4]), int(text[5:7]), int(text[8:]), fallback)
    if kind in ("datetime", "timestamp"):
        return _datetime_parser(kind == "timestamp", column.length or 0, fallback)
    if kind == "time":
        digits = column.length or 0
        return lambda text: _time_of_day(_parse_time(text), digits, fallback)
    return None


def _datetime_parser(is_moment: bool, digits: int, fallback: Callable[[str], Any]) -> Parser:
    def parse(text: str) -> Any:
        try:
            value = datetime.datetime.fromisoformat(text)
        except ValueError:
            return fallback(text)
        return value.replace(tzinfo=datetime.UTC) if is_moment else value

    return parse


def _parse_time(text: str) -> datetime.timedelta:
    sign = -1 if text.startswith("-") else 1
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    micros = int(fraction.ljust(6, "0") or 0)
    return sign * datetime.timedelta(hours=int(hours), minutes=int(minutes), seconds=int(whole), microseconds=micros)


def make_text(column: ColumnDefinition) -> Callable[[Any], str]:
    """Return the function that formats a value as the server does."""
    digits = column.length or 0
    if column.kind in ("datetime", "timestamp"):
        return lambda value: f"{value:%Y-%m-%d %H:%M:%S}".rjust(19, "0") + _fraction_text(value.microsecond, digits)
    if column.kind == "time":
        return lambda value: f"{value:%H:%M:%S}" + _fraction_text(value.microsecond, digits)
    if column.kind == "decimal" and (column.length or 10) <= 38:
        return lambda value: format(value, "f")
    if column.kind in BYTES or column.kind in GEOMETRIES or column.kind in ("bit", "vector", "float", "double"):

        def refuse(value: Any) -> str:
            raise OperationError(f"column {column.name!r} is a {column.kind}, which is not read as STRING")

        return refuse
    return str


# --- rows ------------------------------------------------------------------------------------------------------------


class RowDecoder:
    """Decodes the rows of the log of one table.

    Args:
        definition: the table, at the position of the rows.
        logged: the table in the log; it may have more columns at the end, which only the server knows.
        charsets: how text is read.
        settings: how values are read.

    Raises:
        OperationError: if the two do not fit each other.
    """

    def __init__(
        self, definition: TableDefinition, logged: LoggedTable, charsets: Charsets, settings: ValueSettings
    ) -> None:
        self._count = len(definition.columns)
        if self._count > len(logged.types):
            raise OperationError(
                f"the log has {len(logged.types)} columns of table {definition.table_id}, which should have "
                f"{self._count}: a statement that changed it was not understood, or not logged. Begin without the "
                "state of the job"
            )
        columns = [*definition.columns, *(None for _ in logged.types[self._count :])]
        self._decoders = [
            find_column_decoder(*arguments, charsets, settings)
            for arguments in zip(columns, logged.types, logged.metadata, strict=True)
        ]
        self._null_bytes = (len(logged.types) + 7) // 8

    def decode(self, data: bytes) -> list[tuple[Any, ...]]:
        """Return the rows, in order; the rows of an update are pairs, before and after.

        Raises:
            FormatError: if the bytes are malformed, or a value is not readable.
        """
        rows = []
        at, end = 0, len(data)
        decoders, size, count, from_bytes = self._decoders, self._null_bytes, self._count, int.from_bytes
        while at < end:
            nulls = from_bytes(data[at : at + size], "little")
            at += size
            values: list[Any] = []
            append = values.append
            for decode in decoders:
                if nulls & 1:
                    append(None)
                else:
                    value, at = decode(data, at)
                    append(value)
                nulls >>= 1
            rows.append(tuple(values[:count]))
        if at != end:
            raise FormatError("the rows of an event of the log do not end where it ends")
        return rows


class RowParser:
    """Selects the columns of a table, and parses the answer, to the same values as `RowDecoder`."""

    def __init__(self, definition: TableDefinition, settings: ValueSettings) -> None:
        self.expressions = ", ".join(map(select_expression, definition.columns))
        parsers = [find_parser(column, settings) for column in definition.columns]
        self._parsers = [(index, parser) for index, parser in enumerate(parsers) if parser is not None]

    def parse(self, rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """Return the values of rows that start with `expressions`."""
        if not rows:
            return []
        columns = list(zip(*rows, strict=True))
        for index, parse in self._parsers:
            column = columns[index]
            if None in column:
                columns[index] = tuple(None if value is None else parse(value) for value in column)
            else:
                columns[index] = tuple(map(parse, column))
        return list(zip(*columns, strict=True))
