"""ALTER TABLE: names, options, and (through `alter_schema`) columns, keys and watermarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.table.catalog.objects import CatalogBaseTable, ObjectPath
from penstock.table.data.errors import ValidationError
from penstock.table.session.session import TableSession
from penstock.table.session.table_result import TableResult
from penstock.table.sql import statements
from penstock.table.sql.printing import format_path
from penstock.table.sql.statements import AlterAction
from penstock.table.statements import results
from penstock.table.statements.alter_schema import altered
from penstock.table.statements.names import renamed_path


def _alter(session: TableSession, statement: statements.AlterTable) -> TableResult:
    if statement.is_materialized:
        raise UnsupportedError("ALTER MATERIALIZED TABLE is not supported: Penstock has no materialized tables")
    if statement.partition:
        raise UnsupportedError("ALTER TABLE of a partition is not supported: Penstock's catalogs hold no partitions")
    entry = session.manager.find(statement.path)
    if entry is None or session.manager.temporary(statement.path) is not None:
        if statement.if_exists:
            return results.done()
        identifier = format_path(session.manager.qualified(statement.path))
        raise session.manager.missing(f"Table {identifier} doesn't exist or is a temporary table.", statement.path)
    whole_path, table = entry
    if table.is_view:
        raise ValidationError("ALTER TABLE for a view is not allowed")
    catalog, path = session.manager.catalog(whole_path[0]), ObjectPath(*whole_path[1:])
    if statement.actions[0].verb == "RENAME TO":
        catalog.rename_table(path, renamed_path(whole_path, statement.actions[0].names[0])[2])
        return results.done()
    catalog.alter_table(path, _changed(session, table, statement.actions))
    return results.done()


def _changed(session: TableSession, table: CatalogBaseTable, actions: tuple[AlterAction, ...]) -> CatalogBaseTable:
    try:
        for action in actions:
            table = _apply(table, action)
        session.manager.resolved(table)
    except ValidationError as error:
        raise ValidationError(f"Failed to execute ALTER TABLE statement.\n{error}") from error
    return table


def _apply(table: CatalogBaseTable, action: AlterAction) -> CatalogBaseTable:
    match action.verb:
        case "SET":
            return replace(table, options={**table.options, **dict(action.options)})
        case "RESET":
            return _reset(table, [name[0] for name in action.names])
        case "ADD PARTITION" | "DROP PARTITION":
            raise UnsupportedError(f"{action.verb} is not supported: Penstock's catalogs hold no partitions")
        case "ADD DISTRIBUTION" | "MODIFY DISTRIBUTION" | "DROP DISTRIBUTION":
            return _distribution(table, action)
        case _:
            return altered(table, action)


def _reset(table: CatalogBaseTable, keys: list[str]) -> CatalogBaseTable:
    if not keys:
        raise ValidationError("ALTER TABLE RESET does not support empty key")
    if "connector" in keys:
        raise ValidationError("ALTER TABLE RESET does not support changing 'connector'")
    return replace(table, options={key: value for key, value in table.options.items() if key not in keys})


def _distribution(table: CatalogBaseTable, action: AlterAction) -> CatalogBaseTable:
    existing = table.distribution
    if action.verb == "ADD DISTRIBUTION" and existing is not None:
        raise ValidationError(
            "The base table has already defined a distribution. You can modify it or drop it before adding a new one."
        )
    if action.verb != "ADD DISTRIBUTION" and existing is None:
        raise ValidationError("The base table does not define any distribution. You might want to add a new one.")
    names = [column.name for column in table.schema.columns]
    for name in action.distribution.columns if action.distribution is not None else ():
        if name not in names:
            raise ValidationError(f"Invalid bucket key '{name}'. A bucket key must be one of the columns: {names}")
    return replace(table, distribution=action.distribution)


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.AlterTable: _alter
}
