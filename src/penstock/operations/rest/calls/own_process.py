"""Logs, output, stacks and flame graphs: what the REST API asks for, and what this process says of itself."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections import deque
from typing import Any, Final, Protocol

from penstock.base.errors import OperationError
from penstock.drivers.listener import KEEPS
from penstock.operations.dispatcher import DispatchedJob

#: How much of this process' log is kept (characters).
LOG_CHARS_MAX: Final = 1 << 20
LOG_NAME: Final = "penstock.log"


class WorkerInsight(Protocol):
    """Looks into the processes of a job: of a worker, or of the driver for None. Without an answer: OperationError."""

    def thread_dump(self, job: DispatchedJob, worker_id: str | None) -> list[tuple[str, str]]:
        """The threads of a process: name, and where it is."""
        ...

    def logs(self, job: DispatchedJob, worker_id: str | None) -> list[tuple[str, int, int]]:
        """The files of its log: name, size in bytes, and when it was written (ms since the epoch)."""
        ...

    def log(self, job: DispatchedJob, worker_id: str | None, name: str = "") -> bytes:
        """One of them; the newest without a name."""
        ...

    def stdout(self, job: DispatchedJob, worker_id: str | None) -> bytes:
        """What functions have printed there."""
        ...

    def flame_graph(self, job: DispatchedJob, vertex_id: str, kind: str = "full", subtask: int | None = None) -> Any:
        """What the tasks of a vertex are at: `end_ms` and `root.to_dict()`; None while there are no samples yet."""
        ...


class NoInsight:
    """Where nothing looks into workers."""

    def thread_dump(self, job: DispatchedJob, worker_id: str | None) -> list[tuple[str, str]]:
        """Refused."""
        raise _refusal()

    def logs(self, job: DispatchedJob, worker_id: str | None) -> list[tuple[str, int, int]]:
        """Refused."""
        raise _refusal()

    def log(self, job: DispatchedJob, worker_id: str | None, name: str = "") -> bytes:
        """Refused."""
        raise _refusal()

    def stdout(self, job: DispatchedJob, worker_id: str | None) -> bytes:
        """Refused."""
        raise _refusal()

    def flame_graph(self, job: DispatchedJob, vertex_id: str, kind: str = "full", subtask: int | None = None) -> Any:
        """Refused."""
        raise _refusal()


def _refusal() -> OperationError:
    return OperationError("nothing looks into the processes of workers")


class LogTail(logging.Handler):
    """Keeps the last lines of a log."""

    def __init__(self) -> None:
        super().__init__()
        self.set_name(f"{KEEPS}rest")
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s [%(threadName)s] - %(message)s"))
        self._lines: deque[str] = deque()
        self._chars = 0
        self.modified_ms = int(time.time() * 1000)

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record in; the oldest go."""
        line = self.format(record)[:LOG_CHARS_MAX] + "\n"
        self._lines.append(line)
        self._chars += len(line)
        while self._chars > LOG_CHARS_MAX and len(self._lines) > 1:
            self._chars -= len(self._lines.popleft())
        self.modified_ms = int(record.created * 1000)

    def text(self) -> str:
        """What is kept."""
        self.acquire()
        try:
            return "".join(self._lines)
        finally:
            self.release()


class OwnProcess:
    """This process: its threads, and the last of what Penstock has logged in it."""

    def __init__(self) -> None:
        self.tail = LogTail()

    def listen(self) -> None:
        """Begin to keep what is logged."""
        logging.getLogger("penstock").addHandler(self.tail)

    def forget(self) -> None:
        """Keep no more of it."""
        logging.getLogger("penstock").removeHandler(self.tail)

    def thread_dump(self) -> list[tuple[str, str]]:
        """Where each thread is."""
        frames = sys._current_frames()
        stacks = []
        for thread in threading.enumerate():
            frame = frames.get(thread.ident or 0)
            if frame is not None:
                kind = "daemon " if thread.daemon else ""
                head = f'"{thread.name}" {kind}id={thread.ident} native={thread.native_id}\n'
                stacks.append((thread.name, head + "".join(traceback.format_stack(frame)) + "\n"))
        return stacks

    def logs(self) -> list[tuple[str, int, int]]:
        """The one log, kept in memory."""
        return [(LOG_NAME, len(self.log().encode()), self.tail.modified_ms)]

    def log(self) -> str:
        """Its text."""
        return self.tail.text() or "nothing was logged yet\n"

    def stdout(self) -> str:
        """Not kept: it goes where the program's output goes."""
        return "The output of this process is not kept: it is where the program was started.\n"
