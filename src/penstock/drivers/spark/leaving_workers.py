"""Watches the executors of a job's workers, and reports the workers that Spark is about to take away (E2).

Because an answer may take a while, a separate thread asks Spark. It asks for each worker's executor until Spark returns
one, and then once a second whether that executor is being decommissioned.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from penstock.drivers.spark.executors import ExecutorName
from penstock.drivers.spark.handle import short_reason

_log = logging.getLogger("penstock.spark")

INTERVAL_SECONDS: Final = 1.0
CLOSE_TIMEOUT_SECONDS: Final = 5.0


class SparkExecutors(Protocol):
    """The part of `Executors` that is used here."""

    def of(self, tag: str) -> ExecutorName | None: ...

    def is_leaving(self, executor_id: str) -> bool: ...


class LeavingWorkers:
    """Finds the workers that Spark is about to take away.

    `follow`, `forget`, `take` and `close` belong to one thread, the owner's.

    Args:
        executors: Spark's executors; None if they cannot be watched: then no worker is ever reported.
        wake: called from the thread when a worker is leaving; the owner then calls `take`.
        interval_seconds: how often to ask Spark.
    """

    def __init__(
        self,
        executors: SparkExecutors | None,
        wake: Callable[[], None],
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._executors = executors
        self._wake = wake
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()
        #: the tags of the watched workers, and their executors as far as known
        self._tags: dict[str, str] = {}
        self._places: dict[str, ExecutorName] = {}
        self._found: deque[tuple[str, str]] = deque()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, worker_id: str, tag: str) -> None:
        """Watch a worker whose Spark job has that tag."""
        if self._executors is None:
            return
        with self._lock:
            self._tags[worker_id] = tag
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(self._executors,), daemon=True)
            self._thread.name = "penstock-leaving-workers"
            self._thread.start()

    def forget(self, worker_id: str) -> None:
        """Stop watching a worker."""
        with self._lock:
            self._tags.pop(worker_id, None)
            self._places.pop(worker_id, None)

    def take(self) -> list[tuple[str, str]]:
        """Return the newly found workers that will be taken away, with the reason; each is reported once."""
        workers = []
        while self._found:
            workers.append(self._found.popleft())
        return workers

    def close(self) -> None:
        """End the thread; if it is still waiting for Spark, abandon it."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_SECONDS)

    def _run(self, executors: SparkExecutors) -> None:
        while not self._over.wait(self._interval_seconds):
            try:
                self._look(executors)
            except Exception as error:  # noqa: BLE001 - Spark may be gone; then workers are lost, not leaving
                _log.debug("Spark does not say which executors are leaving: %s", short_reason(error))

    def _look(self, executors: SparkExecutors) -> None:
        with self._lock:
            unplaced = {worker_id: tag for worker_id, tag in self._tags.items() if worker_id not in self._places}
        for worker_id, tag in unplaced.items():
            executor = executors.of(tag)
            with self._lock:
                if executor is not None and worker_id in self._tags:
                    self._places[worker_id] = executor
        with self._lock:
            by_worker = dict(self._places)
        leaving = {name for name in set(by_worker.values()) if executors.is_leaving(name.executor_id)}
        for worker_id, executor in by_worker.items():
            if executor in leaving:
                self.forget(worker_id)
                self._found.append((worker_id, f"Spark decommissions its {executor}"))
                self._wake()
