"""The command `penstock`."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from penstock.base.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

_PORT: Final = click.IntRange(1, 65_535)
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Flink's model, in Python, on Spark."""


@main.command("version")
def show_version() -> None:
    """Print the version."""
    click.echo(f"penstock {version('penstock')}")


@main.command()
@click.option("--parallelism", type=click.IntRange(1, 64), default=2, show_default=True, help="Workers.")
@click.option("--target", type=click.Choice(["spark", "local"]), default="spark", show_default=True, help="Driver.")
@click.option("--kill/--no-kill", default=True, help="Kill a worker while the job runs (on Spark).")
@click.option(
    "--rate", type=click.IntRange(0), default=25_000, show_default=True, help="Flights per second; 0 for no limit."
)
@click.option("--limit", type=click.IntRange(1), help="Replay only the first flights of the year, this many.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Work in this folder and keep it.")
def demo(parallelism: int, target: str, kill: bool, rate: int, limit: int | None, keep: Path | None) -> None:
    """Replay a year of flights, kill a worker in mid-flight, compare the result with Spark SQL's.

    Ends with 0 only when both answers are equal, a worker really died and the job really restarted.
    """
    from rich.console import Console

    from penstock.demo.run import DemoOptions, run_demo

    options = DemoOptions(parallelism, target, kill, keep, rate or None, limit)
    try:
        succeeded = run_demo(options, Console())
    except PenstockError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    sys.exit(0 if succeeded else 1)


@main.group("try")
def try_server() -> None:
    """Run a server to try Penstock with, until Ctrl-C."""


@try_server.command("kafka")
@click.option("--port", type=_PORT, default=9092, show_default=True, help="Of 127.0.0.1.")
def try_kafka(port: int) -> None:
    """Run Kafka: one broker, which makes topics as they are written to.

    It needs Java. The first time it fetches Kafka from Maven Central into the user's cache.
    """
    from penstock.trial.commands import try_kafka as run

    _served(run, port)


@try_server.command("postgres")
@click.option("--port", type=_PORT, default=5433, show_default=True, help="Of 127.0.0.1.")
def try_postgres(port: int) -> None:
    """Run PostgreSQL, with a superuser `postgres` who needs no password.

    It takes the programs of a PostgreSQL that is installed, and says how to get one if there is none.
    """
    from penstock.trial.commands import try_postgres as run

    _served(run, port)


def _served(run: Callable[[int, Console], None], port: int) -> None:
    from rich.console import Console

    try:
        run(port, Console())
    except PenstockError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


@main.command("package-env")
@click.argument("output", type=click.Path(dir_okay=False, path_type=Path), default="environment.tar.gz")
@click.option("--only", multiple=True, metavar="NAME", help="No other packages than these and what they need.")
@click.option("--exclude", multiple=True, metavar="NAME", help="Leave this package out.")
@click.option("--force", is_flag=True, help="Replace OUTPUT if it is there.")
def package_env(output: Path, only: tuple[str, ...], exclude: tuple[str, ...], force: bool) -> None:
    """Pack this Python and its packages into OUTPUT, for executors.

    OUTPUT is environment.tar.gz by default. It holds the interpreter, all packages but PySpark, and Penstock in any
    case; with --only no packages beside the named ones (repeat the option) and what these need. What is printed tells
    how Spark hands it to executors on each kind of cluster.
    """
    from penstock.service.environment.package import package

    try:
        made = package(output, only, exclude, force)
    except PenstockError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    for line in made.report():
        click.echo(line)


@main.command()
@click.option("-f", "--file", type=_FILE, help="Run the statements of this file, and end.")
@click.option("-i", "--init", multiple=True, type=_FILE, help="Run this file first: SET, CREATE and the like.")
@click.option("-s", "--session", metavar="NAME", help="The name of the session, with a history of its own.")
@click.option("-hist", "--history", type=click.Path(dir_okay=False, path_type=Path), help="Keep the history there.")
@click.option("-D", "properties", multiple=True, metavar="KEY=VALUE", help="Set an option; repeat for more.")
def sql(
    file: Path | None, init: tuple[Path, ...], session: str | None, history: Path | None, properties: tuple[str, ...]
) -> None:
    """Run SQL: at a prompt, from a file, or from standard input.

    Ends with 1 at the first statement of a file that fails. Jobs live in this process: a file ends when all jobs have
    that it has started.
    """
    from penstock.service.sql_shell.command import ShellOptions, run_shell

    try:
        code = run_shell(ShellOptions(init, file, session, history, properties))
    except PenstockError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    sys.exit(code)


@main.group()
def savepoint() -> None:
    """Look into savepoints and retained checkpoints."""


@savepoint.command("show")
@click.argument("path")
@click.option("--count", is_flag=True, help="Read the keyed states and count their entries.")
def show_savepoint(path: str, count: bool) -> None:
    """List the operators and states of the savepoint or checkpoint in the directory PATH (H5).

    Without --count only its metadata is read. Counting unpickles keys, which runs code that they name: count only what
    you trust.
    """
    from rich.console import Console

    from penstock.service.savepoints import show

    try:
        show(path, count, Console())
    except (PenstockError, OSError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
