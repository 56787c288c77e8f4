"""Starts a session from the options of the command line.

Prepares a terminal for the prompt.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from penstock.base.configuration import Configuration
from penstock.base.errors import ResourceError, UnsupportedError, WrongValueError
from penstock.cli.sql_shell.display import check_option, limit_log
from penstock.cli.sql_shell.shell import Shell, run_init, run_script
from penstock.table import EnvironmentSettings, TableEnvironment


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
            "the prompt needs prompt-toolkit: pip install 'penstock[shell]', or run a file with penstock sql -f FILE"
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
    file for the history; `properties`: options as `key=value`.
    """

    init: Sequence[Path] = ()
    file: Path | None = None
    session: str | None = None
    history: Path | None = None
    properties: Sequence[str] = ()


def run_shell(options: ShellOptions) -> int:
    """Run the shell. Returns its exit code.

    Raises:
        WrongValueError: for an option that is not `key=value`.
        UnsupportedError: at a terminal without prompt-toolkit.
    """
    is_prompt = options.file is None and sys.stdin.isatty()
    if is_prompt or sys.stderr.isatty():
        limit_log()
    shell = Shell(TableEnvironment.create(parse_settings(options.properties)), is_prompt and sys.stdout.isatty())
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
    options = {}
    for option in properties:
        key, equals, value = option.partition("=")
        if not key or not equals:
            raise WrongValueError(f"-D takes key=value, not {option!r}")
        check_option(key, value)
        options[key] = value
    return EnvironmentSettings.new_instance().with_configuration(Configuration.from_dict(options)).build()
