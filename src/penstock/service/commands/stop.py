"""`penstock stop`: end a job with a savepoint."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.service.commands.options import as_json, build_client, of_client, print_json


@click.command("stop")
@click.argument("job")
@click.option("-d", "--drain", is_flag=True, help="Send the final watermark first, for jobs that will not be resumed.")
@click.option(
    "-p", "--savepointPath", "directory", metavar="DIR", help="The savepoint directory; by default the configured one."
)
@click.option("-type", "--type", "form", type=click.Choice(["canonical", "native"], False), default="canonical")
@click.option("-detached", "--detached", is_flag=True, help="Print the trigger id and do not wait.")
@of_client
@as_json
def command(
    job: str,
    drain: bool,
    directory: str | None,
    form: str,
    detached: bool,
    jobmanager: str | None,
    properties: Sequence[str],
    is_json: bool,
) -> None:
    """Stop JOB with a savepoint, from which it can be resumed. JOB is an id or a name."""
    from penstock.service.client.savepoints import say, stop

    client = build_client(jobmanager, properties)
    outcome = stop(client, job, directory, drain, form.upper(), detached, say(is_json))
    if is_json:
        print_json(outcome)
