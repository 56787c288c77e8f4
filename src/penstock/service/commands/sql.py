"""`penstock sql`: statements at a prompt, from a file, or from standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("sql")
@click.option("-f", "--file", type=_FILE, help="Run the statements of this file and exit.")
@click.option("-i", "--init", multiple=True, type=_FILE, help="Run this file first, for SET, CREATE and the like.")
@click.option("-s", "--session", metavar="NAME", help="The session's name; each session has its own history.")
@click.option("-hist", "--history", type=click.Path(dir_okay=False, path_type=Path), help="The history file.")
@click.option("-D", "properties", multiple=True, metavar="KEY=VALUE", help="Set an option (repeatable).")
def command(
    file: Path | None, init: tuple[Path, ...], session: str | None, history: Path | None, properties: tuple[str, ...]
) -> None:
    """Run SQL: at a prompt, from a file, or from standard input.

    Exits with 1 at the first statement of a file that fails. Jobs run in this process: after the last statement of a
    file, it waits for all jobs that the file started.
    """
    from penstock.service.sql_shell.command import ShellOptions, run_shell

    sys.exit(run_shell(ShellOptions(init, file, session, history, properties)))
