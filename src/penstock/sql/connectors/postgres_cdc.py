"""The `postgres-cdc` connector: reads PostgreSQL tables, then their changes, with Flink's connector options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import ConfigurationError
from penstock.connectors.postgres.cdc import options as changes
from penstock.connectors.postgres.cdc.options import ALL as ALL_CHANGES
from penstock.connectors.postgres.cdc.source import PORT as POSTGRES_PORT
from penstock.connectors.postgres.cdc.source import PostgresSource
from penstock.connectors.postgres.client import Address, driver
from penstock.sql.connectors.jdbc import UNREPRESENTABLE, check_types
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import ALL, Scan
from penstock.sql.tables.connector import TableConnector, TableOptions
from penstock.sql.tables.tables import TableReader, column_names


def _text(key: str, description: str) -> ConfigOption[str | None]:
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


HOSTNAME: Final = _text("hostname", "The host name of the server.")
USERNAME: Final = _text("username", "The user name; the user needs REPLICATION, and SELECT on the table.")
PASSWORD: Final = _text("password", "The password.")
DATABASE: Final = _text("database-name", "The name of the database.")
SCHEMA: Final = _text("schema-name", "The schema of the table, or a regular expression that matches its name.")
TABLE: Final = _text(
    "table-name",
    "The name of the table, or a regular expression that matches the names of several: all need the columns declared.",
)
SLOT: Final = _text(
    "slot.name", "The replication slot; it is created if it does not exist, and kept when the job ends."
)
PORT: Final = (
    ConfigOptions.key("port").int_type().default_value(POSTGRES_PORT).with_description("The port of the server.")
)
PLUGIN: Final = (
    ConfigOptions.key("decoding.plugin.name")
    .string_type()
    .default_value("pgoutput")
    .with_description("The logical decoding plugin; only `pgoutput` is supported.")
)
PUBLICATION: Final = _text(
    "publication.name",
    "The publication; it is created if it does not exist. If unset, the slot's name followed by `_publication`.",
)
INCOMPLETE: Final = (
    ConfigOptions.key("publication.allow-incomplete")
    .boolean_type()
    .default_value(False)
    .with_description(
        "Whether the publication may omit rows (`WHERE`) and kinds of changes (`publish`). If false, the job fails "
        "before it reads anything."
    )
)
AUTOCREATE: Final = (
    ConfigOptions.key("publication.autocreate.mode")
    .string_type()
    .default_value(changes.FILTERED)
    .with_description(
        "The tables of a missing publication: `filtered`: the tables that are read; `all_tables`; "
        "`disabled`: the job makes no publication, and fails."
    )
)
ADDED: Final = (
    ConfigOptions.key("scan.newly-added-table.enabled")
    .boolean_type()
    .default_value(False)
    .with_description(
        "Whether a job that starts from a savepoint, or recovers, adds tables that have appeared since to the "
        "publication, and reads their rows while the log goes on. If false, it ignores them."
    )
)
STARTUP: Final = (
    ConfigOptions.key("scan.startup.mode")
    .string_type()
    .default_value(changes.INITIAL)
    .with_description(
        "`initial`: the table, then its changes; `latest-offset`: new changes only; `committed-offset`: the changes "
        "retained by the slot; `snapshot`: the table only, bounded."
    )
)
MODE: Final = (
    ConfigOptions.key("changelog-mode")
    .string_type()
    .default_value(ALL_CHANGES)
    .with_description(
        "`all`: updates include the previous row, which needs REPLICA IDENTITY FULL; `upsert`: upserts by primary key."
    )
)
TRUNCATES: Final = (
    ConfigOptions.key("truncate.mode")
    .string_type()
    .default_value(changes.FAIL)
    .with_description("How to treat a TRUNCATE: `fail` the job, or `skip` it and keep its rows.")
)
CHUNK: Final = (
    ConfigOptions.key("scan.incremental.snapshot.chunk.size")
    .int_type()
    .default_value(changes.CHUNK_SIZE)
    .with_description("The number of rows to read in one transaction.")
)
INCREMENTAL: Final = (
    ConfigOptions.key("scan.incremental.snapshot.enabled")
    .boolean_type()
    .default_value(True)
    .with_description("No effect: a snapshot is always read in chunks, and resumes where it stopped.")
)
HEARTBEAT: Final = (
    ConfigOptions.key("heartbeat.interval.ms")
    .duration_type()
    .default_value(changes.HEARTBEAT_MS)
    .with_description(
        "The interval at which the server is asked for its log position, so that a quiet table does not hold back its "
        "log."
    )
)
DELAY: Final = (
    ConfigOptions.key("scan.lsn-commit.checkpoints-num-delay")
    .int_type()
    .default_value(changes.CONFIRM_DELAY)
    .with_description("The server keeps its log for the last completed checkpoint and this number of earlier ones.")
)
_OPTIONAL: Final[tuple[ConfigOption[Any], ...]] = (
    PASSWORD,
    PORT,
    PLUGIN,
    PUBLICATION,
    INCOMPLETE,
    AUTOCREATE,
    ADDED,
    STARTUP,
    MODE,
    TRUNCATES,
    UNREPRESENTABLE,
    INCREMENTAL,
    CHUNK,
    HEARTBEAT,
    DELAY,
)
_REFUSED: Final = (
    (re.compile(r"debezium\..*"), "no Debezium is below it"),
    (
        re.compile(r"scan\.incremental\.snapshot\.(chunk\.key-column|backfill\.skip|unbounded-chunk-first\.enabled)"),
        "chunks are in the order of the primary key, each with its snapshot",
    ),
    (
        re.compile(r"scan\.incremental\.close-idle-reader\.enabled|chunk-meta\.group\.size|chunk-key\..*"),
        "a reader has one connection, and ends when there is nothing left for it",
    ),
    (re.compile(r"scan\.snapshot\.fetch\.size"), "a chunk is fetched as a whole: scan.incremental.snapshot.chunk.size"),
    (re.compile(r"connect\..*|connection\.pool\.size"), "a job has one connection"),
    (re.compile(r"scan\.read-changelog-as-append-only\.enabled"), "ask for changes by TO_CHANGELOG"),
)
_STRING: Final = types.VarCharType(types.LENGTH_MAX, False)
METADATA: Final[Mapping[str, DataType]] = {
    "database_name": _STRING,
    "schema_name": _STRING,
    "table_name": _STRING,
    "op_ts": types.LocalZonedTimestampType(3, False),
    "row_kind": _STRING,
}


class PostgresCdcConnector(TableConnector):
    """See the module docstring."""

    name = "postgres-cdc"
    required_options = (HOSTNAME, USERNAME, DATABASE, SCHEMA, TABLE, SLOT)
    optional_options = _OPTIONAL

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return no options; raise `UnsupportedError` with the reason for unsupported ones."""
        options.refuse(_REFUSED)
        return ()

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the metadata of a change."""
        return METADATA

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return the reader; raise `ValidationError` for invalid option values."""
        driver()
        check_types(options.title, scan.schema)
        if options.read(PLUGIN) != "pgoutput":
            raise options.wrong(PLUGIN.key(), f"changes come by pgoutput, not by {options.read(PLUGIN)!r}")
        settings = self._settings(scan, options)
        if settings.startup == changes.SNAPSHOT:
            return TableReader(PostgresSource(settings), key=scan.key)
        if settings.mode == ALL_CHANGES:
            return TableReader(PostgresSource(settings), ALL, has_before=True, key=scan.key)
        if not scan.key:
            raise ValidationError(
                f"table {options.title} declares no PRIMARY KEY, which '{MODE.key()}' = 'upsert' is about: declare the "
                "one that the table has in PostgreSQL"
            )
        return TableReader(PostgresSource(settings), ALL, key=scan.key, is_upsert=True)

    def _settings(self, scan: Scan, options: TableOptions) -> changes.CdcSettings:
        metadata = dict(scan.metadata)
        outputs = tuple(
            changes.Output(
                name, None if index in metadata else column.name, arrow_type(column.type), metadata.get(index)
            )
            for index, (name, column) in enumerate(zip(column_names(len(scan.schema)), scan.schema, strict=True))
        )
        database, slot = options.required(DATABASE), options.required(SLOT)
        url = f"postgresql://{options.required(HOSTNAME)}:{options.read(PORT)}/{quote(database)}"
        try:
            return changes.CdcSettings(
                address=Address(url, options.required(USERNAME), options.read(PASSWORD)),
                schema=options.required(SCHEMA),
                table=options.required(TABLE),
                slot=slot,
                publication=options.read(PUBLICATION) or f"{slot}_publication",
                startup=options.read(STARTUP),
                mode=options.read(MODE),
                truncates=options.read(TRUNCATES),
                outputs=outputs,
                chunk_size=options.read(CHUNK),
                heartbeat_ms=options.read(HEARTBEAT),
                confirm_delay=options.read(DELAY),
                allows_incomplete=options.read(INCOMPLETE),
                unrepresentable=options.read(UNREPRESENTABLE),
                autocreate=options.read(AUTOCREATE),
                adds_tables=options.read(ADDED),
            )
        except ConfigurationError as error:
            raise ValidationError(f"Invalid options of table {options.title}: {error}") from error
