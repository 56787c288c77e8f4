"""Logs, output, stacks and flame graphs: what the REST API asks for, and what this process says of itself."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.operations.rest.calls.errors import not_found

#: How much of this process' log is kept (characters).
LOG_CHARS_MAX: Final = 1 << 20
LOG_NAME: Final = "penstock.log"


@dataclass(frozen=True)
class LogFile:
    """A file of logs: its name, its size in bytes, and when it was last written (ms since the epoch)."""

    name: str
    size: int
    modified_ms: int


@dataclass(frozen=True)
class ThreadStack:
    """A thread and where it is."""

    name: str
    stack: str


class WorkerInsight(Protocol):
    """Looks into processes. A worker of None is the job manager: this process. Unknown workers and files raise 404."""

    def thread_dump(self, worker_id: str | None) -> list[ThreadStack]:
        """Where each thread is."""
        ...

    def logs(self, worker_id: str | None) -> list[LogFile]:
        """The files of logs, the main one first."""
        ...

    def log(self, worker_id: str | None, name: str | None) -> str:
        """One of them, by its name; the main one for None."""
        ...

    def stdout(self, worker_id: str | None) -> str:
        """What the process has printed."""
        ...

    def flame_graph(self, job_id: str, vertex_id: str, kind: str, subtask: int | None) -> Any | None:
        """Flink's flame graph of a vertex: `endTimestamp` and `data`; None while it is sampled for the first time."""
        ...


class LogTail(logging.Handler):
    """Keeps the last lines of a log."""

    def __init__(self) -> None:
        super().__init__()
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
        with self.lock or threading.Lock():
            return "".join(self._lines)


class OwnProcess:
    """This process alone: its threads, and the last of what Penstock logged in it."""

    def __init__(self) -> None:
        self.tail = LogTail()

    def listen(self) -> None:
        """Begin to keep what is logged."""
        logging.getLogger("penstock").addHandler(self.tail)

    def thread_dump(self, worker_id: str | None) -> list[ThreadStack]:
        """Where each thread of this process is; workers are other processes, unless the job is local."""
        self._check(worker_id)
        frames = sys._current_frames()
        stacks = []
        for thread in threading.enumerate():
            frame = frames.get(thread.ident or 0)
            if frame is not None:
                kind = "daemon " if thread.daemon else ""
                head = f'"{thread.name}" {kind}id={thread.ident} native={thread.native_id}\n'
                stacks.append(ThreadStack(thread.name, head + "".join(traceback.format_stack(frame)) + "\n"))
        return stacks

    def logs(self, worker_id: str | None) -> list[LogFile]:
        """The one log, kept in memory."""
        self._check(worker_id)
        return [LogFile(LOG_NAME, len(self.tail.text().encode()), self.tail.modified_ms)]

    def log(self, worker_id: str | None, name: str | None) -> str:
        """That log."""
        self._check(worker_id)
        if name not in (None, LOG_NAME):
            raise not_found(f"This file does not exist in the log dir: {str(name)[:100]}")
        return self.tail.text() or "nothing was logged yet\n"

    def stdout(self, worker_id: str | None) -> str:
        """Not kept: it goes where the program's output goes."""
        self._check(worker_id)
        return "The output of this process is not kept: it is where the program was started.\n"

    def flame_graph(self, job_id: str, vertex_id: str, kind: str, subtask: int | None) -> Any | None:
        """Workers are other processes, and nothing samples them."""
        raise not_found("Flame graphs are off: nothing samples the workers of this job.")

    def _check(self, worker_id: str | None) -> None:
        if worker_id is not None:
            raise not_found(f"Worker {worker_id[:100]} is another process, whose logs and stacks are not collected.")
