"""The adapter: what dbt asks of relations, and what the macros ask of tables and streaming jobs."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from dbt.adapters.base import available
from dbt.adapters.base.impl import ConstraintSupport
from dbt.adapters.capability import Capability, CapabilityDict, CapabilitySupport, Support
from dbt.adapters.contracts.relation import RelationType
from dbt.adapters.penstock.connections import Handle, PenstockConnectionManager, PenstockCredentials
from dbt.adapters.penstock.declarations import (
    Declaration,
    comment_of,
    literal,
    option_text,
    options_of,
    plain_type,
    quoted,
    value,
    with_clause,
)
from dbt.adapters.penstock.gateway import GatewayError
from dbt.adapters.penstock.jobs import JobConfig, StreamingJobs
from dbt.adapters.penstock.relations import PenstockColumn, PenstockRelation
from dbt.adapters.sql import SQLAdapter
from dbt_common.contracts.constraints import ConstraintType
from dbt_common.exceptions import DbtRuntimeError

if TYPE_CHECKING:
    import agate

FILES: Final = "filesystem"
#: The number of rows and of characters of an INSERT of a seed; the gateway takes at most 1 MiB.
SEED_ROWS_MAX: Final = 2_000
SEED_CHARACTERS_MAX: Final = 250_000
_CATALOG_COLUMNS: Final = (
    "table_database",
    "table_schema",
    "table_name",
    "table_type",
    "table_comment",
    "table_owner",
    "column_name",
    "column_index",
    "column_type",
    "column_comment",
)


class PenstockAdapter(SQLAdapter):
    """See the module docstring."""

    ConnectionManager = PenstockConnectionManager
    Relation = PenstockRelation
    Column = PenstockColumn
    CONSTRAINT_SUPPORT: ClassVar[dict[ConstraintType, ConstraintSupport]] = {
        ConstraintType.check: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.not_null: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.unique: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.primary_key: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.foreign_key: ConstraintSupport.NOT_SUPPORTED,
    }
    _capabilities = CapabilityDict(
        {Capability.SchemaMetadataByRelations: CapabilitySupport(support=Support.Full)},
    )

    # --- the connection ----------------------------------------------------------------------------------------------

    @property
    def _credentials(self) -> PenstockCredentials:
        return self.config.credentials  # type: ignore[no-any-return]

    def _handle(self) -> Handle:
        return self.connections.get_thread_connection().handle  # type: ignore[no-any-return]

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        _, cursor = self.connections.add_query(sql, auto_begin=False)
        return cursor.fetchall()  # type: ignore[no-any-return]

    def _run(self, sql: str) -> None:
        self.connections.add_query(sql, auto_begin=False)

    def debug_query(self) -> None:
        """Check the connection, without a job."""
        self._rows("SHOW CATALOGS")

    @classmethod
    def date_function(cls) -> str:
        """See `BaseAdapter`."""
        return "CURRENT_DATE"

    @classmethod
    def quote(cls, identifier: str) -> str:
        """See `BaseAdapter`."""
        return quoted(identifier)

    # --- types of seeds ----------------------------------------------------------------------------------------------

    @classmethod
    def convert_text_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """See `BaseAdapter`."""
        return "STRING"

    @classmethod
    def convert_number_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """See `BaseAdapter`."""
        import agate

        return "DOUBLE" if agate_table.aggregate(agate.MaxPrecision(col_idx)) else "BIGINT"

    @classmethod
    def convert_integer_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """See `BaseAdapter`."""
        return "BIGINT"

    @classmethod
    def convert_boolean_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """See `BaseAdapter`."""
        return "BOOLEAN"

    @classmethod
    def convert_datetime_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """See `BaseAdapter`."""
        return "TIMESTAMP(6)"

    @classmethod
    def convert_date_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """See `BaseAdapter`."""
        return "DATE"

    @classmethod
    def convert_time_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """See `BaseAdapter`."""
        return "TIME"

    # --- schemas and relations ---------------------------------------------------------------------------------------

    def list_schemas(self, database: str) -> list[str]:
        """Return the databases of a catalog."""
        catalog = (database or self._credentials.database).strip("`")  # dbt quotes it here and there
        return [row[0] for row in self._rows(f"SHOW DATABASES FROM {quoted(catalog)}")]

    def check_schema_exists(self, database: str, schema: str) -> bool:
        """Return whether a catalog has a database."""
        return schema in self.list_schemas(database)

    def create_schema(self, relation: PenstockRelation) -> None:
        """Create a database."""
        name = relation.without_identifier()
        self._run(f"CREATE DATABASE IF NOT EXISTS {name}")

    def drop_schema(self, relation: PenstockRelation) -> None:
        """Drop a database with its tables, and stop its streaming jobs."""
        database, schema = str(relation.database), str(relation.schema)
        if not self.check_schema_exists(database, schema):
            return
        for known in self.list_relations_without_caching(relation):
            self._end_job(known)
        self._run(f"DROP DATABASE IF EXISTS {quoted(database, schema)} CASCADE")
        self._discard(f"{self._credentials.warehouse}/{schema}", set())
        self.cache.drop_schema(database, schema)

    def list_relations_without_caching(self, schema_relation: PenstockRelation) -> list[PenstockRelation]:
        """Return the tables and views of a database; none if it does not exist."""
        database, schema = str(schema_relation.database), str(schema_relation.schema)
        if not self.check_schema_exists(database, schema):
            return []
        path = quoted(database, schema)
        views = {row[0] for row in self._rows(f"SHOW VIEWS FROM {path}")}
        return [
            self.Relation.create(
                database=database,
                schema=schema,
                identifier=name,
                type=RelationType.View if name in views else RelationType.Table,
            )
            for (name,) in self._rows(f"SHOW TABLES FROM {path}")
        ]

    def get_columns_in_relation(self, relation: PenstockRelation) -> list[PenstockColumn]:
        """Return the columns of a table or view; none if it does not exist."""
        try:
            rows = self._handle().run(f"DESCRIBE {relation.render()}").rows
        except GatewayError as error:
            if self._existing(relation) is None:
                return []
            raise DbtRuntimeError(str(error)) from error
        return [self.Column(row[0], plain_type(row[1])) for row in rows]

    @available.parse(lambda *a, **k: [])
    def get_column_schema_from_query(self, sql: str) -> list[PenstockColumn]:
        """Return the columns of a query, without running it."""
        view = quoted(self._credentials.database, self._credentials.schema, "dbt__columns")
        self._run(f"DROP TEMPORARY VIEW IF EXISTS {view}")
        self._run(f"CREATE TEMPORARY VIEW {view} AS {sql}")
        try:
            return [self.Column(row[0], plain_type(row[1])) for row in self._rows(f"DESCRIBE {view}")]
        finally:
            self._run(f"DROP TEMPORARY VIEW IF EXISTS {view}")

    def expand_column_types(self, goal: PenstockRelation, current: PenstockRelation) -> None:
        """Do nothing: texts have no length that they could grow beyond."""

    @available
    def drop_relation(self, relation: PenstockRelation) -> None:
        """Drop a table or view, and a temporary view of its name. A streaming job of its name is stopped."""
        name = relation.render()
        self._run(f"DROP TEMPORARY VIEW IF EXISTS {name}")
        known = [r for r in self.list_relations_without_caching(relation) if r.identifier == relation.identifier]
        for existing in known:
            self._end_job(existing)
            self._run(f"DROP {'VIEW' if existing.is_view else 'TABLE'} IF EXISTS {name}")
            self._discard(self._folder(relation), set())
        self.cache_dropped(relation)

    @available
    def truncate_relation(self, relation: PenstockRelation) -> None:
        """Refuse: tables are replaced by new versions."""
        raise DbtRuntimeError(f"{relation} cannot be truncated: replace it by a table without rows")

    @available
    def rename_relation(self, from_relation: PenstockRelation, to_relation: PenstockRelation) -> None:
        """Rename a table or view."""
        kind = "VIEW" if from_relation.is_view else "TABLE"
        target = quoted(str(to_relation.identifier))
        self._run(f"ALTER {kind} {from_relation.render()} RENAME TO {target}")
        self.cache_renamed(from_relation, to_relation)

    # --- tables ------------------------------------------------------------------------------------------------------

    @available
    def stores_tables(self, relation: PenstockRelation) -> bool:
        """Return whether the catalog stores tables itself, and replaces one together with its rows."""
        return self._credentials.stores_tables(str(relation.database))

    def _folder(self, relation: PenstockRelation) -> str:
        database = "" if relation.database == self._credentials.database else f"{relation.database}."
        return f"{self._credentials.warehouse}/{database}{relation.schema}/{relation.identifier}"

    @available
    def table_options(self, relation: PenstockRelation, connector: str | None, given: Mapping[str, Any] | None) -> str:
        """Return WITH and the options of a new version of a table, or nothing in a catalog that stores tables."""
        options = {key: option_text(text) for key, text in (given or {}).items()}
        if not self.stores_tables(relation):
            options = {"connector": connector or FILES} | options
            if options["connector"] == FILES:
                options = {"format": "parquet", "path": f"{self._folder(relation)}/{uuid.uuid4().hex[:12]}"} | options
        return with_clause(options) if options else ""

    @available
    def publish(self, staging: PenstockRelation, target: PenstockRelation) -> None:
        """Let readers see a new version of a table, which is complete.

        If nothing but the place of its rows has changed, this is one change of one file of the catalog. Otherwise the
        table before is dropped, and the new one renamed.
        """
        name = target.render()
        created = str(self._rows(f"SHOW CREATE TABLE {staging.render()}")[0][0])
        existing = self._existing(target)
        path = options_of(created).get("path", "")
        before = ""
        if existing is not None and existing.is_table:
            shown = str(self._rows(f"SHOW CREATE TABLE {name}")[0][0])
            before = options_of(shown).get("path", "")
            if path and shown.replace(literal(before), literal(path)) == created.replace(staging.render(), name):
                self._run(f"ALTER TABLE {name} SET ('path' = {literal(path)})")
                self._run(f"DROP TABLE {staging.render()}")
                self._discard(self._folder(target), {path, before})
                return
        if existing is not None:
            self._run(f"DROP {'VIEW' if existing.is_view else 'TABLE'} {name}")
        self._run(f"ALTER TABLE {staging.render()} RENAME TO {quoted(str(target.identifier))}")
        self._discard(self._folder(target), {path, before})
        self.cache_added(target.incorporate(type=RelationType.Table))

    def _existing(self, relation: PenstockRelation) -> PenstockRelation | None:
        relations = self.list_relations_without_caching(relation)
        return next((known for known in relations if known.identifier == relation.identifier), None)

    def _discard(self, folder: str, kept: set[str]) -> None:
        """Delete versions of a table that nobody reads any longer, if this host reaches them.

        The version before the newest stays, for queries that read it just now.
        """
        if not folder.startswith(f"{self._credentials.warehouse}/") or not os.path.isdir(folder):
            return
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
            return
        for version in os.listdir(folder):
            if f"{folder}/{version}" not in kept:
                shutil.rmtree(f"{folder}/{version}", ignore_errors=True)

    @available
    def replace_view(self, relation: PenstockRelation, sql: str, comment: str = "") -> str:
        """Return the statement that makes a view of a query, after what has to be dropped is dropped.

        A view that exists is altered, which is one change of one file of the catalog.
        """
        name = relation.render()
        existing = self._existing(relation)
        if existing is not None and existing.is_view:
            shown = str(self._rows(f"SHOW CREATE VIEW {name}")[0][0])
            if comment_of(shown) == comment:
                return f"ALTER VIEW {name} AS {sql}"
        if existing is not None:
            self._check_query(sql)
            self._end_job(existing)
            self._run(f"DROP {'VIEW' if existing.is_view else 'TABLE'} {name}")
        text = f" COMMENT {literal(comment)}" if comment else ""
        return f"CREATE VIEW {name}{text} AS {sql}"

    def _check_query(self, sql: str) -> None:
        """Raise the error of a query before anything is dropped for it."""
        self.get_column_schema_from_query(sql)

    @available
    def insert_statements(self, relation: PenstockRelation, table: agate.Table, types: Sequence[str]) -> list[str]:
        """Return the statements that write the rows of a seed."""
        statements: list[str] = []
        rows: list[str] = []
        size = 0
        columns = ", ".join(quoted(name) for name in table.column_names)
        for row in table.rows:
            text = ", ".join(value(content, kind) for content, kind in zip(row, types, strict=True))
            if rows and (len(rows) >= SEED_ROWS_MAX or size + len(text) > SEED_CHARACTERS_MAX):
                statements.append(f"INSERT INTO {relation.render()} ({columns}) VALUES {', '.join(rows)}")
                rows, size = [], 0
            rows.append(f"({text})")
            size += len(text)
        if rows:
            statements.append(f"INSERT INTO {relation.render()} ({columns}) VALUES {', '.join(rows)}")
        return statements

    # --- sources -----------------------------------------------------------------------------------------------------

    @available
    def source_statement(self, source: Mapping[str, Any]) -> str:
        """Return the statement that declares a source, from its columns and `meta.penstock`; empty without them."""
        given = dict((source.get("config") or {}).get("meta") or {}) | dict(source.get("meta") or {})
        settings = given.get("penstock")
        if not settings:
            return ""
        columns = []
        for column in source["columns"].values():
            data_type = column.get("data_type") or ""
            if not data_type:
                raise DbtRuntimeError(f"the column {column['name']} of {source['unique_id']} needs a data_type")
            columns.append((column["name"], data_type))
        options = {key: option_text(text) for key, text in (settings.get("with") or {}).items()}
        declaration = Declaration(
            columns,
            {"connector": settings["connector"]} | options if "connector" in settings else options,
            tuple(settings.get("primary_key") or ()),
            settings.get("watermark") or "",
            tuple(settings.get("partitioned_by") or ()),
            (source.get("description") or "").strip(),
        )
        return declaration.create(quoted(source["database"], source["schema"], source["identifier"]))

    @available
    def declare_source(self, source: Mapping[str, Any]) -> None:
        """Declare a source; one that is declared in the same way stays as it is."""
        statement = self.source_statement(source)
        if not statement:
            return
        relation = self.Relation.create(source["database"], source["schema"], source["identifier"])
        self.create_schema(relation)
        staging = relation.incorporate(path={"identifier": f"{relation.identifier}__dbt_new"})
        self._run(f"DROP TABLE IF EXISTS {staging.render()}")
        self._run(statement.replace(relation.render(), staging.render(), 1))
        existing = self._existing(relation)
        if existing is not None:
            created = str(self._rows(f"SHOW CREATE TABLE {staging.render()}")[0][0])
            kind = "VIEW" if existing.is_view else "TABLE"
            shown = str(self._rows(f"SHOW CREATE {kind} {relation.render()}")[0][0])
            if shown == created.replace(staging.render(), relation.render()):
                self._run(f"DROP TABLE {staging.render()}")
                return
            self._run(f"DROP {kind} {relation.render()}")
        self._run(f"ALTER TABLE {staging.render()} RENAME TO {quoted(str(relation.identifier))}")
        self.cache_added(relation.incorporate(type=RelationType.Table))

    # --- streaming jobs ----------------------------------------------------------------------------------------------

    def _jobs(self) -> StreamingJobs:
        return StreamingJobs(self._handle())

    @available
    def run_streaming_job(
        self, relation: PenstockRelation, sql: str, config: Mapping[str, Any], full_refresh: bool
    ) -> str:
        """Let the job of a model run, and return what was done."""
        options = {key: option_text(text) for key, text in (config.get("with") or {}).items()}
        if not self.stores_tables(relation):
            options = {"connector": config.get("connector") or FILES} | options
        if options.get("connector") == FILES:
            options = {"format": "json", "path": f"{self._folder(relation)}/{{generation}}"} | options
        job_options = {key: option_text(text) for key, text in (config.get("job_options") or {}).items()}
        keys = config.get("primary_key") or ()
        partitions = config.get("partitioned_by") or ()
        settings = JobConfig(
            options,
            job_options,
            (keys,) if isinstance(keys, str) else tuple(keys),
            (partitions,) if isinstance(partitions, str) else tuple(partitions),
            config.get("comment") or "",
            dict(config.get("comments") or {}),
        )
        try:
            done = self._jobs().run(relation, sql, settings, full_refresh)
        except GatewayError as error:
            raise DbtRuntimeError(str(error)) from error
        self.cache_added(relation.incorporate(type=RelationType.Table))
        return done

    @available
    def stop_streaming_job(self, relation: PenstockRelation) -> str:
        """Stop the job of a model with a savepoint, from which the next run resumes."""
        return self._jobs().end(relation)

    @available
    def refuse_streaming_job(self, relation: PenstockRelation, full_refresh: bool) -> None:
        """End the streaming job that a model had before it became something else, with --full-refresh only."""
        jobs = self._jobs()
        record = jobs.settle(relation)
        if record.valid is None:
            return
        if not full_refresh:
            steps = "\n".join(f"  - {step}" for step in record.valid.states.values())
            raise DbtRuntimeError(
                f"the model {relation} was a streaming job, whose state would be lost:\n{steps}\nRun with "
                "--full-refresh to give it up."
            )
        jobs.end(relation, forget=True)

    def _end_job(self, relation: PenstockRelation) -> None:
        if relation.is_table:
            jobs = self._jobs()
            if jobs.records.read(relation).generation:
                jobs.end(relation, forget=True)

    # --- docs --------------------------------------------------------------------------------------------------------

    def get_catalog(self, relation_configs: Iterable[Any], used_schemas: Any) -> tuple[agate.Table, list[Exception]]:
        """Return the tables and columns of the project's databases, for the documents."""
        schemas = {(config.database, config.schema) for config in relation_configs if config.database and config.schema}
        relations = []
        with self.connection_named("catalog"):
            for database, schema in sorted(schemas):
                relations += self.list_relations_without_caching(self.Relation.create(database, schema))
            return self._catalog_of(relations)

    def get_catalog_by_relations(
        self, used_schemas: Any, relations: Iterable[PenstockRelation]
    ) -> tuple[agate.Table, list[Exception]]:
        """Return the columns of some tables, for the documents."""
        with self.connection_named("catalog"):
            known = [self._existing(relation) for relation in relations]
            return self._catalog_of([relation for relation in known if relation is not None])

    def _catalog_of(self, relations: Sequence[PenstockRelation]) -> tuple[agate.Table, list[Exception]]:
        import agate

        rows: list[tuple[Any, ...]] = []
        errors: list[Exception] = []
        for relation in relations:
            kind = "VIEW" if relation.is_view else "TABLE"
            try:
                text = str(self._rows(f"SHOW CREATE {kind} {relation.render()}")[0][0])
                columns = self._rows(f"DESCRIBE {relation.render()}")
            except DbtRuntimeError as error:
                errors.append(error)
                continue
            for index, column in enumerate(columns, 1):
                path = (relation.database, relation.schema, relation.identifier)
                described = (column[0], index, plain_type(column[1]), column[6] if len(column) > 6 else None)
                rows.append((*path, kind, comment_of(text) or None, None, *described))
        types = [agate.Text() if name != "column_index" else agate.Number() for name in _CATALOG_COLUMNS]
        return agate.Table(rows, _CATALOG_COLUMNS, types), errors

    # --- other -------------------------------------------------------------------------------------------------------

    def valid_incremental_strategies(self) -> list[str]:
        """Return the strategies of incremental models."""
        return ["append", "merge"]

    def timestamp_add_sql(self, add_to: str, number: int = 1, interval: str = "hour") -> str:
        """See `BaseAdapter`."""
        return f"TIMESTAMPADD({interval.upper()}, {number}, {add_to})"

    @classmethod
    def is_cancelable(cls) -> bool:
        """Whether statements can be cancelled."""
        return True
