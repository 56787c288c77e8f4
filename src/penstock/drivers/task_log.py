"""What becomes of a worker's tasks, in the log of the worker: their states, and why one failed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from penstock.core.graph.states import ExecutionState
from penstock.core.ports import MasterGateway
from penstock.core.protocol import ExecutionId, Failure, TaskStateChanged, ToMaster
from penstock.core.task.stream_task import StreamTask

TASKS_LOGGER: Final = "penstock.tasks"
_log = logging.getLogger(TASKS_LOGGER)


class LoggedStates:
    """A gateway to the job master that leaves a line for each state of a task.

    Args:
        master: the gateway behind it.
    """

    def __init__(self, master: MasterGateway) -> None:
        self._master = master
        #: the tasks of the worker, which have names
        self.tasks: Callable[[], Iterable[StreamTask]] = tuple

    def send(self, message: ToMaster) -> None:
        """Pass a message on."""
        if isinstance(message, TaskStateChanged):
            self._note(message)
        self._master.send(message)

    def _note(self, message: TaskStateChanged) -> None:
        name, attempt = self._name(message.execution), message.execution.attempt
        if message.state == ExecutionState.FAILED.value and message.failure is not None:
            _log.warning("task %s, attempt %d: FAILED: %s", name, attempt, _in_words(message.failure))
        else:
            _log.info("task %s, attempt %d: %s", name, attempt, message.state)

    def _name(self, execution: ExecutionId) -> str:
        task = next((one for one in self.tasks() if one.execution == execution), None)
        if task is None:
            return f"of vertex {execution.vertex} ({execution.subtask + 1})"
        return f"'{task.deployment.task_name} ({execution.subtask + 1}/{task.deployment.parallelism})'"


def _in_words(failure: Failure) -> str:
    of = None if failure.operator_name is None else f"operator '{failure.operator_name}'"
    record = None if failure.record is None else f"record: {failure.record}"
    where = ", ".join(filter(None, (of, record)))
    line = f"{failure.reason} ({where})" if where else failure.reason
    return f"{line}\n{failure.traceback.rstrip()}" if failure.traceback else line
