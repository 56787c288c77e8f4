"""The jobs that refresh materialized tables: a continuous one, and batches that replace the rows.

Jobs run in a fork of the session, so they see what it saw, and its options as they were.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from penstock.base.configuration import Configuration
from penstock.base.errors import OperationError, PenstockError, UnsupportedError
from penstock.base.job import JobStatus
from penstock.base.options import (
    CHECKPOINTING_DIR,
    RECOVERY_FROM_LATEST,
    RECOVERY_PATH,
    RUNTIME_MODE,
    SAVEPOINT_DIR,
    SIGNING_KEY,
)
from penstock.codecs.file_systems import url_to_fs
from penstock.drivers.running_job import JobClient
from penstock.runtime.checkpoint.restore import check_fit
from penstock.runtime.graph import JobGraph
from penstock.sql.catalogs.catalog import Catalog, CatalogBaseTable, ObjectPath
from penstock.sql.catalogs.sinks import write_plan
from penstock.sql.data.errors import ValidationError, names_located
from penstock.sql.data.types import quoted
from penstock.sql.logical.nodes import Node, Scan, Write
from penstock.sql.logical.properties import all_nodes
from penstock.sql.materialized_tables.definition import (
    ACTIVATED,
    BATCH,
    STREAMING,
    Definition,
    options_of_job,
    parse_names,
)
from penstock.sql.materialized_tables.scheduler import PREFIX, SCHEDULER
from penstock.sql.parser import parse_statement, statements
from penstock.sql.parser.unparse import format_path
from penstock.sql.session.session import DML_SYNC, TableSession
from penstock.storage.files import load_metadata, parse_signing_key

Path = tuple[str, str, str]
_log = logging.getLogger("penstock.materialized-tables")
#: How often (s) the start of a job is looked at.
LOOK_SECONDS: Final = 0.02


class RefreshJobs:
    """The continuous refreshes of this process, by the ids of their jobs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[str, JobClient] = {}
        self._paths: dict[str, Path] = {}

    def add(self, client: JobClient, path: Path) -> str:
        """Add a job of a table, forget jobs that have ended, and return its id."""
        job_id = str(client.get_job_id())
        with self._lock:
            self._clients = {
                other_id: other
                for other_id, other in self._clients.items()
                if not other.get_job_execution_result().done()
            }
            self._clients[job_id] = client
            self._paths = {other_id: self._paths.get(other_id, path) for other_id in self._clients}
        return job_id

    def paths(self) -> list[Path]:
        """Return the tables whose jobs this process has started. Some of the jobs may have ended."""
        with self._lock:
            return list(self._paths.values())

    def find(self, job_id: str) -> JobClient | None:
        """Return a job that was started in this process."""
        with self._lock:
            return self._clients.get(job_id)

    def runs(self, job_id: str) -> bool:
        """Return whether a job runs in this process."""
        client = self.find(job_id)
        return client is not None and not client.get_job_execution_result().done()


#: the continuous refreshes of this process
JOBS: Final = RefreshJobs()


# --- plans -----------------------------------------------------------------------------------------------------------


@contextmanager
def find_namespace(session: TableSession, definition: Definition) -> Iterator[None]:
    """Resolve names where the query of a table was written."""
    manager = session.manager
    before = manager.current_catalog, manager.current_database
    manager.current_catalog, manager.current_database = definition.namespace
    try:
        yield
    finally:
        manager.current_catalog, manager.current_database = before


def plan_query(session: TableSession, definition: Definition, text: str | None = None) -> Node:
    """Return the plan of the query, or of another text with its names."""
    text = definition.query if text is None else text
    statement = parse_statement(text)
    assert isinstance(statement, statements.QueryStatement)
    with find_namespace(session, definition), names_located(text):
        return session.manager.analyser().query(statement.query)


def read_tables(session: TableSession, definition: Definition) -> list[Path]:
    """Return the tables that the query of a table reads, also through views. Raises for a broken query."""
    plan = plan_query(session, definition)
    return sorted({node.path for node in all_nodes(plan) if isinstance(node, Scan)})


def find_readers(session: TableSession, path: Path, candidates: Iterable[Path]) -> Iterator[tuple[Path, Definition]]:
    """Yield the materialized tables among the candidates whose queries read a table, with their definitions.

    It leaves out tables that no longer exist or have a broken query.
    """
    for candidate in candidates:
        with suppress(PenstockError):
            entry = session.manager.find(candidate)
            if entry is not None and entry[1].is_materialized:
                definition = Definition.read(entry[1])
                if path in read_tables(session, definition):
                    yield candidate, definition


def list_materialized(catalog: Catalog) -> Iterator[Path]:
    """Yield the materialized tables of all databases of a catalog."""
    for database in catalog.list_databases():
        for name in sorted(set(catalog.list_tables(database)) - set(catalog.list_views(database))):
            if catalog.get_table(ObjectPath(database, name)).is_materialized:
                yield catalog.name, database, name


def warn_of_readers(session: TableSession, path: Path) -> None:
    """Log the materialized tables that this process keeps up to date, and that read a table that is dropped."""
    scheduled = [parse_names(name.removeprefix(PREFIX)) for name in SCHEDULER.names()]
    candidates = {*JOBS.paths(), *((names[0], names[1], names[2]) for names in scheduled)} - {path}
    for reader, definition in find_readers(session, path, sorted(candidates)):
        if definition.status == ACTIVATED:
            _log.warning(
                "%s is dropped, and the materialized table %s reads it, whose refresh goes on: it fails when it starts "
                "again or is changed",
                format_path(path),
                format_path(reader),
            )


def plan_write(
    session: TableSession,
    path: Path,
    table: CatalogBaseTable,
    definition: Definition,
    dynamic: Mapping[str, str] | None = None,
    overwrites: bool = False,
    where: str = "",
) -> Write:
    """Return the plan that writes the query's rows into the table.

    `dynamic`: options of the table for this job alone; `where`: the condition of the rows to write.
    """
    text = f"SELECT * FROM ({definition.query}) WHERE {where}" if where else definition.query
    plan = plan_query(session, definition, text)
    given = tuple((dynamic or {}).items())
    return write_plan(session.manager, path, table, plan, names=plan.schema.names, options=given, overwrites=overwrites)


def list_state_ids(session: TableSession, write: Write) -> frozenset[str]:
    """Return the ids of the states of a continuous refresh, but those of its sink, which any query keeps."""
    plan = replace(write, options=(("connector", "blackhole"),), partition_keys=(), metadata=())
    operators = [operator for vertex in _plan_stream(session, plan).vertices for operator in vertex.operators]
    return frozenset(operator.operator_id for operator in operators if operator.is_stateful)


def check_sink(session: TableSession, path: Path, table: CatalogBaseTable, definition: Definition) -> None:
    """Raise `ValidationError` if the connector does not take the changes of the query.

    Columns that the query appends are not in the table yet.
    """
    names = ", ".join(quoted(column.name) for column in table.schema.columns if column.expression is None)
    of_table = replace(definition, query=f"SELECT {names} FROM ({definition.query})")
    try:
        _plan_stream(session, plan_write(session, path, table, of_table))
    except ValidationError as error:
        if "doesn't support consuming" not in str(error):
            raise
        raise ValidationError(
            f"{error}. A continuous refresh writes all changes of the query: give the table a PRIMARY KEY and a "
            "connector that writes by key, such as 'iceberg', 'delta', 'jdbc' or 'upsert-kafka'"
        ) from error


def _plan_stream(session: TableSession, write: Write) -> JobGraph:
    fork = session.fork()
    fork.config.set(RUNTIME_MODE.key(), STREAMING)
    return fork.plan([write]).job_graph


def can_overwrite(session: TableSession, write: Write) -> bool:
    """Return whether the connector of the table can replace all rows at once."""
    try:
        session.executor.check_overwrites(write)
    except UnsupportedError:
        return False
    return True


def require_overwrites(session: TableSession, write: Write, why: str) -> None:
    """Raise `UnsupportedError` unless the connector of the table can replace all rows at once."""
    if not can_overwrite(session, write):
        connector = dict(write.options).get("connector", "")
        raise UnsupportedError(
            f"{why}, which connector '{connector}' of table {format_path(write.path)} cannot do: declare REFRESH_MODE "
            "= CONTINUOUS, or let the table be of a connector with INSERT OVERWRITE, such as 'iceberg'"
        )


# --- jobs ------------------------------------------------------------------------------------------------------------


def start_continuous(
    session: TableSession,
    path: Path,
    table: CatalogBaseTable,
    definition: Definition,
    dynamic: Mapping[str, str] | None = None,
    goes_on: bool = False,
) -> str:
    """Start the job that keeps a table up to date, and return its id when it runs.

    It begins at the savepoint of the definition. `goes_on`: the last job has ended without one, so it begins at the
    newest checkpoint in the directory of that job, if there is one.

    Raises:
        CheckpointError: if the savepoint does not fit.
        JobExecutionError: if the job cannot begin.
    """
    fork = session.fork()
    # The suffix keeps a table from going on with the checkpoints of an earlier one of its name.
    name = f"Materialized_table_{format_path(path)}_continuous_refresh_job_{definition.name_suffix}"
    for key, value in options_of_job(definition, name, session.config).items():
        fork.config.set(key, value)
    write = plan_write(fork, path, table, definition, dynamic)
    if definition.savepoint:
        _check_savepoint(fork, definition.savepoint, write)
        fork.config.set(RECOVERY_PATH.key(), definition.savepoint)
    if goes_on and definition.checkpoints:
        fork.config.set(CHECKPOINTING_DIR.key(), definition.checkpoints)
        fork.config.set(RECOVERY_FROM_LATEST.key(), "true")
    client = fork.write([write]).get_job_client()
    assert client is not None
    job_id = JOBS.add(client, path)
    while client.get_job_status().result() in (JobStatus.INITIALIZING, JobStatus.CREATED):
        time.sleep(LOOK_SECONDS)
    if client.get_job_status().result() is JobStatus.FAILED:
        client.get_job_execution_result().result()
    return job_id


def _check_savepoint(session: TableSession, savepoint: str, write: Write) -> None:
    """Raise `CheckpointError` for a savepoint from which the job could not begin; the job would find out too late."""
    configuration = Configuration.from_dict(session.config.to_map())
    fs, directory = url_to_fs(savepoint)
    metadata = load_metadata(fs, directory, parse_signing_key(configuration.read(SIGNING_KEY)))
    check_fit(metadata, session.plan([write]).job_graph, configuration)


def start_batch(
    session: TableSession,
    path: Path,
    table: CatalogBaseTable,
    definition: Definition,
    kind: str,
    where: str = "",
    dynamic: Mapping[str, str] | None = None,
) -> JobClient:
    """Start a batch job that replaces the rows of a table, visible when it has succeeded. `kind`: of its name."""
    fork = session.fork()
    name = f"Materialized_table_{format_path(path)}_{kind}_refresh_job"
    for key, value in {"pipeline.name": name, RUNTIME_MODE.key(): BATCH, DML_SYNC.key(): "false"}.items():
        fork.config.set(key, value)
    fork.manager.options_to_read = session.executor.options_up_to_now
    for option in (RECOVERY_PATH, RECOVERY_FROM_LATEST):
        fork.config.reset(option.key())
    write = plan_write(fork, path, table, definition, dynamic, True, where)
    require_overwrites(fork, write, "a refresh replaces all rows at once")
    client = fork.write([write]).get_job_client()
    assert client is not None
    return client


def prepare_rows(session: TableSession, path: Path, table: CatalogBaseTable, definition: Definition) -> None:
    """REFRESH the rows or EMPTY the table before the first job, as the definition says."""
    where = "FALSE" if definition.first == "EMPTY" else ""
    start_batch(session, path, table, definition, "one_time", where).get_job_execution_result().result()


def stop(session: TableSession, path: Path, definition: Definition) -> str:
    """Stop the job of a continuous refresh with a savepoint, and return its path.

    Raises:
        ValidationError: if there is no directory for savepoints.
        OperationError: if the job does not run in this process, or no savepoint comes about: then it goes on.
    """
    if session.config.read(SAVEPOINT_DIR) is None:
        raise ValidationError(
            "Savepoint directory is not configured, can't stop job with savepoint. SET "
            f"'{SAVEPOINT_DIR.key()}' to a directory"
        )
    what = f"Failed to suspend the continuous refresh job for materialized table {format_path(path)}"
    client = JOBS.find(definition.job_id)
    if client is None:
        raise OperationError(
            f"{what}: job {definition.job_id} does not run in this process. If its own process has ended, RESUME "
            "takes the table over here"
        )
    try:
        savepoint = client.stop_with_savepoint(False, session.config.read(SAVEPOINT_DIR)).result()
        client.get_job_execution_result().result()  # then the files of the job are as the next one needs them
        return savepoint
    except PenstockError as error:
        status = client.get_job_status().result().name
        remedy = (
            "" if JOBS.runs(definition.job_id) else ". RESUME starts it again, from its last checkpoint if it has one"
        )
        raise OperationError(f"{what}: job {definition.job_id} is {status}: {error}{remedy}") from error


def cancel(definition: Definition) -> None:
    """Cancel the job of a continuous refresh, if it runs in this process, and wait for its end."""
    client = JOBS.find(definition.job_id)
    if client is not None and not client.get_job_execution_result().done():
        client.cancel().result()
        client.get_job_execution_result().exception()


def partition_condition(partition: Mapping[str, str]) -> str:
    """Return the condition of the rows of a partition. The values are expressions."""
    return " AND ".join(f"{quoted(name)} = {value}" for name, value in partition.items())
