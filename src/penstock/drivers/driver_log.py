"""The log of a job in the driver: the lines of `penstock` about this job, or about no job in particular.

A line is about the job in whose thread it is logged. With `penstock.logs.dir` it goes to files there. Otherwise the
last lines are kept in memory, so a job creates no files that were not requested.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from penstock.drivers.listener import KEEPS
from penstock.drivers.log_files import ProcessLogs
from penstock.drivers.log_forms import build_formatter
from penstock.drivers.log_settings import LogSettings
from penstock.drivers.program_output import OUTPUT_VARIABLE, end_of_file
from penstock.drivers.questions import Answer, FileText, LogFile, LogFiles, Refused

DRIVER: Final = "driver"
#: The maximum number of characters kept in memory.
KEPT_CHARS_MAX: Final = 1 << 20
#: The maximum length (characters) of a line in memory.
LINE_CHARS_MAX: Final = 1 << 16

_job_of_thread: ContextVar[str | None] = ContextVar("penstock_job", default=None)
_log = logging.getLogger("penstock.logs")


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
            _log.warning("the driver's log is kept in memory: %s", error)
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
