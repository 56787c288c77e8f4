"""`penstock rescale`: change the parallelism of vertices of a running job."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.service.commands.options import as_json, build_client, of_client, print_json


@click.command("rescale")
@click.argument("job")
@click.argument("vertices", nargs=-1, required=True, metavar="VERTEX=N...")
@click.option("-detached", "--detached", is_flag=True, help="Do not wait for the job to be rescaled.")
@of_client
@as_json
def command(
    job: str,
    vertices: Sequence[str],
    detached: bool,
    jobmanager: str | None,
    properties: Sequence[str],
    is_json: bool,
) -> None:
    """Change the parallelism of vertices of JOB, without losing anything.

    JOB is an id or a name. VERTEX is the id of a vertex, its name, or a unique part of its name.
    """
    from penstock.service.client.rescaling import parse_parallelisms, rescale
    from penstock.service.client.savepoints import say

    outcome = rescale(build_client(jobmanager, properties), job, parse_parallelisms(vertices), detached, say(is_json))
    if is_json:
        print_json(outcome)
