"""The command `penstock`: a group of the commands in `commands`, one module each."""

from __future__ import annotations

from typing import Final

import click

from penstock.service.commands.group import HELP, Commands

_MODULES: Final = {
    "cancel": "cancel",
    "checkpoint": "checkpoint",
    "completion": "completion",
    "config": "config",
    "demo": "demo",
    "info": "info",
    "list": "list",
    "logs": "logs",
    "package-env": "package_env",
    "rescale": "rescale",
    "run": "run",
    "savepoint": "savepoint",
    "session": "session",
    "sim": "sim",
    "sql": "sql",
    "state": "state",
    "stop": "stop",
    "top": "top",
    "try": "trial",
    "version": "version",
}


@click.group(
    cls=Commands,
    modules={name: f"penstock.service.commands.{module}" for name, module in _MODULES.items()},
    context_settings=HELP,
)
def main() -> None:
    """Flink's model, in Python, on Spark."""


if __name__ == "__main__":
    main()
