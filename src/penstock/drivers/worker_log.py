"""The log of a worker: everything that it logs, whoever does, in a file; and what functions print, in another one.

Warnings still go to the process's own stderr, which Spark shows; but for failures of tasks, which are in the driver's
log. What was set up before comes back when the worker has ended, because Spark uses the process again.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.drivers.log_files import ProcessLogs
from penstock.drivers.log_forms import HidingForm
from penstock.drivers.log_output import printed_into
from penstock.drivers.log_settings import LogSettings
from penstock.drivers.task_log import TASKS_LOGGER

_log = logging.getLogger("penstock.logs")


@contextmanager
def kept_logs(settings: LogSettings | None, worker_id: str) -> Iterator[ProcessLogs | None]:
    """Keep what this worker logs and prints while this lasts; None where it cannot be kept."""
    logs = None if settings is None else _begin(settings, worker_id)
    if settings is None or logs is None:
        yield None
        return
    root = logging.getLogger()
    handlers: list[logging.Handler] = [logs.handler]
    if not root.handlers:
        handlers.append(_to_stderr())
    level = root.level
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(min(level or logging.WARNING, logging.getLevelName(settings.level)))
    try:
        with printed_into(logs.printed):
            yield logs
    finally:
        root.setLevel(level)
        for handler in handlers:
            root.removeHandler(handler)
        logs.close()


def _to_stderr() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(HidingForm())
    handler.addFilter(lambda record: record.name != TASKS_LOGGER)
    return handler


def _begin(settings: LogSettings, worker_id: str) -> ProcessLogs | None:
    try:
        return ProcessLogs(settings, worker_id)
    except OSError as error:
        _log.warning("worker %s keeps no log files: %s", worker_id, error)
        return None
