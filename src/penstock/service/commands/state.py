"""`penstock state`: the contents of savepoints and checkpoints."""

from __future__ import annotations

import click

from penstock.base.secrets import hide
from penstock.service.commands.options import as_json, print_json
from penstock.service.program.consoles import result_console


@click.group("state")
def command() -> None:
    """Inspect savepoints and retained checkpoints, without a job."""


@command.command("show")
@click.argument("path")
@click.option("--count", is_flag=True, help="Read the keyed states and count their entries.")
@as_json
def show(path: str, count: bool, is_json: bool) -> None:
    """List the operators and states of the savepoint or checkpoint in the directory PATH (H5).

    Without --count, only its metadata is read. Counting unpickles keys, which runs code that they name: count only
    trusted savepoints.
    """
    import sys

    from penstock.base.errors import PenstockError

    try:
        if is_json:
            from penstock.service.stored.shown import described

            print_json(described(path, count))
            return

        from penstock.service.stored.shown import show as print_table

        print_table(path, count, result_console())
    except (PenstockError, OSError) as error:
        click.echo(hide(f"error: {error}"), err=True)
        sys.exit(1)


@command.command("ls")
@click.argument("directory")
@as_json
def list_(directory: str, is_json: bool) -> None:
    """List the savepoints and checkpoints below DIRECTORY, the newest last.

    DIRECTORY contains savepoints, checkpoints, or the checkpoints of one job.
    """
    from penstock.service.stored.listing import render_table, stored

    snapshots = stored(directory)
    if is_json:
        print_json([snapshot.as_dict() for snapshot in snapshots])
    elif not snapshots:
        click.echo(f"No savepoint or checkpoint is in {directory}.")
    else:
        result_console().print(render_table(snapshots))
