"""`DeltaSource`: reads one version of a Delta Lake table, or follows the table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.base.errors import ConfigurationError, UnknownNameError
from penstock.connectors.delta.enumerator import DeltaEnumerator
from penstock.connectors.delta.features import check_features
from penstock.connectors.delta.library import require_library
from penstock.connectors.delta.place import TablePlace, read_arrow_schema
from penstock.connectors.delta.reader import DeltaReader
from penstock.connectors.delta.split import DeltaSplit, Scanned, Start, WantedColumn
from penstock.core.connector import (
    Boundedness,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)

#: The interval at which to check for new versions (ms).
INTERVAL_MS: Final = 5_000
_LATEST: Final = "latest"


class DeltaSource(Source[Any, DeltaSplit]):
    """Reads a Delta table; created by `for_bounded_row_data` or `for_continuous_row_data`. Records are named rows.

    A reader's position is a row in a file, so each row is read exactly once despite failures (G8).
    """

    def __init__(self, scanned: Scanned) -> None:
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
    def boundedness(self) -> Boundedness:
        """Bounded, unless the source checks for new versions."""
        return Boundedness.BOUNDED if self.scanned.interval_ms is None else Boundedness.CONTINUOUS_UNBOUNDED

    def max_parallelism(self) -> int | None:
        """Return 1 if changes are read, so that the changes of a row stay in order."""
        return 1 if self.scanned.reads_changes else None

    def create_enumerator(
        self, context: SplitEnumeratorContext[DeltaSplit], restored: Any | None
    ) -> SplitEnumerator[DeltaSplit]:
        """See `Source`."""
        return DeltaEnumerator(context, self.scanned, restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, DeltaSplit]:
        """See `Source`."""
        return DeltaReader(context, self.scanned)


class _Builder:
    def __init__(self, table_path: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> None:
        require_library()
        self._names: tuple[str, ...] = ()
        self._scanned = Scanned(TablePlace.of(table_path, storage_options), ())

    def _set(self, **values: Any) -> None:
        self._scanned = replace(self._scanned, **values)

    def _begin(self, **values: Any) -> None:
        if self._scanned.start != Start():
            raise ConfigurationError("a DeltaSource begins at a version or at a time, not at both")
        self._set(start=Start(**values))

    def build(self) -> DeltaSource:
        """Build the source. Opens the table to read its columns.

        Raises:
            MissingPathError: if the table does not exist.
            UnknownNameError: for columns that the table lacks.
            UnsupportedTableError: for unsupported features.
        """
        table = self._scanned.place.open()
        check_features(self._scanned.place, table)
        schema = read_arrow_schema(table)
        names = self._names or tuple(schema.names)
        lacking = [name for name in names if name not in schema.names]
        if lacking:
            raise UnknownNameError(
                f"the Delta table {self._scanned.place.path} has no columns {', '.join(lacking)}; it has "
                f"{', '.join(schema.names)}"
            )
        columns = tuple(WantedColumn(name, name, schema.field(name).type) for name in names)
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
