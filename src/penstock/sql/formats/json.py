"""`json`: each row is an object, with the options of Flink's format of this name. In files each row is a line.

`JsonMessageDecoder` reads many messages at once as columns. A message gives the same rows or error alone as among
others. `JsonMessageEncoder` writes columns. `json_rules` reads the options that JSON formats share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions, choice
from penstock.base.errors import FormatError, UnsupportedError
from penstock.codecs.column_data import ColumnData
from penstock.codecs.json_values import encode_json, message_parser
from penstock.codecs.serialization import BadMessage, Deserialized, format_reason
from penstock.sql.data import types
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.datetimes import format_date, format_time, format_timestamp
from penstock.sql.data.types import DataType
from penstock.sql.formats import format
from penstock.sql.formats.csv import shortest
from penstock.sql.formats.json_columns import BAD, NULL_KEYS, JsonColumns, JsonRules, ReadValue, nullable, value_reader
from penstock.sql.logical.nodes import RowSchema
from penstock.sql.tables.connector import TableOptions


def switch(key: str, description: str) -> ConfigOption[bool]:
    """Return a boolean option that is off by default."""
    return ConfigOptions.key(key).boolean_type().default_value(False).with_description(description)


FAIL_ON_MISSING: Final = switch("fail-on-missing-field", "Whether a missing column is an error.")
IGNORE_ERRORS: Final = switch(
    "ignore-parse-errors",
    "Whether to read invalid values as NULL, and to skip and count messages that are not rows.",
)
TIMESTAMPS: Final = ConfigOption(
    "timestamp-format.standard",
    choice("SQL", "ISO-8601"),
    "SQL",
    "`SQL` for `2020-12-30 12:13:14.123`, `ISO-8601` for `2020-12-30T12:13:14.123`; TIMESTAMP_LTZ has a trailing Z.",
)
NULL_KEY_MODE: Final = ConfigOption(
    NULL_KEYS,
    choice("FAIL", "DROP", "LITERAL"),
    "FAIL",
    "How to write a map entry whose key is NULL: `FAIL` fails the job, `DROP` drops the entry, `LITERAL` writes the "
    "key in `map-null-key.literal`.",
)
NULL_KEY: Final = (
    ConfigOptions.key("map-null-key.literal")
    .string_type()
    .default_value("null")
    .with_description("The key written for NULL if `map-null-key.mode` is `LITERAL`.")
)
PLAIN_DECIMALS: Final = switch(
    "encode.decimal-as-plain-number",
    "Whether to write decimals with all their digits and without an exponent; otherwise `100000` becomes `1E+5`.",
)
LEAVE_OUT_NULLS: Final = switch("encode.ignore-null-fields", "Whether to omit fields that are NULL.")
#: the options shared by JSON changelogs
CHANGELOG_OPTIONS: Final = (IGNORE_ERRORS, TIMESTAMPS, NULL_KEY_MODE, NULL_KEY, PLAIN_DECIMALS, LEAVE_OUT_NULLS)


def json_rules(options: TableOptions, fails_on_missing: bool = False) -> JsonRules:
    """Return the rules set by the options."""
    return JsonRules(
        fails_on_missing,
        options.read(IGNORE_ERRORS),
        options.read(TIMESTAMPS) == "ISO-8601",
        options.read(PLAIN_DECIMALS),
        options.read(LEAVE_OUT_NULLS),
        options.read(NULL_KEY_MODE),
        options.read(NULL_KEY),
    )


_TEXT_CHARS_MAX: Final = 40


class JsonMessageDecoder(format.MessageDecoder):
    """Reads messages of one object each. An empty message gives no row.

    Args:
        schema: the columns.
        rules: the options of the format.
        takes_arrays: whether a message may be an array of objects; then each object is a row.

    Raises:
        UnsupportedError: for types that JSON lacks; it names the column.
    """

    def __init__(self, schema: RowSchema, rules: JsonRules, takes_arrays: bool = True) -> None:
        self._parts = schema, rules, takes_arrays
        self._schema = schema
        self._rules = rules
        self._takes_arrays = takes_arrays
        self._readers: list[ReadValue] = [
            nullable(value_reader(column.type, rules, f"column '{column.name}'"), rules) for column in schema
        ]
        self._columns = JsonColumns(schema, rules)
        self._parse = message_parser(keeps_digits=any(map(_wants_digits, schema.types)))

    def decode(self, messages: Sequence[bytes]) -> Deserialized:
        """See `MessageDecoder`."""
        arrays, positions, left = self._columns.parse(messages)
        if positions and not left:
            return Deserialized(ColumnData(pa.RecordBatch.from_arrays(arrays, self._schema.names)))
        bad: list[BadMessage] = []
        rows: list[tuple[Any, ...]] = []
        row_positions: list[int] = []
        for position in left:
            try:
                message_rows = self._rows(messages[position])
            except BAD as error:
                bad.append(BadMessage(position, format_reason(error), error))
            else:
                rows += message_rows
                row_positions += [position] * len(message_rows)
        all_positions: Sequence[int] = positions
        if not positions:
            arrays, all_positions = self._to_arrays(rows), row_positions
        elif rows:
            row_arrays = self._to_arrays(rows)
            order = sorted(range(len(positions) + len(row_positions)), key=[*positions, *row_positions].__getitem__)
            indices = pa.array(order, pa.int64())
            arrays = [pa.concat_arrays(pair).take(indices) for pair in zip(arrays, row_arrays, strict=True)]
            all_positions = sorted([*positions, *row_positions])
        values = ColumnData(pa.RecordBatch.from_arrays(arrays, self._schema.names))
        is_each_a_row = not bad and len(messages) == len(all_positions) == len(set(all_positions))
        return Deserialized(values, None if is_each_a_row else all_positions, bad)

    def _to_arrays(self, rows: Sequence[tuple[Any, ...]]) -> list[pa.Array]:
        columns = list(zip(*rows, strict=True)) or [()] * len(self._schema)
        return [to_column(column, kind) for column, kind in zip(columns, self._schema.types, strict=True)]

    def _rows(self, message: bytes) -> list[tuple[Any, ...]]:
        """Return the rows of one message, whose fields may have other JSON types than their columns."""
        if not message:
            return []
        value = self._parse(message)
        if self._takes_arrays and isinstance(value, list):
            return list(map(self._row, value))
        return [self._row(value)]

    def _row(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, dict):
            raise FormatError("it is not an object")
        values = []
        for name, read in zip(self._schema.names, self._readers, strict=True):
            if self._rules.fails_on_missing and name not in value:
                raise FormatError(f"Could not find field with name '{name}'.")
            field = value.get(name)
            try:
                values.append(read(field))
            except BAD as error:
                text = (field if isinstance(field, str) else encode_json(field).decode())[:_TEXT_CHARS_MAX]
                raise FormatError(f"column '{name}': {text!r} cannot be read: {error}") from error
        return tuple(values)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


def _wants_digits(kind: DataType) -> bool:
    """Return whether a column needs more digits of a number than a float holds."""
    if isinstance(kind, types.DecimalType | types.BigIntType | types.CharType | types.VarCharType):
        return True
    return any(map(_wants_digits, kind.children()))


#: converts an internal value other than None to a value for msgspec
Show = Callable[[Any], Any]
_NANOSECOND_DIGITS: Final = 9


class JsonMessageEncoder(format.MessageEncoder):
    """Writes each row as an object."""

    def __init__(self, schema: RowSchema, rules: JsonRules) -> None:
        self._parts = schema, rules
        self._types = schema.types
        self._names = schema.names
        self._leaves_out_nulls = rules.leaves_out_nulls
        self._shows = [shown(column.type, rules, f"column '{column.name}'") for column in schema]
        self._encode = msgspec.json.Encoder(decimal_format="number").encode

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """See `MessageEncoder`."""
        shown_columns: list[list[Any]] = []
        for column, kind, show in zip(columns.columns, self._types, self._shows, strict=True):
            values = to_values(column, kind)
            shown_columns.append(
                values if show is None else [None if value is None else show(value) for value in values]
            )
        names, encode = self._names, self._encode
        rows: Any = zip(*shown_columns, strict=True)
        if self._leaves_out_nulls:
            return [
                encode({name: value for name, value in zip(names, row, strict=True) if value is not None})
                for row in rows
            ]
        return [encode(dict(zip(names, row, strict=True))) for row in rows]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


def shown(kind: DataType, rules: JsonRules, what: str) -> Show | None:
    """Return the conversion of a type's values for msgspec; None if none is needed.

    Raises `UnsupportedError` for other types.
    """
    match kind:
        case types.BooleanType() | types.IntegralType() | types.CharType() | types.VarCharType():
            return None
        case types.BinaryType() | types.VarBinaryType():
            return None
        case types.FloatType():
            return _short_float
        case types.DoubleType():
            return _float
        case types.DecimalType():
            return _plain if rules.has_plain_decimals else shortest
        case types.DateType():
            return format_date
        case types.TimeType(precision=digits):
            return lambda value: (
                _short(format_time(value * 1_000_000, _NANOSECOND_DIGITS))
                if digits
                else format_time(value * 1_000_000, 0)
            )
        case types.TimestampType() | types.LocalZonedTimestampType():
            return _moment(rules.is_iso, "Z" if isinstance(kind, types.LocalZonedTimestampType) else "")
        case types.RowType():
            return _row(kind, rules, what)
        case types.MultisetType(element_type=element):
            return _map(element, types.IntType(), rules, what)
        case types.MapType(key_type=key, value_type=item):
            return _map(key, item, rules, what)
        case types.ArrayType(element_type=element):
            show = shown(element, rules, what)
            return (
                None
                if show is None
                else lambda value: [None if element is None else show(element) for element in value]
            )
        case _:
            raise UnsupportedError(f"{what} of type {kind} has no form in JSON")


def _float(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _short_float(value: float) -> Any:
    """Return a 32-bit float with the fewest digits that identify it."""
    return float(str(np.float32(value))) if math.isfinite(value) else _float(value)


def _plain(value: Any) -> msgspec.Raw:
    return msgspec.Raw(f"{value:f}".encode())


def _short(text: str) -> str:
    """Strip trailing zeros from the fraction of a second."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _moment(is_iso: bool, end: str) -> Show:
    def show(value: int) -> str:
        text = _short(format_timestamp(value, _NANOSECOND_DIGITS))
        return (text.replace(" ", "T", 1) if is_iso else text) + end

    return show


def _row(kind: types.RowType, rules: JsonRules, what: str) -> Show:
    fields = [(field.name, shown(field.data_type, rules, what)) for field in kind.fields]

    def show(value: tuple[Any, ...]) -> dict[str, Any]:
        members = {
            name: part if of is None or part is None else of(part)
            for (name, of), part in zip(fields, value, strict=True)
        }
        if rules.leaves_out_nulls:
            return {name: part for name, part in members.items() if part is not None}
        return members

    return show


def _map(key: DataType, item: DataType, rules: JsonRules, what: str) -> Show:
    if not isinstance(key, types.CharType | types.VarCharType):
        raise UnsupportedError(f"{what}: JSON only has maps and multisets with texts as keys, not {key}")
    of = shown(item, rules, what)

    def show(value: Sequence[tuple[str | None, Any]]) -> dict[Any, Any]:
        entries = {name: part if of is None or part is None else of(part) for name, part in value}
        return _without_null_key(entries, rules, what) if None in entries else entries

    return show


def _without_null_key(entries: dict[Any, Any], rules: JsonRules, what: str) -> dict[Any, Any]:
    if rules.null_keys == "FAIL":
        raise FormatError(
            f"{what}: a key of a map is NULL, and JSON has no such keys. Leave these entries out with "
            f"'{NULL_KEYS}' = 'DROP', or name them with 'LITERAL'"
        )
    if rules.null_keys == "DROP":
        return {name: part for name, part in entries.items() if name is not None}
    return {rules.null_key if name is None else name: part for name, part in entries.items()}


class JsonTableFormat(format.TableFormat):
    """See the module docstring."""

    name = "json"
    has_named_fields = True
    options = (
        FAIL_ON_MISSING,
        IGNORE_ERRORS,
        TIMESTAMPS,
        NULL_KEY_MODE,
        NULL_KEY,
        PLAIN_DECIMALS,
        LEAVE_OUT_NULLS,
    )

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> format.Decoding:
        """See `TableFormat`."""
        rules = json_rules(options, options.read(FAIL_ON_MISSING))
        if rules.fails_on_missing and rules.ignores_errors:
            raise options.wrong(IGNORE_ERRORS.key(), f"it cannot be set together with '{FAIL_ON_MISSING.key()}'")
        decoder = JsonMessageDecoder(RowSchema(tuple(schema[index] for index in wanted)), rules)
        files = format.LinesFormat(decoder, skips_empty=True, skips_bad=rules.ignores_errors)
        return format.Decoding(files, decoder, rules.ignores_errors)

    def encoding(self, schema: RowSchema, options: TableOptions) -> format.Encoding:
        """See `TableFormat`."""
        encoder = JsonMessageEncoder(schema, json_rules(options))
        return format.Encoding(format.LinesWriterFactory(encoder, schema), encoder)
