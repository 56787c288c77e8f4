"""Stream records and table columns: conversion in both directions, conversion of their types, and `ChangelogMode`.

The types are converted as in Flink's `TypeInfoDataTypeConverter`. A `ChangelogMode` holds the kinds of changes in a
changelog.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base import typeinfo
from penstock.base.errors import PenstockError, WrongTypeError, short_repr
from penstock.base.types import Row, RowKind
from penstock.codecs.arrow_columns import exact_array, exact_cast, nullable_key_column, plain_type
from penstock.codecs.pickling import make_rows
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.records import Batch
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, to_column, to_values
from penstock.sql.data.conversion import Converter, checked, to_external, to_internal
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import DataType, RowField, RowType
from penstock.sql.logical.nodes import INSERT, UPDATE_AFTER

#: types that Arrow checks as strictly as `to_internal`, so that a column can be built at once
_AT_ONCE: Final = (
    types.BooleanType,
    types.IntegralType,
    types.DoubleType,
    types.VarCharType,
    types.CharType,
)


@dataclass(frozen=True)
class RecordLayout:
    """The layout of a stream's records.

    Attributes:
        names: the fields that become columns, in column order.
        types: their types.
        places: their indexes in records without names.
        width: the number of fields of such a record.
        is_record: whether a record has fields; otherwise it is the value of a single column.
        rowtime: the type of an additional column with the record timestamps; None to omit it.
    """

    names: tuple[str, ...]
    types: tuple[DataType, ...]
    places: tuple[int, ...]
    width: int
    is_record: bool = True
    rowtime: DataType | None = None

    def open(self, zone: datetime.tzinfo, owner: str) -> RecordColumns:
        """Return the converter from batches to columns. `zone`: for datetimes without one; `owner`: the operator."""
        return RecordColumns(
            self, [checked(data_type, to_internal(data_type, zone)) for data_type in self.types], owner
        )


class RecordColumns:
    """Converts batches to columns, see `RecordLayout`. Raises `UserCodeError` with the record if one does not fit."""

    def __init__(self, layout: RecordLayout, converters: Sequence[Converter], owner: str) -> None:
        self._layout = layout
        self._fields = list(zip(layout.types, converters, layout.names, strict=True))
        self._owner = owner

    def __call__(self, batch: Batch) -> list[pa.Array]:
        """Return the columns of a batch."""
        columns = self._columns(batch)
        rowtime = self._layout.rowtime
        return columns if rowtime is None else [*columns, self._times(batch, rowtime)]

    def _columns(self, batch: Batch) -> list[pa.Array]:
        layout = self._layout
        data = self._chosen(batch.columns) if isinstance(batch, ColumnBatch) else None
        if data is not None:
            return [self._cast(column, *field) for column, field in zip(data, self._fields, strict=True)]
        values = batch.values
        if not layout.is_record:
            return [self._column(values, values, *self._fields[0])]
        parts = [self._parts(value) for value in values]
        lists = list(zip(*parts, strict=True))
        return [self._column(column, values, *field) for column, field in zip(lists, self._fields, strict=True)]

    def _chosen(self, columns: pa.RecordBatch) -> list[pa.Array] | None:
        """Return the needed columns of a columnar batch, by name or else by index. None if neither matches."""
        layout = self._layout
        if not layout.is_record:
            return [columns.column(0)] if columns.num_columns == 1 else None
        if set(layout.names) <= set(columns.schema.names):
            return [columns.column(columns.schema.get_field_index(name)) for name in layout.names]
        return [columns.column(index) for index in layout.places] if columns.num_columns == layout.width else None

    def _parts(self, value: Any) -> Sequence[Any]:
        """Return the fields of a record, whatever its class."""
        names, indices, width = self._layout.names, self._layout.places, self._layout.width
        if isinstance(value, Row) and value.has_field_names and set(names) <= set(value.as_dict()):
            return value.get_fields_by_names(names)
        if isinstance(value, Mapping):
            return [value.get(name) for name in names]
        if isinstance(value, tuple | list | Row):
            if len(value) == width:
                return [value[index] for index in indices]
            cause = WrongTypeError(f"the record has {len(value)} fields, and its type {width}")
        elif hasattr(value, "__dict__"):
            return [getattr(value, name, None) for name in names]
        else:
            cause = WrongTypeError(
                f"{short_repr(value)} has no fields: a record of the columns {', '.join(names)} is a Row, a tuple, a "
                "list or a dict"
            )
        raise UserCodeError(self._owner, value) from cause

    def _column(
        self, values: Sequence[Any], records: Sequence[Any], data_type: DataType, convert: Converter, name: str
    ) -> pa.Array:
        if isinstance(data_type, _AT_ONCE):
            try:
                return exact_array(values, arrow_type(data_type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                pass  # convert values one by one below, to find the one that does not fit
        converted = []
        for value, record in zip(values, records, strict=True):
            try:
                converted.append(convert(value))
            except PenstockError as error:
                raise UserCodeError(self._owner, record) from WrongTypeError(
                    f"column {name!r} of type {data_type} cannot hold the value: {error}"
                )
        try:
            return to_column(converted, data_type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise UserCodeError(self._owner, f"a batch of {len(converted)} records") from WrongTypeError(
                f"column {name!r} of type {data_type} cannot hold these values: {error}"
            )

    def _cast(self, column: pa.Array, data_type: DataType, convert: Converter, name: str) -> pa.Array:
        kind = arrow_type(data_type)
        if column.type == plain_type(kind):
            return nullable_key_column(column)
        if isinstance(data_type, _AT_ONCE) and not pa.types.is_temporal(column.type):
            try:
                return exact_cast(column, kind)
            except pa.ArrowException:
                pass  # convert values one by one, as in `_column`
        values = column.to_pylist()
        return self._column(values, values, data_type, convert, name)

    def _times(self, batch: Batch, data_type: DataType) -> pa.Array:
        """Return the record timestamps as a column."""
        if batch.timestamps is None:
            raise UserCodeError(self._owner, f"a batch of {len(batch)} records") from TableRuntimeError(
                "Could not find timestamp in DataStream API record. Make sure that timestamps have been assigned "
                "before, with assign_timestamps_and_watermarks."
            )
        return pa.array(np.asarray(batch.timestamps, np.int64)).view(arrow_type(data_type))


_ADDS: Final = (INSERT, UPDATE_AFTER)
#: types whose internal and external values are the same
_SAME: Final = (
    types.IntegralType,
    types.DoubleType,
    types.DecimalType,
    types.BooleanType,
    types.CharType,
    types.VarCharType,
    types.BinaryType,
    types.VarBinaryType,
    types.RawType,
    types.YearMonthIntervalType,
)


class Form(Enum):
    """The class of a record."""

    ROW = "ROW"
    TUPLE = "TUPLE"
    SINGLE = "SINGLE"


@dataclass(frozen=True)
class RecordShape:
    """The records to create from a table's rows.

    Attributes:
        types: the types of the table's columns.
        places: the indexes of the columns that go into a record.
        names: their field names in rows; None for rows without names.
        form: the class of a record. `SINGLE` is the value of a single column.
        has_flag: whether a record is a pair of a flag, true for an addition and false for a retraction, and the `form`.
    """

    types: tuple[DataType, ...]
    places: tuple[int, ...]
    names: tuple[str, ...] | None
    form: Form = Form.ROW
    has_flag: bool = False

    def open(self, zone: datetime.tzinfo) -> Callable[[ColumnBatch], list[Any]]:
        """Return the converter from batches to records."""
        converters = [
            None if isinstance(data_type, _SAME) else to_external(data_type, zone) for data_type in self.types
        ]

        def records(batch: ColumnBatch) -> list[Any]:
            columns: list[Sequence[Any]] = []
            for index in self.places:
                values = to_values(batch.columns.column(index), self.types[index])
                convert = converters[index]
                columns.append(values if convert is None else [convert(value) for value in values])
            formed = self._formed(columns, len(batch), None if self.has_flag else batch.kinds)
            return _flagged(formed, batch.kinds) if self.has_flag else formed

        return records

    def _formed(self, columns: list[Sequence[Any]], count: int, kinds: bytes | None) -> list[Any]:
        if self.form is Form.SINGLE:
            return list(columns[0])
        if self.form is Form.TUPLE:
            return list(zip(*columns, strict=True))
        values = map(list, zip(*columns, strict=True)) if columns else ([] for _ in range(count))
        return list(make_rows(self.names, values, kinds))


def _flagged(records: list[Any], kinds: bytes | None) -> list[Any]:
    if kinds is None:
        return [(True, record) for record in records]
    return [(kind in _ADDS, record) for kind, record in zip(kinds, records, strict=True)]


_BASIC: Final[dict[typeinfo.BasicType, DataType]] = {
    typeinfo.BasicType.STRING: types.VarCharType(types.LENGTH_MAX),
    typeinfo.BasicType.BOOLEAN: types.BooleanType(False),
    typeinfo.BasicType.BYTE: types.TinyIntType(False),
    typeinfo.BasicType.SHORT: types.SmallIntType(False),
    typeinfo.BasicType.INT: types.IntType(False),
    typeinfo.BasicType.LONG: types.BigIntType(False),
    typeinfo.BasicType.FLOAT: types.FloatType(False),
    typeinfo.BasicType.DOUBLE: types.DoubleType(False),
    typeinfo.BasicType.BIG_DEC: types.DecimalType(38, 18),
    typeinfo.BasicType.INSTANT: types.LocalZonedTimestampType(9),
}
_OF_TYPE: Final[dict[type[DataType], typeinfo.BasicType]] = {type(kind): basic for basic, kind in _BASIC.items()}


class ExternalTypeInfo(typeinfo.TypeInformation):
    """The type of table values without an equivalent in `Types`.

    Attributes:
        data_type: the column's type.
    """

    __slots__ = ("data_type",)

    def __init__(self, data_type: DataType) -> None:
        self.data_type = data_type

    def accepts(self, value: Any) -> bool:
        """Return whether a value is allowed: None if the type is nullable. The table has checked all other values."""
        return value is not None or self.data_type.is_nullable

    def _key(self) -> tuple[Any, ...]:
        return (self.data_type,)

    def __repr__(self) -> str:
        return f"ExternalTypeInfo({self.data_type})"

    def __str__(self) -> str:
        return str(self.data_type)


def to_data_type(info: typeinfo.TypeInformation) -> DataType:
    """Return the column type of a record type; RAW for types that only Python knows.

    As in Flink, numbers and booleans are never NULL by themselves and in tuples, but fields of rows may be.
    """
    match info:
        case ExternalTypeInfo(data_type=data_type):
            return data_type
        case typeinfo.BasicTypeInfo(basic_type=basic) if basic in _BASIC:
            return _BASIC[basic]
        case typeinfo.DateTypeInfo():
            return types.DateType()
        case typeinfo.TimeTypeInfo():
            return types.TimeType(0)
        case typeinfo.TimestampTypeInfo():
            return types.TimestampType(9)
        case typeinfo.RowTypeInfo():
            pairs = zip(info.get_field_names(), info.get_field_types(), strict=True)
            return RowType([RowField(name, to_data_type(field_type).nullable()) for name, field_type in pairs], False)
        case typeinfo.TupleTypeInfo():
            fields = [
                RowField(f"f{index}", to_data_type(field_type))
                for index, field_type in enumerate(info.get_field_types())
            ]
            return RowType(fields, False)
        case typeinfo.PrimitiveArrayTypeInfo(element_type=typeinfo.BasicTypeInfo(basic_type=typeinfo.BasicType.BYTE)):
            return types.VarBinaryType(types.LENGTH_MAX, False)
        case typeinfo.PrimitiveArrayTypeInfo(element_type=element) | typeinfo.ListTypeInfo(element_type=element):
            return types.ArrayType(to_data_type(element), False)
        case typeinfo.BasicArrayTypeInfo(element_type=element) | typeinfo.ObjectArrayTypeInfo(element_type=element):
            return types.ArrayType(to_data_type(element).nullable(), False)
        case typeinfo.MapTypeInfo(key_type_info=key, value_type_info=item):
            return types.MapType(to_data_type(key), to_data_type(item).nullable(), False)
        case _:
            return types.RawType("object", "", True)


def to_type_info(data_type: DataType) -> typeinfo.TypeInformation:
    """Return the record type of a column type. `to_data_type` inverts it."""
    nearest = _nearest(data_type)
    is_same = to_data_type(nearest).nullable() == data_type.nullable()
    return nearest if is_same else ExternalTypeInfo(data_type)


def _nearest(data_type: DataType) -> typeinfo.TypeInformation:
    """Return the closest of `Types`."""
    if isinstance(data_type, types.DateType):
        return typeinfo.DateTypeInfo()
    if type(data_type) is RowType:
        return row_type_info(data_type.field_names(), data_type.field_types())
    basic = _OF_TYPE.get(type(data_type))
    # A TIMESTAMP_LTZ value leaves a table as a datetime, but `Types.INSTANT` is another class.
    if basic is None or basic is typeinfo.BasicType.INSTANT:
        return ExternalTypeInfo(data_type)
    return typeinfo.BasicTypeInfo(basic)


def row_type_info(names: list[str], data_types: list[DataType]) -> typeinfo.RowTypeInfo:
    """Return the type of rows with these columns."""
    return typeinfo.RowTypeInfo([to_type_info(data_type) for data_type in data_types], names)


__all__ = ["ChangelogMode"]


@dataclass(frozen=True, slots=True)
class ChangelogMode:
    """The row kinds of a changelog. Created by `insert_only`, `upsert` and `all`.

    Examples:
        >>> from penstock.common import Types
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.table import ChangelogMode, StreamTableEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> t_env = StreamTableEnvironment.create(env)
        >>> numbers = t_env.from_elements([(1,), (2,)], ["n"])
        >>> stream = t_env.to_changelog_stream(numbers, changelog_mode=ChangelogMode.insert_only())
        >>> [str(row) for row in stream.collect()]
        ['+I[1]', '+I[2]']
    """

    kinds: frozenset[RowKind]

    @staticmethod
    def insert_only() -> ChangelogMode:
        """Return the mode of an append-only changelog."""
        return ChangelogMode(frozenset({RowKind.INSERT}))

    @staticmethod
    def upsert() -> ChangelogMode:
        """Return the mode with inserts, updates by key and deletes, without UPDATE_BEFORE rows."""
        return ChangelogMode(frozenset({RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE}))

    @staticmethod
    def all() -> ChangelogMode:
        """Return the mode with inserts, updates and deletes, including UPDATE_BEFORE rows."""
        return ChangelogMode(frozenset(RowKind))

    def contains(self, kind: RowKind) -> bool:
        """Return whether the changelog has rows of a kind."""
        return kind in self.kinds

    def contains_only(self, kind: RowKind) -> bool:
        """Return whether the changelog has only rows of a kind."""
        return self.kinds == {kind}

    def __str__(self) -> str:
        return f"[{','.join(kind.name for kind in RowKind if kind in self.kinds)}]"
