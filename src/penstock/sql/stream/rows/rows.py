"""Rows as tuples of internal values (`penstock.sql.data.arrow`): conversion from batches, equality, keys and sort keys.

`to_canonical_rows` returns rows in state: tuples that can be dictionary keys, so that a row is found by its values. All
comparisons of rows (`RowEquality`) use the same equality (`penstock.state.equality`).

`to_tuples` and `build_batch` convert the rows of a batch to tuples and back. A batch of rows without columns has one
column that is never read.

`RowKeys` extracts the keys of rows, for partitioning and keyed state; `TupleKeys` does the same for tuples. `UncutRows`
have their key columns first; the other columns are cut when they are read.

`sort_keys` returns sort keys as values that Python compares. NULL is the least or the greatest value, depending on the
key. NaN is the greatest number.

`ToRowsOperator` converts rows of columns to tuples, for consumers of single rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.codecs.arrow_columns import NANOSECONDS
from penstock.codecs.column_data import ChosenColumns, ColumnData
from penstock.runtime.columns import ColumnBatch, ColumnKey, as_columns
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.records import Batch
from penstock.sql.data.arrow import arrow_type, to_column, to_values
from penstock.sql.data.row_data import RowData
from penstock.sql.data.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LocalZonedTimestampType,
    MultisetType,
    RowType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from penstock.sql.functions.text_casts import row_text
from penstock.sql.logical.nodes import DELETE, INSERT, SHORT, UPDATE_BEFORE, SortKey
from penstock.state.equality import Zeros, build_canonicalizer, canonical_values
from penstock.state.key_columns import distinct_keys
from penstock.state.keys import NAN, KeyGuard

Row = tuple[Any, ...]
_FLOAT: Final = build_canonicalizer(pa.float64())


def to_canonical_rows(
    columns: Sequence[pa.Array], types: Sequence[DataType], rows: int, zeros: Zeros = "kept"
) -> list[Row]:
    """Return the rows of these columns in canonical form, so that equal rows are one dictionary key.

    Rows that are kept to be sent again need `zeros="apart"`: a retracted row must be the one that was sent, bit for
    bit, even if an equal row has 0.0 instead of -0.0.
    """
    lists = [
        canonical_values(to_values(column, kind), column.type, zeros)
        for column, kind in zip(columns, types, strict=True)
    ]
    return list(zip(*lists, strict=True)) if lists else [()] * rows


def build_columns(rows: Sequence[Row], types: Sequence[DataType]) -> list[pa.Array]:
    """Return the columns of these rows."""
    return [to_column(list(map(itemgetter(index), rows)), kind) for index, kind in enumerate(types)]


class RowEquality:
    """Compares rows of these types. Their values may be in canonical form or not.

    Args:
        types: the types of the values, which are in the form that `to_values` returns.
        zeros: how -0.0 appears in keys, see `build_canonicalizer`.
    """

    def __init__(self, types: Sequence[DataType], zeros: Zeros = "kept") -> None:
        canonicalizers = [build_canonicalizer(arrow_type(data_type), zeros) for data_type in types]
        self._canonicalizers = [
            (index, canonicalizer) for index, canonicalizer in enumerate(canonicalizers) if canonicalizer is not None
        ]

    @property
    def is_plain(self) -> bool:
        """Whether tuples can be compared directly, because no type has several forms of one value."""
        return not self._canonicalizers

    def key(self, row: Sequence[Any]) -> Row:
        """Return the row as a dictionary key. It is the row itself if the types need no canonical form."""
        if not self._canonicalizers:
            return tuple(row)
        values = list(row)
        for index, canonical in self._canonicalizers:
            values[index] = canonical(values[index])
        return tuple(values)

    def current_key(self, key: Row) -> Row:
        """Return the current key for a key that an earlier release wrote, with a string for NaN."""
        values = list(key)
        for index, canonical in self._canonicalizers:
            if canonical is _FLOAT and values[index] == "NaN":
                values[index] = NAN
        return self.key(tuple(values))

    def same(self, row: Sequence[Any] | None, other: Sequence[Any] | None) -> bool:
        """Return whether two rows are equal. None equals None."""
        if row == other:
            return True
        if not self._canonicalizers or row is None or other is None:
            return False
        return self.key(row) == self.key(other)

    def find(self, row: Row, rows: Iterable[Row]) -> Row | None:
        """Return the first of the rows that equals this one, or None.

        State of an earlier release has rows that are not in canonical form, so a dictionary lookup may miss them.
        """
        if not self._canonicalizers:
            return None
        key = self.key(row)
        return next((other for other in rows if self.key(other) == key), None)


def to_tuples(records: ColumnBatch, types: Sequence[DataType]) -> list[tuple[Any, ...]]:
    """Return the rows of a batch."""
    if isinstance(records.data, RowData):
        rows = records.data.tuples
        return list(rows) if len(types) == len(records.data.layout.types) else [row[: len(types)] for row in rows]
    columns = [to_values(column, kind) for column, kind in zip(records.columns.columns, types, strict=False)]
    return list(zip(*columns, strict=True)) if columns else [()] * len(records)


def build_batch(
    rows: Sequence[tuple[Any, ...]],
    types: Sequence[DataType],
    names: list[str],
    rowtimes: Any = None,
    kinds: Sequence[int] = (),
) -> ColumnBatch:
    """Build a batch from at least one row."""
    # zip(*rows) would create an iterator for each row, and Python would look for cycles among them.
    arrays = [to_column(list(map(itemgetter(index), rows)), kind) for index, kind in enumerate(types)]
    columns = pa.RecordBatch.from_arrays(arrays or [pa.nulls(len(rows))], names or ["c0"])
    return ColumnBatch(columns, rowtimes, pack_kinds(kinds))


def pack_kinds(kinds: Sequence[int]) -> bytes | None:
    """Return the kinds of the rows of a batch; None if all are inserts."""
    return bytes(kinds) if any(kinds) else None


def without_update_before(batch: ColumnBatch) -> ColumnBatch:
    """Return a batch for a consumer by key, with the previous rows of updates (-U) as deletions (-D).

    A step that need not send -U still does if the new row may be missing. So a -U can be the last change of a key, and
    dropping it would leave the row at the consumer.
    """
    if batch.kinds is None or UPDATE_BEFORE not in batch.kinds:
        return batch
    kinds = batch.kinds.replace(bytes([UPDATE_BEFORE]), bytes([DELETE]))
    return ColumnBatch(batch.columns, batch.rowtimes, kinds)


#: The key of all rows without key columns.
ONLY_KEY: Final = 0


class RowKeys:
    """Extracts row keys from the columns at these indexes. Equal values are one key (`penstock.state.equality`)."""

    def __init__(self, indices: Sequence[int]) -> None:
        self.places = tuple(indices)
        self._guard = KeyGuard()

    def numbered(self, columns: pa.RecordBatch) -> tuple[Any, list[Any]]:
        """Return each row's index into the distinct keys, as a NumPy array, and these keys."""
        if not self.places:
            return np.zeros(columns.num_rows, np.int64), [ONLY_KEY]
        key = ColumnKey(tuple(columns.schema.names[index] for index in self.places))
        codes, keys = distinct_keys(key.select_columns(columns))
        return codes, self._guard.admit(keys)

    def of(self, columns: pa.RecordBatch) -> list[Any]:
        """Return the key of each row."""
        if not self.places:
            return [ONLY_KEY] * columns.num_rows
        codes, keys = self.numbered(columns)
        return [keys[code] for code in codes.tolist()]


class TupleKeys:
    """Extracts the keys of rows that are tuples of internal values. Equal values are one key.

    Args:
        indices: the indexes of the key columns, at least one.
        types: the types of the key columns.
    """

    def __init__(self, indices: Sequence[int], types: Sequence[DataType]) -> None:
        self._get = itemgetter(*indices)
        self._canonicalizer = build_canonicalizer(arrow_type(types[0])) if len(types) == 1 else None
        self._equality = RowEquality(types) if len(types) > 1 else None

    def of(self, rows: Sequence[Row]) -> list[Any]:
        """Return the key of each row: a value, or a tuple of several values."""
        keys = list(map(self._get, rows))
        if self._canonicalizer is not None:
            return list(map(self._canonicalizer, keys))
        return keys if self._equality is None or self._equality.is_plain else list(map(self._equality.key, keys))


@dataclass(frozen=True, slots=True)
class UncutRows:
    """See the module docstring.

    Args:
        keys: the key columns, already cut.
        data: the other columns, which begin with the rows' own.
        names: the names of the key columns and of the rows' own columns.
    """

    keys: Sequence[pa.Array]
    data: ColumnData
    names: Sequence[str]

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self.data)

    def column(self, index: int) -> pa.Array:
        """Return one column."""
        keys = len(self.keys)
        return self.keys[index] if index < keys else self.data.column(index - keys)

    def taken(self, index: int, rows: Any) -> pa.Array:
        """Return one column of the rows with these numbers, a NumPy array."""
        keys = len(self.keys)
        return self.keys[index].take(pa.array(rows)) if index < keys else self.data.taken(index - keys, rows)

    def cut(self) -> pa.RecordBatch:
        """Return all columns."""
        width = len(self.names) - len(self.keys)
        return pa.RecordBatch.from_arrays([*self.keys, *self.data.cut().columns[:width]], list(self.names))

    def to_keep(self) -> pa.RecordBatch | UncutRows:
        """Return the same rows for keeping: as an Arrow batch if they are already cut."""
        return self if isinstance(self.data, ChosenColumns) and not self.data.is_cut else self.cut()


def taken(rows: pa.RecordBatch | UncutRows, index: int, numbers: Any) -> pa.Array:
    """Return one column of the rows with these numbers, a NumPy array."""
    return rows.taken(index, numbers) if isinstance(rows, UncutRows) else rows.column(index).take(pa.array(numbers))


def cut(rows: pa.RecordBatch | UncutRows) -> pa.RecordBatch:
    """Return all columns."""
    return rows.cut() if isinstance(rows, UncutRows) else rows


#: types whose values are whole numbers
WHOLE_TYPES: Final = (
    BooleanType,
    IntegralType,
    DateType,
    TimeType,
    TimestampType,
    LocalZonedTimestampType,
    YearMonthIntervalType,
    DayTimeIntervalType,
)
_TEXT: Final = (CharType, VarCharType, BinaryType, VarBinaryType)
_NOTHING_FIRST: Final = (0,)
_NOTHING_LAST: Final = (2,)


class Descending:
    """A value that comes before lesser ones."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: Descending) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value)


def sort_keys(order: Sequence[SortKey], types: Sequence[DataType], rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return the sort key of each row. The rows have values in the form that `to_values` returns."""
    if not order:
        return [()] * len(rows)
    return _put_together([_comparable([row[key.index] for row in rows], types[key.index], key) for key in order])


def sort_keys_of_columns(order: Sequence[SortKey], types: Sequence[DataType], columns: pa.RecordBatch) -> list[Any]:
    """Return the sort key of each row, reading only the columns of the order."""
    if not order:
        return [()] * columns.num_rows
    values = {key.index: to_values(columns.column(key.index), types[key.index]) for key in order}
    return _put_together([_comparable(values[key.index], types[key.index], key) for key in order])


def first_sort_values(order: Sequence[SortKey], types: Sequence[DataType], columns: pa.RecordBatch) -> Any:
    """Return the first sort value of each row as floats in a NumPy array, which have the same order as the sort keys.

    Different values may be equal as floats. Returns None if the values are not numbers.
    """
    if (
        not order
        or not isinstance(types[order[0].index], WHOLE_TYPES)
        or isinstance(types[order[0].index], BooleanType)
    ):
        return None
    column, key = columns.column(order[0].index), order[0]
    factor = NANOSECONDS[column.type.unit] if pa.types.is_timestamp(column.type) else 1
    if not pa.types.is_integer(column.type):
        column = column.view(pa.int64() if column.type.bit_width == 64 else pa.int32())
    filled = column.fill_null(0) if column.null_count else column
    numbers = filled.to_numpy(zero_copy_only=False).astype(np.float64) * (-factor if key.is_descending else factor)
    if column.null_count:
        numbers[column.is_null().to_numpy(zero_copy_only=False)] = -math.inf if key.nulls_first else math.inf
    return numbers


def _put_together(parts: list[list[Any]]) -> list[Any]:
    return parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))


def _comparable(values: list[Any], data_type: DataType, key: SortKey) -> list[Any]:
    if isinstance(data_type, (*WHOLE_TYPES, DecimalType)):
        nothing = -math.inf if key.nulls_first else math.inf
        if not key.is_descending:
            return [nothing if value is None else value for value in values]
        if isinstance(data_type, DecimalType):
            return [nothing if value is None else value.copy_negate() for value in values]
        return [nothing if value is None else -value for value in values]
    missing = _NOTHING_FIRST if key.nulls_first else _NOTHING_LAST
    comparable = to_comparable(data_type)
    comparables = values if comparable is None else [None if value is None else comparable(value) for value in values]
    if key.is_descending:
        return [missing if value is None else (1, Descending(value)) for value in comparables]
    return [missing if value is None else (1, value) for value in comparables]


def to_comparable(data_type: DataType) -> Callable[[Any], Any] | None:
    """Return a function that makes values of a type comparable, or None if they already are.

    Raises `UnsupportedError` if the type cannot be compared.
    """
    if isinstance(data_type, (*WHOLE_TYPES, *_TEXT, DecimalType)):
        return None
    if isinstance(data_type, DoubleType | FloatType):
        return _number
    if isinstance(data_type, RowType):
        fields = [_field(field_type) for field_type in data_type.field_types()]
        return lambda row: tuple([field(value) for field, value in zip(fields, row, strict=True)])
    if isinstance(data_type, ArrayType) and not isinstance(data_type, MultisetType):
        element = _field(data_type.element_type)
        return lambda array: tuple(map(element, array))
    raise UnsupportedError(f"rows cannot be sorted by a column of type {data_type}")


def _number(value: float) -> tuple[int, float]:
    return (1, 0.0) if math.isnan(value) else (0, value)


def _field(data_type: DataType) -> Callable[[Any], Any]:
    comparable = to_comparable(data_type)

    def field(value: Any) -> tuple[Any, ...]:
        if value is None:
            return _NOTHING_FIRST
        return (1, value if comparable is None else comparable(value))

    return field


class ToRowsOperator(StreamOperator):
    """Emits (kind, values) for each row: the byte of the kind, and a tuple of internal values
    (`penstock.sql.data.arrow`).

    With `as_text`, emits the text of each row instead, as Flink prints it.
    """

    def __init__(self, types: Sequence[DataType], as_text: bool = False) -> None:
        self._types = tuple(types)
        self._as_text = as_text

    def open(self) -> None:
        """Create the function that formats rows."""
        self._text = row_text(self._types)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Convert columns to rows."""
        records = as_columns(batch, self.context.operator_name)
        rows = to_tuples(records, self._types)
        kinds = [INSERT] * len(rows) if records.kinds is None else list(records.kinds)
        if self._as_text:
            text = self._text
            texts = [text(SHORT[kind], values) for kind, values in zip(kinds, rows, strict=True)]
            self.output.collect(Batch(texts, batch.timestamps))
        else:
            self.output.collect(Batch(list(zip(kinds, rows, strict=True)), batch.timestamps))
