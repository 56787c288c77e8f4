"""`penstock savepoint`: take, dispose of, or inspect a savepoint."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.service.commands.group import DefaultCommand
from penstock.service.commands.options import as_json, build_client, of_client, print_json
from penstock.service.commands.state import show


class _Savepoint(DefaultCommand):
    default = "trigger"


@click.group("savepoint", cls=_Savepoint)
def command() -> None:
    """Take a savepoint (savepoint JOB [DIR]), dispose of one (-d PATH), or show its contents (show PATH)."""


@command.command("trigger")
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
    from penstock.service.client.savepoints import dispose, savepoint, say

    if (job is None) == (path is None):
        raise click.UsageError("Name a job, or a savepoint to dispose of with -d PATH.")
    client = build_client(jobmanager, properties)
    if path is not None:
        outcome = dispose(client, path, say(is_json))
    else:
        outcome = savepoint(client, str(job), directory, form.upper(), detached, say(is_json))
    if is_json:
        print_json(outcome)


command.add_command(show)
