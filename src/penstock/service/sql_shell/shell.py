"""The shell without a terminal: runs one statement after another, prints results, keeps the jobs that they start."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from penstock.base.options import RECOVERY_PATH
from penstock.drivers.job_client import JobClient
from penstock.service.sql_shell.display import VERBOSE, check_option
from penstock.service.sql_shell.jobs import SessionJobs
from penstock.service.sql_shell.results import QueryView, write_out
from penstock.service.sql_shell.splitting import Statement
from penstock.table import TableEnvironment
from penstock.table.session.result_kind import ResultKind
from penstock.table.session.table_config import DML_SYNC
from penstock.table.session.table_result import TableResult
from penstock.table.sql import parse_statement, statements

#: the older name of `execution.state-recovery.path`
_SAVEPOINT_PATH: Final = "execution.savepoint.path"
_CLEAR_SCREEN: Final = "\x1b[2J\x1b[H"
_SUCCEEDED: Final = "[INFO] Execute statement succeeded.\n"
HELP: Final = """\
Statements end with a semicolon and may span lines.

  SELECT …, VALUES …         run a query and show its rows; Ctrl-C ends it
  INSERT INTO …              start a job that writes to a table
  EXECUTE STATEMENT SET      run several INSERTs as one job: BEGIN …; …; END;
  EXPLAIN …                  show the plan of a query or an INSERT
  CREATE, ALTER, DROP        define tables, views, functions, catalogs, databases
  SHOW, DESCRIBE, USE        list, describe and select them
  SET 'key' = 'value'        set an option; SET alone lists all options
  RESET 'key'                reset an option; RESET alone resets all
  SHOW JOBS                  list the jobs of this session
  STOP JOB 'id'              stop a job: WITH SAVEPOINT, WITH SAVEPOINT WITH DRAIN
  CLEAR                      clear the screen
  QUIT, EXIT                 leave the shell
"""


class Shell:
    """See the module docstring.

    Args:
        tables: runs the statements.
        is_terminal: whether the output can be redrawn.
        clock: a clock (s).
    """

    def __init__(
        self, tables: TableEnvironment, is_terminal: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
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
        return self.tables.get_config().read(VERBOSE)

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
                check_option(key, value)
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
        if key == _SAVEPOINT_PATH:
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
        self.has_open_set = isinstance(parsed, statements.BeginStatementSet) or (
            self.has_open_set and isinstance(parsed, statements.Insert)
        )
        if isinstance(result.get_job_client(), JobClient):
            return self._started(result, waits)
        self._print(result)
        return True

    def _started(self, result: TableResult, waits: bool) -> bool:
        tables = result.get_resolved_schema().get_column_names()
        name = self.tables.get_config().get("pipeline.name") or f"insert-into_{','.join(tables)}"
        job = self.jobs.add(result, name)
        write_out(f"[INFO] SQL update statement has been successfully submitted to the cluster:\nJob ID: {job.id}\n")
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
        write_out("[INFO] Complete execution of the SQL update statement.\n")
        return True

    @staticmethod
    def _print(result: TableResult) -> None:
        if result.get_result_kind() is ResultKind.SUCCESS:
            write_out(_SUCCEEDED)
        else:
            result.print()
