"""The client's listener to a job: log lines, and the bytes that sinks send to the client."""

from __future__ import annotations

import logging
import re
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

from penstock.base.secrets import hide
from penstock.core.graph.job_graph import JobGraph
from penstock.drivers.log_forms import HidingForm

_log = logging.getLogger("penstock.job")

_TRACEBACK: Final = "\nTraceback (most recent call last):\n"
#: A line of a traceback with a file and line number, and an unindented line: the error.
_FRAME: Final = re.compile(r'^  File "(.+)", line (\d+).*', re.MULTILINE)
_UNINDENTED: Final = re.compile(r"^\S", re.MULTILINE)

#: The prefix of the names of handlers that store a log.
KEEPS = "penstock-keeps-"


class ClientListener:
    """Logs the job's few important events, and passes sinks' bytes to their handlers."""

    def __init__(self, job_graph: JobGraph) -> None:
        self._name = job_graph.name
        self._handlers = job_graph.client_handlers
        #: the traceback of the failure that the job is recovering from
        self._traceback = ""
        log_to_stderr_by_default()

    def on_job_status(self, status: str, reason: str | None) -> None:
        """Log failures and restarts as warnings, and the rest as information.

        The traceback of a failure is logged at the restart; a job that does not restart raises it.
        """
        level = logging.WARNING if status in ("FAILING", "RESTARTING") else logging.INFO
        if status == "CREATED":
            return
        text, trace = (reason or "", "") if status == "FAILED" else summarize_failure(reason or "")
        if status == "FAILING":
            self._traceback, trace = trace, ""
        elif status == "RESTARTING":
            self._traceback, trace = "", trace or self._traceback
        because = "" if not text or status == "FAILED" else f": {text}"  # a FAILED job raises the reason
        _log.log(level, "%s: %s%s%s", self._name, status.lower(), because, trace and f"\n{trace}")

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None:
        """Pass a sink's bytes to its handler."""
        handler = self._handlers.get(operator_id)
        if handler is not None:
            handler(subtask_index, payload)

    def on_log(self, line: str) -> None:
        """Log a line for the user."""
        _log.info("%s: %s", self._name, line)


def summarize_failure(reason: str) -> tuple[str, str]:
    """Return an error in one line, with operator, record and the last line of code; and its traceback, or ""."""
    context, begin, frames = reason.partition(_TRACEBACK)
    if not begin:
        return reason, ""
    code, error = [], frames
    for frame in _FRAME.finditer(frames):
        code, error = [f"{Path(frame[1]).name}:{frame[2]}"], frames[frame.end() :]
    match = _UNINDENTED.search(error)
    error = "" if match is None else error[match.start() :].partition("\n")[0]
    return f"{error} ({', '.join([*context.splitlines(), *code])})", begin.lstrip() + frames


def log_to_stderr_by_default() -> None:
    """Log to stderr what jobs do if the program has not set up logging."""
    hide_in_uncaught_errors()
    logger = logging.getLogger("penstock")
    # Handlers that store lines for later display do not show them to the user.
    handlers = [handler for handler in logger.handlers if not (handler.name or "").startswith(KEEPS)]
    if handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(HidingForm("%(asctime)s penstock %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def hide_in_uncaught_errors() -> None:
    """Hide secrets in the traceback of an error that ends the program, unless the program has set its own hook."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_hidden


def _print_hidden(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    text = "".join(traceback.format_exception(kind, error, trace))
    hidden = hide(text)
    if hidden == text or sys.stderr is None:
        sys.__excepthook__(kind, error, trace)
    else:
        sys.stderr.write(hidden)
