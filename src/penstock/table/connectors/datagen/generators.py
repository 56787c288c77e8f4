"""The values generated for a field, by its type and options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.codecs.map_columns import get_map_key_type, map_array
from penstock.state.equality import canonical_values
from penstock.table.connectors.datagen import values
from penstock.table.connectors.datagen.fields import (
    END,
    KIND,
    LENGTH,
    MAX,
    MAX_PAST,
    MIN,
    NULL_RATE,
    START,
    VAR_LEN,
    FieldOptions,
)
from penstock.table.connectors.datagen.values import Make, Rows
from penstock.table.data import logical_types as types
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import to_column, to_values
from penstock.table.functions.type_rules import INTEGERS

_TEXT_LENGTH: Final = 100
_COLLECTION_LENGTH: Final = 3
_FLOAT_MAX: Final = float(np.finfo(np.float32).max)
_DOUBLE_MAX: Final = float(np.finfo(np.float64).max)
#: the longest intervals that are generated: 10,000 years
_MONTHS_MAX: Final = 120_000
_INTERVAL_MS_MAX: Final = 10_000 * 365 * 86_400_000
_SIZED: Final = (types.CharType, types.VarCharType, types.BinaryType, types.VarBinaryType)


def generator(field: FieldOptions, kind: DataType) -> Make:
    """Return the generator of a field's values. Raises `ValidationError` for options that its type does not have."""
    if field.options.read(KIND) == "sequence":
        return _sequence(field, kind)
    field.refuse(START, END, reason="only a field of kind 'sequence' has it")
    if field.options.read(KIND) != "random":
        raise field.wrong(KIND, "it must be 'random' or 'sequence'")
    _check(field, kind)
    rate = field.options.read(NULL_RATE)
    if not 0.0 <= rate <= 1.0:
        raise field.wrong(NULL_RATE, f"it must be from 0 to 1, not {rate}")
    make = _random(field, kind)
    return values.with_nulls(field.path, rate, make) if rate else make


def sequence_rows(field: FieldOptions) -> int:
    """Return the number of values in a field of kind 'sequence'."""
    start, end = field.options.required(START), field.options.required(END)
    if end < start:
        raise field.wrong(END, f"it is below 'start': {end} < {start}")
    return end - start + 1


def _check(field: FieldOptions, kind: DataType) -> None:
    """Reject options that do not apply to the type."""
    if not isinstance(kind, types.NumericType | types.YearMonthIntervalType | types.DayTimeIntervalType):
        field.refuse(MIN, MAX, reason=f"a field of type {kind} has none")
    if not isinstance(kind, types.TimestampType | types.LocalZonedTimestampType):
        field.refuse(MAX_PAST, reason=f"only timestamps have it, and the field is of type {kind}")
    if not isinstance(kind, types.VarCharType | types.VarBinaryType):
        field.refuse(VAR_LEN, reason=f"only VARCHAR, STRING, VARBINARY and BYTES have it, not {kind}")
    if not isinstance(kind, (*_SIZED, types.ArrayType, types.MultisetType, types.MapType)):
        field.refuse(LENGTH, reason=f"a field of type {kind} has none")


def _random(field: FieldOptions, kind: DataType) -> Make:
    match kind:
        case types.BooleanType():
            return values.truth_values(field.path)
        case types.IntegralType():
            bits = 8 * 2 ** INTEGERS.index(type(kind)) - 1
            return values.whole_numbers(field, kind, -(2**bits), 2**bits - 1)
        case types.FloatType():
            return values.fractions(field, kind, _FLOAT_MAX)
        case types.DoubleType():
            return values.fractions(field, kind, _DOUBLE_MAX)
        case types.DecimalType():
            return values.decimals(field, kind)
        case types.CharType() | types.VarCharType():
            return values.texts(field.path, _length(field, kind), varies=field.options.read(VAR_LEN))
        case types.BinaryType() | types.VarBinaryType():
            return values.binaries(field.path, _length(field, kind), varies=field.options.read(VAR_LEN))
        case types.DateType():
            return values.days()
        case types.TimeType(precision=digits):
            return values.times_of_day(digits)
        case types.TimestampType(precision=digits) | types.LocalZonedTimestampType(precision=digits):
            return values.moments(field.path, kind, digits, field.options.read(MAX_PAST))
        case types.YearMonthIntervalType():
            return values.whole_numbers(field, kind, 0, _MONTHS_MAX)
        case types.DayTimeIntervalType():
            return values.whole_numbers(field, kind, 0, _INTERVAL_MS_MAX)
        case _:
            return _nested(field, kind)


def _length(field: FieldOptions, kind: Any) -> int:
    """Return the length set by the option, which must not exceed the type's. A CHAR has the length of its type."""
    given = field.options.read(LENGTH)
    is_fixed = isinstance(kind, types.CharType | types.BinaryType)
    if is_fixed and given is not None:
        raise field.wrong(LENGTH, f"the length of a {kind} is that of its type")
    if given is not None and not 0 < given <= kind.length:
        raise field.wrong(LENGTH, f"it must be from 1 to {kind.length}, as the type {kind} says")
    if given is not None:
        return given
    length: int = kind.length if is_fixed or kind.length != types.LENGTH_MAX else _TEXT_LENGTH
    return length


def _nested(field: FieldOptions, kind: DataType) -> Make:
    match kind:
        case types.RowType():
            parts = [generator(field.part(row_field.name), row_field.data_type) for row_field in kind.fields]
            return lambda rows: pa.StructArray.from_arrays(
                [make(rows) for make in parts], fields=list(arrow_type(kind))
            )
        case types.MultisetType(element_type=element):
            counts = values.whole_numbers(FieldOptions(f"{field.path}.count", field.options.below("$")), _INT, 1, 10)
            return _entries(field, kind, generator(field.part("element"), element), counts)
        case types.MapType(key_type=key, value_type=item):
            return _entries(field, kind, generator(field.part("key"), key), generator(field.part("value"), item))
        case types.ArrayType(element_type=element):
            make, count = generator(field.part("element"), element), _count(field)
            return lambda rows: pa.ListArray.from_arrays(
                _offsets(len(rows), count), make(rows.elements(count)), type=arrow_type(kind)
            )
        case _:
            raise UnsupportedError(f"datagen makes no values of type {kind}: field {field.path}")


_INT: Final = types.IntType(False)


def _entries(field: FieldOptions, kind: DataType, keys: Make, items: Make) -> Make:
    count = _count(field)

    def make(rows: Rows) -> pa.Array:
        inner = rows.elements(count)
        offsets = _offsets(len(rows), count)
        array = map_array(offsets, keys(inner), items(inner), arrow_type(kind))
        # A key drawn twice occurs once in the map.
        unique = []
        for pairs in to_values(array, kind):
            names = canonical_values([key for key, _ in pairs], get_map_key_type(array.type))
            unique.append(list(dict(zip(names, pairs, strict=True)).values()))
        return to_column(unique, kind)

    return make


def _count(field: FieldOptions) -> int:
    given = field.options.read(LENGTH)
    if given is not None and given < 0:
        raise field.wrong(LENGTH, "it must not be negative")
    return _COLLECTION_LENGTH if given is None else given


def _offsets(rows: int, count: int) -> pa.Array:
    return pa.array(np.arange(rows + 1) * count, pa.int32())


def _sequence(field: FieldOptions, kind: DataType) -> Make:
    if not isinstance(kind, types.NumericType | types.CharType | types.VarCharType):
        raise field.wrong(KIND, f"a field of type {kind} cannot be a sequence")
    field.refuse(MIN, MAX, LENGTH, VAR_LEN, MAX_PAST, NULL_RATE, reason="a field of kind 'sequence' has none")
    start, target_type = field.options.required(START), arrow_type(kind)
    sequence_rows(field)
    if isinstance(kind, types.IntegralType):
        bits = 8 * 2 ** INTEGERS.index(type(kind)) - 1
        for option in (START, END):
            if not -(2**bits) <= field.options.required(option) < 2**bits:
                raise field.wrong(option, f"it is no {kind}")
    if isinstance(kind, types.DecimalType):
        return lambda rows: pa.array(rows.numbers + start).cast(pa.decimal128(19, 0)).cast(target_type)
    return lambda rows: pa.array(rows.numbers + start).cast(target_type)


class Columns:
    """Generates the columns of rows of these types, named c0, c1 and so on."""

    def __init__(self, fields: Sequence[FieldOptions], kinds: Sequence[DataType]) -> None:
        self._fields = list(fields)
        self._kinds = list(kinds)
        self._makers: list[Make] | None = None
        self.makers()

    def makers(self) -> list[Make]:
        """Return the generator of each column."""
        if self._makers is None:
            self._makers = [generator(*pair) for pair in zip(self._fields, self._kinds, strict=True)]
        return self._makers

    def __call__(self, numbers: Any, times: Any) -> pa.RecordBatch:
        """Return the columns of these rows."""
        rows = Rows(numbers, times)
        arrays = [make(rows) for make in self.makers()]
        return pa.RecordBatch.from_arrays(arrays, [f"c{index}" for index in range(len(arrays))])

    def __getstate__(self) -> dict[str, Any]:
        return {"_fields": self._fields, "_kinds": self._kinds, "_makers": None}
