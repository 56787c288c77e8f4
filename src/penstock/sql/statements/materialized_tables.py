"""The statements of materialized tables: CREATE, CREATE OR ALTER, ALTER, DROP and REFRESH."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from penstock.base.errors import OperationError, PenstockError, UnsupportedError
from penstock.base.job import JobStatus
from penstock.base.options import CHECKPOINTING_DIR, EXECUTION_TARGET
from penstock.sql.catalogs.catalog import CatalogBaseTable, ObjectPath
from penstock.sql.catalogs.columns import UnresolvedColumn
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import CharType, MapType, VarCharType, literal
from penstock.sql.logical.nodes import Node, Write
from penstock.sql.materialized_tables import refresh
from penstock.sql.materialized_tables.definition import (
    ACTIVATED,
    AUTOMATIC,
    CONTINUOUS,
    FULL,
    SUSPENDED,
    Definition,
    Freshness,
    define,
)
from penstock.sql.materialized_tables.refresh import JOBS, Path
from penstock.sql.materialized_tables.scheduler import PREFIX, SCHEDULER, Cron, Refresh
from penstock.sql.parser import statements, syntax, to_sql
from penstock.sql.parser.statements import AlterAction
from penstock.sql.parser.unparse import format_path
from penstock.sql.session.result import TableResult
from penstock.sql.session.session import DML_SYNC, TableSession, parse_zone
from penstock.sql.statements import insert as results
from penstock.sql.statements import objects

#: The options that say how the time of a refresh names the partition to refresh.
_PARTITION_FIELDS: Final = "partition.fields."
_FORMATTER: Final = ".date-formatter"


# --- finding and keeping ---------------------------------------------------------------------------------------------


def find(session: TableSession, path: tuple[str, ...]) -> tuple[Path, CatalogBaseTable, Definition]:
    """Return a materialized table with its definition. Raises `ValidationError` for other tables."""
    full_path, table = results.target(session, path)
    _require_materialized(full_path, table)
    return full_path, table, Definition.read(table)


def _require_materialized(path: Path, table: CatalogBaseTable) -> None:
    if not table.is_materialized:
        raise ValidationError(
            f"Table {format_path(path)} is not a materialized table, does not support materialized table related "
            "operation."
        )


def _keep(
    session: TableSession,
    path: Path,
    definition: Definition,
    table: CatalogBaseTable | None = None,
    actions: Sequence[AlterAction] = (),
) -> CatalogBaseTable:
    """Store a definition, with other columns if actions say so, and return the table."""
    catalog, at = session.manager.catalog(path[0]), ObjectPath(*path[1:])
    kept = definition.written(catalog.get_table(at) if table is None else table)
    if actions:
        catalog.change_table(at, kept, actions)
    else:
        catalog.alter_table(at, kept)
    return catalog.get_table(at)


def workflow_name(path: Path) -> str:
    """Return the name of the workflow that refreshes a table."""
    return f"{PREFIX}{format_path(path)}"


# --- CREATE ----------------------------------------------------------------------------------------------------------


def _create(session: TableSession, statement: statements.CreateMaterializedTable) -> TableResult:
    existing = session.manager.find(statement.path)
    if existing is not None and statement.alters:
        return _alter_existing(session, statement, *existing)
    namespace = session.manager.current_catalog, session.manager.current_database
    definition = define(statement, namespace, session.config)
    path = session.manager.qualified(statement.path)
    assert statement.query is not None
    plan = session.manager.analyser().query(statement.query)
    table = objects.table_of_query(statement, plan)
    _check_formats(table)
    if existing is not None:
        raise ValidationError(
            f"Could not execute CreateTable in path {format_path(path)}\nTable (or view) {'.'.join(path[1:])} already "
            f"exists in Catalog {path[0]}."
        )
    _check_sink(session, path, table, definition)
    session.manager.create(path, definition.written(table), False)
    try:
        _require_kept(session, path)
        _activate(session, path, definition)
    except BaseException:
        session.manager.drop(path, False, False, True)
        raise
    return results.done()


def _require_kept(session: TableSession, path: Path) -> None:
    """Raise `UnsupportedError` if the catalog has not kept the definition of a new table."""
    kept = session.manager.catalog(path[0]).get_table(ObjectPath(*path[1:]))
    if not kept.is_materialized:
        raise UnsupportedError(
            f"catalog {path[0]} keeps no options of tables, so it cannot have the materialized table {path[2]}: make "
            "it in a catalog of type 'file', 'iceberg' or 'delta', or in one in memory"
        )


def _check_sink(session: TableSession, path: Path, table: CatalogBaseTable, definition: Definition) -> None:
    """Raise unless the connector fits the refresh mode. A table of a lake does not exist yet."""
    staged = session.manager.catalog(path[0]).stage_table(ObjectPath(*path[1:]), table, False) or table
    write = refresh.plan_write(session, path, staged, definition)
    if definition.refresh_mode == FULL:
        refresh.require_overwrites(session, write, f"FRESHNESS = {definition.freshness} is kept by full refreshes")
    elif staged is table:
        refresh.check_sink(session, path, table, definition)


def _check_formats(table: CatalogBaseTable) -> None:
    """Check the options that say how partitions are named by time."""
    columns = {column.name: column.data_type for column in table.schema.columns}
    for option in _formats(table):
        name = option.removeprefix(_PARTITION_FIELDS).removesuffix(_FORMATTER)
        if name not in table.partition_keys:
            raise ValidationError(
                f"Column '{name}' referenced by materialized table option '{option}' isn't a partition column. "
                f"Available partition columns: {list(table.partition_keys)}."
            )
        if not isinstance(columns.get(name), CharType | VarCharType):
            raise ValidationError(
                f"Materialized table option '{option}' only supports referring to char, varchar and string type "
                f"partition column. Column `{name}` type is {columns.get(name)}."
            )


def _formats(table: CatalogBaseTable) -> dict[str, str]:
    return {
        key: value
        for key, value in table.options.items()
        if key.startswith(_PARTITION_FIELDS) and key.endswith(_FORMATTER)
    }


# --- starting and stopping -------------------------------------------------------------------------------------------


def _activate(
    session: TableSession,
    path: Path,
    definition: Definition,
    dynamic: Mapping[str, str] | None = None,
    goes_on: bool = False,
) -> None:
    """Start the refresh of a table, and keep in its definition that it has started."""
    table = session.manager.catalog(path[0]).get_table(ObjectPath(*path[1:]))
    if definition.refresh_mode == FULL:
        started = replace(definition, status=ACTIVATED, first="")
        _keep(session, path, started)
        _schedule(session, path, started, dynamic)
        return
    if definition.first:
        refresh.prepare_rows(session, path, table, definition)
        definition = replace(definition, first="")
        _keep(session, path, definition)
    job_id = refresh.start_continuous(session, path, table, definition, dynamic, goes_on)
    checkpoints = definition.checkpoints if goes_on else ""
    checkpoints = checkpoints or session.config.read(CHECKPOINTING_DIR) or ""
    _keep(session, path, replace(definition, status=ACTIVATED, job_id=job_id, checkpoints=checkpoints))


def _schedule(
    session: TableSession, path: Path, definition: Definition, dynamic: Mapping[str, str] | None = None
) -> None:
    """Let the scheduler refresh a table, the first time at once."""
    cron, zone = Cron(definition.freshness.schedule()), parse_zone(session.config.get_local_timezone())
    SCHEDULER.create(workflow_name(path), cron, periodic_refresh(session, path, dynamic), zone, is_due=True)


def periodic_refresh(session: TableSession, path: Path, dynamic: Mapping[str, str] | None = None) -> Refresh:
    """Return the call of the scheduler: a refresh of the table as it then is, unless it is suspended."""
    fork = session.fork()

    def run(time: datetime.datetime) -> None:
        _, table, definition = find(fork, path)
        if definition.status == ACTIVATED and definition.refresh_mode == FULL:
            where = refresh.partition_condition(_partition_at(table, definition, time))
            client = refresh.start_batch(fork, path, table, definition, "periodic", where, dynamic)
            client.get_job_execution_result().result()

    return run


def find_refresh(session: TableSession, path: tuple[str, ...]) -> tuple[str, Refresh] | None:
    """Return the name of the workflow of a materialized table, and its refresh; None if the session has none."""
    entry = session.manager.find(path)
    if entry is None or not entry[1].is_materialized:
        return None
    return workflow_name(entry[0]), periodic_refresh(session, entry[0])


def _partition_at(table: CatalogBaseTable, definition: Definition, time: datetime.datetime) -> dict[str, str]:
    """Return the partition that a scheduled refresh replaces: of the time one freshness before, as expressions."""
    earlier = time - datetime.timedelta(milliseconds=definition.freshness.ms)
    return {
        option.removeprefix(_PARTITION_FIELDS).removesuffix(_FORMATTER): (
            f"DATE_FORMAT(TIMESTAMP '{earlier:%Y-%m-%d %H:%M:%S}', {literal(pattern)})"
        )
        for option, pattern in _formats(table).items()
    }


def _deactivate(session: TableSession, path: Path, definition: Definition) -> Definition:
    """Stop the refresh of a table, and return its definition, with the savepoint of a continuous one."""
    if definition.refresh_mode == FULL:
        SCHEDULER.delete(workflow_name(path))
        return replace(definition, status=SUSPENDED)
    return replace(definition, status=SUSPENDED, savepoint=refresh.stop(session, path, definition))


def _suspend(session: TableSession, path: Path, definition: Definition) -> TableResult:
    if definition.status == SUSPENDED:
        raise OperationError(_already(path, definition, "suspended"))
    _keep(session, path, _deactivate(session, path, definition))
    return results.done()


def _already(path: Path, definition: Definition, what: str) -> str:
    title = f"Materialized table {format_path(path)}"
    if definition.refresh_mode == FULL:
        return f"{title} refresh workflow has been {what}."
    return f"{title} continuous refresh job has been {what}, jobId is {definition.job_id}."


def _resume(session: TableSession, path: Path, definition: Definition, dynamic: Mapping[str, str]) -> TableResult:
    is_active = definition.status == ACTIVATED
    is_full = definition.refresh_mode == FULL
    if is_active and (workflow_name(path) in SCHEDULER.names() if is_full else JOBS.runs(definition.job_id)):
        raise OperationError(_already(path, definition, "resumed"))
    if is_active and not is_full:
        definition = _without_position(session, path, definition)
    try:
        _activate(session, path, definition, dynamic, goes_on=is_active)
    except PenstockError as error:
        kind = "refresh workflow" if is_full else "continuous refresh job"
        raise OperationError(f"Failed to resume the {kind} for materialized table {format_path(path)}: {error}") from (
            error
        )
    return results.done()


def _without_position(session: TableSession, path: Path, definition: Definition) -> Definition:
    """Return the definition of a table whose job has ended without a savepoint.

    Without checkpoints, nobody knows how far it came: by key, changes may be written again; other rows may not.

    Raises:
        UnsupportedError: if rows would be there twice.
    """
    table = find(session, path)[1]
    if definition.checkpoints or table.schema.primary_key:
        return definition
    if not refresh.can_overwrite(session, refresh.plan_write(session, path, table, definition)):
        raise UnsupportedError(
            f"job {definition.job_id} of materialized table {format_path(path)} has ended without a savepoint, and "
            f"kept no checkpoints in a directory ('{CHECKPOINTING_DIR.key()}'), so it is not known which rows it has "
            "written: DROP the table, empty what is behind it, and CREATE it again"
        )
    return replace(definition, first="EMPTY", savepoint="")


# --- ALTER -----------------------------------------------------------------------------------------------------------


def alter(session: TableSession, statement: statements.AlterTable) -> TableResult:
    """Run ALTER MATERIALIZED TABLE."""
    path, table, definition = find(session, statement.path)
    action = statement.actions[0]
    match action.verb:
        case "SUSPEND":
            return _suspend(session, path, definition)
        case "RESUME":
            return _resume(session, path, definition, dict(action.options))
        case "REFRESH":
            partition = {name: _text(value) for name, value in action.partition}
            return run_refresh(session, statement.path, partition)
        case "AS":
            assert action.query is not None
            namespace = session.manager.current_catalog, session.manager.current_database
            return _change(session, path, table, replace(definition, query=to_sql(action.query), namespace=namespace))
        case "SET FRESHNESS":
            assert action.freshness is not None
            freshness = Freshness.of_interval(action.freshness)
            changed = definition.at_freshness(freshness, definition.requested_mode, session.config)
            return _change(session, path, table, changed)
        case "SET REFRESH_MODE":
            changed = definition.at_freshness(definition.freshness, action.refresh_mode or AUTOMATIC, session.config)
            return _change(session, path, table, changed)
        case _:
            raise UnsupportedError(
                f"ALTER MATERIALIZED TABLE {action.verb} is not supported: DROP and CREATE the table with it"
            )


def _text(value: syntax.Expression) -> str:
    return value.value if isinstance(value, syntax.TextLiteral) else to_sql(value)


def _alter_existing(
    session: TableSession, statement: statements.CreateMaterializedTable, path: Path, table: CatalogBaseTable
) -> TableResult:
    """Run CREATE OR ALTER of a table that exists: its query, freshness and refresh mode change."""
    if not table.is_materialized:
        raise ValidationError(
            f"Table {'.'.join(path)} is not a materialized table. Only materialized table support create or alter "
            "operation."
        )
    present = table.get_options() | ({} if table.connector_options is None else dict(table.connector_options))
    others = [key for key, value in statement.options if present.get(key) != value]
    if others or (statement.comment is not None and statement.comment != table.comment):
        what = f"option '{others[0]}'" if others else "the comment"
        raise UnsupportedError(
            f"CREATE OR ALTER MATERIALIZED TABLE changes the query, the freshness and the refresh mode, but {what} of "
            f"{format_path(path)} is another one: leave it as it is, or DROP and CREATE the table"
        )
    namespace = session.manager.current_catalog, session.manager.current_database
    wanted, definition = define(statement, namespace, session.config), Definition.read(table)
    return _change(
        session,
        path,
        table,
        replace(
            definition,
            query=wanted.query,
            namespace=namespace,
            freshness=wanted.freshness,
            requested_mode=wanted.requested_mode,
            refresh_mode=wanted.refresh_mode,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Change:
    """The effect of a change of a table.

    Attributes:
        table: the table with its new columns.
        actions: the actions that add these columns.
        keeps_state: whether the next job goes on with the state of the last one.
        first: `Definition.first` of the changed table.
    """

    table: CatalogBaseTable
    actions: tuple[AlterAction, ...]
    keeps_state: bool
    first: str


def _change(session: TableSession, path: Path, table: CatalogBaseTable, wanted: Definition) -> TableResult:
    """Give a table another query, freshness or mode. If its job cannot begin, everything is as it was before."""
    definition = Definition.read(table)
    change = _plan_change(session, path, table, definition, wanted)
    stopped = replace(definition, status=SUSPENDED, savepoint="")  # of a job that has ended with its sources
    if not _has_finished(definition):
        stopped = definition
    if stopped.status == ACTIVATED:
        stopped = _deactivate(session, path, definition)
        _keep(session, path, stopped)
    savepoint = stopped.savepoint if change.keeps_state else ""
    suffix = definition.name_suffix if change.keeps_state else _next_suffix(definition)
    changed = replace(
        wanted, status=SUSPENDED, job_id=stopped.job_id, savepoint=savepoint, name_suffix=suffix, first=change.first
    )
    _keep(session, path, changed, change.table, change.actions)
    if definition.status == SUSPENDED:
        return results.done()
    try:
        _activate(session, path, changed)
    except PenstockError as error:
        outcome = _take_back(session, path, table, stopped, change)
        raise OperationError(
            f"Failed to start the refresh of materialized table {format_path(path)} after the change: {error}. "
            f"{outcome}"
        ) from error
    return results.done()


def _take_back(session: TableSession, path: Path, table: CatalogBaseTable, stopped: Definition, change: _Change) -> str:
    """Give a table its former columns and definition, start its refresh, and return what became of it."""
    failed = find(session, path)[2]
    has_replaced_rows = change.first != failed.first
    if has_replaced_rows and table.schema.primary_key:
        stopped = replace(stopped, first="REFRESH")
    elif has_replaced_rows:  # the rows are gone, so the job has to write all of them again
        stopped = replace(stopped, first="EMPTY", savepoint="", name_suffix=_next_suffix(failed))
    dropped = [AlterAction("DROP COLUMN", names=(action.column.path,)) for action in change.actions if action.column]
    _keep(session, path, replace(stopped, status=SUSPENDED), table, tuple(dropped))
    try:
        _activate(session, path, stopped)
    except PenstockError as error:
        return f"Its former refresh does not start either, so the table is suspended as it was: {error}"
    return "The table goes on as before"


def _next_suffix(definition: Definition) -> str:
    """Return another suffix, for jobs that must not go on with the checkpoints of earlier ones."""
    base, _, number = definition.name_suffix.partition("_")
    return f"{base}_{int(number or 0) + 1}"


def _plan_change(
    session: TableSession, path: Path, table: CatalogBaseTable, definition: Definition, wanted: Definition
) -> _Change:
    """Return the effect of a change. Raises if the table or its connector does not allow it."""
    has_other_query = (wanted.query, wanted.namespace) != (definition.query, definition.namespace)
    added = _added_columns(table, refresh.plan_query(session, wanted)) if has_other_query else ()
    schema = replace(table.schema, columns=(*table.schema.columns, *(_unresolved(column) for column in added)))
    altered = replace(table, schema=schema)
    actions = tuple(AlterAction("ADD COLUMN", column=column) for column in added)
    write = refresh.plan_write(session, path, altered, wanted)
    keeps = not _has_finished(definition)
    if has_other_query and keeps:
        states = [refresh.plan_write(session, path, table, definition), write]
        before, after = (refresh.list_state_ids(session, each) for each in states)
        keeps = before == after and (_has_job(definition) or definition.savepoint != "")
    if wanted.refresh_mode == FULL:
        refresh.require_overwrites(session, write, f"FRESHNESS = {wanted.freshness} is kept by full refreshes")
        return _Change(altered, actions, keeps, "")
    refresh.check_sink(session, path, table, wanted)
    has_key, replaces = bool(write.key), refresh.can_overwrite(session, write)
    first = "REFRESH" if has_key else "EMPTY"
    if definition.refresh_mode == FULL:  # the rows may be those of the last refresh, or of an earlier query
        return _Change(altered, actions, keeps and has_key, first)
    if keeps:
        is_refreshed = has_other_query and has_key and replaces
        return _Change(altered, actions, True, "REFRESH" if is_refreshed else definition.first)
    if not replaces:
        has_ended = _has_finished(definition)
        _refuse_losing_state(path, write, "its job has ended" if has_ended else "the steps of the new query are others")
    return _Change(altered, actions, False, first)


def _has_job(definition: Definition) -> bool:
    """Return whether a job keeps the table up to date."""
    return definition.status == ACTIVATED and definition.refresh_mode == CONTINUOUS


def _has_finished(definition: Definition) -> bool:
    """Return whether the job of a table has ended with its sources, so it leaves no savepoint."""
    client = JOBS.find(definition.job_id) if _has_job(definition) else None
    return client is not None and client.get_job_status().result() is JobStatus.FINISHED


def _refuse_losing_state(path: Path, write: Write, why: str) -> NoReturn:
    connector = dict(write.options).get("connector", "")
    raise UnsupportedError(
        f"{why}, so no job can go on with the state of materialized table {format_path(path)}, and "
        f"connector '{connector}' cannot replace the rows that are there: they would stay "
        "beside the new ones. DROP the table, empty what is behind it, and CREATE it again; or change only what does "
        "not change the state, such as the SELECT list over an aggregation"
    )


def _added_columns(table: CatalogBaseTable, plan: Node) -> tuple[statements.Column, ...]:
    """Return the columns that another query appends. Raises `ValidationError` for any other change."""
    existing = [column for column in table.schema.columns if column.expression is None]
    columns = list(plan.schema)
    if len(columns) < len(existing):
        raise ValidationError(
            "Failed to modify query because drop column is unsupported. When modifying a query, you can only append "
            f"new columns at the end of original schema. The original schema has {len(existing)} columns, but the "
            f"newly derived schema from the query has {len(columns)} columns."
        )
    for index, (before, after) in enumerate(zip(existing, columns, strict=False)):
        if before.name != after.name:
            raise ValidationError(
                "When modifying the query of a materialized table, currently only support appending columns at the end "
                f"of original schema, dropping, renaming, and reordering columns are not supported. Column mismatch at "
                f"position {index}: Original column is [`{before.name}` {before.data_type}], but new column is "
                f"[`{after.name}` {after.type}]."
            )
    return tuple(statements.Column((column.name,), column.type.nullable()) for column in columns[len(existing) :])


def _unresolved(column: statements.Column) -> UnresolvedColumn:
    return UnresolvedColumn(column.path[0], column.type)


# --- REFRESH and DROP ------------------------------------------------------------------------------------------------


def run_refresh(
    session: TableSession,
    path: tuple[str, ...],
    partition: Mapping[str, str],
    dynamic: Mapping[str, str] | None = None,
    time: datetime.datetime | None = None,
) -> TableResult:
    """Start a refresh of a table, or of a partition. `time`: the scheduled time of a periodic refresh."""
    full_path, table, definition = find(session, path)
    values = {name: literal(value) for name, value in partition.items()}
    if time is not None:
        values = _partition_at(table, definition, time)
    _check_partition(table, partition)
    if definition.refresh_mode == CONTINUOUS and definition.status == ACTIVATED and not table.schema.primary_key:
        raise UnsupportedError(
            f"materialized table {format_path(full_path)} has no primary key, so its job would append rows that the "
            "refresh has written already: SUSPEND it, or declare a PRIMARY KEY"
        )
    kind = "one_time" if time is None else "periodic"
    where = refresh.partition_condition(values)
    client = refresh.start_batch(session, full_path, table, definition, kind, where, dynamic)
    if session.config.read(DML_SYNC):
        client.get_job_execution_result().result()
    columns = [("job id", results.STRING), ("cluster info", MapType(results.STRING, results.STRING))]
    info = {EXECUTION_TARGET.key(): session.config.read(EXECUTION_TARGET)}
    return results.table(columns, [(str(client.get_job_id()), info)])


def _check_partition(table: CatalogBaseTable, partition: Mapping[str, str]) -> None:
    unknown = [name for name in partition if name not in table.partition_keys]
    if unknown:
        keys = "\n".join(table.partition_keys)
        raise ValidationError(
            "The partition spec contains unknown partition keys:\n\n"
            + "\n".join(unknown)
            + f"\n\nAll known partition keys are:\n\n{keys}"
        )
    columns = {column.name: column.data_type for column in table.schema.columns}
    others = [name for name in partition if not isinstance(columns[name], CharType | VarCharType)]
    if others:
        raise ValidationError(
            "Currently, refreshing materialized table only supports referring to char, varchar and string type "
            "partition keys. All specified partition keys in partition specs with unsupported types are:\n\n"
            + "\n".join(others)
        )


def drop(session: TableSession, statement: statements.Drop) -> TableResult:
    """Run DROP MATERIALIZED TABLE: its refresh ends first."""
    entry = session.manager.find(statement.path)
    if entry is None:
        if statement.if_exists:
            return results.done()
        identifier = format_path(session.manager.qualified(statement.path))
        raise session.manager.missing(
            f"Materialized table with identifier {identifier} does not exist.", statement.path
        )
    path, table = entry
    _require_materialized(path, table)
    definition = Definition.read(table)
    if definition.refresh_mode == FULL:
        SCHEDULER.delete(workflow_name(path))
    else:
        refresh.cancel(definition)
    session.manager.drop(path, False, False, False)
    return results.done()


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.CreateMaterializedTable: _create,
}
