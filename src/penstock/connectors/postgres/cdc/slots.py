"""Preparation of a server for reading changes: its settings, the publication, and the replication slot.

`publish` and `check_publication` check that a publication covers all changes of a table, because unpublished changes
never reach the reader. `prepared` checks the server's settings, and creates or checks the slot.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from penstock.base.errors import ConfigurationError, MissingPathError, OperationError
from penstock.connectors.cdc import events
from penstock.connectors.cdc.events import TableId
from penstock.connectors.postgres.cdc import position, schemas
from penstock.connectors.postgres.cdc.options import (
    ALL,
    ALL_TABLES,
    COMMITTED,
    DISABLED,
    FILTERED,
    INITIAL,
    LATEST,
    NAME,
    SKIP,
    SNAPSHOT,
    CdcSettings,
    Output,
)
from penstock.connectors.postgres.cdc.position import CdcTable, LogPosition, TablePosition, TableState, key_columns
from penstock.connectors.postgres.cdc.replication import lsn_text, parse_lsn
from penstock.connectors.postgres.client import connect, driver, quoted, relation

if TYPE_CHECKING:
    import psycopg


_PUBLICATION: Final = """
    SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot FROM pg_publication WHERE pubname = %s
"""
#: The table names used in the log: partitions appear under their own names or under their root's.
_PUBLISHED: Final = """
    SELECT {} FROM pg_publication_tables WHERE pubname = %s AND schemaname = %s AND tablename = %s
"""
#: Servers before 15 have neither column lists nor row filters.
_LISTS_SINCE: Final = 150_000
_RELATION: Final = """
    SELECT c.relkind = 'p', CASE WHEN c.relispartition THEN pg_partition_root(c.oid)::regclass::text END,
           ARRAY(SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = c.oid AND c.relkind = 'r')
    FROM pg_class c WHERE c.oid = %s
"""
#: Since 18, a server refuses to update rows whose full identity includes unpublished generated columns.
_GENERATED_SINCE: Final = 180_000
_GENERATED: Final = """
    SELECT a.attname, a.attgenerated = 's' FROM pg_attribute a
    WHERE a.attrelid = %(oid)s AND a.attgenerated <> '' AND NOT a.attisdropped AND EXISTS (
        SELECT 1 FROM pg_class c WHERE c.relreplident = 'f'
        AND (c.oid = %(oid)s OR c.oid IN (SELECT relid FROM pg_partition_tree(%(oid)s)))
    ) ORDER BY a.attnum
"""
_TABLES: Final = """
    SELECT c.oid, n.nspname, c.relname, c.relispartition FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
    AND n.nspname NOT IN ('pg_catalog', 'pg_toast', 'information_schema') ORDER BY 2, 3
"""
_KINDS: Final = ("insert", "update", "delete", "truncate")
_ALLOWED: Final = "take what it gives (publication.allow-incomplete = true)"


class _Published(NamedTuple):
    """A publication: whether it publishes each of `_KINDS`, and whether partitions appear under their root's name."""

    kinds: tuple[bool, bool, bool, bool]
    is_by_root: bool


def publish(connection: psycopg.Connection[Any], settings: CdcSettings, tables: Sequence[CdcTable]) -> None:
    """Create the publication if it is missing, and check that it covers all changes of the tables.

    Raises:
        ConfigurationError: if it does not, or if the user may not create it; the message has the statement to execute.
    """
    errors = driver().errors
    if _find(connection, settings) is None:
        generated = [column for table in tables for column in _find_generated(connection, table)]
        more = ", publish_generated_columns = stored" if generated else ""
        paths = ", ".join(table.path for table in tables)
        what = "ALL TABLES" if settings.autocreate == ALL_TABLES else f"TABLE {paths}"
        statement = (
            f"CREATE PUBLICATION {quoted(settings.publication)} FOR {what} "
            f"WITH (publish_via_partition_root = true{more})"
        )
        if settings.autocreate == DISABLED:
            raise ConfigurationError(
                f"there is no publication {settings.publication!r}, and publication.autocreate.mode is 'disabled': "
                f"execute {statement}"
            )
        try:
            connection.execute(statement.encode())
        except errors.DuplicateObject:
            pass  # another attempt was faster
        except errors.InsufficientPrivilege as error:
            raise ConfigurationError(f"the user may not publish {paths}: have its owner execute {statement}") from error
    for table in tables:
        check_publication(connection, settings, table)


def publish_more(connection: psycopg.Connection[Any], settings: CdcSettings, table: CdcTable) -> None:
    """Add a table to the publication if it is missing and the mode permits it; check it as `publish` does."""
    errors = driver().errors
    is_published = connection.execute(_PUBLISHED.format("1").encode(), (settings.publication, *table.id)).fetchone()
    if is_published is None and settings.autocreate == FILTERED:
        statement = f"ALTER PUBLICATION {quoted(settings.publication)} ADD TABLE {table.path}"
        try:
            connection.execute(statement.encode())
        except errors.DuplicateObject:
            pass
        except errors.InsufficientPrivilege as error:
            raise ConfigurationError(
                f"the user may not publish {table.path}: have its owner execute {statement}"
            ) from error
    check_publication(connection, settings, table)


def check_publication(connection: psycopg.Connection[Any], settings: CdcSettings, table: CdcTable) -> None:
    """Raise `ConfigurationError` if the publication omits changes of the table; it says which, and how to fix it."""
    name = settings.publication
    _refuse_children(connection, table)
    publication = _find(connection, settings)
    if publication is None:
        raise ConfigurationError(
            f"there is no publication {name!r} any more: execute CREATE PUBLICATION {quoted(name)} FOR TABLE "
            f"{table.path} WITH (publish_via_partition_root = true). Changes from before are lost: begin without the "
            "state of the job"
        )
    has_lists = connection.info.server_version >= _LISTS_SINCE
    entries = connection.execute(
        _PUBLISHED.format("attnames::text[], rowfilter" if has_lists else "NULL, NULL").encode(),
        (name, *table.id),
    ).fetchall()
    if not entries:
        raise _find_reason(connection, settings, table, publication)
    generated = _find_generated(connection, table)
    for columns, row_filter in entries:
        _check_columns(settings, table, columns)
        hidden = [column for column in generated if columns is not None and column not in columns]
        if hidden:
            raise ConfigurationError(
                f"publication {name!r} does not publish the generated column {', '.join(hidden)} of {table.path}, so "
                f"the server refuses to update and delete its rows: execute ALTER PUBLICATION {quoted(name)} SET "
                "(publish_generated_columns = stored)"
            )
        if row_filter is not None and not settings.allows_incomplete:
            raise ConfigurationError(
                f"publication {name!r} gives only rows of {table.path} for which {row_filter}, and the others would "
                f"never change: execute {_add_again(settings, table)}, or {_ALLOWED}"
            )
    missing = [kind for kind, has in zip(_KINDS, publication.kinds, strict=True) if not has]
    if settings.truncates == SKIP and "truncate" in missing:
        missing.remove("truncate")
    if missing and not settings.allows_incomplete:
        raise ConfigurationError(
            f"publication {name!r} does not publish {' and '.join(missing)}, so such changes of {table.path} would be "
            f"lost: execute ALTER PUBLICATION {quoted(name)} SET (publish = '{', '.join(_KINDS)}'), or {_ALLOWED}"
        )


def _find_generated(connection: psycopg.Connection[Any], table: CdcTable) -> list[str]:
    """Return the generated columns that must be published; without them the server refuses changes of the table.

    Raises:
        ConfigurationError: for virtual columns, which cannot be published.
    """
    if connection.info.server_version < _GENERATED_SINCE:
        return []
    rows = connection.execute(_GENERATED, {"oid": table.oid}).fetchall()
    virtual = [name for name, is_stored in rows if not is_stored]
    if virtual:
        raise ConfigurationError(
            f"table {table.path} has REPLICA IDENTITY FULL and the virtual column {', '.join(virtual)}, which cannot "
            "be published: with a publication, the server would refuse to update and delete its rows. Make the column "
            f"STORED, or execute ALTER TABLE {table.path} REPLICA IDENTITY DEFAULT and read rows by their key "
            "(changelog-mode = upsert)"
        )
    return [name for name, _ in rows]


def _find(connection: psycopg.Connection[Any], settings: CdcSettings) -> _Published | None:
    row = connection.execute(_PUBLICATION, (settings.publication,)).fetchone()
    return None if row is None else _Published(row[:4], row[4])


def _find_reason(
    connection: psycopg.Connection[Any], settings: CdcSettings, table: CdcTable, publication: _Published
) -> ConfigurationError:
    """Return an error that explains why no changes are published under the table's name."""
    name = settings.publication
    row = connection.execute(_RELATION, (table.oid,)).fetchone()
    is_partitioned, root = (False, None) if row is None else row[:2]
    if is_partitioned and not publication.is_by_root:
        return ConfigurationError(
            f"publication {name!r} gives changes of {table.path} under the names of its partitions: execute "
            f"ALTER PUBLICATION {quoted(name)} SET (publish_via_partition_root = true)"
        )
    if root is not None and publication.is_by_root:
        return ConfigurationError(
            f"publication {name!r} gives changes of {table.path} under the name of {root}, whose partition it is: read "
            f"{root}, or name another publication"
        )
    return ConfigurationError(
        f"publication {name!r} does not have table {table.path}: execute ALTER PUBLICATION {quoted(name)} ADD TABLE "
        f"{table.path}"
    )


def _check_columns(settings: CdcSettings, table: CdcTable, published: list[str] | None) -> None:
    key = [column.name[1:-1].replace('""', '"') for column in table.key]
    missing = [name for name in dict.fromkeys((*table.names, *key)) if published is not None and name not in published]
    if missing:
        raise ConfigurationError(
            f"publication {settings.publication!r} does not publish column {', '.join(missing)} of {table.path}: "
            f"execute {_add_again(settings, table)}, or leave out the column"
        )


def _add_again(settings: CdcSettings, table: CdcTable) -> str:
    name = quoted(settings.publication)
    return f"ALTER PUBLICATION {name} DROP TABLE {table.path}; ALTER PUBLICATION {name} ADD TABLE {table.path}"


def _refuse_children(connection: psycopg.Connection[Any], table: CdcTable) -> None:
    """Reject parent tables: a SELECT includes rows of child tables, but the log lists these under their own names."""
    row = connection.execute(_RELATION, (table.oid,)).fetchone()
    children = [] if row is None else row[2]
    if children:
        raise ConfigurationError(
            f"tables inherit from {table.path} ({', '.join(children)}), and their changes come under their own names: "
            "read each of these tables, or make them partitions"
        )


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


def _is_pattern(pair: tuple[str, str]) -> bool:
    return any(re.escape(name).replace("\\", "") != re.escape(name) for name in pair)


def find_tables(
    connection: psycopg.Connection[Any], settings: CdcSettings, is_strict: bool = True
) -> dict[TableId, int]:
    """Return the tables to read with their OIDs, by name.

    Partitions count only if they are named: with `publish_via_partition_root`, their changes come under the name of
    their root.

    Raises:
        MissingPathError: if `is_strict` and no table matches, or a table that is named without a pattern is missing.
    """
    tables = {}
    for oid, schema, table, is_partition in connection.execute(_TABLES):
        match = settings.get_match(TableId(schema, table))
        if match is not None and (match == NAME or not is_partition):
            tables[TableId(schema, table)] = oid
    missing = [
        pair
        for pair in settings.patterns
        if not (tables and _is_pattern(pair)) and not any(settings.is_match(pair, name) for name in tables)
    ]
    if missing and is_strict:
        names = ", ".join(f"{quoted(schema)}.{quoted(table)}" for schema, table in missing)
        raise MissingPathError(f"PostgreSQL at {settings.address.shown} has no table {names}")
    return tables


def described(
    connection: psycopg.Connection[Any], settings: CdcSettings, table_id: TableId
) -> tuple[CdcTable, tuple[Output, ...]]:
    """Return a table with the columns to read, and the output columns with their types."""
    table_relation = relation(connection, _path(table_id))
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
        table_id,
    )
    return table, outputs


def describe_logged(
    connection: psycopg.Connection[Any],
    settings: CdcSettings,
    table_id: TableId,
    oid: int,
    logged: schemas.LoggedSchema | None,
) -> CdcTable:
    """Return a table of a source of events, with the columns of a schema; None: with the columns of the catalog."""
    if logged is None:
        logged = schemas.describe(connection, oid)
    schema = events.TableSchema(()) if logged is None else logged.schema
    try:
        key = key_columns(connection, relation(connection, _path(table_id)))
    except MissingPathError:  # it was dropped, and the log still has its changes
        key = ()
    types = tuple(column.type for column in schema.columns)
    return CdcTable(
        settings.address, _path(table_id), oid, schema.names, types, key, settings.unrepresentable, table_id
    )


def describe_locked(connection: psycopg.Connection[Any], table: CdcTable) -> schemas.LoggedSchema | None:
    """Return the schema of a table that no transaction is about to change."""
    connection.execute("BEGIN")
    connection.execute(f"LOCK TABLE {table.path} IN ACCESS SHARE MODE".encode())
    logged = schemas.describe(connection, table.oid)
    connection.execute("COMMIT")
    return logged


def _path(table_id: TableId) -> str:
    return f"{quoted(table_id.schema)}.{quoted(table_id.table)}"


def prepared(settings: CdcSettings, has_events: bool = False) -> position.LogSplit:
    """Prepare the server, and return the split to start from.

    Raises:
        ConfigurationError: if the server or a table is not set up for CDC; the message has the statement to execute.
    """
    with connect(settings.address) as connection:
        tables = [_check_table(connection, settings, name, has_events) for name in find_tables(connection, settings)]
        if settings.startup == SNAPSHOT:
            return position.LogSplit(_begin(connection, settings, tables, has_events), LogPosition(0))
        _check_server(connection, settings)
        for table in tables:
            _check_identity(connection, settings, table, has_events)
        publish(connection, settings, tables)
        lsn = _start_lsn(connection, settings)
        return position.LogSplit(_begin(connection, settings, tables, has_events), LogPosition(lsn))


def _check_table(
    connection: psycopg.Connection[Any], settings: CdcSettings, table_id: TableId, has_events: bool
) -> CdcTable:
    table, _ = described(connection, replace(settings, outputs=()) if has_events else settings, table_id)
    if settings.startup in (INITIAL, SNAPSHOT) and not table.key:
        raise ConfigurationError(
            f"table {table.path} has no primary key, so its rows cannot be read in an order: give it one, or read "
            "its changes alone (scan.startup.mode = latest-offset)"
        )
    return table


def _begin(
    connection: psycopg.Connection[Any], settings: CdcSettings, tables: Sequence[CdcTable], has_events: bool
) -> tuple[TableState, ...]:
    has_rows = settings.startup in (INITIAL, SNAPSHOT)
    return tuple(
        TableState(
            table.id,
            table.oid,
            TablePosition().closed() if has_rows else None,
            describe_locked(connection, table) if has_events and has_rows else None,
        )
        for table in tables
    )


def add_tables(
    connection: psycopg.Connection[Any], settings: CdcSettings, split: position.LogSplit, has_events: bool
) -> position.LogSplit:
    """Return the split with the tables that have appeared since, and publish their changes.

    A transaction that has changed rows of a table before it was published, and ends after that, is not in the log as a
    whole. So the snapshots of these rows must see all transactions that are open now.
    """
    known = {state.id for state in split.tables}
    names = [name for name in find_tables(connection, settings, False) if name not in known]
    if not names:
        return split
    tables = [_check_table(connection, settings, name, has_events) for name in names]
    for table in tables:
        _check_identity(connection, settings, table, has_events)
        publish_more(connection, settings, table)
        LOG.info("table %s is new: reading its rows while the log goes on", table.path)
    row = connection.execute("SELECT pg_current_snapshot()::text").fetchone()
    assert row is not None
    running = position.Snapshot.parse(row[0], 0).running
    states = _begin(connection, settings, tables, has_events)
    passed = split.passed | {xid % (1 << 32) for xid in running}
    return replace(split, tables=(*split.tables, *states), passed=passed)


def _check_server(connection: psycopg.Connection[Any], settings: CdcSettings) -> None:
    level = connection.execute("SHOW wal_level").fetchone()
    if level != ("logical",):
        raise ConfigurationError(
            f"PostgreSQL at {settings.address.shown} does not keep the changes of rows in its log: set wal_level = "
            "logical (ALTER SYSTEM SET wal_level = 'logical'), and start the server again"
        )


def _check_identity(
    connection: psycopg.Connection[Any], settings: CdcSettings, table: CdcTable, has_events: bool
) -> None:
    if has_events:
        return
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
