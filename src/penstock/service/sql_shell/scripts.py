"""Runs statements from files and from standard input, one after another, up to the first error."""

from __future__ import annotations

import sys
from typing import Final

from penstock.base.errors import PenstockError
from penstock.service.sql_shell.errors import error_text
from penstock.service.sql_shell.results import write_out
from penstock.service.sql_shell.shell import Shell
from penstock.service.sql_shell.splitting import Statement, split
from penstock.table.data.errors import ValidationError
from penstock.table.sql import parse_statement, statements

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
