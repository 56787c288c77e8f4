"""`penstock package-env`: an archive of Python and its packages."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("package-env")
@click.argument("output", type=click.Path(dir_okay=False, path_type=Path), default="environment.tar.gz")
@click.option("--only", multiple=True, metavar="NAME", help="Pack only this package and its dependencies.")
@click.option("--exclude", multiple=True, metavar="NAME", help="Exclude this package.")
@click.option("--force", is_flag=True, help="Overwrite OUTPUT if it exists.")
def command(output: Path, only: tuple[str, ...], exclude: tuple[str, ...], force: bool) -> None:
    """Pack this Python and its packages into OUTPUT, for executors.

    OUTPUT is environment.tar.gz by default. It contains the interpreter, all packages except PySpark, and always
    Penstock; with --only, just the named packages (repeat the option) and their dependencies. The output explains how
    Spark ships it to executors on each kind of cluster.
    """
    from penstock.service.environment.package import package

    for line in package(output, only, exclude, force).report():
        click.echo(line)
