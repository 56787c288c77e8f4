"""A batch whose records are Arrow columns.

Columns as keys, as in `key_by("name")`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.base.types import Row, get_field
from penstock.codecs.arrow_types import exact_array
from penstock.codecs.column_data import ColumnData
from penstock.codecs.pickling import kinds_of_rows, take_apart
from penstock.runtime.connector import SplitBatch
from penstock.runtime.records import Batch
from penstock.state.equality import canonical_column
from penstock.state.key_columns import distinct_keys


class ColumnBatch(Batch):
    """Records as columns; `rowtimes` are their timestamps (ms) as an array of 64-bit integers, or None.

    `values` and `timestamps` convert them to lists, once, for operators that process record by record.

    A reader may set `origin`, which maps a record's index to its origin, such as `orders-0, offset 17`. It is called
    only for error messages. Slices and selections of a batch drop it, and it is never sent to another process or
    stored.
    """

    __slots__ = ("_times", "data", "origin", "rowtimes")

    def __init__(self, columns: pa.RecordBatch | ColumnData, rowtimes: Any = None, kinds: bytes | None = None) -> None:
        self.data = columns if isinstance(columns, ColumnData) else ColumnData(columns)
        self.rowtimes = rowtimes
        self.kinds = kinds
        self.origin: Callable[[int], str] | None = None
        self._times: list[int] | None = None

    @property
    def columns(self) -> pa.RecordBatch:
        """The columns."""
        return self.data.columns

    @property
    def values(self) -> list[Any]:  # type: ignore[override]
        """The records as rows, with their row kinds."""
        return self.data.rows(self.kinds)

    @property
    def timestamps(self) -> list[int] | None:  # type: ignore[override]
        """The timestamps as a list."""
        if self._times is None and self.rowtimes is not None:
            self._times = self.rowtimes.tolist()
        return self._times

    def __len__(self) -> int:
        return len(self.data)

    def slice(self, start: int, stop: int) -> ColumnBatch:
        """Return the records from `start` up to, but excluding, `stop`, without copying."""
        rowtimes, kinds = self.rowtimes, self.kinds
        return ColumnBatch(
            self.data[start:stop],
            None if rowtimes is None else rowtimes[start:stop],
            None if kinds is None else kinds[start:stop],
        )

    def separated(self) -> ColumnBatch:
        """Return a batch of the same columns for another consumer, which builds its own rows."""
        batch = self.slice(0, len(self))
        batch.origin = self.origin
        return batch

    def content(self) -> tuple[Any, ...]:
        """Return columns, rowtimes, and row kinds if there are any."""
        return (self.data, self.rowtimes) if self.kinds is None else (self.data, self.rowtimes, self.kinds)

    def max_timestamp(self) -> int | None:
        """Return the highest timestamp."""
        return None if self.rowtimes is None or not len(self.rowtimes) else int(self.rowtimes.max())

    def where(self, mask: Any) -> ColumnBatch:
        """Return the records selected by a numpy array of booleans."""
        return self.take(np.flatnonzero(mask))

    def take(self, indices: Any) -> ColumnBatch:
        """Return the records at the positions in a numpy array."""
        rowtimes = None if self.rowtimes is None else self.rowtimes[indices]
        kinds = None if self.kinds is None else np.frombuffer(self.kinds, np.uint8)[indices].tobytes()
        return ColumnBatch(self.data.like(self.columns.take(pa.array(indices))), rowtimes, kinds)

    def with_rowtimes(self, rowtimes: Any) -> ColumnBatch:
        """Return the same records with other timestamps."""
        return ColumnBatch(self.data, rowtimes, self.kinds)


def last_timestamp(batch: Batch) -> int | None:
    """Return the timestamp (ms) of the last record, or None if the batch has no timestamps."""
    times = batch.rowtimes if isinstance(batch, ColumnBatch) else batch.timestamps
    return int(times[-1]) if times is not None and len(times) else None


class SplitColumnBatch(ColumnBatch):
    """A batch of one of several splits that a reader has opened; see `SourceReaderContext.open_split`."""

    __slots__ = ("split_id",)

    def __init__(self, batch: ColumnBatch, split_id: str) -> None:
        super().__init__(batch.data, batch.rowtimes, batch.kinds)
        self.origin = batch.origin
        self.split_id = split_id


def describe_origin(batch: Batch, index: int) -> str:
    """Return a record's origin for errors: `at orders-0, offset 17`, `of split orders-0`, or an empty string."""
    if isinstance(batch, ColumnBatch) and batch.origin is not None:
        return f"at {batch.origin(index)}"
    return f"of split {batch.split_id}" if isinstance(batch, SplitBatch | SplitColumnBatch) else ""


def make_batch(values: Any, timestamps: Any = None, kinds: bytes | None = None) -> Batch:
    """Build a batch from values as returned by `Batch.content`: a list or `ColumnData`."""
    if isinstance(values, ColumnData):
        rowtimes = None if timestamps is None else np.asarray(timestamps, np.int64)
        return ColumnBatch(values, rowtimes, kinds)
    return Batch(values, timestamps, kinds)


def as_columns(batch: Batch, owner: str) -> ColumnBatch:
    """Convert a batch to columns: rows and dicts by their field names, tuples to `f0`, `f1` and so on.

    Raises:
        TypeError: if the records have no common columns; it names `owner`, the operator that needs them.
    """
    if isinstance(batch, ColumnBatch):
        return batch
    rowtimes = None if batch.timestamps is None else np.asarray(batch.timestamps, np.int64)
    return ColumnBatch(to_record_batch(batch.values, owner), rowtimes, get_row_kinds(batch))


def get_row_kinds(batch: Batch) -> bytes | None:
    """Return the kind of each record, wherever the batch stores it; None if all are inserts."""
    return batch.kinds if batch.kinds is not None else kinds_of_rows(batch.values)


def to_record_batch(values: list[Any], owner: str, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Convert records to columns, of a schema if one is given; see `as_columns`."""
    first = values[0]
    as_dict = getattr(first, "as_dict", None)
    try:
        if isinstance(first, dict) or (as_dict is not None and first.has_field_names):
            dicts = values if isinstance(first, dict) else [value.as_dict() for value in values]
            if schema is None:
                return pa.RecordBatch.from_pylist(dicts)
            arrays = [_column([row.get(field.name) for row in dicts], field.type, field.name) for field in schema]
            return pa.RecordBatch.from_arrays(arrays, schema=schema)
        if isinstance(first, tuple) or as_dict is not None:
            names = list(getattr(first, "_fields", None) or (f"f{index}" for index in range(len(list(first)))))
            lists = zip(*values, strict=True)
            types = [None] * len(names) if schema is None else schema.types
            field_names = names if schema is None else schema.names
            arrays = [_column(*arguments) for arguments in zip(lists, types, field_names, strict=True)]
            return pa.RecordBatch.from_arrays(arrays, names)
    except (pa.ArrowException, AttributeError, TypeError, ValueError, OverflowError) as error:
        raise WrongTypeError(
            f"{owner} works on columns, but these records cannot be converted to columns: {error}"
        ) from error
    raise WrongTypeError(
        f"{owner} works on columns, but a {type(first).__name__} has none: use rows, dicts or tuples as records, or "
        "read them as columns"
    )


def _column(values: Sequence[Any], kind: pa.DataType | None, name: str) -> pa.Array:
    """Convert values to a column; without a `kind`, Arrow infers the type."""
    try:
        return pa.array(values) if kind is None else exact_array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise WrongTypeError(f"column {name!r} of {kind or 'one type'}: {error}") from error


def extract_rowtimes(batch: ColumnBatch, name: str) -> Any:
    """Return the timestamps (ms) in a column of integers (already ms), dates or Arrow timestamps.

    Raises:
        TypeError: if the column has another type.
        ValueError: if the column does not exist or has nulls.
    """
    columns = batch.columns
    position = columns.schema.get_field_index(name)
    if position < 0:
        raise WrongValueError(f"there is no column {name!r} to take timestamps from; there are {columns.schema.names}")
    column = columns.column(position)
    if column.null_count:
        first = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        origin = describe_origin(batch, first)
        raise WrongValueError(
            f"column {name!r} is null in {column.null_count} records, so they have no timestamp; the first is record "
            f"{first + 1} of a batch of {len(batch)}{origin and ', '}{origin}"
        )
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
    elif not pa.types.is_integer(column.type):
        raise WrongTypeError(
            f"column {name!r} is of type {column.type}: timestamps must be integers (ms), dates or Arrow timestamps"
        )
    return column.cast(pa.int64()).to_numpy()


#: The field names of tuples.
_NUMBERED: Final = re.compile("f[0-9]+")
#: Integer keys below this have their channels in a table.
_TABLE_MAX: Final = 1 << 20
_UNKNOWN: Final = -1


class ColumnKey:
    """Extracts a record's key from columns: the value of one, or a tuple of the values of several.

    For a record that is not from a column batch, it takes the fields with these names.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def __call__(self, record: Any) -> Any:
        """Return the key of a single record."""
        if len(self.names) == 1:
            return get_field(record, self.names[0])
        return tuple(get_field(record, name) for name in self.names)

    def extend(self, target: list[Any], records: list[Any]) -> None:
        """Append the keys of many records, up to the first record without one.

        Raises:
            TypeError: if a record has no such field; it is the one that follows the last appended key.
        """
        fields, getter = self._at_once(records)
        if getter is None:
            target.extend(map(self, records))
            return
        begin = len(target)
        try:
            target.extend(map(getter, fields))
        except IndexError:
            self(records[len(target) - begin])
            raise

    def _at_once(self, records: list[Any]) -> tuple[list[Any], Callable[[Any], Any] | None]:
        """Return lists of fields and a getter for their keys, if all are tuples or all are rows with the same names."""
        kinds = set(map(type, records))
        if kinds == {tuple}:
            if all(_NUMBERED.fullmatch(name) for name in self.names):
                return records, itemgetter(*(int(name[1:]) for name in self.names))
        elif kinds == {Row}:
            apart = take_apart(records)
            names = () if apart is None else apart[0] or ()
            if apart is not None and all(names.count(name) == 1 for name in self.names):
                return apart[1], itemgetter(*(names.index(name) for name in self.names))
        return records, None

    def __repr__(self) -> str:
        return f"ColumnKey({', '.join(self.names)})"

    def select_columns(self, columns: pa.RecordBatch) -> list[Any]:
        """Return the key's columns in canonical form (`penstock.state.equality`).

        Raises:
            TypeError: if a column is missing.
        """
        schema = columns.schema
        positions = [schema.get_field_index(name) for name in self.names]
        if min(positions) < 0:
            missing = [name for name, position in zip(self.names, positions, strict=True) if position < 0]
            raise WrongTypeError(f"there is no column {missing[0]!r} to key by; there are {', '.join(schema.names)}")
        return [canonical_column(columns.column(position)) for position in positions]


class ColumnRoutes:
    """Routes each record to a channel by its key; each key is hashed once while it is remembered.

    Small integers use a table, so a batch's distinct keys need not be found first.
    """

    def __init__(self, key: ColumnKey, route: Callable[[Any], int]) -> None:
        self._key = key
        self._route = route
        #: channel by key, -1 for keys not seen yet
        self._table = np.full(0, _UNKNOWN, np.int16)

    def select_channels(self, columns: pa.RecordBatch) -> Any:
        """Return the channels of the records as a numpy array."""
        of_key = self._key.select_columns(columns)
        if len(of_key) == 1 and pa.types.is_integer(of_key[0].type) and not of_key[0].null_count:
            numbers = of_key[0].to_numpy()
            if len(numbers) and numbers.min() >= 0 and (highest := int(numbers.max())) < _TABLE_MAX:
                return self._in_table(numbers, highest)
        codes, keys = distinct_keys(of_key)
        return np.fromiter(map(self._route, keys), np.int16, len(keys))[codes]

    def _in_table(self, numbers: Any, highest: int) -> Any:
        missing = highest + 1 - len(self._table)
        if missing > 0:
            self._table = np.concatenate([self._table, np.full(missing, _UNKNOWN, np.int16)])
        routes = self._table[numbers]
        unknown = routes == _UNKNOWN
        if unknown.any():
            new = np.unique(numbers[unknown])
            self._table[new] = list(map(self._route, new.tolist()))
            routes = self._table[numbers]
        return routes
