"""The commands that run programs and SQL: `penstock run`, `session`, `sql` and `gateway`.

- `penstock run`: run a program, with options that it does not set itself.
- `penstock session`: a process that runs programs submitted to it.
- `penstock sql`: statements at a prompt, from a file, or from standard input.
- `penstock gateway`: a process that runs the statements of Flink's SQL clients.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.console import HELP, as_json, print_json

if TYPE_CHECKING:
    from penstock.cli.client.rest_client import Address
    from penstock.cli.program.launch import ProgramSpec


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
def run_command(script: str | None, arguments: Sequence[str], detached: bool, is_json: bool, **given: Any) -> None:
    """Run the program JOB.PY with ARGUMENTS, as python does. The options apply unless the program sets them.

    Options of penstock go before JOB.PY, those of the program after it. Exits as the program does.
    """
    from penstock.cli.client.jobs import where_client_stands
    from penstock.cli.client.rest_client import parse_options, resolve_address, resolve_settings
    from penstock.cli.program.launch import RunFlags, build_program_spec, options_of_flags, with_rest

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
    from penstock.cli.program.launch import log_file, run_attached, run_detached
    from penstock.cli.program.reports import format_event

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
    from penstock.cli.client.rest_client import RestClient
    from penstock.cli.session.client import SubmittedProgram

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


@click.group("session", context_settings=HELP)
def session_command() -> None:
    """Start, list and stop sessions. Submit a program with penstock run -m HOST:PORT."""


@session_command.command("start")
@click.option(
    "-d", "--detached", is_flag=True, help="Return once the session accepts programs; it continues in the background."
)
@click.option("--name", default=None, help='The session\'s name on this host; by default "default".')
@click.option("-p", "--parallelism", type=click.IntRange(1), help="Set parallelism.default for its programs.")
@click.option("-t", "--target", metavar="TARGET", help="Set execution.target: spark or local.")
@click.option("-D", "properties", multiple=True, metavar="KEY=VALUE", help="Set an option (repeatable).")
@click.option("--rest-port", metavar="PORT", help="Set rest.port; by default the first free port from 8081.")
@click.option("--log-dir", metavar="DIR", help="The directory for a detached session's output.")
@as_json
def start(
    detached: bool,
    name: str | None,
    parallelism: int | None,
    target: str | None,
    properties: Sequence[str],
    rest_port: str | None,
    log_dir: str | None,
    is_json: bool,
) -> None:
    """Start a session with one REST API and one Spark session, which its programs share."""
    from penstock.base.options import REST_PORT
    from penstock.cli.client.rest_client import DEFAULT_NAME, checked_name, parse_options
    from penstock.cli.program.launch import RunFlags, log_file, options_of_flags
    from penstock.cli.session.client import run_attached, run_detached

    name = checked_name(DEFAULT_NAME if name is None else name)
    options = options_of_flags(RunFlags(parallelism=parallelism, target=target)) | parse_options(properties)
    if rest_port is not None:
        options[REST_PORT.key()] = rest_port
    if not detached:
        run_attached(name, options)
        return
    known = run_detached(name, options, log_file(f"session-{name}", log_dir))
    if is_json:
        print_json({"name": known.name, "rest": known.address, "process": known.process, "log": known.log})
    else:
        click.echo(f"Session {known.name!r} at {known.address}, process {known.process}; its output is in {known.log}")


@session_command.command("list")
@as_json
def list_sessions(is_json: bool) -> None:
    """List the sessions of this user on this host."""
    from datetime import datetime

    from penstock.cli.client.rest_client import sessions

    known = sessions()
    if is_json:
        print_json(
            [{"name": entry.name, "rest": entry.address, "process": entry.process, "log": entry.log} for entry in known]
        )
        return
    if not known:
        click.echo("No sessions.")
    for session in known:
        began = datetime.fromtimestamp(session.began_ms / 1000).strftime("%d.%m.%Y %H:%M:%S")
        click.echo(f"{began} : {session.name} : {session.address} (process {session.process})")


@session_command.command("stop")
@click.argument("session", metavar="NAME|HOST:PORT")
@click.option("-D", "properties", multiple=True, metavar="KEY=VALUE", help="Set an option (repeatable).")
@as_json
def stop_session(session: str, properties: Sequence[str], is_json: bool) -> None:
    """Stop a session. Its jobs are cancelled, and no other session resumes them."""
    from penstock.cli.client.rest_client import parse_options
    from penstock.cli.session.client import stop

    address = stop(session, parse_options(properties))
    if is_json:
        print_json({"stopped": address})
    else:
        click.echo(f"The session at {address} has ended.")


_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("sql")
@click.option("-f", "--file", type=_FILE, help="Run the statements of this file and exit.")
@click.option("-i", "--init", multiple=True, type=_FILE, help="Run this file first, for SET, CREATE and the like.")
@click.option("-s", "--session", metavar="NAME", help="The session's name; each session has its own history.")
@click.option("-hist", "--history", type=click.Path(dir_okay=False, path_type=Path), help="The history file.")
@click.option("-D", "properties", multiple=True, metavar="KEY=VALUE", help="Set an option (repeatable).")
@click.option("--gateway", metavar="URL", help="Run the statements in the SQL gateway at this host:port or URL.")
@click.option("--token", metavar="TOKEN", help="The token of the gateway; by default PENSTOCK_REST_TOKEN.")
def sql_command(
    file: Path | None,
    init: tuple[Path, ...],
    session: str | None,
    history: Path | None,
    properties: tuple[str, ...],
    gateway: str | None,
    token: str | None,
) -> None:
    """Run SQL: at a prompt, from a file, or from standard input.

    Exits with 1 at the first statement of a file that fails. Jobs run in this process: after the last statement of a
    file, it waits for all jobs that the file started. With --gateway, jobs run there, and go on.
    """
    from penstock.cli.sql_shell.shell import ShellOptions, run_shell

    if token is not None and gateway is None:
        raise click.UsageError("--token is the token of a --gateway.")
    sys.exit(run_shell(ShellOptions(init, file, session, history, properties, gateway, token)))


@click.command("gateway")
@click.option("-t", "--target", metavar="TARGET", help="Set execution.target: spark or local.")
@click.option("-D", "properties", multiple=True, metavar="KEY=VALUE", help="Set an option (repeatable).")
@click.option("--port", metavar="PORT", help="Set sql-gateway.endpoint.rest.port; 8083 by default.")
def gateway_command(target: str | None, properties: Sequence[str], port: str | None) -> None:
    """Serve Flink's SQL gateway, for its JDBC driver and SQL client, until Ctrl-C or SIGTERM.

    It listens on this host only, unless options say otherwise. Its jobs run in this process.
    """
    from penstock.base.server_options import GATEWAY_PORT
    from penstock.cli.client.rest_client import parse_options
    from penstock.cli.gateway.engine import run_gateway
    from penstock.cli.program.launch import RunFlags, options_of_flags

    options = options_of_flags(RunFlags(target=target)) | parse_options(properties)
    if port is not None:
        options[GATEWAY_PORT.key()] = port
    run_gateway(options)
