"""`DeltaSource`: the rows of a table of Delta Lake, of one version or as they come."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.base.errors import ConfigurationError, UnknownNameError
from penstock.connectors.delta.enumerator import DeltaEnumerator
from penstock.connectors.delta.features import check_features
from penstock.connectors.delta.library import require_library
from penstock.connectors.delta.place import TablePlace, schema_of
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

#: How often new versions are looked for (ms).
INTERVAL_MS: Final = 5_000
_LATEST: Final = "latest"


class DeltaSource(Source[Any, DeltaSplit]):
    """Reads a Delta table; made by `for_bounded_row_data` or `for_continuous_row_data`. Records are rows with names.

    A reader's position is a row of a file, so each row is read once across failures (G8).
    """

    def __init__(self, scanned: Scanned) -> None:
        self.scanned = scanned

    @staticmethod
    def for_bounded_row_data(
        table_path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
    ) -> BoundedDeltaSourceBuilder:
        """Starts a source of one version: the newest, unless the builder is told another.

        Args:
            table_path: the directory of the table, or a URL such as `s3://bucket/table`.
            storage_options: how delta-rs reaches an object store; what they do not say comes from the environment.

        Raises:
            ConfigurationError: without the library.
        """
        return BoundedDeltaSourceBuilder(table_path, storage_options)

    @staticmethod
    def for_continuous_row_data(
        table_path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
    ) -> ContinuousDeltaSourceBuilder:
        """Starts a source that never ends: the table as it is, and then what later versions add.

        The arguments and errors are those of `for_bounded_row_data`.
        """
        return ContinuousDeltaSourceBuilder(table_path, storage_options)

    @property
    def boundedness(self) -> Boundedness:
        """Bounded, unless new versions are looked for."""
        return Boundedness.BOUNDED if self.scanned.interval_ms is None else Boundedness.CONTINUOUS_UNBOUNDED

    def max_parallelism(self) -> int | None:
        """Changes are read by one reader, so that those of a row stay in order."""
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
        """The source. Opens the table, to see its columns.

        Raises:
            MissingPathError: if there is no table.
            UnknownNameError: for columns that it does not have.
            UnsupportedTableError: for features that are not read.
        """
        table = self._scanned.place.open()
        check_features(self._scanned.place, table)
        there = schema_of(table)
        names = self._names or tuple(there.names)
        lacking = [name for name in names if name not in there.names]
        if lacking:
            raise UnknownNameError(
                f"the Delta table {self._scanned.place.path} has no columns {', '.join(lacking)}; it has "
                f"{', '.join(there.names)}"
            )
        columns = tuple(WantedColumn(name, name, there.field(name).type) for name in names)
        return DeltaSource(replace(self._scanned, columns=columns))


class BoundedDeltaSourceBuilder(_Builder):
    """Builds a source of one version."""

    def column_names(self, *names: str) -> BoundedDeltaSourceBuilder:
        """Which columns; by default all."""
        self._names = names
        return self

    def version_as_of(self, version: int) -> BoundedDeltaSourceBuilder:
        """Read this version."""
        self._begin(version=version)
        return self

    def timestamp_as_of(self, timestamp: str) -> BoundedDeltaSourceBuilder:
        """Read what was the newest version at a time, such as `2026-01-31T12:00:00Z`."""
        self._begin(timestamp=timestamp)
        return self


class ContinuousDeltaSourceBuilder(_Builder):
    """Builds a source that follows a table."""

    def __init__(self, table_path: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> None:
        super().__init__(table_path, storage_options)
        self._set(interval_ms=INTERVAL_MS)

    def column_names(self, *names: str) -> ContinuousDeltaSourceBuilder:
        """Which columns; by default all."""
        self._names = names
        return self

    def starting_version(self, version: int | str) -> ContinuousDeltaSourceBuilder:
        """Leave out the table as it is: read what this version and later ones add, or with `"latest"` later ones only.

        Raises:
            ConfigurationError: for another text.
        """
        self._begin(**start_of(version))
        return self

    def starting_timestamp(self, timestamp: str) -> ContinuousDeltaSourceBuilder:
        """The same from the first version on that is not older than a time, such as `2026-01-31T12:00:00Z`."""
        self._begin(timestamp=timestamp)
        return self

    def update_check_interval(self, interval_ms: int) -> ContinuousDeltaSourceBuilder:
        """How often new versions are looked for (ms); by default every 5 seconds.

        Raises:
            ConfigurationError: if it is less than 1.
        """
        if interval_ms < 1:
            raise ConfigurationError(f"new versions are looked for every ms at most, not every {interval_ms}")
        self._set(interval_ms=interval_ms)
        return self

    def ignore_deletes(self, ignore_deletes: bool) -> ContinuousDeltaSourceBuilder:
        """Whether to pass over versions that only delete rows; by default they fail the job."""
        self._set(ignore_deletes=ignore_deletes)
        return self

    def ignore_changes(self, ignore_changes: bool) -> ContinuousDeltaSourceBuilder:
        """Whether to take all rows of files that replace others as new ones; by default such versions fail the job.

        Rows that did not change come again then. Versions that only delete rows are passed over.
        """
        self._set(ignore_changes=ignore_changes)
        return self

    def read_change_feed(self, read_change_feed: bool) -> ContinuousDeltaSourceBuilder:
        """Whether to read what each version inserts, updates and deletes, as rows of these kinds (`RowKind`).

        The table must have `delta.enableChangeDataFeed` = `true`. One reader reads, so that changes stay in order.
        """
        self._set(reads_changes=read_change_feed)
        return self


def start_of(version: int | str) -> dict[str, Any]:
    """Where a source begins by a number or `"latest"`. Raises `ConfigurationError` for another text."""
    if version == _LATEST:
        return {"is_latest": True}
    try:
        return {"version": int(version)}
    except ValueError as error:
        raise ConfigurationError(f"a version is a number or {_LATEST!r}, not {version!r}") from error
