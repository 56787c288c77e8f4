"""`penstock try`: servers to try Penstock with."""

from __future__ import annotations

from typing import Final

import click

_PORT: Final = click.IntRange(1, 65_535)


@click.group("try")
def command() -> None:
    """Run a server to try Penstock with, until Ctrl-C."""


@command.command("kafka")
@click.option("--port", type=_PORT, default=9092, show_default=True, help="Of 127.0.0.1.")
def kafka(port: int) -> None:
    """Run Kafka: one broker, which makes topics as they are written to.

    It needs Java. The first time it fetches Kafka from Maven Central into the user's cache.
    """
    from rich.console import Console

    from penstock.trial.commands import try_kafka

    try_kafka(port, Console())


@command.command("postgres")
@click.option("--port", type=_PORT, default=5433, show_default=True, help="Of 127.0.0.1.")
def postgres(port: int) -> None:
    """Run PostgreSQL, with a superuser `postgres` who needs no password.

    It takes the programs of a PostgreSQL that is installed, and says how to get one if there is none.
    """
    from rich.console import Console

    from penstock.trial.commands import try_postgres

    try_postgres(port, Console())
