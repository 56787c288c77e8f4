"""A turn of a job master, and what comes of it: effects for the outside world, news for itself, and timers.

`Turns`: the job master handles one event completely before it looks at the next one. So no handler runs inside another.

**Effects** are values. A handler decides; the driver carries its effects out when the turn is over. So no effect is
visible while a handler still runs, and a test or a simulator can inspect the decisions of a turn before any of them
takes effect.

**News** concerns the master itself: a part has found something that affects the whole job, such as a failure. The
master takes in the news one by one, after the handler has returned and before the turn is over.

`Timers` are delayed calls of a job master, by its steady clock.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

from penstock.runtime.ports import Background, Clock, Cluster, JobListener
from penstock.runtime.protocol import ToWorker

T = TypeVar("T")

#: Receives the outcome of background work: its result, or the exception that it raised.
Done: TypeAlias = Callable[[Any, BaseException | None], None]


@dataclass(frozen=True, slots=True)
class RequestWorkers:
    """Ask for this many more workers."""

    count: int


@dataclass(frozen=True, slots=True)
class WithdrawWorkers:
    """Withdraw this many of the requests for workers."""

    count: int


@dataclass(frozen=True, slots=True)
class SendToWorker:
    """Send a message to a worker; messages to one worker keep their order."""

    worker_id: str
    message: ToWorker


@dataclass(frozen=True, slots=True)
class ReleaseWorker:
    """End a worker."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class RunInBackground:
    """Run `work` in the background; then call `done`, which is a turn of the master."""

    work: Callable[[], Any]
    done: Done


@dataclass(frozen=True, slots=True)
class TellStatus:
    """Notify listeners of the job's status."""

    status: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class TellClientOutput:
    """Pass a sink's output to the client."""

    operator_id: str
    subtask_index: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class TellLog:
    """Write a line to the job's log."""

    line: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a client's request with its result, such as a savepoint's path, or with an error."""

    waiter: Callable[[Any, str | None], None]
    result: Any
    error: str | None


Effect: TypeAlias = (
    RequestWorkers
    | WithdrawWorkers
    | SendToWorker
    | ReleaseWorker
    | RunInBackground
    | TellStatus
    | TellClientOutput
    | TellLog
    | Answer
)


def carry_out(effects: Iterable[Effect], cluster: Cluster, background: Background, listener: JobListener) -> None:
    """Carry out a turn's effects in order, through a driver's ports."""
    for effect in effects:
        match effect:
            case SendToWorker(worker_id, message):
                cluster.send(worker_id, message)
            case RunInBackground(work, done):
                background.submit(work, done)
            case TellClientOutput(operator_id, subtask_index, payload):
                listener.on_client_output(operator_id, subtask_index, payload)
            case TellStatus(status, reason):
                listener.on_job_status(status, reason)
            case TellLog(line):
                listener.on_log(line)
            case RequestWorkers(count):
                cluster.request_workers(count)
            case WithdrawWorkers(count):
                cluster.withdraw_workers(count)
            case ReleaseWorker(worker_id):
                cluster.release(worker_id)
            case Answer(waiter, result, error):
                waiter(result, error)


class Effects:
    """The effects of the current turn; the parts of a job master add to it.

    Args:
        enter: begins a turn with a handler, for the outcome of background work.
    """

    def __init__(self, enter: Callable[[Callable[[], None]], None]) -> None:
        self._enter = enter
        self._list: list[Effect] = []

    def take(self) -> list[Effect]:
        """Return all effects since the last call, in order."""
        effects, self._list = self._list, []
        return effects

    def request_workers(self, count: int) -> None:
        self._list.append(RequestWorkers(count))

    def withdraw_workers(self, count: int) -> None:
        self._list.append(WithdrawWorkers(count))

    def send(self, worker_id: str | None, message: ToWorker) -> None:
        """Send a message to a worker; without a worker, the task was never deployed and needs no message."""
        if worker_id is not None:
            self._list.append(SendToWorker(worker_id, message))

    def release(self, worker_id: str) -> None:
        self._list.append(ReleaseWorker(worker_id))

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run work in the background; `done` receives the outcome in a turn of its own."""
        self._list.append(RunInBackground(work, lambda result, error: self._enter(lambda: done(result, error))))

    def tell_status(self, status: str, reason: str | None) -> None:
        self._list.append(TellStatus(status, reason))

    def tell_client(self, operator_id: str, subtask_index: int, payload: bytes) -> None:
        self._list.append(TellClientOutput(operator_id, subtask_index, payload))

    def log(self, line: str) -> None:
        self._list.append(TellLog(line))

    def answer(self, waiter: Callable[[T | None, str | None], None], result: T | None, error: str | None) -> None:
        self._list.append(Answer(waiter, result, error))


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
