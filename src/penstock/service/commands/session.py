"""`penstock session`: a process that runs programs submitted to it."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.service.commands.group import HELP
from penstock.service.commands.options import as_json, print_json


@click.group("session", context_settings=HELP)
def command() -> None:
    """Start, list and stop sessions. Submit a program with penstock run -m HOST:PORT."""


@command.command("start")
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
    from penstock.service.client.address import parse_options
    from penstock.service.client.sessions import DEFAULT_NAME, checked_name
    from penstock.service.program.launch import log_file
    from penstock.service.program.spec import RunFlags, options_of_flags
    from penstock.service.session.launch import run_attached, run_detached

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


@command.command("list")
@as_json
def list_sessions(is_json: bool) -> None:
    """List the sessions of this user on this host."""
    from datetime import datetime

    from penstock.service.client.sessions import sessions

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


@command.command("stop")
@click.argument("session", metavar="NAME|HOST:PORT")
@click.option("-D", "properties", multiple=True, metavar="KEY=VALUE", help="Set an option (repeatable).")
@as_json
def stop_session(session: str, properties: Sequence[str], is_json: bool) -> None:
    """Stop a session. Its jobs are cancelled, and no other session resumes them."""
    from penstock.service.client.address import parse_options
    from penstock.service.session.launch import stop

    address = stop(session, parse_options(properties))
    if is_json:
        print_json({"stopped": address})
    else:
        click.echo(f"The session at {address} has ended.")
