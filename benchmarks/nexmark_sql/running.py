"""One query through a `TableEnvironment`."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark_sql.events import ALL_OUT, Pace, columns_asked, connectors, hold
from benchmarks.nexmark_sql.files import rows_in_files
from benchmarks.nexmark_sql.kept import Folded, Kept
from benchmarks.nexmark_sql.latency import LATENCIES
from benchmarks.nexmark_sql.queries import NexmarkQuery, kept_sink, tables
from benchmarks.nexmark_sql.query_process import Run
from benchmarks.nexmark_sql.regimes import MINI_BATCH, Regime
from benchmarks.processes import peak_bytes, restart_peak
from penstock.drivers.event_loop import rare_collections
from penstock.runtime.graph import ExecutionState
from penstock.runtime.job.view import JobView
from penstock.table import EnvironmentSettings, TableEnvironment
from penstock.table.table_environment import ExecutorOfMode
from penstock.table.udf import udf

PATIENCE_S: Final = 120
#: how long a job takes at least that is to be stopped, or is to lose a worker, amid its events
SLOW_S: Final = 2
SPARK_SLOW_S: Final = 12
#: how long no events come at the end of a query that counts by the clock, in windows of a second
CLOCK_WAITS_MS: Final = 2_500
#: longer than anybody looks at a job
_STAYS_MS: Final = 3_600_000
#: runs over one event; the shortest counts
_STARTS: Final = 4


@dataclass(frozen=True)
class Runs:
    """How queries run."""

    folder: Path
    events: int
    rate: int
    target: str = "local"
    parallelism: int = 1
    mini_batch: bool = True
    is_batch: bool = False
    #: how fast events come, whatever their times say; None for as fast as they can
    per_second: int | None = None
    #: how long no events come at the end; None for as long as the query needs
    waits_ms: int | None = None
    #: how many chunks of events come at once
    chunks: int = 1
    options: Mapping[str, str] = field(default_factory=dict)

    def environment(self, query: NexmarkQuery, sink: str, kept: Kept) -> TableEnvironment:
        """With the tables, the views and the function of the benchmark, and what a query needs."""
        settings = EnvironmentSettings.in_batch_mode() if self.is_batch else EnvironmentSettings.in_streaming_mode()
        made = TableEnvironment(settings, ExecutorOfMode(connectors(kept, self.pace(query))))
        config = made.get_config()
        config.set("execution.target", self.target)
        config.set("parallelism.default", str(self.parallelism))
        config.set("table.local-time-zone", "UTC")
        if self.mini_batch:
            for key, value in MINI_BATCH.items():
                config.set(key, value)
        for key, value in self.options.items():
            config.set(key, value)
        made.create_temporary_function("count_char", udf(_counted, result_type="BIGINT", func_type="arrow"))
        for statement in (*tables(self.folder, self.events, self.rate), *query.before, sink):
            made.execute_sql(statement)
        return made

    def with_regime(self, regime: Regime, checkpoints: Path) -> Runs:
        """The same in a regime. `checkpoints`: the folder that they go to."""
        return replace(
            self,
            mini_batch=regime.mini_batch,
            per_second=regime.rate,
            rate=regime.rate or self.rate,
            options={**self.options, **regime.options(checkpoints)},
        )

    def pace(self, query: NexmarkQuery) -> Pace:
        """How events come for a query."""
        waits_ms = self.waits_ms if self.waits_ms is not None else CLOCK_WAITS_MS if query.is_by_clock else 0
        return Pace(self.per_second, waits_ms, self.chunks)

    def seconds(self, query: NexmarkQuery) -> tuple[float, float]:
        """How long the INSERT takes, from planning it to its end: wall time, and processor time of this process."""
        run = self.run(query)
        return run.wall_s, run.cpu_s

    def run(self, query: NexmarkQuery) -> Run:
        """Run the INSERT into its own sink."""
        made = self.environment(query, query.own_sink, Kept())
        restart_peak()
        # As the processes do that run tasks.
        with rare_collections():
            begin, cpu = time.perf_counter(), time.process_time()
            result = made.execute_sql(query.insert)
            result.wait()
            wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
        client: Any = result.get_job_client()
        checkpoints = client.last_view().checkpoints
        return Run(
            wall_s,
            cpu_s,
            peak_bytes(),
            checkpoints.completed,
            checkpoints.last.state_bytes if checkpoints.last is not None else 0,
            LATENCIES.percentiles(),
        )

    def stop_behind_all(self, query: NexmarkQuery, folder: Path) -> int:
        """Stop the query with a savepoint behind all events. Return by how much it raises the process's peak."""
        ALL_OUT.clear()
        restart_peak()
        before = peak_bytes()
        made = replace(self, waits_ms=_STAYS_MS).environment(query, query.own_sink, Kept())
        result = made.execute_sql(query.insert)
        if not ALL_OUT.wait(PATIENCE_S):
            raise AssertionError(f"the events are not out after {PATIENCE_S} s")
        _stopped(result.get_job_client(), str(folder))
        return peak_bytes() - before

    def warmed(self, query: NexmarkQuery) -> tuple[float, float]:
        """How long a run over one event takes, wall and processor time; and make the columns that the query reads.

        What is needed once in a process, as modules, is there afterwards.
        """
        start = replace(self, events=1)
        with columns_asked() as asked:
            runs = [start.seconds(query) for _ in range(_STARTS)]
        for columns in set(asked):
            hold(columns, self.events, self.rate, self.pace(query))
        walls, cpus = zip(*runs, strict=True)
        return min(walls), min(cpus)

    def rows(self, query: NexmarkQuery, kept: Kept | None = None) -> Folded:
        """The table that its changes stand for. `kept`: what has come before."""
        kept = Kept() if kept is None else kept
        self._started(query, kept).wait(PATIENCE_S * 1_000)
        return _written(query, kept)

    def batch_rows(self, query: NexmarkQuery) -> Folded:
        """What the query gives in batch."""
        made = replace(self, is_batch=True).environment(query, kept_sink(query), Kept())
        with made.execute_sql(query.query).collect() as rows:
            return Counter(tuple(row) for row in rows)

    def epoch_rows(self, query: NexmarkQuery) -> Folded:
        """What the query gives when each epoch reads a chunk of events in each subtask."""
        epochs = {"execution.runtime-mode": "MICRO_BATCH", "execution.micro-batch.max-records": "1"}
        return self._with_options(epochs).rows(query)

    def restored_rows(self, query: NexmarkQuery, scratch: Path, parallelism: int) -> Folded:
        """The same, stopped with a savepoint amid the events, and gone on with at another parallelism."""
        kept = Kept()
        # On Spark workers have to start first.
        seconds = SLOW_S if self.target == "local" else SPARK_SLOW_S
        result = self._slow(seconds)._started(query, kept)
        time.sleep(seconds / 2)
        begins = {"execution.state-recovery.path": _stopped(result.get_job_client(), str(scratch / "savepoints"))}
        return replace(self._with_options(begins), parallelism=parallelism).rows(query, kept)

    def rows_after_a_kill(self, query: NexmarkQuery, scratch: Path) -> Folded:
        """The same, when a process of a worker is killed amid the events, and the job goes on from its checkpoint.

        Raises `AssertionError` if there was nothing to go on from, or nothing was restarted.
        """
        kept = Kept()
        checkpoints = {
            "execution.checkpointing.interval": "300 ms",
            "execution.checkpointing.dir": str(scratch / "checkpoints"),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "3",
            "restart-strategy.fixed-delay.delay": "100 ms",
        }
        result = self._slow(SPARK_SLOW_S)._with_options(checkpoints)._started(query, kept)
        client = result.get_job_client()
        view = _view_when(client, lambda view: bool(_reading(view)) and view.checkpoints.completed > 1)
        os.kill(_reading(view)[-1], signal.SIGKILL)
        _view_when(client, lambda view: view.restarts > 0)
        result.wait(PATIENCE_S * 1_000)
        return _written(query, kept)

    def _with_options(self, options: Mapping[str, str]) -> Runs:
        return replace(self, options={**self.options, **options})

    def _slow(self, seconds: int) -> Runs:
        return replace(self, per_second=max(self.events // seconds, 1))

    def _started(self, query: NexmarkQuery, kept: Kept) -> Any:
        sink = query.own_sink if query.files is not None else kept_sink(query)
        return self.environment(query, sink, kept).execute_sql(query.insert)


def _stopped(client: Any, folder: str) -> str:
    """Stop a job with a savepoint."""
    return str(client.stop_with_savepoint(False, folder).result(PATIENCE_S))


def _reading(view: JobView) -> list[int]:
    """The processes that read events still; a worker without a task can be killed without a restart."""
    subtasks = [subtask for vertex in view.vertices if vertex.is_source for subtask in vertex.subtasks]
    busy = {subtask.worker_id for subtask in subtasks if subtask.state is ExecutionState.RUNNING}
    return [worker.process_id for worker in view.workers if worker.worker_id in busy]


def _view_when(client: Any, is_wanted: Callable[[JobView], bool]) -> JobView:
    """The job as soon as it is as wanted. Raises `AssertionError` if it never is."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and not client.get_job_execution_result().done():
        try:
            view: JobView = client.get_view().result()
        except CancelledError:  # the job was over meanwhile
            break
        if is_wanted(view):
            return view
        time.sleep(0.05)
    raise AssertionError("the job was over, or never came so far")


def _written(query: NexmarkQuery, kept: Kept) -> Folded:
    return kept.rows if query.files is None else rows_in_files(query.files)


def _counted(texts: pa.Array, character: str) -> pa.Array:
    """A literal comes as it is."""
    return pc.count_substring(texts, character).cast(pa.int64())
