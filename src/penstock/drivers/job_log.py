"""The log of a job in the driver: the lines of `penstock` about this job, or about no job in particular.

A line is about the job in whose thread it is logged. With `penstock.logs.dir` it goes to files there. Otherwise the
last lines are kept in memory, so a job creates no files that were not requested.

The client's listener to a job: log lines, and the bytes that sinks send to the client.

Warnings about configuration keys that belong to no option.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterable
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Final

from penstock.base.errors import ConfigurationError
from penstock.base.secrets import hide
from penstock.base.unknown_options import unknown_options
from penstock.drivers.inspection import Answer, FileText, LogFile, LogFiles, Refused
from penstock.drivers.logs import OUTPUT_VARIABLE, HidingForm, LogSettings, ProcessLogs, build_formatter, end_of_file
from penstock.runtime.graph.job_graph import JobGraph

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


DRIVER: Final = "driver"
#: The maximum number of characters kept in memory.
KEPT_CHARS_MAX: Final = 1 << 20
#: The maximum length (characters) of a line in memory.
LINE_CHARS_MAX: Final = 1 << 16

_job_of_thread: ContextVar[str | None] = ContextVar("penstock_job", default=None)
_logs_log = logging.getLogger("penstock.logs")


def set_thread_job(job_id: str) -> None:
    """Assign the later log lines of this thread to a job."""
    _job_of_thread.set(job_id)


class LastLines(logging.Handler):
    """Keeps the last lines."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque()
        self._chars = 0
        self.written_ms = int(time.time() * 1000)
        self._own = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)[:LINE_CHARS_MAX] + "\n"
        with self._own:
            self._lines.append(line)
            self._chars += len(line)
            while self._chars > KEPT_CHARS_MAX:
                self._chars -= len(self._lines.popleft())
            self.written_ms = int(record.created * 1000)

    def text(self) -> str:
        """Return the kept lines."""
        with self._own:
            return "".join(self._lines)

    def list(self) -> Answer:
        """List the only log file."""
        return LogFiles((LogFile(f"{DRIVER}.log", len(self.text().encode()), self.written_ms),))

    def read(self, name: str) -> Answer:
        """Return the log."""
        if name not in ("", f"{DRIVER}.log"):
            return Refused(f"there is no log file {name!r}", is_unknown=True)
        return FileText(self.text().encode())


class DriverLog:
    """Listens to the logger `penstock` from construction to `close`; its lines can still be read after that."""

    def __init__(self, settings: LogSettings) -> None:
        self._job_id = settings.job_id
        self._kept: LastLines | ProcessLogs
        self._handler: logging.Handler
        try:
            if settings.directory is None:
                self._kept = self._handler = LastLines()
                self._handler.setFormatter(build_formatter(settings, DRIVER))
                self._handler.setLevel(settings.level)
            else:
                self._kept = ProcessLogs(settings, DRIVER)
                self._handler = self._kept.handler
        except OSError as error:
            _logs_log.warning("the driver's log is kept in memory: %s", error)
            self._kept = self._handler = LastLines()
            self._handler.setFormatter(build_formatter(settings, DRIVER))
        self._handler.set_name(f"{KEEPS}{settings.job_id}")
        self._handler.addFilter(self._is_of_job)
        logging.getLogger("penstock").addHandler(self._handler)

    def _is_of_job(self, record: logging.LogRecord) -> bool:
        return _job_of_thread.get() in (None, self._job_id)

    def list(self) -> Answer:
        """List the log's files, newest first."""
        return self._kept.list()

    def read(self, name: str) -> Answer:
        """Return the end of a log file."""
        return self._kept.read(name)

    def output(self) -> Answer:
        """Return the program's output, if the process that started the program redirected it to a file."""
        path = os.environ.get(OUTPUT_VARIABLE)
        if path is None:
            return Refused("what the driver's program prints is not kept: it is where the program was started")
        return end_of_file(Path(path))

    def close(self) -> None:
        """Stop listening."""
        logging.getLogger("penstock").removeHandler(self._handler)
        if isinstance(self._kept, ProcessLogs):
            self._kept.close()


def check_keys(keys: Iterable[str], is_strict: bool, reported: set[str]) -> None:
    """Warn about each unknown key that is not in `reported`, and add it there.

    Raises:
        ConfigurationError: if `is_strict` and there are such keys.
    """
    unknown = unknown_options(set(keys) - reported)
    if unknown and is_strict:
        raise ConfigurationError("; ".join(unknown.values()))
    if unknown:
        log_to_stderr_by_default()
    for sentence in unknown.values():
        _log.warning("%s", sentence)
    reported.update(unknown)
