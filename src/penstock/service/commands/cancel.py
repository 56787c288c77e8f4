"""`penstock cancel`: cancel a job immediately."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.service.commands.options import as_json, build_client, of_client, print_json


@click.command("cancel")
@click.argument("job", required=False)
@click.option("-s", "--withSavepoint", "directory", metavar="DIR", help="Take a savepoint first (prefer stop).")
@of_client
@as_json
def command(
    job: str | None, directory: str | None, jobmanager: str | None, properties: Sequence[str], is_json: bool
) -> None:
    """Cancel JOB without a savepoint. JOB is an id or a name.

    As in Flink, DIR may be left out if -s is the last option before JOB: the configured directory is used then.
    """
    from penstock.service.client.savepoints import cancel, cancel_with_savepoint, say

    with_savepoint = directory is not None
    if job is None:
        job, directory = directory, None
    if job is None:
        raise click.UsageError("Missing argument 'JOB'.")
    client = build_client(jobmanager, properties)
    echo = say(is_json)
    outcome = cancel_with_savepoint(client, job, directory, echo) if with_savepoint else cancel(client, job, echo)
    if is_json:
        print_json(outcome)
