"""`penstock try`: servers for trying out Penstock."""

from __future__ import annotations

from typing import Final

import click

_PORT: Final = click.IntRange(1, 65_535)


@click.group("try")
def command() -> None:
    """Run a server for trying out Penstock, until Ctrl-C."""


@command.command("kafka")
@click.option("--port", type=_PORT, default=9092, show_default=True, help="The port on 127.0.0.1.")
def kafka(port: int) -> None:
    """Run Kafka: one broker, which creates topics on first use.

    It needs Java. On the first run, it downloads Kafka from Maven Central into the user's cache.
    """
    from rich.console import Console

    from penstock.trial.commands import try_kafka

    try_kafka(port, Console())


@command.command("postgres")
@click.option("--port", type=_PORT, default=5433, show_default=True, help="The port on 127.0.0.1.")
def postgres(port: int) -> None:
    """Run PostgreSQL with a superuser `postgres` that needs no password.

    It uses an installed PostgreSQL. If PostgreSQL is missing, it explains how to install it.
    """
    from rich.console import Console

    from penstock.trial.commands import try_postgres

    try_postgres(port, Console())
