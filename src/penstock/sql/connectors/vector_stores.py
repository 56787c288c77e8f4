"""Base classes of the connectors of vector stores, `sqlite-vec` and `qdrant`.

VECTOR_SEARCH searches their tables and INSERT fills them. The store makes the search, with its own metric and index
(`StoredVectors`). A store that compares vectors by another metric than the table's `vector.metric` is refused: the
score would mean something else.

**Writing.** `StoreWriter` buffers changes and writes the last one of each key: a row replaces that of its key. So a row
that is written again after a failure changes nothing. Vectors without a distance are refused before they are written.
Neither store would refuse all of them: SQLite takes a NaN, and Qdrant's local mode an infinite number.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import UnsupportedError
from penstock.codecs.column_data import ColumnData
from penstock.runtime.connector import Sink, SinkWriter, SinkWriterContext
from penstock.sql.connectors.jdbc import INTERVAL, MAX_ROWS
from penstock.sql.data import types
from penstock.sql.data.arrow import columns_of_changes
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import ALL, DELETE, UPDATE_BEFORE, RowSchema, Scan, Write
from penstock.sql.tables import tables
from penstock.sql.tables.connector import TableConnector, TableOptions
from penstock.sql.tables.vectors import COSINE, StoredVectors, VectorColumn, import_optional, read_metric

#: why a vector has no distance in a store, which computes with 32 bits
OUT_OF_RANGE: Final = "its numbers or their squares are too large or too small for 32 bits"
TEXTS: Final = (types.CharType, types.VarCharType)
_NUMBERS: Final = (types.FloatType, types.DoubleType)
#: the types of columns that both stores have
PLAIN: Final = (types.BooleanType, types.IntegralType, *_NUMBERS, *TEXTS)

#: the options of a sink
WRITING: Final = (MAX_ROWS, INTERVAL)


def text_option(key: str, description: str) -> ConfigOption[str | None]:
    """Return an option with a text, without a default."""
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


def is_vector_type(kind: types.DataType) -> bool:
    """Return whether a column may hold vectors."""
    return isinstance(kind, types.ArrayType) and isinstance(kind.element_type, _NUMBERS)


def as_declared(value: Any, kind: types.DataType) -> Any:
    """Return a value of a store as programs see a value of this type. A value that does not fit is refused later."""
    if isinstance(kind, _NUMBERS) and type(value) is int:
        return float(value)
    if isinstance(kind, types.BooleanType) and value in (0, 1):
        return bool(value)
    return str(value) if isinstance(kind, TEXTS) and type(value) is int else value


class Store(StoredVectors):
    """Base class of the tables in a store; it is created where the query is planned, and sent to the workers.

    Args:
        searched: the column of vectors that is searched; no column, -1, for a table that is written.
        key: the columns of the primary key.
    """

    def __init__(self, searched: VectorColumn, key: Sequence[int]) -> None:
        super().__init__(searched)
        self.key = tuple(key)
        self.is_written = searched.column < 0
        #: all columns of vectors, with the length of their vectors; `open` finds them
        self.vectors: dict[int, tuple[VectorColumn, int | None]] = {}

    @property
    def schema(self) -> RowSchema:
        """The columns of the table."""
        return self.searched.schema

    @property
    def title(self) -> str:
        """The name of the table."""
        return self.searched.title

    def add_vectors(self, column: int, metric: str, length: int | None) -> None:
        """Add a column of vectors that the store compares by a metric, in `open`."""
        self.vectors[column] = VectorColumn(self.schema, column, metric, self.title), length
        if column == self.searched.column:
            self.length = length

    @abstractmethod
    def write(self, deleted: list[tuple[Any, ...]], upserted: list[tuple[Any, ...]]) -> None:
        """Remove rows by their keys, and write rows; no key is in both."""

    def check_rows(self, rows: list[tuple[Any, ...]]) -> None:
        """Raise `WrongValueError` for a row with a vector that has no distance, before it is written."""
        for column, (vectors, length) in self.vectors.items():
            present = [row for row in rows if row[column] is not None]
            if not present:
                continue
            matrix = vectors.read(present, len(present[0][column]) if length is None else length, "written")
            with np.errstate(over="ignore", under="ignore"):
                numbers = matrix.astype(np.float32)
                squares = np.square(numbers).sum(axis=1)
            is_bad = ~np.isfinite(numbers).all(axis=1)
            if vectors.metric == COSINE:
                is_bad |= ~np.isfinite(squares) | (squares == 0)
            for row in np.flatnonzero(is_bad):
                raise vectors.refuse(present[row], OUT_OF_RANGE, "written")


class StoreSink(Sink[Any]):
    """Accepts rows as (kind, internal values), or columns. `interval_ms` and `rows_max` limit the buffer."""

    def __init__(self, store: Store, interval_ms: int, rows_max: int) -> None:
        self._store, self._interval_ms, self._rows_max = store, interval_ms, rows_max

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """See `Sink`."""
        return StoreWriter(context, self._store, self._interval_ms, self._rows_max)


class StoreWriter(SinkWriter[Any, Any]):
    """See the module docstring."""

    def __init__(self, context: SinkWriterContext, store: Store, interval_ms: int, rows_max: int) -> None:
        self._context, self._store, self._interval_ms, self._rows_max = context, store, interval_ms, rows_max
        self._parts: list[tables.Part] = []
        self._count = 0
        self._due_ms: int | None = None
        self._is_open = False

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if values:
            columns, kinds = columns_of_changes(values, self._store.schema.names, self._store.schema.types)
            self._add(ColumnData(columns), kinds)

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._add(data, None)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._add(data, kinds)

    def _add(self, data: ColumnData, kinds: bytes | None) -> None:
        self._parts.append((data, kinds))
        self._count += len(data)
        if self._count >= self._rows_max:
            self.flush(False)
        elif self._due_ms is None and self._interval_ms:
            self._due_ms = self._context.now_ms() + self._interval_ms

    def next_flush_ms(self) -> int | None:
        """See `SinkWriter`."""
        return self._due_ms

    def flush(self, end_of_input: bool) -> None:
        """See `SinkWriter`."""
        self._due_ms = None
        if not self._parts:
            return
        if not self._is_open:
            self._store.open(None)
            self._is_open = True
        names, key = self._store.schema.names, self._store.key
        rows = pa.Table.from_batches([data.columns.rename_columns(names) for data, _ in self._parts])
        columns = [tables.whole_column(column) for column in rows.itercolumns()]
        last = tables.last_of_each([columns[index] for index in key])
        kinds = tables.concatenate_kinds(self._parts)[last]
        is_deleted = (kinds == DELETE) | (kinds == UPDATE_BEFORE)
        changed = list(zip(*(column.take(pa.array(last)).to_pylist() for column in columns), strict=True))
        deleted = [tuple(row[index] for index in key) for row, gone in zip(changed, is_deleted, strict=True) if gone]
        upserted = [row for row, gone in zip(changed, is_deleted, strict=True) if not gone]
        self._store.check_rows(upserted)
        self._store.write(deleted, upserted)
        self._parts, self._count = [], 0

    def close(self) -> None:
        """See `SinkWriter`."""
        if self._is_open:
            self._store.close()


class StoreConnector(TableConnector):
    """Base class of the connectors."""

    #: the package that asks the store, its module, and the extra that installs it
    package: ClassVar[tuple[str, str, str]]
    #: the types of columns besides arrays
    column_types: ClassVar[tuple[type[types.DataType], ...]] = PLAIN

    def reader(self, scan: Scan, options: TableOptions) -> tables.TableReader:
        """Raise `UnsupportedError`."""
        raise UnsupportedError(
            f"tables of the connector '{self.name}' are searched by VECTOR_SEARCH and written by INSERT, and not read: "
            f"table {options.title}"
        )

    def vector_search(self, scan: Scan, column: int, options: TableOptions) -> Store:
        """Return the search by the store."""
        return self._store(scan, column, options)

    def writer(self, write: Write, options: TableOptions) -> tables.TableWriter:
        """Return a writer by primary key."""
        if not write.key:
            raise ValidationError(
                f"table {options.title} needs a PRIMARY KEY to be written: a row that is written again after a failure "
                "replaces itself"
            )
        rows_max = options.read(MAX_ROWS)
        if rows_max < 1:
            raise options.wrong(MAX_ROWS.key(), f"it must be 1 or above, not {rows_max}")
        sink = StoreSink(self._store(write, -1, options), options.read(INTERVAL), rows_max)
        return tables.TableWriter(sink, ALL, wants_before=False, takes_columns=True, deletes_by_key=True)

    def _store(self, node: Scan | Write, column: int, options: TableOptions) -> Store:
        for stored in node.schema:
            kind = stored.type.element_type if isinstance(stored.type, types.ArrayType) else stored.type
            if not isinstance(kind, self.column_types):
                raise UnsupportedError(
                    f"column '{stored.name}' of table {options.title} is {stored.type}, which '{self.name}' does not "
                    "store: declare it as STRING"
                )
        package, module, extra = self.package
        import_optional(module, package, extra, f"connector '{self.name}' of table {options.title}")
        metric = read_metric(node.options, options.title)
        return self.create_store(options, VectorColumn(node.schema, column, metric, options.title), node.key)

    @abstractmethod
    def create_store(self, options: TableOptions, searched: VectorColumn, key: Sequence[int]) -> Store:
        """Return the store of a table."""
