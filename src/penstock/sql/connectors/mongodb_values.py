"""Rows of tables and documents of MongoDB: the conversion of values, with checks of their ranges.

Values are converted in both directions by the data type mapping of Flink's connector. A value that does not fit raises
`Misfit`, whose path names the field: `items[2].price`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.errors import UnsupportedError, short_repr
from penstock.connectors.mongodb import source as mongodb
from penstock.runtime.columns import ColumnBatch
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, to_column, to_values
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import DataType
from penstock.sql.tables.tables import column_names

NS_PER_MS: Final = 1_000_000
MS_PER_S: Final = 1_000
_FLOAT_MAX: Final = float(np.finfo(np.float32).max)
#: for more digits than a Decimal128 has
_CONTEXT: Final = Context(prec=80)
TEXTS: Final = (types.CharType, types.VarCharType)
BYTES: Final = (types.BinaryType, types.VarBinaryType)
SCALARS: Final = (
    types.BooleanType,
    types.IntegralType,
    types.FloatType,
    types.DoubleType,
    types.DecimalType,
    *TEXTS,
    *BYTES,
    types.LocalZonedTimestampType,
)


class Misfit(Exception):
    """A value that does not fit. Converters of nested types add to the path, from the inside out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path = ""

    def within(self, step: str) -> Misfit:
        """Return it with a longer path."""
        self.path = step + self.path
        return self


#: converts one value that is not NULL
Converter = Callable[[Any], Any]


def build_reader(kind: DataType) -> Converter:
    """Return what converts values of BSON to internal values of a type."""
    match kind:
        case types.BooleanType():
            return partial(_read_exactly, bool, kind)
        case types.IntegralType():
            bits = arrow_type(kind).bit_width
            return partial(_read_integer, -(1 << (bits - 1)), (1 << (bits - 1)) - 1, kind)
        case types.FloatType() | types.DoubleType():
            return partial(_read_float, _FLOAT_MAX if isinstance(kind, types.FloatType) else math.inf, kind)
        case types.DecimalType():
            return partial(_read_decimal, kind)
        case types.CharType() | types.VarCharType():
            return _read_text
        case types.BinaryType() | types.VarBinaryType():
            return partial(_read_bytes, kind)
        case types.LocalZonedTimestampType():
            return partial(_read_time, kind)
        case types.RowType():
            parts = [(field.name, _or_null(build_reader(field.data_type))) for field in kind.fields]
            return partial(_read_row, parts, kind)
        case types.MapType():
            return partial(_read_map, _or_null(build_reader(kind.value_type)), kind)
        case types.ArrayType():
            return partial(_read_array, _or_null(build_reader(kind.element_type)), kind)
    raise UnsupportedError(f"MongoDB has no form for {kind}")


def _or_null(convert: Converter) -> Converter:
    return lambda value: None if value is None else convert(value)


def _wrong(value: Any, kind: DataType) -> Misfit:
    return Misfit(f"{short_repr(value)} ({type(value).__name__}) does not fit {kind}")


def _read_exactly(expected: type, kind: DataType, value: Any) -> Any:
    if type(value) is not expected:
        raise _wrong(value, kind)
    return value


def _plain_number(value: Any, is_finite: bool) -> int | float | Decimal | None:
    """Return a number of BSON as one of Python; None for another value, and for NaN and infinity if it is finite."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    number = value.to_decimal() if isinstance(value, mongodb.bson("decimal128.Decimal128")) else value
    if isinstance(number, Decimal):
        return number if number.is_finite() or not is_finite else None
    return number if isinstance(number, float) and (math.isfinite(number) or not is_finite) else None


def _read_integer(least: int, most: int, kind: DataType, value: Any) -> int:
    number = _plain_number(value, True)
    if number is None or number != int(number) or not least <= number <= most:
        raise _wrong(value, kind)
    return int(number)


def _read_float(most: float, kind: DataType, value: Any) -> float:
    number = _plain_number(value, False)
    if number is None:
        raise _wrong(value, kind)
    if isinstance(number, Decimal) and number.is_nan():
        return math.nan
    converted = float(number)
    if math.isinf(number) if isinstance(number, float) else isinstance(number, Decimal) and number.is_infinite():
        return converted
    if abs(converted) > most or math.isinf(converted):
        raise _wrong(value, kind)
    return converted


def _read_decimal(kind: types.DecimalType, value: Any) -> Decimal:
    number = _plain_number(value, True)
    if number is None:
        raise _wrong(value, kind)
    decimal = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
    _, digits, exponent = decimal.normalize(_CONTEXT).as_tuple()
    assert isinstance(exponent, int)
    if decimal and (-exponent > kind.scale or len(digits) + exponent > kind.precision - kind.scale):
        raise _wrong(value, kind)
    return decimal


def _read_text(value: Any) -> str:
    """Return a text; an ObjectId in hexadecimal, and other values as Flink does, in Extended JSON."""
    if isinstance(value, str) and type(value) is str:
        return value
    if isinstance(value, mongodb.bson("objectid.ObjectId")):
        return str(value)
    shown: str = mongodb.bson("json_util.dumps")(value if isinstance(value, Mapping) else {"_value": value})
    return shown


def _read_bytes(kind: DataType, value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise _wrong(value, kind)
    return bytes(value)


def _read_time(kind: DataType, value: Any) -> int:
    """Return nanoseconds. Columns of milliseconds hold every date of MongoDB, others the years 1678 to 2261."""
    if isinstance(value, mongodb.bson("datetime_ms.DatetimeMS")):
        return int(value) * NS_PER_MS
    if isinstance(value, mongodb.bson("timestamp.Timestamp")):
        return int(value.time) * MS_PER_S * NS_PER_MS
    raise _wrong(value, kind)


def _read_row(parts: Sequence[tuple[str, Converter]], kind: DataType, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, Mapping):
        raise _wrong(value, kind)
    return tuple([_step(convert, value.get(name), f".{name}") for name, convert in parts])


def _read_map(convert: Converter, kind: DataType, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise _wrong(value, kind)
    return [(name, _step(convert, item, f".{name}")) for name, item in value.items()]


def _read_array(convert: Converter, kind: DataType, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(value, kind)
    return [_step(convert, item, f"[{number}]") for number, item in enumerate(value)]


def _step(convert: Converter, value: Any, step: str) -> Any:
    try:
        return convert(value)
    except Misfit as misfit:
        raise misfit.within(step) from None


#: types of whose values Arrow makes a column by itself, and checks the range
_DIRECT: Final[tuple[tuple[Any, frozenset[str]], ...]] = (
    (types.BooleanType, frozenset({"bool", "NoneType"})),
    (types.IntegralType, frozenset({"int", "Int64", "NoneType"})),
    (types.DoubleType, frozenset({"float", "NoneType"})),
    (TEXTS, frozenset({"str", "NoneType"})),
    (BYTES, frozenset({"bytes", "NoneType"})),
)


def build_column(values: list[Any], kind: DataType, convert: Converter, name: str) -> pa.Array:
    """Return a column of values of BSON. Raises `Misfit` with the path of the first that does not fit."""
    type_names = {type(value).__name__ for value in set(map(type, values)) and values}
    for expected, names in _DIRECT:
        if isinstance(kind, expected) and type_names <= names:
            try:
                return pa.array(values, arrow_type(kind))
            except (pa.ArrowException, OverflowError, UnicodeError):
                break  # the converter says which value it is
    internal = [None if value is None else _step(convert, value, name) for value in values]
    if isinstance(kind, types.LocalZonedTimestampType):
        return _build_times(values, internal, kind, name)
    return to_column(internal, kind)


def _build_times(values: list[Any], internal: list[int | None], kind: types.LocalZonedTimestampType, name: str) -> Any:
    try:
        return to_column(internal, kind)
    except (pa.ArrowException, OverflowError):
        for value, nanoseconds in zip(values, internal, strict=True):
            if nanoseconds is not None and not -(1 << 63) <= nanoseconds < 1 << 63:
                raise _wrong(value, kind).within(name) from None
        raise


@dataclass(frozen=True, slots=True)
class DocumentsToColumns:
    """Makes columns of documents.

    Attributes:
        title: the table, for errors.
        names: the fields that become columns.
        types: their types.
    """

    title: str
    names: tuple[str, ...]
    types: tuple[DataType, ...]

    def __call__(self, documents: Sequence[Mapping[str, Any]]) -> ColumnBatch:
        """Return a batch of the documents."""
        return ColumnBatch(self.build(documents), None, None)

    def build(self, documents: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """Return the columns. Raises `TableRuntimeError` for a value that does not fit."""
        arrays = []
        for name, kind in zip(self.names, self.types, strict=True):
            values = [document.get(name) for document in documents]
            try:
                arrays.append(build_column(values, kind, build_reader(kind), name))
            except Misfit as misfit:
                id = next(
                    (document[mongodb.ID] for document in documents if _fails(document.get(name), kind)), "unknown"
                )
                raise TableRuntimeError(
                    f"table {self.title}: {misfit.path} of the document with _id {short_repr(id)} is no value of the "
                    f"declared type: {misfit}"
                ) from misfit
        return pa.RecordBatch.from_arrays(arrays, column_names(len(arrays)))


def _fails(value: Any, kind: DataType) -> bool:
    try:
        build_column([value], kind, build_reader(kind), "")
    except Misfit:
        return True
    return False


def build_writer(kind: DataType) -> Converter:
    """Return what converts internal values of a type to values of BSON."""
    match kind:
        case types.BigIntType():
            return mongodb.bson("int64.Int64")  # type: ignore[no-any-return]
        case types.DecimalType():
            return _write_decimal
        case types.LocalZonedTimestampType():
            to_date = mongodb.bson("datetime_ms.DatetimeMS")
            return lambda nanoseconds: to_date(nanoseconds // NS_PER_MS)
        case types.RowType():
            parts = [(field.name, _or_null(build_writer(field.data_type))) for field in kind.fields]
            return partial(_write_row, parts)
        case types.MapType():
            return partial(_write_map, _or_null(build_writer(kind.value_type)))
        case types.ArrayType():
            return partial(_write_array, _or_null(build_writer(kind.element_type)))
    return keep


def keep(value: Any) -> Any:
    """Return the value itself."""
    return value


_KEPT: Final = (types.BooleanType, types.IntegralType, types.FloatType, types.DoubleType, *TEXTS, *BYTES)


def _write_decimal(value: Decimal) -> Any:
    number = mongodb.bson("decimal128.Decimal128")
    try:
        return number(value)
    except ArithmeticError as error:
        raise Misfit(f"{value} has more than the 34 digits of Decimal128") from error


def _write_row(parts: Sequence[tuple[str, Converter]], value: Sequence[Any]) -> dict[str, Any]:
    return {name: _step(convert, item, f".{name}") for (name, convert), item in zip(parts, value, strict=True)}


def _write_map(convert: Converter, value: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    if any(name is None for name, _ in value):
        raise Misfit("a key of a MAP is NULL, which no name of a field can be")
    return {name: _step(convert, item, f".{name}") for name, item in value}


def _write_array(convert: Converter, value: Sequence[Any]) -> list[Any]:
    return [_step(convert, item, f"[{number}]") for number, item in enumerate(value)]


def to_bson(column: pa.Array, kind: DataType, name: str) -> list[Any]:
    """Return the values of a column as values of BSON. Raises `Misfit` for one that has no form there."""
    values = to_values(column, kind)
    if isinstance(kind, _KEPT) and not isinstance(kind, types.BigIntType):
        return values
    convert = build_writer(kind)
    if isinstance(kind, types.BigIntType) and None not in values:
        return list(map(convert, values))
    return [None if value is None else _step(convert, value, name) for value in values]


def to_id(value: Any) -> Any:
    """Return an `_id`: a text that looks like an ObjectId becomes one, as in Flink."""
    object_id = mongodb.bson("objectid.ObjectId")
    return object_id(value) if isinstance(value, str) and object_id.is_valid(value) else value
