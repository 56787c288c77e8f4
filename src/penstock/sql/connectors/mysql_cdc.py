"""The `mysql-cdc` connector: reads tables of MySQL or MariaDB, then their changes, with Flink CDC's options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import ConfigurationError
from penstock.connectors.mysql.cdc import database
from penstock.connectors.mysql.cdc.binlog import LogPosition
from penstock.connectors.mysql.cdc.columns import METADATA_TYPES, ColumnOutput, OutputColumn
from penstock.connectors.mysql.cdc.source import MySqlEventSource, parse_server_ids
from penstock.connectors.mysql.cdc.tables import TypeMapping
from penstock.connectors.mysql.cdc.values import ValueSettings
from penstock.connectors.mysql.client import PORT as MYSQL_PORT
from penstock.connectors.mysql.client import MySqlAddress, load_library
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
USERNAME: Final = _text(
    "username", "The user name; the user needs SELECT on the tables, REPLICATION SLAVE and REPLICATION CLIENT."
)
PASSWORD: Final = _text("password", "The password.")
DATABASE: Final = _text("database-name", "The databases, as a regular expression.")
TABLE: Final = _text("table-name", "The tables, as a regular expression; all of them have the columns of this table.")
PORT: Final = ConfigOptions.key("port").int_type().default_value(MYSQL_PORT).with_description("The port of the server.")
SERVER_ID: Final = _text(
    "server-id",
    "The server id of a reader, or a range such as `5400-5404`, at least one for each subtask. No "
    "other replica of the server may have them. If unset, a random number.",
)
TIME_ZONE: Final = _text(
    "server-time-zone", "No effect: a TIMESTAMP is a moment in the log, and sessions are in UTC, so it is never needed."
)
STARTUP: Final = (
    ConfigOptions.key("scan.startup.mode")
    .string_type()
    .default_value(database.INITIAL)
    .with_description(
        "`initial`: the tables, then their changes; `earliest-offset`: the whole log; `latest-offset`: new changes; "
        "`specific-offset`: the log from a position; `timestamp`: the log from a time; `snapshot`: the tables only, "
        "bounded."
    )
)
OFFSET_FILE: Final = _text("scan.startup.specific-offset.file", "The file of the log for `specific-offset`.")
OFFSET_POS: Final = (
    ConfigOptions.key("scan.startup.specific-offset.pos")
    .long_type()
    .no_default_value()
    .with_description("The offset in that file, in bytes: the end of a transaction.")
)
OFFSET_GTIDS: Final = _text(
    "scan.startup.specific-offset.gtid-set", "The transactions before the position for `specific-offset`, instead."
)
START_MS: Final = (
    ConfigOptions.key("scan.startup.timestamp-millis")
    .long_type()
    .no_default_value()
    .with_description("The time for `timestamp`, in ms since 1970.")
)
CHUNK: Final = (
    ConfigOptions.key("scan.incremental.snapshot.chunk.size")
    .int_type()
    .default_value(database.CHUNK_SIZE)
    .with_description("The number of rows of a chunk, about.")
)
CHUNK_KEY: Final = _text(
    "scan.incremental.snapshot.chunk.key-column",
    "The column of the primary key that splits tables; by default the first one.",
)
INCREMENTAL: Final = (
    ConfigOptions.key("scan.incremental.snapshot.enabled")
    .boolean_type()
    .default_value(True)
    .with_description("No effect: tables are always read in chunks, without locks.")
)
NEW_TABLES: Final = (
    ConfigOptions.key("scan.newly-added-table.enabled")
    .boolean_type()
    .default_value(False)
    .with_description("Whether a job that continues from a savepoint also captures tables that match by now.")
)
HEARTBEAT: Final = (
    ConfigOptions.key("heartbeat.interval")
    .duration_type()
    .default_value(database.HEARTBEAT_MS)
    .with_description("After so long without changes the server sends a heartbeat, or the connection is lost.")
)
TIMEOUT: Final = (
    ConfigOptions.key("connect.timeout")
    .duration_type()
    .default_value(30_000)
    .with_description("How long to wait for a connection.")
)
RETRIES: Final = (
    ConfigOptions.key("connect.max-retries")
    .int_type()
    .default_value(3)
    .with_description("No effect: a lost connection is opened again for two minutes.")
)
BOOLEANS: Final = (
    ConfigOptions.key("treat-tinyint1-as-boolean.enabled")
    .boolean_type()
    .default_value(True)
    .with_description("Whether TINYINT(1) is BOOLEAN; a column that is declared as a number is read as one anyway.")
)
_OPTIONAL: Final[tuple[ConfigOption[Any], ...]] = (
    *(PASSWORD, PORT, SERVER_ID, TIME_ZONE, STARTUP, OFFSET_FILE, OFFSET_POS, OFFSET_GTIDS, START_MS, INCREMENTAL),
    *(CHUNK, CHUNK_KEY, NEW_TABLES, HEARTBEAT, TIMEOUT, RETRIES, BOOLEANS, UNREPRESENTABLE),
)
_REFUSED: Final = (
    (re.compile(r"debezium\..*"), "no Debezium is below it"),
    (re.compile(r"jdbc\.properties\..*"), "no JDBC driver is below it"),
    (
        re.compile(r"scan\.incremental\.snapshot\.(backfill\.skip|unbounded-chunk-first\.enabled)"),
        "chunks are corrected by the log, so that they are exact",
    ),
    (re.compile(r"scan\.incremental\.close-idle-reader\.enabled"), "readers end when the log is read"),
    (re.compile(r"chunk-meta\.group\.size|chunk-key\..*"), "readers need no chunks of others"),
    (re.compile(r"scan\.snapshot\.fetch\.size"), "a chunk is fetched as a whole: scan.incremental.snapshot.chunk.size"),
    (re.compile(r"connection\.pool\.size"), "a reader has as many connections as it needs"),
    (re.compile(r"scan\.startup\.specific-offset\.skip-.*"), "a position is the end of a transaction"),
    (re.compile(r"scan\.read-changelog-as-append-only\.enabled"), "ask for changes by TO_CHANGELOG"),
    (re.compile(r"scan\.parse\.online\.schema\.changes\.enabled"), "a ghost table is another table"),
    (re.compile(r"use\.legacy\.json\.format"), "JSON has the server's text"),
)
_STRING: Final = types.VarCharType(types.LENGTH_MAX, False)
METADATA: Final[Mapping[str, DataType]] = {
    "database_name": _STRING,
    "table_name": _STRING,
    "op_ts": types.LocalZonedTimestampType(3, False),
    "row_kind": _STRING,
}
assert set(METADATA) == set(METADATA_TYPES)


class MySqlCdcConnector(TableConnector):
    """See the module docstring."""

    name = "mysql-cdc"
    required_options = (HOSTNAME, USERNAME, DATABASE, TABLE)
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
        load_library()
        check_types(options.title, scan.schema)
        metadata = dict(scan.metadata)
        outputs = tuple(
            OutputColumn(name, None if index in metadata else column.name, arrow_type(column.type), metadata.get(index))
            for index, (name, column) in enumerate(zip(column_names(len(scan.schema)), scan.schema, strict=True))
        )
        settings = self._settings(options, outputs)
        source = MySqlEventSource(settings, ColumnOutput.factory(outputs, settings.values))
        if settings.startup == database.SNAPSHOT:
            return TableReader(source, key=scan.key)
        return TableReader(source, ALL, has_before=True, key=scan.key)

    def _settings(self, options: TableOptions, outputs: Sequence[OutputColumn]) -> database.CdcSettings:
        captured = f"(?:{options.required(DATABASE)})\\.(?:{options.required(TABLE)})"
        chunk_key = options.read(CHUNK_KEY)
        try:
            return database.CdcSettings(
                address=MySqlAddress(
                    options.required(HOSTNAME),
                    options.read(PORT),
                    options.required(USERNAME),
                    options.read(PASSWORD),
                    connect_timeout_s=options.read(TIMEOUT) / 1_000,
                ),
                tables=(captured,),
                server_ids=parse_server_ids(options.read(SERVER_ID)),
                startup=options.read(STARTUP),
                start_position=_start_position(options),
                start_timestamp_ms=options.read(START_MS) or 0,
                chunk_size=options.read(CHUNK),
                chunk_keys={captured: chunk_key} if chunk_key else {},
                heartbeat_ms=options.read(HEARTBEAT),
                adds_tables=options.read(NEW_TABLES),
                values=ValueSettings(
                    TypeMapping(options.read(BOOLEANS)),
                    options.read(UNREPRESENTABLE),
                    frozenset(
                        output.column.lower() for output in outputs if output.column is not None and output.is_text
                    ),
                    frozenset(
                        output.column.lower() for output in outputs if output.column is not None and output.is_number
                    ),
                ),
            )
        except ConfigurationError as error:
            raise ValidationError(f"Invalid options of table {options.title}: {error}") from error


def _start_position(options: TableOptions) -> LogPosition | None:
    """Return the position for `specific-offset`; None without one."""
    file, offset, gtids = options.read(OFFSET_FILE), options.read(OFFSET_POS), options.read(OFFSET_GTIDS)
    if gtids:
        return LogPosition("", 4, gtids=gtids)
    if file is None and offset is None:
        return None
    if file is None or offset is None or not re.fullmatch(r".*\.\d+", file):
        raise options.wrong(OFFSET_FILE.key(), f"it is a file such as bin.000003, with '{OFFSET_POS.key()}'")
    return LogPosition(file, offset)
