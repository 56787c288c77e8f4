"""`IcebergCatalog`: the databases and tables of an Iceberg catalog, which Spark, Flink and pyiceberg see too.

A database is a namespace. Its tables are read and written by the connector `iceberg`, which gets the options that reach
the catalog; no statement shows these. Features that Iceberg lacks (watermarks, computed columns, views, functions) are
refused; a TEMPORARY table LIKE the catalog's table adds them.

A change is one transaction of Iceberg. If another writer comes first, it is made again on top.
"""

from __future__ import annotations

import datetime
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import OperationError, PenstockError, UnsupportedError
from penstock.connectors.iceberg import tables
from penstock.sql.catalogs.catalog import CatalogBaseTable, CatalogDatabase, LakeCatalog, ObjectPath
from penstock.sql.catalogs.columns import Schema, UnresolvedColumn
from penstock.sql.connectors import iceberg as connector
from penstock.sql.connectors import iceberg_schema
from penstock.sql.data.arrow import logical_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.parser.statements import AlterAction, VersionReference

if TYPE_CHECKING:
    from pyiceberg.table import Table, Transaction

#: the value of the option `type`
TYPE: Final = "iceberg"
COMMENT: Final = "comment"
_ATTEMPTS: Final = 10
#: options that select a snapshot with its own columns
_VERSIONS: Final = (connector.SNAPSHOT_ID, connector.AS_OF, connector.TAG)


# --- the catalog ------------------------------------------------------------------------------------------------------


class IcebergCatalog(LakeCatalog):
    """See the module docstring.

    Args:
        name: the name of the catalog.
        options: the options of the connector that reach the catalog.
        loader: loads the catalog.
        default_database: created if it does not exist.
        base: the namespace that databases are in.
    """

    keeper = "Iceberg"
    metadata_tables = connector.METADATA_TABLES

    def __init__(
        self,
        name: str,
        options: Mapping[str, str],
        loader: tables.CatalogLoader,
        default_database: str,
        base: tuple[str, ...] = (),
    ) -> None:
        super().__init__(name, default_database)
        self._options = dict(options)
        self._loader = loader
        self._base = base
        self._lock = threading.Lock()
        self._opened: Any = None
        if not self.database_exists(default_database):
            self.create_database(default_database, CatalogDatabase(), ignore_if_exists=True)

    def _catalog(self) -> Any:
        with self._lock:
            if self._opened is None:
                self._opened = self._loader.load_catalog()
            return self._opened

    def close(self) -> None:
        """See `Catalog`."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _namespace(self, database: str) -> tuple[str, ...]:
        return (*self._base, *database.split("."))

    def _identifier(self, path: ObjectPath) -> tuple[str, ...]:
        return (*self._namespace(path.database_name), path.object_name)

    @contextmanager
    def _asking(self, database: str = "", path: ObjectPath | None = None) -> Iterator[Any]:
        """Yield the catalog, and give its answers the words of SQL."""
        from pyiceberg import exceptions

        database = database if path is None else path.database_name
        try:
            yield self._catalog()
        except PenstockError:
            raise  # says enough by itself
        except exceptions.NoSuchTableError as error:
            raise ValidationError(f"Table (or view) {path} does not exist in Catalog {self.name}.") from error
        except exceptions.NoSuchNamespaceError as error:
            raise ValidationError(f"Database {database} does not exist in Catalog {self.name}.") from error
        except exceptions.TableAlreadyExistsError as error:
            raise ValidationError(f"Table (or view) {path} already exists in Catalog {self.name}.") from error
        except exceptions.NamespaceAlreadyExistsError as error:
            raise ValidationError(f"Database {database} already exists in Catalog {self.name}.") from error
        except exceptions.NamespaceNotEmptyError as error:
            raise ValidationError(f"Database {database} in Catalog {self.name} is not empty: {error}") from error
        except (exceptions.ValidationError, ValueError) as error:
            raise ValidationError(f"catalog {self.name} refuses this: {_first_line(error)}") from error
        except NotImplementedError as error:
            raise UnsupportedError(
                f"catalog {self.name}: pyiceberg does not do this with a catalog of this kind ({error}): do it with "
                "the catalog's own tools, or with Spark"
            ) from error
        except exceptions.CommitFailedException:
            raise  # tried again
        except Exception as error:  # each kind of catalog has errors of its own
            self.close()  # a connection to SQLite shows changes that it did not commit
            if "Invalid method name" in str(error):
                raise UnsupportedError(
                    f"catalog {self.name}: the Hive metastore does not know what pyiceberg asks: {_first_line(error)}. "
                    "pyiceberg speaks to metastores of Hive 2 and 3: use one of these, or a catalog of another type"
                ) from error
            if "types incompatible with the existing columns" in str(error):
                raise UnsupportedError(
                    f"catalog {self.name}: the Hive metastore refuses a column that moves, goes or changes its type "
                    f"({_first_line(error)}). Run it with metastore.disallow.incompatible.col.type.changes = false"
                ) from error
            raise OperationError(f"catalog {self.name} does not do this: {_first_line(error)}") from error

    # --- databases ---------------------------------------------------------------------------------------------------

    def list_databases(self) -> list[str]:
        """See `Catalog`. Nested namespaces are not listed; `a.b` in backticks names one."""
        with self._asking(".".join(self._base)) as catalog:
            return sorted(namespace[-1] for namespace in catalog.list_namespaces(self._base))

    def database_exists(self, database_name: str) -> bool:
        """See `Catalog`."""
        with self._asking(database_name) as catalog:
            return bool(catalog.namespace_exists(self._namespace(database_name)))

    def get_database(self, database_name: str) -> CatalogDatabase:
        """See `Catalog`."""
        with self._asking(database_name) as catalog:
            properties = dict(catalog.load_namespace_properties(self._namespace(database_name)))
        properties.pop("exists", None)
        return CatalogDatabase(properties, properties.pop(COMMENT, None))

    def create_database(self, name: str, database: CatalogDatabase, ignore_if_exists: bool = False) -> None:
        """See `Catalog`."""
        with self._asking(name) as catalog:
            if ignore_if_exists and catalog.namespace_exists(self._namespace(name)):
                return
            catalog.create_namespace(self._namespace(name), _database_properties(database))

    def drop_database(self, name: str, ignore_if_exists: bool = False, cascade: bool = False) -> None:
        """See `Catalog`."""
        if ignore_if_exists and not self.database_exists(name):
            return
        inside = self.list_tables(name)
        if inside and not cascade:
            raise ValidationError(f"Database {name} in Catalog {self.name} is not empty: it has {name}.{inside[0]}")
        for table in inside:
            self.drop_table(ObjectPath(name, table), ignore_if_not_exists=True)
        with self._asking(name) as catalog:
            catalog.drop_namespace(self._namespace(name))

    def alter_database(self, name: str, new_database: CatalogDatabase, ignore_if_not_exists: bool = False) -> None:
        """See `Catalog`."""
        if ignore_if_not_exists and not self.database_exists(name):
            return
        before, after = map(_database_properties, (self.get_database(name), new_database))
        updates = {key: value for key, value in after.items() if before.get(key) != value}
        with self._asking(name) as catalog:
            catalog.update_namespace_properties(self._namespace(name), before.keys() - after.keys() or None, updates)

    # --- tables ------------------------------------------------------------------------------------------------------

    def list_tables(self, database_name: str) -> list[str]:
        """See `Catalog`."""
        self._require_database(database_name)
        with self._asking(database_name) as catalog:
            return sorted(identifier[-1] for identifier in catalog.list_tables(self._namespace(database_name)))

    def list_views(self, database_name: str) -> list[str]:
        """Return an empty list: the views of other engines are in their own SQL."""
        self._require_database(database_name)
        return []

    def table_exists(self, table_path: ObjectPath) -> bool:
        """See `Catalog`."""
        with self._asking(path=table_path) as catalog:
            if catalog.table_exists(self._identifier(table_path)):
                return True
        described = self._find_described(table_path)
        return described is not None and self.table_exists(described[0])

    def load_table(self, path: ObjectPath) -> Table:
        """Return pyiceberg's table."""
        with self._asking(path=path) as catalog:
            loader = tables.TableLoader(self._loader, self._identifier(path))
            try:
                table: Table = loader.load_table(catalog)
            except tables.MissingTableError as error:
                raise ValidationError(f"Table (or view) {path} does not exist in Catalog {self.name}.") from error
            return table

    def get_table(self, table_path: ObjectPath) -> CatalogBaseTable:
        """See `Catalog`."""
        described = self._find_described(table_path)
        if described is not None:
            return self._metadata_table(*described)
        table = self.load_table(table_path)
        return self._described(table_path, table.schema(), table.spec(), table.properties)

    def _metadata_table(self, path: ObjectPath, kind: str) -> CatalogBaseTable:
        rows = connector.load_metadata(self.load_table(path), kind)
        columns = tuple(UnresolvedColumn(field.name, logical_type(field.type)) for field in rows.schema)
        options = {**self._connector_options(path, {}), connector.METADATA_TABLE: kind}
        return CatalogBaseTable(Schema(columns), comment=f"the {kind} of {path}", connector_options=options)

    def get_table_at(self, table_path: ObjectPath, time_ms: int) -> CatalogBaseTable:
        """See `Catalog`. The table has the columns of the snapshot that was the newest one."""
        table = self.load_table(table_path)
        snapshot = table.snapshot_as_of_timestamp(time_ms)
        if snapshot is None:
            first = min((each.timestamp_ms for each in table.history()), default=None)
            when = "it has none" if first is None else f"its first is of {_utc(first)}"
            raise ValidationError(f"table {table_path} has no snapshot at or before {_utc(time_ms)}: {when}")
        older = self._at_snapshot(table_path, table, snapshot)
        options = {**older.options_for_connector(), connector.SNAPSHOT_ID.key(): str(snapshot.snapshot_id)}
        return replace(older, connector_options=options)

    def with_hints(self, table_path: ObjectPath, table: CatalogBaseTable, hints: Mapping[str, str]) -> CatalogBaseTable:
        """See `Catalog`."""
        snapshot_id, as_of, tag = (hints.get(option.key()) for option in _VERSIONS)
        if snapshot_id is None and as_of is None and tag is None:
            return table
        loaded, snapshot = self.load_table(table_path), None
        if tag is not None:
            snapshot = loaded.snapshot_by_name(tag)
        else:
            number = snapshot_id or as_of or ""
            if number.lstrip("-").isdecimal():
                find = loaded.snapshot_by_id if snapshot_id is not None else loaded.snapshot_as_of_timestamp
                snapshot = find(int(number))
        # The connector reports a missing snapshot.
        return table if snapshot is None else self._at_snapshot(table_path, loaded, snapshot)

    def find_version(self, table_path: ObjectPath, version: str) -> Mapping[str, str]:
        """See `Catalog`. A number is the id of a snapshot, other text the name of a tag or branch, as in Spark."""
        if version.removeprefix("-").isdecimal():
            return {connector.SNAPSHOT_ID.key(): version}
        refs = self.load_table(table_path).metadata.refs
        if version not in refs:
            raise ValidationError(
                f"table {table_path} has no branch or tag '{version}'; there are {', '.join(sorted(refs)) or 'none'}"
            )
        is_tag = refs[version].snapshot_ref_type.value == "tag"
        return {(connector.TAG if is_tag else connector.BRANCH).key(): version}

    def change_versions(self, table_path: ObjectPath, action: AlterAction) -> None:
        """See `Catalog`."""
        verb, _, kind = action.verb.partition(" ")
        reference = action.reference
        assert reference is not None

        def change(table: Table) -> None:
            existing = table.metadata.refs.get(reference.name)
            if verb == "DROP" and existing is None and action.if_exists:
                return
            if existing is not None and reference.if_not_exists:
                return
            _check_reference(table_path, verb, kind, reference, existing)
            manage = table.manage_snapshots()
            if verb == "DROP":
                (manage.remove_tag if kind == "TAG" else manage.remove_branch)(reference.name).commit()
                return
            snapshot_id = reference.version
            if snapshot_id is None and table.current_snapshot() is not None:
                snapshot_id = table.metadata.current_snapshot_id
            if snapshot_id is None or table.snapshot_by_id(snapshot_id) is None:
                what = "no snapshot yet" if reference.version is None else f"no snapshot {reference.version}"
                raise ValidationError(f"table {table_path} has {what}, which {kind} '{reference.name}' could name")
            if kind == "TAG":
                manage.create_tag(snapshot_id, reference.name, reference.age_ms).commit()
            else:
                ages = reference.age_ms, reference.snapshot_age_ms, reference.snapshots
                manage.create_branch(snapshot_id, reference.name, *ages).commit()

        self._retried(table_path, change)

    def _at_snapshot(self, path: ObjectPath, table: Table, snapshot: Any) -> CatalogBaseTable:
        schema = table.schema() if snapshot.schema_id is None else table.schemas()[snapshot.schema_id]
        return self._described(path, schema, None, table.properties)

    def _described(self, path: ObjectPath, schema: Any, spec: Any, properties: Mapping[str, str]) -> CatalogBaseTable:
        try:
            columns = tuple(
                UnresolvedColumn(field.name, iceberg_schema.from_field(field), comment=field.doc)
                for field in schema.fields
            )
        except UnsupportedError as error:
            raise UnsupportedError(f"table {path} of catalog {self.name}: {error}") from error
        key = tuple(field.name for field in schema.fields if field.field_id in schema.identifier_field_ids)
        partitioning = [] if spec is None else iceberg_schema.partition_texts(spec, schema)
        options = {
            name: value for name, value in sorted(properties.items()) if not iceberg_schema.HIDDEN.fullmatch(name)
        }
        is_by_columns = all(text in schema.column_names for text in partitioning)
        if not is_by_columns:
            options[connector.PARTITIONING.key()] = ", ".join(partitioning)
        return CatalogBaseTable(
            Schema(columns, (), key, "PK_" + "_".join(key) if key else None),
            options,
            properties.get(COMMENT),
            tuple(partitioning) if is_by_columns else (),
            connector_options=self._connector_options(path, properties),
        )

    def _connector_options(self, path: ObjectPath, properties: Mapping[str, str]) -> dict[str, str]:
        known = {option.key() for option in connector.OPTIONAL} - _OF_REACHING
        return {
            "connector": connector.IcebergConnector.name,
            **self._options,
            **{key: value for key, value in properties.items() if key in known},
            connector.DATABASE.key(): ".".join(self._namespace(path.database_name)),
            connector.TABLE.key(): path.object_name,
            connector.CREATE.key(): "false",
        }

    def create_table(self, table_path: ObjectPath, table: CatalogBaseTable, ignore_if_exists: bool = False) -> None:
        """See `Catalog`. Raises `UnsupportedError` for what Iceberg does not keep."""
        self._require_database(table_path.database_name)
        if ignore_if_exists and self.table_exists(table_path):
            return
        try:
            with self._asking(path=table_path) as catalog:
                self._creation(catalog, table_path, table).commit_transaction()
        except Exception as error:
            if not (_is_conflict(error) or "already exists" in str(error)) or not self.table_exists(table_path):
                raise
            if not ignore_if_exists:
                raise ValidationError(f"Table (or view) {table_path} already exists in Catalog {self.name}.") from error

    def _creation(self, catalog: Any, path: ObjectPath, table: CatalogBaseTable) -> Transaction:
        """Return the transaction that creates a table."""
        options = self._check(path, table)
        schema = iceberg_schema.to_iceberg_schema(table.schema)
        partitioning = iceberg_schema.read_partitioning(path, table, options)
        if table.comment:
            options[COMMENT] = table.comment
        transaction: Transaction = catalog.create_table_transaction(
            self._identifier(path), schema, location=options.pop("location", None), properties=options
        )
        if partitioning:
            with transaction.update_spec() as spec:
                for text in partitioning:
                    spec.add_field(*tables.partition_transform(text))
        return transaction

    def _check(self, path: ObjectPath, table: CatalogBaseTable) -> dict[str, str]:
        """Return the properties of a new table. Raises if Iceberg cannot keep the table."""
        if table.is_view:
            self._refuse("views", path, "a TEMPORARY VIEW, or one in a catalog of type 'file'")
        more = "a TEMPORARY TABLE with it, LIKE this one"
        if table.schema.watermarks:
            self._refuse("watermarks", path, more)
        if any(column.expression is not None or column.is_metadata for column in table.schema.columns):
            self._refuse("computed and metadata columns", path, more)
        if table.distribution is not None:
            self._refuse("DISTRIBUTED BY", path, f"'{connector.PARTITIONING.key()}' = 'bucket(16, id)'")
        options = dict(table.options)
        kind = options.pop("connector", connector.IcebergConnector.name)
        if kind != connector.IcebergConnector.name:
            raise ValidationError(
                f"table {path} cannot be made in catalog {self.name}, which has tables of Iceberg alone, not of the "
                f"connector '{kind}': make it TEMPORARY, or in another catalog; after LIKE, write (EXCLUDING OPTIONS)"
            )
        if "connector" in table.options:
            reaching = _OF_REACHING | {connector.CATALOG_NAME.key(), connector.CREATE.key()}
            options = {
                key: value
                for key, value in options.items()
                if key not in reaching and not connector.belongs_to_catalog(key)
            }
        return options

    def stage_table(self, table_path: ObjectPath, table: CatalogBaseTable, replaces: bool) -> CatalogBaseTable:
        """See `Catalog`. The first commit of the job creates or replaces the table."""
        self._require_database(table_path.database_name)
        with self._asking(path=table_path) as catalog:
            exists = catalog.table_exists(self._identifier(table_path))
            if exists and replaces:
                transaction = self._replacement(self.load_table(table_path), table_path, table)
            elif exists:
                raise ValidationError(f"Table (or view) {table_path} already exists in Catalog {self.name}.")
            else:
                transaction = self._creation(catalog, table_path, table)
            new = tables.NewTable.of(transaction, replaces and exists)
        options = self._connector_options(table_path, transaction.table_metadata.properties)
        return replace(table, connector_options={**options, connector.NEW_TABLE: new.text()})

    def _replacement(self, existing: Table, path: ObjectPath, table: CatalogBaseTable) -> Transaction:
        """Return the transaction that gives an existing table other columns, partitions and properties."""
        options = self._check(path, table)
        if options.pop("location", existing.location()) != existing.location():
            raise UnsupportedError(f"REPLACE TABLE {path} cannot move it to another 'location': drop it first")
        if table.comment:
            options[COMMENT] = table.comment
        schema, partitioning = (
            iceberg_schema.to_iceberg_schema(table.schema),
            iceberg_schema.read_partitioning(path, table, options),
        )
        transaction = existing.transaction()
        fields = existing.spec().fields
        if fields:
            with transaction.update_spec() as spec:
                for field in fields:
                    spec.remove_field(field.name)
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            kept = iceberg_schema.find_kept_columns(path, existing, schema)
            for old in existing.schema().fields:
                if old.name not in kept:
                    update.delete_column((old.name,))
            update.set_identifier_fields()
            for new in schema.fields:
                if new.name in kept:
                    update.update_column((new.name,), required=new.required, doc=new.doc)
                else:
                    update.add_column((new.name,), new.field_type, new.doc, new.required)
        if kept:
            with transaction.update_schema() as update:
                update.move_first((schema.fields[0].name,))
                for before, new in itertools.pairwise(schema.fields):
                    update.move_after((new.name,), (before.name,))
        if table.schema.primary_key:
            with transaction.update_schema() as update:
                update.set_identifier_fields(*table.schema.primary_key)
        if partitioning:
            with transaction.update_spec() as spec:
                for text in partitioning:
                    spec.add_field(*tables.partition_transform(text))
        iceberg_schema.change_properties(transaction, existing.properties, options)
        return transaction

    def drop_table(self, table_path: ObjectPath, ignore_if_not_exists: bool = False) -> None:
        """Drop a table and its files, unless its property `gc.enabled` is `false`, which keeps the files."""
        if ignore_if_not_exists and not self.table_exists(table_path):
            return
        keeps = self.load_table(table_path).properties.get("gc.enabled", "true").lower() == "false"
        with self._asking(path=table_path) as catalog:
            (catalog.drop_table if keeps else partial(_purge, catalog))(self._identifier(table_path))

    def rename_table(self, table_path: ObjectPath, new_table_name: str, ignore_if_not_exists: bool = False) -> None:
        """See `Catalog`."""
        if ignore_if_not_exists and not self.table_exists(table_path):
            return
        renamed = ObjectPath(table_path.database_name, new_table_name)
        if self.table_exists(renamed):
            raise ValidationError(f"Table (or view) {renamed} already exists in Catalog {self.name}.")
        with self._asking(path=table_path) as catalog:
            catalog.rename_table(self._identifier(table_path), self._identifier(renamed))

    # --- changes of tables -------------------------------------------------------------------------------------------

    def alter_table(
        self, table_path: ObjectPath, new_table: CatalogBaseTable, ignore_if_not_exists: bool = False
    ) -> None:
        """Change options and the comment. Raises `UnsupportedError` for other columns, whose history is not known."""
        if ignore_if_not_exists and not self.table_exists(table_path):
            return
        if new_table.schema != self.get_table(table_path).schema:
            raise UnsupportedError(
                f"the columns of table {table_path} in catalog {self.name} change by ALTER TABLE, which says whether "
                "one is renamed or another one"
            )
        self.change_table(table_path, new_table, ())

    def change_table(self, table_path: ObjectPath, new_table: CatalogBaseTable, actions: Sequence[AlterAction]) -> None:
        """See `Catalog`. All actions are one commit, made again if another writer comes first."""
        options = self._check(table_path, new_table)

        def change(table: Table) -> None:
            before = self._described(table_path, table.schema(), table.spec(), table.properties)
            transaction = table.transaction()
            for action in actions:
                iceberg_schema.apply_action(transaction, action)
            iceberg_schema.repartition(
                transaction, iceberg_schema.read_partitioning(table_path, new_table, dict(options))
            )
            own = {key: value for key, value in options.items() if key != connector.PARTITIONING.key()}
            iceberg_schema.change_properties(transaction, before.options, {**own, **_comment(new_table)})
            transaction.commit_transaction()

        self._retried(table_path, change)

    def _retried(self, path: ObjectPath, change: Callable[[Table], None]) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                with self._asking(path=path):
                    change(self.load_table(path))
                return
            except Exception as error:
                if not _is_conflict(error):
                    raise
                if attempt == _ATTEMPTS - 1:
                    raise OperationError(
                        f"table {path} of catalog {self.name} was changed by other writers {_ATTEMPTS} times in a row: "
                        "run the statement again"
                    ) from error

    def list_partitions(self, table_path: ObjectPath) -> list[str] | None:
        """See `Catalog`. Hidden partitions are listed by the names of Iceberg, such as `day_ts=2026-01-31`."""
        table = self.load_table(table_path)
        if table.spec().is_unpartitioned():
            return None
        listed = set()
        for task in table.scan().plan_files():
            spec = table.specs()[task.file.spec_id]
            texts = []
            for index, field in enumerate(spec.fields):
                source = table.schema().find_type(field.source_id)
                value = task.file.partition[index]
                text = field.transform.to_human_string(field.transform.result_type(source), value)
                texts.append(f"{field.name}={'__HIVE_DEFAULT_PARTITION__' if value is None else text}")
            listed.add("/".join(texts))
        return sorted(listed)


def _check_reference(path: ObjectPath, verb: str, kind: str, reference: VersionReference, existing: Any) -> None:
    """Raise `ValidationError` for a branch or tag that is missing, is there already, or is of the other kind."""
    title = f"{kind} '{reference.name}' of table {path}"
    is_new = verb == "CREATE" and not reference.replaces
    if existing is None and verb != "CREATE":
        raise ValidationError(f"{title} does not exist")
    if existing is not None and is_new:
        raise ValidationError(f"{title} exists already: write CREATE OR REPLACE {kind}, or IF NOT EXISTS")
    if existing is not None and existing.snapshot_ref_type.value.upper() != kind:
        raise ValidationError(f"'{reference.name}' of table {path} is a {existing.snapshot_ref_type.value}")
    if reference.name == tables.MAIN and verb == "DROP":
        raise ValidationError(f"{title} is the table itself, and cannot be dropped")


def _purge(catalog: Any, identifier: tuple[str, ...]) -> None:
    """Drop a table and remove its files, also in pyiceberg's catalog of Hive, which only drops by itself."""
    from pyiceberg.catalog import MetastoreCatalog

    try:
        catalog.purge_table(identifier)
    except NotImplementedError:
        if not isinstance(catalog, MetastoreCatalog):
            raise
        MetastoreCatalog.purge_table(catalog, identifier)


def _comment(table: CatalogBaseTable) -> dict[str, str]:
    return {COMMENT: table.comment} if table.comment else {}


def _utc(time_ms: int) -> str:
    return datetime.datetime.fromtimestamp(time_ms / 1_000, datetime.UTC).isoformat(timespec="milliseconds")


def _database_properties(database: CatalogDatabase) -> dict[str, str]:
    return {**database.properties, **({COMMENT: database.comment} if database.comment else {})}


def _is_conflict(error: Exception) -> bool:
    from pyiceberg.exceptions import CommitFailedException

    return isinstance(error, CommitFailedException)


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


# --- CREATE CATALOG ---------------------------------------------------------------------------------------------------

#: options of the connector that only reach a table
_OF_REACHING: Final = frozenset(
    option.key()
    for option in (connector.CATALOG_TYPE, connector.URI, connector.WAREHOUSE, connector.DATABASE, connector.TABLE)
)
#: Iceberg's classes of catalogs, and the types that pyiceberg has for them
_CLASSES: Final = {
    "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.jdbc.JdbcCatalog": "sql",
    "org.apache.iceberg.hive.HiveCatalog": "hive",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
    "org.apache.iceberg.aws.dynamodb.DynamoDbCatalog": "dynamodb",
    "org.apache.iceberg.hadoop.HadoopCatalog": "hadoop",
    "org.apache.iceberg.gcp.bigquery.BigQueryMetastoreCatalog": "bigquery",
}
_TYPES: Final = ("rest", "sql", "hive", "glue", "hadoop", "dynamodb", "bigquery")
#: options that change nothing: every statement reads the newest metadata, and files are opened by the scheme of a path
_WITHOUT_EFFECT: Final = ("cache-enabled", "cache.expiration-interval-ms", "cache.case-sensitive", "io-impl", "clients")
_REMEDIES: Final = {
    "hive-conf-dir": "give the metastore's address in 'uri' and the directory of tables in 'warehouse'",
    "hadoop-conf-dir": "give the file system's own options, such as 's3.endpoint' and 's3.access-key-id'",
    "catalog-impl": "the classes of Iceberg's own catalogs are known: " + ", ".join(_CLASSES),
}
_OWN: Final = (
    "type",
    "catalog-type",
    "catalog-impl",
    "catalog-name",
    "uri",
    "warehouse",
    "default-database",
    "base-namespace",
    "property-version",
)


def iceberg_catalog(name: str, options: dict[str, str]) -> IcebergCatalog:
    """Return a catalog from the options of CREATE CATALOG, which match Iceberg's connector for Flink.

    Raises:
        ValidationError: for missing or wrong options.
        UnsupportedError: for a catalog that pyiceberg does not have.
        ConfigurationError: if pyiceberg, or its package for this kind of catalog, is not installed.
    """
    tables.require_library()
    kind = _kind(name, options)
    unknown = [
        key
        for key in sorted(options.keys() - {*_OWN, *_WITHOUT_EFFECT})
        if not connector.belongs_to_catalog(key) and not key.startswith("jdbc.")
    ]
    if unknown:
        remedy = _REMEDIES.get(unknown[0], "an option of pyiceberg's catalog takes the prefix 'catalog.'")
        raise ValidationError(f"Unsupported options found for catalog '{name}': {', '.join(unknown)}: {remedy}")
    if options.get("property-version", "1") != "1":
        raise ValidationError(f"catalog '{name}': 'property-version' is 1, not '{options['property-version']}'")
    reaching = {connector.CATALOG_NAME.key(): options.get("catalog-name", name)}
    if kind is not None:
        reaching[connector.CATALOG_TYPE.key()] = kind
    for key in ("uri", "warehouse"):
        if key in options:
            reaching[key] = options[key]
    if kind in ("sql", "hadoop") and "warehouse" not in options:
        raise ValidationError(f"catalog '{name}' of 'catalog-type' = '{kind}' needs 'warehouse', where its tables go")
    if kind == "sql":
        reaching["uri"] = _database_uri(name, options)
    reaching |= {key: value for key, value in options.items() if connector.belongs_to_catalog(key)}
    base = tuple(part for part in options.get("base-namespace", "").split(".") if part)
    loader = connector.read_catalog_loader(reaching)
    return IcebergCatalog(name, reaching, loader, options.get("default-database", "default"), base)


def _kind(name: str, options: Mapping[str, str]) -> str | None:
    kind, java = options.get("catalog-type"), options.get("catalog-impl")
    if kind is not None and java is not None:
        raise ValidationError(f"catalog '{name}' has 'catalog-type' and 'catalog-impl': leave out one of the two")
    if java is not None:
        if java not in _CLASSES:
            hint = "Nessie serves the REST protocol: use 'catalog-type' = 'rest'" if "nessie" in java else ""
            raise UnsupportedError(
                f"catalog '{name}': 'catalog-impl' = '{java}' is a class of Java that pyiceberg has no counterpart "
                f"for. {hint or 'Use one of ' + ', '.join(_CLASSES) + ', or set catalog.py-catalog-impl'}"
            )
        return _CLASSES[java]
    if kind is None:
        if "catalog.py-catalog-impl" in options:
            return None
        raise ValidationError(f"catalog '{name}' of type 'iceberg' needs 'catalog-type', one of {', '.join(_TYPES)}")
    known = {"jdbc": "sql"}.get(kind.lower(), kind.lower())
    if known in ("in-memory", "memory"):
        raise UnsupportedError(
            f"catalog '{name}': each process would have its own 'in-memory' catalog, and no worker would find a table: "
            "use 'catalog-type' = 'sql' with 'uri' = 'sqlite:///PATH/catalog.db'"
        )
    if known == "nessie":
        raise UnsupportedError(f"catalog '{name}': Nessie serves the REST protocol: use 'catalog-type' = 'rest'")
    if known not in _TYPES:
        raise ValidationError(f"catalog '{name}': there is no 'catalog-type' '{kind}', but {', '.join(_TYPES)}")
    return known


def _database_uri(name: str, options: Mapping[str, str]) -> str:
    """Return the URI of the database for SQLAlchemy, from a URI or a JDBC URL."""
    from urllib.parse import quote

    uri = options.get("uri", "")
    if not uri:
        raise ValidationError(f"catalog '{name}' of 'catalog-type' = 'sql' needs 'uri': the address of a database")
    if not uri.startswith("jdbc:"):
        return uri
    scheme, separator, rest = uri.removeprefix("jdbc:").partition("://")
    if not separator and scheme.startswith("sqlite:"):
        return f"sqlite:///{scheme.removeprefix('sqlite:').removeprefix('file:')}"
    driver = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}.get(scheme)
    if driver is None:
        raise UnsupportedError(f"catalog '{name}': no database of {scheme!r} is known: use PostgreSQL, MySQL or SQLite")
    user, password = options.get("jdbc.user"), options.get("jdbc.password")
    account = (
        "" if user is None else quote(user, safe="") + ("" if password is None else f":{quote(password, safe='')}")
    )
    return f"{driver}://{account}{'@' if account else ''}{rest}"


__all__ = ["IcebergCatalog", "iceberg_catalog"]
