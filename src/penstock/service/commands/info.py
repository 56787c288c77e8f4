"""`penstock info`: the plan of a program, without running it, or of a running job."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from penstock.service.commands.options import as_json, build_client, of_client, print_json
from penstock.service.program.consoles import result_console


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
def command(
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
        from penstock.service.program.plans import show_program

        sys.exit(show_program(job, arguments, output, parallelism, properties, is_json))
    from penstock.service.client.jobs import resolve_job_id
    from penstock.service.program.pictures import picture, written

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
