"""Prepares a server for reading changes: checks its settings, and creates or checks the slot."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.base.errors import ConfigurationError, OperationError
from penstock.connectors.postgres.cdc.changes import ALL
from penstock.connectors.postgres.cdc.pgoutput import lsn_text, parse_lsn
from penstock.connectors.postgres.cdc.position import CdcSplit, LogPosition, TablePosition
from penstock.connectors.postgres.cdc.publications import publish
from penstock.connectors.postgres.cdc.settings import COMMITTED, INITIAL, LATEST, SNAPSHOT, CdcSettings, Output
from penstock.connectors.postgres.cdc.table import CdcTable, key_columns
from penstock.connectors.postgres.client import connect, driver
from penstock.connectors.postgres.relations import relation

if TYPE_CHECKING:
    import psycopg

LOG: Final = logging.getLogger(__name__)
_SLOT: Final = """
    SELECT plugin, database, confirmed_flush_lsn::text, wal_status, restart_lsn::text
    FROM pg_replication_slots WHERE slot_name = %s
"""
_IDENTITY: Final = """
    SELECT bool_and(c.relreplident = 'f') FROM pg_class c
    WHERE c.oid = to_regclass(%s) OR c.oid IN (SELECT relid FROM pg_partition_tree(to_regclass(%s)))
"""
_BEGIN_ANEW: Final = "begin without the state of the job, with a new snapshot (scan.startup.mode = initial)"


def described(connection: psycopg.Connection[Any], settings: CdcSettings) -> tuple[CdcTable, tuple[Output, ...]]:
    """Return the table with the columns to read, and the output columns with their types."""
    table_relation = relation(connection, settings.path)
    outputs = settings.outputs or tuple(
        Output(column.name, column.name) for column in table_relation.columns if not column.is_generated
    )
    names = list(dict.fromkeys(output.column for output in outputs if output.column is not None))
    computed = [name for name in names if table_relation.column(name).is_generated]
    if computed:
        raise ConfigurationError(
            f"column {', '.join(computed)} of {table_relation.path} is computed by the server, which does not tell it "
            "with "
            "changes: leave it out, and compute it in the job"
        )
    columns = {name: table_relation.column(name).type for name in names}
    declared = {
        output.column: output.type for output in outputs if output.column is not None and output.type is not None
    }
    types: list[pa.DataType] = [declared.get(name, columns[name]) for name in names]
    row = connection.execute("SELECT to_regclass(%s)::oid", (table_relation.path,)).fetchone()
    assert row is not None
    table = CdcTable(
        settings.address,
        table_relation.path,
        int(row[0]),
        tuple(names),
        tuple(types),
        key_columns(connection, table_relation),
        settings.unrepresentable,
    )
    return table, outputs


def prepared(settings: CdcSettings) -> CdcSplit:
    """Prepare the server, and return the split to start from.

    Raises:
        ConfigurationError: if the server or the table is not set up for CDC; the message has the statement to execute.
    """
    with connect(settings.address) as connection:
        table, _ = described(connection, settings)
        if settings.startup in (INITIAL, SNAPSHOT) and not table.key:
            raise ConfigurationError(
                f"table {table.path} has no primary key, so its rows cannot be read in an order: give it one, or read "
                "its changes alone (scan.startup.mode = latest-offset)"
            )
        if settings.startup == SNAPSHOT:
            return CdcSplit(TablePosition())
        _check_server(connection, settings)
        _check_identity(connection, settings, table)
        publish(connection, settings, table)
        lsn = _start_lsn(connection, settings)
        return CdcSplit(TablePosition() if settings.startup == INITIAL else None, LogPosition(lsn))


def _check_server(connection: psycopg.Connection[Any], settings: CdcSettings) -> None:
    level = connection.execute("SHOW wal_level").fetchone()
    if level != ("logical",):
        raise ConfigurationError(
            f"PostgreSQL at {settings.address.shown} does not keep the changes of rows in its log: set wal_level = "
            "logical (ALTER SYSTEM SET wal_level = 'logical'), and start the server again"
        )


def _check_identity(connection: psycopg.Connection[Any], settings: CdcSettings, table: CdcTable) -> None:
    if settings.mode != ALL:
        if not table.key:
            raise ConfigurationError(f"changelog mode 'upsert' needs a primary key, which {table.path} does not have")
        return
    row = connection.execute(_IDENTITY, (table.path, table.path)).fetchone()
    if row != (True,):
        raise ConfigurationError(
            f"the log does not have the rows of {table.path} as they were before they changed: execute ALTER TABLE "
            f"{table.path} REPLICA IDENTITY FULL (and the same for each of its partitions, if it has any), or read "
            "rows by their key alone (changelog-mode = upsert)"
        )


def _start_lsn(connection: psycopg.Connection[Any], settings: CdcSettings) -> int:
    slot = settings.slot
    row = connection.execute(_SLOT, (slot,)).fetchone()
    if row is None and settings.startup == COMMITTED:
        raise ConfigurationError(
            f"there is no slot {slot!r} whose changes could be read: use scan.startup.mode = initial or latest-offset"
        )
    if row is None:
        _make_slot(connection, slot)
        row = connection.execute(_SLOT, (slot,)).fetchone()
    confirmed = checked_slot(row, settings)
    if settings.startup != LATEST:
        return confirmed
    return max(confirmed, end_of_log(connection))


def end_of_log(connection: psycopg.Connection[Any]) -> int:
    """Return the current end of the log that the server can send."""
    row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None
    return parse_lsn(row[0])


def _make_slot(connection: psycopg.Connection[Any], slot: str) -> None:
    errors = driver().errors
    LOG.info("making slot %s, which waits for the transactions that are open now", slot)
    try:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    except errors.DuplicateObject:
        return  # another attempt was faster
    except errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"the user may not make slot {slot!r}: execute ALTER ROLE … REPLICATION, or have an administrator execute "
            f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"
        ) from error
    except errors.ConfigurationLimitExceeded as error:
        raise ConfigurationError(
            f"the server has no place for slot {slot!r}: drop slots that nobody reads (SELECT slot_name FROM "
            "pg_replication_slots WHERE NOT active), or raise max_replication_slots"
        ) from error


def checked_slot(row: Any, settings: CdcSettings, position: int | None = None) -> int:
    """Return the position up to which the server may have discarded the log.

    Raises:
        OperationError: if changes from `position` on are lost; the message says why, and how to recover.
        ConfigurationError: if the slot uses another plugin.
    """
    slot = settings.slot
    since = "" if position is None else f" The changes from {lsn_text(position)} on are lost: {_BEGIN_ANEW}."
    if row is None:
        raise OperationError(f"slot {slot!r} is gone from PostgreSQL at {settings.address.shown}.{since}")
    plugin, _, confirmed, status, restart = row
    if plugin != "pgoutput":
        raise ConfigurationError(f"slot {slot!r} is of plugin {plugin!r}, not of pgoutput: name another slot")
    if status == "lost" or restart is None:
        raise OperationError(
            f"the server has given up slot {slot!r}: it kept more of the log than max_slot_wal_keep_size allows."
            f"{since} Drop the slot first: SELECT pg_drop_replication_slot('{slot}')"
        )
    if position is not None and parse_lsn(confirmed) > position:
        raise OperationError(
            f"slot {slot!r} was read up to {confirmed} by somebody else, or by a later checkpoint than the one that "
            f"the job begins from.{since}"
        )
    return parse_lsn(confirmed)


def check_slot(connection: psycopg.Connection[Any], settings: CdcSettings, position: int) -> None:
    """Read the slot from the catalog and check it, see `checked_slot`."""
    checked_slot(connection.execute(_SLOT, (settings.slot,)).fetchone(), settings, position)
