"""`penstock savepoint`: take, dispose of, or inspect a savepoint.

`penstock checkpoint`: take a checkpoint now.

`penstock state`: the contents of savepoints and checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.base.secrets import hide
from penstock.cli.console import DefaultCommand, as_json, build_client, of_client, print_json, result_console


@click.group("state")
def state_command() -> None:
    """Inspect savepoints and retained checkpoints, without a job."""


@state_command.command("show")
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
            from penstock.cli.savepoints import described

            print_json(described(path, count))
            return

        from penstock.cli.savepoints import show as print_table

        print_table(path, count, result_console())
    except (PenstockError, OSError) as error:
        click.echo(hide(f"error: {error}"), err=True)
        sys.exit(1)


@state_command.command("ls")
@click.argument("directory")
@as_json
def list_(directory: str, is_json: bool) -> None:
    """List the savepoints and checkpoints below DIRECTORY, the newest last.

    DIRECTORY contains savepoints, checkpoints, or the checkpoints of one job.
    """
    from penstock.cli.savepoints import render_table, stored

    snapshots = stored(directory)
    if is_json:
        print_json([snapshot.as_dict() for snapshot in snapshots])
    elif not snapshots:
        click.echo(f"No savepoint or checkpoint is in {directory}.")
    else:
        result_console().print(render_table(snapshots))


class _Savepoint(DefaultCommand):
    default = "trigger"


@click.group("savepoint", cls=_Savepoint)
def savepoint_command() -> None:
    """Take a savepoint (savepoint JOB [DIR]), dispose of one (-d PATH), or show its contents (show PATH)."""


@savepoint_command.command("trigger")
@click.argument("job", required=False)
@click.argument("directory", required=False)
@click.option("-d", "--dispose", "path", metavar="PATH", help="Delete the savepoint at PATH.")
@click.option("-type", "--type", "form", type=click.Choice(["canonical", "native"], False), default="canonical")
@click.option("-detached", "--detached", is_flag=True, help="Print the trigger id and do not wait.")
@of_client
@as_json
def trigger(
    job: str | None,
    directory: str | None,
    path: str | None,
    form: str,
    detached: bool,
    jobmanager: str | None,
    properties: Sequence[str],
    is_json: bool,
) -> None:
    """Take a savepoint of JOB in DIRECTORY, or dispose of one. JOB is an id or a name."""
    from penstock.cli.client.jobs import dispose, savepoint, say

    if (job is None) == (path is None):
        raise click.UsageError("Name a job, or a savepoint to dispose of with -d PATH.")
    client = build_client(jobmanager, properties)
    if path is not None:
        outcome = dispose(client, path, say(is_json))
    else:
        outcome = savepoint(client, str(job), directory, form.upper(), detached, say(is_json))
    if is_json:
        print_json(outcome)


savepoint_command.add_command(show)


@click.command("checkpoint")
@click.argument("job")
@click.option("-full", "--full", is_flag=True, help="Take a full checkpoint instead of an incremental one.")
@of_client
@as_json
def checkpoint_command(job: str, full: bool, jobmanager: str | None, properties: Sequence[str], is_json: bool) -> None:
    """Take a checkpoint of JOB now. JOB is an id or a name."""
    from penstock.cli.client.jobs import checkpoint, say

    outcome = checkpoint(build_client(jobmanager, properties), job, full, say(is_json))
    if is_json:
        print_json(outcome)
