"""Jobs in this process: streaming with all workers in one thread, and batch and micro-batch execution task by task.

`LocalJob` is a streaming job. One thread runs its master and all its tasks, another runs their asynchronous calls, and
two more write checkpoints.
`LocalCluster` has all workers of the job in one thread: executors are called in turn, and buffers are passed by
reference.

`StallWatch` shows the code that blocks this process when a call holds Python's global interpreter lock (GIL). With the
local target, functions run in the program's process. C code that holds the lock stops all of its Python threads, so
nothing can log where it is. The watchdog of `faulthandler` needs no lock: it writes the stacks of all threads to
standard error if a thread has not restarted it in time.

`prepare` makes the dependencies of user-defined functions available in this process, which runs them.

`LocalBatchJob` and `LocalEpochJob` run one task after another, and sort rows in memory.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, PenstockError
from penstock.base.job import CompletableFuture, JobExecutionResult, JobID, JobStatus
from penstock.base.options import EXECUTION_TARGET, PYTHON_ARCHIVES, PYTHON_EXECUTABLE, PYTHON_FILES
from penstock.drivers.cancellation import where_is
from penstock.drivers.event_loop import (
    WAIT_MS_MAX,
    EndedTasks,
    EventLoopThread,
    InlineBackground,
    SystemClock,
    ThreadBackground,
    WaitingEventLoop,
)
from penstock.drivers.failure_enrichers import failure_enrichers
from penstock.drivers.inspection import Answer, Answers, Question, process_figures
from penstock.drivers.logs import set_thread_job
from penstock.drivers.running_job import ANSWER_MS_MAX, RunningJob, settle
from penstock.drivers.stepwise.flow import run_in_order
from penstock.drivers.stepwise.job import BatchJob, EpochJob, StepwiseJob
from penstock.drivers.worker_storage import BackendSettings, StorageSettings
from penstock.runtime.batch.exchange import Rows, enumerate_splits, keeps_step
from penstock.runtime.batch.task import BatchTask
from penstock.runtime.effects import carry_out
from penstock.runtime.epochs.coordinator import EpochWork, Task
from penstock.runtime.epochs.task import EpochTask
from penstock.runtime.graph import JobGraph
from penstock.runtime.job.failover import ending
from penstock.runtime.job.job_master import JobMaster
from penstock.runtime.job.slots import is_reactive
from penstock.runtime.job.view import JobView
from penstock.runtime.master.steps import Last
from penstock.runtime.operators.base import Round, exchanged
from penstock.runtime.ports import Clock, Coroutines, JobListener, KeyedBackends, StateStorage
from penstock.runtime.protocol import ChannelId, ProcessFigures, RegisterWorker, ToMaster, ToWorker
from penstock.runtime.records import Buffer
from penstock.runtime.task.executor import TaskExecutor

T = TypeVar("T")


#: How many pieces of background work run at once: the parts of a checkpoint, and its metadata.
_BACKGROUND_THREADS: Final = 2
#: How long (s) the end of a job waits for its background work, such as the removal of checkpoints.
_BACKGROUND_END_S: Final = 60.0


class LocalCluster:
    """Implements the ports Cluster, Network and MasterGateway for executors in this thread."""

    passes_references = True

    def __init__(
        self,
        clock: Clock,
        make_storage: Callable[[], StateStorage],
        process_id: int,
        backends: KeyedBackends,
        coroutines: Coroutines,
        background: ThreadBackground | InlineBackground,
    ) -> None:
        self.inbox: deque[ToMaster] = deque()
        self.background = background
        self._clock = clock
        self._make_storage = make_storage
        self._process_id = process_id
        self._backends = backends
        self._coroutines = coroutines
        self._cycles = EndedTasks()
        self._executors: dict[str, TaskExecutor] = {}
        self._made = 0

    # --- Cluster ---------------------------------------------------------------------------------------------------

    def request_workers(self, count: int) -> None:
        """Create executors; they register at once."""
        for _ in range(count):
            self._made += 1
            worker_id = f"worker-{self._made}"
            self._executors[worker_id] = TaskExecutor(
                worker_id,
                clock=self._clock,
                network=self,
                master=_Gateway(self.inbox),
                background=self.background,
                storage=self._make_storage(),
                backends=self._backends,
                coroutines=self._coroutines,
                cycles=self._cycles,
            )
            self.inbox.append(RegisterWorker(worker_id, "local", "localhost", self._process_id))

    def withdraw_workers(self, count: int) -> None:
        """Do nothing: all requested workers exist, and the master releases unneeded ones."""

    def send(self, worker_id: str, message: ToWorker) -> None:
        """Pass a message to an executor."""
        executor = self._executors.get(worker_id)
        if executor is not None:
            executor.on_message(message)

    def release(self, worker_id: str) -> None:
        """Close an executor."""
        executor = self._executors.pop(worker_id, None)
        if executor is not None:
            executor.close()

    # --- Network ---------------------------------------------------------------------------------------------------

    def connect(self, attempt: int, peers: Mapping[str, str]) -> None:
        """Do nothing: all executors are in this thread."""

    def keep_attempts(self, attempts: Collection[int]) -> None:
        """Do nothing: a channel whose task has ended receives nothing."""

    def send_buffer(self, worker_id: str, channel: ChannelId, buffer: Buffer) -> None:
        """Pass a buffer by reference."""
        executor = self._executors.get(worker_id)
        if executor is not None:
            executor.on_buffer(channel, buffer)

    def send_credit(self, worker_id: str, channel: ChannelId, credit: int) -> None:
        """Pass credit on."""
        executor = self._executors.get(worker_id)
        if executor is not None:
            executor.on_credit(channel, credit)

    # --- the driver's loop -----------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Run one step of every executor; return whether any did something."""
        worked = False
        for executor in list(self._executors.values()):
            worked = executor.step() or worked
        return worked

    def next_deadline(self) -> int | None:
        """Return the time (ms) when the first executor needs a step."""
        return min((t for e in self._executors.values() if (t := e.next_deadline()) is not None), default=None)

    def close(self) -> None:
        """Close all executors."""
        for worker_id in list(self._executors):
            self.release(worker_id)


class _Gateway:
    def __init__(self, inbox: deque[ToMaster]) -> None:
        self._inbox = inbox

    def send(self, message: ToMaster) -> None:
        self._inbox.append(message)


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


_log = logging.getLogger("penstock.job")


class LocalJob(RunningJob):
    """A streaming job in this process."""

    def __init__(self, job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> None:
        savepoint_directory = configuration.read(options.SAVEPOINT_DIR)
        super().__init__(
            JobID.generate(),
            job_graph.name,
            CompletableFuture[JobExecutionResult](),
            configuration,
            savepoint_directory,
        )
        job_id = str(self._job_id)
        self._name = job_graph.name
        self._clock = SystemClock()
        self._started_ms = self._clock.steady_ms()
        storage = StorageSettings.of(configuration, job_id)
        self._directory = storage.directory
        backends = BackendSettings.of(configuration, job_id).backends()
        self._wake = threading.Event()
        self._coroutines = EventLoopThread(f"penstock-async-{job_graph.name}", self._wake.set)
        background = ThreadBackground(f"penstock-background-{self._name}", _BACKGROUND_THREADS, self._wake.set)
        self._cluster = LocalCluster(self._clock, storage.storage, os.getpid(), backends, self._coroutines, background)
        self._master = JobMaster(
            job_graph,
            job_id,
            configuration,
            clock=self._clock,
            store=storage.store(),
            watches_heartbeats=False,  # workers share this thread, so while one is silent the job master is silent too
            slots_max=os.cpu_count() if is_reactive(configuration) else None,
            labellers=failure_enrichers(configuration),
        )
        self._listener = listener
        self._questions: deque[tuple[Future[Any], Callable[[JobMaster], Any]]] = deque()
        #: when the master is due; only its own steps change that
        self._master_due_ms: int | None = None
        self._is_due_known = False
        self._over = False
        self._ended: JobStatus | None = None
        self._thread = threading.Thread(target=self._run, name=f"penstock-job-{job_graph.name}", daemon=True)

        self._answers = Answers(self._thread, self._log)

    def start(self) -> None:
        """Start the job's thread."""
        self._thread.start()

    def status(self) -> JobStatus:
        """Return the status of the job."""
        return self._master.status

    def begin_cancel(self) -> None:
        """Cancel the job in its next turn."""
        self.ask(lambda master: master.cancel())

    def where(self) -> str | None:
        """Return where the job's thread is in user code."""
        return where_is(self._thread)

    def end(self, patience_seconds: float = 5.0) -> None:
        """Cancel the job and wait for its end, or until the waiting ends."""
        self._cancel_once()
        self._cancellation.join(self._thread)

    def get_view(self) -> Future[JobView]:
        """Return the view of the job at its next turn, with the figures of this process, which runs all workers."""
        figures = process_figures()
        return self.ask(lambda master: _in_this_process(master.view(), figures))

    def last_view(self) -> JobView | None:
        """Return the view of the job at its end."""
        return replace(self._master.view(), status=self._ended) if self._ended is not None else None

    def ask_worker(self, worker_id: str, question: Question, timeout_ms: int = ANSWER_MS_MAX) -> Future[Answer]:
        """Ask this process: it is every worker, and the job's thread is their loop."""
        return self.ask_driver(question)

    def trigger_checkpoint(self, is_full: bool = False) -> Future[int | None]:
        """Trigger a checkpoint now."""
        return self.ask(lambda master: master.trigger_checkpoint(is_full))

    def ask(self, question: Callable[[JobMaster], T]) -> Future[T]:
        """Call `question` with the job master in its next turn."""
        future: Future[T] = Future()
        self._questions.append((future, question))
        self._wake.set()
        if self._over:
            self._refuse_questions()
        return future

    def _refuse_questions(self) -> None:
        while self._questions:
            self._questions.popleft()[0].cancel()

    def _run(self) -> None:
        set_thread_job(str(self._job_id))
        failure: PenstockError | None = None
        try:
            self._let(self._master.start)
            while not self._master.is_done:
                self._turn()
        except BaseException as error:  # noqa: BLE001 - whatever it is ends the job, and its waiter must hear of it
            failure = ending(self._name, error)
        try:
            self._clean_up()
        except BaseException as error:  # noqa: BLE001 - the same
            _log.warning("the job could not release everything: %r", error, exc_info=True)
        self._over = True
        self._refuse_questions()
        status = JobStatus.FAILED if failure is not None else self._master.status
        runtime_ms = self._clock.steady_ms() - self._started_ms
        accumulators = self._master.accumulators()
        self._ended = status
        failure = failure or self._master.failure
        settle(self._result, self._job_id, self._name, status, failure, runtime_ms, accumulators, self._directory)

    def _clean_up(self) -> None:
        self._cluster.close()
        self._coroutines.close()
        self._let(self._cluster.background.deliver)
        if self._master.is_done:
            self._let(self._master.sweep)
        self._cluster.background.close(finish=True, timeout_seconds=_BACKGROUND_END_S)

    def _let(self, handler: Callable[[], T]) -> T:
        """Call a handler of the master, then carry out the master's decisions."""
        self._is_due_known = False
        try:
            return handler()
        finally:
            cluster = self._cluster
            carry_out(self._master.take_effects(), cluster, cluster.background, self._listener)

    def _turn(self) -> None:
        master, cluster = self._master, self._cluster
        worked = cluster.step()
        if cluster.background.has_results:
            worked = self._let(cluster.background.deliver) or worked
        worked = self._coroutines.deliver() or worked
        while cluster.inbox:
            worked = True
            self._let(partial(master.on_message, cluster.inbox.popleft()))
        while self._questions:
            worked = True  # the answer may have caused background work, whose results the next turn delivers
            future, question = self._questions.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._let(partial(question, master)))
                except Exception as error:  # noqa: BLE001 - goes to the caller that asked
                    future.set_exception(error)
        if not self._is_due_known:
            self._master_due_ms, self._is_due_known = master.next_deadline(), True
        deadline = self._master_due_ms
        now = self._clock.steady_ms()
        if deadline is not None and deadline <= now:
            self._let(master.on_time)
        elif not worked:
            self._sleep(WAIT_MS_MAX if deadline is None else deadline - now)

    def _sleep(self, for_ms: int) -> None:
        due_ms = self._cluster.next_deadline()
        if due_ms is not None:
            for_ms = min(for_ms, due_ms - self._clock.now_ms())
        if self._wake.wait(min(max(0, for_ms), WAIT_MS_MAX) / 1000):
            self._wake.clear()


def _in_this_process(view: JobView, figures: ProcessFigures) -> JobView:
    """Return the view with this process's figures for each worker; remote workers report theirs in heartbeats."""
    workers = tuple(replace(worker, heard_ms=view.now_ms, process=figures) for worker in view.workers)
    return replace(view, workers=workers)


def submit_local(job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> LocalJob:
    """Start a job in this process."""
    job = LocalJob(job_graph, configuration, listener)
    watch(job, configuration)
    job.start()
    return job


def prepare(configuration: Configuration) -> None:
    """Add the job's Python files to the module path of this process.

    Raises:
        ConfigurationError: for options that only Spark supports.
    """
    local = f"{EXECUTION_TARGET.key()}: local"
    executable = configuration.read(PYTHON_EXECUTABLE)
    if executable is not None and os.path.realpath(executable) != os.path.realpath(sys.executable):
        raise ConfigurationError(
            f"{PYTHON_EXECUTABLE.key()}: {local} runs functions in this process, with {sys.executable}"
        )
    if configuration.read(PYTHON_ARCHIVES):
        raise ConfigurationError(f"{PYTHON_ARCHIVES.key()}: {local} does not unpack archives; unpack them yourself")
    for path in filter(None, (configuration.read(PYTHON_FILES) or "").split(",")):
        folder = os.path.dirname(path) if path.endswith(".py") else path
        if folder not in sys.path:
            sys.path.append(folder)


class LocalBatchJob(BatchJob):
    """A batch job in this process."""

    def run_tasks(self) -> Iterator[Last]:
        """Run one task after another."""
        splits = {
            vertex.index: enumerate_splits(source, vertex.parallelism)
            for vertex in self.job_graph.vertices
            for source in vertex.sources.values()
        }

        meetings = {
            vertex.index: _Meeting(vertex.parallelism, self.listener.on_log)
            for vertex in self.job_graph.vertices
            if keeps_step(vertex)
        }

        def run(vertex: int, subtask: int, rows: Rows) -> Iterable[Rows]:
            with WaitingEventLoop("penstock-async") as loop:
                task = BatchTask(self.vertices[vertex], subtask, self.clock, loop.wait, loop.coroutines)
                output = task.run_source(splits[vertex][subtask]) if vertex in splits else task.run([rows])
                for produced in output:
                    if task.round is not None:
                        meetings[vertex].bring(subtask, task)
                    yield produced

        return run_in_order(self.job_graph, run, self.check_cancelled, meetings.__contains__)

    def interrupt(self) -> None:
        """Do nothing: tasks check for cancellation themselves."""


class _Meeting:
    """Exchanges the rounds of the subtasks of a vertex that run in lockstep."""

    def __init__(self, parallelism: int, tell: Callable[[str], None]) -> None:
        self._parallelism = parallelism
        self._tell = tell
        self._tasks: dict[int, tuple[BatchTask, Round]] = {}

    def bring(self, subtask: int, task: BatchTask) -> None:
        """Add a task's round; once all tasks have one, pass them the answers."""
        assert task.round is not None
        self._tasks[subtask] = task, task.round
        if len(self._tasks) < self._parallelism:
            return
        met = [self._tasks[subtask] for subtask in range(self._parallelism)]
        self._tasks.clear()
        if met[0][1].progress:
            self._tell(met[0][1].progress)
        for (peer, _), answer in zip(met, exchanged([round_ for _, round_ in met]), strict=True):
            peer.answer(answer)


class LocalEpochJob(EpochJob):
    """A micro-batch job in this process."""

    def __init__(self, job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> None:
        super().__init__(job_graph, configuration, listener)
        self._cycles = EndedTasks()
        self._state_storage, self._keyed_backends = self.storage.store(), self.backends.backends()

    def run_epoch(self, works: Mapping[Task, EpochWork]) -> Iterator[Last]:
        """Run one task after another."""
        self._cycles.collect()  # cycles of a failed epoch

        def run(vertex: int, subtask: int, rows: Rows) -> Iterable[Rows]:
            work, epoch_vertex = works[vertex, subtask], self.epoch_vertices[vertex]
            with WaitingEventLoop("penstock-async") as loop:
                task = EpochTask(
                    epoch_vertex,
                    subtask,
                    work,
                    self.clock,
                    self._state_storage,
                    self._keyed_backends,
                    wait=loop.wait,
                    coroutines=loop.coroutines,
                )
                yield from task.run([rows])

        try:
            yield from run_in_order(self.job_graph, run, self.check_cancelled)
        except Exception:
            self._cycles.note()
            raise

    def interrupt(self) -> None:
        """Do nothing: tasks check for cancellation themselves."""


def submit_local_batch(job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> StepwiseJob:
    """Start a job in this process, in the execution mode of the graph."""
    make: type[BatchJob] | type[EpochJob] = LocalBatchJob if job_graph.mode == "BATCH" else LocalEpochJob
    job = make(job_graph, configuration, listener)
    watch(job, configuration)
    job.start()
    return job
