"""A cancelled job whose function does not return: says where it hangs, and ends the waiting when asked twice.

A thread cannot be ended from outside. A job that runs its functions in this process therefore ends when they return,
and not before. What remains is to say so, and to let go. The job's thread is left to itself (it is a daemon thread,
which does not keep the process). The caller that waits for the job gets an error that says where the job is.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.base.completable_future import CompletableFuture
from penstock.base.configuration import Configuration
from penstock.base.errors import JobExecutionError
from penstock.base.job_execution_result import JobExecutionResult
from penstock.base.options import TASK_CANCELLATION_INTERVAL_MS, TASK_CANCELLATION_TIMEOUT_MS
from penstock.core.task.whereabouts import outermost_first, whereabouts
from penstock.drivers.interrupts import SIGNALS_SECONDS, wait_until_done

_log = logging.getLogger("penstock.job")

#: How long a cancelled job may take before the log says so, and, at least, before the waiting ends.
PATIENCE_MS: Final = 3_000


class CancellationPatience:
    """Decides when to say that a job does not end, and when to wait no longer. Pure: times (ms) in, decisions out.

    Args:
        interval_ms: how often to say so, after the first time.
        timeout_ms: after how long to wait no longer, without a second request; 0 for never.
        grace_ms: how long after that, or after a second request, the job may take to end by force.
        now_ms: when the job was cancelled.
    """

    def __init__(self, interval_ms: int, timeout_ms: int, grace_ms: int, now_ms: int) -> None:
        self._interval_ms = interval_ms
        self._grace_ms = grace_ms
        self._begun_ms = now_ms
        self._word_ms = now_ms + PATIENCE_MS
        self._end_ms = now_ms + max(timeout_ms, PATIENCE_MS) + grace_ms if timeout_ms else None

    def on_cancelled_again(self, now_ms: int) -> None:
        """Take in a second request: an orderly end still has its chance, and no more."""
        end_ms = max(now_ms, self._begun_ms + PATIENCE_MS) + self._grace_ms
        self._end_ms = end_ms if self._end_ms is None else min(end_ms, self._end_ms)

    def waited_ms(self, now_ms: int) -> int:
        """How long it has been."""
        return now_ms - self._begun_ms

    def is_over(self, now_ms: int) -> bool:
        """Whether to wait no longer."""
        return self._end_ms is not None and now_ms >= self._end_ms

    def takes_word(self, now_ms: int) -> bool:
        """Whether it is time to say something."""
        if now_ms < self._word_ms:
            return False
        self._word_ms = now_ms + self._interval_ms
        return True

    def next_ms(self) -> int:
        """When there is something to do."""
        return self._word_ms if self._end_ms is None else min(self._word_ms, self._end_ms)


class CancellationWatch:
    """Watches over the end of one job, in a thread that lives from the first `cancel` to the job's end.

    Args:
        job_name: the name that messages use.
        result: done when nothing of the job is left; fails with a `JobExecutionError` when it is waited for no longer.
        configuration: `task.cancellation.interval` and `task.cancellation.timeout`.
        where: what the job is at; None for nothing worth a message.
        grace_ms: how long ending by force may take, where that is possible.
    """

    def __init__(
        self,
        job_name: str,
        result: CompletableFuture[JobExecutionResult],
        configuration: Configuration,
        where: Callable[[], str | None],
        grace_ms: int = 0,
    ) -> None:
        self._job_name = job_name
        self._result = result
        self._interval_ms = configuration.read(TASK_CANCELLATION_INTERVAL_MS)
        self._timeout_ms = configuration.read(TASK_CANCELLATION_TIMEOUT_MS)
        self._where = where
        self._grace_ms = grace_ms
        self._has_given_up = False
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._patience: CancellationPatience | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the job was cancelled."""
        return self._patience is not None

    def on_cancel(self) -> None:
        """Take in that the job is cancelled, or cancelled again; any thread may call this."""
        with self._lock:
            if self._result.done():
                return
            if self._patience is not None:
                self._patience.on_cancelled_again(_now_ms())
                self._event.set()
                return
            self._patience = CancellationPatience(self._interval_ms, self._timeout_ms, self._grace_ms, _now_ms())
        self._result.add_done_callback(lambda _: self._event.set())
        threading.Thread(
            target=self._run, args=(self._patience,), name=f"penstock-cancel-{self._job_name}", daemon=True
        ).start()

    def join(self, thread: threading.Thread) -> None:
        """Wait for the outcome of the job, and for its thread unless that is left to itself."""
        wait_until_done(self._result)
        if not self._has_given_up:
            while thread.is_alive():
                thread.join(SIGNALS_SECONDS)

    def say_what_is_left(self) -> None:
        """Log that the job is not waited for any longer."""
        if not self._result.done():
            _log.warning("%s: no longer waiting for it; %s", self._job_name, self._rest())

    def _run(self, patience: CancellationPatience) -> None:
        while not self._result.done():
            now_ms = _now_ms()
            if patience.is_over(now_ms):
                reason = f"it was cancelled, and has not ended after {patience.waited_ms(now_ms) // 1000} s: "
                error = JobExecutionError(self._job_name, reason + self._rest())
                self._has_given_up = True
                self._has_given_up = self._result.complete_exceptionally(error)
                return
            if patience.takes_word(now_ms) and (where := self._where()) is not None:
                _log.warning(
                    "%s: cancelled %d s ago, but a function does not return: %s; cancel again, or press Ctrl-C, to "
                    "stop waiting",
                    self._job_name,
                    patience.waited_ms(now_ms) // 1000,
                    where,
                )
            self._event.wait(max(0, patience.next_ms() - _now_ms()) / 1000)
            self._event.clear()

    def _rest(self) -> str:
        where = self._where()
        return "its thread is abandoned" + ("" if where is None else f", which is at {where}")


def where_is(thread: threading.Thread) -> str | None:
    """What one of this process's threads is at; None when it runs nothing of the user's."""
    frame = sys._current_frames().get(thread.ident or 0)
    return whereabouts(outermost_first(frame))


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
