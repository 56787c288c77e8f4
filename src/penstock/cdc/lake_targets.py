"""Iceberg and Delta Lake as targets of pipelines.

**Iceberg.** Rows are committed by the sink's own committer, changes of schemas by `SchemaChanges`. Both leave their
names in the ledger of the table. The options are those of Flink CDC: `catalog.properties.*`, `table.properties.*` and
`partition.key`.

**Delta Lake.** Each step is a version with the step's name as an application transaction. delta-rs adds columns and
takes NOT NULL away; it neither drops nor renames columns nor changes their types, because that needs column mapping. So
with `evolve` such a change fails the job, with `try_evolve` it is left out, and `lenient` never drops or renames. The
tables are at `path`/schema/table.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.cdc.definition import Settings
from penstock.cdc.sinks import IS_DELETED, PipelineSink, Step, TableTarget, staged
from penstock.cdc.tables import parse_table_id
from penstock.connectors.cdc import events
from penstock.connectors.cdc.events import SchemaChangeEvent, TableId, TableSchema
from penstock.connectors.delta import commits
from penstock.connectors.delta.table import TablePlace, stored_schema
from penstock.connectors.delta.table import require_library as require_delta
from penstock.connectors.iceberg import schema_changes
from penstock.connectors.iceberg.committer import CommitName, IcebergCommitter, StagedChanges
from penstock.connectors.iceberg.tables import CatalogLoader, SinkSettings, TableLoader, partition_transform
from penstock.connectors.iceberg.tables import require_library as require_iceberg
from penstock.runtime.connector import SinkWriterContext

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyiceberg.catalog import Catalog

PartitionKeys = tuple[tuple[TableId, tuple[str, ...]], ...]


def _parse_partition_keys(settings: Settings) -> PartitionKeys:
    """Return the option `partition.key`: `db.table:key1,key2;db.other:day(time)`."""
    keys = []
    for part in filter(None, map(str.strip, (settings.text("partition.key") or "").split(";"))):
        table, sign, names = part.partition(":")
        if not sign:
            raise settings.fail("partition.key", f"write schema.table:column instead of {part!r}")
        columns = tuple(name.strip().replace("[", "(").replace("](", ", ") for name in names.split(","))
        try:
            for column in columns:
                partition_transform(column)
        except ConfigurationError as error:
            raise settings.fail("partition.key", str(error)) from error
        keys.append((parse_table_id(table), columns))
    return tuple(keys)


def _partitioned(schema: TableSchema, table_id: TableId, keys: PartitionKeys) -> tuple[str, ...]:
    return schema.partition_keys or dict(keys).get(table_id, ())


# --- Iceberg ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IcebergTargets:
    """Iceberg tables of one catalog, which are created on demand.

    Attributes:
        catalog: loads the catalog.
        properties: the properties of new tables.
        partition_keys: the partition columns of new tables, by table.
    """

    catalog: CatalogLoader
    properties: Mapping[str, str] = field(default_factory=dict)
    partition_keys: PartitionKeys = ()

    def open(self, context: SinkWriterContext) -> TableTarget:
        """See `TargetFactory`."""
        return _IcebergTarget(self, context)

    def refuses(self, schema: TableSchema, change: SchemaChangeEvent) -> str | None:
        """See `TargetFactory`."""
        return schema_changes.refuses_change(schema, change)


class _IcebergTarget(TableTarget):
    def __init__(self, targets: IcebergTargets, context: SinkWriterContext) -> None:
        self._targets, self._context = targets, context
        self._local = threading.local()
        self._catalogs: list[Catalog] = []

    def _loader(self, table_id: TableId) -> TableLoader:
        return TableLoader(self._targets.catalog, (*(table_id.schema or "default").split("."), table_id.table))

    def _changes(self, table_id: TableId) -> schema_changes.SchemaChanges:
        loader = self._loader(table_id)
        return schema_changes.SchemaChanges(
            loader, self._catalog(), self._context.now_ms, SinkSettings(loader).retention_ms
        )

    def _catalog(self) -> Catalog:
        """Return the catalog of this thread."""
        catalog: Catalog | None = getattr(self._local, "catalog", None)
        if catalog is None:
            catalog = self._local.catalog = self._targets.catalog.load_catalog()
            self._catalogs.append(catalog)
        return catalog

    def create_table(self, table_id: TableId, schema: TableSchema, name: CommitName) -> None:
        """See `TableTarget`."""
        partitioning = _partitioned(schema, table_id, self._targets.partition_keys)
        declared = schema_changes.declare(schema, {**self._targets.properties, **dict(schema.options)})
        declared = type(declared)(declared.schema, declared.key, partitioning, declared.properties)
        self._changes(table_id).create(declared, name)

    def drop_table(self, table_id: TableId, name: CommitName) -> None:
        """See `TableTarget`."""
        self._changes(table_id).drop(name)

    def change_schema(self, table_id: TableId, change: SchemaChangeEvent, name: CommitName) -> None:
        """See `TableTarget`."""
        self._changes(table_id).apply(change, name)

    def write_rows(self, table_id: TableId, step: Step, is_in_doubt: bool) -> None:
        """See `TableTarget`."""
        assert step.schema is not None
        settings = SinkSettings(self._loader(table_id), equality=step.schema.primary_key)
        committer = IcebergCommitter(settings, self._context)
        try:
            commit = committer.recommit if is_in_doubt else committer.commit
            commit([StagedChanges(step.name, step.message)])
        finally:
            committer.close()

    def close(self) -> None:
        """See `TableTarget`."""
        for catalog in self._catalogs:
            catalog.close()


def create_iceberg(settings: Settings) -> PipelineSink:
    """Return the sink of the type `iceberg`."""
    require_iceberg()
    properties = settings.prefixed("catalog.properties.")
    if not properties:
        raise settings.fail("catalog.properties.type", "the option is missing: name the catalog, such as hadoop")
    if "catalog-impl" in properties:
        raise UnsupportedError(
            f"{settings.fail('catalog.properties.catalog-impl', 'a class of Java is not supported')}: set "
            "catalog.properties.type to hadoop, rest, sql, glue or hive"
        )
    name = settings.text("catalog.name") or "pipeline"
    loader = CatalogLoader.of(name, properties)
    targets = IcebergTargets(loader, settings.prefixed("table.properties."), _parse_partition_keys(settings))
    return staged(targets)


# --- Delta Lake ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeltaTargets:
    """Delta tables below one path, which are created on demand.

    Attributes:
        path: the directory, or a URL such as `s3://bucket/lake`.
        storage_options: the options of delta-rs for an object store.
        properties: the properties of new tables.
        partition_keys: the partition columns of new tables, by table.
    """

    path: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict)
    partition_keys: PartitionKeys = ()

    def open(self, context: SinkWriterContext) -> TableTarget:
        """See `TargetFactory`."""
        return _DeltaTarget(self)

    def refuses(self, schema: TableSchema, change: SchemaChangeEvent) -> str | None:
        """See `TargetFactory`."""
        match change:
            case events.CreateTableEvent(schema=new):
                return _refuse_types(new.columns)
            case events.AddColumnEvent(column=column):
                return _refuse_types([column])
            case events.AlterColumnTypeEvent(column=column):
                known = schema.columns[schema.get_position(column.name)]
                same = stored_schema(pa.schema([("c", known.type)])) == stored_schema(pa.schema([("c", column.type)]))
                return None if same else "delta-rs does not change the types of columns"
            case events.DropColumnEvent():
                return "delta-rs does not drop columns, which needs column mapping"
            case events.RenameColumnEvent():
                return "delta-rs does not rename columns, which needs column mapping"
            case events.DropTableEvent() if "://" in self.path:
                return "a table in an object store is not removed: delete its directory"
        return None


def _refuse_types(columns: Sequence[events.Column]) -> str | None:
    try:
        stored_schema(pa.schema([(column.name, column.type) for column in columns]))
    except UnsupportedError as error:
        return str(error)
    return None


class _DeltaTarget(TableTarget):
    def __init__(self, targets: DeltaTargets) -> None:
        self._targets = targets

    def _target(self, table_id: TableId, schema: TableSchema, partition_keys: tuple[str, ...] | None) -> commits.Target:
        fields = [pa.field(column.name, column.type, column.is_nullable) for column in schema.columns]
        table_place = TablePlace.of(
            "/".join(filter(None, (self._targets.path, table_id.schema, table_id.table))), self._targets.storage_options
        )
        properties = tuple(sorted({**self._targets.properties, **dict(schema.options)}.items()))
        columns = stored_schema(pa.schema(fields))
        columns = pa.schema([each.with_nullable(old.nullable) for each, old in zip(columns, fields, strict=True)])
        return commits.Target(table_place, columns, partition_keys, schema.primary_key, True, properties)

    def _commit(self, target: commits.Target, name: CommitName, apply: commits.Apply) -> None:
        committer = commits.DeltaCommitter(target, apply)
        committer.commit([commits.PreparedFiles(f"penstock/{name.owner}/{name.run}", name.number, ())])

    def create_table(self, table_id: TableId, schema: TableSchema, name: CommitName) -> None:
        """See `TableTarget`."""
        target = self._target(table_id, schema, _partitioned(schema, table_id, self._targets.partition_keys))
        target.check()
        commits.prepare(target)

        def note(table: DeltaTable, due: Sequence[Any], properties: CommitProperties) -> None:
            commits.write_nothing(table, properties)

        self._commit(target, name, note)

    def drop_table(self, table_id: TableId, name: CommitName) -> None:
        """See `TableTarget`."""
        target = self._target(table_id, TableSchema(()), None)
        if target.place.exists():
            known = target.place.open().transaction_version(f"penstock/{name.owner}/{name.run}") or 0
            if known < name.number:
                shutil.rmtree(target.place.path)

    def change_schema(self, table_id: TableId, change: SchemaChangeEvent, name: CommitName) -> None:
        """See `TableTarget`."""

        def apply(table: DeltaTable, due: Sequence[Any], properties: CommitProperties) -> None:
            names = [column.name for column in table.schema().fields]
            match change:
                case events.AddColumnEvent(column=column) if column.name not in names:
                    fields = commits.to_delta_fields([pa.field(column.name, column.type)])
                    table.alter.add_columns(fields, commit_properties=properties)
                    return
                case events.AlterColumnTypeEvent(column=column) if column.is_nullable:
                    known = next(each for each in table.schema().fields if each.name == column.name)
                    if not known.nullable:
                        table.alter.drop_column_not_null(column.name, commit_properties=properties)
                        return
                case events.TruncateTableEvent():
                    before = table.version()
                    table.delete(commit_properties=properties)
                    if table.version() != before:
                        return
            commits.write_nothing(table, properties)

        self._commit(self._target(table_id, TableSchema(()), None), name, apply)

    def write_rows(self, table_id: TableId, step: Step, is_in_doubt: bool) -> None:
        """See `TableTarget`."""
        assert step.schema is not None
        target = self._target(table_id, step.schema, None)

        def apply(table: DeltaTable, due: Sequence[Any], properties: CommitProperties) -> None:
            commits.merge_rows(table, target, step.rows(), IS_DELETED, properties)

        self._commit(target, step.name, apply)


def create_delta(settings: Settings) -> PipelineSink:
    """Return the sink of the type `delta`."""
    require_delta()
    targets = DeltaTargets(
        settings.need("path"),
        settings.prefixed("storage.options."),
        settings.prefixed("table.properties."),
        _parse_partition_keys(settings),
    )
    return staged(targets)
