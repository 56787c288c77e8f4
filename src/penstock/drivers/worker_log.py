"""The log of a worker: a file of its log records, including its tasks' states, and a file of what functions print.

Warnings still go to the process's own stderr, which Spark shows, except for task failures, which are in the driver's
log. The previous logging configuration is restored when the worker has ended, because Spark reuses the process.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from penstock.core.graph.states import ExecutionState
from penstock.core.ports import MasterGateway
from penstock.core.protocol import ExecutionId, Failure, TaskStateChanged, ToMaster
from penstock.core.task.stream_task import StreamTask
from penstock.drivers.log_files import ProcessLogs
from penstock.drivers.log_forms import HidingForm
from penstock.drivers.log_output import printed_into
from penstock.drivers.log_settings import LogSettings

TASKS_LOGGER: Final = "penstock.tasks"
_log = logging.getLogger("penstock.logs")
_tasks_log = logging.getLogger(TASKS_LOGGER)


@contextmanager
def kept_logs(settings: LogSettings | None, worker_id: str) -> Iterator[ProcessLogs | None]:
    """Write this worker's log records and prints to files within the `with` block; yield None if that is impossible."""
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


class LoggedStates:
    """A gateway to the job master that logs a line for each state of a task.

    Args:
        master: the gateway that receives the messages.
    """

    def __init__(self, master: MasterGateway) -> None:
        self._master = master
        #: the worker's tasks, which have names
        self.tasks: Callable[[], Iterable[StreamTask]] = tuple

    def send(self, message: ToMaster) -> None:
        """Forward a message, and log a task's state."""
        if isinstance(message, TaskStateChanged):
            self._note(message)
        self._master.send(message)

    def _note(self, message: TaskStateChanged) -> None:
        name, attempt = self._name(message.execution), message.execution.attempt
        if message.state == ExecutionState.FAILED.value and message.failure is not None:
            _tasks_log.warning("task %s, attempt %d: FAILED: %s", name, attempt, _in_words(message.failure))
        else:
            _tasks_log.info("task %s, attempt %d: %s", name, attempt, message.state)

    def _name(self, execution: ExecutionId) -> str:
        task = next((candidate for candidate in self.tasks() if candidate.execution == execution), None)
        if task is None:
            return f"of vertex {execution.vertex} ({execution.subtask + 1})"
        return f"'{task.deployment.task_name} ({execution.subtask + 1}/{task.deployment.parallelism})'"


def _in_words(failure: Failure) -> str:
    of = None if failure.operator_name is None else f"operator '{failure.operator_name}'"
    record = None if failure.record is None else f"record: {failure.record}"
    where = ", ".join(filter(None, (of, record)))
    line = f"{failure.reason} ({where})" if where else failure.reason
    return f"{line}\n{failure.traceback.rstrip()}" if failure.traceback else line
