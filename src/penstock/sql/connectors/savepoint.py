"""The `savepoint` connector: the state of one operator, as a bounded table.

The state is in a savepoint or retained checkpoint, or in a running job, which takes a snapshot for the query (see
`running_jobs`).

Without `state.name` a table has a row for each key of the operator, as in Flink: the PRIMARY KEY is the key, and each
other column is a keyed state of its name. With `state.name`, it has the rows of that one state as the state processor
reads it (`penstock.state_processor`): keyed state, operator state, timers, windows, source splits, and state of SQL in
columns.

`SAVEPOINT_METADATA` is the table function `savepoint_metadata` of the module `state`, with a row for each operator.

The metadata of a savepoint is read when a statement is planned, and that of a snapshot when its job begins, so that
EXPLAIN takes none. The files are read when the job runs, in splits that are ranges of key groups or files. Reading
unpickles the savepoint's state, so read only savepoints that you trust.
"""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import CheckpointError, OperationError, PenstockError, UnsupportedError, WrongTypeError
from penstock.codecs.arrow_columns import exact_cast
from penstock.connectors.split_reader import PositionedReader, RateLimiterStrategy, SplitQueue
from penstock.runtime import connector
from penstock.runtime.columns import ColumnBatch
from penstock.sql.connectors.running_jobs import GRACE_SECONDS, SNAPSHOTS, Claim, JobOfServer, ObservedJob, find_job
from penstock.sql.data.arrow import arrow_type, to_column
from penstock.sql.data.conversion import checked, to_internal
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import LENGTH_MAX, BigIntType, DataType, IntType, RowField, RowType, VarCharType
from penstock.sql.logical.nodes import Scan
from penstock.sql.tables.connector import TableConnector, TableOptions
from penstock.sql.tables.tables import TableReader, column_names
from penstock.sql.user_functions.classes import TableFunction
from penstock.sql.user_functions.definition import FunctionKind, UserFunction
from penstock.state.errors import StateError
from penstock.state.key_columns import KEY_GROUP
from penstock.state_processor.reader import ColumnsPart, SavepointReader
from penstock.state_processor.table import StatePart

PATH: Final = (
    ConfigOptions.key("state.path")
    .string_type()
    .no_default_value()
    .with_description("The directory of the savepoint or retained checkpoint, in any file system of fsspec.")
)
JOB_ID: Final = (
    ConfigOptions.key("job.id")
    .string_type()
    .no_default_value()
    .with_description("The id of a running job, in place of `state.path`.")
)
JOB_NAME: Final = (
    ConfigOptions.key("job.name")
    .string_type()
    .no_default_value()
    .with_description("The name of a running job, in place of its id.")
)
REST_ADDRESS: Final = (
    ConfigOptions.key("job.rest-address")
    .string_type()
    .no_default_value()
    .with_description("The REST API that knows the job. If unset, the job runs in this process, as in a gateway.")
)
REST_TOKEN: Final = (
    ConfigOptions.key("job.rest-token")
    .string_type()
    .no_default_value()
    .with_description("The token for the REST API; it must be the operator's.")
)
SNAPSHOT_DIR: Final = (
    ConfigOptions.key("snapshot.directory")
    .string_type()
    .no_default_value()
    .with_description("Where the job writes snapshots. If unset, below its directory of savepoints or checkpoints.")
)
MAX_AGE_MS: Final = (
    ConfigOptions.key("snapshot.max-age")
    .duration_type()
    .default_value(10_000)
    .with_description("A query takes a known snapshot that was at most so old when the query was planned.")
)
MIN_PAUSE_MS: Final = (
    ConfigOptions.key("snapshot.min-pause")
    .duration_type()
    .default_value(10_000)
    .with_description("The minimum time between two snapshots of the job. A query that comes earlier waits.")
)
RETENTION_MS: Final = (
    ConfigOptions.key("snapshot.retention")
    .duration_type()
    .default_value(600_000)
    .with_description("How long a query in BATCH mode may read a snapshot. A streaming query keeps its own.")
)
ROWS_PER_SECOND: Final = (
    ConfigOptions.key("scan.rows-per-second")
    .int_type()
    .no_default_value()
    .with_description("The maximum number of rows per second. If unset, 100000 for a running job, and no limit else.")
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
OPERATOR_NAME: Final = (
    ConfigOptions.key("operator.name")
    .string_type()
    .no_default_value()
    .with_description("The name of the operator in plans, such as `Group Aggregate`, if only one has this name.")
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
#: the same for a running job, so that a process that also runs the job is busy with one for a short time
LIVE_SPLIT_BYTES: Final = 4 << 20
#: how many rows of a running job are read in a second, unless the table says otherwise
LIVE_ROWS_PER_SECOND: Final = 100_000
#: how often (ms) a reader with a rate emits rows
CHUNK_MS: Final = 50
#: how many rows are converted at a time
_ROWS_AT_ONCE: Final = 4_096


#: Reads the rows of a part, in the same order each time.
RowsOfPart = Callable[[], Iterator[pa.RecordBatch]]


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
    #: reads the rows of a part that is found only when the job begins
    rows: RowsOfPart | None = None


class SavepointSource(connector.Source[Any, SavepointSplit]):
    """Emits the rows of some parts of a state as columns c0, c1 and so on.

    Args:
        parts: each reads its rows.
        rows_per_second: the maximum rate of all readers; None for no limit.
    """

    def __init__(self, parts: Sequence[RowsOfPart], rows_per_second: float | None = None) -> None:
        self._parts = tuple(parts)
        self._limit = RateLimiterStrategy(rows_per_second)

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
        return _PartReader(context, self._parts, self._limit)


class LiveSource(SavepointSource):
    """Emits the rows of some state of a running job.

    Args:
        find_job: returns the job, or raises.
        find_parts: returns the parts of a savepoint.
        ages: how old a snapshot may be, the pause between two, and how long one stays, each in seconds.
        rows_per_second: see `SavepointSource`.
        title: names the table in errors.
    """

    def __init__(
        self,
        find_job: Callable[[], ObservedJob],
        find_parts: Callable[[SavepointReader], list[RowsOfPart]],
        ages: tuple[float, float, float],
        rows_per_second: float,
        title: str,
    ) -> None:
        super().__init__((), rows_per_second)
        self._find_job = find_job
        self._find_parts = find_parts
        self._max_age, self._pause, self._retention = ages
        self._title = title
        self._planned = time.monotonic()
        self._claim: Claim | None = None

    def prepare(self, check_cancelled: Callable[[], None]) -> None:
        """Obtain a snapshot of the job.

        Raises:
            ValidationError: if the job is unknown, takes no savepoint, or has no state that fits the table.
        """
        try:
            job = self._find_job()
        except PenstockError as error:
            raise ValidationError(f"Table {self._title} cannot be read: {error}") from error
        not_before = self._planned - self._max_age
        try:
            self._claim = SNAPSHOTS.claim(job, not_before, self._pause, self._retention, check_cancelled)
            self._parts = tuple(self._find_parts(SavepointReader.read(self._claim.path)))
        except ValidationError:
            raise
        except (CheckpointError, OperationError, StateError) as error:
            raise ValidationError(
                f"Table {self._title} cannot be read: the state of job {job.title}: {error}"
            ) from error

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[SavepointSplit], restored: Any | None
    ) -> connector.SplitEnumerator[SavepointSplit]:
        """Create the enumerator, which keeps the snapshot until the job ends."""
        claim, splits = restored if restored is not None else (self._claim, None)
        if claim is None or not SNAPSHOTS.keep(claim):
            raise TableRuntimeError(
                f"Table {self._title}: the snapshot that this query read no longer exists. Run the query anew"
            )
        parts = [SavepointSplit(part, rows=rows) for part, rows in enumerate(self._parts)]
        return _ClaimedSplits(context, parts, splits, claim, self._retention)


class _ClaimedSplits(SplitQueue[SavepointSplit]):
    """Hands out splits and keeps a snapshot. One that is not closed serves a batch, whose end is not known."""

    def __init__(
        self,
        context: connector.SplitEnumeratorContext[SavepointSplit],
        splits: Iterable[SavepointSplit],
        restored: Any | None,
        claim: Claim,
        retention: float,
    ) -> None:
        super().__init__(context, splits, restored)
        self._claim = claim
        self._dropped = weakref.finalize(self, SNAPSHOTS.release, claim, retention)

    def snapshot_state(self, checkpoint_id: int) -> Any:
        """Return the claim and the remaining splits."""
        return self._claim, super().snapshot_state(checkpoint_id)

    def close(self) -> None:
        """Let the claim end."""
        self._dropped.detach()
        SNAPSHOTS.release(self._claim, GRACE_SECONDS)


class _PartReader(PositionedReader[SavepointSplit]):
    def __init__(
        self, context: connector.SourceReaderContext, parts: Sequence[RowsOfPart], limit: RateLimiterStrategy
    ) -> None:
        super().__init__(context)
        self._parts = parts
        self._limit = limit.create_rate_limiter(context.parallelism, context.now_ms())
        #: how many rows are emitted at once, so that a rate does not make many small batches
        self._chunk = int((limit.records_per_second or 0.0) / context.parallelism * CHUNK_MS / 1000)
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._rest: pa.RecordBatch | None = None

    def allowance(self, max_records: int) -> int:
        """See `PositionedReader`."""
        permitted = super().allowance(max_records)
        return permitted if permitted >= min(max_records, self._chunk) else 0

    def retry_after_ms(self) -> int:
        """See `PositionedReader`."""
        return super().retry_after_ms() if self._chunk == 0 else CHUNK_MS

    def read(self, split: SavepointSplit, max_records: int) -> tuple[ColumnBatch, SavepointSplit] | None:
        if self._batches is None:
            read_rows = split.rows or self._parts[split.part]
            self._batches = _skip_rows(read_rows(), split.position)
        rows = self._rest if self._rest is not None else next(self._batches, None)
        if rows is None:
            self._batches = None
            return None
        taken = rows.slice(0, max_records)
        if self._limit is not None:
            self._limit.spend(taken.num_rows)
        self._rest = rows.slice(max_records) if rows.num_rows > max_records else None
        return ColumnBatch(taken), replace(split, position=split.position + taken.num_rows)


def _skip_rows(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows > count:
            yield batch.slice(count)
        count = max(0, count - batch.num_rows)


@dataclass(frozen=True)
class KeyRows:
    """Rows by key, of the key groups `first` to `last`.

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
            yield from self._cast(self.part.table(any(column.source == KEY_GROUP for column in self.columns)))
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
    optional_options = (
        *(PATH, JOB_ID, JOB_NAME, REST_ADDRESS, REST_TOKEN),
        *(UID, UID_HASH, OPERATOR_NAME, STATE, BACKEND),
        *(SNAPSHOT_DIR, MAX_AGE_MS, MIN_PAUSE_MS, RETENTION_MS, ROWS_PER_SECOND),
    )

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of columns; raise `UnsupportedError` for columns with classes of Java."""
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
        operator = _only_option(options, (UID, UID_HASH, OPERATOR_NAME))
        where = _only_option(options, (PATH, JOB_ID, JOB_NAME))
        rate = options.read(ROWS_PER_SECOND)
        if rate is not None and rate < 1:
            raise options.wrong(ROWS_PER_SECOND.key(), f"it is at least 1, not {rate}")
        find_parts = partial(_find_parts, operator, scan, options)
        if where is not PATH:
            ages = [options.read(option) / 1000 for option in (MAX_AGE_MS, MIN_PAUSE_MS, RETENTION_MS)]
            source = LiveSource(
                partial(_find_job, options),
                partial(find_parts, LIVE_SPLIT_BYTES),
                (ages[0], ages[1], ages[2]),
                rate or LIVE_ROWS_PER_SECOND,
                options.title,
            )
            return TableReader(source)
        try:
            savepoint = SavepointReader.read(options.required(PATH))
            return TableReader(SavepointSource(find_parts(SPLIT_BYTES, savepoint), rate))
        except ValidationError:
            raise
        except PenstockError as error:
            raise ValidationError(f"Table {options.title} cannot be read: {error}") from error


def _only_option(options: TableOptions, choices: Sequence[ConfigOption[str | None]]) -> ConfigOption[str | None]:
    given = [option for option in choices if options.read(option) is not None]
    if len(given) != 1:
        *keys, last = (f"'{option.key()}'" for option in choices)
        raise ValidationError(f"Table {options.title} takes one option of {', '.join(keys)} and {last}")
    return given[0]


def _find_job(options: TableOptions) -> ObservedJob:
    job_id, name, directory = options.read(JOB_ID), options.read(JOB_NAME), options.read(SNAPSHOT_DIR)
    address = options.read(REST_ADDRESS)
    if address is None:
        return find_job(job_id, name, directory)
    return JobOfServer(address, options.read(REST_TOKEN), job_id, name, directory)


def _find_parts(
    operator: ConfigOption[str | None],
    scan: Scan,
    options: TableOptions,
    split_bytes: int,
    savepoint: SavepointReader,
) -> list[RowsOfPart]:
    columns = tuple(
        OutputColumn(column.name, column.type, options.get(f"{FIELDS}{column.name}.{_NAME}", column.name))
        for column in scan.schema
    )
    uid = options.required(operator)
    if operator is OPERATOR_NAME:
        uid = _find_by_name(savepoint, uid, options.title)
    is_live = options.read(PATH) is None
    if is_live and not savepoint.operator(uid).states:
        return []  # the operator has seen no record yet, and states appear with their first entry
    state = options.read(STATE)
    if state is None:
        return _parts_by_key(savepoint, uid, scan, columns, options, split_bytes)
    return _parts_of_state(savepoint, uid, state, columns, options)


def _find_by_name(savepoint: SavepointReader, name: str, title: str) -> str:
    """Return the id of the only operator with this name."""
    matches = [operator.operator_id for operator in savepoint.operators if operator.name == name]
    if len(matches) == 1:
        return matches[0]
    known = ", ".join(f"{operator.name!r} ({operator.operator_id})" for operator in savepoint.operators)
    raise ValidationError(
        f"Table {title}: {len(matches)} operators are called {name!r}; there are: {known}. Name one by "
        f"'{UID_HASH.key()}'"
    )


def _parts_by_key(
    savepoint: SavepointReader,
    uid: str,
    scan: Scan,
    columns: tuple[OutputColumn, ...],
    options: TableOptions,
    split_bytes: int,
) -> list[RowsOfPart]:
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
    pieces = -(-savepoint.measure_states(uid, names) // split_bytes)
    title = f"operator {uid!r}"
    return [
        KeyRows(tuple(parts), tuple(scan.key), columns, title, options.zone)
        for parts in savepoint.split_by_key(uid, names, pieces)
    ]


def _parts_of_state(
    savepoint: SavepointReader, uid: str, state: str, columns: tuple[OutputColumn, ...], options: TableOptions
) -> list[RowsOfPart]:
    names, parts = savepoint.split_state(uid, state)
    for column in columns:
        if column.source not in names:
            raise ValidationError(
                f"Table {options.title}: state '{state}' has no column '{column.source}', but {', '.join(names)}: "
                f"declare these, or name one by '{FIELDS}{column.name}.{_NAME}'"
            )
    title = f"state {state!r} of operator {uid!r}"
    return [StateRows(part, tuple(names), columns, title, options.zone) for part in parts]


class SavepointMetadata(TableFunction):
    """Returns a row for each operator of a savepoint or checkpoint, with Flink's columns."""

    def eval(self, path: str) -> Iterator[tuple[Any, ...]]:
        """Read the metadata in a directory."""
        metadata = SavepointReader.read(path).metadata
        for operator in metadata.operators:
            coordinator_bytes = 0 if operator.coordinator is None else operator.coordinator.length
            files = [file for state in operator.subtasks.values() for file in state.state_files()]
            yield (
                *(metadata.checkpoint_id, operator.name, operator.uid, operator.operator_id),
                *(operator.parallelism, operator.max_parallelism, sum(map(bool, operator.subtasks.values()))),
                *(coordinator_bytes, coordinator_bytes + sum(file.length for file in files)),
            )


class ModuleFunction(NamedTuple):
    """A function of a module that SQL loads."""

    definition: UserFunction


_TEXT: Final = VarCharType(LENGTH_MAX)
_METADATA_COLUMNS: Final = (
    ("checkpoint-id", BigIntType(False)),
    ("operator-name", _TEXT),
    ("operator-uid", _TEXT),
    ("operator-uid-hash", VarCharType(LENGTH_MAX, False)),
    ("operator-parallelism", IntType(False)),
    ("operator-max-parallelism", IntType(False)),
    ("operator-subtask-state-count", IntType(False)),
    ("operator-coordinator-state-size-in-bytes", BigIntType(False)),
    ("operator-total-size-in-bytes", BigIntType(False)),
)
SAVEPOINT_METADATA: Final = ModuleFunction(
    UserFunction(
        "savepoint_metadata",
        FunctionKind.TABLE,
        SavepointMetadata(),
        RowType([RowField(name, kind) for name, kind in _METADATA_COLUMNS], False),
        (_TEXT,),
    )
)


__all__ = ["SAVEPOINT_METADATA", "SavepointConnector", "SavepointSource", "SavepointSplit"]
