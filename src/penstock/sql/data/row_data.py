"""Rows of a batch as tuples of internal values (`penstock.sql.data.arrow`), whose columns are built when they are read.

A column of one row costs as much to build as a column of a hundred. Steps that compute few rows in Python hand over
the tuples that they have. A consumer of tuples takes them as they are; a consumer of columns sees no difference. All
columns at once are built as one array of structs, in half the time.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from penstock.base.types import Row
from penstock.codecs.arrow_columns import NANOSECONDS
from penstock.codecs.column_data import ColumnData
from penstock.sql.data.arrow import arrow_type, to_column
from penstock.sql.data.types import (
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    LocalZonedTimestampType,
    NumericType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)

#: how many layouts of received rows are known
_LAYOUTS_MAX: Final = 1 << 10


#: types whose internal values are values of Arrow, but for the unit of timestamps
_PLAIN: Final = (
    BooleanType,
    NumericType,
    CharType,
    VarCharType,
    BinaryType,
    VarBinaryType,
    DateType,
    TimeType,
    TimestampType,
    LocalZonedTimestampType,
    YearMonthIntervalType,
    DayTimeIntervalType,
)


class RowLayout:
    """The names and types of the columns of rows. All batches of an operator share one."""

    __slots__ = ("_factors", "_pickled", "_schema", "_struct", "names", "types")

    def __init__(self, names: Sequence[str], types: Sequence[DataType]) -> None:
        self.names = tuple(names)
        self.types = tuple(types)
        fields = [pa.field(name, arrow_type(kind)) for name, kind in zip(self.names, self.types, strict=True)]
        # Rows without columns still exist, for consumers that count them.
        self._schema = pa.schema(fields or [pa.field("c0", pa.null())])
        is_plain = all(isinstance(kind, _PLAIN) for kind in self.types)
        self._struct = pa.struct(list(self._schema)) if is_plain and self.types else None
        units = [field.type.unit if pa.types.is_timestamp(field.type) else "ns" for field in self._schema]
        #: the timestamps whose unit is not nanoseconds, and the nanoseconds of their units
        self._factors = [(index, NANOSECONDS[unit]) for index, unit in enumerate(units) if unit != "ns"]
        self._pickled: bytes | None = None

    def column(self, index: int, rows: Sequence[tuple[Any, ...]]) -> pa.Array:
        """Return a column of these rows."""
        return to_column(list(map(itemgetter(index), rows)), self.types[index])

    def columns(self, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
        """Return all columns of these rows."""
        if self._struct is not None:
            values = self._with_units(rows) if self._factors else rows
            return pa.RecordBatch.from_struct_array(pa.array(values, self._struct))
        arrays = [self.column(index, rows) for index in range(len(self.types))] or [pa.nulls(len(rows))]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _with_units(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the rows with timestamps in the units of their columns."""
        converted = []
        for row in rows:
            values = list(row)
            for index, factor in self._factors:
                if values[index] is not None:
                    values[index] //= factor
            converted.append(tuple(values))
        return converted

    def pickled(self) -> bytes:
        """Return the layout for another process."""
        if self._pickled is None:
            self._pickled = pickle.dumps((self.names, self.types), protocol=5)
        return self._pickled


class RowData(ColumnData):
    """See the module docstring. `tuples` is read-only."""

    __slots__ = ("_columns", "_known", "layout", "tuples")

    def __init__(self, layout: RowLayout, tuples: list[tuple[Any, ...]]) -> None:
        self.layout = layout
        self.tuples = tuples
        self._columns: pa.RecordBatch | None = None
        self._known: dict[int, pa.Array] = {}
        self._rows: list[Row] | None = None

    __hash__ = None

    def __len__(self) -> int:
        return len(self.tuples)

    def __getitem__(self, part: slice) -> RowData:
        return RowData(self.layout, self.tuples[part])

    @property
    def columns(self) -> pa.RecordBatch:
        """The columns, built and cached."""
        if self._columns is None:
            self._columns = self.cut()
        return self._columns

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""
        return self.layout.names

    def column(self, index: int) -> pa.Array:
        """Return one column. The first one is built alone; who asks for a second one asks for more."""
        column = self._known.get(index)
        if column is None:
            if self._known or self._columns is not None:
                return self.columns.column(index)
            column = self._known[index] = self.layout.column(index, self.tuples)
        return column

    def taken(self, index: int, records: Any) -> pa.Array:
        """See `ColumnData`."""
        tuples = self.tuples
        if len(tuples) == 1 and len(records) == 1:
            return self.column(index)
        return self.layout.column(index, [tuples[record] for record in records.tolist()])

    def take(self, records: Any) -> RowData:
        """See `ColumnData`. Builds no column."""
        tuples = self.tuples
        return RowData(self.layout, [tuples[record] for record in records.tolist()])

    def cut(self) -> pa.RecordBatch:
        """See `ColumnData`."""
        return self.layout.columns(self.tuples)

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_tuples, (self.layout.pickled(), self.tuples)


class FewRows:
    """Batches of a few rows in order of arrival, until somebody takes all their rows together."""

    __slots__ = ("_form", "_parts", "rows")

    def __init__(self) -> None:
        self._parts: list[ColumnData] = []
        #: what the rows of a batch have in common
        self._form: RowLayout | pa.Schema | None = None
        #: how many there are
        self.rows = 0

    def add(self, data: ColumnData) -> bool:
        """Add the rows of a batch. Returns False, and adds nothing, if they do not fit to those that are here."""
        form = data.layout if isinstance(data, RowData) else data.columns.schema
        if form is not self._form:
            if self.rows and (isinstance(form, RowLayout) or form != self._form):
                return False
            self._form = form
        self._parts.append(data)
        self.rows += len(data)
        return True

    def take(self) -> ColumnData:
        """Remove and return all rows, at least one."""
        parts, self._parts, self.rows = self._parts, [], 0
        if len(parts) == 1:
            return parts[0]
        if isinstance(self._form, RowLayout):
            return RowData(self._form, [row for part in parts if isinstance(part, RowData) for row in part.tuples])
        return ColumnData(pa.concat_batches([part.columns for part in parts]))


@lru_cache(_LAYOUTS_MAX)
def _known_layout(pickled: bytes) -> RowLayout:
    return RowLayout(*pickle.loads(pickled))


def _from_tuples(layout: bytes, tuples: list[tuple[Any, ...]]) -> RowData:
    return RowData(_known_layout(layout), tuples)
