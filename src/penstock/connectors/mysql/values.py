"""Conversion between MySQL's values and Arrow columns. Sessions must come from `client.connect`.

**Reading.** The server sends every value as text, or as bytes. `fetch_columns` takes the rows of a query from the
connection in bulk: PyMySQL makes a Python object of each value, which takes most of the time of a scan. `Reading` says
how a column is selected and read:

| server's type | selected as | why |
| --- | --- | --- |
| FLOAT | `column + 0e0` | its own text has six digits; as a DOUBLE, it has all of them |
| BIT | `column + 0`, unless it is read as bytes | its own form is bytes |
| types of geometry | `ST_AsText(column)`, unless they are read as bytes | likewise |

**Unrepresentable values.** A declared type may not hold every value of the server's type:

| value | declared as | becomes |
| --- | --- | --- |
| dates with a zero: `0000-00-00`, `2024-00-10`; the year 0 | DATE, TIMESTAMP | unrepresentable |
| TIME that is negative, or of 24 hours and more | TIME | unrepresentable |
| numbers above the greatest, such as unsigned ones | integers | unrepresentable |
| more digits before the point than the type has | DECIMAL | unrepresentable |
| more digits after the point than the type has | DECIMAL | rounded half up, as in Flink |
| more digits of a second than the type has | TIME, TIMESTAMP | cut off towards the past |
| bytes that are not valid UTF-8 | STRING | unrepresentable |

An unrepresentable value fails the job, or becomes NULL if the option says so. A column declared as STRING holds each
value as the server shows it.

**Writing.** `to_literals` makes SQL literals of a whole column. A session is strict, so the server refuses what its
column cannot hold: numbers out of range, text that is too long, a TIMESTAMP after 2038. NaN and infinity have no
literal, and are refused here. As in every database, excess digits after a point are rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import FormatError, UnsupportedError
from penstock.codecs.arrow_columns import exact_cast
from penstock.connectors.mysql import client
from penstock.connectors.postgres import text_columns

_DIGITS_MAX: Final = 38
_BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector")
_GEOMETRY: Final = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geomcollection",
    "geometrycollection",
)
#: Arrow types of integers: signed and unsigned. Unsigned 64-bit integers are decimals, as in Flink.
_INTEGERS: Final[dict[str, tuple[pa.DataType, pa.DataType]]] = {
    "tinyint": (pa.int8(), pa.int16()),
    "smallint": (pa.int16(), pa.int32()),
    "mediumint": (pa.int32(), pa.int32()),
    "int": (pa.int32(), pa.int64()),
    "bigint": (pa.int64(), pa.decimal128(20, 0)),
    "year": (pa.int32(), pa.int32()),
}
_PLAIN: Final[dict[str, pa.DataType]] = {
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    **dict.fromkeys((*_BYTES, *_GEOMETRY), pa.binary()),
}


def to_arrow_type(column: client.ServerColumn) -> pa.DataType:
    """Return the Arrow type of a column of the server; text for types without a counterpart."""
    kind = column.kind
    if kind == "tinyint" and column.sql_type.startswith("tinyint(1)") and not column.is_unsigned:
        return pa.bool_()
    if kind in _INTEGERS:
        return _INTEGERS[kind][column.is_unsigned and kind != "year"]
    if kind == "bit":
        return pa.bool_() if column.precision == 1 else pa.binary()
    if kind == "decimal":
        precision, scale = column.precision or 10, column.scale or 0
        return pa.decimal128(precision, scale) if precision <= _DIGITS_MAX else pa.string()
    return _PLAIN.get(kind, pa.string())


@dataclass(frozen=True, slots=True)
class Reading:
    """How a column of the server is selected, and read as a type.

    Attributes:
        expression: what to select.
        type: the Arrow type.
        title: the name of the column, for errors.
    """

    expression: str
    type: pa.DataType
    title: str

    @staticmethod
    def of(column: client.ServerColumn, kind: pa.DataType, alias: str = "") -> Reading:
        """Return how to read a column. `alias`: what comes before its name, such as `t.`.

        Raises:
            UnsupportedError: for a type that no value of the server is read as.
        """
        if pa.types.is_nested(kind) or pa.types.is_duration(kind):
            raise UnsupportedError(
                f"column {column.name!r} cannot be read as {kind}: declare it as STRING, and take it apart by "
                "functions of JSON"
            )
        name = alias + client.quoted(column.name)
        is_text = pa.types.is_string(kind)
        if column.kind == "float" and not is_text:
            name = f"({name} + 0e0)"
        elif column.kind == "bit" and not pa.types.is_binary(kind):
            name = f"({name} + 0)"
        elif column.kind in _GEOMETRY and is_text:
            name = f"ST_AsText({name})"
        return Reading(name, kind, column.name)

    def read(self, values: pa.Array, unrepresentable: str) -> pa.Array:
        """Convert the server's values.

        Raises:
            FormatError: for a value that the type cannot hold, unless such values become NULL.
        """
        if pa.types.is_binary(self.type):
            return values
        try:
            return _convert(values.cast(pa.string()), self.type)
        except (pa.ArrowException, ValueError, OverflowError):
            pass
        texts = pa.array([self._text(value, unrepresentable) for value in values.to_pylist()], pa.string())
        return text_columns.read_one_by_one(texts, self.type, self.title, unrepresentable, _convert, "the server")

    def _text(self, value: bytes | None, unrepresentable: str) -> str | None:
        try:
            return None if value is None else value.decode()
        except UnicodeDecodeError:
            if unrepresentable == text_columns.NULL:
                return None
            raise FormatError(
                f"column {self.title!r} has bytes that are no text: declare the column as BYTES, or read such values "
                f"as NULL ('{text_columns.OPTION}' = '{text_columns.NULL}')"
            ) from None


def _convert(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_boolean(kind):
        return pc.not_equal(texts.cast(pa.int64()), 0)
    if pa.types.is_time(kind):
        moments = pc.binary_join_element_wise("1970-01-01 ", texts, "").cast(pa.timestamp("us"))
        return moments.cast(pa.time64("us")).cast(kind, safe=False)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        # The server has a year 0, which calendars here do not have.
        if pc.any(pc.starts_with(texts, "0000-")).as_py():
            raise ValueError("a date in the year 0")
        if pa.types.is_timestamp(kind):
            return exact_cast(texts.cast(pa.timestamp("us")), kind)
        # A moment read as a date loses its time, towards the past.
        return pc.utf8_slice_codeunits(texts, 0, 10).cast(kind)
    return exact_cast(texts, kind)


# --- rows of a query -------------------------------------------------------------------------------------------------

_CHUNK_BYTES: Final = 1 << 18
#: Rows of this size are converted even if there are fewer rows than wanted.
_BATCH_BYTES: Final = 1 << 22
_PACKET_MAX: Final = 0xFFFFFF
_NULL, _BITS_16, _BITS_24, _BITS_64, _ERROR = 251, 252, 253, 254, 255


def fetch_columns(connection: Any, sql: str, rows: int) -> Iterator[list[pa.Array]]:
    """Run a query, and yield its columns as bytes, at most `rows` rows at a time.

    The connection can do nothing else until the last row is read; close it to stop earlier.

    Raises:
        pymysql.err.MySQLError: if the server refuses the query, or the connection is lost.
    """
    connection.query(sql, unbuffered=True)
    result = connection._result
    # The rows are read here, and not by the result when it is deleted.
    result.unbuffered_active = False
    count = int(result.field_count)
    buffer, at = b"", 0
    starts: list[int] = []
    while True:
        at, missing = _mark_rows(buffer, at, starts, rows)
        if missing > 0 and at < _BATCH_BYTES:
            buffer += _receive(connection, missing)
            continue
        if missing < 0 and buffer[at : at + 3] == b"\xff\xff\xff":
            buffer, after, missing = _join_packets(buffer, at)
            if missing:
                buffer += _receive(connection, missing)
            else:
                starts.append(at + 4)
                at = after
            continue
        if starts:
            yield split_rows(buffer, starts, count)
        if missing < 0:
            _check_end(buffer[at + 4 :])
            return
        buffer, at, starts = buffer[at:], 0, []


def _mark_rows(buffer: bytes, at: int, starts: list[int], rows: int) -> tuple[int, int]:
    """Add where rows begin, until there are enough.

    Returns:
        Where the next packet begins, and how many bytes of it are missing; -1 if it is not a row of one packet.
    """
    end = len(buffer)
    while len(starts) < rows:
        if at + 5 > end:
            return at, at + 5 - end
        size = buffer[at] | buffer[at + 1] << 8 | buffer[at + 2] << 16
        head = buffer[at + 4]
        if size == _PACKET_MAX:
            return at, -1
        if at + 4 + size > end:
            return at, at + 4 + size - end
        if head == _ERROR or (head == _BITS_64 and size < 9):
            return at, -1
        starts.append(at + 4)
        at += 4 + size
    return at, 0


def _join_packets(buffer: bytes, at: int) -> tuple[bytes, int, int]:
    """Make one packet of a row that has several.

    Returns:
        The bytes with it, where the next packet begins, and how many bytes are missing before it can be made.
    """
    parts, after, size = [], at, _PACKET_MAX
    while size == _PACKET_MAX:
        if after + 4 > len(buffer):
            return buffer, at, after + 4 - len(buffer)
        size = int.from_bytes(buffer[after : after + 3], "little")
        if after + 4 + size > len(buffer):
            return buffer, at, after + 4 + size - len(buffer)
        parts.append(buffer[after + 4 : after + 4 + size])
        after += 4 + size
    joined = b"".join([buffer[: at + 4], *parts])
    return joined + buffer[after:], len(joined), 0


def _receive(connection: Any, least: int) -> bytes:
    try:
        part: bytes = connection._rfile.read1(max(least, _CHUNK_BYTES))
    except (OSError, ValueError, AttributeError):  # it was reset, or closed in another thread
        part = b""
    if not part:
        connection._force_close()
        raise client.load_library().err.OperationalError(2013, "Lost connection to the server during a query")
    return part


def _check_end(packet: bytes) -> None:
    """Raise the error of a packet, if it has one."""
    if packet[0] == _ERROR:
        from pymysql import protocol

        protocol.MysqlPacket(packet, "utf8").raise_for_error()


def split_rows(data: bytes, starts: Sequence[int], count: int) -> list[pa.Array]:
    """Return the columns of rows as bytes: each value of a row is its length, followed by its bytes."""
    octets = np.frombuffer(data, np.uint8)
    at = np.array(starts, np.int64)
    columns = []
    for _ in range(count):
        head = octets[at]
        lengths, heads = head.astype(np.int64), np.ones(len(at), np.int64)
        is_null = head == _NULL
        if head.size and head.max() >= _NULL:
            lengths[is_null] = 0
            for mark, width in ((_BITS_16, 2), (_BITS_24, 3), (_BITS_64, 8)):
                marked = np.flatnonzero(head == mark)
                if len(marked):
                    lengths[marked] = sum(
                        octets[at[marked] + 1 + shift].astype(np.int64) << (8 * shift) for shift in range(width)
                    )
                    heads[marked] = 1 + width
        begins = at + heads
        at = begins + lengths
        columns.append(_gather(data, octets, begins, lengths, is_null))
    return columns


def _gather(data: bytes, octets: Any, begins: Any, lengths: Any, is_null: Any) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    total = int(offsets[-1])
    if total > 48 * len(lengths):  # long values are faster copied one by one
        values = b"".join([data[begin:end] for begin, end in zip(begins, begins + lengths, strict=True)])
    else:
        values = octets[np.arange(total) + np.repeat(begins - offsets[:-1], lengths)].tobytes()
    nulls = pa.py_buffer(np.packbits(~is_null, bitorder="little").tobytes()) if is_null.any() else None
    buffers = [nulls, pa.py_buffer(offsets.astype(np.int32).tobytes()), pa.py_buffer(values)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(lengths), buffers)


# --- literals --------------------------------------------------------------------------------------------------------


def to_literals(column: pa.Array, title: str) -> pa.Array:
    """Return a column as SQL literals; `title` is its name, for errors.

    Raises:
        FormatError: for NaN and infinity.
        UnsupportedError: for types that the server does not have.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return pa.array(["NULL"] * len(column), pa.string())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        escaped = pc.replace_substring(pc.replace_substring(column, "\\", "\\\\"), "'", "''")
        texts = pc.binary_join_element_wise("'", escaped, "'", "")
    elif pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_large_binary(kind):
        texts = pa.array([None if value is None else f"x'{value.hex()}'" for value in column.to_pylist()], pa.string())
    elif pa.types.is_boolean(kind):
        texts = pc.if_else(column, "1", "0")
    elif pa.types.is_integer(kind):
        texts = column.cast(pa.string())
    elif pa.types.is_decimal(kind):
        texts = _decimals(column)
    elif pa.types.is_floating(kind):
        texts = _floats(column, title)
    elif pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        if pa.types.is_time(kind):
            plain = exact_cast(column, pa.time64("us"))
        else:
            plain = column if pa.types.is_date(kind) else exact_cast(column, pa.timestamp("us", kind.tz))
            plain = plain.cast(pa.timestamp("us")) if pa.types.is_timestamp(kind) else plain
        texts = pc.binary_join_element_wise("'", plain.cast(pa.string()), "'", "")
    else:
        raise UnsupportedError(f"column {title!r} of {kind} cannot be written: write it as text, such as JSON")
    return texts.fill_null("NULL")


def _decimals(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    # A number with an exponent would be a DOUBLE.
    if not pc.any(pc.match_substring(texts, "E")).as_py():
        return texts
    return pa.array([None if value is None else format(value, "f") for value in column.to_pylist()], pa.string())


def _floats(column: pa.Array, title: str) -> pa.Array:
    numbers = column.cast(pa.float64())
    if pc.all(pc.is_finite(numbers)).as_py() is False:
        raise FormatError(
            f"column {title!r} has NaN or infinity, which MySQL and MariaDB cannot hold: write NULL, or a text"
        )
    texts = numbers.cast(pa.string())
    return pc.if_else(pc.match_substring(texts, "e"), texts, pc.binary_join_element_wise(texts, "e0", ""))


def to_rows(columns: Sequence[pa.Array]) -> pa.Array:
    """Return each row of columns of literals as `(a,b)`."""
    return pc.binary_join_element_wise("(", pc.binary_join_element_wise(*columns, ","), ")", "")
