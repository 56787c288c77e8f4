"""Cancellation of jobs whose functions do not return, and a Ctrl-C that works while a program waits.

**Ctrl-C.** Python handles signals in the main thread, which needs the global interpreter lock (GIL). With the local
target, functions run in the program's process. If one of them calls C code that does not return and holds the lock,
Ctrl-C has no effect. Therefore the default action is restored when a signal arrives (`SA_RESETHAND`), and the Python
handler first reinstalls itself. If the handler does not get to run, the next Ctrl-C ends the process.

The system may deliver a signal to any thread of the process. The main thread still runs the Python handler, but nothing
wakes it. Therefore the functions here that wait wake up from time to time.

**Cancellation.** A thread cannot be stopped from outside, so a job that runs its functions in this process ends only
when they return. All that remains is to log where the job hangs, and to stop waiting at a second request. The job's
thread is then abandoned; as a daemon thread, it does not keep the process alive. The caller that waits for the job gets
an error that says where the job hangs.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final, TypeVar

from penstock.base.configuration import Configuration
from penstock.base.errors import JobExecutionError
from penstock.base.job import CompletableFuture, JobExecutionResult
from penstock.base.options import TASK_CANCELLATION_INTERVAL_MS, TASK_CANCELLATION_TIMEOUT_MS
from penstock.runtime.task.failures import outermost_first, whereabouts

T = TypeVar("T")

#: The interval at which a waiting program wakes up to handle signals that another thread received.
SIGNALS_SECONDS: Final = 0.5


def note_end_signals() -> list[int]:
    """Let SIGTERM and SIGINT end nothing by themselves; return a list that gets their numbers.

    A server looks at the list every `SIGNALS_SECONDS`: a signal that another thread receives interrupts no wait.
    """
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        # A handler interrupts the main thread anywhere, so it takes no lock, as that of an event.
        signal.signal(number, lambda number, _: received.append(number))
    return received


_RESET_HANDLER: Final = -0x80000000
#: The structure below is different on other systems and processors.
_IS_KNOWN: Final = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")


class _Action(ctypes.Structure):
    """`struct sigaction`."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint8 * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


@contextlib.contextmanager
def ends_on_second_interrupt() -> Iterator[None]:
    """Let SIGINT work as before, but end the process if Python has not handled the previous SIGINT.

    This has no effect outside the main thread, if the program ignores SIGINT, or on systems other than Linux.
    """
    before = signal.getsignal(signal.SIGINT)
    if not _IS_KNOWN or not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    action = _Action()

    def on_interrupt(number: int, frame: FrameType | None) -> Any:
        _set(action)
        return before(number, frame)

    signal.signal(signal.SIGINT, on_interrupt)
    if _call(None, action):
        action.flags |= _RESET_HANDLER
        _set(action)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is on_interrupt:
            signal.signal(signal.SIGINT, before)


def wait_until_done(future: Future[Any]) -> None:
    """Wait for a future, whatever its outcome; signals take effect within `SIGNALS_SECONDS`."""
    while not wait([future], SIGNALS_SECONDS).done:
        pass


def take_item(items: SimpleQueue[T], timeout_seconds: float | None = None) -> T:
    """Return the next item of a queue, or raise `Empty` at the timeout. Handles signals like `wait_until_done`."""
    left = math.inf if timeout_seconds is None else timeout_seconds
    until = time.monotonic() + left
    while True:
        try:
            return items.get(timeout=min(left, SIGNALS_SECONDS))
        except Empty:
            left = max(0.0, until - time.monotonic())
            if not left:
                raise


def _set(action: _Action) -> None:
    if action.handler:
        _call(action, None)


def _call(action: _Action | None, former: _Action | None) -> bool:
    """Call `sigaction`; return whether it succeeded."""
    pointers = [None if argument is None else ctypes.byref(argument) for argument in (action, former)]
    return bool(ctypes.CDLL(None).sigaction(int(signal.SIGINT), *pointers) == 0)


_log = logging.getLogger("penstock.job")

#: How long a cancelled job may take before a warning is logged; also the minimum time before the waiting ends.
PATIENCE_MS: Final = 3_000


class CancellationPatience:
    """Decides when to warn that a job does not end, and when to stop waiting. Pure: times (ms) in, decisions out.

    Args:
        interval_ms: the interval of the warnings after the first one.
        timeout_ms: when to stop waiting without a second request; 0 for never.
        grace_ms: how long a forced termination may take after the timeout or a second request.
        now_ms: the time of the cancellation.
    """

    def __init__(self, interval_ms: int, timeout_ms: int, grace_ms: int, now_ms: int) -> None:
        self._interval_ms = interval_ms
        self._grace_ms = grace_ms
        self._begun_ms = now_ms
        self._word_ms = now_ms + PATIENCE_MS
        self._end_ms = now_ms + max(timeout_ms, PATIENCE_MS) + grace_ms if timeout_ms else None

    def on_cancelled_again(self, now_ms: int) -> None:
        """Handle a second request: wait until an orderly end has had its chance, and no longer."""
        end_ms = max(now_ms, self._begun_ms + PATIENCE_MS) + self._grace_ms
        self._end_ms = end_ms if self._end_ms is None else min(end_ms, self._end_ms)

    def waited_ms(self, now_ms: int) -> int:
        """Return the time since the cancellation."""
        return now_ms - self._begun_ms

    def is_over(self, now_ms: int) -> bool:
        """Return whether to stop waiting."""
        return self._end_ms is not None and now_ms >= self._end_ms

    def takes_word(self, now_ms: int) -> bool:
        """Return whether a warning is due."""
        if now_ms < self._word_ms:
            return False
        self._word_ms = now_ms + self._interval_ms
        return True

    def next_ms(self) -> int:
        """Return the time of the next action."""
        return self._word_ms if self._end_ms is None else min(self._word_ms, self._end_ms)


class CancellationWatch:
    """Watches the end of one job, in a thread that lives from the first `cancel` to the end of the job.

    Args:
        job_name: the job's name in messages.
        result: completes when the whole job has ended; fails with a `JobExecutionError` when the waiting ends earlier.
        configuration: `task.cancellation.interval` and `task.cancellation.timeout`.
        where: returns where the job hangs, or None if that is not worth a message.
        grace_ms: how long a forced termination may take, where one is possible.
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
        """Record that the job is cancelled, or cancelled again. Thread-safe."""
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
        """Wait for the job's outcome, and for its thread unless it is abandoned."""
        wait_until_done(self._result)
        if not self._has_given_up:
            while thread.is_alive():
                thread.join(SIGNALS_SECONDS)

    def say_what_is_left(self) -> None:
        """Log that nothing waits for the job any longer."""
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
    """Return where a thread of this process is; None if it runs no user code."""
    frame = sys._current_frames().get(thread.ident or 0)
    return whereabouts(outermost_first(frame))


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
