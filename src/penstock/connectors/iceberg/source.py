"""`IcebergSource`: reads the rows of an Iceberg table as columns, once or with everything appended later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.base.errors import ConfigurationError, UnknownNameError
from penstock.connectors.iceberg.catalog import TableLoader
from penstock.connectors.iceberg.enumerator import IcebergEnumerator
from penstock.connectors.iceberg.planning import check_before_reading
from penstock.connectors.iceberg.reader import IcebergReader
from penstock.connectors.iceberg.reading import plain_type
from penstock.connectors.iceberg.scanned import (
    INTERVAL_MS,
    IcebergSplit,
    Scanned,
    ScannedColumn,
    StreamingStartingStrategy,
)
from penstock.connectors.iceberg.settings import MAIN
from penstock.connectors.iceberg.tables import arrow_schema
from penstock.core.connector import (
    Boundedness,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)


class IcebergSource(Source[Any, IcebergSplit]):
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
    def boundedness(self) -> Boundedness:
        """Bounded, unless the source follows the table."""
        return Boundedness.CONTINUOUS_UNBOUNDED if self.scanned.follows else Boundedness.BOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[IcebergSplit], restored: Any | None
    ) -> SplitEnumerator[IcebergSplit]:
        """See `Source`."""
        return IcebergEnumerator(context, self.scanned, restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, IcebergSplit]:
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
