"""ALTER TABLE: names, options, columns, keys and watermarks.

`altered` derives the new schema, with the checks that Flink makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.sql.catalogs.catalog import CatalogBaseTable, ObjectPath
from penstock.sql.catalogs.columns import Schema, UnresolvedColumn
from penstock.sql.catalogs.ddl import build_schema
from penstock.sql.data.errors import ValidationError
from penstock.sql.parser import statements, syntax
from penstock.sql.parser.statements import AlterAction, Elements
from penstock.sql.parser.unparse import format_path
from penstock.sql.session.result import TableResult
from penstock.sql.session.session import TableSession
from penstock.sql.statements import insert as results
from penstock.sql.statements import materialized_tables as materialized
from penstock.sql.statements.insert import renamed_path


def altered(table: CatalogBaseTable, action: AlterAction) -> CatalogBaseTable:
    """Return the table after one action. Raises `ValidationError` if the action does not fit the table."""
    change = _ACTIONS.get(action.verb)
    if change is None:
        raise UnsupportedError(f"ALTER TABLE {action.verb} is not supported")
    return change(table, action)


def references(node: object) -> Iterator[str]:
    """Yield the names of the columns that an expression references."""
    if isinstance(node, syntax.Reference):
        yield node.path[0]
    elif isinstance(node, tuple):
        for child in node:
            yield from references(child)
    elif is_dataclass(node):
        for field in fields(node):
            yield from references(getattr(node, field.name))


# --- columns ---------------------------------------------------------------------------------------------------------


def _add_column(table: CatalogBaseTable, action: AlterAction) -> CatalogBaseTable:
    added = _build_schema(action)
    column = added.columns[0]
    if column.name in _names(table):
        raise ValidationError(f"Try to add a column `{column.name}` which already exists in the table.")
    columns = _placed(list(table.schema.columns), column, action.position, len(table.schema.columns))
    schema = replace(table.schema, columns=tuple(columns))
    return _with_key(replace(table, schema=schema), added) if added.primary_key else replace(table, schema=schema)


def _modify_column(table: CatalogBaseTable, action: AlterAction) -> CatalogBaseTable:
    assert action.column is not None
    name = _one_name(action.column.path)
    index = _place(table, name, f"Try to modify a column `{name}` which does not exist in the table.")
    existing = table.schema.columns[index]
    changed, key = existing, Schema()
    if action.column.type is not None or action.column.expression is not None or action.column.is_metadata:
        key = _build_schema(action)
        changed = key.columns[0]
    comment = action.column.comment if action.column.comment is not None else existing.comment
    columns = [column for column in table.schema.columns if column.name != name]
    columns = _placed(columns, replace(changed, comment=comment), action.position, index)
    modified = replace(table, schema=replace(table.schema, columns=tuple(columns)))
    if key.primary_key and table.schema.primary_key != key.primary_key:
        return _with_key(modified, key)
    return modified


def _placed(
    columns: list[UnresolvedColumn], column: UnresolvedColumn, position: str | None, otherwise: int
) -> list[UnresolvedColumn]:
    index = otherwise
    if position == "FIRST":
        index = 0
    elif position is not None:
        before = position.removeprefix("AFTER ")
        names = [other.name for other in columns]
        if before not in names:
            raise ValidationError(f"Referenced column `{before}` by 'AFTER' does not exist in the table.")
        index = names.index(before) + 1
    return [*columns[:index], column, *columns[index:]]


def _drop_columns(table: CatalogBaseTable, action: AlterAction) -> CatalogBaseTable:
    names = [_one_name(path) for path in action.names]
    for name in names:
        if names.count(name) > 1:
            raise ValidationError(f"Duplicate column `{name}`.")
        if action.if_exists and name not in _names(table):
            continue
        _place(table, name, f"The column `{name}` does not exist in the base table.")
        _check_unused(table, name, names)
    remaining = tuple(column for column in table.schema.columns if column.name not in names)
    return replace(table, schema=replace(table.schema, columns=remaining))


def _rename_column(table: CatalogBaseTable, action: AlterAction) -> CatalogBaseTable:
    old, new = map(_one_name, action.names)
    index = _place(table, old, f"The column `{old}` does not exist in the base table.")
    if new in _names(table):
        raise ValidationError(f"The column `{new}` already existed in table schema.")
    _check_unused(table, old, [old], is_renamed=True)
    columns = list(table.schema.columns)
    columns[index] = replace(columns[index], name=new)
    key = tuple(new if name == old else name for name in table.schema.primary_key)
    return replace(table, schema=replace(table.schema, columns=tuple(columns), primary_key=key))


def _check_unused(table: CatalogBaseTable, name: str, dropped: Sequence[str], is_renamed: bool = False) -> None:
    """Check that nothing else in the table depends on a column that is dropped or renamed."""
    for column in table.schema.columns:
        if column.name not in dropped and name in references(column.expression):
            raise ValidationError(f"The column `{name}` is referenced by computed column `{column.name}`.")
    if name in table.partition_keys:
        raise ValidationError(f"The column `{name}` is used as the partition keys.")
    if table.distribution is not None and name in table.distribution.columns:
        raise ValidationError(f"The column `{name}` is used as a distribution key.")
    if name in table.schema.primary_key and not is_renamed:
        raise ValidationError(f"The column `{name}` is used as the primary key.")
    for mark in table.schema.watermarks:
        if name == mark.column or name in references(mark.expression):
            raise ValidationError(f"The column `{name}` is referenced by watermark expression.")


# --- keys and watermarks ---------------------------------------------------------------------------------------------


def _add_key(table: CatalogBaseTable, action: AlterAction) -> CatalogBaseTable:
    return _with_key(table, _build_schema(action))


def _with_key(table: CatalogBaseTable, added: Schema) -> CatalogBaseTable:
    if table.schema.primary_key:
        key_columns = ", ".join(f"`{name}`" for name in table.schema.primary_key)
        raise ValidationError(
            f"The base table has already defined the primary key constraint [{key_columns}]. You might want to drop it "
            "before adding a new one."
        )
    return _keyed(table, added)


def _modify_key(table: CatalogBaseTable, action: AlterAction) -> CatalogBaseTable:
    if not table.schema.primary_key:
        raise ValidationError(
            "The base table does not define any primary key constraint. You might want to add a new one."
        )
    return _keyed(table, _build_schema(action))


def _keyed(table: CatalogBaseTable, added: Schema) -> CatalogBaseTable:
    schema = replace(table.schema, primary_key=added.primary_key, primary_key_name=added.primary_key_name)
    return replace(table, schema=schema)


def _drop_key(table: CatalogBaseTable, action: AlterAction) -> CatalogBaseTable:
    if not table.schema.primary_key:
        if action.if_exists:
            return table
        raise ValidationError("The base table does not define any primary key.")
    if action.names and action.names[0][0] != table.schema.primary_key_name:
        if action.if_exists:
            return table
        raise ValidationError(
            f"The base table does not define a primary key constraint named '{action.names[0][0]}'. Available "
            f"constraint name: ['{table.schema.primary_key_name}']."
        )
    return _keyed(table, Schema())


def _add_watermark(table: CatalogBaseTable, action: AlterAction) -> CatalogBaseTable:
    if table.schema.watermarks:
        raise ValidationError(
            f"The base table has already defined the watermark strategy for `{table.schema.watermarks[0].column}`. "
            "You might want to drop it before adding a new one."
        )
    return replace(table, schema=replace(table.schema, watermarks=_build_schema(action).watermarks))


def _modify_watermark(table: CatalogBaseTable, action: AlterAction) -> CatalogBaseTable:
    if not table.schema.watermarks:
        raise ValidationError("The base table does not define any watermark. You might want to add a new one.")
    return replace(table, schema=replace(table.schema, watermarks=_build_schema(action).watermarks))


def _drop_watermark(table: CatalogBaseTable, action: AlterAction) -> CatalogBaseTable:
    if not table.schema.watermarks and not action.if_exists:
        raise ValidationError("The base table does not define any watermark strategy.")
    return replace(table, schema=replace(table.schema, watermarks=()))


# --- names -----------------------------------------------------------------------------------------------------------


def _build_schema(action: AlterAction) -> Schema:
    """Return the elements that an action adds, as a schema."""
    columns: tuple[statements.Column, ...] = ()
    if action.column is not None:
        _one_name(action.column.path)
        columns = (action.column,)
    return build_schema(
        Elements(
            columns,
            () if action.constraint is None else (action.constraint,),
            () if action.watermark is None else (action.watermark,),
        )
    )


def _one_name(path: tuple[str, ...]) -> str:
    if len(path) > 1:
        raise UnsupportedError(f"Alter nested row type {'.'.join(path)} is not supported yet.")
    return path[0]


def _names(table: CatalogBaseTable) -> list[str]:
    return [column.name for column in table.schema.columns]


def _place(table: CatalogBaseTable, name: str, message: str) -> int:
    names = _names(table)
    if name not in names:
        raise ValidationError(message)
    return names.index(name)


_ACTIONS: Final[dict[str, Callable[[CatalogBaseTable, AlterAction], CatalogBaseTable]]] = {
    "ADD COLUMN": _add_column,
    "MODIFY COLUMN": _modify_column,
    "DROP COLUMN": _drop_columns,
    "RENAME COLUMN": _rename_column,
    "ADD CONSTRAINT": _add_key,
    "MODIFY CONSTRAINT": _modify_key,
    "DROP CONSTRAINT": _drop_key,
    "DROP PRIMARY KEY": _drop_key,
    "ADD WATERMARK": _add_watermark,
    "MODIFY WATERMARK": _modify_watermark,
    "DROP WATERMARK": _drop_watermark,
}


def _alter(session: TableSession, statement: statements.AlterTable) -> TableResult:
    if statement.is_materialized:
        return materialized.alter(session, statement)
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
    if table.is_materialized:
        raise ValidationError(
            "ALTER TABLE for a materialized table is not allowed: ALTER MATERIALIZED TABLE changes its query and its "
            "refresh"
        )
    catalog, path = session.manager.catalog(whole_path[0]), ObjectPath(*whole_path[1:])
    if statement.actions[0].verb == "RENAME TO":
        catalog.rename_table(path, renamed_path(whole_path, statement.actions[0].names[0])[2])
        return results.done()
    if statement.actions[0].reference is not None:
        catalog.change_versions(path, statement.actions[0])
        return results.done()
    catalog.change_table(path, _changed(session, table, statement.actions), statement.actions)
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
