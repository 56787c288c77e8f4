"""Starts a session from the options of the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.base.configuration import Configuration
from penstock.base.errors import WrongValueError
from penstock.service.sql_shell.display import check_option
from penstock.service.sql_shell.logs import limit_log
from penstock.service.sql_shell.scripts import run_init, run_script
from penstock.service.sql_shell.shell import Shell
from penstock.service.sql_shell.terminal import run_terminal
from penstock.table import EnvironmentSettings, TableEnvironment


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
