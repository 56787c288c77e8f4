"""`penstock run`: run a program, with options that it does not set itself."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from penstock.service.commands.options import as_json, print_json

if TYPE_CHECKING:
    from penstock.service.client.address import Address
    from penstock.service.program.spec import ProgramSpec

#: Prefixes of command line options that locate the session; they are not for its programs.
OF_THE_CLIENT = ("rest.", "penstock.rest.", "security.ssl.rest.")
#: Options with paths. The client makes them absolute, because a session's program has another working directory.
PATHS_OF_THE_CLIENT = {
    "execution.checkpointing.dir",
    "execution.checkpointing.savepoint-dir",
    "execution.state-recovery.path",
    "penstock.events.file",
    "penstock.logs.dir",
}
_ARGUMENTS = {"ignore_unknown_options": False, "allow_interspersed_args": False}


@click.command("run", context_settings=_ARGUMENTS)
@click.argument("script", required=False, metavar="[JOB.PY]")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-py", "--python", "python_file", metavar="FILE", help="The program; the same as JOB.PY.")
@click.option("-pym", "--pyModule", "module", metavar="NAME", help="Run a module instead of a file.")
@click.option("-c", "--class", "entry", metavar="NAME", help="The same as -pym.")
@click.option("-m", "--jobmanager", metavar="HOST:PORT", help="Submit the program to this session.")
@click.option(
    "-d", "--detached", is_flag=True, help="Return once the first job has started; it continues in the background."
)
@click.option("-p", "--parallelism", type=click.IntRange(1), help="Set parallelism.default.")
@click.option("-s", "--fromSavepoint", "savepoint", metavar="PATH", help="Start from this savepoint or checkpoint.")
@click.option("-n", "--allowNonRestoredState", "allow", is_flag=True, help="Skip the state of removed operators.")
@click.option(
    "-cm", "--claimMode", "-rm", "--restoreMode", "claim_mode", help="Who owns the savepoint: claim or no_claim."
)
@click.option("-pyfs", "--pyFiles", "files", metavar="PATHS", help="Set python.files.")
@click.option("-pyarch", "--pyArchives", "archives", metavar="PATHS", help="Set python.archives.")
@click.option("-pyreq", "--pyRequirements", "requirements", metavar="FILE", help="Not supported: use package-env.")
@click.option("-pyexec", "--pyExecutable", "executable", metavar="PATH", help="Set python.executable for the workers.")
@click.option(
    "-pyclientexec", "--pyClientExecutable", "interpreter", metavar="PATH", help="The Python executable of the program."
)
@click.option("-t", "--target", metavar="TARGET", help="Set execution.target: spark or local.")
@click.option("-D", "properties", multiple=True, metavar="KEY=VALUE", help="Set an option (repeatable).")
@click.option("--rest/--no-rest", default=True, help="Serve the REST API at the first free port from 8081.")
@click.option("--log-dir", metavar="DIR", help="The directory for a detached program's output.")
@as_json
def command(script: str | None, arguments: Sequence[str], detached: bool, is_json: bool, **given: Any) -> None:
    """Run the program JOB.PY with ARGUMENTS, as python does. The options apply unless the program sets them.

    Options of penstock go before JOB.PY, those of the program after it. Exits as the program does.
    """
    from penstock.service.client.address import parse_options, resolve_address, resolve_settings
    from penstock.service.client.savepoints import where_client_stands
    from penstock.service.program.spec import RunFlags, build_program_spec, options_of_flags, with_rest

    module = given["module"] or given["entry"]
    if given["python_file"] is not None:
        arguments = arguments if script is None else (script, *arguments)
        script = given["python_file"]
    if script is None and module is None:
        raise click.UsageError("Name a program: JOB.PY, -py FILE or -pym NAME.")
    flags = RunFlags(
        given["parallelism"],
        given["savepoint"],
        given["allow"],
        given["claim_mode"],
        given["files"],
        given["archives"],
        given["requirements"],
        given["executable"],
        given["target"],
    )
    options = options_of_flags(flags) | parse_options(given["properties"])
    if given["jobmanager"] is not None:
        if given["interpreter"] is not None or given["target"] is not None or given["log_dir"] is not None:
            raise click.UsageError("-pyclientexec, -t and --log-dir are for programs of their own, without -m.")
        of_session = {key: value for key, value in options.items() if not key.startswith(OF_THE_CLIENT)}
        for key in PATHS_OF_THE_CLIENT & of_session.keys():
            of_session[key] = str(where_client_stands(of_session[key]))
        spec = build_program_spec(script, module, arguments, of_session, None)
        _submit(spec, resolve_address(given["jobmanager"], options), detached, is_json)
        return
    options = with_rest(options, resolve_settings(options), given["rest"])
    spec = build_program_spec(script, module, arguments, options, given["interpreter"])
    from penstock.service.program.launch import log_file, run_attached, run_detached
    from penstock.service.program.reports import format_event

    if not detached:
        run_attached(spec)
        return
    log = log_file(spec.target, given["log_dir"])
    events: list[dict[str, Any]] = []
    process = run_detached(spec, log, lambda event: _tell(event, events, format_event, is_json))
    if is_json:
        by_kind = {event["event"]: event for event in events}
        address = by_kind.get("rest", {}).get("address")
        print_json({"job": by_kind["submitted"]["job"], "rest": address, "process": process, "log": str(log)})
    else:
        click.echo(f"It goes on as process {process}; its output is in {log}")


def _submit(spec: ProgramSpec, address: Address, detached: bool, is_json: bool) -> None:
    """Submit a program to a session; if attached, exit as it does."""
    from penstock.service.client.rest_client import RestClient
    from penstock.service.session.submitting import SubmittedProgram

    program = SubmittedProgram(RestClient(address), spec)
    if detached or is_json:
        job = program.wait_for_job()
        if is_json:
            print_json({"job": job, "program": program.program_id, "rest": address.url})
        else:
            click.echo(f"Job has been submitted with JobID {job}")
        return
    try:
        code = program.follow(lambda text: click.echo(text, nl=False))
    except KeyboardInterrupt:
        click.echo(f"Program {program.program_id} goes on in the session at {address.url}.", err=True)
        sys.exit(130)
    sys.exit(code)


def _tell(event: dict[str, Any], events: list[dict[str, Any]], format_event: Any, is_json: bool) -> None:
    events.append(event)
    if not is_json:
        click.echo("\n".join(format_event(event)))
