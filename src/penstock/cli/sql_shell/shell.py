"""The SQL shell: runs one statement after another, prints results, and keeps the jobs that they start.

`QueryView` shows the rows of a query to the user: as a tableau, as changes, or as the materialized table.

`SessionJobs` are the jobs that a session has started: SHOW JOBS, DESCRIBE JOB, STOP JOB, and waiting for them to end.

`Shell` needs no terminal. `run_script` runs statements from files and from standard input, one after another, up to the
first error. `run_terminal` prepares a terminal for the prompt. `run_shell` starts a session from the options of the
command line.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol

from penstock.base.configuration import Configuration
from penstock.base.errors import PenstockError, ResourceError, UnsupportedError, WrongValueError, write_install_command
from penstock.base.options import RECOVERY_PATH
from penstock.cli.sql_shell import display
from penstock.cli.sql_shell.statements import Statement, error_text, reason, split
from penstock.drivers.cancellation import wait_until_done
from penstock.drivers.running_job import JobClient, RunningJob
from penstock.sql.analyzed_jobs import analyzed_job
from penstock.sql.data.errors import ValidationError
from penstock.sql.executor import ChangelogRow
from penstock.sql.logical.nodes import PlanColumn, RowSchema
from penstock.sql.parser import parse_statement, statements
from penstock.sql.session.result import NULL_TEXT, CloseableIterator, ResultKind, Tableau, TableResult, format_value
from penstock.sql.session.session import DML_SYNC, TableConfig
from penstock.sql.statements import insert as results
from penstock.sql.statements.insert import STRING
from penstock.table import EnvironmentSettings, TableEnvironment

Write = Callable[[str], object]


def write_out(text: str) -> None:
    """Print a text and flush, because rows may arrive slowly."""
    sys.stdout.write(text)
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class QueryView:
    """Shows query rows as this session's options say.

    Args:
        config: the session's options.
        is_terminal: whether the output is a terminal, which can be redrawn.
        clock: a clock (s), for the duration of a query.
    """

    config: TableConfig
    is_terminal: bool
    clock: Callable[[], float] = time.monotonic

    def show(self, result: TableResult, begun: float) -> bool:
        """Show all rows of a query. Ctrl-C cancels it; returns whether it ran to its end.

        Args:
            result: the query.
            begun: when it was submitted, by the clock.
        """
        changes = _Changes(result.collect())
        resolved = result.get_resolved_schema()
        columns = zip(resolved.get_column_names(), resolved.get_column_data_types(), strict=True)
        schema = RowSchema(tuple(PlanColumn(name, kind) for name, kind in columns))
        try:
            with display.hold_log():
                self._show(changes, schema, begun)
        except KeyboardInterrupt:
            changes.is_cancelled = True
        finally:
            changes.rows.close()
        if changes.is_cancelled:
            write_out("[INFO] The query is cancelled.\n")
        return not changes.is_cancelled

    def _show(self, changes: Iterable[ChangelogRow], schema: RowSchema, begun: float) -> None:
        mode = display.result_mode(self.config, self.is_terminal)
        is_streaming, width = self.config.is_streaming(), display.column_width(self.config)
        if mode == "CHANGELOG":
            show_changes(changes, schema, write_out)
        elif mode == "TABLEAU":
            style = Tableau(schema, not is_streaming, is_streaming, width, counts_received=is_streaming)
            times = not is_streaming and self.config.read(display.PRINT_TIME_COST)
            write = _Timed(lambda: self.clock() - begun) if times else write_out
            style.print(changes, write)
        else:
            self._show_table(changes, schema, width)

    def _show_table(self, changes: Iterable[ChangelogRow], schema: RowSchema, width: int) -> None:
        table = display.MaterializedTable(self.config.read(display.MAX_TABLE_ROWS))
        if self.is_terminal:
            from penstock.cli.sql_shell.display import show_live

            show_live(table, format_changes(changes, schema), schema.names, width)
            return
        for kind, texts in format_changes(changes, schema):
            table.apply(kind, texts)
        draw_table(table, schema, width)


class _Changes:
    """The rows of a query as changes, until the query ends or is interrupted."""

    def __init__(self, rows: CloseableIterator) -> None:
        self.rows = rows
        self.is_cancelled = False

    def __iter__(self) -> Iterator[ChangelogRow]:
        try:
            for row in self.rows:
                yield row.get_row_kind().short_string, tuple(row)
        except KeyboardInterrupt:  # the frame around the rows is still completed
            self.is_cancelled = True


class _Timed:
    """Writes lines, and appends the elapsed time to the last one, which is the row count."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds

    def __call__(self, text: str) -> None:
        is_count = text.endswith((" in set\n", "Empty set\n")) and not text.startswith("|")
        write_out(f"{text[:-1]} ({self._seconds():.2f} seconds)\n" if is_count else text)


def format_changes(changes: Iterable[ChangelogRow], schema: RowSchema) -> Iterator[tuple[str, list[str]]]:
    """Yield changes with their values as text."""
    for kind, values in changes:
        yield kind, [format_value(value, type_, NULL_TEXT) for value, type_ in zip(values, schema.types, strict=True)]


def show_changes(changes: Iterable[ChangelogRow], schema: RowSchema, write: Write) -> None:
    """Write a line for each change, of any width."""
    write(f"op {', '.join(schema.names)}\n")
    count = 0
    for kind, texts in format_changes(changes, schema):
        write(f"{kind} {', '.join(texts)}\n")
        count += 1
    write(f"Received a total of {count} {'row' if count == 1 else 'rows'}\n")


def draw_table(table: display.MaterializedTable, schema: RowSchema, width: int) -> None:
    """Draw the table that results from the changes, with borders."""
    # The cells are already text.
    texts = RowSchema(tuple(PlanColumn(name, STRING) for name in schema.names))
    Tableau(texts, fits_rows=True, width_max=width).print((("+I", row) for row in table.rows()), write_out)


_COLUMNS: Final = [(name, results.STRING) for name in ("job id", "job name", "status", "start time")]
_PATIENCE_SECONDS: Final = 5.0
_TERMINAL: Final = ("FINISHED", "FAILED", "CANCELED", "SUSPENDED")


@dataclass(slots=True)
class SessionJob:
    """A job of the session. `is_stopped`: a statement has ended it; `is_told`: its outcome was reported to the user."""

    result: TableResult
    client: JobClient
    name: str
    started: datetime.datetime
    is_stopped: bool = False
    is_told: bool = False

    @property
    def id(self) -> str:
        """The job's id, as hexadecimal digits."""
        return str(self.client.get_job_id())

    @property
    def status(self) -> str:
        """The job's status."""
        return self.client.get_job_status().result().name

    @property
    def is_running(self) -> bool:
        """Whether the job has not ended."""
        return self.status not in _TERMINAL

    def failure(self, error: BaseException) -> str:
        """Return the message for the job's failure, and count it as reported."""
        self.is_told = True
        return f"[ERROR] Job {self.id} ({self.name}) failed. Reason:\n{reason(error)}\n"

    def row(self) -> tuple[str, str, str, str]:
        """Return the job's row in SHOW JOBS."""
        return self.id, self.name, self.status, self.started.isoformat(" ", "milliseconds")


class SessionJobs:
    """See the module docstring."""

    def __init__(self) -> None:
        self._jobs: dict[str, SessionJob] = {}

    def add(self, result: TableResult, name: str) -> SessionJob:
        """Add a job that a statement has just started."""
        started = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        client = result.get_job_client()
        assert client is not None
        job = SessionJob(result, client, name, started)
        self._jobs[job.id] = job
        return job

    def running(self) -> list[SessionJob]:
        """Return the jobs that have not ended."""
        return [job for job in self._jobs.values() if job.is_running]

    def show(self) -> TableResult:
        """Run SHOW JOBS: list the jobs, newest first."""
        return results.table(_COLUMNS, [job.row() for job in reversed(self._jobs.values())])

    def run(self, statement: statements.JobStatement) -> TableResult:
        """Run DESCRIBE JOB, STOP JOB or EXPLAIN ANALYZE JOB.

        Raises:
            ValidationError: if the session has not started the job, or the options do not fit.
            CheckpointError: if the savepoint fails; the job then continues.
        """
        job = self._jobs.get(statement.job_id)
        if job is None:
            raise ValidationError(
                f"This session has not started a job '{statement.job_id}'. SHOW JOBS lists those it has started."
            )
        if statement.verb == "DESCRIBE":
            return results.table(_COLUMNS, [job.row()])
        if statement.verb == "ANALYZE":
            assert isinstance(job.client, RunningJob)
            return results.text(analyzed_job(job.client))
        if "SAVEPOINT" in statement.options:
            stopped = job.client.stop_with_savepoint("DRAIN" in statement.options)
            wait_until_done(stopped)
            path = stopped.result()
            job.is_stopped = True
            return results.table([("savepoint path", results.STRING)], [(path,)])
        job.is_stopped = True
        job.client.cancel().result()
        return results.done()

    def not_stopped(self) -> Iterator[SessionJob]:
        """Return the jobs that no statement has ended, in start order."""
        return (job for job in self._jobs.values() if not job.is_stopped)

    def failures(self) -> Iterator[str]:
        """Yield the message for each job that has failed since the last call."""
        for job in self.not_stopped():
            if not job.is_told and job.status == "FAILED":
                error = job.client.get_job_execution_result().exception()
                assert error is not None
                yield job.failure(error)

    def cancel_all(self) -> None:
        """Cancel the running jobs, and wait briefly for them to end."""
        running = self.running()
        for job in running:
            job.is_stopped = True
            job.client.cancel().result()
        wait([job.client.get_job_execution_result() for job in running], _PATIENCE_SECONDS)


#: the older name of `execution.state-recovery.path`
SAVEPOINT_PATH: Final = "execution.savepoint.path"
_CLEAR_SCREEN: Final = "\x1b[2J\x1b[H"
_SUCCEEDED: Final = "[INFO] Execute statement succeeded.\n"
HELP: Final = """\
Statements end with a semicolon and may span lines.

  SELECT …, VALUES …         run a query and show its rows; Ctrl-C ends it
  INSERT INTO …              start a job that writes to a table
  EXECUTE STATEMENT SET      run several INSERTs as one job: BEGIN …; …; END;
  EXPLAIN …                  show the plan of a query or an INSERT
  EXPLAIN ANALYZE …          run it, and show what each operator has done; JOB 'id': that of a running job
  CREATE, ALTER, DROP        define tables, views, functions, catalogs, databases
  SHOW, DESCRIBE, USE        list, describe and select them
  SET 'key' = 'value'        set an option; SET alone lists all options
  RESET 'key'                reset an option; RESET alone resets all
  SHOW JOBS                  list the jobs of this session
  STOP JOB 'id'              stop a job: WITH SAVEPOINT, WITH SAVEPOINT WITH DRAIN
  CLEAR                      clear the screen
  QUIT, EXIT                 leave the shell
"""


class Tables(Protocol):
    """Runs statements: a `TableEnvironment`, or a session of a gateway."""

    def get_config(self) -> TableConfig:
        """Return the options."""

    def execute_sql(self, statement: str) -> TableResult:
        """Run a statement."""


class Shell:
    """See the module docstring.

    Args:
        tables: runs the statements.
        is_terminal: whether the output can be redrawn.
        clock: a clock (s).
    """

    #: the text before the id of a job, and the text after its end
    submitted = "[INFO] SQL update statement has been successfully submitted to the cluster:\nJob ID: "
    completed = "[INFO] Complete execution of the SQL update statement.\n"

    def __init__(self, tables: Tables, is_terminal: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self.tables = tables
        self.jobs = SessionJobs()
        #: whether QUIT has been run
        self.is_over = False
        #: whether a statement set has begun and not ended
        self.has_open_set = False
        self._is_terminal = is_terminal
        self._clock = clock
        self._view = QueryView(tables.get_config(), is_terminal, clock)
        self._warned_of: list[str] = []

    @property
    def is_verbose(self) -> bool:
        """Whether errors are shown with tracebacks."""
        return self.tables.get_config().read(display.VERBOSE)

    def run(self, statement: Statement) -> bool:
        """Run a statement and print its result. Returns False if it was interrupted.

        Raises:
            PenstockError: the errors of `TableEnvironment.execute_sql`, and the failure of a query or a job.
        """
        parsed = parse_statement(statement.text)
        match parsed:
            case statements.ShellCommand():
                self.command(parsed)
            case statements.JobStatement():
                self._print(self.jobs.run(parsed))
            case statements.Show(what="JOBS"):
                self._print(self.jobs.show())
            case statements.SetOption(key=str() as key, value=str() as value, resets=False):
                display.check_option(key, value)
                self._set(key, value, statement.text)
            case statements.SetOption():
                self._print(self.tables.execute_sql(statement.text))
            case _:
                return self._execute(parsed, statement.text)
        return True

    # --- statements of the shell -------------------------------------------------------------------------------------

    def command(self, statement: statements.ShellCommand) -> None:
        """Run HELP, CLEAR, QUIT or its synonym EXIT."""
        if statement.command == "HELP":
            write_out(HELP)
        elif statement.command == "CLEAR":
            write_out(_CLEAR_SCREEN if self._is_terminal else "")
        else:
            self.is_over = self._may_leave()

    def _may_leave(self) -> bool:
        """Return whether to leave. Jobs end with the shell, so at a terminal QUIT must be repeated while jobs run."""
        running = [job.id for job in self.jobs.running()]
        if not self._is_terminal or set(running) <= set(self._warned_of):
            return True
        self._warned_of = running
        names = ", ".join(running)
        write_out(f"[WARNING] Jobs still run, and end with this shell: {names}. QUIT again cancels them.\n")
        return False

    def _set(self, key: str, value: str, text: str) -> None:
        if key == SAVEPOINT_PATH:
            self.tables.get_config().set(RECOVERY_PATH.key(), value)
            write_out(_SUCCEEDED)
        else:
            self._print(self.tables.execute_sql(text))

    # --- statements of tables ----------------------------------------------------------------------------------------

    def _execute(self, parsed: statements.Statement, text: str) -> bool:
        begun = self._clock()
        config = self.tables.get_config()
        waits = config.read(DML_SYNC)
        was_set = config.get_configuration().contains_key(DML_SYNC.key())
        # The shell waits itself, so that it knows the job and can cancel it.
        config.set(DML_SYNC.key(), "false")
        try:
            result = self.tables.execute_sql(text)
        finally:
            if was_set:
                config.set(DML_SYNC.key(), str(waits).lower())
            else:
                config.reset(DML_SYNC.key())
        while isinstance(parsed, statements.Execute):
            parsed = parsed.statement
        if isinstance(parsed, statements.QueryStatement):
            return self._view.show(result, begun)
        self._note_statement_set(parsed)
        has_job = isinstance(result.get_job_client(), JobClient)
        if has_job and not isinstance(parsed, statements.Explain):  # EXPLAIN ANALYZE ends with its job
            return self._started(result, waits)
        self._print(result)
        return True

    def _note_statement_set(self, parsed: statements.Statement) -> None:
        self.has_open_set = isinstance(parsed, statements.BeginStatementSet) or (
            self.has_open_set and isinstance(parsed, statements.Insert)
        )

    def _started(self, result: TableResult, waits: bool) -> bool:
        tables = result.get_resolved_schema().get_column_names()
        name = self.tables.get_config().get("pipeline.name") or f"insert-into_{','.join(tables)}"
        job = self.jobs.add(result, name)
        write_out(f"{self.submitted}{job.id}\n")
        if not waits:
            return True
        try:
            job.is_told = True  # a failure is raised
            result.wait()
        except KeyboardInterrupt:
            job.is_stopped = True
            job.client.cancel().result()
            write_out("[INFO] The job is cancelled.\n")
            return False
        write_out(self.completed)
        return True

    def complete(self, before: str, after: str) -> Sequence[str]:
        """Return the texts that may replace the word before a place; needs prompt-toolkit."""
        from penstock.cli.sql_shell.prompt import SessionNames, candidates

        assert isinstance(self.tables, TableEnvironment)
        return candidates(before, after, SessionNames(self.tables)).texts

    def close(self) -> None:
        """Cancel the jobs that still run."""
        self.jobs.cancel_all()

    @staticmethod
    def _print(result: TableResult) -> None:
        if result.get_result_kind() is ResultKind.SUCCESS:
            write_out(_SUCCEEDED)
        else:
            result.print()


#: the exit code of a command that Ctrl-C has ended, as in shells
INTERRUPTED: Final = 130
_NOT_IN_INIT: Final = (
    statements.QueryStatement,
    statements.Insert,
    statements.StatementSet,
    statements.BeginStatementSet,
    statements.Execute,
)


def run_init(shell: Shell, script: str, source: str) -> bool:
    """Run the statements that prepare a session, which start no job. Returns whether all succeeded."""
    for statement in split(script):
        try:
            if isinstance(parse_statement(statement.text), _NOT_IN_INIT):
                raise ValidationError("An init file sets options and makes tables, but runs no query and no INSERT.")
            shell.run(statement)
        except Exception as error:  # noqa: BLE001 - a function or connector of the user may raise anything
            _report(shell, error, statement, source)
            return False
    return True


def run_script(shell: Shell, script: str, source: str) -> int:
    """Run all statements of a text, and wait for the jobs that they start. Returns the command's exit code."""
    try:
        for statement in split(script):
            write_out(f"Penstock SQL> {statement.text};\n")
            try:
                if not shell.run(statement):
                    shell.jobs.cancel_all()
                    return INTERRUPTED
            except Exception as error:  # noqa: BLE001 - a function or connector of the user may raise anything
                _report(shell, error, statement, source)
                shell.jobs.cancel_all()
                return 1
            write_out("\n")
            if shell.is_over:
                break
        return _end(shell)
    except KeyboardInterrupt:
        shell.jobs.cancel_all()
        return INTERRUPTED


def _end(shell: Shell) -> int:
    """Wait for the jobs, which run in this process. Returns the exit code."""
    if shell.has_open_set:
        _tell("[ERROR] BEGIN STATEMENT SET has no END, so its INSERT statements did not run.\n")
        shell.jobs.cancel_all()
        return 1
    for job in shell.jobs.not_stopped():
        try:
            job.result.wait()
        except PenstockError as error:
            _tell(job.failure(error))
            shell.jobs.cancel_all()
            return 1
    return 0


def _report(shell: Shell, error: Exception, statement: Statement, source: str) -> None:
    _tell(error_text(error, statement, source, shell.is_verbose))


def _tell(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(text)
    sys.stderr.flush()


def history_path(session: str | None, history: Path | None) -> Path:
    """Return the history file: the one that was named, or one per session in the home directory."""
    if history is not None:
        return history.expanduser()
    return Path.home() / (".penstock-sql-history" if session is None else f".penstock-sql-history-{session}")


def keep_private(path: Path) -> None:
    """Make the history file, which may contain passwords, accessible only to its owner; create it if it is missing."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ResourceError(f"the history {path} cannot be written: {error.strerror}") from error
    try:
        if os.fstat(descriptor).st_uid == os.getuid():
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def run_terminal(shell: Shell, session: str | None, history: Path | None) -> int:
    """Read and run statements until the user quits. Returns the exit code.

    Raises:
        UnsupportedError: without prompt-toolkit.
    """
    if find_spec("prompt_toolkit") is None:
        raise UnsupportedError(
            f"the prompt needs prompt-toolkit: {write_install_command('shell')}, or run a file with penstock sql -f "
            "FILE"
        )
    from penstock.cli.sql_shell.prompt import Prompt

    path = history_path(session, history)
    keep_private(path)
    Prompt(shell, path, session).run()
    return 0


@dataclass(frozen=True, slots=True)
class ShellOptions:
    """The options of the command line.

    `init`: files that prepare the session; `file`: the file to run; `session`: the name of the session; `history`: the
    file for the history; `properties`: options as `key=value`; `gateway`: the address of a gateway; `token`: its token.
    """

    init: Sequence[Path] = ()
    file: Path | None = None
    session: str | None = None
    history: Path | None = None
    properties: Sequence[str] = ()
    gateway: str | None = None
    token: str | None = None


def run_shell(options: ShellOptions) -> int:
    """Run the shell. Returns its exit code.

    Raises:
        WrongValueError: for an option that is not `key=value`.
        UnsupportedError: at a terminal without prompt-toolkit.
    """
    is_prompt = options.file is None and sys.stdin.isatty()
    if is_prompt or sys.stderr.isatty():
        display.limit_log()
    shell = _begin_shell(options, is_prompt and sys.stdout.isatty())
    try:
        return _run(shell, options, is_prompt)
    finally:
        shell.close()


def _begin_shell(options: ShellOptions, is_terminal: bool) -> Shell:
    if options.gateway is None:
        return Shell(TableEnvironment.create(parse_settings(options.properties)), is_terminal)
    from penstock.cli.client.rest_client import TOKEN_OPTION, resolve_address
    from penstock.cli.sql_shell.remote import GatewayShell, connect

    properties = parse_properties(options.properties)
    given = {} if options.token is None else {TOKEN_OPTION: options.token}
    address = resolve_address(options.gateway, properties | given, "--gateway", "8083")
    of_session = {key: value for key, value in properties.items() if not key.startswith(_OF_CONNECTION)}
    return GatewayShell(connect(address, of_session, options.session), is_terminal)


#: Options for the way to the gateway, which are not for its session.
_OF_CONNECTION: Final = ("penstock.rest.", "security.ssl.rest.")


def _run(shell: Shell, options: ShellOptions, is_prompt: bool) -> int:
    for path in options.init:
        if not run_init(shell, path.read_text(), str(path)):
            return 1
    if options.file is not None:
        return run_script(shell, options.file.read_text(), str(options.file))
    if not is_prompt:
        return run_script(shell, sys.stdin.read(), "standard input")
    return run_terminal(shell, options.session, options.history)


def parse_settings(properties: Sequence[str]) -> EnvironmentSettings:
    """Return the settings with these options, each `key=value`."""
    options = parse_properties(properties)
    return EnvironmentSettings.new_instance().with_configuration(Configuration.from_dict(options)).build()


def parse_properties(properties: Sequence[str]) -> dict[str, str]:
    """Return the options, each given as `key=value`."""
    options = {}
    for option in properties:
        key, equals, value = option.partition("=")
        if not key or not equals:
            raise WrongValueError(f"-D takes key=value, not {option!r}")
        display.check_option(key, value)
        options[key] = value
    return options
