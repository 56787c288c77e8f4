"""`penstock checkpoint`: take a checkpoint now."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.service.commands.options import as_json, build_client, of_client, print_json


@click.command("checkpoint")
@click.argument("job")
@click.option("-full", "--full", is_flag=True, help="Take a full checkpoint instead of an incremental one.")
@of_client
@as_json
def command(job: str, full: bool, jobmanager: str | None, properties: Sequence[str], is_json: bool) -> None:
    """Take a checkpoint of JOB now. JOB is an id or a name."""
    from penstock.service.client.savepoints import checkpoint, say

    outcome = checkpoint(build_client(jobmanager, properties), job, full, say(is_json))
    if is_json:
        print_json(outcome)
