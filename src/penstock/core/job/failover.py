"""Decides between a delayed restart and the end of a failed job (G8). Pure: failures in, decisions out.

A restart strategy counts failures, whatever they are. Two rules come before it, because a job that fails in the same
way forever is of no use:

- An error that would recur in every attempt ends the job at once (`core.healing` classifies errors).
- Identical failures are counted while the job makes no progress. A completed checkpoint, or an attempt that ran
  well for long, resets all counts. A failure outside the job that may resolve itself is not counted.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.base.configuration import Configuration
from penstock.base.options import EXPONENTIAL_RESET_THRESHOLD_MS, IDENTICAL_FAILURES_MAX
from penstock.core.job.restart import make_restart_strategy
from penstock.core.protocol import Failure

#: How many distinct failures are remembered; the least recent one is forgotten first.
_REMEMBERED_MAX: Final = 100
#: In user texts: addresses of objects, which differ between processes.
_ADDRESSES: Final = re.compile(r"0x[0-9a-f]+")
#: In Penstock's own texts: ids of workers, processes, checkpoints and attempts, which differ each time.
_NUMBERS: Final = re.compile(r"worker-\d+-[0-9a-f]{8}|\d+")


def likeness(failure: Failure, task_name: str | None) -> str:
    """Return a text that is equal for two occurrences of the same failure.

    It excludes the subtask and the record: if a function fails for all records, chance decides which record comes
    first.
    """
    if failure.blocked_at:
        return f"blocked at {failure.blocked_at}"
    origin = failure.operator_name or task_name or ""
    if failure.user_code or failure.traceback is not None:
        return _ADDRESSES.sub("0x", f"{origin}\n{failure.reason}\n{failure.traceback or ''}")
    return _NUMBERS.sub("#", f"{origin}\n{failure.reason}")


class IdenticalFailures:
    """Counts identical failures.

    Args:
        failures_max: the number of identical failures at which the job fails; 0 for never.
        reset_ms: how long an attempt must run to count as progress.
    """

    def __init__(self, failures_max: int, reset_ms: int) -> None:
        self.failures_max = failures_max
        self._reset_ms = reset_ms
        self._counts: dict[str, int] = {}
        self._completed = 0
        self._running_since_ms: int | None = None

    def on_running(self, now_ms: int) -> None:
        """Record that an attempt runs."""
        self._running_since_ms = now_ms

    def on_failure(self, alike: str, completed: int, now_ms: int) -> bool:
        """Count a failure by its `likeness`, given the checkpoints so far; return whether it occurred too often."""
        since_ms, self._running_since_ms = self._running_since_ms, None
        if completed != self._completed or (since_ms is not None and now_ms - since_ms >= self._reset_ms):
            self._counts.clear()
        self._completed = completed
        count = self._counts[alike] = self._counts.pop(alike, 0) + 1
        if len(self._counts) > _REMEMBERED_MAX:
            del self._counts[next(iter(self._counts))]
        return 0 < self.failures_max <= count


class Failover:
    """See the module's docstring.

    Attributes:
        verdict: why the last failure ends the job, unless the restart strategy ends it.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.verdict: str | None = None
        self._strategy = make_restart_strategy(configuration)
        self._identical = IdenticalFailures(
            configuration.read(IDENTICAL_FAILURES_MAX), configuration.read(EXPONENTIAL_RESET_THRESHOLD_MS)
        )

    def on_running(self, now_ms: int) -> None:
        """Record that an attempt runs."""
        self._identical.on_running(now_ms)

    def restart_delay_ms(
        self, failure: Failure, task_name: str | None, completed: int, has_worked: bool, now_ms: int
    ) -> int | None:
        """Return the delay (ms) before the job restarts; None if it fails for good.

        Args:
            failure: the failure.
            task_name: the task that failed, if any.
            completed: how many checkpoints have completed since the job began.
            has_worked: whether there is a checkpoint to return to.
            now_ms: the current time.
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
