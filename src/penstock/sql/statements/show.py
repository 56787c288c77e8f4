"""Statements that show objects and plans: DESCRIBE, SHOW CREATE, SHOW and EXPLAIN.

DESCRIBE and SHOW COLUMNS have the same output. SHOW CREATE TABLE and VIEW print the statement that creates an existing
object. SHOW lists objects by name. EXPLAIN prints plans as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from penstock.base.errors import PenstockError, UnsupportedError
from penstock.base.secrets import shown
from penstock.sql.catalogs.catalog import Catalog, CatalogBaseTable, ObjectPath
from penstock.sql.catalogs.columns import Column, ColumnKind, ResolvedSchema
from penstock.sql.catalogs.manager import InlineView
from penstock.sql.catalogs.sinks import find_static_values
from penstock.sql.data import types
from penstock.sql.data.errors import ValidationError
from penstock.sql.functions.aggregates import AGGREGATE_FUNCTIONS
from penstock.sql.functions.registry import SCALAR_FUNCTIONS, is_built_in
from penstock.sql.logical.nodes import Node, PlanColumn
from penstock.sql.materialized_tables import refresh
from penstock.sql.materialized_tables.definition import Definition, show_clauses
from penstock.sql.parser import statements, to_sql
from penstock.sql.parser.statements import Statement
from penstock.sql.parser.unparse import format_path
from penstock.sql.session.result import TableResult
from penstock.sql.session.session import TableSession
from penstock.sql.statements import catalogs, models
from penstock.sql.statements import catalogs as databases
from penstock.sql.statements import insert as results
from penstock.sql.statements import objects as functions
from penstock.sql.statements.insert import plan_insert, with_text
from penstock.sql.statements.objects import create_as


def require_table(session: TableSession, path: tuple[str, ...]) -> tuple[tuple[str, str, str], CatalogBaseTable]:
    """Return a table or view with its path. Raises `ValidationError` if it does not exist."""
    entry = session.manager.find(path)
    if entry is None:
        raise session.manager.missing(
            f"Tables or views with the identifier '{'.'.join(session.manager.qualified(path))}' doesn't exist.", path
        )
    return entry


def columns(
    session: TableSession,
    table: CatalogBaseTable,
    keeps: Callable[[str], bool] = bool,
    more: Sequence[tuple[str, str]] = (),
) -> TableResult:
    """List the columns of a table, one row for each. `keeps`: selects columns by name; `more`: further rows."""
    schema = session.manager.resolved(table)
    selected = [column for column in schema.columns if keeps(column.name)]
    has_comments = any(column.comment is not None for column in selected)
    headers = [(name, results.STRING) for name in ("name", "type", "null", "key", "extras", "watermark")]
    kinds = [(name, types.BooleanType() if name == "null" else kind) for name, kind in headers]
    if has_comments:
        kinds.append(("comment", results.STRING))
    rows = [(*_row(column, schema), column.comment)[: len(kinds)] for column in selected]
    rows += [(*pair, *[None] * (len(kinds) - len(pair))) for pair in more]
    return results.table(kinds, rows)


def _lineage(session: TableSession, path: tuple[str, str, str], table: CatalogBaseTable) -> list[tuple[str, str]]:
    """Return the tables that a materialized table reads, and the materialized tables that read a table.

    Readers are found in the catalog of the table and in the current one. If the query is broken, its error is shown.
    """
    reads: list[str] = []
    if table.is_materialized:
        try:
            reads = list(map(format_path, refresh.read_tables(session, Definition.read(table))))
        except PenstockError as error:
            reads = [f"the query cannot be planned: {str(error).splitlines()[0]}"]
    names = dict.fromkeys([path[0], session.manager.current_catalog])
    candidates = [it for name in names for it in refresh.list_materialized(session.manager.catalog(name)) if it != path]
    readers = [reader for reader, _ in refresh.find_readers(session, path, candidates)]
    return [("# reads", it) for it in reads] + [("# read by", format_path(it)) for it in readers]


def _row(column: Column, schema: ResolvedSchema) -> tuple[Any, ...]:
    kind = PlanColumn(column.name, column.data_type.nullable(), column.time)
    key = schema.primary_key
    is_key = key is not None and column.name in key.columns
    marks = [to_sql(spec.written) for spec in schema.watermark_specs if spec.rowtime_attribute == column.name]
    return (
        column.name,
        str(kind),
        column.data_type.is_nullable,
        f"PRI({', '.join(key.columns)})" if is_key and key is not None else None,
        column.explain_extras(),
        marks[0] if marks else None,
    )


def _describe(session: TableSession, statement: statements.Describe) -> TableResult:
    match statement.what:
        case "TABLE":
            path, table = require_table(session, statement.path)
            return columns(session, table, more=_lineage(session, path, table) if statement.is_extended else ())
        case "CATALOG":
            return _catalog(session, statement)
        case "DATABASE":
            return _database(session, statement)
        case "FUNCTION":
            return _function(session, statement)
        case "MODEL":
            return models.describe(session, statement.path)
        case _:
            raise UnsupportedError(f"Penstock has no {statement.what.lower()}s")


def _pairs(pairs: list[tuple[str, str | None]]) -> TableResult:
    return results.table([("info name", results.STRING), ("info value", results.STRING)], pairs)


def _catalog(session: TableSession, statement: statements.Describe) -> TableResult:
    descriptor = catalogs.get_catalog_descriptor(session, statement.path[-1])
    pairs: list[tuple[str, str | None]] = [
        ("name", descriptor.catalog_name),
        ("type", descriptor.options.get("type", "")),
        ("comment", descriptor.comment),
    ]
    if statement.is_extended:
        options = sorted(shown(descriptor.options).items())
        pairs += [(f"option:{key}", value) for key, value in options if key != "type"]
    return _pairs(pairs)


def _database(session: TableSession, statement: statements.Describe) -> TableResult:
    catalog, name = databases.place(session, statement.path)
    database = session.manager.catalog(catalog).get_database(name)
    pairs: list[tuple[str, str | None]] = [("name", name), ("comment", database.comment)]
    if statement.is_extended:
        pairs += [(f"option:{key}", value) for key, value in sorted(database.properties.items())]
    return _pairs(pairs)


def _function(session: TableSession, statement: statements.Describe) -> TableResult:
    full_path = session.manager.qualified(statement.path)
    catalog = session.manager.catalog(full_path[0])
    path = ObjectPath(full_path[1], full_path[2].lower())
    registered = session.functions.find(full_path)
    if registered is None and not catalog.function_exists(path):
        if len(statement.path) == 1 and is_built_in(statement.path[0].upper()):
            return _describe_system_function(statement.path[0], statement.is_extended)
        raise ValidationError(f"Function with the identifier '{format_path(statement.path)}' doesn't exist.")
    is_system = registered is not None and not session.functions.has_temporary(full_path)
    function = registered if registered is not None else catalog.get_function(path)
    pairs: list[tuple[str, str | None]] = [
        ("is system function", str(is_system).lower()),
        ("is temporary", str(registered is not None).lower()),
        ("class name", getattr(function, "target", None) or repr(function)),
        ("function language", getattr(function, "language", "PYTHON")),
    ]
    if statement.is_extended:
        user = session.functions.defined(function, statement.path[-1])
        pairs += [
            ("kind", user.kind.name),
            ("requirements", "[]"),
            ("is deterministic", str(user.is_deterministic).lower()),
            ("supports constant folding", "false"),
        ]
    return _pairs(pairs)


def _describe_system_function(name: str, is_extended: bool) -> TableResult:
    """Describe a built-in function as Flink does: name, kind and signatures."""
    pairs: list[tuple[str, str | None]] = [("is system function", "true"), ("is temporary", "false")]
    if is_extended:
        aggregate, scalar = AGGREGATE_FUNCTIONS.get(name.upper()), SCALAR_FUNCTIONS.get(name.upper())
        function = aggregate or scalar
        pairs += [
            ("kind", "AGGREGATE" if aggregate is not None else "SCALAR" if scalar is not None else "TABLE"),
            ("requirements", "[]"),
            ("is deterministic", str(scalar is None or scalar.is_deterministic).lower()),
            ("supports constant folding", str(scalar is not None and scalar.is_folded).lower()),
        ]
        if function is not None:
            signatures = [f"{name.lower()}{signature}" for signature in function.signatures]
            pairs.append(("signature", "\n".join(signatures)))
    return _pairs(pairs)


DESCRIBE_HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.Describe: _describe
}


def create_table(session: TableSession, path: tuple[str, ...]) -> str:
    """Return the CREATE TABLE statement of a table."""
    target, table = _found(session, path, "TABLE")
    if table.is_view or table.is_materialized:
        kind = "VIEW" if table.is_view else "MATERIALIZED TABLE"
        identifier = ".".join(target) if table.is_view else format_path(target)
        raise ValidationError(
            f"SHOW CREATE TABLE is only supported for tables, but {identifier} is a {kind.lower()}. Please use SHOW "
            f"CREATE {kind} instead."
        )
    return "\n".join(_lines(session, f"CREATE {_temporary(session, path)}TABLE", target, table)) + "\n"


def create_materialized_table(session: TableSession, path: tuple[str, ...]) -> str:
    """Return the CREATE MATERIALIZED TABLE statement of a materialized table."""
    target, table = _found(session, path, "MATERIALIZED TABLE")
    if not table.is_materialized:
        raise ValidationError(
            f"SHOW CREATE MATERIALIZED TABLE is only supported for materialized tables, but {format_path(target)} is a "
            f"{'view' if table.is_view else 'table'}. Please use SHOW CREATE {'VIEW' if table.is_view else 'TABLE'} "
            "instead."
        )
    lines = _lines(session, "CREATE MATERIALIZED TABLE", target, table)
    return "\n".join([*lines, *show_clauses(Definition.read(table))]) + "\n"


def _lines(session: TableSession, create: str, target: tuple[str, str, str], table: CatalogBaseTable) -> list[str]:
    lines = [
        f"{create} {format_path(target)} (",
        ",\n".join(_elements(session, table)),
        ")",
    ]
    if table.comment:
        lines.append(f"COMMENT {types.literal(table.comment)}")
    if table.distribution is not None:
        kind, keys = table.distribution.kind or "", ", ".join(map(types.quoted, table.distribution.columns))
        buckets = f"INTO {table.distribution.buckets} BUCKETS" if table.distribution.buckets is not None else ""
        by = f"BY {kind}({keys})" if keys else ""
        lines.append(" ".join(part for part in ("DISTRIBUTED", by, buckets) if part))
    if table.partition_keys:
        lines.append(f"PARTITIONED BY ({', '.join(map(types.quoted, table.partition_keys))})")
    if options := table.get_options():
        lines.append(with_text(dict(sorted(options.items()))))
    return lines


def create_view(session: TableSession, path: tuple[str, ...]) -> str:
    """Return the CREATE VIEW statement of a view."""
    target, view = _found(session, path, "VIEW")
    if not view.is_view:
        raise ValidationError(
            f"SHOW CREATE VIEW is only supported for views, but {'.'.join(target)} is a table. Please use SHOW CREATE "
            "TABLE instead."
        )
    if isinstance(view, InlineView):
        raise ValidationError("SHOW CREATE VIEW is not supported for views registered by Table API, which have no text")
    names = ",\n".join(f"  {types.quoted(column.name)}" for column in view.schema.columns)
    comment = f"COMMENT {types.literal(view.comment)}\n" if view.comment else ""
    return f"CREATE {_temporary(session, path)}VIEW {format_path(target)} (\n{names}\n)\n{comment}AS {view.query}\n"


def _found(session: TableSession, path: tuple[str, ...], kind: str) -> tuple[tuple[str, str, str], CatalogBaseTable]:
    if session.manager.find(path) is None:
        identifier = ".".join(session.manager.qualified(path))
        raise session.manager.missing(
            f"Could not execute SHOW CREATE {kind}. {kind.capitalize()} with identifier '{identifier}' does not exist.",
            path,
        )
    return require_table(session, path)


def _temporary(session: TableSession, path: tuple[str, ...]) -> str:
    return "TEMPORARY " if session.manager.temporary(path) is not None else ""


def _elements(session: TableSession, table: CatalogBaseTable) -> Iterator[str]:
    schema = session.manager.resolved(table)
    for column in schema.columns:
        comment = f" COMMENT {types.literal(column.comment)}" if column.comment else ""
        yield f"  {types.quoted(column.name)} {_definition(column)}{comment}"
    for mark in schema.watermark_specs:
        yield f"  WATERMARK FOR {types.quoted(mark.rowtime_attribute)} AS {to_sql(mark.written)}"
    if schema.primary_key is not None:
        yield f"  {schema.primary_key}"


def _definition(column: Column) -> str:
    if column.kind is ColumnKind.COMPUTED:
        return str(column.explain_extras())
    extras = column.explain_extras()
    return serial_text(column.data_type) + ("" if extras is None else f" {extras}")


def serial_text(data_type: types.DataType) -> str:
    """Format a type as catalogs do: STRING and BYTES with their lengths."""
    match data_type:
        case types.VarCharType(length=length) | types.VarBinaryType(length=length) if length == types.LENGTH_MAX:
            text = f"{data_type.root}({types.LENGTH_MAX})"
        case types.RowType(fields=fields) if not isinstance(data_type, types.StructuredType):
            inner = (
                f"{types.quoted(field.name)} {serial_text(field.data_type)}"
                + ("" if field.description is None else f" {types.literal(field.description)}")
                for field in fields
            )
            text = f"ROW<{', '.join(inner)}>"
        case types.ArrayType() | types.MapType() | types.MultisetType():
            text = f"{data_type.root}<{', '.join(map(serial_text, data_type.children()))}>"
        case _:
            return str(data_type)
    return text if data_type.is_nullable else f"{text} NOT NULL"


def like(pattern: str, ignores_case: bool = False) -> Callable[[str], bool]:
    """Return a matcher for a LIKE pattern: `%` matches any text, `_` any character; a backslash escapes either."""
    regex, escaped = "", False
    for char in pattern:
        if escaped or char not in "%_\\":
            regex += re.escape(char)
            escaped = False
        elif char == "\\":
            escaped = True
        else:
            regex += ".*" if char == "%" else "."
    compiled = re.compile(regex, re.DOTALL | (re.IGNORECASE if ignores_case else 0))
    return lambda name: compiled.fullmatch(name) is not None


def _keeps(statement: statements.Show) -> Callable[[str], bool]:
    if statement.pattern is None:
        return lambda name: True
    is_like = like(statement.pattern, statement.pattern_kind == "ILIKE")
    return lambda name: is_like(name) is not statement.is_negated


def _place(session: TableSession, statement: statements.Show) -> tuple[Catalog, str]:
    catalog, database = databases.place(session, statement.path)
    resolved = session.manager.catalog(catalog)
    resolved.get_database(database)
    return resolved, database


def table_names(session: TableSession, catalog: Catalog, database: str, views: bool | None = None) -> list[str]:
    """Return the names of a database's tables and views; with `views`, of views only (True) or tables only (False)."""
    stored = catalog.list_views(database) if views else catalog.list_tables(database)
    if views is False:
        stored = sorted(set(stored) - set(catalog.list_views(database)))
    current = session.manager.current_catalog, session.manager.current_database
    temporary = session.manager.list_temporary(views) if (catalog.name, database) == current else []
    return sorted({*stored, *temporary})


def _tables(session: TableSession, statement: statements.Show) -> Iterable[str]:
    return table_names(session, *_place(session, statement))


def _views(session: TableSession, statement: statements.Show) -> Iterable[str]:
    return table_names(session, *_place(session, statement), views=True)


def _materialized_tables(session: TableSession, statement: statements.Show) -> Iterable[str]:
    catalog, database = _place(session, statement)
    names = set(catalog.list_tables(database)) - set(catalog.list_views(database))
    return sorted(name for name in names if catalog.get_table(ObjectPath(database, name)).is_materialized)


def _databases(session: TableSession, statement: statements.Show) -> Iterable[str]:
    name = statement.path[0] if statement.path else session.manager.current_catalog
    return session.manager.catalog(name).list_databases()


def _functions(session: TableSession, statement: statements.Show) -> Iterable[str]:
    catalog, database = _place(session, statement)
    names = functions.user_functions(session, catalog.name, database)
    if statement.what == "USER FUNCTIONS":
        return names
    return sorted({*names, *functions.built_in_functions(), *session.modules.function_names()})


#: the column name of the result, and a function that lists its values
_LISTS: Final[dict[str, tuple[str, Callable[[TableSession, statements.Show], Iterable[str]]]]] = {
    "TABLES": ("table name", _tables),
    "VIEWS": ("view name", _views),
    "DATABASES": ("database name", _databases),
    "CATALOGS": ("catalog name", lambda session, statement: session.manager.list_catalogs()),
    "FUNCTIONS": ("function name", _functions),
    "USER FUNCTIONS": ("function name", _functions),
    "MODULES": ("module name", lambda session, statement: session.modules.used),
    "JARS": ("jars", lambda session, statement: ()),
    "PROCEDURES": ("procedure name", lambda session, statement: ()),
    "MODELS": ("model name", lambda session, statement: models.model_names(session, *_place(session, statement))),
    "MATERIALIZED TABLES": ("table name", _materialized_tables),
    "CONNECTIONS": ("connection name", lambda session, statement: ()),
    "CURRENT CATALOG": ("current catalog name", lambda session, statement: [session.manager.current_catalog]),
    "CURRENT DATABASE": ("current database name", lambda session, statement: [session.manager.current_database]),
}
#: SHOW CREATE
_CREATES: Final[dict[str, Callable[[TableSession, tuple[str, ...]], str]]] = {
    "CREATE TABLE": create_table,
    "CREATE MATERIALIZED TABLE": create_materialized_table,
    "CREATE VIEW": create_view,
    "CREATE CATALOG": catalogs.show_create,
    "CREATE DATABASE": databases.show_create_database,
    "CREATE MODEL": lambda session, path: models.show_create(session, path, serial_text),
}


def _show(session: TableSession, statement: statements.Show) -> TableResult:
    listed = _LISTS.get(statement.what)
    if listed is not None:
        column, names = listed
        return results.listing(column, filter(_keeps(statement), names(session, statement)))
    create = _CREATES.get(statement.what)
    if create is not None:
        return results.listing("result", [create(session, statement.path)])
    match statement.what:
        case "COLUMNS":
            table = require_table(session, statement.path)[1]
            return columns(session, table, _keeps(statement))
        case "FULL MODULES":
            used = session.modules.used
            loaded = [*used, *(name for name in session.modules.loaded if name not in used)]
            kinds = [("module name", results.STRING), ("used", types.BooleanType())]
            return results.table(kinds, [(name, name in used) for name in loaded])
        case "PARTITIONS":
            return _partitions(session, statement)
        case _:
            raise UnsupportedError(f"SHOW {statement.what} is not supported")


def _partitions(session: TableSession, statement: statements.Show) -> TableResult:
    """List the partitions; catalogs in memory store none. Raise if the table is not partitioned."""
    full_path, table = require_table(session, statement.path)
    is_temporary = session.manager.temporary(statement.path) is not None
    catalog = session.manager.catalog(full_path[0])
    listed = None if is_temporary or table.is_view else catalog.list_partitions(ObjectPath(*full_path[1:]))
    if listed is None and not table.partition_keys:
        raise ValidationError(f"Table {'.'.join(full_path)} is not partitioned.")
    constants = find_static_values(session.manager, full_path, table, statement.partition)
    wanted = {f"{name}={constant.value}" for name, constant in constants.items()}
    return results.listing("partition name", [text for text in listed or () if wanted <= set(text.split("/"))])


SHOW_HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.Show: _show
}


def plan_statement(session: TableSession, statement: Statement) -> Sequence[Node]:
    """Return the plans of a query, an INSERT, a statement set or CREATE TABLE AS."""
    match statement:
        case statements.QueryStatement(query):
            return [session.manager.analyser().query(query)]
        case statements.Insert():
            return [plan_insert(session, statement)]
        case statements.StatementSet(inserts):
            return [plan_insert(session, insert) for insert in inserts]
        case statements.CreateTable(query=query) if query is not None:
            return [create_as(session, statement)[1]]
        case statements.Explain(inner) | statements.Execute(inner):
            return plan_statement(session, inner)
        case statements.CreateTable():
            raise ValidationError("EXPLAIN of CREATE TABLE needs a query: CREATE TABLE … AS SELECT …")
        case _:
            raise UnsupportedError(f"EXPLAIN is for queries and INSERT, and not for {type(statement).__name__}")


def _explain(session: TableSession, statement: statements.Explain) -> TableResult:
    if statement.runs:
        return session.analyze(plan_statement(session, statement.statement))
    return results.text(session.explain(plan_statement(session, statement.statement), statement.details))


EXPLAIN_HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.Explain: _explain
}


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    **DESCRIBE_HANDLERS,
    **SHOW_HANDLERS,
    **EXPLAIN_HANDLERS,
}
