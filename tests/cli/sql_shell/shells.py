"""Shells for tests: what they run in this process, and what they have printed."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from penstock.cli.main import main
from penstock.cli.sql_shell.shell import Shell, parse_settings
from penstock.cli.sql_shell.statements import split
from penstock.table import TableEnvironment

LOCAL = "execution.target=local"


def shell_of(script: str = "", is_terminal: bool = False) -> Shell:
    """A shell in which some statements have run."""
    shell = Shell(TableEnvironment.create(parse_settings([LOCAL])), is_terminal)
    for statement in split(script):
        assert shell.run(statement)
    return shell


def run_file(folder: Path, script: str, *arguments: str) -> Result:
    """Run the command on a file."""
    path = folder / "script.sql"
    path.write_text(script)
    return CliRunner().invoke(main, ["sql", "-f", str(path), "-D", LOCAL, *arguments])


def answers(result: Result) -> list[str]:
    """What the command printed for each statement, without the statement."""
    parts = result.stdout.split("Penstock SQL> ")[1:]
    return [part.partition(";\n")[2].rstrip("\n") for part in parts]
