"""Conversion between PostgreSQL's text form of values and Arrow columns. Sessions must be set to UTC and ISO.

**Unrepresentable values.** A declared type may not hold every value of the server's type:

| value | declared as | becomes |
| --- | --- | --- |
| NaN or infinity of `numeric` | DECIMAL | unrepresentable; DOUBLE and FLOAT hold both |
| more digits after the point than the type has | DECIMAL | rounded half up, as in Flink |
| more digits before the point than the type has | DECIMAL | unrepresentable |
| `infinity` and `-infinity`, years BC, years above 9999 | DATE, TIMESTAMP | unrepresentable |
| timestamps outside 1677-09-21 to 2262-04-11 | TIMESTAMP(7) to (9) | unrepresentable |
| more digits of a second than the type has | TIME, TIMESTAMP | cut off towards the past |
| `24:00:00` | TIME | unrepresentable |

An unrepresentable value fails the job, or becomes NULL if the option says so. A column declared as STRING holds each
value in the server's text form.

**Vectors.** Values of the types `vector` and `halfvec`, from the extension pgvector, are read and written as arrays.
Their text form is `[1,2]`.

**Keys.** `has_exact_keys` compares key types here and in the database: do keys that differ here always differ there? A
database column may store less than the written value: fewer digits of a number or a timestamp, or a text without its
trailing spaces. Or its comparison ignores differences: citext ignores case, and a uuid in capitals is the same uuid.
Two keys of a batch then become one row.
"""

from __future__ import annotations

import datetime
import decimal
import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from penstock.base.errors import ConfigurationError, FormatError, UnsupportedError
from penstock.codecs.arrow_columns import DIGITS, exact_cast

if TYPE_CHECKING:
    import psycopg


#: The two ways to handle unrepresentable values.
FAIL, NULL = "fail", "null"
MODES: Final = (FAIL, NULL)
OPTION: Final = "unrepresentable-values"
#: More digits than any numeric of the server has.
_CONTEXT: Final = decimal.Context(prec=200_000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def check_mode(mode: str) -> str:
    """Return the mode. Raises `ConfigurationError` if it is unknown."""
    if mode not in MODES:
        raise ConfigurationError(f"values that a type cannot hold {' or become '.join(MODES)}, not {mode!r}")
    return mode


def read_one_by_one(
    texts: pa.Array,
    kind: pa.DataType,
    name: str,
    mode: str,
    read: Callable[[pa.Array, pa.DataType], pa.Array],
    server: str = "PostgreSQL",
) -> pa.Array:
    """Read a column of texts, although the type may not hold some of them.

    Args:
        texts: values in the server's text form.
        kind: the type of the column; not a list.
        name: the column's name, for errors.
        mode: `FAIL` or `NULL`.
        read: reads texts as values of the type; raises if it cannot.
        server: the server's name, for errors.

    Raises:
        FormatError: for a value that the type cannot hold, in mode `FAIL`.
    """
    readable: list[str | None] = []
    for text in texts.to_pylist():
        rounded = _round(text, kind) if pa.types.is_decimal(kind) and text is not None else text
        if rounded is not None and _can_read(rounded, kind, read):
            readable.append(rounded)
        elif text is None or mode == NULL:
            readable.append(None)
        else:
            raise FormatError(
                f"column {name!r} of {server} has the value {text!r}, which {kind} cannot hold: declare the column "
                f"as text (STRING), or read such values as NULL ('{OPTION}' = '{NULL}')"
            )
    return read(pa.array(readable, pa.string()), kind)


def _can_read(text: str, kind: pa.DataType, read: Callable[[pa.Array, pa.DataType], pa.Array]) -> bool:
    if pa.types.is_decimal(kind):
        return True
    try:
        read(pa.array([text], pa.string()), kind)
    except (pa.ArrowException, ValueError, OverflowError):
        return False
    return True


def _round(text: str, kind: pa.DataType) -> str | None:
    """Round a number to a type's digits, as text; None for NaN, infinity, or too many digits before the point."""
    try:
        number = decimal.Decimal(text)
    except decimal.InvalidOperation:
        return None
    if not number.is_finite():
        return None
    rounded = number.quantize(decimal.Decimal(1).scaleb(-kind.scale), decimal.ROUND_HALF_UP, _CONTEXT)
    is_held = not rounded or rounded.adjusted() + 1 + kind.scale <= kind.precision
    return format(rounded, "f") if is_held else None


#: Session settings for the text form that these functions read and write.
SESSION: Final = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET bytea_output = 'hex'; SET extra_float_digits = 1"
)

#: The types of pgvector that store each number.
VECTORS: Final = ("vector", "halfvec")
#: Arrow types of server types, by their names in the catalog. All others are read as strings, in the server's text
#: form.
_PLAIN: Final[dict[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "oid": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "bytea": pa.binary(),
    **dict.fromkeys(VECTORS, pa.list_(pa.float32())),
}
_DIGITS_MAX: Final = 38
#: the type of a numeric without declared digits, as in Flink
_NUMERIC: Final = pa.decimal128(38, 18)


def to_arrow_type(name: str, modifier: int) -> pa.DataType:
    """Return the Arrow type of a server type; `modifier` encodes its digits. Names of array types begin with `_`."""
    if name.startswith("_"):
        return pa.list_(to_arrow_type(name[1:], modifier))
    if name == "numeric":
        if modifier < 0:
            return _NUMERIC
        digits, scale = digits_of_numeric(modifier)
        return pa.decimal128(digits, scale) if digits <= _DIGITS_MAX and 0 <= scale <= digits else pa.string()
    return _PLAIN.get(name, pa.string())


def digits_of_numeric(modifier: int) -> tuple[int, int]:
    """Return the declared precision and scale of a numeric, decoded from the server's modifier."""
    digits, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
    return digits, scale - 0x800 if scale >= 0x400 else scale


def parse_column(texts: pa.Array, kind: pa.DataType, name: str, unrepresentable: str = FAIL) -> pa.Array:
    """Convert a column of texts to another type.

    Args:
        texts: values in the server's text form.
        kind: the type.
        name: the column's name, for errors.
        unrepresentable: how to read values that the type cannot hold.

    Raises:
        FormatError: for a text that is not a value of the type; the message names the column.
        UnsupportedError: for types without a text form on the server.
    """
    read = _reader(kind)
    try:
        return read(texts, kind)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        if pa.types.is_list(kind):
            return _lists_one_by_one(texts, kind, name, unrepresentable, error)
    return read_one_by_one(texts, kind, name, unrepresentable, read)


def parse_texts(texts: Sequence[str | None], kind: pa.DataType) -> list[Any] | None:
    """Convert values in the server's text form to Python values, which is faster than by a column of a few rows.

    Args:
        texts: the values; sessions must be set to UTC and ISO.
        kind: the type that the server's type has here.

    Returns:
        what `parse_column` followed by `to_pylist` gives; None for a type or a value that only these read.
    """
    parse = _PARSERS.get(kind)
    if parse is None:
        if not pa.types.is_decimal(kind) or kind == _NUMERIC:  # a numeric without digits may have any number of them
            return None
        parse = _parse_decimals
    try:
        if None not in texts:
            return parse(texts)  # type: ignore[arg-type]
        values = iter(parse([text for text in texts if text is not None]))
        return [None if text is None else next(values) for text in texts]
    except (ValueError, ArithmeticError):
        return None


def _parse_decimals(texts: Sequence[str]) -> list[Any]:
    numbers = list(map(decimal.Decimal, texts))
    if not all(map(decimal.Decimal.is_finite, numbers)):
        raise ValueError("NaN and infinity are no DECIMAL")
    return numbers


def _parse_moments(texts: Sequence[str]) -> list[Any]:
    parse = datetime.datetime.fromisoformat
    return [parse(text[:-3]).replace(tzinfo=_UTC) if text[-3:] == "+00" else _refuse(text) for text in texts]


def _refuse(text: str) -> Any:
    raise ValueError(f"{text!r} is not as sessions in UTC have it")


#: what `to_pylist` gives moments
_UTC: Final = pa.scalar(0, pa.timestamp("us", "UTC")).as_py().tzinfo
_PARSERS: Final[Mapping[pa.DataType, Callable[[Sequence[str]], list[Any]]]] = {
    pa.string(): list,
    pa.bool_(): lambda texts: list(map("t".__eq__, texts)),
    **dict.fromkeys((pa.int16(), pa.int32(), pa.int64()), lambda texts: list(map(int, texts))),
    pa.float64(): lambda texts: list(map(float, texts)),
    pa.date32(): lambda texts: list(map(datetime.date.fromisoformat, texts)),
    pa.time64("us"): lambda texts: list(map(datetime.time.fromisoformat, texts)),
    pa.timestamp("us"): lambda texts: list(map(datetime.datetime.fromisoformat, texts)),
    pa.timestamp("us", "UTC"): _parse_moments,
    pa.binary(): lambda texts: [bytes.fromhex(text[2:]) for text in texts],
}


def _lists_one_by_one(
    texts: pa.Array, kind: pa.DataType, name: str, unrepresentable: str, error: Exception
) -> pa.Array:
    try:
        offsets, parts = _split_arrays(texts)
    except FormatError:
        raise FormatError(f"column {name!r} of PostgreSQL has a value that is no {kind}: {error}") from error
    values = parse_column(pa.array(parts, pa.string()), kind.value_type, name, unrepresentable)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind)


def _reader(kind: pa.DataType) -> Callable[[pa.Array, pa.DataType], pa.Array]:
    if pa.types.is_string(kind):
        return lambda texts, _: texts
    if pa.types.is_boolean(kind):
        return lambda texts, _: pc.is_in(texts, pa.array(["t", "true"])) if not texts.null_count else _booleans(texts)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_date(kind):
        return _cast
    if pa.types.is_timestamp(kind):
        return _timestamps
    if pa.types.is_time(kind):
        return _times
    if pa.types.is_binary(kind):
        return _bytes
    if pa.types.is_list(kind):
        return _lists
    raise UnsupportedError(f"no value of PostgreSQL is read as {kind}: declare the column as text (STRING)")


def _booleans(texts: pa.Array) -> pa.Array:
    return pc.if_else(texts.is_valid(), pc.is_in(texts, pa.array(["t", "true"])), pa.scalar(None, pa.bool_()))


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return exact_cast(texts, kind)


def _timestamps(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        moments = texts.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:  # with a zone, or unrepresentable
        moments = pc.replace_substring_regex(texts, r"\+00(:00)?$", "").cast(pa.timestamp("us"))
    return exact_cast(moments, kind)


def _times(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    moments = pc.binary_join_element_wise("1970-01-01 ", texts, "").cast(pa.timestamp("us"))
    return moments.cast(pa.time64("us")).cast(kind, safe=False)


def _bytes(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.array([None if text is None else bytes.fromhex(text[2:]) for text in texts.to_pylist()], kind)


def _lists(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    offsets, parts = _split_arrays(texts)
    values = _reader(kind.value_type)(pa.array(parts, pa.string()), kind.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind)


def _split_arrays(texts: pa.Array) -> tuple[list[int | None], list[str | None]]:
    """Return the offset of each array's first element, and all elements."""
    parts: list[str | None] = []
    offsets: list[int | None] = []
    for text in texts.to_pylist():
        offsets.append(None if text is None else len(parts))
        if text is not None:
            parts += _elements(text)
    offsets.append(len(parts))
    return offsets, parts


def _elements(text: str) -> list[str | None]:
    """Parse an array in the server's text form, such as `{1,NULL,"a,b"}` or `[1,2]`, into its elements."""
    if text.startswith("[") and not text.endswith("]"):
        text = text[text.index("=") + 1 :]
    elements: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        if text[at] == '"':
            part, at = _quoted_element(text, at + 1)
            elements.append(part)
        elif text[at] == "{":
            raise FormatError(f"an array of more than one dimension, {text}: declare the column as text (STRING)")
        else:
            stop = text.find(",", at)
            stop = end if stop < 0 else stop
            part = text[at:stop]
            elements.append(None if part == "NULL" else part)
            at = stop
        at += 1
    return elements


def _quoted_element(text: str, at: int) -> tuple[str, int]:
    letters = []
    while text[at] != '"':
        if text[at] == "\\":
            at += 1
        letters.append(text[at])
        at += 1
    return "".join(letters), at + 1


def to_server_texts(column: pa.Array) -> pa.Array:
    """Convert a column to texts that the server reads.

    Raises:
        UnsupportedError: for types without a text form on the server.
    """
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())
    if pa.types.is_list(kind):
        texts = to_server_texts(column.flatten()).to_pylist()
        quoted = ["NULL" if text is None else _in_quotes(text) for text in texts]
        lists, at = [], 0
        for length in pc.list_value_length(column).to_pylist():
            lists.append(None if length is None else "{" + ",".join(quoted[at : at + length]) + "}")
            at += length or 0
        return pa.array(lists, pa.string())
    if pa.types.is_nested(kind):
        raise UnsupportedError(f"columns of {kind} are not written into PostgreSQL: write them as text, such as JSON")
    return column.cast(pa.string())


def to_vector_texts(column: pa.Array) -> pa.Array:
    """Convert a column of lists of numbers to texts that the server reads as vectors of pgvector."""
    texts = to_server_texts(column.flatten()).to_pylist()
    vectors, at = [], 0
    for length in pc.list_value_length(column).to_pylist():
        vectors.append(None if length is None else f"[{','.join(map(str, texts[at : at + length]))}]")
        at += length or 0
    return pa.array(vectors, pa.string())


def _in_quotes(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def array_literal(texts: pa.Array) -> str:
    """Return texts as an untyped SQL array literal."""
    inner = ",".join("NULL" if text is None else _in_quotes(text) for text in texts.to_pylist())
    return literal("{" + inner + "}")


def literal(text: str) -> str:
    """Return a text as an SQL literal; it may contain any character."""
    return "'" + text.replace("'", "''") + "'"


def format_csv(columns: Sequence[pa.Array]) -> bytes:
    """Write columns of texts as CSV for COPY: NULL becomes an empty field, and the empty text two quotes."""
    names = [f"c{index}" for index in range(len(columns))]
    buffer = io.BytesIO()
    options = csv.WriteOptions(include_header=False, quoting_style="needed")
    csv.write_csv(pa.Table.from_arrays(list(columns), names), buffer, options)
    return buffer.getvalue()


def texts_of_csv(lines: bytes, count: int) -> list[pa.Array]:
    """Read columns of texts from CSV written by COPY."""
    names = [f"c{index}" for index in range(count)]
    table = csv.read_csv(
        io.BytesIO(lines),
        csv.ReadOptions(column_names=names, use_threads=False, block_size=max(len(lines) + 1, 1 << 16)),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    return [column.combine_chunks() for column in table.itercolumns()]


def parse_batch(
    texts: Sequence[pa.Array],
    kinds: Sequence[pa.DataType],
    names: Sequence[str],
    unrepresentable: str = FAIL,
    titles: Sequence[str] | None = None,
) -> Any:
    """Convert columns of texts to a record batch with these types and names. Errors name the columns by `titles`."""
    arrays = []
    for column, kind, title in zip(texts, kinds, titles or names, strict=True):
        array = parse_column(column, kind, title, unrepresentable)
        arrays.append(array.chunk(0) if isinstance(array, pa.ChunkedArray) else array)
    return pa.RecordBatch.from_arrays(arrays, list(names))


_COLUMNS: Final = """
    SELECT a.attname, t.typname, a.atttypmod, coalesce(c.collisdeterministic, true)
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_collation c ON c.oid = a.attcollation
    WHERE a.attrelid = to_regclass(%s) AND a.attname = ANY(%s)
"""
_DIGITS_OF_SERVER: Final = 6


def has_exact_keys(connection: psycopg.Connection[Any], table: str, key: Sequence[tuple[str, pa.DataType]]) -> bool:
    """Return whether the key columns of a table keep all values of these types distinct.

    Args:
        connection: a connection to the database.
        table: its quoted path.
        key: names and types of the key columns.
    """
    rows = connection.execute(_COLUMNS, (table, [name for name, _ in key])).fetchall()
    stored = {name: (kind, modifier, is_deterministic) for name, kind, modifier, is_deterministic in rows}
    return all(name in stored and _keeps_apart(kind, *stored[name]) for name, kind in key)


def _keeps_apart(kind: pa.DataType, stored: str, modifier: int, is_deterministic: bool) -> bool:
    types = pa.types
    if types.is_string(kind):
        # varchar(n) drops trailing spaces beyond its length.
        return stored in ("text", "varchar") and modifier < 0 and is_deterministic
    if types.is_decimal(kind):
        return stored == "numeric" and (modifier < 0 or digits_of_numeric(modifier)[1] >= kind.scale)
    if types.is_timestamp(kind):
        expected = "timestamp" if kind.tz is None else "timestamptz"
        return stored == expected and _holds_digits(kind.unit, modifier)
    if types.is_time(kind):
        return stored == "time" and _holds_digits(kind.unit, modifier)
    if types.is_integer(kind):
        return stored in ("int2", "int4", "int8")
    if types.is_floating(kind):
        return stored == "float8" or (stored == "float4" and kind == pa.float32())
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return stored == "bytea"
    return (types.is_boolean(kind) and stored == "bool") or (types.is_date(kind) and stored == "date")


def _holds_digits(unit: str, modifier: int) -> bool:
    return DIGITS[unit] <= (_DIGITS_OF_SERVER if modifier < 0 else modifier)
