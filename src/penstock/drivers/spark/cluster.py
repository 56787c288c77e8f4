"""The workers of a job, as Spark jobs of one task each, and the executors that Spark is about to take away (E2).

`LeavingWorkers` watches the executors of a job's workers, and reports the workers that Spark is about to take away.
Because an answer may take a while, a separate thread asks Spark. It asks for each worker's executor until Spark returns
one, and then once a second whether that executor is being decommissioned.

`SparkCluster`: all methods run in the job master's turn. A worker's Spark job occupies one thread of this process,
which waits for the job. That thread only notes the job's end and wakes the job master, so no locks are needed here.

The life of a worker: requested (its Spark job is started) → registered → released or lost. Spark reports why a worker
was lost, but on a cluster it reports late, because it first retries the failed task. So a worker whose connection has
ended counts as lost a moment later, regardless of Spark. A process that dies before it has registered is started again,
a few times, because the job master has not met it yet and still waits for a worker.

Workers are interchangeable until the job master gets one. So redundant workers
(`slotmanager.redundant-taskmanager-num`) are simply additional requests: workers that register while the job master
waits for none are held back until it does.

A worker whose executor Spark decommissions is leaving. The job master is notified if it uses the worker. A worker that
is held back is replaced.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from penstock.drivers.spark.entry import make_entry
from penstock.drivers.spark.handle import PROCESS_DIED, Entry, ExecutorName, short_reason
from penstock.drivers.spark.python_workers import FAILED, WorkerSettings
from penstock.runtime import protocol
from penstock.runtime.ports import Clock

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


START_ATTEMPTS_MAX: Final = 3
RELEASE_GRACE_MS: Final = 4_000
#: How long after the end of its connection a worker counts as lost. Spark may report the cause in the meantime.
CUT_OFF_GRACE_MS: Final = 500
#: The same where all of Spark is one process, which knows the cause at once and does not retry tasks.
CUT_OFF_GRACE_IN_PROCESS_MS: Final = 5_000
CUT_OFF: Final = "its connection to the job master broke"


def worker_tag(job_id: str, worker_id: str) -> str:
    """Return the job group, or tag, of a worker's Spark job."""
    return f"penstock-{job_id}-{worker_id}"


class Spark(Protocol):
    """The part of `SparkHandle` that the cluster uses."""

    def run_task(self, entry: Entry, tag: str, description: str) -> list[tuple[str, str]]: ...

    def interrupt(self, tag: str) -> None: ...

    def ship_package(self) -> None: ...


class _Worker:
    """One worker, from its request to its end."""

    def __init__(self, worker_id: str, attempt: int) -> None:
        self.worker_id = worker_id
        self.attempt = attempt
        self.registered = False
        self.released = False
        self.interrupt_ms: int | None = None
        self.lost_ms: int | None = None
        self.was_cut_off = False
        #: its registration while it is held back
        self.spare: protocol.RegisterWorker | None = None


class SparkCluster:
    """Implements `runtime.ports.Cluster`.

    Args:
        spark: the session.
        job_id: the prefix of the tags of the workers' Spark jobs.
        describe: returns the description of a worker for Spark's own pages.
        make_settings: returns the settings of a worker with a given id.
        send_to_worker: the master endpoint's `send`.
        wake: called from any thread when a worker has ended; the owner then calls `collect`.
        clock: measures the grace period of a release.
        redundant: how many workers to keep beyond the job master's requests.
        cut_off_grace_ms: how long Spark has to report why a worker's connection has ended.
        leaving: reports the workers that Spark takes away; its owner closes it. None if none are ever taken away.
    """

    def __init__(
        self,
        spark: Spark,
        job_id: str,
        describe: Callable[[str], str],
        make_settings: Callable[[str], WorkerSettings],
        send_to_worker: Callable[[str, protocol.ToWorker], None],
        wake: Callable[[], None],
        clock: Clock,
        redundant: int = 0,
        cut_off_grace_ms: int = CUT_OFF_GRACE_MS,
        leaving: LeavingWorkers | None = None,
    ) -> None:
        self._spark = spark
        self._job_id = job_id
        self._describe = describe
        self._make_settings = make_settings
        self._send_to_worker = send_to_worker
        self._wake = wake
        self._clock = clock
        self._workers: dict[str, _Worker] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._ended: deque[tuple[str, str, str]] = deque()
        self._count = 0
        self._redundant = redundant
        self._cut_off_grace_ms = cut_off_grace_ms
        self._leaving = leaving or LeavingWorkers(None, wake)
        self._owed = 0  # workers that the job master waits for
        self._handed_over: list[protocol.ToMaster] = []

    # --- the port --------------------------------------------------------------------------------------------------

    def request_workers(self, count: int) -> None:
        self._owed += count
        spare = [worker for worker in self._workers.values() if worker.spare is not None and not worker.released]
        for worker in spare[: self._owed]:
            assert worker.spare is not None
            self._handed_over.append(worker.spare)
            self._owed -= 1
            worker.spare = None
        if self._handed_over:
            self._wake()
        self._start_missing()

    def withdraw_workers(self, count: int) -> None:
        self._owed = max(0, self._owed - count)
        waiting = [w for w in self._workers.values() if not w.registered and not w.released]
        for worker in reversed(waiting[self._owed + self._redundant :]):
            self.release(worker.worker_id)

    def send(self, worker_id: str, message: protocol.ToWorker) -> None:
        if self.is_live(worker_id):
            self._send_to_worker(worker_id, message)

    def release(self, worker_id: str) -> None:
        worker = self._workers.get(worker_id)
        if worker is None or worker.released:
            return
        worker.released, worker.lost_ms = True, None
        self._leaving.forget(worker_id)
        if worker.registered:
            self._send_to_worker(worker_id, protocol.ShutDownWorker("released"))
            worker.interrupt_ms = self._clock.steady_ms() + RELEASE_GRACE_MS
        else:  # it may not even have a slot in Spark yet, so it would not get the message
            worker.interrupt_ms = self._clock.steady_ms()
            self.on_time()

    # --- for its owner ---------------------------------------------------------------------------------------------

    def is_live(self, worker_id: str) -> bool:
        """Return whether the worker was requested and has neither ended, as far as known, nor been released."""
        worker = self._workers.get(worker_id)
        return worker is not None and not worker.released

    def on_registered(self, registration: protocol.RegisterWorker) -> bool:
        """Register a worker; return whether to notify the job master, which has not requested redundant workers."""
        worker = self._workers.get(registration.worker_id)
        if worker is None or worker.registered:
            return False
        worker.registered = True
        if worker.released:
            self._send_to_worker(worker.worker_id, protocol.ShutDownWorker("released"))
            return False
        self._leaving.follow(worker.worker_id, self._tag(worker.worker_id))
        if not self._owed:
            worker.spare = registration
            return False
        self._owed -= 1
        return True

    def serves(self, worker_id: str) -> bool:
        """Return whether the job master has this worker: it is live and not held back."""
        worker = self._workers.get(worker_id)
        return worker is not None and not worker.released and worker.spare is None

    def on_cut_off(self, worker_id: str) -> None:
        """Note that the worker's connection has ended: the worker is dead or will end itself."""
        worker = self._workers.get(worker_id)
        if worker is not None and not worker.released and worker.lost_ms is None:
            worker.lost_ms = self._clock.steady_ms() + self._cut_off_grace_ms

    def release_all(self) -> None:
        """Release every worker."""
        for worker_id in list(self._workers):
            self.release(worker_id)

    @property
    def worker_count(self) -> int:
        """The number of workers whose Spark job has not ended, whether released or not."""
        return len(self._workers)

    def collect(self) -> list[protocol.ToMaster]:
        """Return the messages for the job master since the last call: workers lost, and their replacements."""
        messages, self._handed_over = self._handed_over, []
        while self._ended:
            worker_id, outcome, detail = self._ended.popleft()
            worker = self._workers.pop(worker_id)
            self._leaving.forget(worker_id)
            self._threads.pop(worker_id).join()
            _log.debug("worker %s ended: %s %s", worker_id, outcome, detail)
            reason = detail or f"it ended on its own ({outcome})"
            if worker.was_cut_off:
                _log.info("worker %s, whose connection to the job master had broken: %s", worker_id, reason)
            if worker.released:
                continue
            if worker.spare is not None:
                self._start_missing()
            elif worker.registered:
                messages.append(protocol.WorkerLost(worker_id, reason))
            elif reason == PROCESS_DIED and worker.attempt < START_ATTEMPTS_MAX:
                self._start(worker.attempt + 1)
            elif self._on_their_way() < self._owed:
                self._owed -= 1
                messages.append(protocol.WorkerRequestFailed(reason))
            else:
                _log.warning("a redundant worker could not be started: %s", reason)
        return messages + self._take_leaving() + self._give_up_cut_off()

    def next_deadline(self) -> int | None:
        """Return when (ms) `on_time` is due next."""
        moments = (moment for worker in self._workers.values() for moment in (worker.interrupt_ms, worker.lost_ms))
        return min((moment for moment in moments if moment is not None), default=None)

    def on_time(self) -> None:
        """Kill the workers that were released and did not end."""
        now_ms = self._clock.steady_ms()
        for worker in self._workers.values():
            if worker.interrupt_ms is not None and now_ms >= worker.interrupt_ms:
                # Repeat it after a while: an interrupt may come before Spark has started the job.
                worker.interrupt_ms = now_ms + RELEASE_GRACE_MS
                self._interrupt(worker.worker_id)

    def _take_leaving(self) -> list[protocol.ToMaster]:
        """Report the workers that Spark takes away, and replace those among them that are held back."""
        messages: list[protocol.ToMaster] = []
        for worker_id, reason in self._leaving.take():
            worker = self._workers.get(worker_id)
            if worker is None or worker.released:
                continue
            if worker.spare is None:
                messages.append(protocol.WorkerLeaving(worker_id, reason))
            else:
                _log.info("redundant worker %s is replaced: %s", worker_id, reason)
                self.release(worker_id)
                self._start_missing()
        return messages

    def _give_up_cut_off(self) -> list[protocol.ToMaster]:
        """Count the workers whose connection ended a while ago as lost, and mark them to be killed."""
        now_ms = self._clock.steady_ms()
        cut_off = [w for w in self._workers.values() if w.lost_ms is not None and now_ms >= w.lost_ms]
        messages: list[protocol.ToMaster] = [
            protocol.WorkerLost(w.worker_id, CUT_OFF) for w in cut_off if w.spare is None
        ]
        for worker in cut_off:
            worker.lost_ms, worker.interrupt_ms = None, now_ms
            worker.released = worker.was_cut_off = True
        if any(worker.spare is not None for worker in cut_off):
            self._start_missing()
        return messages

    def _on_their_way(self) -> int:
        """Return the number of workers that were requested and have not registered."""
        return sum(not worker.registered and not worker.released for worker in self._workers.values())

    def _start_missing(self) -> None:
        """Start the missing workers, both requested by the job master and redundant."""
        spare = sum(worker.spare is not None and not worker.released for worker in self._workers.values())
        for _ in range(self._owed + self._redundant - spare - self._on_their_way()):
            self._start(attempt=1)

    # --- Spark jobs ------------------------------------------------------------------------------------------------

    def _start(self, attempt: int) -> None:
        self._count += 1
        worker_id = f"worker-{self._count}-{secrets.token_hex(4)}"
        self._workers[worker_id] = _Worker(worker_id, attempt)
        thread = threading.Thread(target=self._run_worker, args=(worker_id,), name=f"penstock-{worker_id}", daemon=True)
        self._threads[worker_id] = thread
        thread.start()

    def _run_worker(self, worker_id: str) -> None:
        outcome, detail = FAILED, ""
        try:
            self._spark.ship_package()
            settings = self._make_settings(worker_id)
            rows = self._spark.run_task(make_entry(settings), self._tag(worker_id), self._describe(worker_id))
            outcome, detail = rows[0] if rows else (FAILED, "")
        except Exception as error:  # noqa: BLE001 - whatever Spark raises becomes a reason
            detail = short_reason(error)
        self._ended.append((worker_id, outcome, detail))
        self._wake()

    def _interrupt(self, worker_id: str) -> None:
        try:
            self._spark.interrupt(self._tag(worker_id))
        except Exception as error:  # noqa: BLE001 - Spark may be gone, and the worker with it
            _log.debug("worker %s could not be interrupted: %s", worker_id, short_reason(error))

    def _tag(self, worker_id: str) -> str:
        return worker_tag(self._job_id, worker_id)
