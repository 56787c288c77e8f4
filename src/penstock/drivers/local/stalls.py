"""Shows the code that blocks this process when a call holds Python's global interpreter lock (GIL).

With the local target, functions run in the program's process. C code that holds the lock stops all of its Python
threads, so nothing can log where it is. The watchdog of `faulthandler` needs no lock: it writes the stacks of all
threads to standard error if a thread has not restarted it in time.
"""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Callable
from typing import Final

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.drivers.running_job import RunningJob

#: The maximum interval (s) between restarts of the watchdog.
_INTERVAL_S_MAX: Final = 1.0
#: The file descriptor of standard error, which notebooks and tests replace in Python only.
_STDERR: Final = 2


class StallWatch:
    """The watchdog of this process, which is active while jobs run here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stalls_ms: list[int] = []
        self._changed = threading.Condition(self._lock)

    def begin(self, stall_ms: int) -> Callable[[], None]:
        """Start watching the process; return a function that stops it.

        Args:
            stall_ms: how long no Python code may run before the stacks are written.
        """
        with self._lock:
            self._stalls_ms.append(stall_ms)
            self._restart()  # the job may block the process before the thread starts
            if len(self._stalls_ms) == 1:
                threading.Thread(target=self._watch, name="penstock-stalls", daemon=True).start()

        def end() -> None:
            with self._lock:
                self._stalls_ms.remove(stall_ms)
                self._changed.notify_all()

        return end

    def _watch(self) -> None:
        with self._lock:
            while self._stalls_ms:
                self._changed.wait(min(_INTERVAL_S_MAX, self._restart() / 4))
            faulthandler.cancel_dump_traceback_later()

    def _restart(self) -> float:
        """Restart the watchdog; return its timeout in seconds."""
        stall_s = min(self._stalls_ms) / 1_000
        faulthandler.dump_traceback_later(stall_s, file=_STDERR)
        return stall_s


#: `faulthandler` has one watchdog per process.
_WATCH: Final = StallWatch()


def watch(job: RunningJob, configuration: Configuration) -> None:
    """Watch this process until a job ends. It counts as blocked after `penstock.slow-workers.threshold`."""
    end = _WATCH.begin(configuration.read(options.SLOW_WORKERS_THRESHOLD_MS))
    job.get_job_execution_result().add_done_callback(lambda _: end())
