"""`IcebergSink`: writes records to an Iceberg table exactly once, with one snapshot per checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.base.errors import ConfigurationError
from penstock.connectors.iceberg.catalog import TableLoader, require_library
from penstock.connectors.iceberg.committer import IcebergCommitter
from penstock.connectors.iceberg.settings import RETENTION_MS, TARGET_BYTES, SinkSettings
from penstock.connectors.iceberg.staged import Staged
from penstock.connectors.iceberg.tables import DeclaredTable, partition_transform
from penstock.connectors.iceberg.writer import AppendWriter, ChangesWriter
from penstock.core.connector import Committer, Sink, SinkWriter, SinkWriterContext


class IcebergSink(Sink[Any]):
    """Writes rows, or changes by key, to a table; created with `for_row`.

    Readers see the data of a checkpoint when it completes, in one snapshot for all subtasks. In a batch that is at its
    end. `penstock.connectors.iceberg.ledger` explains why each row is written once.
    """

    commits_globally = True

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = settings

    @staticmethod
    def for_row(schema: pa.Schema | None = None) -> IcebergSinkBuilder:
        """Return a builder of a sink for named rows, dicts, tuples, or Arrow columns.

        Args:
            schema: the columns, for records without names, and for a table that the sink creates or adds columns to.
                None to use the columns of the table.
        """
        return IcebergSinkBuilder(schema)

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Staged]:
        """See `Sink`."""
        make = ChangesWriter if self.settings.equality else AppendWriter
        return make(self.settings, context)

    def create_committer(self, context: SinkWriterContext) -> Committer[Any]:
        """See `Sink`."""
        return IcebergCommitter(self.settings, context)


class IcebergSinkBuilder:
    """Builder for `IcebergSink`."""

    def __init__(self, schema: pa.Schema | None) -> None:
        self._schema = schema
        self._loader: TableLoader | None = None
        self._equality: tuple[str, ...] = ()
        self._upserts = self._overwrites = self._creates = self._evolves = False
        self._partitioning: tuple[str, ...] = ()
        self._table_properties: dict[str, str] = {}
        self._summary: dict[str, str] = {}
        self._branch = "main"
        self._target_bytes, self._retention_ms = TARGET_BYTES, RETENTION_MS

    def table_loader(self, loader: TableLoader) -> IcebergSinkBuilder:
        """Set the table; every process loads it itself."""
        self._loader = loader
        return self

    def equality_field_columns(self, *columns: str) -> IcebergSinkBuilder:
        """Set the key columns: the records are then changes, and the last one of each key counts.

        All changes of a key must reach the same subtask, so key the stream by these columns. The sink rewrites the data
        files that contain changed keys (copy on write).
        """
        self._equality = columns
        return self

    def upsert(self, enabled: bool) -> IcebergSinkBuilder:
        """Set whether inserts replace rows with the same key. Requires equality fields, which always imply it."""
        self._upserts = enabled
        return self

    def overwrite(self, new_overwrite: bool) -> IcebergSinkBuilder:
        """Set whether the rows of a batch replace the partitions that they belong to, or the whole table."""
        self._overwrites = new_overwrite
        return self

    def to_branch(self, branch: str) -> IcebergSinkBuilder:
        """Set the branch; `main` by default. A new branch starts empty."""
        self._branch = branch
        return self

    def create_table(self, *partitioning: str, properties: Mapping[str, str] | None = None) -> IcebergSinkBuilder:
        """Create the table and its namespace if they are missing.

        Args:
            partitioning: `column`, `day(column)`, `bucket(16, column)`, `truncate(8, column)` and so on.
            properties: the properties of a new table.
        """
        self._creates = True
        self._partitioning = partitioning
        self._table_properties = dict(properties or {})
        return self

    def schema_evolution(self, enabled: bool) -> IcebergSinkBuilder:
        """Set whether to add missing columns to the table; otherwise they are an error."""
        self._evolves = enabled
        return self

    def target_file_size(self, size_bytes: int) -> IcebergSinkBuilder:
        """Write a file before the checkpoint when a subtask buffers this many bytes of rows; 128 MiB by default."""
        self._target_bytes = size_bytes
        return self

    def ledger_retention(self, time_ms: int) -> IcebergSinkBuilder:
        """Set the minimum time (ms) that the table remembers commits; 30 days by default.

        It must exceed the age of savepoints.
        """
        self._retention_ms = time_ms
        return self

    def set_snapshot_property(self, name: str, value: str) -> IcebergSinkBuilder:
        """Add an entry to the summary of each snapshot."""
        self._summary[name] = value
        return self

    def build(self) -> IcebergSink:
        """Build the sink.

        Raises:
            ConfigurationError: if settings are missing or conflict, or pyiceberg is not installed.
        """
        require_library()
        if self._loader is None:
            raise ConfigurationError("an IcebergSink needs table_loader()")
        if self._upserts and not self._equality:
            raise ConfigurationError("upsert(True) needs equality_field_columns(): which columns tell rows apart?")
        if self._overwrites and self._equality:
            raise ConfigurationError("overwrite(True) and equality_field_columns() cannot be set together")
        if self._target_bytes < 1 or self._retention_ms < 0:
            raise ConfigurationError("target_file_size() is above 0, and ledger_retention() is not below it")
        if self._schema is None and (self._creates or self._evolves):
            raise ConfigurationError(
                "create_table() and schema_evolution(True) need the columns: give for_row() a pyarrow.Schema"
            )
        for text in self._partitioning:
            partition_transform(text)
        declared = None
        if self._schema is not None:
            unknown = [name for name in self._equality if name not in self._schema.names]
            if unknown:
                raise ConfigurationError(f"there is no column {', '.join(map(repr, unknown))} for the equality fields")
            properties = tuple(sorted(self._table_properties.items()))
            declared = DeclaredTable(self._schema, self._equality, self._partitioning, properties)
            declared.stored_schema()
        settings = SinkSettings(self._loader, declared)
        return IcebergSink(
            replace(
                settings,
                creates=self._creates,
                evolves=self._evolves,
                equality=self._equality,
                overwrites=self._overwrites,
                branch=self._branch,
                target_bytes=self._target_bytes,
                retention_ms=self._retention_ms,
                properties=tuple(sorted(self._summary.items())),
            )
        )
