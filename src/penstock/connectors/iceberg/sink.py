"""`IcebergSink`: records into a table of Iceberg, exactly once, a snapshot a checkpoint."""

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
    """Writes rows into a table, or their changes by key; made by `for_row`.

    Readers see what a checkpoint covers when it is complete, in one snapshot for all subtasks. In a batch that is at
    its end. `penstock.connectors.iceberg.ledger` says why each row comes once.
    """

    commits_globally = True

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = settings

    @staticmethod
    def for_row(schema: pa.Schema | None = None) -> IcebergSinkBuilder:
        """Starts a sink of rows with names, dicts, tuples, or Arrow columns.

        Args:
            schema: the columns, for records without names, and for a table that the sink creates or adds columns to.
                None for those of the table.
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
    """Builds an `IcebergSink`."""

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
        """Which table; every process loads it itself."""
        self._loader = loader
        return self

    def equality_field_columns(self, *columns: str) -> IcebergSinkBuilder:
        """The columns that tell rows apart: the records are then changes, and the last one of each key counts.

        All changes of a key must come to the same subtask, so key the stream by these columns. A table is changed by
        writing the files anew that hold keys which change (copy on write).
        """
        self._equality = columns
        return self

    def upsert(self, enabled: bool) -> IcebergSinkBuilder:
        """Whether an insert replaces the row of its key. It always does with equality fields, which it requires."""
        self._upserts = enabled
        return self

    def overwrite(self, new_overwrite: bool) -> IcebergSinkBuilder:
        """Whether the rows of a batch take the place of the partitions that they belong to, or of the whole table."""
        self._overwrites = new_overwrite
        return self

    def to_branch(self, branch: str) -> IcebergSinkBuilder:
        """Which branch; `main` unless set. One that is not there begins empty."""
        self._branch = branch
        return self

    def create_table(self, *partitioning: str, properties: Mapping[str, str] | None = None) -> IcebergSinkBuilder:
        """Make the table, and its namespace, where it is not there.

        Args:
            partitioning: `column`, `day(column)`, `bucket(16, column)`, `truncate(8, column)` and so on.
            properties: of the table.
        """
        self._creates = True
        self._partitioning = partitioning
        self._table_properties = dict(properties or {})
        return self

    def schema_evolution(self, enabled: bool) -> IcebergSinkBuilder:
        """Whether to add columns to the table that it does not have; otherwise they are an error."""
        self._evolves = enabled
        return self

    def target_file_size(self, size_bytes: int) -> IcebergSinkBuilder:
        """Write a file ahead of a checkpoint when a subtask holds so many bytes of rows; 128 MiB unless set."""
        self._target_bytes = size_bytes
        return self

    def ledger_retention(self, time_ms: int) -> IcebergSinkBuilder:
        """For how long (ms) the table remembers commits at least; 30 days unless set, and longer than savepoints are
        kept.
        """
        self._retention_ms = time_ms
        return self

    def set_snapshot_property(self, name: str, value: str) -> IcebergSinkBuilder:
        """Say something in the summary of each snapshot."""
        self._summary[name] = value
        return self

    def build(self) -> IcebergSink:
        """The sink.

        Raises:
            ConfigurationError: for settings that do not fit together, or without pyiceberg.
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
