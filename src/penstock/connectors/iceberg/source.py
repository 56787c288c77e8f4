"""`IcebergSource`: reads the rows of an Iceberg table as columns, once or with everything appended later.

`IcebergEnumerator` finds the data files of the table, once or repeatedly, and assigns them to readers. `IcebergReader`
reads data files on a thread that reads ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

import pyarrow as pa

from penstock.base.errors import ConfigurationError, UnknownNameError, UnsupportedError
from penstock.connectors.iceberg import scan as planning
from penstock.connectors.iceberg.data_files import load_keys, plain_type, read_column
from penstock.connectors.iceberg.scan import (
    INTERVAL_MS,
    Followed,
    IcebergSplit,
    Scanned,
    ScannedColumn,
    StreamingStartingStrategy,
    check_before_reading,
    check_columns,
)
from penstock.connectors.iceberg.tables import MAIN, TableLoader, arrow_schema
from penstock.connectors.split_reader import Background, ReadAheadReader
from penstock.runtime import connector
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.records import Batch

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table


class IcebergEnumeratorState(TypedDict):
    """The state of an enumerator: unassigned splits, whether it has listed the table, and the last snapshot read."""

    pending: list[IcebergSplit]
    has_begun: bool
    last: int | None


class IcebergEnumerator(connector.SplitEnumerator[IcebergSplit]):
    """Assigns splits in snapshot order, each to the next reader that asks (G8).

    A failed listing fails the job, because the error is raised in the job master's turn.
    """

    def __init__(
        self,
        context: connector.SplitEnumeratorContext[IcebergSplit],
        scanned: Scanned,
        restored: IcebergEnumeratorState | None,
    ) -> None:
        self._context = context
        self._scanned = scanned
        self._pending: deque[IcebergSplit] = deque(restored["pending"] if restored else ())
        self._has_begun = restored is not None and restored["has_begun"]
        self._last = restored["last"] if restored else None
        self._waiting: dict[int, None] = {}  # an ordered set of subtasks

    def start(self) -> None:
        """Start listing the table's files."""
        if not self._has_begun or self._scanned.follows:
            self._look_after(0)

    def handle_split_request(self, subtask_index: int) -> None:
        """Assign the next split, as soon as there is one."""
        self._waiting[subtask_index] = None
        self._assign()

    def add_splits_back(self, splits: Sequence[IcebergSplit], subtask_index: int) -> None:
        """Return splits to their places in the queue."""
        self._waiting.pop(subtask_index, None)
        self._pending = deque(sorted([*splits, *self._pending], key=lambda split: split.order))
        self._assign()

    def snapshot_state(self, checkpoint_id: int) -> IcebergEnumeratorState:
        """Return the pending splits and the last snapshot read."""
        return IcebergEnumeratorState(pending=list(self._pending), has_begun=self._has_begun, last=self._last)

    def _look_after(self, delay_ms: int) -> None:
        scanned, has_begun, last = self._scanned, self._has_begun, self._last

        def look() -> Followed:
            with scanned.loader.opened() as table:
                if not scanned.follows:
                    return Followed(planning.scan(table, scanned), None)
                return planning.follow(table, scanned, last) if has_begun else planning.begin(table, scanned)

        self._context.call_async(look, self._on_found, delay_ms)

    def _on_found(self, discovered: Followed | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        assert discovered is not None
        self._pending += discovered.splits
        self._has_begun, self._last = True, discovered.last
        self._assign()
        if self._scanned.follows:
            self._look_after(self._scanned.interval_ms)

    def _assign(self) -> None:
        while self._waiting and self._pending:
            subtask_index = next(iter(self._waiting))
            del self._waiting[subtask_index]
            self._context.assign_split(self._pending.popleft(), subtask_index)
        if self._has_begun and not self._scanned.follows and not self._pending:
            for subtask_index in self._waiting:
                self._context.signal_no_more_splits(subtask_index)
            self._waiting.clear()


class OpenTable:
    """The table of a reader, loaded on first use."""

    def __init__(self, scanned: Scanned) -> None:
        self._scanned = scanned
        self._catalog: Catalog | None = None
        self._table: Table | None = None

    def rows(self, split: IcebergSplit) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split after its position, as output columns."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.expressions.parser import parse
        from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files

        table = self._with_schema(split.schema_id)
        condition = split.row_filter
        if condition is None:
            condition = AlwaysTrue()
        elif isinstance(condition, str):
            condition = parse(condition)
        task = split.task()
        schema = table.schemas()[split.schema_id]
        deleted = load_keys(table, schema, split.equality_deletes, self._scanned.loader.title)
        names = dict.fromkeys(name for deleted_keys in deleted for name in deleted_keys.names)
        scan = ArrowScan(table.metadata, table.io, self._projected(schema, names), condition)
        deletes = _read_all_delete_files(table.io, [task])
        left = split.position
        for batch in scan._record_batches_from_scan_tasks_and_deletes([task], deletes):
            for keys in deleted:
                batch = keys.keep(batch)
            skipped = min(left, batch.num_rows)
            left -= skipped
            if skipped < batch.num_rows:
                yield self._output(batch.slice(skipped))

    def _with_schema(self, schema_id: int) -> Table:
        if self._table is None or schema_id not in self._table.schemas():
            if self._catalog is None:
                self._catalog = self._scanned.loader.catalog.load_catalog()
            self._table = self._scanned.loader.load_table(self._catalog)
        return self._table

    def _projected(self, schema: Schema, more: Iterable[str]) -> Schema:
        names = dict.fromkeys([*(column.name for column in self._scanned.columns), *more])
        check_columns(self._scanned, schema)
        return schema.select(*names)

    def _output(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = []
        for column in self._scanned.columns:
            array = batch.column(column.name)
            try:
                arrays.append(read_column(array, column.type))
            except pa.ArrowException as error:
                raise UnsupportedError(
                    f"column '{column.name}' of table {self._scanned.loader.title} is {array.type}, and not all its "
                    f"values are {column.type}, as it is declared: {error}"
                ) from error
        return pa.RecordBatch.from_arrays(arrays, [column.output for column in self._scanned.columns])

    def close(self) -> None:
        """Close the catalog."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None


class IcebergReader(ReadAheadReader[IcebergSplit, pa.RecordBatch]):
    """Reads its splits one after the other, up to the limit."""

    def __init__(self, context: connector.SourceReaderContext, scanned: Scanned) -> None:
        super().__init__(context)
        self._table = OpenTable(scanned)
        self._left = scanned.limit

    def read(self, split: IcebergSplit, max_records: int) -> tuple[Batch, IcebergSplit] | connector.InputStatus | None:
        """See `PositionedReader`."""
        if self._left == 0:
            self.close_split()
            return None
        return super().read(split, max_records)

    def begin(self, split: IcebergSplit) -> Background[pa.RecordBatch]:
        """See `ReadAheadReader`."""
        return Background(lambda: self._table.rows(split), lambda: None)

    def part(self, split: IcebergSplit, rows: pa.RecordBatch, max_records: int) -> tuple[Batch, IcebergSplit]:
        """See `ReadAheadReader`."""
        count = min(max_records, rows.num_rows, max_records if self._left is None else self._left)
        self._rows = rows.slice(count) if count < rows.num_rows else None
        if self._left is not None:
            self._left -= count
        return ColumnBatch(rows.slice(0, count)), replace(split, position=split.position + count)

    def close(self) -> None:
        """Stop reading ahead, and close the catalog."""
        super().close()
        self._table.close()


class IcebergSource(connector.Source[Any, IcebergSplit]):
    """Reads a table; created with `builder()`. Records are named rows.

    A split is a data file, and a position is the number of rows read, which stays valid because files do not change.
    """

    def __init__(self, scanned: Scanned) -> None:
        self.scanned = scanned

    @staticmethod
    def builder() -> IcebergSourceBuilder:
        """Return a builder."""
        return IcebergSourceBuilder()

    @staticmethod
    def for_row_data() -> IcebergSourceBuilder:
        """Return a builder, under the method's name in Iceberg's own connector."""
        return IcebergSourceBuilder()

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded, unless the source follows the table."""
        return connector.Boundedness.CONTINUOUS_UNBOUNDED if self.scanned.follows else connector.Boundedness.BOUNDED

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[IcebergSplit], restored: Any | None
    ) -> connector.SplitEnumerator[IcebergSplit]:
        """See `Source`."""
        return IcebergEnumerator(context, self.scanned, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, IcebergSplit]:
        """See `Source`."""
        return IcebergReader(context, self.scanned)


class IcebergSourceBuilder:
    """Builder for `IcebergSource`."""

    def __init__(self) -> None:
        self._loader: TableLoader | None = None
        self._columns: tuple[str, ...] = ()
        self._filter: Any = None
        self._limit: int | None = None
        self._snapshot_id: int | None = None
        self._as_of_ms: int | None = None
        self._branch: str | None = None
        self._tag: str | None = None
        self._follows = False
        self._strategy = StreamingStartingStrategy.INCREMENTAL_FROM_LATEST_SNAPSHOT
        self._start_snapshot_id: int | None = None
        self._start_ms: int | None = None
        self._interval_ms = INTERVAL_MS
        self._skips_overwrites = self._skips_deletes = False

    def table_loader(self, loader: TableLoader) -> IcebergSourceBuilder:
        """Set the table; every process loads it itself."""
        self._loader = loader
        return self

    def project(self, *columns: str) -> IcebergSourceBuilder:
        """Select columns; by default all that the table has when the source is built."""
        self._columns = columns
        return self

    def filters(self, condition: Any) -> IcebergSourceBuilder:
        """Read only rows that match a condition: a pyiceberg expression, or its text, such as `"id > 3 and day = '1'"`.

        Partitions and files without matching rows are not read.
        """
        self._filter = condition
        return self

    def limit(self, rows: int) -> IcebergSourceBuilder:
        """Limit each subtask to this many rows."""
        self._limit = rows
        return self

    def snapshot_id(self, snapshot_id: int) -> IcebergSourceBuilder:
        """Read this snapshot."""
        self._snapshot_id = snapshot_id
        return self

    def as_of_timestamp(self, timestamp_ms: int) -> IcebergSourceBuilder:
        """Read the snapshot that was current at this time (ms since 1970)."""
        self._as_of_ms = timestamp_ms
        return self

    def branch(self, branch: str) -> IcebergSourceBuilder:
        """Read, or follow, a branch; `main` by default."""
        self._branch = branch
        return self

    def tag(self, tag: str) -> IcebergSourceBuilder:
        """Read the snapshot of a tag."""
        self._tag = tag
        return self

    def streaming(self, streaming: bool) -> IcebergSourceBuilder:
        """Set whether to continue with appended rows; the source is then unbounded."""
        self._follows = streaming
        return self

    def starting_strategy(self, strategy: StreamingStartingStrategy) -> IcebergSourceBuilder:
        """Set where to start following the table; at the latest snapshot by default."""
        self._strategy = strategy
        return self

    def start_snapshot_id(self, snapshot_id: int) -> IcebergSourceBuilder:
        """Set the first snapshot, for `INCREMENTAL_FROM_SNAPSHOT_ID`."""
        self._start_snapshot_id = snapshot_id
        return self

    def start_snapshot_timestamp(self, timestamp_ms: int) -> IcebergSourceBuilder:
        """Set the earliest time (ms) of the first snapshot, for `INCREMENTAL_FROM_SNAPSHOT_TIMESTAMP`."""
        self._start_ms = timestamp_ms
        return self

    def monitor_interval(self, interval_ms: int) -> IcebergSourceBuilder:
        """Set how often to look for new snapshots; every 60 s by default."""
        self._interval_ms = interval_ms
        return self

    def skip_overwrite_snapshots(self, skip: bool) -> IcebergSourceBuilder:
        """Set whether to skip snapshots that replace rows, which otherwise fail a job that follows the table."""
        self._skips_overwrites = skip
        return self

    def skip_delete_snapshots(self, skip: bool) -> IcebergSourceBuilder:
        """Set whether to skip snapshots that remove rows, which otherwise fail a job that follows the table."""
        self._skips_deletes = skip
        return self

    def build(self) -> IcebergSource:
        """Build the source, after asking the catalog for the columns.

        Raises:
            ConfigurationError: if settings conflict, the table is missing, or pyiceberg is not installed.
            UnknownNameError: for a column that the table does not have.
            UnsupportedError: for files or types that cannot be read.
        """
        if self._loader is None:
            raise ConfigurationError("an IcebergSource needs table_loader()")
        scanned = checked(
            Scanned(
                self._loader,
                (),
                row_filter=self._filter,
                limit=self._limit,
                snapshot_id=self._snapshot_id,
                as_of_ms=self._as_of_ms,
                follows=self._follows,
                strategy=self._strategy,
                start_snapshot_id=self._start_snapshot_id,
                start_ms=self._start_ms,
                interval_ms=self._interval_ms,
                skips_overwrites=self._skips_overwrites,
                skips_deletes=self._skips_deletes,
            ),
            self._branch,
            self._tag,
        )
        with self._loader.opened() as table:
            schema = arrow_schema(table)
        unknown = [name for name in self._columns if name not in schema.names]
        if unknown:
            raise UnknownNameError(
                f"table {self._loader.title} has no column {', '.join(map(repr, unknown))}; there are "
                f"{', '.join(schema.names)}"
            )
        names = self._columns or schema.names
        columns = tuple(ScannedColumn(name, name, plain_type(schema.field(name).type)) for name in names)
        resolved = replace(scanned, columns=columns)
        check_before_reading(resolved)
        return IcebergSource(resolved)


def checked(scanned: Scanned, branch: str | None, tag: str | None) -> Scanned:
    """Check the settings, and return them with a branch or a tag.

    Raises:
        ConfigurationError: if settings are invalid or conflict.
    """
    options = {
        "snapshot_id": scanned.snapshot_id,
        "as_of_timestamp": scanned.as_of_ms,
        "branch": branch,
        "tag": tag,
    }
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise _wrong(f"{' and '.join(given)} cannot be set together: each says which snapshot is read")
    if scanned.follows and given not in ([], ["branch"]):
        raise _wrong(f"{given[0]} is for a source that ends: a table that is followed begins by its starting_strategy")
    if scanned.interval_ms < 1:
        raise _wrong(f"monitor_interval is above 0, not {scanned.interval_ms} ms")
    needs = {
        StreamingStartingStrategy.INCREMENTAL_FROM_SNAPSHOT_ID: ("start_snapshot_id", scanned.start_snapshot_id),
        StreamingStartingStrategy.INCREMENTAL_FROM_SNAPSHOT_TIMESTAMP: ("start_snapshot_timestamp", scanned.start_ms),
    }
    for strategy, (name, value) in needs.items():
        if (scanned.strategy is strategy) != (value is not None):
            raise _wrong(f"{strategy.name} and {name} go together: set both, or neither")
    return replace(scanned, ref=branch or tag or MAIN)


def _wrong(reason: str) -> ConfigurationError:
    return ConfigurationError(f"the source of Iceberg cannot be: {reason}")
