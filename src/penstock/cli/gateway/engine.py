"""The engine of a gateway's session, which runs its statements in a table environment, and the gateway's process.

`TableEngine` gives each session its own catalogs, functions and options. Options of a statement apply to it alone.
Statements about jobs see the jobs of the whole process, as those of Flink see the jobs of its cluster: SHOW JOBS,
DESCRIBE JOB, STOP JOB.

**Errors** have the names of Flink's classes where Flink has one for the same mistake, because its clients show the
class, and programs look for it.

`python -m penstock.cli.gateway.engine` serves the gateway until SIGTERM or Ctrl-C. Its jobs run in this process, and
are cancelled with it.
"""

from __future__ import annotations

import datetime
import logging
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from penstock.base import options as rest
from penstock.base import server_options as known
from penstock.base.configuration import Configuration
from penstock.base.errors import (
    ConfigurationError,
    JobExecutionError,
    OperationError,
    PenstockError,
    UnsupportedError,
    write_install_command,
)
from penstock.base.secrets import hide, remember, shown
from penstock.cli.gateway.values import RowWriter, columns_json
from penstock.cli.program.launch import log_file, started_detached
from penstock.cli.sql_shell.statements import split
from penstock.codecs.file_systems import open_url
from penstock.drivers.cancellation import SIGNALS_SECONDS, note_end_signals
from penstock.drivers.global_configuration import OPTIONS_VARIABLE, default_configuration, handed_over
from penstock.drivers.logs import log_to_stderr_by_default
from penstock.drivers.running_job import JobClient, JobHandle, RunningJob
from penstock.server.attachment import dispatcher, prepare
from penstock.server.dispatcher import Dispatcher
from penstock.server.gateway.routes import gateway_application
from penstock.server.gateway.sessions import GatewayError, Result, Sessions, SessionSettings, TableRefresh
from penstock.server.rest.calls.context import RestContext, RestSettings
from penstock.server.rest.server import RestServer
from penstock.sql.analyzed_jobs import analyzed_job
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import DataType, LocalZonedTimestampType
from penstock.sql.materialized_tables.scheduler import GROUP, SCHEDULER, Cron, Refresh
from penstock.sql.parser import SqlParserError, parse_path, parse_statement, statements
from penstock.sql.parser.unparse import format_path
from penstock.sql.session.result import ResultKind, TableResult
from penstock.sql.session.session import DML_SYNC, parse_zone
from penstock.sql.statements.insert import STRING
from penstock.sql.statements.materialized_tables import find_refresh, run_refresh
from penstock.table import EnvironmentSettings, TableEnvironment

_log = logging.getLogger("penstock.gateway")

_TABLE_API: Final = "org.apache.flink.table.api."
#: The names of Flink's classes for errors, the most special first.
_CLASSES: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (SqlParserError, f"{_TABLE_API}SqlParserException"),
    (ValidationError, f"{_TABLE_API}ValidationException"),
    (TableRuntimeError, f"{_TABLE_API}TableRuntimeException"),
    (UnsupportedError, "java.lang.UnsupportedOperationException"),
    (ConfigurationError, "java.lang.IllegalArgumentException"),
)
#: Options of clients about themselves. They are kept, but are not for jobs.
_OF_CLIENTS: Final = ("rest.", "$internal.", "jobmanager.", "taskmanager.", "sql-gateway.", "penstock.rest.")
#: How often (s) a statement that waits for its job looks whether it was cancelled.
LOOK_SECONDS: Final = 0.1
#: How many ended queries in BATCH mode are listed.
ENDED_MAX: Final = 50
#: How long (s) jobs may take to end with the gateway.
END_SECONDS: Final = 60.0
_JOB_COLUMNS: Final = ("job id", "job name", "status", "start time")
_JOB_TYPES: Final[tuple[DataType, ...]] = (STRING, STRING, STRING, LocalZonedTimestampType(6))
_CHANGES_SESSION: Final = (
    statements.SetOption,
    statements.CreateTable,
    statements.CreateView,
    statements.CreateFunction,
    statements.Create,
    statements.AlterTable,
    statements.AlterView,
    statements.Alter,
    statements.Drop,
    statements.Use,
    statements.LoadModule,
    statements.JarStatement,
)


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job of the gateway: its client, its name, and when (ms since the epoch) it began."""

    client: JobHandle | JobClient
    name: str
    began_ms: int

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return str(self.client.get_job_id())

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return self.client.get_job_execution_result().done()

    @property
    def status(self) -> str:
        """The status of the job."""
        client = self.client
        return (client.get_job_status().result() if isinstance(client, JobClient) else client.status()).name


class GatewayJobs:
    """The jobs of all sessions, including queries in BATCH mode, which Spark runs and the dispatcher does not know.

    Thread-safe.

    Args:
        dispatcher: the jobs of the process.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._lock = threading.Lock()
        self._queries: list[ListedJob] = []

    def note(self, client: JobClient, name: str) -> None:
        """Remember the job of a statement, unless the dispatcher knows it. The oldest ended jobs are forgotten.

        As in Flink, a query without a name has that of its text.
        """
        query = ListedJob(client, name, int(time.time() * 1000))
        if self._dispatcher.job(query.job_id) is not None:
            return
        with self._lock:
            ended = [listed for listed in self._queries if listed.has_ended]
            forgotten = ended[: max(0, len(ended) + 1 - ENDED_MAX)]
            self._queries = [*(listed for listed in self._queries if listed not in forgotten), query]

    def jobs(self) -> list[ListedJob]:
        """Return all jobs, the newest first."""
        known = [ListedJob(job.handle, job.name, job.began_ms) for job in self._dispatcher.jobs()]
        with self._lock:
            return sorted([*known, *self._queries], key=lambda job: -job.began_ms)

    def find(self, job_id: str) -> ListedJob:
        """Return a job; raise `ValidationError` if it is unknown."""
        listed = next((job for job in self.jobs() if job.job_id == job_id.lower()), None)
        if listed is None:
            raise ValidationError(f"The gateway has no job '{job_id}'. SHOW JOBS lists its jobs.")
        return listed


class TableEngine:
    """See `Engine`.

    Args:
        configuration: the options of the gateway, to which RESET returns.
        options: the options of the session.
        jobs: the jobs of all sessions.
    """

    def __init__(self, configuration: Configuration, options: Mapping[str, str], jobs: GatewayJobs) -> None:
        self._jobs = jobs
        self._of_client = {key: value for key, value in options.items() if key.startswith(_OF_CLIENTS)}
        settings = EnvironmentSettings.new_instance().with_configuration(configuration).build()
        self._tables = TableEnvironment.create(settings)
        self._config = self._tables.get_config()
        for key, value in options.items():
            if key not in self._of_client:
                self._config.set(key, value)
        self._shown = self._show_options()

    def _show_options(self) -> Mapping[str, str]:
        return shown(self._config.to_map() | self._of_client)

    def options(self) -> Mapping[str, str]:
        """See `Engine`."""
        return self._shown

    def run(self, statement: str, options: Mapping[str, str], is_cancelled: Callable[[], bool]) -> Result:
        """See `Engine`."""
        text = _only_statement(statement)
        parsed = parse_statement(text)
        with self._options_of_statement(options):
            match parsed:
                case statements.Show(what="JOBS"):
                    return self._job_result(self._jobs.jobs())
                case statements.JobStatement():
                    return self._run_job_statement(parsed)
                case statements.SetOption():
                    return self._result(self._tables.execute_sql(text), False, None)
                case _:
                    return self._execute(parsed, text, is_cancelled)

    @contextmanager
    def _options_of_statement(self, options: Mapping[str, str]) -> Iterator[None]:
        """Apply options to one statement. Options that the statement sets itself remain."""
        before = {key: self._config.get_configuration().to_dict().get(key) for key in options}
        for key, value in options.items():
            self._config.set(key, value)
        try:
            yield
        finally:
            after = self._config.get_configuration().to_dict()
            for key, was in before.items():
                if after.get(key) != options[key]:
                    continue
                if was is None:
                    self._config.reset(key)
                else:
                    self._config.set(key, was)
            self._shown = self._show_options()

    def _execute(self, parsed: statements.Statement, text: str, is_cancelled: Callable[[], bool]) -> Result:
        waits = self._config.read(DML_SYNC)
        was_set = self._config.get_configuration().contains_key(DML_SYNC.key())
        # The engine waits itself, so that a client can cancel the statement.
        self._config.set(DML_SYNC.key(), "false")
        try:
            result = self._tables.execute_sql(text)
        finally:
            if was_set:
                self._config.set(DML_SYNC.key(), str(waits).lower())
            else:
                self._config.reset(DML_SYNC.key())
        while isinstance(parsed, statements.Execute):
            parsed = parsed.statement
        client = result.get_job_client()
        if client is not None:
            self._jobs.note(client, self._config.get(rest.PIPELINE_NAME.key()) or hide(text.strip()))
        if isinstance(parsed, statements.QueryStatement):
            return self._result(result, True, client)
        if isinstance(parsed, statements.Explain) and parsed.runs:
            return self._text_result("result", _wait_for_text(result, is_cancelled))
        if client is None:
            return self._result(result, False, None)
        job_id = str(client.get_job_id())
        if waits:
            _wait_for(client, is_cancelled)
        writer = RowWriter(("job id",), (STRING,), self._zone())
        rows = iter([("+I", (job_id,))])
        return Result(columns_json(("job id",), (STRING,)), writer, rows, job_id=job_id)

    def _zone(self) -> Any:
        return parse_zone(self._config.get_local_timezone())

    def _result(self, result: TableResult, is_query: bool, client: JobClient | None) -> Result:
        schema = result.get_resolved_schema()
        names, types = schema.get_column_names(), schema.get_column_data_types()
        try:
            columns = columns_json(names, types)
            writer = RowWriter(names, types, self._zone(), self._config.read(known.GATEWAY_TRUE_INSTANTS))
        except BaseException:
            result.cancel()
            raise
        has_content = result.get_result_kind() is ResultKind.SUCCESS_WITH_CONTENT
        job_id = None if client is None else str(client.get_job_id())
        return Result(columns, writer, result.held_rows(), is_query, has_content, job_id, result.cancel)

    def _run_job_statement(self, statement: statements.JobStatement) -> Result:
        job = self._jobs.find(statement.job_id)
        if statement.verb == "DESCRIBE":
            return self._job_result([job])
        if statement.verb == "ANALYZE":
            return self._text_result("result", _analyze(job))
        if "SAVEPOINT" in statement.options:
            path = job.client.stop_with_savepoint("DRAIN" in statement.options).result()
            return self._text_result("savepoint path", path)
        job.client.cancel().result()
        return self._text_result("result", "OK", has_content=False)

    def _text_result(self, column: str, text: str, has_content: bool = True) -> Result:
        writer = RowWriter((column,), (STRING,), self._zone())
        return Result(columns_json((column,), (STRING,)), writer, iter([("+I", (text,))]), has_content=has_content)

    def _job_result(self, jobs: Sequence[ListedJob]) -> Result:
        rows = [(job.job_id, job.name, job.status, job.began_ms * 1_000_000) for job in jobs]
        writer = RowWriter(_JOB_COLUMNS, _JOB_TYPES, self._zone(), self._config.read(known.GATEWAY_TRUE_INSTANTS))
        return Result(columns_json(_JOB_COLUMNS, _JOB_TYPES), writer, iter([("+I", row) for row in rows]))

    def refresh(self, request: TableRefresh) -> Result:
        """See `Engine`."""
        time = None
        if request.is_periodic:
            time = _parse_schedule_time(request.schedule_time, request.identifier, self._zone())
        path = parse_path(request.identifier)
        with self._options_of_statement(request.options):
            result = run_refresh(self._tables._session, path, request.partition, request.dynamic_options, time)
            return self._result(result, False, None)

    def find_refresh(self, path: tuple[str, ...], options: Mapping[str, str]) -> tuple[str, Refresh] | None:
        """Return the workflow of a materialized table and its refresh, if the session has the table."""
        with self._options_of_statement(options):
            return find_refresh(self._tables._session, path)

    def configure(self, statement: str) -> None:
        """See `Engine`."""
        text = _only_statement(statement)
        parsed = parse_statement(text)
        starts_job = isinstance(parsed, statements.CreateTable) and parsed.query is not None
        if not isinstance(parsed, _CHANGES_SESSION) or starts_job:
            raise UnsupportedError(
                f"Unsupported statement for configuring session: {statement}\nThe configureSession API only supports "
                "executing statements of type SET, RESET, CREATE, DROP, ALTER, USE, LOAD MODULE and UNLOAD MODULE."
            )
        try:
            self._tables.execute_sql(text)
        finally:
            self._shown = self._show_options()

    def complete(self, statement: str, position: int) -> Sequence[str]:
        """See `Engine`.

        Raises:
            UnsupportedError: without prompt-toolkit.
        """
        try:
            from penstock.cli.sql_shell.prompt import SessionNames, candidates
        except ImportError as error:
            raise UnsupportedError(f"completion needs prompt-toolkit: {write_install_command('shell')}") from error
        return candidates(statement[:position], statement[position:], SessionNames(self._tables)).texts

    def deploy(self, script: str | None, uri: str | None, options: Mapping[str, str]) -> str:
        """See `Engine`. The process runs `penstock sql`, and goes on when the gateway ends.

        Raises:
            SqlParserError: if the script is no SQL.
            OperationError: if there is no script at the address.
        """
        if script is None:
            try:
                with open_url(uri or "", "rt", encoding="utf-8") as file:
                    script = str(file.read())
            except (OSError, ValueError, ImportError) as error:
                raise OperationError(f"the script {uri} cannot be read: {hide(str(error))}") from error
        for statement in split(script):
            parse_statement(statement.text)
        given = {**self._config.to_map(), **options}
        handed = handed_over({key: value for key, value in given.items() if not key.startswith(_OF_CLIENTS)})
        name = f"penstock-script-{uuid.uuid4()}"
        log = log_file(name, None)
        command = [sys.executable, "-m", "penstock.cli.main", "sql"]
        with started_detached(command, {**os.environ, OPTIONS_VARIABLE: handed}, log, script) as (process, _):
            _log.info("%s runs as process %d; its output is in %s", name, process.pid, log)
            threading.Thread(target=_watch, args=(name, process), name="penstock-gateway-script", daemon=True).start()
        return name

    def describe(self, error: BaseException) -> GatewayError:
        """See `Engine`."""
        if isinstance(error, GatewayError):
            return error
        if isinstance(error, JobExecutionError):
            inner, _, message = error.cause_text.partition(": ")
            is_class = inner.replace(".", "").replace("_", "").isalnum() and "." in inner
            outer = ("org.apache.flink.runtime.client.JobExecutionException", "Job execution failed.")
            cause = (_flink_class(inner.rpartition(".")[2], inner), message) if is_class else (outer[0], str(error))
            return GatewayError(outer, (cause[0], hide(cause[1])))
        name = next((name for kind, name in _CLASSES if isinstance(error, kind)), None)
        kind = type(error)
        return GatewayError((name or f"{kind.__module__}.{kind.__qualname__}", hide(str(error))))

    def close(self) -> None:
        """See `Engine`. The jobs of INSERTs go on."""


def _parse_schedule_time(text: str | None, identifier: str, zone: datetime.tzinfo) -> datetime.datetime:
    if text is None:
        raise ValidationError(
            "The scheduler time must not be null during the periodic refresh of the materialized table "
            f"{format_path(parse_path(identifier))}."
        )
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=zone)
    except ValueError as error:
        raise ValidationError(f"scheduleTime has the form yyyy-MM-dd HH:mm:ss, and is not {text!r}") from error


class EmbeddedWorkflows:
    """See `Workflows`. A workflow refreshes a table that a session of the gateway has."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def create(self, identifier: str, cron: str, options: Mapping[str, str]) -> tuple[str, str]:
        """See `Workflows`."""
        path, times = parse_path(identifier), Cron(cron)
        for session in self._sessions.list():
            engine = session.engine
            if isinstance(engine, TableEngine) and (
                matches := session.call(partial(engine.find_refresh, path, options))
            ):
                SCHEDULER.create(matches[0], times, matches[1])
                return matches[0], GROUP
        raise ValidationError(
            f"no open session of the gateway has a materialized table {format_path(path)}: open one, and create its "
            "catalog there"
        )

    def suspend(self, name: str) -> None:
        """See `Workflows`."""
        SCHEDULER.suspend(name)

    def resume(self, name: str) -> None:
        """See `Workflows`."""
        SCHEDULER.resume(name)

    def delete(self, name: str) -> None:
        """See `Workflows`."""
        SCHEDULER.delete(name)


def _watch(name: str, process: subprocess.Popen[bytes]) -> None:
    code = process.wait()
    _log.log(logging.WARNING if code else logging.INFO, "%s has ended with %d", name, code)


def _flink_class(name: str, full_name: str) -> str:
    return next((flink for kind, flink in _CLASSES if kind.__name__ == name), full_name)


def _only_statement(text: str) -> str:
    """Return the text up to the semicolon of its statement, so that positions in it stay the same."""
    matches = split(text)
    if len(matches) > 1:
        raise GatewayError(("java.lang.IllegalArgumentException", "only single statement supported"))
    return text[: text.rindex(matches[0].text) + len(matches[0].text)] if matches else text


def _analyze(job: ListedJob) -> str:
    if isinstance(job.client, RunningJob):
        return analyzed_job(job.client)
    raise UnsupportedError(
        f"Spark runs the query '{job.job_id}', and its page shows what it does. EXPLAIN ANALYZE with the query itself "
        "shows what it has done"
    )


def _wait_for_text(result: TableResult, is_cancelled: Callable[[], bool]) -> str:
    """Wait for the text of EXPLAIN ANALYZE, and return it. A cancelled statement cancels its job."""
    with ThreadPoolExecutor(1, "penstock-gateway-explain") as pool:
        rows = pool.submit(lambda: list(result.held_rows()))
        while not rows.done() and not is_cancelled():
            wait([rows], LOOK_SECONDS)
        if not rows.done():
            result.cancel()
        return "".join(str(values[0]) for _, values in rows.result())


def _wait_for(client: JobClient, is_cancelled: Callable[[], bool]) -> None:
    """Wait for the end of a job, unless the statement is cancelled; raise its failure."""
    done = client.get_job_execution_result()
    while not is_cancelled():
        try:
            done.result(LOOK_SECONDS)
        except FutureTimeoutError:
            continue
        return


# --- the process -----------------------------------------------------------------------------------------------------


def run_gateway(options: Mapping[str, str]) -> None:
    """Replace this process with the gateway. Returns only through an error of the operating system."""
    sys.stdout.flush()
    command = [sys.executable, "-m", "penstock.cli.gateway.engine"]
    os.execvpe(sys.executable, command, {**os.environ, OPTIONS_VARIABLE: handed_over(options)})


#: The options of the REST API, by those of the gateway.
_OF_REST: Final = {
    known.GATEWAY_BIND_ADDRESS.key(): rest.REST_BIND_ADDRESS.key(),
    known.GATEWAY_ADDRESS.key(): rest.REST_ADDRESS.key(),
    known.GATEWAY_PORT.key(): rest.REST_PORT.key(),
    known.GATEWAY_BIND_PORT.key(): rest.REST_BIND_PORT.key(),
}


def gateway_settings(configuration: Configuration) -> RestSettings:
    """Return where the gateway listens and who may access it: as the REST API, with addresses of its own.

    Raises:
        ConfigurationError: if the settings contradict each other, or are not safe.
    """
    options = {key: value for key, value in configuration.to_dict().items() if key not in _OF_REST.values()}
    options |= {key: options[own] for own, key in _OF_REST.items() if own in options}
    options.setdefault(rest.REST_PORT.key(), str(configuration.read(known.GATEWAY_PORT)))
    try:
        return RestSettings.of(Configuration.from_dict(options))
    except ConfigurationError as error:
        text = str(error)
        for own, key in _OF_REST.items():
            text = text.replace(key, own)
        raise ConfigurationError(text) from error


class Gateway:
    """A gateway: its sessions and its server.

    Args:
        configuration: the options.
        jobs: the jobs of the process.
    """

    def __init__(self, configuration: Configuration, jobs: Dispatcher) -> None:
        read = configuration.read
        bounds = SessionSettings(read(known.GATEWAY_SESSIONS_MAX), read(known.GATEWAY_IDLE_TIMEOUT_MS) / 1000)
        listed = GatewayJobs(jobs)
        self.sessions = Sessions(lambda options: TableEngine(configuration, options, listed), bounds)
        self.sessions.workflows = EmbeddedWorkflows(self.sessions)
        context = RestContext(jobs, configuration)
        settings = gateway_settings(configuration)
        self.server = RestServer(context, settings, gateway_application(self.sessions), "SQL gateway")

    def __enter__(self) -> Gateway:
        self.server.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.stop()
        self.sessions.end_all()


def _serve() -> None:
    configuration = default_configuration()
    remember(configuration.to_dict())
    prepare(configuration)
    jobs = dispatcher()
    end_signals = note_end_signals()
    with Gateway(configuration, jobs) as gateway:
        print(f"SQL gateway at {gateway.server.url}", flush=True)
        interval_s = configuration.read(known.GATEWAY_CHECK_INTERVAL_MS) / 1000
        check_s = time.monotonic() + interval_s
        while not end_signals:
            time.sleep(min(interval_s, SIGNALS_SECONDS))
            if time.monotonic() >= check_s:
                gateway.sessions.end_idle()
                check_s = time.monotonic() + interval_s
    running = [job for job in jobs.jobs() if not job.has_ended]
    for job in running:
        _log.warning("job %s (%s) is cancelled with the gateway", job.job_id, job.name)
        job.handle.cancel()
    wait([job.handle.get_job_execution_result() for job in running], END_SECONDS)


def main() -> int:
    """Serve the gateway until it is asked to end. Returns the exit code."""
    log_to_stderr_by_default()
    try:
        _serve()
    except PenstockError as error:
        print(hide(f"error: {error}"), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
