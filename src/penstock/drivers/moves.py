"""The status transitions of a job, as reported by its master: none is lost, however rarely a reader polls."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from penstock.core.ports import JobListener

#: The maximum number of transitions that are kept.
MOVES_MAX: Final = 1_000


@dataclass(frozen=True)
class Move:
    """A status transition of a job.

    Attributes:
        number: the number of the job's transition, from 1.
        at_ms: its time (ms since the epoch).
        status: the new status.
        reason: why; None if no explanation is needed.
    """

    number: int
    at_ms: int
    status: str
    reason: str | None


class Moves:
    """Records a job's status transitions, and passes all events on to another listener."""

    def __init__(self, listener: JobListener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._moves: deque[Move] = deque(maxlen=MOVES_MAX)
        self._count = 0

    def after(self, number: int) -> list[Move]:
        """Return the stored transitions after the one with this number. Thread-safe."""
        with self._lock:
            return [move for move in self._moves if move.number > number]

    def on_job_status(self, status: str, reason: str | None) -> None:
        """Record a transition."""
        with self._lock:
            self._count += 1
            self._moves.append(Move(self._count, time.time_ns() // 1_000_000, status, reason))
        self._listener.on_job_status(status, reason)

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None:
        """Pass the output on."""
        self._listener.on_client_output(operator_id, subtask_index, payload)

    def on_log(self, line: str) -> None:
        """Pass the line on."""
        self._listener.on_log(line)
