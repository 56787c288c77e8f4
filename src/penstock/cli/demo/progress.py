"""Follows the demo's job to its end, and kills one of its workers along the way.

The display while the job runs: an updating line on a terminal, a new line from time to time elsewhere.

Messages during lengthy operations.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from penstock.base.errors import OperationError
from penstock.cli.demo.flights import Flights
from penstock.runtime.job.view import JobProgress

if TYPE_CHECKING:
    from penstock.drivers.running_job import RunningJob


_RATE_WINDOW_S: Final = 3.0
_PLAIN_PERIOD_S: Final = 2.0


@dataclass(frozen=True)
class Figures:
    """A snapshot of a job for display."""

    status: str
    event_time: str
    share: float
    per_second: int
    checkpoints: int
    restarts: int

    def __str__(self) -> str:
        """Return the figures as one line."""
        restarts = f"{self.restarts} restart{'' if self.restarts == 1 else 's'}"
        return f"{self.per_second:>6,} flights/s  checkpoint {self.checkpoints:>2}  {restarts}"


class Meter:
    """Converts a job's progress to figures.

    Args:
        first_ms: the event time at the start of the input.
        last_ms: the event time at its end.
    """

    def __init__(self, first_ms: int, last_ms: int) -> None:
        self._first_ms = first_ms
        self._last_ms = last_ms
        self._counts: deque[tuple[float, int]] = deque()

    def read(self, progress: JobProgress, now_s: float) -> Figures:
        """Return the figures at this time; `now_s` comes from any monotonic clock."""
        within = min(max(progress.watermark_ms, self._first_ms), self._last_ms)
        known = progress.watermark_ms > self._first_ms
        return Figures(
            progress.status.lower(),
            datetime.fromtimestamp(within // 1000, UTC).strftime("%Y-%m-%d") if known else "----------",
            (within - self._first_ms) / max(1, self._last_ms - self._first_ms),
            self._rate(progress.source_records, now_s),
            progress.checkpoints_completed,
            progress.restarts,
        )

    def _rate(self, records: int, now_s: float) -> int:
        counts = self._counts
        if counts and records < counts[-1][1]:  # a new attempt counts from its recovery point
            counts.clear()
        if not counts or records > counts[-1][1]:  # workers report from time to time: record changes only
            counts.append((now_s, records))
        while len(counts) > 1 and now_s - counts[0][0] > _RATE_WINDOW_S:
            counts.popleft()
        (begun_s, begun), (last_s, last) = counts[0], counts[-1]
        return int((last - begun) / (last_s - begun_s)) if last_s > begun_s else 0


class Live:
    """Displays figures as the console allows; a context manager.

    Args:
        console: the console to write to.
        clock: a clock in seconds, for the interval between plain lines.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._begun_s = clock()
        self._shown_s = self._begun_s
        self._bar: Progress | None = None
        if console.is_terminal:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.fields[event_time]}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[figures]}"),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("", total=1.0, event_time="----------", figures="starting")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, figures: Figures) -> None:
        """Show the job's current figures."""
        if self._bar is not None:
            self._bar.update(
                self._task, completed=figures.share, event_time=figures.event_time, figures=self._words(figures)
            )
            return
        now_s = self._clock()
        if now_s - self._shown_s >= _PLAIN_PERIOD_S:
            self._shown_s = now_s
            seconds = int(now_s - self._begun_s)
            self._console.print(f"  {seconds:>3} s  event time {figures.event_time}  {self._words(figures)}")

    def _words(self, figures: Figures) -> str:
        return str(figures) if figures.status == "running" else figures.status


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


def busy(console: Console, message: str) -> AbstractContextManager[Any]:
    """Show a message about a lengthy operation: on a terminal while it runs, elsewhere as a line."""
    if console.is_terminal:
        return console.status(message)
    console.print(message)
    return nullcontext()
