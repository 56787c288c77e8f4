"""The command `penstock`: a group of the commands in `commands`, by subject."""

from __future__ import annotations

from typing import Final

import click

from penstock.cli.console import HELP, Commands

_MODULES: Final = {
    "cancel": "jobs",
    "cdc": "cdc",
    "checkpoint": "savepoints",
    "completion": "tools",
    "config": "tools",
    "demo": "tools",
    "gateway": "run",
    "history": "tools",
    "info": "jobs",
    "list": "jobs",
    "logs": "jobs",
    "package-env": "tools",
    "rescale": "jobs",
    "run": "run",
    "savepoint": "savepoints",
    "session": "run",
    "sim": "tools",
    "sql": "run",
    "state": "savepoints",
    "stop": "jobs",
    "top": "jobs",
    "try": "tools",
    "version": "tools",
}


@click.group(
    cls=Commands,
    modules={name: f"penstock.cli.commands.{module}" for name, module in _MODULES.items()},
    context_settings=HELP,
)
def main() -> None:
    """Flink's model, in Python, on Spark."""


if __name__ == "__main__":
    main()
