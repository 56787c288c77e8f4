"""`penstock top`: a live overview of a job."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.service.commands.options import as_json, build_client, of_client, print_json
from penstock.service.program.consoles import result_console


@click.command("top")
@click.argument("job", required=False)
@click.option(
    "-i",
    "--interval",
    type=click.FloatRange(0.5),
    default=1.0,
    show_default=True,
    help="The refresh interval in seconds.",
)
@click.option("--once", is_flag=True, help="Print once, the default if the output is not a terminal.")
@of_client
@as_json
def command(
    job: str | None, interval: float, once: bool, jobmanager: str | None, properties: Sequence[str], is_json: bool
) -> None:
    """Watch JOB: rates, busy, back-pressured and idle time, watermarks, checkpoints. Ctrl-C ends it.

    JOB is an id or a name. The default is the only running job.
    """
    from penstock.service.client.jobs import ENDED, only_running, resolve_job_id
    from penstock.service.top.sample import sample

    client = build_client(jobmanager, properties)
    job_id = only_running(client) if job is None else resolve_job_id(client, job)
    if is_json:
        print_json(sample(client, job_id).as_dict())
        return
    import time

    from rich.live import Live

    from penstock.service.top.picture import picture

    console = result_console()
    if once or not console.is_terminal:
        console.print(picture(sample(client, job_id)))
        return
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                now = sample(client, job_id)
                live.update(picture(now), refresh=True)
                if now.state in ENDED:
                    return
                time.sleep(interval)
        except KeyboardInterrupt:
            return
