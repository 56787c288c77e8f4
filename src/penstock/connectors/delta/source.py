"""`DeltaSource`: reads one version of a Delta Lake table, or follows the table.

`DeltaEnumerator` discovers the files of a table and hands them out: the files of one version, then the files that later
versions add. Versions are numbered consecutively, and each is one file in the log. The enumerator therefore finds the
next version by checking for the file of that number, without a listing. Its state is the next version number and the
files that have not been assigned.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

import pyarrow as pa

from penstock.base.errors import ConfigurationError, UnknownNameError
from penstock.connectors.delta import log
from penstock.connectors.delta.reader import DeltaReader
from penstock.connectors.delta.table import TablePlace, VersionError, parse_value, read_arrow_schema, require_library
from penstock.runtime import connector

if TYPE_CHECKING:
    from deltalake import DeltaTable


#: The maximum number of versions to read at a time.
_VERSIONS: Final = 100


class DeltaEnumeratorState(TypedDict):
    """The state of an enumerator."""

    pending: list[log.DeltaSplit]
    next_version: int | None


class _Found(NamedTuple):
    splits: list[log.DeltaSplit]
    next_version: int


class DeltaEnumerator(connector.SplitEnumerator[log.DeltaSplit]):
    """The enumerator of a Delta source; see the module docstring."""

    def __init__(
        self,
        context: connector.SplitEnumeratorContext[log.DeltaSplit],
        scanned: log.Scanned,
        restored: DeltaEnumeratorState | None,
    ) -> None:
        self._context = context
        self._scanned = scanned
        self._pending: deque[log.DeltaSplit] = deque(restored["pending"] if restored else ())
        self._given_back: deque[log.DeltaSplit] = deque()
        #: None until the first discovery
        self._next: int | None = restored["next_version"] if restored else None
        self._waiting: dict[int, None] = {}  # an ordered set of subtasks
        self._is_first = True

    def start(self) -> None:
        """Start discovering files."""
        if self._next is None or self._is_following:
            self._context.call_async(self._look, self._found)

    @property
    def _is_following(self) -> bool:
        return self._scanned.interval_ms is not None

    def handle_split_request(self, subtask_index: int) -> None:
        """Assign the next split as soon as one is available."""
        self._waiting[subtask_index] = None
        self._assign()

    def add_splits_back(self, splits: Sequence[log.DeltaSplit], subtask_index: int) -> None:
        """Return splits to the front of the queue, in order even if they come from several readers."""
        self._waiting.pop(subtask_index, None)
        self._given_back = deque(sorted([*splits, *self._given_back], key=lambda split: split.order))
        self._assign()

    def snapshot_state(self, checkpoint_id: int) -> DeltaEnumeratorState:
        """Return the unassigned splits and the next version."""
        return DeltaEnumeratorState(pending=[*self._given_back, *self._pending], next_version=self._next)

    def _assign(self) -> None:
        while self._waiting and (left := self._given_back or self._pending):
            subtask_index = next(iter(self._waiting))
            del self._waiting[subtask_index]
            self._context.assign_split(left.popleft(), subtask_index)
        if self._next is not None and not self._is_following and not self._given_back and not self._pending:
            for subtask_index in self._waiting:
                self._context.signal_no_more_splits(subtask_index)
            self._waiting.clear()

    # --- in the background ----------------------------------------------------------------------------------------

    def _look(self) -> _Found:
        """Discover files. Runs in the background, so it changes no state."""
        if self._next is None:
            return self._begin()
        return self._follow(self._next, checks=self._is_first)

    def _found(self, discovered: _Found | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        assert discovered is not None
        self._is_first = False
        self._pending.extend(discovered.splits)
        goes_on = self._next is not None and discovered.next_version >= self._next + _VERSIONS
        self._next = discovered.next_version
        self._assign()
        if self._scanned.interval_ms is not None:
            self._context.call_async(self._look, self._found, 0 if goes_on else self._scanned.interval_ms)

    def _begin(self) -> _Found:
        scanned, start = self._scanned, self._scanned.start
        table = scanned.place.open()
        newest = table.version()
        log.load_start(table, scanned)
        log.check_readable(scanned, table)
        if not self._is_following:
            return _Found(self._snapshot(table), table.version() + 1)
        if start.is_latest:
            return _Found([], newest + 1)
        if start.timestamp is not None:
            return self._follow(log.first_since(table, start.timestamp), checks=True)
        if start.version is not None:
            return self._follow(start.version, checks=True)
        return _Found(self._snapshot(table), newest + 1)

    def _snapshot(self, table: DeltaTable) -> list[log.DeltaSplit]:
        pruning, version = self._scanned.pruning, table.version()
        kinds = {column.name: column.type for column in read_arrow_schema(table)}
        files = log.list_table_files(self._scanned.place, table)
        vectors = log.read_vectors(table)
        lost = vectors.keys() - {file.path for file, _ in files}
        if lost:
            log.refuse_vector(self._scanned.place, min(lost), "and its file is not found")
        return [
            log.DeltaSplit(
                version, number, file, log.Meaning.REMAINING if file.path in vectors else log.Meaning.INSERTED
            )
            for number, (file, figures) in enumerate(files)
            if pruning is None or pruning.may_have(figures, _values(file, kinds))
        ]

    def _follow(self, version: int, checks: bool) -> _Found:
        """Return the files of the versions from `version` on, as far as they exist.

        `checks`: raise `VersionError` if the log has dropped `version`.
        """
        location = self._scanned.place
        splits: list[log.DeltaSplit] = []
        files = location.files()
        for number in range(version, version + _VERSIONS):
            log_entry = log.read_version(location, files, number)
            if log_entry is None:
                if checks and number == version and number <= (newest := location.open().version()):
                    raise VersionError(
                        f"version {number} of the Delta table {location.path} is no longer in its log, which begins "
                        "later "
                        f"and ends with {newest}: the job stood still for longer than delta.logRetentionDuration. "
                        "Start it without its state"
                    )
                return _Found(splits, number)
            splits += self._build_splits(log_entry)
        return _Found(splits, version + _VERSIONS)

    def _build_splits(self, version: log.Version) -> list[log.DeltaSplit]:
        scanned = self._scanned
        if version.columns is not None:
            log.check_columns(
                scanned.place, [(column.name, column.type) for column in scanned.columns], version.columns
            )
        if version.vector is not None and not (scanned.reads_changes and version.changes):
            log.refuse_vector(scanned.place, version.vector, f"so version {version.number} is not followed")
        if scanned.reads_changes:
            parts = _changes(version)
        else:
            self._check_appends(version)
            parts = ((file, log.Meaning.INSERTED) for file in version.added)
        return [log.DeltaSplit(version.number, number, *part) for number, part in enumerate(parts)]

    def _check_appends(self, version: log.Version) -> None:
        scanned = self._scanned
        if not version.removed or scanned.ignore_changes:
            return
        if version.added:
            verb, option, does = "changes", "ignore_changes", "take all rows of rewritten files as new ones"
        elif not scanned.ignore_deletes:
            verb, option, does = "deletes", "ignore_deletes", "pass over such versions"
        else:
            return
        raise VersionError(
            f"version {version.number} of the Delta table {scanned.place.path} {verb} rows ({version.operation}), and "
            f"the source reads rows that are added: set {option} to {does}, or read the changes of the table"
        )


def _changes(version: log.Version) -> Iterator[tuple[log.LoggedFile, log.Meaning]]:
    """Yield files of deleted rows before files of inserted rows."""
    if version.changes:
        yield from ((file, log.Meaning.CHANGES_OLD) for file in version.changes)
        yield from ((file, log.Meaning.CHANGES_NEW) for file in version.changes)
    elif version.removed and version.added:
        yield from ((file, log.Meaning.REPLACED_OLD) for file in version.removed)
        yield from ((file, log.Meaning.REPLACED_NEW) for file in version.added)
    else:
        yield from ((file, log.Meaning.DELETED) for file in version.removed)
        yield from ((file, log.Meaning.INSERTED) for file in version.added)


def _values(file: log.LoggedFile, kinds: dict[str, pa.DataType]) -> dict[str, pa.Scalar]:
    return {name: parse_value(text, kinds[name], name) for name, text in file.partition}


#: The interval at which to check for new versions (ms).
INTERVAL_MS: Final = 5_000
_LATEST: Final = "latest"


class DeltaSource(connector.Source[Any, log.DeltaSplit]):
    """Reads a Delta table; created by `for_bounded_row_data` or `for_continuous_row_data`. Records are named rows.

    A reader's position is a row in a file, so each row is read exactly once despite failures (G8).

    Examples:
        >>> import pyarrow as pa
        >>> from deltalake import write_deltalake
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors.delta import DeltaSource
        >>> write_deltalake("orders", pa.table({"drink": ["tea"], "cups": [2]}))
        >>> source = DeltaSource.for_bounded_row_data("orders").column_names("drink").build()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").collect()
        [Row(drink='tea')]
    """

    def __init__(self, scanned: log.Scanned) -> None:
        self.scanned = scanned

    @staticmethod
    def for_bounded_row_data(
        table_path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
    ) -> BoundedDeltaSourceBuilder:
        """Return a builder of a source of one version, by default the newest.

        Args:
            table_path: the table's directory, or a URL such as `s3://bucket/table`.
            storage_options: delta-rs options for an object store; other options come from the environment.

        Raises:
            ConfigurationError: if the library is missing.
        """
        return BoundedDeltaSourceBuilder(table_path, storage_options)

    @staticmethod
    def for_continuous_row_data(
        table_path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
    ) -> ContinuousDeltaSourceBuilder:
        """Return a builder of an unbounded source: the current table, followed by the rows that later versions add.

        The arguments and errors are those of `for_bounded_row_data`.
        """
        return ContinuousDeltaSourceBuilder(table_path, storage_options)

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded, unless the source checks for new versions."""
        return (
            connector.Boundedness.BOUNDED
            if self.scanned.interval_ms is None
            else connector.Boundedness.CONTINUOUS_UNBOUNDED
        )

    def max_parallelism(self) -> int | None:
        """Return 1 if changes are read, so that the changes of a row stay in order."""
        return 1 if self.scanned.reads_changes else None

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[log.DeltaSplit], restored: Any | None
    ) -> connector.SplitEnumerator[log.DeltaSplit]:
        """See `Source`."""
        return DeltaEnumerator(context, self.scanned, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, log.DeltaSplit]:
        """See `Source`."""
        return DeltaReader(context, self.scanned)


class _Builder:
    def __init__(self, table_path: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> None:
        require_library()
        self._names: tuple[str, ...] = ()
        self._scanned = log.Scanned(TablePlace.of(table_path, storage_options), ())

    def _set(self, **values: Any) -> None:
        self._scanned = replace(self._scanned, **values)

    def _begin(self, **values: Any) -> None:
        if self._scanned.start != log.Start():
            raise ConfigurationError("a DeltaSource begins at a version or at a time, not at both")
        self._set(start=log.Start(**values))

    def build(self) -> DeltaSource:
        """Build the source. Opens the table to read its columns.

        Raises:
            MissingPathError: if the table does not exist.
            UnknownNameError: for columns that the table lacks.
            UnsupportedTableError: for unsupported features.
        """
        table = self._scanned.place.open()
        log.check_features(self._scanned.place, table)
        schema = read_arrow_schema(table)
        names = self._names or tuple(schema.names)
        lacking = [name for name in names if name not in schema.names]
        if lacking:
            raise UnknownNameError(
                f"the Delta table {self._scanned.place.path} has no columns {', '.join(lacking)}; it has "
                f"{', '.join(schema.names)}"
            )
        columns = tuple(log.WantedColumn(name, name, schema.field(name).type) for name in names)
        return DeltaSource(replace(self._scanned, columns=columns))


class BoundedDeltaSourceBuilder(_Builder):
    """Builds a source of one version."""

    def column_names(self, *names: str) -> BoundedDeltaSourceBuilder:
        """Set the columns to read; all by default."""
        self._names = names
        return self

    def version_as_of(self, version: int) -> BoundedDeltaSourceBuilder:
        """Read this version."""
        self._begin(version=version)
        return self

    def timestamp_as_of(self, timestamp: str) -> BoundedDeltaSourceBuilder:
        """Read the newest version as of a time, such as `2026-01-31T12:00:00Z`."""
        self._begin(timestamp=timestamp)
        return self


class ContinuousDeltaSourceBuilder(_Builder):
    """Builds a source that follows a table."""

    def __init__(self, table_path: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> None:
        super().__init__(table_path, storage_options)
        self._set(interval_ms=INTERVAL_MS)

    def column_names(self, *names: str) -> ContinuousDeltaSourceBuilder:
        """Set the columns to read; all by default."""
        self._names = names
        return self

    def starting_version(self, version: int | str) -> ContinuousDeltaSourceBuilder:
        """Skip the current table: read the rows that this and later versions add, or with `"latest"` later ones only.

        Raises:
            ConfigurationError: if the text is neither a number nor `"latest"`.
        """
        self._begin(**parse_start(version))
        return self

    def starting_timestamp(self, timestamp: str) -> ContinuousDeltaSourceBuilder:
        """Start like `starting_version` at the first version at or after a time, such as `2026-01-31T12:00:00Z`."""
        self._begin(timestamp=timestamp)
        return self

    def update_check_interval(self, interval_ms: int) -> ContinuousDeltaSourceBuilder:
        """Set the interval at which to check for new versions (ms); 5 seconds by default.

        Raises:
            ConfigurationError: if the interval is less than 1.
        """
        if interval_ms < 1:
            raise ConfigurationError(f"new versions are looked for every ms at most, not every {interval_ms}")
        self._set(interval_ms=interval_ms)
        return self

    def ignore_deletes(self, ignore_deletes: bool) -> ContinuousDeltaSourceBuilder:
        """Set whether to skip versions that only delete rows; by default they fail the job."""
        self._set(ignore_deletes=ignore_deletes)
        return self

    def ignore_changes(self, ignore_changes: bool) -> ContinuousDeltaSourceBuilder:
        """Set whether to read all rows of rewritten files as new ones; by default such versions fail the job.

        Unchanged rows are then emitted again. Versions that only delete rows are skipped.
        """
        self._set(ignore_changes=ignore_changes)
        return self

    def read_change_feed(self, read_change_feed: bool) -> ContinuousDeltaSourceBuilder:
        """Set whether to read the rows that each version inserts, updates and deletes, with their `RowKind`.

        The table must have `delta.enableChangeDataFeed` = `true`. A single reader reads the changes, to keep them in
        order.
        """
        self._set(reads_changes=read_change_feed)
        return self


def parse_start(version: int | str) -> dict[str, Any]:
    """Return the start of a source for a version number or `"latest"`. Raises `ConfigurationError` for other text."""
    if version == _LATEST:
        return {"is_latest": True}
    try:
        return {"version": int(version)}
    except ValueError as error:
        raise ConfigurationError(f"a version is a number or {_LATEST!r}, not {version!r}") from error
