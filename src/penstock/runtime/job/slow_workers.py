"""Workers that are alive but hold the job up: detected, named, and replaced if an option asks for it (E2).

`Pace` finds workers that need far more time for a record than their peers. Pure: workers' reports in, comparisons out.
Record counts alone mean nothing: keys are skewed, and if one subtask is slow, back-pressure holds its peers at the same
rate. The comparable quantity is the cost of a record: the records that a worker processed, per second that its loop was
at work rather than waiting. A worker with a hot key processes more records and is busy for longer, at the same cost. A
worker on a bad host, or with a function that waits for a slow server, is busy for far fewer records.

Tasks of a worker share its loop, so a worker is compared in all its vertices, and lags only if it lags in each of them.
It is compared only with workers that have the same vertices, because additional vertices would take time from the
shared ones. A worker that also waits for input does not lag, whatever its records cost. A record may rightly cost more
than another, and a reader that blocks counts as work, so the result is only a hint.

`SlowWorkers`: heartbeats come from a separate thread, so they show that a process lives, not that it works. Three
conditions are detected:

- **Stuck**: the worker's loop does not turn. Each heartbeat reports for how long, and the current user function.
- **Holds up a checkpoint**: its tasks are the only ones, or among the few, that have not acknowledged a checkpoint
  long after the others acknowledged it. Tasks that wait for barriers of such a task are not named.
- **Behind its peers**: a record costs it far more time than it costs others.

Only the first is certain to be the worker's own trouble, so a worker is replaced for no other reason. All checks run
when a heartbeat arrives, without a timer. Without heartbeats there is only one process, the job's own.
"""

from __future__ import annotations

import enum
import statistics
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.base.configuration import Configuration
from penstock.base.options import SLOW_WORKERS_REPLACE_AFTER_MS, SLOW_WORKERS_THRESHOLD_MS
from penstock.runtime.checkpoint.coordinator import CheckpointCoordinator
from penstock.runtime.effects import Effects
from penstock.runtime.graph import Execution, ExecutionGraph, ExecutionState
from penstock.runtime.job.slots import SlotPool
from penstock.runtime.job.tasks import JobTasks, task_names, tasks_by_worker, unacknowledged, worker_name
from penstock.runtime.job.view import WorkerView
from penstock.runtime.ports import Clock
from penstock.runtime.protocol import ExecutionId, Heartbeat

#: The comparison window (ms), and how many windows in a row a worker must lag to be reported.
WINDOW_MS: Final = 60_000
WINDOWS_MIN: Final = 2
#: The minimum number of workers with the same vertices for a comparison.
WORKERS_MIN: Final = 3
#: The minimum busy share of a lagging worker, and the minimum ratio of its record cost to its peers'.
BUSY_MIN: Final = 0.9
FACTOR: Final = 4
#: A vertex whose subtasks took fewer records than this in the median is not compared.
RECORDS_MIN: Final = 100


@dataclass(frozen=True)
class Work:
    """A worker's work up to a moment (ms): its busy time, and the records of its running tasks."""

    at_ms: int
    busy_ms: int
    records: Mapping[ExecutionId, int]


@dataclass(frozen=True)
class Behind:
    """How far a worker lags, in the vertex where it lags least; `since_ms` uses the clock of `Work.at_ms`."""

    vertex: int
    busy_share: float
    records_per_second: float
    peers_records_per_second: float
    since_ms: int


@dataclass(frozen=True)
class _Done:
    """The work between two moments, with records by vertex."""

    for_ms: int
    busy_ms: int
    records: Mapping[int, int]

    def records_per_second(self, vertex: int) -> float:
        return 1000 * self.records[vertex] / max(1, self.busy_ms)


class Pace:
    """Compares workers by their reports, after each window."""

    def __init__(self) -> None:
        self._first: dict[str, Work] = {}
        self._last: dict[str, Work] = {}
        self._begun_ms: int | None = None
        #: since when (ms), and for how many windows, workers have lagged
        self._behind: dict[str, tuple[int, int]] = {}

    def keep(self, worker_ids: Collection[str]) -> None:
        """Forget all other workers."""
        self._first = {name: work for name, work in self._first.items() if name in worker_ids}
        self._last = {name: work for name, work in self._last.items() if name in worker_ids}
        self._behind = {name: behind for name, behind in self._behind.items() if name in worker_ids}

    def take(self, worker_id: str, work: Work) -> dict[str, Behind] | None:
        """Add a worker's report; return the lagging workers at the end of a window, None at other times."""
        self._first.setdefault(worker_id, work)
        self._last[worker_id] = work
        if self._begun_ms is None:
            self._begun_ms = work.at_ms
        if work.at_ms < self._begun_ms + WINDOW_MS:
            return None
        done = {name: _between(self._first[name], last) for name, last in self._last.items()}
        stragglers = {name: behind for name in done if (behind := _compared(name, done, self._begun_ms)) is not None}
        before, self._behind = self._behind, {}
        for name in stragglers:
            since_ms, windows = before.get(name, (self._begun_ms, 0))
            self._behind[name] = since_ms, windows + 1
        self._first, self._begun_ms = dict(self._last), work.at_ms
        return {
            name: Behind(
                b.vertex, b.busy_share, b.records_per_second, b.peers_records_per_second, self._behind[name][0]
            )
            for name, b in stragglers.items()
            if self._behind[name][1] >= WINDOWS_MIN
        }


def _between(first: Work, last: Work) -> _Done:
    records: dict[int, int] = {}
    for execution, count in last.records.items():
        if execution in first.records:  # otherwise it began in between, and is compared from the next window on
            records[execution.vertex] = records.get(execution.vertex, 0) + count - first.records[execution]
    return _Done(last.at_ms - first.at_ms, last.busy_ms - first.busy_ms, records)


def _compared(worker_id: str, done: Mapping[str, _Done], since_ms: int) -> Behind | None:
    own = done[worker_id]
    peers = [other for name, other in done.items() if name != worker_id and other.records.keys() == own.records.keys()]
    share = own.busy_ms / max(1, own.for_ms)
    if len(peers) + 1 < WORKERS_MIN or share < BUSY_MIN:
        return None
    compared = []
    for vertex in own.records:
        if statistics.median(peer.records[vertex] for peer in peers) < RECORDS_MIN:
            continue
        median = statistics.median(peer.records_per_second(vertex) for peer in peers)
        rate = own.records_per_second(vertex)
        compared.append((rate / median, Behind(vertex, min(1.0, share), rate, median, since_ms)))
    ratio, behind = max(compared, key=lambda pair: pair[0], default=(1.0, None))
    return behind if ratio * FACTOR <= 1 else None


_E: Final = ExecutionState
#: How long (ms) after naming a worker the log names it again for the same reason.
AGAIN_MS: Final = 600_000
#: The minimum interval (ms) between checks of all tasks.
LOOK_INTERVAL_MS: Final = 1_000


class _Kind(enum.Enum):
    """The conditions of a slow worker, in order of certainty."""

    STUCK = "is stuck"
    HOLDS_UP = "holds up a checkpoint"
    BEHIND = "is behind its peers"


@dataclass(frozen=True)
class Slowness:
    """Why a worker counts as slow, and since when (ms since the epoch)."""

    reason: str
    since_ms: int


class SlowWorkers:
    """See the module's docstring."""

    def __init__(
        self,
        graph: ExecutionGraph,
        configuration: Configuration,
        slot_pool: SlotPool,
        tasks: JobTasks,
        checkpoints: CheckpointCoordinator,
        clock: Clock,
        effects: Effects,
    ) -> None:
        self._graph = graph
        self._slot_pool = slot_pool
        self._tasks = tasks
        self._checkpoints = checkpoints
        self._clock = clock
        self._effects = effects
        self._threshold_ms = configuration.read(SLOW_WORKERS_THRESHOLD_MS)
        self._replace_after_ms = configuration.read(SLOW_WORKERS_REPLACE_AFTER_MS)
        self._pace = Pace()
        self._found: dict[tuple[str, _Kind], Slowness] = {}
        #: when (steady ms) the log named a worker for a condition
        self._said_ms: dict[tuple[str, _Kind], int] = {}
        #: conditions whose end the log has not reported yet
        self._is_open: set[tuple[str, _Kind]] = set()
        self._looked_ms: int | None = None
        self._tasks_of: dict[str | None, list[Execution]] = {}

    def views(self) -> Iterator[WorkerView]:
        """Yield views of all workers, for observers outside the master."""
        pool, now_ms = self._slot_pool, self._clock.now_ms()
        for worker in pool.registrations:
            slow = self.of(worker.worker_id)
            yield WorkerView(
                worker.worker_id,
                worker.host,
                worker.process_id,
                None if slow is None else slow.reason,
                None if slow is None else slow.since_ms,
                now_ms - pool.silence_ms(worker.worker_id),
                worker.data_address,
                pool.process(worker.worker_id),
            )

    def of(self, worker_id: str) -> Slowness | None:
        """Return why a worker is slow; None if it works as it should."""
        problems = [slowness for kind in _Kind if (slowness := self._found.get((worker_id, kind))) is not None]
        if not problems:
            return None
        return Slowness(
            "; ".join(problem.reason for problem in problems), min(problem.since_ms for problem in problems)
        )

    def on_heartbeat(self, heartbeat: Heartbeat) -> str | None:
        """Handle a worker's heartbeat; return why to replace the worker now, if so."""
        if self._slot_pool.registration(heartbeat.worker_id) is None:
            return None
        now_ms = self._clock.steady_ms()
        if self._looked_ms is None or now_ms >= self._looked_ms + LOOK_INTERVAL_MS:
            self._looked_ms = now_ms
            self._tasks_of = tasks_by_worker(self._graph.executions())
            self._forget_lost()
            self._look_at_checkpoints(now_ms)
        of_worker = self._tasks_of.get(heartbeat.worker_id, ())
        tasks = [e for e in of_worker if self._graph.find(e.id) is e and not e.state.is_terminal]
        reason = self._look_at_loop(heartbeat, tasks)
        if heartbeat.busy_ms is not None:
            self._look_at_pace(heartbeat.worker_id, heartbeat.busy_ms, tasks)
        return reason

    # --- what is looked at -----------------------------------------------------------------------------------------

    def _look_at_loop(self, heartbeat: Heartbeat, tasks: list[Execution]) -> str | None:
        worker_id, still_ms = heartbeat.worker_id, heartbeat.still_ms
        states = {task.state for task in tasks}
        # Without tasks it holds nothing up. `stuck_tasks` reports cancelled tasks that do not end.
        if still_ms < self._threshold_ms or not tasks or _E.CANCELING in states:
            self._clear(worker_id, _Kind.STUCK, "its loop turns again" if still_ms < self._threshold_ms else "")
            return None
        at = f"; it is at {heartbeat.whereabouts}" if heartbeat.whereabouts else ", outside of the program's functions"
        reason = f"its loop has not turned for {still_ms} ms{at}"
        has = f"{reason}. It has {task_names(self._graph, tasks)}"
        self._note(worker_id, _Kind.STUCK, Slowness(reason, self._clock.now_ms() - still_ms), has)
        if self._replace_after_ms is None or still_ms < self._replace_after_ms:
            return None
        # Opening may take long, such as loading a model, and would take as long on another worker.
        if _E.RUNNING not in states or _E.INITIALIZING in states:
            return None
        return f"{reason} ({SLOW_WORKERS_REPLACE_AFTER_MS.key()})"

    def _look_at_checkpoints(self, now_ms: int) -> None:
        holding: set[str] = set()
        for pending in self._checkpoints.stragglers(now_ms, self._threshold_ms):
            for worker_id, tasks in tasks_by_worker(pending.tasks).items():
                if worker_id is None or worker_id in holding:
                    continue
                holding.add(worker_id)
                who = unacknowledged(self._graph, self._slot_pool, tasks)
                progress = (
                    f"{pending.acknowledged} others have, the last {pending.acknowledged_after_ms} ms after it began"
                )
                reason = f"checkpoint {pending.checkpoint_id} waits for it: {who}; {progress}"
                since_ms = self._clock.now_ms() - pending.waited_ms
                self._note(worker_id, _Kind.HOLDS_UP, Slowness(reason, since_ms), reason)
        for worker_id, kind in list(self._found):
            if kind is _Kind.HOLDS_UP and worker_id not in holding:
                self._clear(worker_id, kind)

    def _look_at_pace(self, worker_id: str, busy_ms: int, tasks: list[Execution]) -> None:
        now_ms = self._clock.steady_ms()
        running = [task.id for task in tasks if task.state is _E.RUNNING]
        reported = [m for i in running if (m := self._tasks.metrics.get((i.vertex, i.subtask))) is not None]
        behind = self._pace.take(worker_id, Work(now_ms, busy_ms, {m.execution: m.records_in for m in reported}))
        if behind is None:
            return
        for name, straggler in behind.items():
            since_ms = self._clock.now_ms() - (now_ms - straggler.since_ms)
            reason = self._in_words(straggler)
            self._note(name, _Kind.BEHIND, Slowness(reason, since_ms), reason)
        for name, kind in list(self._found):
            if kind is _Kind.BEHIND and name not in behind:
                self._clear(name, kind, "it keeps up with its peers again")

    def _in_words(self, behind: Behind) -> str:
        vertex = self._graph.job_graph.vertices[behind.vertex].name
        own, peers = behind.records_per_second, behind.peers_records_per_second
        return (
            f"it is busy {behind.busy_share:.0%} of the time, and a record costs it {peers / max(own, 1e-3):.0f} times "
            f"as much of that as its peers: {own:,.0f} records of '{vertex}' in a busy second, where the median of the "
            f"others is {peers:,.0f}. Its host may be slow, or its records may cost more"
        )

    # --- what is said ----------------------------------------------------------------------------------------------

    def _note(self, worker_id: str, kind: _Kind, slowness: Slowness, words: str) -> None:
        key, now_ms = (worker_id, kind), self._clock.steady_ms()
        self._found[key] = slowness
        if key not in self._said_ms or now_ms >= self._said_ms[key] + AGAIN_MS:
            self._said_ms[key] = now_ms
            self._is_open.add(key)
            self._effects.log(f"{worker_name(self._slot_pool, worker_id)} {kind.value}: {words}")

    def _clear(self, worker_id: str, kind: _Kind, words: str = "") -> None:
        key = (worker_id, kind)
        self._found.pop(key, None)
        if key in self._is_open:
            self._is_open.discard(key)
            if words:
                self._effects.log(f"{worker_name(self._slot_pool, worker_id)}: {words}")

    def _forget_lost(self) -> None:
        worker_ids = {registration.worker_id for registration in self._slot_pool.registrations}
        self._pace.keep(worker_ids)
        self._found = {key: slowness for key, slowness in self._found.items() if key[0] in worker_ids}
        self._said_ms = {key: said_ms for key, said_ms in self._said_ms.items() if key[0] in worker_ids}
        self._is_open &= self._said_ms.keys()
