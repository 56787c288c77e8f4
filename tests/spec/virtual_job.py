"""The local driver in virtual time: a whole job on the test's own thread, without a wait and the same at every run.

    job = VirtualJob(env)
    job.at(5_000, job.cancel)                     # in virtual ms
    job.when(lambda: LEDGER["out"], lambda: ...)  # after the first turn in which it holds
    assert job.run() is JobStatus.FINISHED

Time stands still while anything has work to do, and then goes on to the next moment at which something has.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from tests.stores import OPTIONS_OF_STORE

from penstock.base.configuration import Configuration
from penstock.base.job import JobStatus
from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.event_loop import InlineBackground, VirtualCoroutines
from penstock.drivers.local.mini_cluster import LocalJob
from penstock.runtime.connector import (
    Boundedness,
    Committer,
    InputStatus,
    Sink,
    SinkWriter,
    Source,
    SourceReader,
    SplitEnumerator,
)
from penstock.runtime.graph import JobGraph
from penstock.runtime.records import Batch
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.metadata import CheckpointMetadata
from penstock.testing import VirtualClock

DAY_MS = 24 * 3600 * 1000


def environment(parallelism: int = 1, **options: Any) -> StreamExecutionEnvironment:
    """A local one, with options under their keys, `None` for one that is not to be set."""
    configuration = Configuration()
    defaults = {
        "execution.target": "local",
        "execution.checkpointing.interval": "10 s",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 3,
        "restart-strategy.fixed-delay.delay": "1 s",
    }
    for key, value in {**defaults, **OPTIONS_OF_STORE, **options}.items():
        if value is not None:
            configuration.set_string(key, str(value))
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)


class Quiet:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.statuses: list[str] = []
        self.lines: list[str] = []

    def on_job_status(self, status: str, reason: str | None) -> None:
        self.statuses.append(status)

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None: ...

    def on_log(self, line: str) -> None:
        self.lines.append(line)


class VirtualJob(LocalJob):
    """See the module's text."""

    def __init__(self, program: StreamExecutionEnvironment | JobGraph, configuration: Configuration | None = None):
        if isinstance(program, StreamExecutionEnvironment):
            configuration = program.get_configuration()
            program = program.job_graph()
        assert configuration is not None
        self.listener = Quiet()
        clock = VirtualClock()
        with (
            mock.patch("penstock.drivers.local.mini_cluster.SystemClock", return_value=clock),
            mock.patch("penstock.drivers.local.mini_cluster.EventLoopThread", return_value=VirtualCoroutines(clock)),
            mock.patch("penstock.drivers.local.mini_cluster.ThreadBackground", return_value=InlineBackground()),
        ):
            super().__init__(program, configuration, self.listener)
        #: every checkpoint and savepoint that became visible, in order
        self.checkpoints: list[CheckpointMetadata] = []
        #: how often the job master had its turn
        self.turns = 0
        self._schedule: list[tuple[int, int, Callable[[], Any]]] = []
        self._conditions: list[tuple[Callable[[], Any], Callable[[], Any]]] = []
        self._count = itertools.count()
        self._limit_ms = DAY_MS
        self._death: BaseException | None = None

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms()

    @property
    def master(self) -> Any:
        return self._master

    def at(self, time_ms: int, act: Callable[[], Any]) -> None:
        """Do something when the clock shows that time."""
        heapq.heappush(self._schedule, (time_ms, next(self._count), act))

    def when(self, condition: Callable[[], Any], act: Callable[[], Any]) -> None:
        """Do something once, after the first turn in which the condition holds."""
        self._conditions.append((condition, act))

    def run(self, limit_ms: int = DAY_MS) -> JobStatus:
        """Until the job is over."""
        self._limit_ms = limit_ms
        complete = FileCheckpointStore.complete

        def spy(store: Any, metadata: CheckpointMetadata, savepoint_path: str | None = None) -> str:
            path = complete(store, metadata, savepoint_path)
            self.checkpoints.append(metadata)
            return path

        with mock.patch.object(FileCheckpointStore, "complete", spy):
            self._run()
        if self._death is not None:
            raise self._death
        return self.status()

    def failure(self) -> str:
        """Why the job ended otherwise than well; empty when it did not."""
        error = self._result.exception(0)
        return "" if error is None else str(error)

    def _turn(self) -> None:
        try:
            self._turn_of_a_test()
        except Exception:
            raise
        except BaseException as death:  # a test's way to end the driver's process: nothing of it is cleaned up
            self._death = death
            raise

    def _clean_up(self) -> None:
        if self._death is None:
            super()._clean_up()

    def _turn_of_a_test(self) -> None:
        while self._schedule and self._schedule[0][0] <= self.now_ms:
            self._let(heapq.heappop(self._schedule)[2])
        super()._turn()
        self.turns += 1
        for pair in [p for p in self._conditions if p[0]()]:
            self._conditions.remove(pair)
            self._let(pair[1])

    def _sleep(self, for_ms: int) -> None:
        # Executors also have the deadline of their metrics, at which nothing happens that a test could see.
        tasks = [task for executor in self._cluster._executors.values() for task in executor.tasks]
        times = [self._master.next_deadline(), *(task.next_deadline() for task in tasks)]
        assert isinstance(self._coroutines, VirtualCoroutines)
        times.append(self._coroutines.next_due_ms())
        times += [self._schedule[0][0]] if self._schedule else []
        known = [t for t in times if t is not None]
        if self._questions:
            return
        if not known or min(known) > self._limit_ms:
            pytest.fail(f"at {self.now_ms} ms the job is {self.status().name}, and nothing will ever happen: {times}")
        assert isinstance(self._clock, VirtualClock)
        self._clock.advance_to(max(self.now_ms, min(known)))


def get_error(future: Future[Any]) -> str:
    """What the future raises."""
    error = future.exception(0)
    assert error is not None
    return str(error)


# --- a source by the clock ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timed(Source[Any, int]):
    """One record `(subtask, n)` every `period_ms` from each subtask, with its time; `counts` of them, None for ever.

    Its state is the position alone: a reader without any begins at the beginning.
    """

    period_ms: int
    counts: tuple[int | None, ...]

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED if None in self.counts else Boundedness.BOUNDED

    def create_enumerator(self, context: Any, restored: Any) -> Any:
        return NothingToHandOut()

    def create_reader(self, context: Any) -> SourceReader[Any, int]:
        return TimedReader(self, context)


class NothingToHandOut(SplitEnumerator[int]):
    """Every reader knows by itself what to read."""

    def start(self) -> None: ...

    def handle_split_request(self, subtask_index: int) -> None: ...

    def add_splits_back(self, splits: Sequence[int], subtask_index: int) -> None: ...

    def snapshot_state(self, checkpoint_id: int) -> None: ...


class TimedReader(SourceReader[Any, int]):
    def __init__(self, source: Timed, context: Any) -> None:
        self.period_ms = source.period_ms
        self.count = source.counts[context.subtask_index % len(source.counts)]
        self.context = context
        self.position = 0

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        if self.position == self.count:
            return InputStatus.END_OF_INPUT
        if self.retry_after_ms() > 0:
            return InputStatus.NOTHING_AVAILABLE
        self.position += 1
        position = self.position - 1
        return Batch([(self.context.subtask_index, position)], [position * self.period_ms])

    def retry_after_ms(self) -> int:
        return self.position * self.period_ms - int(self.context.now_ms())

    def add_splits(self, splits: Sequence[int]) -> None:
        (self.position,) = splits

    def no_more_splits(self) -> None: ...

    def snapshot_state(self, checkpoint_id: int) -> list[int]:
        return [self.position]


def records(*counts: int) -> list[tuple[int, int]]:
    """What a `Timed` source gives in all."""
    return [(subtask, n) for subtask, count in enumerate(counts) for n in range(count)]


# --- a two-phase sink -----------------------------------------------------------------------------------------------

#: What was committed, by the name of the sink.
LEDGER: dict[str, list[Any]] = {}
#: The commits, as (sink, subtask, number), those that came again included.
COMMITS: list[tuple[str, int, int]] = []
#: Sinks whose next commit raises.
REFUSED: set[str] = set()


def clear_ledger() -> None:
    LEDGER.clear()
    COMMITS.clear()
    REFUSED.clear()


@dataclass(frozen=True)
class LedgerSink(Sink[Any]):
    """Commits into `LEDGER`, what comes again once only."""

    name: str

    def create_writer(self, context: Any) -> SinkWriter[Any, Any]:
        return _LedgerWriter(context)

    def create_committer(self, context: Any) -> Committer[Any]:
        return _LedgerCommitter(self.name)


class _LedgerWriter(SinkWriter[Any, Any]):
    _ids = itertools.count()

    def __init__(self, context: Any) -> None:
        self.subtask = context.subtask_index
        self.values: list[Any] = []

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self.values += values

    def prepare_commit(self) -> list[Any]:
        values, self.values = self.values, []
        return [(self.subtask, next(self._ids), values)] if values else []


class _LedgerCommitter(Committer[Any]):
    def __init__(self, name: str) -> None:
        self.name = name

    def commit(self, committables: Sequence[Any]) -> None:
        if self.name in REFUSED:
            REFUSED.remove(self.name)
            raise RuntimeError(f"{self.name} refuses")
        for subtask, number, values in committables:
            commit = (self.name, subtask, number)
            if commit not in COMMITS:
                LEDGER.setdefault(self.name, []).extend(values)
            COMMITS.append(commit)
