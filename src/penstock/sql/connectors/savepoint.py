"""The `savepoint` connector: the state of one operator in a savepoint or retained checkpoint, as a bounded table.

Without `state.name` a table has a row for each key of the operator, as in Flink: the PRIMARY KEY is the key, and each
other column is a keyed state of its name. With `state.name`, it has the rows of that one state as the state processor
reads it (`penstock.state_processor`): keyed state, operator state, timers, windows, source splits, and state of SQL in
columns.

The metadata is read when a statement is planned, and the files when the job runs, in splits that are ranges of key
groups or files. Reading unpickles what the savepoint holds, so read only savepoints that you trust.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.base.config_options import ConfigOptions
from penstock.base.errors import PenstockError, UnsupportedError, WrongTypeError
from penstock.codecs.arrow_columns import exact_cast
from penstock.connectors.split_reader import PositionedReader, SplitQueue
from penstock.runtime import connector
from penstock.runtime.columns import ColumnBatch
from penstock.sql.data.arrow import arrow_type, to_column
from penstock.sql.data.conversion import checked, to_internal
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import Scan
from penstock.sql.tables.connector import TableConnector, TableOptions
from penstock.sql.tables.tables import TableReader, column_names
from penstock.state_processor.reader import ColumnsPart, SavepointReader
from penstock.state_processor.table import StatePart

PATH: Final = (
    ConfigOptions.key("state.path")
    .string_type()
    .no_default_value()
    .with_description("The directory of the savepoint or retained checkpoint, in any file system of fsspec.")
)
UID: Final = (
    ConfigOptions.key("operator.uid").string_type().no_default_value().with_description("The uid of the operator.")
)
UID_HASH: Final = (
    ConfigOptions.key("operator.uid.hash")
    .string_type()
    .no_default_value()
    .with_description("The id of the operator, for operators without a uid: 32 hexadecimal digits.")
)
STATE: Final = (
    ConfigOptions.key("state.name")
    .string_type()
    .no_default_value()
    .with_description("The one state to read. If unset, each column but the key is a keyed state of its name.")
)
BACKEND: Final = (
    ConfigOptions.key("state.backend.type")
    .string_type()
    .no_default_value()
    .with_description("No effect: the metadata of a savepoint says how it was written.")
)
#: the prefix of the options of a column
FIELDS: Final = "fields."
_NAME: Final = "state-name"
_KIND: Final = "state-type"
_KINDS: Final = {"value": ("value", "reducing", "aggregating"), "list": ("list",), "map": ("map",)}
_OF_CLASSES: Final = re.compile(r"(key|value|map-key|map-value)-(class|type-factory)")
#: how many bytes of state a split has at most, about
SPLIT_BYTES: Final = 64 << 20
#: how many rows are converted at a time
_ROWS_AT_ONCE: Final = 4_096


class OutputColumn(NamedTuple):
    """A column of the table: its name and type, and the name of the state, or of the state's column, that it shows."""

    name: str
    type: DataType
    source: str


@dataclass(frozen=True, slots=True)
class SavepointSplit:
    """A part of the state by its number, of whose rows the first `position` were emitted."""

    part: int
    position: int = 0


class SavepointSource(connector.Source[Any, SavepointSplit]):
    """Emits the rows of some parts of a state as columns c0, c1 and so on.

    Args:
        parts: each reads its rows, in the same order each time.
    """

    def __init__(self, parts: Sequence[Callable[[], Iterator[pa.RecordBatch]]]) -> None:
        self._parts = tuple(parts)

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded."""
        return connector.Boundedness.BOUNDED

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[SavepointSplit], restored: Any | None
    ) -> connector.SplitEnumerator[SavepointSplit]:
        """Create the enumerator, which hands out a split for each part."""
        return SplitQueue(context, [SavepointSplit(part) for part in range(len(self._parts))], restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, SavepointSplit]:
        """Create a reader."""
        return _PartReader(context, self._parts)


class _PartReader(PositionedReader[SavepointSplit]):
    def __init__(
        self, context: connector.SourceReaderContext, parts: Sequence[Callable[[], Iterator[pa.RecordBatch]]]
    ) -> None:
        super().__init__(context)
        self._parts = parts
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._rest: pa.RecordBatch | None = None

    def read(self, split: SavepointSplit, max_records: int) -> tuple[ColumnBatch, SavepointSplit] | None:
        if self._batches is None:
            self._batches = _skip_rows(self._parts[split.part](), split.position)
        rows = self._rest if self._rest is not None else next(self._batches, None)
        if rows is None:
            self._batches = None
            return None
        taken = rows.slice(0, max_records)
        self._rest = rows.slice(max_records) if rows.num_rows > max_records else None
        return ColumnBatch(taken), replace(split, position=split.position + taken.num_rows)


def _skip_rows(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows > count:
            yield batch.slice(count)
        count = max(0, count - batch.num_rows)


@dataclass(frozen=True)
class KeyRows:
    """Rows by key: those of the key groups `first` to `last`.

    Attributes:
        states: the parts of each state in these key groups, in the order of `columns`.
        key: the indexes of the key columns among the columns of the table.
        columns: all columns of the table, with the key.
        title: names the operator in errors.
        zone: the time zone of the session.
    """

    states: tuple[tuple[StatePart, ...], ...]
    key: tuple[int, ...]
    columns: tuple[OutputColumn, ...]
    title: str
    zone: Any

    def __call__(self) -> Iterator[pa.RecordBatch]:
        """Read the states, which are in memory as long as the part is read."""
        others = [index for index in range(len(self.columns)) if index not in self.key]
        rows: dict[Hashable, list[Any]] = {}
        for index, parts in zip(others, self.states, strict=True):
            for part in parts:
                for key, value in part.rows():
                    rows.setdefault(key, [None] * len(self.columns))[index] = value
        for key, row in rows.items():
            for index, field in zip(self.key, self._split_key(key), strict=True):
                row[index] = field
        yield from build_batches(iter(rows.values()), self.columns, self.title, self.zone)

    def _split_key(self, key: Any) -> Sequence[Any]:
        if len(self.key) == 1:
            return (key,)
        if not isinstance(key, tuple) or len(key) != len(self.key):
            raise TableRuntimeError(
                f"{self.title}: the key {key!r} does not have the {len(self.key)} fields of the PRIMARY KEY: declare "
                "one column with the key"
            )
        return key


@dataclass(frozen=True)
class StateRows:
    """The rows of one part of a state, as the state processor reads them.

    Attributes:
        part: reads the rows.
        names: the names of the columns that it has.
        columns: the columns of the table.
        title: names the state in errors.
        zone: the time zone of the session.
    """

    part: StatePart | ColumnsPart
    names: tuple[str, ...]
    columns: tuple[OutputColumn, ...]
    title: str
    zone: Any

    def __call__(self) -> Iterator[pa.RecordBatch]:
        """Read the rows."""
        if isinstance(self.part, ColumnsPart):
            yield from self._cast(self.part.table())
            return
        indexes = [self.names.index(column.source) for column in self.columns]
        rows = ([row[index] for index in indexes] for row in self.part.rows())
        yield from build_batches(rows, self.columns, self.title, self.zone)

    def _cast(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        arrays = []
        for column in self.columns:
            try:
                arrays.append(exact_cast(table.column(column.source), arrow_type(column.type)))
            except pa.ArrowException as error:
                raise _wrong_type(self.title, column, error) from error
        names = column_names(len(self.columns))
        yield from pa.Table.from_arrays(arrays, names).to_batches(max_chunksize=_ROWS_AT_ONCE)


def build_batches(
    rows: Iterator[Sequence[Any]], columns: Sequence[OutputColumn], title: str, zone: Any
) -> Iterator[pa.RecordBatch]:
    """Yield rows of Python values as columns.

    Raises:
        TableRuntimeError: if a value does not fit the type of its column; it names the column and the value.
    """
    convert = [checked(column.type, to_internal(column.type, zone)) for column in columns]
    while block := list(islice(rows, _ROWS_AT_ONCE)):
        arrays = []
        for column, to_value, values in zip(columns, convert, zip(*block, strict=True), strict=True):
            try:
                arrays.append(to_column(list(map(to_value, values)), column.type))
            except (WrongTypeError, pa.ArrowException, OverflowError) as error:
                raise _wrong_type(title, column, error) from error
            if arrays[-1].null_count and not column.type.is_nullable:
                raise TableRuntimeError(f"{title}: column '{column.name}' is NOT NULL, but a row has no value for it")
        yield pa.RecordBatch.from_arrays(arrays, column_names(len(columns)))


def _wrong_type(title: str, column: OutputColumn, error: Exception) -> TableRuntimeError:
    return TableRuntimeError(f"{title}: column '{column.name}' of type {column.type} does not fit its state: {error}")


class SavepointConnector(TableConnector):
    """See the module docstring."""

    name = "savepoint"
    required_options = (PATH,)
    optional_options = (UID, UID_HASH, STATE, BACKEND)

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of columns; raise `UnsupportedError` for those with classes of Java."""
        for column in columns:
            for key in options.below(f"{FIELDS}{column}."):
                if _OF_CLASSES.fullmatch(key):
                    raise UnsupportedError(
                        f"option '{FIELDS}{column}.{key}' of table {options.title} is not supported: a column has the "
                        "type that the table declares, so leave it out"
                    )
            yield from (f"{FIELDS}{column}.{_NAME}", f"{FIELDS}{column}.{_KIND}")

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return the reader; raise `ValidationError` if the savepoint has no such operator or state."""
        uid = self._read_uid(options)
        columns = tuple(
            OutputColumn(column.name, column.type, options.get(f"{FIELDS}{column.name}.{_NAME}", column.name))
            for column in scan.schema
        )
        state = options.read(STATE)
        try:
            savepoint = SavepointReader.read(options.required(PATH))
            if state is None:
                parts = _parts_by_key(savepoint, uid, scan, columns, options)
            else:
                parts = _parts_of_state(savepoint, uid, state, columns, options)
        except ValidationError:
            raise
        except PenstockError as error:
            raise ValidationError(f"Table {options.title} cannot be read: {error}") from error
        return TableReader(SavepointSource(parts))

    def _read_uid(self, options: TableOptions) -> str:
        uid, uid_hash = options.read(UID), options.read(UID_HASH)
        if (uid is None) == (uid_hash is None):
            raise ValidationError(f"Table {options.title} takes one option of '{UID.key()}' and '{UID_HASH.key()}'")
        return uid or uid_hash or ""


def _parts_by_key(
    savepoint: SavepointReader, uid: str, scan: Scan, columns: tuple[OutputColumn, ...], options: TableOptions
) -> list[Callable[[], Iterator[pa.RecordBatch]]]:
    if not scan.key:
        raise ValidationError(
            f"Table {options.title} declares no PRIMARY KEY, which is the key of the state: declare it NOT ENFORCED, "
            f"or name one state with '{STATE.key()}'"
        )
    states = [column for index, column in enumerate(columns) if index not in scan.key]
    if not states:
        raise ValidationError(f"Table {options.title} has only the key: declare a column for each state to read")
    for column in states:
        kind = savepoint.read_kind(uid, column.source)
        wanted = options.get(f"{FIELDS}{column.name}.{_KIND}")
        if wanted is not None and wanted not in _KINDS:
            raise options.wrong(f"{FIELDS}{column.name}.{_KIND}", f"it is one of {', '.join(_KINDS)}, not {wanted!r}")
        if wanted is not None and kind is not None and kind not in _KINDS[wanted]:
            raise options.wrong(f"{FIELDS}{column.name}.{_KIND}", f"state '{column.source}' is a {kind} state")
    names = [column.source for column in states]
    pieces = -(-savepoint.measure_states(uid, names) // SPLIT_BYTES)
    title = f"operator {uid!r}"
    return [
        KeyRows(tuple(parts), tuple(scan.key), columns, title, options.zone)
        for parts in savepoint.split_by_key(uid, names, pieces)
    ]


def _parts_of_state(
    savepoint: SavepointReader, uid: str, state: str, columns: tuple[OutputColumn, ...], options: TableOptions
) -> list[Callable[[], Iterator[pa.RecordBatch]]]:
    names, parts = savepoint.split_state(uid, state)
    for column in columns:
        if column.source not in names:
            raise ValidationError(
                f"Table {options.title}: state '{state}' has no column '{column.source}', but {', '.join(names)}: "
                f"declare these, or name one by '{FIELDS}{column.name}.{_NAME}'"
            )
    title = f"state {state!r} of operator {uid!r}"
    return [StateRows(part, tuple(names), columns, title, options.zone) for part in parts]


__all__ = ["SavepointConnector", "SavepointSource", "SavepointSplit"]
