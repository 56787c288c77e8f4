"""The moves of a job from status to status, as its master told them: none is lost, however seldom somebody looks."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from penstock.core.ports import JobListener

#: How many are kept.
MOVES_MAX: Final = 1_000


@dataclass(frozen=True)
class Move:
    """A job came to a status.

    Attributes:
        number: counts the moves of the job, from 1.
        at_ms: when (ms since the epoch).
        status: the status.
        reason: why; None when that needs no words.
    """

    number: int
    at_ms: int
    status: str
    reason: str | None


class Moves:
    """Listens to a job in the place of another listener, which hears everything all the same."""

    def __init__(self, listener: JobListener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._moves: deque[Move] = deque(maxlen=MOVES_MAX)
        self._count = 0

    def after(self, number: int) -> list[Move]:
        """Those after the one with this number, as far as they are kept; any thread may ask."""
        with self._lock:
            return [move for move in self._moves if move.number > number]

    def on_job_status(self, status: str, reason: str | None) -> None:
        """Keep a move."""
        with self._lock:
            self._count += 1
            self._moves.append(Move(self._count, time.time_ns() // 1_000_000, status, reason))
        self._listener.on_job_status(status, reason)

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None:
        """Pass it on."""
        self._listener.on_client_output(operator_id, subtask_index, payload)

    def on_log(self, line: str) -> None:
        """Pass it on."""
        self._listener.on_log(line)
