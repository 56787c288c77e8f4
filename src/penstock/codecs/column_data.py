"""Records as Arrow columns: the values of a `ColumnBatch`, on the wire, in files and in snapshots."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import ContractError
from penstock.base.types import Row
from penstock.codecs.pickling import make_rows

#: The maximum number of records that a source emits as columns at a time.
COLUMN_BATCH_ROWS: Final = 1 << 16


class ColumnData:
    """An Arrow record batch that behaves like the list of its records, each a `Row` with the columns' names.

    A slice shares memory with its batch. A batch is pickled as its IPC message, which protocol 5 keeps out of band. The
    message of a slice contains only the slice.
    """

    __slots__ = ("_rows", "columns")

    def __init__(self, columns: pa.RecordBatch) -> None:
        self.columns = columns
        self._rows: list[Row] | None = None

    def __len__(self) -> int:
        rows: int = self.columns.num_rows
        return rows

    def __getitem__(self, part: slice) -> ColumnData:
        start, stop, _ = part.indices(len(self))
        return ColumnData(self.columns.slice(start, max(0, stop - start)))

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColumnData) and bool(self.columns.equals(other.columns))

    __hash__ = None  # type: ignore[assignment]

    def rows(self, kinds: bytes | None = None) -> list[Row]:
        """Return the records, with these row kinds; they are created once and then cached."""
        if self._rows is None:
            names = tuple(self.columns.schema.names)
            columns = [column.to_pylist() for column in self.columns.columns]
            lists = map(list, zip(*columns, strict=True)) if columns else ([] for _ in range(len(self)))
            self._rows = make_rows(names, lists, kinds)
        return self._rows

    def like(self, columns: pa.RecordBatch) -> ColumnData:
        """Return other columns of the same form, whose records are created in the same way."""
        return ColumnData(columns)

    def take(self, records: Any) -> ColumnData:
        """Return the records with these indices, a numpy array."""
        return self.like(self.columns.take(pa.array(records)))

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""
        names: list[str] = self.columns.schema.names
        return names

    def column(self, index: int) -> pa.Array:
        """Return one column."""
        return self.columns.column(index)

    def taken(self, index: int, records: Any) -> pa.Array:
        """Return one column of the records with these indices, a numpy array."""
        return self.columns.column(index).take(pa.array(records))

    def cut(self) -> pa.RecordBatch:
        """Return the columns, without caching them if they have to be created."""
        return self.columns

    def compute(self) -> None:
        """Compute the values that nothing has computed yet."""

    def __reduce__(self) -> tuple[Any, ...]:
        message = pickle.PickleBuffer(self.columns.serialize())
        return _from_message, (self.columns.schema.serialize().to_pybytes(), message)


class ChosenColumns(ColumnData):
    """Records selected from longer columns, which are cut only when read: unread columns are never copied.

    The longer columns stay in memory meanwhile, so the selected records should be most of them.

    Args:
        uncut: the longer columns; None for one that is `known`.
        names: the names of the columns.
        numbers: the indices of the selected records, as a numpy array.
        known: columns of the selected records, by position.
        mask: the selection as a mask of the longer columns, if it is nearly all: each run of records is then one copy.
    """

    __slots__ = ("_columns", "_known", "_mask", "_names", "_numbers", "_whole")

    def __init__(
        self,
        uncut: Sequence[pa.Array | None],
        names: Sequence[str],
        numbers: Any,
        known: dict[int, pa.Array],
        mask: pa.BooleanArray | None = None,
    ) -> None:
        self._whole = list(uncut)
        self._names = list(names)
        self._numbers = numbers
        self._known = known
        self._mask = mask
        self._columns: pa.RecordBatch | None = None
        self._rows = None

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def columns(self) -> pa.RecordBatch:
        """The columns, cut and cached."""
        if self._columns is None:
            self._columns = self.cut()
            # A checkpoint in another thread may be cutting from the old dict and list, which stay unchanged.
            self._known = dict(enumerate(self._columns.columns))
            self._whole = [None] * len(self._names)
        return self._columns

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""
        return self._names

    @property
    def is_cut(self) -> bool:
        """Whether the longer columns have been released."""
        return self._columns is not None

    def column(self, index: int) -> pa.Array:
        """Return one column, cutting only that one."""
        column = self._known.get(index)
        if column is None:
            column = self._known[index] = self._chosen(self._whole[index])
        return column

    def taken(self, index: int, records: Any) -> pa.Array:
        """See `ColumnData`. Cuts nothing else."""
        column = self._known.get(index)
        array: Any = self._whole[index]
        return array.take(pa.array(self._numbers[records])) if column is None else column.take(pa.array(records))

    def compute(self) -> None:
        """See `ColumnData`."""
        _ = self.columns

    def _chosen(self, array: Any) -> pa.Array:
        return array.take(pa.array(self._numbers)) if self._mask is None else array.filter(self._mask)

    def cut(self) -> pa.RecordBatch:
        """See `ColumnData`."""
        uncut, known = self._whole, self._known
        arrays = [known[index] if index in known else self._chosen(uncut[index]) for index in range(len(uncut))]
        return pa.RecordBatch.from_arrays(arrays, self._names)


class RecordData(ColumnData):
    """Columns whose records are not rows: `make` creates each from its fields, like a NamedTuple; it is picklable."""

    __slots__ = ("make",)

    def __init__(self, columns: pa.RecordBatch, make: Callable[..., Any]) -> None:
        super().__init__(columns)
        self.make = make

    __hash__ = None

    def __getitem__(self, part: slice) -> RecordData:
        return RecordData(super().__getitem__(part).columns, self.make)

    def rows(self, kinds: bytes | None = None) -> list[Any]:
        """Return the records, created once and then cached; they have no kinds."""
        if self._rows is None:
            self._rows = list(map(self.make, *(column.to_pylist() for column in self.columns.columns)))
        return self._rows

    def like(self, columns: pa.RecordBatch) -> RecordData:
        """Return other columns of such records."""
        return RecordData(columns, self.make)

    def __reduce__(self) -> tuple[Any, ...]:
        make, parts = super().__reduce__()
        return _made_from_message, (make, parts, self.make)


class ChangeData(ColumnData):
    """Changes of a table as columns; `kinds` has one byte for each, as in `Batch.kinds`."""

    __slots__ = ("kinds",)

    def __init__(self, columns: pa.RecordBatch, kinds: bytes) -> None:
        super().__init__(columns)
        self.kinds = kinds

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChangeData) and self.kinds == other.kinds and super().__eq__(other)

    def __getitem__(self, part: slice) -> ChangeData:
        start, stop, _ = part.indices(len(self))
        return ChangeData(super().__getitem__(part).columns, self.kinds[start:stop])

    def __reduce__(self) -> tuple[Any, ...]:
        raise ContractError("changes travel as a batch, whose kinds are beside its columns")


def _from_message(schema: bytes, message: Any) -> ColumnData:
    arrow_schema = pa.ipc.read_schema(pa.py_buffer(schema))
    return ColumnData(pa.ipc.read_record_batch(pa.py_buffer(message), arrow_schema))


def _made_from_message(read: Callable[..., ColumnData], parts: tuple[Any, ...], make: Callable[..., Any]) -> RecordData:
    return RecordData(read(*parts).columns, make)
