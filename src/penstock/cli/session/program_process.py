"""The process of one program of a session: `python -m penstock.cli.session.program_process [--module] TARGET ARGS`.

It runs the program as `penstock run` would, on the session's Spark if there is one, and exits as soon as the session
ends. The environment has the file descriptor of its socket to the session.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import Final

from penstock.base.durable_files import keep_lines_whole
from penstock.cli.program.reports import Reports, tell_stdout
from penstock.cli.program.runner import OWN_FILES, run_module, run_script, run_to_end
from penstock.drivers.client import submit as announcement
from penstock.drivers.spark.handle import SHARED_VARIABLE
from penstock.server import attachment
from penstock.server.session.channel import ProgramSide

#: The environment variable with the socket's file descriptor.
SOCKET_VARIABLE: Final = "PENSTOCK_SESSION_FD"
#: The exit code when the session has ended.
SESSION_GONE: Final = 75


def main(arguments: list[str]) -> int:
    """Run the program. Returns the exit code."""
    side = ProgramSide(socket.socket(fileno=int(os.environ.pop(SOCKET_VARIABLE))), lambda: os._exit(SESSION_GONE))
    keep_lines_whole()
    attachment.is_served_elsewhere()
    OWN_FILES.append(__file__)
    reports = Reports(tell_stdout)
    announcement.observers.extend([side.on_job, reports.on_job])
    is_module = arguments[0] == "--module"
    target, *rest = arguments[1:] if is_module else arguments
    run = run_module if is_module else run_script
    try:
        return run_to_end(lambda: _run(run, target, rest))
    finally:
        reports.finish()
        side.finish()


def _run(run: Callable[[str, list[str]], None], target: str, arguments: list[str]) -> None:
    if SHARED_VARIABLE in os.environ:
        from penstock.drivers.spark.shared_session import attach

        attach()
    run(target, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
