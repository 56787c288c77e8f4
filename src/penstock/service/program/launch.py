"""Starts a program, either in place of this process or detached from it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from penstock.base.errors import OperationError
from penstock.drivers.program_output import OUTPUT_VARIABLE
from penstock.service.program.reports import REPORT_VARIABLE
from penstock.service.program.spec import ProgramSpec

#: The default directory for the output of detached programs; the variable and the command line override it.
LOG_DIRECTORY: Final = Path("~/.penstock/logs")
LOG_VARIABLE: Final = "PENSTOCK_LOG_DIR"
#: How much output (characters) to show when a program ends before it has started a job.
OUTPUT_TOLD: Final = 2_000


def run_attached(spec: ProgramSpec) -> None:
    """Replace this process with the program. Returns only through an error of the operating system."""
    sys.stdout.flush()
    command = spec.command()
    os.execvpe(command[0], command, spec.environment(os.environ))


def run_detached(spec: ProgramSpec, log: Path, on_event: Callable[[dict[str, Any]], None]) -> int:
    """Start the program in its own session, and wait until it has started its first job.

    Returns:
        The id of its process.

    Raises:
        OperationError: if it ends before it has started a job, or its job cannot start from the savepoint; the
            message has the reason.
    """
    with started_detached(spec.command(), spec.environment(os.environ), log) as (process, reports):
        for event in reports:
            if event["event"] == "refused":
                raise OperationError(event["reason"])
            on_event(event)
            if event["event"] == "submitted":
                return process.pid
    code, end = process.wait(), end_of_log(log)
    raise OperationError(f"the program ended with {code} before it began a job; its output is in {log}\n{end}")


def end_of_log(log: Path) -> str:
    """Return the end of the output."""
    return log.read_text(errors="replace")[-OUTPUT_TOLD:].strip()


@contextmanager
def started_detached(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> Iterator[tuple[subprocess.Popen[bytes], Iterator[dict[str, Any]]]]:
    """Start a process in its own session; yield it and its reports, until it ends or closes them."""
    log.parent.mkdir(parents=True, exist_ok=True)
    reader, writer = os.pipe()
    more = {REPORT_VARIABLE: str(writer), OUTPUT_VARIABLE: str(log.absolute())}
    with os.fdopen(reader) as reports, log.open("ab") as output:
        process = _started(command, {**environment, **more}, writer, output)
        yield process, map(json.loads, reports)


def log_file(name: str, directory: str | None) -> Path:
    """Return the file for a program's output, a new one for each start."""
    folder = Path(directory or os.environ.get(LOG_VARIABLE) or LOG_DIRECTORY).expanduser()
    plain = re.sub(r"[^\w.-]+", "-", Path(name).stem) or "program"
    return folder / f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"


def _started(
    command: Sequence[str], environment: Mapping[str, str], writer: int, output: IO[bytes]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[writer],
            start_new_session=True,
        )
    finally:
        os.close(writer)
