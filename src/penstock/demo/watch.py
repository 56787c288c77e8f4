"""Follows the demo's job to its end, and kills one of its workers along the way."""

from __future__ import annotations

import os
import random
import signal
import time
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.console import Console

from penstock.base.errors import OperationError
from penstock.core.job.progress import JobProgress
from penstock.demo.data import Flights
from penstock.demo.live import Live, Meter

if TYPE_CHECKING:
    from penstock.drivers.running_job import RunningJob

_POLL_S: Final = 0.2
_ANSWER_S_MAX: Final = 10.0
#: A worker is killed after this many completed checkpoints and this share of the flights.
_KILL_CHECKPOINTS_MIN: Final = 2
_KILL_SHARE: Final = 0.25


@dataclass
class Outcome:
    """Events and figures of the job's run."""

    seconds: float = 0.0
    killed_pid: int | None = None
    restarts: int = 0
    checkpoints: int = 0


class Watch:
    """Watches one job.

    Args:
        console: the console for progress.
        flights: the job's input.
        kills: whether to kill one of its workers.
    """

    def __init__(self, console: Console, flights: Flights, kills: bool) -> None:
        self._console = console
        self._flights = flights
        self._kills = kills
        self._outcome = Outcome()

    def over(self, job: RunningJob) -> Outcome:
        """Wait for the job's end; Ctrl-C cancels it.

        Raises:
            JobExecutionError: if it fails.
        """
        begun_s = time.monotonic()
        meter = Meter(self._flights.first_ms, self._flights.last_ms)
        try:
            with Live(self._console) as live:
                while (progress := _fetch_progress(job)) is not None:
                    self._note(progress)
                    live.show(meter.read(progress, time.monotonic()))
                    time.sleep(_POLL_S)
        except KeyboardInterrupt:
            job.end()
            raise
        job.wait()
        self._outcome.seconds = time.monotonic() - begun_s
        return self._outcome

    def _note(self, progress: JobProgress) -> None:
        outcome = self._outcome
        if progress.restarts > outcome.restarts:
            self._console.print("  running again")
        outcome.restarts = max(outcome.restarts, progress.restarts)
        outcome.checkpoints = max(outcome.checkpoints, progress.checkpoints_completed)
        if (
            self._kills
            and outcome.killed_pid is None
            and progress.status == "RUNNING"
            and progress.checkpoints_completed >= _KILL_CHECKPOINTS_MIN
            and progress.source_records >= _KILL_SHARE * self._flights.count
        ):
            outcome.killed_pid = self._kill_one(progress)

    def _kill_one(self, progress: JobProgress) -> int | None:
        worker_id, host, pid = random.choice(progress.workers)
        if pid == os.getpid():
            raise OperationError("the workers run in this process, so none can be killed")
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None  # the worker has already ended; the next call picks another
        self._console.print(
            f"  [bold]killed {worker_id}[/], process {pid} on {host}, with SIGKILL after "
            f"{progress.checkpoints_completed} checkpoints and {progress.source_records:,} flights",
            highlight=False,
            soft_wrap=True,
        )
        return pid


def _fetch_progress(job: RunningJob) -> JobProgress | None:
    """Return the job's progress; None when it is over."""
    while not job.get_job_execution_result().done():
        try:
            return job.get_progress().result(_ANSWER_S_MAX)
        except CancelledError:
            return None
        except FutureTimeoutError:
            continue
    return None
