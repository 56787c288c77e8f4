"""Converts between the values of user programs and those in tables (see `values`), in both directions.

| type | programs provide | programs receive |
| --- | --- | --- |
| TIMESTAMP | `datetime`; one with a time zone is converted to the session's | `datetime` without a time zone |
| TIMESTAMP_LTZ | `Instant`; `datetime`, without a time zone in the session's | `datetime` with the session's zone |
| DATE, TIME | `date`, `time` | the same |
| INTERVAL DAY … SECOND | `timedelta` | the same |
| INTERVAL YEAR, MONTH | months, an `int` | the same |
| FLOAT | `float` | the `float` with the fewest digits (0.1); functions get the exact one (0.10000000149011612) |
| ROW | `Row`, tuple, list, dict, or an object with such attributes | `Row` |
| MAP | dict | the same |
| MULTISET | dict of counts, or a list | dict of counts |
| VARIANT | `Variant`, or a value that `Variant.of` takes | `Variant` |
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from penstock.base.errors import WrongTypeError, WrongValueError, short_repr
from penstock.base.time import Instant
from penstock.base.types import Row
from penstock.codecs.serialization import to_whole
from penstock.codecs.variant import Variant
from penstock.sql.data import types
from penstock.sql.data.datetimes import DAY_NS, format_date
from penstock.sql.data.types import DataType

#: converts one value that is not None
Converter = Callable[[Any], Any]

_EPOCH: Final = datetime.datetime(1970, 1, 1)
_UNIX_DAY: Final = _EPOCH.toordinal()
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_EXACT: Final = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)


def to_internal(data_type: DataType, zone: datetime.tzinfo) -> Converter:
    """Return a function from user values to internal ones; it raises `WrongTypeError` if a value does not fit."""
    convert = _to_held(data_type, zone)

    def convert_value(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except (TypeError, ValueError, AttributeError, ArithmeticError, LookupError) as error:
            if isinstance(error, WrongTypeError | WrongValueError):
                raise
            raise WrongTypeError(f"{short_repr(value)} is no value of type {data_type}") from error

    return convert_value


#: the classes that a value must have where the conversion alone would accept any value
_REQUIRED: Final[tuple[tuple[type[DataType], tuple[type, ...]], ...]] = (
    (types.BooleanType, (bool, np.bool_)),
    (types.NumericType, (int, float, decimal.Decimal, np.number)),
    (types.CharType, (str,)),
    (types.VarCharType, (str,)),
)


def checked(data_type: DataType, convert: Converter) -> Converter:
    """Return a converter that raises `WrongTypeError` for text as a BOOLEAN or number, and for non-text as text."""
    required = next((classes for kind, classes in _REQUIRED if isinstance(data_type, kind)), None)
    if required is None:
        return convert

    def convert_value(value: Any) -> Any:
        if value is not None and not isinstance(value, required):
            raise WrongTypeError(f"{short_repr(value)} is no value of type {data_type}")
        return convert(value)

    return convert_value


def _to_held(data_type: DataType, zone: datetime.tzinfo) -> Converter:
    match data_type:
        case types.BooleanType():
            return bool
        case types.IntegralType() | types.YearMonthIntervalType():
            return _whole
        case types.FloatType() | types.DoubleType():
            return float
        case types.DecimalType(scale=scale):
            return lambda value: _decimal(value, scale)
        case types.CharType() | types.VarCharType():
            return str
        case types.BinaryType() | types.VarBinaryType():
            return _bytes
        case types.DateType():
            return lambda value: value.toordinal() - _UNIX_DAY
        case types.TimeType():
            return _time_to_held
        case types.TimestampType():
            return lambda value: _nanoseconds(value if value.tzinfo is None else _to_local_time(value, zone))
        case types.LocalZonedTimestampType():
            return lambda value: _moment(value, zone)
        case types.DayTimeIntervalType():
            return lambda value: value // datetime.timedelta(milliseconds=1)
        case types.MultisetType(element_type=element):
            return _multiset_to_held(to_internal(element, zone))
        case types.ArrayType(element_type=element):
            of_element = to_internal(element, zone)
            return lambda value: [of_element(element) for element in _sequence(value)]
        case types.MapType(key_type=key, value_type=item):
            of_key, of_item = to_internal(key, zone), to_internal(item, zone)
            return lambda value: [(of_key(entry_key), of_item(entry_value)) for entry_key, entry_value in value.items()]
        case types.RowType():
            return _row_to_held(data_type, zone)
        case types.VariantType():
            return lambda value: value if isinstance(value, Variant) else Variant.of(value)
        case _:
            return lambda value: value


def _whole(value: Any) -> int:
    whole = to_whole(value) if isinstance(value, decimal.Decimal) else int(value)
    if whole is None or value != whole:
        raise WrongTypeError(f"{short_repr(value)} is not a whole number")
    return whole


def _decimal(value: Any, scale: int) -> decimal.Decimal:
    exact = decimal.Decimal(value) if isinstance(value, int | decimal.Decimal) else decimal.Decimal(str(value))
    return exact.quantize(decimal.Decimal(1).scaleb(-scale), context=_EXACT)


def _bytes(value: Any) -> bytes:
    if isinstance(value, int | str):
        raise WrongTypeError(f"{short_repr(value)} is no bytes")
    return bytes(value)


def _time_to_held(value: Any) -> int:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return int(seconds * 1_000 + value.microsecond // 1_000)


def _to_local_time(value: datetime.datetime, zone: datetime.tzinfo) -> datetime.datetime:
    """Return the local time in a zone at an instant."""
    return value.astimezone(zone).replace(tzinfo=None)


def _zoned(value: datetime.datetime, zone: datetime.tzinfo) -> datetime.datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=zone)


def _moment(value: datetime.datetime | Instant, zone: datetime.tzinfo) -> int:
    if isinstance(value, Instant):
        return value.seconds * 1_000_000_000 + value.nanos
    return _nanoseconds(_to_local_time(_zoned(value, zone), datetime.UTC))


def _nanoseconds(value: datetime.datetime) -> int:
    # pandas has nanoseconds in addition to the microseconds of the base class
    return (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND * 1_000 + int(getattr(value, "nanosecond", 0))


def _sequence(value: Any) -> Iterable[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise WrongTypeError(f"{short_repr(value)} is no list")
    return value


def _multiset_to_held(of_element: Converter) -> Converter:
    def convert_value(value: Any) -> Any:
        if isinstance(value, Mapping):
            return [(of_element(item), int(count)) for item, count in value.items()]
        counts: list[tuple[Any, int]] = []
        for element in map(of_element, _sequence(value)):
            position = next((index for index, (other, _) in enumerate(counts) if other == element), None)
            if position is None:
                counts.append((element, 1))
            else:
                counts[position] = (element, counts[position][1] + 1)
        return counts

    return convert_value


def _row_to_held(data_type: types.RowType, zone: datetime.tzinfo) -> Converter:
    split_row = parts_of_row(data_type)
    fields = [to_internal(field_type, zone) for field_type in data_type.field_types()]

    def convert_value(value: Any) -> tuple[Any, ...]:
        return tuple(field(part) for field, part in zip(fields, split_row(value), strict=True))

    return convert_value


def parts_of_row(data_type: types.RowType) -> Callable[[Any], list[Any]]:
    """Return a function that extracts the values of a row's fields; it raises `WrongTypeError` for other values."""
    names = data_type.field_names()

    def split_row(value: Any) -> list[Any]:
        parts = _parts(value, names)
        if len(parts) != len(names):
            raise WrongTypeError(f"{short_repr(value)} has {len(parts)} fields, and {data_type} has {len(names)}")
        return parts

    return split_row


def _parts(value: Any, names: list[str]) -> list[Any]:
    """Return the values of a row's fields, for every accepted form of a row."""
    if isinstance(value, Row):
        return value.get_fields_by_names(names) if _has_names(value, names) else list(value)
    if isinstance(value, Mapping):
        return [value.get(name) for name in names]
    if isinstance(value, tuple | list):
        return list(value)
    if hasattr(value, "__dict__"):
        return [vars(value).get(name) for name in names]
    raise WrongTypeError(f"{short_repr(value)} is no row: it must be a Row, a tuple, a list or a dict")


def _has_names(row: Row, names: list[str]) -> bool:
    return row.has_field_names and set(names) <= set(row.as_dict())


# --- held values to those of programs --------------------------------------------------------------------------------


def to_external(data_type: DataType, zone: datetime.tzinfo, for_functions: bool = False) -> Converter:
    """Return a function from internal values to user values.

    Args:
        data_type: the type of the values.
        zone: the session time zone.
        for_functions: whether the values are operands of user-defined functions. Rows then know the names of their
            fields, and a FLOAT is the exact value of its four bytes, both as in PyFlink.
    """
    convert = _to_seen(data_type, zone, for_functions)
    return lambda value: None if value is None else convert(value)


def is_seen_as_held(data_type: DataType) -> bool:
    """Return whether user-defined functions receive values of this type without conversion."""
    return not isinstance(data_type, _CONVERTED)


_CONVERTED: Final = (
    types.DateType,
    types.TimeType,
    types.TimestampType,
    types.LocalZonedTimestampType,
    types.DayTimeIntervalType,
    types.MultisetType,
    types.ArrayType,
    types.MapType,
    types.RowType,
)


def _to_seen(data_type: DataType, zone: datetime.tzinfo, for_functions: bool) -> Converter:
    match data_type:
        case types.FloatType() if not for_functions:
            return shortest_float
        case types.DateType():
            return _date_to_seen
        case types.TimeType():
            return lambda value: (_EPOCH + datetime.timedelta(milliseconds=value)).time()
        case types.TimestampType():
            return _timestamp_to_seen
        case types.LocalZonedTimestampType():
            return lambda value: _timestamp_to_seen(value).replace(tzinfo=datetime.UTC).astimezone(zone)
        case types.DayTimeIntervalType():
            return lambda value: datetime.timedelta(milliseconds=value)
        case types.MultisetType(element_type=element):
            of_one = to_external(element, zone, for_functions)
            return lambda value: {_key(of_one(element)): count for element, count in value}
        case types.ArrayType(element_type=element):
            of_element = to_external(element, zone, for_functions)
            return lambda value: [of_element(element) for element in value]
        case types.MapType(key_type=key, value_type=item):
            of_key, of_item = to_external(key, zone, for_functions), to_external(item, zone, for_functions)
            return lambda value: {_key(of_key(entry_key)): of_item(entry_value) for entry_key, entry_value in value}
        case types.RowType():
            fields = [to_external(field_type, zone, for_functions) for field_type in data_type.field_types()]
            make = Row(*data_type.field_names()) if for_functions else Row
            return lambda value: make(*(field(part) for field, part in zip(fields, value, strict=True)))
        case _:
            return lambda value: value


def _key(value: Any) -> Any:
    """Return a value that can be a dict key: a list becomes a tuple."""
    return tuple(map(_key, value)) if isinstance(value, list) else value


def shortest_float(value: float) -> float:
    """Return the float with the fewest digits that rounds to the same FLOAT: 0.1 for 0.10000000149011612."""
    return float(str(np.float32(value)))


def _date_to_seen(days: int) -> datetime.date:
    try:
        return datetime.date.fromordinal(days + _UNIX_DAY)
    except (ValueError, OverflowError) as error:
        raise WrongValueError(f"Python has no date for {format_date(days)}: cast it to STRING") from error


def _timestamp_to_seen(nanoseconds: int) -> datetime.datetime:
    try:
        return _EPOCH + datetime.timedelta(microseconds=nanoseconds // 1_000)
    except OverflowError as error:
        day = format_date(nanoseconds // DAY_NS)
        raise WrongValueError(f"Python has no datetime for a time on {day}: cast it to STRING") from error
