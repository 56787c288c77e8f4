"""INSERT and statement sets, SET and RESET, and the results of statements that run no job.

INSERT writes the rows of a query into the columns of a table. `renamed_path` resolves the new name in ALTER … RENAME.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from penstock.base.errors import UnsupportedError, did_you_mean
from penstock.base.secrets import shown
from penstock.sql.analyzer.from_clause import check_table_hints, options_of_hints
from penstock.sql.catalogs.catalog import CatalogBaseTable
from penstock.sql.catalogs.columns import ResolvedSchema
from penstock.sql.catalogs.sinks import write_plan
from penstock.sql.data.errors import UnknownNameError, ValidationError
from penstock.sql.data.types import LENGTH_MAX, BigIntType, DataType, VarCharType, literal
from penstock.sql.executor import ChangelogRow
from penstock.sql.logical.nodes import PlanColumn, RowSchema, Write
from penstock.sql.parser import statements
from penstock.sql.parser.unparse import format_path
from penstock.sql.session.result import PrintStyle, RawContent, ResultKind, Tableau, TableResult
from penstock.sql.session.session import LOCAL_TIME_ZONE, TableSession, parse_zone

STRING: Final = VarCharType(LENGTH_MAX)


def done() -> TableResult:
    """Return the result `OK` of a successful statement."""
    return _result(ResultKind.SUCCESS, [("result", STRING)], [("OK",)], is_raw=True)


def text(content: str) -> TableResult:
    """Return one text, which is printed verbatim."""
    return _result(ResultKind.SUCCESS_WITH_CONTENT, [("result", STRING)], [(content,)], is_raw=True)


def affected(count: int) -> TableResult:
    """Return the number of rows that a statement has changed, under the name that Flink gives it."""
    return _result(ResultKind.SUCCESS, [("rows affected", BigIntType())], [(count,)])


def listing(column: str, values: Iterable[str]) -> TableResult:
    """Return a result with one column of names."""
    return table([(column, STRING)], [(value,) for value in values])


def table(columns: Sequence[tuple[str, DataType]], rows: Iterable[tuple[Any, ...]]) -> TableResult:
    """Return a result with several columns."""
    return _result(ResultKind.SUCCESS_WITH_CONTENT, columns, rows)


def _result(
    kind: ResultKind, columns: Sequence[tuple[str, DataType]], rows: Iterable[tuple[Any, ...]], is_raw: bool = False
) -> TableResult:
    names, types = [name for name, _ in columns], [data_type for _, data_type in columns]
    schema = RowSchema(tuple(map(PlanColumn, names, types)))
    style: PrintStyle = RawContent(schema)
    if not is_raw:
        style = Tableau(schema, fits_rows=True, width_max=sys.maxsize, null="")
    all_rows: list[ChangelogRow] = [("+I", row) for row in rows]
    return TableResult(kind, ResolvedSchema.physical(names, types), lambda: iter(all_rows), style)


def create_text(kind: str, path: Iterable[str], comment: str | None, options: Mapping[str, str]) -> str:
    """Format the CREATE statement of a catalog or database."""
    lines = [f"CREATE {kind} {format_path(path)}"]
    lines += [f"COMMENT {literal(comment)}"] if comment else []
    return "\n".join(lines + ([with_text(options)] if options else []))


def with_text(options: Mapping[str, str]) -> str:
    """Format the WITH clause, one option a line."""
    inner = ",\n".join(f"  {literal(key)} = {literal(value)}" for key, value in options.items())
    return f"WITH (\n{inner}\n)"


Path = tuple[str, str, str]


def renamed_path(full_path: Path, renamed: tuple[str, ...]) -> Path:
    """Resolve the target path of RENAME TO, which may omit the catalog and database: they cannot change."""
    new_path = (*full_path[: 3 - len(renamed)], *renamed)
    if len(new_path) != 3:
        raise ValidationError(f"a name has at most a catalog and a database before it: {'.'.join(renamed)}")
    if new_path[:2] != full_path[:2]:
        raise ValidationError(
            f"{'.'.join(full_path)} cannot become {'.'.join(new_path)}: RENAME TO keeps catalog and database"
        )
    return new_path


def plan_insert(session: TableSession, insert: statements.Insert) -> Write:
    """Return the plan of an INSERT."""
    if insert.upserts:
        raise UnsupportedError("UPSERT INTO is not supported: INSERT INTO a table with a primary key does the same")
    full_path, table = target(session, insert.path)
    check_table_hints(insert.hints, ".".join(insert.path))
    plan = session.manager.analyser().query(insert.query)
    nested = [column for column in insert.columns if len(column) > 1]
    if nested:
        raise UnsupportedError(f"INSERT into a field of a row is not supported: {'.'.join(nested[0])}")
    return write_plan(
        session.manager,
        full_path,
        table,
        plan,
        names=[column[0] for column in insert.columns],
        partition=insert.partition,
        options=options_of_hints(insert.hints),
        overwrites=insert.overwrites,
        conflict=insert.conflict,
    )


def target(session: TableSession, path: tuple[str, ...], verb: str = "INSERT") -> tuple[Path, CatalogBaseTable]:
    """Return the table that a statement writes. Raises `ValidationError` if it does not exist, or is a view."""
    entry = session.manager.find(path)
    if entry is None:
        catalogs = ", ".join(session.manager.list_catalogs())
        raise UnknownNameError(
            f"Cannot find table '{format_path(session.manager.qualified(path))}' in any of the catalogs [{catalogs}], "
            f"nor as a temporary table{did_you_mean(path[-1], session.manager.table_names())}",
            name=path[-1],
        )
    if entry[1].is_view:
        raise ValidationError(f"'{'.'.join(entry[0])}' is a view, and {verb} needs a table")
    return entry


# --- statements ------------------------------------------------------------------------------------------------------


def _insert(session: TableSession, statement: statements.Insert) -> TableResult:
    plan = plan_insert(session, statement)
    if session.open_set is None:
        return session.write([plan])
    session.open_set.append(plan)
    return done()


def _statement_set(session: TableSession, statement: statements.StatementSet) -> TableResult:
    return session.write([plan_insert(session, insert) for insert in statement.inserts])


def _begin(session: TableSession, statement: statements.BeginStatementSet) -> TableResult:
    session.open_set = []
    return done()


def _end(session: TableSession, statement: statements.EndStatementSet) -> TableResult:
    plans, session.open_set = session.open_set, None
    if plans is None:
        raise ValidationError("No Statement Set to submit. 'END' statement should be used after 'BEGIN STATEMENT SET'.")
    return session.write(plans) if plans else done()


INSERT_HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.Insert: _insert,
    statements.StatementSet: _statement_set,
    statements.BeginStatementSet: _begin,
    statements.EndStatementSet: _end,
}


def _set(session: TableSession, statement: statements.SetOption) -> TableResult:
    if statement.resets:
        return _reset(session, statement.key)
    if statement.key is None:
        entries = sorted(shown(session.config.to_map()).items())
        return table([("key", STRING), ("value", STRING)], entries)
    value = statement.value or ""
    if statement.key == LOCAL_TIME_ZONE.key() and value != "default":
        parse_zone(value)
    session.config.set(statement.key, value)
    return done()


def _reset(session: TableSession, key: str | None) -> TableResult:
    """Reset options to the values that the environment was created with."""
    keys = list(session.config.get_configuration().to_dict()) if key is None else [key]
    for option_key in keys:
        session.config.reset(option_key)
    for option_key, value in session.first_options.items():
        if key is None or key == option_key:
            session.config.set(option_key, value)
    return done()


OPTIONS_HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.SetOption: _set
}


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    **INSERT_HANDLERS,
    **OPTIONS_HANDLERS,
}
