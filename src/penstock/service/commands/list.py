"""`penstock list`: the jobs of a server, as `flink list` prints them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.service.commands.options import as_json, build_client, of_client, print_json

WIDTH = 62


@click.command("list")
@click.option("-r", "--running", is_flag=True, help="List only running jobs.")
@click.option("-s", "--scheduled", is_flag=True, help="List only scheduled jobs.")
@click.option("-a", "--all", "everything", is_flag=True, help="Include ended jobs.")
@of_client
@as_json
def command(
    running: bool, scheduled: bool, everything: bool, jobmanager: str | None, properties: Sequence[str], is_json: bool
) -> None:
    """List running and scheduled jobs, unless an option selects others."""
    from penstock.service.client.jobs import ENDED, format_job, overview

    client = build_client(jobmanager, properties)
    both = everything or running == scheduled
    if not is_json:
        click.echo("Waiting for response...")
    jobs = overview(client)
    groups = {"Scheduled": [job for job in jobs if job["state"] == "CREATED"]}
    groups["Terminated"] = [job for job in jobs if job["state"] in ENDED]
    groups["Running/Restarting"] = [job for job in jobs if job["state"] not in (*ENDED, "CREATED")]
    selected = [name for name, chosen in (("Running/Restarting", running), ("Scheduled", scheduled)) if both or chosen]
    selected += ["Terminated"] if everything else []
    if is_json:
        print_json([job for name in selected for job in groups[name]])
        return
    for name in selected:
        if not groups[name] and name != "Terminated":
            click.echo(f"No {name.partition('/')[0].lower()} jobs.")
        elif groups[name]:
            click.echo(f" {name} Jobs ".center(WIDTH, "-"))
            for job in groups[name]:
                click.echo(format_job(job))
            click.echo("-" * WIDTH)
