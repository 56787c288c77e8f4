"""`penstock logs`: the log of a job's driver or of a worker."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.service.commands.options import as_json, build_client, of_client


@click.command("logs")
@click.argument("job", required=False)
@click.option("-f", "--follow", is_flag=True, help="Follow new lines until Ctrl-C.")
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=200, show_default=True, help="The number of last lines to print."
)
@click.option("--worker", metavar="ID", help="Print the log of this worker (its id or a prefix).")
@click.option("--stdout", "is_stdout", is_flag=True, help="Print the output of functions instead of the log.")
@of_client
@as_json
def command(
    job: str | None,
    follow: bool,
    lines: int,
    worker: str | None,
    is_stdout: bool,
    jobmanager: str | None,
    properties: Sequence[str],
    is_json: bool,
) -> None:
    """Print the log of JOB's driver, or of a worker. JOB is an id or a name.

    Without JOB, print the log of the server. With --json, each line is an object.
    """
    from penstock.service.client.logs import LogReader, log_path

    client = build_client(jobmanager, properties)
    reader = LogReader(client, log_path(client, job, worker, is_stdout))
    try:
        for line in reader.lines(lines, follow):
            click.echo(reader.as_json(line) if is_json else line)
    except KeyboardInterrupt:
        pass
