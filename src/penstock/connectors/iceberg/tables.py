"""Loaders of Iceberg catalogs and tables, creation and evolution of a sink's table, and the settings of a sink.

Loaders hold names and properties, so that every process can load its own catalog and table.

Every writer creates the table or adds columns when it starts, and the first one wins: the others find its result. A
missing column is added only on request; columns are never removed, renamed or narrowed. The table is checked before
anything is written.

`NewTable` is a table that does not exist until the first commit to it, or that this commit replaces.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.secrets import remember
from penstock.connectors.base import require
from penstock.connectors.iceberg.data_files import fits, is_uuid, refuse_equality_deletes, stored_type

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.transforms import Transform


_LOG: Final = logging.getLogger("penstock.connectors.iceberg")


class MissingTableError(ConfigurationError):
    """The catalog does not contain this table."""


def require_library() -> None:
    """Check that pyiceberg is installed; raises `ConfigurationError` if not."""
    require("pyiceberg.io.pyarrow", "Iceberg", "pyiceberg", "iceberg")


@dataclass(frozen=True, slots=True)
class CatalogLoader:
    """Loads a catalog wherever it is needed. Its repr omits the properties.

    Attributes:
        name: the name of the catalog; pyiceberg adds its own configuration for a catalog of this name.
        properties: the properties for pyiceberg's `load_catalog`: `type` (`rest`, `sql`, `hive`, `glue`, …), `uri`,
            `warehouse`, `s3.endpoint` and so on.
    """

    name: str
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @staticmethod
    def of(name: str, properties: Mapping[str, str] | None = None) -> CatalogLoader:
        """Return a loader for a catalog with this name and properties; `catalog-type` is an alias of `type`."""
        remember(properties or {})
        normalized = {
            ("type" if key == "catalog-type" else key): str(value) for key, value in (properties or {}).items()
        }
        if normalized.get("type", "").lower() == "hadoop":
            del normalized["type"]
            normalized["py-catalog-impl"] = "penstock.connectors.iceberg.hadoop.HadoopCatalog"
        return CatalogLoader(name, tuple(sorted(normalized.items())))

    def load_catalog(self) -> Catalog:
        """Load the catalog; the caller closes it.

        Raises:
            ConfigurationError: if pyiceberg or a package for this kind of catalog is missing, or pyiceberg rejects the
                properties.
        """
        require_library()
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NotInstalledError

        try:
            return load_catalog(self.name, **dict(self.properties))
        except (NotInstalledError, ImportError) as error:
            raise ConfigurationError(
                f"pyiceberg cannot load catalog {self.name!r}: {error}. Install that here and on every worker"
            ) from error
        except ValueError as error:
            raise ConfigurationError(f"pyiceberg cannot load catalog {self.name!r}: {error}") from error


@dataclass(frozen=True, slots=True)
class TableLoader:
    """Loads a catalog's table wherever it is needed.

    Attributes:
        catalog: loads the catalog.
        identifier: the namespaces of the table, and its name.
    """

    catalog: CatalogLoader
    identifier: tuple[str, ...]

    @staticmethod
    def from_catalog(catalog_loader: CatalogLoader, identifier: str | Sequence[str]) -> TableLoader:
        """Return a loader for a table, given as `"database.table"` or as a sequence of names.

        Raises:
            ConfigurationError: if the table has no namespace.
        """
        names = tuple(identifier.split(".")) if isinstance(identifier, str) else tuple(identifier)
        if len(names) < 2 or not all(names):
            raise ConfigurationError(
                f"a table of Iceberg is in a namespace: name it 'database.table', not {'.'.join(names)!r}"
            )
        return TableLoader(catalog_loader, names)

    @property
    def title(self) -> str:
        """The name of the table in error messages."""
        return ".".join((self.catalog.name, *self.identifier))

    @contextmanager
    def opened(self) -> Iterator[Table]:
        """Load the table, and keep its catalog open within the context.

        Raises:
            ConfigurationError: if the table does not exist.
            UnsupportedError: for a newer format version, or types that pyiceberg cannot read.
        """
        catalog = self.catalog.load_catalog()
        try:
            yield self.load_table(catalog)
        finally:
            catalog.close()

    def check_while_planning(self, check: Callable[[Table], None]) -> None:
        """Check the table while a statement is planned. A missing or unreachable table is left to the job."""
        try:
            with self.opened() as table:
                check(table)
        except MissingTableError:
            return
        except OSError as error:
            _LOG.warning("table %s could not be looked at while planning: %s", self.title, error)

    def load_table(self, catalog: Catalog) -> Table:
        """Load the table from an open catalog; raises as `opened`."""
        from pyiceberg.exceptions import NoSuchTableError, ValidationError

        try:
            return catalog.load_table(self.identifier)
        except NoSuchTableError as error:
            raise MissingTableError(f"there is no table {self.title}: create it, or name another one") from error
        except ValidationError as error:
            raise UnsupportedError(
                f"table {self.title} has what pyiceberg cannot read: {' '.join(str(error).split())[:300]}"
            ) from error


_TRANSFORM: Final = re.compile(r"\s*(\w+)\s*(?:\(\s*(?:(\d+)\s*,\s*)?([\w.]+)\s*(?:,\s*(\d+)\s*)?\)\s*)?")
_PLURALS: Final = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
#: The newest version of the format that pyiceberg writes.
_WRITTEN_VERSION: Final = 2
#: How often a writer retries a change that another writer makes at the same time.
_ATTEMPTS: Final = 10


@dataclass(frozen=True, slots=True)
class DeclaredTable:
    """A table as a program declares it.

    Attributes:
        schema: its columns; columns that are not nullable are required.
        key: the key columns.
        partitioning: `column`, `day(column)`, `bucket(16, column)` and so on.
        properties: the properties of a new table.
    """

    schema: pa.Schema
    key: tuple[str, ...] = ()
    partitioning: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    def stored_schema(self) -> pa.Schema:
        """Return the columns in Iceberg's types; raises `UnsupportedError` for types without a counterpart."""
        required = set(self.key)
        return pa.schema(
            [
                pa.field(field.name, stored_type(field.type), field.nullable and field.name not in required)
                for field in self.schema
            ]
        )


def partition_transform(text: str) -> tuple[str, Transform[object, object]]:
    """Parse a partition field such as `day(column)` into its column and transform.

    Raises:
        ConfigurationError: if the text is not a valid partition field.
    """
    from pyiceberg.transforms import IdentityTransform, UnknownTransform, VoidTransform, parse_transform

    match = _TRANSFORM.fullmatch(text)
    if match is None:
        raise ConfigurationError(f"{text!r} is no partitioning: write a column, day(column) or bucket(16, column)")
    name, first, column, last = match.groups()
    if column is None:
        return name, IdentityTransform()
    width = first or last
    kind = _PLURALS.get(name.lower(), name.lower())
    try:
        transform = parse_transform(kind if width is None else f"{kind}[{width}]")
    except ValueError as error:
        raise ConfigurationError(f"{text!r} is no partitioning: {error}") from error
    if isinstance(transform, UnknownTransform | VoidTransform):
        raise ConfigurationError(f"{text!r} is no partitioning: Iceberg has no transform {name!r}")
    return column, transform


def loaded(
    loader: TableLoader, catalog: Catalog, declared: DeclaredTable | None, creates: bool, evolves: bool
) -> Table:
    """Load the table, and create it or add columns if requested.

    Raises:
        ConfigurationError: if the table is missing, or does not fit its declaration.
    """
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError

    for attempt in range(_ATTEMPTS):
        try:
            try:
                table = catalog.load_table(loader.identifier)
            except NoSuchTableError:
                if declared is None or not creates:
                    return loader.load_table(catalog)  # raises MissingTableError
                table = _created(loader, catalog, declared)
            if declared is not None and evolves:
                table = _evolved(table, declared)
            break
        except (CommitFailedException, TableAlreadyExistsError):
            if attempt == _ATTEMPTS - 1:
                raise
    _refuse_format(loader.title, table)
    if declared is not None:
        check(loader.title, table, declared.stored_schema())
    return table


def _created(loader: TableLoader, catalog: Catalog, declared: DeclaredTable) -> Table:
    catalog.create_namespace_if_not_exists(loader.identifier[:-1])
    schema = declared.stored_schema()
    with catalog.create_table_transaction(
        loader.identifier, schema, properties=dict(declared.properties)
    ) as transaction:
        if declared.partitioning:
            with transaction.update_spec() as spec:
                for text in declared.partitioning:
                    spec.add_field(*partition_transform(text))
        if declared.key:
            with transaction.update_schema() as update:
                update.set_identifier_fields(*declared.key)
    return catalog.load_table(loader.identifier)


def _evolved(table: Table, declared: DeclaredTable) -> Table:
    existing = set(arrow_schema(table).names)
    more = [field.with_nullable(True) for field in declared.stored_schema() if field.name not in existing]
    if more:
        with table.update_schema() as update:
            update.union_by_name(pa.schema(more))
    return table


def arrow_schema(table: Table) -> pa.Schema:
    """Return the current columns of a table."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    schema: pa.Schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    return schema


def check(title: str, table: Table, declared: pa.Schema) -> None:
    """Raise unless rows with these columns can be written to the table.

    Raises:
        ConfigurationError: for missing or incompatible columns.
        UnsupportedError: for columns of a type that cannot be written.
    """
    schema = arrow_schema(table)
    new = [name for name in declared.names if name not in schema.names]
    if new:
        raise ConfigurationError(
            f"table {title} has no column {_listed(new)}: add {'it' if len(new) == 1 else 'them'} to the table, or let "
            "the sink do so by schema_evolution(True) (in SQL 'sink.schema-evolution' = 'true')"
        )
    required = [field.name for field in schema if not field.nullable and field.name not in declared.names]
    if required:
        raise ConfigurationError(f"table {title} requires a value of column {_listed(required)}, which no row has")
    for column in declared:
        if is_uuid(schema.field(column.name).type):
            raise UnsupportedError(
                f"column '{column.name}' of table {title} is uuid, which is read and not written: leave the column out"
            )
        if not fits(column.type, schema.field(column.name).type):
            raise ConfigurationError(
                f"column '{column.name}' of table {title} is {stored_type(schema.field(column.name).type)}, but "
                f"declared as {column.type}, whose values it cannot hold: declare it as it is"
            )


def check_before_writing(
    loader: TableLoader, declared: DeclaredTable, evolves: bool, replaced_branch: str | None
) -> None:
    """Check, while a statement is planned, that rows can be written to the table. A missing table is left to the job.

    Args:
        loader: loads the table.
        declared: the columns to write.
        evolves: whether columns are added to the table.
        replaced_branch: the branch whose rows are replaced; None if rows are only added.

    Raises:
        ConfigurationError: for missing or incompatible columns.
        UnsupportedError: for a format version that cannot be written, or equality deletes in `replaced_branch`.
    """

    def check_table(table: Table) -> None:
        _refuse_format(loader.title, table)
        if replaced_branch is not None:
            refuse_equality_deletes(loader.title, table, table.metadata.snapshot_by_name(replaced_branch))
        if not evolves:
            check(loader.title, table, declared.stored_schema())

    loader.check_while_planning(check_table)


def _refuse_format(title: str, table: Table) -> None:
    version = table.metadata.format_version
    if version > _WRITTEN_VERSION:
        raise UnsupportedError(
            f"table {title} has version {version} of the format, which pyiceberg reads and does not write: write into "
            f"a table of version {_WRITTEN_VERSION} ('format-version' = '{_WRITTEN_VERSION}')"
        )


def check_before_changing(title: str, table: Table) -> None:
    """Raise `UnsupportedError` for a table whose rows cannot be written again."""
    _refuse_format(title, table)
    for column in arrow_schema(table):
        if is_uuid(column.type):
            raise UnsupportedError(
                f"column '{column.name}' of table {title} is uuid, which is read and not written, so rows of the table "
                "cannot be changed"
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that the first commit to it creates, or that this commit gives other columns and rows.

    Until then only its metadata exists, in the job. So a job that fails leaves no table, and no half of one.

    Attributes:
        metadata: the metadata of the table, as JSON, without rows.
        updates: for a table that is replaced, the changes to the existing one, as JSON; else empty.
        requirements: what these changes assume of the existing table, as JSON.
    """

    metadata: str
    updates: str = ""
    requirements: str = ""

    @staticmethod
    def of(transaction: Transaction, replaces: bool) -> NewTable:
        """Return the table that a transaction creates, which is not committed."""
        changed = transaction.table_metadata
        empty = changed.model_copy(update={"refs": {}, "current_snapshot_id": None})
        if not replaces:
            return NewTable(empty.model_dump_json())
        requirements = [_last_column(transaction._table.metadata), *transaction._requirements]
        return NewTable(empty.model_dump_json(), *map(_join_models, (transaction._updates, requirements)))

    @staticmethod
    def from_text(text: str) -> NewTable:
        """Return the table in a text of `text`."""
        return NewTable(*json.loads(text))

    def text(self) -> str:
        """Return everything as one text, which an option can have."""
        return json.dumps([self.metadata, self.updates, self.requirements])

    def open(self, loader: TableLoader, catalog: Catalog) -> Table:
        """Return the table without rows, for writing its files."""
        from pyiceberg.table import StagedTable
        from pyiceberg.table.locations import load_location_provider
        from pyiceberg.table.metadata import TableMetadataUtil

        metadata = TableMetadataUtil.parse_raw(self.metadata)
        path = load_location_provider(metadata.location, metadata.properties).new_table_metadata_file_location()
        io = catalog._load_file_io(metadata.properties, path)
        return StagedTable(loader.identifier, metadata, path, io, catalog)

    def is_in(self, existing: Table) -> bool:
        """Return whether the commit that creates this table has happened."""
        from pyiceberg.table.metadata import TableMetadataUtil

        mine, theirs = TableMetadataUtil.parse_raw(self.metadata), existing.metadata
        return bool(mine.table_uuid == theirs.table_uuid and mine.last_column_id <= theirs.last_column_id) and (
            not self.updates or mine.schema() in theirs.schemas
        )

    def fits(self, existing: Table) -> bool:
        """Return whether the table that is replaced has the columns and partitions that it had at the beginning."""
        from pydantic import TypeAdapter
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table.update import TableRequirement

        requirements: list[TableRequirement] = TypeAdapter(list[TableRequirement]).validate_json(self.requirements)
        try:
            for requirement in requirements:
                requirement.validate(existing.metadata)
        except CommitFailedException:
            return False
        return True

    def transaction(self, existing: Table | None, new: Table) -> Transaction:
        """Return the transaction that creates the table, or changes the existing one; its rows are yet to come.

        Raises:
            CommitFailedException: if the existing table was altered meanwhile.
        """
        from pydantic import TypeAdapter
        from pyiceberg.table import CreateTableTransaction, StagedTable
        from pyiceberg.table.update import TableRequirement, TableUpdate

        if existing is None:
            assert isinstance(new, StagedTable)
            return CreateTableTransaction(new)
        updates: list[TableUpdate] = TypeAdapter(list[TableUpdate]).validate_json(self.updates)
        requirements: list[TableRequirement] = TypeAdapter(list[TableRequirement]).validate_json(self.requirements)
        return existing.transaction()._stage(tuple(updates), tuple(requirements))


def _last_column(metadata: TableMetadata) -> Any:
    from pyiceberg.table.update import AssertLastAssignedFieldId

    return AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": metadata.last_column_id})


def _join_models(models: Sequence[Any]) -> str:
    return f"[{','.join(model.model_dump_json(by_alias=True) for model in models)}]"


MAIN: Final = "main"
#: Buffered rows of this many bytes in memory are written to a file before the next checkpoint.
TARGET_BYTES: Final = 128 << 20
RETENTION_MS: Final = 30 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """See the methods of `IcebergSinkBuilder`.

    Attributes:
        loader: loads the table.
        declared: the table as the program declares it; None to use the existing table's columns.
        creates: whether to create a missing table.
        evolves: whether to add missing columns to the table.
        equality: the key columns, for changes by key; empty if rows are only added.
        overwrites: whether written rows replace the partitions that they belong to.
        replaced: the partition that is replaced whatever is written: names of columns with the texts of their values.
        changes: whether rows are changed by value (`penstock.connectors.row_changes`).
        base: for such changes, the snapshot that the query has read; None for an empty table.
        branch: the branch to write to.
        target_bytes: the size in memory at which buffered rows are written to a file.
        retention_ms: how long the ledger remembers commits.
        properties: additional entries in the summary of each snapshot.
        new: the table that the first commit creates or replaces.
    """

    loader: TableLoader
    declared: DeclaredTable | None = None
    creates: bool = False
    evolves: bool = False
    equality: tuple[str, ...] = ()
    overwrites: bool = False
    replaced: tuple[tuple[str, str], ...] = ()
    changes: bool = False
    base: int | None = None
    branch: str = MAIN
    target_bytes: int = TARGET_BYTES
    retention_ms: int = RETENTION_MS
    properties: tuple[tuple[str, str], ...] = ()
    new: NewTable | None = None
