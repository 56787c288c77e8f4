"""The commands for jobs, and for their savepoints, checkpoints and state.

- `penstock list`: the jobs of a server, as `flink list` prints them.
- `penstock info`: the plan of a program, without running it, or of a running job.
- `penstock cancel`: cancel a job immediately.
- `penstock stop`: end a job with a savepoint.
- `penstock rescale`: change the parallelism of vertices of a running job.
- `penstock logs`: the log of a job's driver or of a worker.
- `penstock top`: a live overview of a job.
- `penstock state`: the contents of savepoints and checkpoints.
- `penstock savepoint`: take, dispose of, or inspect a savepoint.
- `penstock checkpoint`: take a checkpoint now.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from penstock.base.secrets import hide
from penstock.cli.console import DefaultCommand, as_json, build_client, of_client, print_json, result_console

WIDTH = 62


@click.command("list")
@click.option("-r", "--running", is_flag=True, help="List only running jobs.")
@click.option("-s", "--scheduled", is_flag=True, help="List only scheduled jobs.")
@click.option("-a", "--all", "everything", is_flag=True, help="Include ended jobs.")
@of_client
@as_json
def list_command(
    running: bool, scheduled: bool, everything: bool, jobmanager: str | None, properties: Sequence[str], is_json: bool
) -> None:
    """List running and scheduled jobs, unless an option selects others."""
    from penstock.cli.client.jobs import ENDED, format_job, overview

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


@click.command("info", context_settings={"allow_interspersed_args": False})
@click.argument("job")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the plan to a file: .svg, .mmd or .json.",
)
@click.option("-p", "--parallelism", type=click.IntRange(1), help="Set parallelism.default.")
@of_client
@as_json
def info_command(
    job: str,
    arguments: Sequence[str],
    output: Path | None,
    parallelism: int | None,
    jobmanager: str | None,
    properties: Sequence[str],
    is_json: bool,
) -> None:
    """Show the plan of the program JOB.PY, which is not run, or of the job JOB, given by its id or name.

    A program is executed up to its first job. Options of this command go before JOB; arguments after JOB.PY are for the
    program.
    """
    arguments = _check_program_arguments(job, arguments)
    if job.endswith(".py"):
        from penstock.cli.program.launch import show_program

        sys.exit(show_program(job, arguments, output, parallelism, properties, is_json))
    from penstock.cli.client.jobs import resolve_job_id
    from penstock.cli.program.launch import picture, written

    client = build_client(jobmanager, properties)
    plan = client.get(f"/jobs/{resolve_job_id(client, job)}/plan")["plan"]
    if output is not None:
        written(plan, output)
    elif is_json:
        print_json(plan)
    else:
        result_console().print(picture(plan))


def _check_program_arguments(job: str, arguments: Sequence[str]) -> Sequence[str]:
    """Return the program's arguments, without a leading `--`.

    Raises:
        UsageError: if they include an option of this command, which the program would get, or if JOB is a job.
    """
    if arguments[:1] == ("--",) and job.endswith(".py"):
        return arguments[1:]
    misplaced = next((text for text in arguments if text.partition("=")[0] in ("-o", "--output")), None)
    if misplaced is not None:
        remedy = f"penstock info -o FILE {job}"
        if job.endswith(".py"):
            remedy += f", or penstock info {job} -- ARGUMENTS if it is an option of the program"
        raise click.UsageError(f"{misplaced} stands after JOB, where options of this command have no effect: {remedy}")
    if arguments and not job.endswith(".py"):
        raise click.UsageError(f"a job takes no arguments, but there is {arguments[0]!r}")
    return arguments


@click.command("cancel")
@click.argument("job", required=False)
@click.option("-s", "--withSavepoint", "directory", metavar="DIR", help="Take a savepoint first (prefer stop).")
@of_client
@as_json
def cancel_command(
    job: str | None, directory: str | None, jobmanager: str | None, properties: Sequence[str], is_json: bool
) -> None:
    """Cancel JOB without a savepoint. JOB is an id or a name.

    As in Flink, DIR may be left out if -s is the last option before JOB: the configured directory is used then.
    """
    from penstock.cli.client.jobs import cancel, cancel_with_savepoint, say

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
def stop_command(
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
    from penstock.cli.client.jobs import say, stop

    client = build_client(jobmanager, properties)
    outcome = stop(client, job, directory, drain, form.upper(), detached, say(is_json))
    if is_json:
        print_json(outcome)


@click.command("rescale")
@click.argument("job")
@click.argument("vertices", nargs=-1, required=True, metavar="VERTEX=N...")
@click.option("-detached", "--detached", is_flag=True, help="Do not wait for the job to be rescaled.")
@of_client
@as_json
def rescale_command(
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
    from penstock.cli.client.jobs import parse_parallelisms, rescale, say

    outcome = rescale(build_client(jobmanager, properties), job, parse_parallelisms(vertices), detached, say(is_json))
    if is_json:
        print_json(outcome)


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
def logs_command(
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
    from penstock.cli.client.jobs import LogReader, log_path

    client = build_client(jobmanager, properties)
    reader = LogReader(client, log_path(client, job, worker, is_stdout))
    try:
        for line in reader.lines(lines, follow):
            click.echo(reader.as_json(line) if is_json else line)
    except KeyboardInterrupt:
        pass


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
def top_command(
    job: str | None, interval: float, once: bool, jobmanager: str | None, properties: Sequence[str], is_json: bool
) -> None:
    """Watch JOB: rates, busy, back-pressured and idle time, watermarks, checkpoints. Ctrl-C ends it.

    JOB is an id or a name. The default is the only running job.
    """
    from penstock.cli.client.jobs import ENDED, only_running, resolve_job_id
    from penstock.cli.top import sample

    client = build_client(jobmanager, properties)
    job_id = only_running(client) if job is None else resolve_job_id(client, job)
    if is_json:
        print_json(sample(client, job_id).as_dict())
        return
    import time

    from rich.live import Live

    from penstock.cli.top import picture

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


@state_command.command("diff")
@click.argument("first")
@click.argument("second")
@click.option("--examples", type=click.IntRange(0), default=0, help="Print at most this many entries of each state.")
@as_json
def diff(first: str, second: str, examples: int, is_json: bool) -> None:
    """Compare the states of two savepoints or checkpoints, the directories FIRST and SECOND.

    Operators are matched by uid. The exit code is 0 if all states are equal, 1 if some differ, and 2 after an error.
    Comparing unpickles keys and values, which runs code that they name: compare only trusted savepoints.
    """
    import sys
    from dataclasses import asdict

    from penstock.base.errors import PenstockError
    from penstock.cli.savepoints import compare, render_differences

    try:
        differences = compare(first, second, examples)
    except (PenstockError, OSError) as error:
        click.echo(hide(f"error: {error}"), err=True)
        sys.exit(2)
    different = [difference for difference in differences if not difference.is_equal]
    if is_json:
        print_json([asdict(difference) for difference in differences])
    elif not different:
        click.echo(f"All {len(differences)} states are equal.")
    else:
        console = result_console()
        console.print(render_differences(different, first, second))
        for difference in different:
            for line in difference.examples:
                click.echo(f"{difference.operator} {difference.state} {line}")
    sys.exit(1 if different else 0)


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
