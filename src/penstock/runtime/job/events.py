"""Turns of the job master, the news from its parts, its timers, and the log lines about a job's start and end.

**News** are values that the master handles when the current handler has returned.

`Timers` are delayed calls of a job master, by its steady clock.

`Turns`: the job master handles one event completely before it looks at the next one. A handler produces two things.
Effects concern the outside world; the driver carries them out when the turn is over. News concerns the master itself: a
part has found something that affects the whole job, such as a failure. The master takes in the news one by one, after
the handler has returned and before the turn is over. So no handler runs inside another one.

`guarantees` states the delivery guarantees of a job plainly when it starts (J).

`unwritten_side_outputs` reports side outputs that are read but never written, most likely due to a misspelt tag, when a
job has finished. A task counts the records of each side output that is read, in a counter that does not exist before
the first record. Side outputs for late records have a counter from the start, because they are usually empty.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

from penstock.base.errors import PenstockError
from penstock.base.job import JobStatus
from penstock.runtime.checkpoint.pending import CheckpointNews
from penstock.runtime.checkpoint.statistics import CheckpointSettings
from penstock.runtime.effects import Effects
from penstock.runtime.graph import JobGraph
from penstock.runtime.ports import Clock
from penstock.runtime.protocol import Failure, TaskMetrics
from penstock.runtime.task.operator_chain import side_output_counter
from penstock.storage.metadata import CheckpointMetadata


@dataclass(frozen=True, slots=True)
class BeginKnown:
    """The starting point of the job is known, so its workers are needed."""


@dataclass(frozen=True, slots=True)
class AttemptReady:
    """The attempt begins from that checkpoint, which is intact, or from the beginning."""

    restored: CheckpointMetadata | None


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """The attempt fails, or cannot begin now; another one may succeed."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class JobGivenUp:
    """The job fails, because no further attempt can succeed."""

    error: PenstockError


@dataclass(frozen=True, slots=True)
class JobHadEnded:
    """An earlier job master, or an earlier job of the same name, has already ended the job."""

    status: JobStatus


@dataclass(frozen=True, slots=True)
class RescaleDue:
    """All tasks must restart from the last checkpoint, at another parallelism or on other workers."""


JobNews: TypeAlias = CheckpointNews | BeginKnown | AttemptReady | AttemptFailed | JobGivenUp | JobHadEnded | RescaleDue


class Timers:
    """Delayed calls in the order of their due times; calls due at the same time keep the order of their requests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Schedule a call after a delay (ms)."""
        self._count += 1
        heapq.heappush(self._due, (self._clock.steady_ms() + delay_ms, self._count, call))

    def next_deadline(self) -> int | None:
        """Return when (ms) the next call is due; None if no call is scheduled."""
        return self._due[0][0] if self._due else None

    def pop(self, now_ms: int) -> Callable[[], None] | None:
        """Return the next call that is due, for the caller to make; None if nothing is due."""
        return heapq.heappop(self._due)[2] if self._due and self._due[0][0] <= now_ms else None


P = ParamSpec("P")
R = TypeVar("R")
N = TypeVar("N")


class Turns(Generic[N]):
    """Runs handlers one at a time; `handle_event` handles each piece of news."""

    def __init__(self, handle_event: Callable[[N], None]) -> None:
        self.effects = Effects(self.run)
        self._handle_event = handle_event
        self._news: deque[N] = deque()
        self._is_under_way = False

    def tell(self, news: N) -> None:
        """Queue a piece of news for the master to take in during this turn, once the handler has returned."""
        self._news.append(news)

    def run(self, handler: Callable[[], R]) -> R:
        """Run a handler as one turn."""
        assert not self._is_under_way, "no handler of the job master runs within another one"
        self._is_under_way = True
        try:
            result = handler()
            while self._news:
                self._handle_event(self._news.popleft())
            return result
        finally:
            self._is_under_way = False

    def validate(self) -> None:
        """Assert the invariants between two turns. The simulator calls this; a running job never does."""
        assert not self._is_under_way, "a turn is not over"
        assert not self._news, "nothing that concerns the job waits for the next turn"


class TakesTurns(Protocol):
    """An object that has turns."""

    @property
    def turns(self) -> Turns: ...  # type: ignore[type-arg]


S = TypeVar("S", bound=TakesTurns)


def turn(handler: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorate a method that the driver calls: each call is one turn."""

    def in_a_turn(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.turns.run(lambda: handler(self, *args, **kwargs))
        return result

    in_a_turn.__doc__ = handler.__doc__
    return in_a_turn


def guarantees(job_graph: JobGraph, settings: CheckpointSettings) -> list[str]:
    """Return the lines to show to the user."""
    lines = []
    if settings.interval_ms is None:
        lines.append("checkpointing is off: after a failure the job can only start over from the beginning")
        lines += _never_committing(job_graph)
    else:
        promise = (
            "state is exactly once, and so is two-phase output"
            if settings.exactly_once
            else "state is at least once: after a failure records may count twice"
        )
        lines.append(f"checkpoints every {settings.interval_ms} ms; {promise}")
        nameless = [o.name for v in job_graph.vertices for o in v.operators if o.is_stateful and o.has_placed_id]
        if nameless:
            lines.append(
                f"operators with state but without a uid: {', '.join(nameless)}: a changed program finds their state "
                "in a savepoint only by a uid; set one with .uid(...)"
            )
    for vertex in job_graph.vertices:
        for operator_id, source in vertex.sources.items():
            if not source.replayable:
                name = next(o.name for o in vertex.operators if o.operator_id == operator_id)
                lines.append(f"source {name!r} cannot be replayed: a failure loses the records in flight")
    return lines


def _never_committing(job_graph: JobGraph) -> list[str]:
    """Return a line for each sink that never commits: without checkpoints, it would commit at the end of input."""
    endless = job_graph.vertices_without_end()
    operators = [o for vertex in job_graph.vertices if vertex.index in endless for o in vertex.operators]
    return [
        f"sink {operator.name!r} never commits while the job runs, so its output never becomes visible: its input is "
        "unbounded, and it commits on checkpoints. Turn them on with env.enable_checkpointing(interval)"
        for operator in operators
        if operator.commits
    ]


def unwritten_side_outputs(job_graph: JobGraph, metrics: Iterable[TaskMetrics]) -> list[str]:
    """Return a line for each side output that no task has counted; all tasks of the job must have reported."""
    counters: dict[int, set[str]] = {}
    for task in metrics:
        counters.setdefault(task.execution.vertex, set()).update(task.counters)
    return [
        f"the program reads side output {tag_id!r} of operator {name!r}, but it received no records; does the function "
        "write to another tag?"
        for vertex in job_graph.vertices
        for name, tag_id in vertex.side_outputs
        if vertex.index in counters and side_output_counter(tag_id) not in counters[vertex.index]
    ]
