"""What follows a failure: another attempt, after a while, or the end of the job (G8). Pure: failures in, decisions out.

A restart strategy counts failures, whatever they are. Two rules come before it, because a job that fails in the same
way for ever is of no use:

- An error that every attempt would meet again ends the job at once (`core.healing` says which errors those are).
- Failures that are alike are counted while the job makes no progress. A completed checkpoint, or an attempt that ran
  well for long, resets all counts. A failure that lies outside the job and may heal by itself is not counted.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.base.configuration import Configuration
from penstock.base.options import EXPONENTIAL_RESET_THRESHOLD_MS, IDENTICAL_FAILURES_MAX
from penstock.core.job.restart import make_restart_strategy
from penstock.core.protocol import Failure

#: How many failures are remembered; the one that has not come for the longest time is forgotten first.
_REMEMBERED_MAX: Final = 100
#: In the user's words: addresses of objects, which differ from process to process.
_ADDRESSES: Final = re.compile(r"0x[0-9a-f]+")
#: In our own: ids of workers, processes, checkpoints and attempts, which differ from one time to the next.
_NUMBERS: Final = re.compile(r"worker-\d+-[0-9a-f]{8}|\d+")


def likeness(failure: Failure, task_name: str | None) -> str:
    """A text that two failures share when the same failure has come again.

    Neither subtask nor record is part of it: when a function fails for all records, which record comes first is chance.
    """
    if failure.blocked_at:
        return f"blocked at {failure.blocked_at}"
    place = failure.operator_name or task_name or ""
    if failure.user_code or failure.traceback is not None:
        return _ADDRESSES.sub("0x", f"{place}\n{failure.reason}\n{failure.traceback or ''}")
    return _NUMBERS.sub("#", f"{place}\n{failure.reason}")


class IdenticalFailures:
    """Counts failures that are alike.

    Args:
        failures_max: the number of like failures at which the job fails; 0 for never.
        reset_ms: how long an attempt must run for it to count as progress.
    """

    def __init__(self, failures_max: int, reset_ms: int) -> None:
        self.failures_max = failures_max
        self._reset_ms = reset_ms
        self._counts: dict[str, int] = {}
        self._completed = 0
        self._running_since_ms: int | None = None

    def on_running(self, now_ms: int) -> None:
        """An attempt runs."""
        self._running_since_ms = now_ms

    def on_failure(self, alike: str, completed: int, now_ms: int) -> bool:
        """Take a failure by its `likeness`, with the number of checkpoints so far; whether it has come too often."""
        since_ms, self._running_since_ms = self._running_since_ms, None
        if completed != self._completed or (since_ms is not None and now_ms - since_ms >= self._reset_ms):
            self._counts.clear()
        self._completed = completed
        count = self._counts[alike] = self._counts.pop(alike, 0) + 1
        if len(self._counts) > _REMEMBERED_MAX:
            del self._counts[next(iter(self._counts))]
        return 0 < self.failures_max <= count


class Failover:
    """See the module's text.

    Attributes:
        verdict: why the last failure ends the job, when it is not the restart strategy that ends it.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.verdict: str | None = None
        self._strategy = make_restart_strategy(configuration)
        self._identical = IdenticalFailures(
            configuration.read(IDENTICAL_FAILURES_MAX), configuration.read(EXPONENTIAL_RESET_THRESHOLD_MS)
        )

    def on_running(self, now_ms: int) -> None:
        """An attempt runs."""
        self._identical.on_running(now_ms)

    def restart_delay_ms(
        self, failure: Failure, task_name: str | None, completed: int, has_worked: bool, now_ms: int
    ) -> int | None:
        """After how long (ms) the job runs again; None when it fails for good.

        Args:
            failure: what happened.
            task_name: the task that failed, if it was one.
            completed: how many checkpoints have completed since the job began.
            has_worked: whether there is one to go back to.
            now_ms: the time.
        """
        self.verdict = None
        alike = likeness(failure, task_name)
        is_repeated = not failure.is_outside and self._identical.on_failure(alike, completed, now_ms)
        if failure.suppresses_restart or (failure.is_final_at_first and not has_worked):
            self.verdict = "not restarted: every attempt would fail with the same error"
        elif is_repeated:
            self.verdict = (
                f"not restarted: the same failure occurred {self._identical.failures_max} times with no checkpoint in "
                f"between ({IDENTICAL_FAILURES_MAX.key()})"
            )
        return None if self.verdict else self._strategy.on_failure(now_ms)
