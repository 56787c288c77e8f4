"""Starts and stops sessions for the commands."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.base.errors import OperationError
from penstock.drivers.settings.defaults import OPTIONS_VARIABLE, handed_over
from penstock.service.client.address import Address, resolve_address
from penstock.service.client.rest_client import RestClient
from penstock.service.client.sessions import KnownSession, find_session, is_held, sessions
from penstock.service.program.launch import end_of_log, started_detached

_PROCESS: Final = "penstock.service.session.process"
#: How long (s) a session may take to end its programs, and the interval between checks.
STOP_SECONDS: Final = 120.0
PAUSE_SECONDS: Final = 0.1


def run_attached(name: str, options: Mapping[str, str]) -> None:
    """Replace this process with the session. Returns only through an error of the operating system."""
    sys.stdout.flush()
    os.execvpe(sys.executable, _command(name), {**os.environ, OPTIONS_VARIABLE: handed_over(options)})


def run_detached(name: str, options: Mapping[str, str], log: Path) -> KnownSession:
    """Start the session, and return when it accepts programs.

    Raises:
        OperationError: if it ends before that; the message has the end of its output.
    """
    environment = {**os.environ, OPTIONS_VARIABLE: handed_over(options)}
    with started_detached(_command(name), environment, log) as (process, reports):
        for event in reports:
            if event["event"] == "session" and (known := find_session(event["address"])) is not None:
                return known
    raise OperationError(f"the session ended with {process.wait()}; its output is in {log}\n{end_of_log(log)}")


def _command(name: str) -> list[str]:
    return [sys.executable, "-m", _PROCESS, name]


def stop(named: str, options: Mapping[str, str]) -> str:
    """End a session, given its name or address, and return its address. Wait for its end if it runs on this host.

    Raises:
        OperationError: if the session does not exist, or does not end.
    """
    known = next((session for session in sessions() if session.name == named), None)
    if known is not None:
        address = Address(known.address, known.token, options.get("security.ssl.rest.certificate"))
    elif ":" in named:
        address = resolve_address(named, options)
        known = find_session(address.url)
    else:
        running = ", ".join(session.name for session in sessions()) or "none"
        raise OperationError(f"no session {named!r} runs on this host (there is {running}); name its host:port")
    RestClient(address).request("DELETE", "/cluster")
    until = time.monotonic() + STOP_SECONDS
    while known is not None and is_held(known.name):
        if time.monotonic() > until:
            raise OperationError(f"session {known.name!r} has not ended in {STOP_SECONDS:g} s: process {known.process}")
        time.sleep(PAUSE_SECONDS)
    return address.url
