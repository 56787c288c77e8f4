"""`penstock demo`: a job that loses a worker and still produces the correct result."""

from __future__ import annotations

import sys
from pathlib import Path

import click


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
def command(parallelism: int, target: str, kill: bool, rate: int, limit: int | None, keep: Path | None) -> None:
    """Replay a year of flights, kill a worker in mid-flight, and compare the result with Spark SQL's.

    Exits with 0 only if both answers are equal, a worker really died and the job really restarted.
    """
    from rich.console import Console

    from penstock.demo.run import DemoOptions, run_demo

    options = DemoOptions(parallelism, target, kill, keep, rate or None, limit)
    sys.exit(0 if run_demo(options, Console()) else 1)
