"""Checks that a publication covers all changes of a table, because unpublished changes never reach the reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.base.errors import ConfigurationError
from penstock.connectors.postgres.cdc.changes import SKIP
from penstock.connectors.postgres.cdc.settings import CdcSettings
from penstock.connectors.postgres.cdc.table import CdcTable
from penstock.connectors.postgres.client import driver, quoted, quoted_path

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
_KINDS: Final = ("insert", "update", "delete", "truncate")
_ALLOWED: Final = "take what it gives (publication.allow-incomplete = true)"


class _Published(NamedTuple):
    """A publication: whether it publishes each of `_KINDS`, and whether partitions appear under their root's name."""

    kinds: tuple[bool, bool, bool, bool]
    is_by_root: bool


def publish(connection: psycopg.Connection[Any], settings: CdcSettings, table: CdcTable) -> None:
    """Create the publication if it is missing, and check that it covers all changes of the table.

    Raises:
        ConfigurationError: if it does not, or if the user may not create it; the message has the statement to execute.
    """
    errors = driver().errors
    if _find(connection, settings) is None:
        generated = _find_generated(connection, table)
        more = ", publish_generated_columns = stored" if generated else ""
        statement = (
            f"CREATE PUBLICATION {quoted(settings.publication)} FOR TABLE {quoted_path(settings.path)} "
            f"WITH (publish_via_partition_root = true{more})"
        )
        try:
            connection.execute(statement)
        except errors.DuplicateObject:
            pass  # another attempt was faster
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
        (name, settings.schema, settings.table),
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
        f"{quoted_path(settings.path)}"
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
