"""Columns and values of results, in the two forms of Flink's SQL gateway: JSON, and plain text in JSON.

Values are internal ones (`penstock.sql.data.arrow`), which keep nanoseconds and all of Flink's years.

**JSON.** Numbers are JSON numbers with the digits of Java: `1.0E20`, and a DECIMAL without zeros at its end, `1E+2` for
100.00; NaN and infinities are text. Bytes are in Base64, dates and times in ISO 8601 without zeros at the end,
intervals their number of months or milliseconds. A TIMESTAMP_LTZ has the clock of the session's zone with a Z behind
it, as Flink writes it and its clients read it back, or, as an option, the true instant. Maps are objects, so their keys
must be text.

**Plain text** is the text of CAST to STRING, with bytes as literals.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from decimal import Decimal
from typing import Any, Final

from penstock.base.errors import WrongValueError
from penstock.server.gateway.sessions import RowFormat
from penstock.sql.data import types
from penstock.sql.data.datetimes import DAY_NS, format_date, format_time, local_ns
from penstock.sql.data.types import DataType
from penstock.sql.functions.text_casts import build_text_cast

_REMEDY: Final = "Ask for rowFormat=PLAIN_TEXT, or cast the column to STRING."
#: writes a value that is not NULL
Writer = Callable[[Any], str]

_ATOMS: Final[dict[type[DataType], str]] = {
    types.NullType: "NULL",
    types.BooleanType: "BOOLEAN",
    types.TinyIntType: "TINYINT",
    types.SmallIntType: "SMALLINT",
    types.IntType: "INTEGER",
    types.BigIntType: "BIGINT",
    types.FloatType: "FLOAT",
    types.DoubleType: "DOUBLE",
    types.DecimalType: "DECIMAL",
    types.CharType: "CHAR",
    types.VarCharType: "VARCHAR",
    types.BinaryType: "BINARY",
    types.VarBinaryType: "VARBINARY",
    types.DateType: "DATE",
    types.TimeType: "TIME_WITHOUT_TIME_ZONE",
    types.TimestampType: "TIMESTAMP_WITHOUT_TIME_ZONE",
    types.LocalZonedTimestampType: "TIMESTAMP_WITH_LOCAL_TIME_ZONE",
    types.ZonedTimestampType: "TIMESTAMP_WITH_TIME_ZONE",
    types.VariantType: "VARIANT",
    types.BitmapType: "BITMAP",
}


def logical_type(data_type: DataType) -> dict[str, Any]:
    """Return a type as the gateway's columns have it.

    Raises:
        WrongValueError: if Flink's form has no such type.
    """
    shown: dict[str, Any] = {"type": _ATOMS.get(type(data_type), ""), "nullable": data_type.is_nullable}
    match data_type:
        case types.YearMonthIntervalType():
            return shown | {"type": "INTERVAL_YEAR_MONTH", "precision": data_type.precision, "resolution": "MONTH"}
        case types.DayTimeIntervalType():
            seconds = {"fractionalPrecision": 3, "resolution": "SECOND"}
            return shown | {"type": "INTERVAL_DAY_TIME", "precision": data_type.day_precision} | seconds
        case types.MultisetType(element_type=element):
            return shown | {"type": "MULTISET", "elementType": logical_type(element)}
        case types.ArrayType(element_type=element):
            return shown | {"type": "ARRAY", "elementType": logical_type(element)}
        case types.MapType(key_type=key, value_type=item):
            return shown | {"type": "MAP", "keyType": logical_type(key), "valueType": logical_type(item)}
        case types.RowType(fields=fields):
            entries = [{"name": field.name, "fieldType": logical_type(field.data_type)} for field in fields]
            return shown | {"type": "ROW", "fields": entries}
        case types.DecimalType(precision=precision, scale=scale):
            return shown | {"precision": precision, "scale": scale}
        case types.CharType() | types.VarCharType() | types.BinaryType() | types.VarBinaryType():
            return shown | {"length": data_type.length}
        case types.TimeType() | types.TimestampType() | types.LocalZonedTimestampType() | types.ZonedTimestampType():
            return shown | {"precision": data_type.precision}
    if not shown["type"]:
        raise WrongValueError(f"the type {data_type} has no form in the gateway's columns: cast it to STRING")
    return shown


def columns_json(names: Sequence[str], data_types: Sequence[DataType]) -> str:
    """Return the columns of a result, in JSON."""
    columns = [
        {"name": name, "logicalType": logical_type(kind), "comment": None}
        for name, kind in zip(names, data_types, strict=True)
    ]
    return json.dumps(columns, ensure_ascii=False, separators=(",", ":"))


class RowWriter:
    """Writes the values of rows.

    Args:
        names: the columns.
        data_types: their types.
        zone: the zone of the session.
        true_instants: whether a TIMESTAMP_LTZ in JSON is the true instant, instead of Flink's form.
    """

    def __init__(
        self, names: Sequence[str], data_types: Sequence[DataType], zone: tzinfo, true_instants: bool = False
    ) -> None:
        self._names, self._types, self._zone = names, data_types, zone
        self._json_zone = UTC if true_instants else zone
        self._writers: dict[RowFormat, list[Writer]] = {}

    def __call__(self, row_format: RowFormat, values: Sequence[Any]) -> str:
        """Return the JSON of the values of a row, without brackets.

        Raises:
            WrongValueError: if the format cannot have a column.
        """
        writers = self._writers.get(row_format)
        if writers is None:
            writers = self._writers[row_format] = [
                self._writer(row_format, name, kind) for name, kind in zip(self._names, self._types, strict=True)
            ]
        return ",".join(
            ["null" if value is None else write(value) for write, value in zip(writers, values, strict=False)]
        )

    def _writer(self, row_format: RowFormat, name: str, data_type: DataType) -> Writer:
        if row_format is RowFormat.PLAIN_TEXT:
            text = build_plain_text(data_type, self._zone)
            return lambda value: _quoted(text(value))
        try:
            return build_json(data_type, self._json_zone)
        except WrongValueError as error:
            raise WrongValueError(f"Column {name}: {error}") from None


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def build_plain_text(data_type: DataType, zone: tzinfo) -> Writer:
    """Return a function that writes one value as text."""
    match data_type:
        case types.BinaryType() | types.VarBinaryType():
            return lambda value: f"x'{bytes(value).hex()}'"
        case types.MultisetType() | types.ArrayType() | types.MapType() | types.RowType():
            parts = [_null_as_text(build_plain_text(part, zone)) for part in data_type.children()]
        case _:
            return build_text_cast(data_type, zone)
    match data_type:
        case types.MultisetType():
            return lambda value: f"{{{', '.join([f'{parts[0](member)}={count}' for member, count in value])}}}"
        case types.ArrayType():
            return lambda value: f"[{', '.join(map(parts[0], value))}]"
        case types.MapType():
            return lambda value: f"{{{', '.join([f'{parts[0](key)}={parts[1](item)}' for key, item in value])}}}"
    names = [f"{field.name}=" if isinstance(data_type, types.StructuredType) else "" for field in data_type.fields]
    return lambda value: (
        f"({', '.join([name + write(part) for name, write, part in zip(names, parts, value, strict=True)])})"
    )


def _null_as_text(write: Writer) -> Writer:
    return lambda value: "NULL" if value is None else write(value)


def build_json(data_type: DataType, zone: tzinfo) -> Writer:
    """Return a function that writes one value as JSON.

    Raises:
        WrongValueError: if JSON cannot have the values of this type.
    """
    match data_type:
        case types.BooleanType():
            return lambda value: "true" if value else "false"
        case types.IntegralType() | types.YearMonthIntervalType() | types.DayTimeIntervalType():
            return str
        case types.FloatType() | types.DoubleType():
            text = build_text_cast(data_type, zone)
            return lambda value: _floating(text(value))
        case types.DecimalType():
            return decimal_json
        case types.CharType() | types.VarCharType():
            return _quoted
        case types.BinaryType() | types.VarBinaryType():
            return lambda value: f'"{b64encode(bytes(value)).decode()}"'
        case types.DateType():
            return lambda value: f'"{format_date(value)}"'
        case types.TimeType():
            return lambda value: f'"{_iso_time(value * 1_000_000)}"'
        case types.TimestampType():
            return lambda value: f'"{_iso(value)}"'
        case types.LocalZonedTimestampType():
            return lambda value: f'"{_iso(local_ns(value, zone))}Z"'
        case types.NullType():
            return lambda value: "null"
        case types.MultisetType() | types.ArrayType() | types.MapType() | types.RowType():
            return _nested_json(data_type, zone)
    raise WrongValueError(f"{data_type} has no form in JSON. {_REMEDY}")


def _nested_json(data_type: DataType, zone: tzinfo) -> Writer:
    if isinstance(data_type, types.MultisetType):
        raise WrongValueError(f"{data_type} has no form in JSON. {_REMEDY}")
    if isinstance(data_type, types.MapType) and not isinstance(data_type.key_type, types.CharType | types.VarCharType):
        raise WrongValueError(f"the keys of {data_type} are no text. {_REMEDY}")
    parts = [_or_null(build_json(part, zone)) for part in data_type.children()]
    match data_type:
        case types.ArrayType():
            return lambda value: f"[{','.join(map(parts[0], value))}]"
        case types.MapType():
            return lambda value: f"{{{','.join([f'{_key(key)}:{parts[1](item)}' for key, item in value])}}}"
    assert isinstance(data_type, types.RowType)
    names = [_quoted(name) for name in data_type.field_names()]
    return lambda value: (
        f"{{{','.join([f'{name}:{write(part)}' for name, write, part in zip(names, parts, value, strict=True)])}}}"
    )


def _or_null(write: Writer) -> Writer:
    return lambda value: "null" if value is None else write(value)


def _key(key: Any) -> str:
    if key is None:
        raise WrongValueError(f"a map has the key NULL. {_REMEDY}")
    return _quoted(key)


def _floating(text: str) -> str:
    """Return a number of Java as JSON: NaN and infinities are text."""
    return f'"{text}"' if text[-1] in "Ny" else text


def decimal_json(value: Decimal) -> str:
    """Return a DECIMAL as Java's BigDecimal shows it without zeros at the end.

    >>> [decimal_json(Decimal(text)) for text in ("1.50", "100.00", "0.00", "-0.0000001000", "0.000001")]
    ['1.5', '1E+2', '0', '-1E-7', '0.000001']
    """
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), value
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return "0"
    kept = text.rstrip("0")
    exponent += len(text) - len(kept)
    adjusted = exponent + len(kept) - 1
    minus = "-" if sign else ""
    if exponent <= 0 and adjusted >= -6:
        if exponent == 0:
            return minus + kept
        padded = kept.rjust(1 - exponent, "0")
        return f"{minus}{padded[:exponent]}.{padded[exponent:]}"
    return f"{minus}{kept[0]}{'.' if kept[1:] else ''}{kept[1:]}E{adjusted:+}"


def _iso(nanoseconds: int) -> str:
    """`2024-01-01T12:00:00.5`."""
    days, of_day = divmod(nanoseconds, DAY_NS)
    return f"{format_date(days)}T{_iso_time(of_day)}"


def _iso_time(nanoseconds: int) -> str:
    return (
        format_time(nanoseconds, 9).rstrip("0").rstrip(".")
        if nanoseconds % 1_000_000_000
        else format_time(nanoseconds, 0)
    )
