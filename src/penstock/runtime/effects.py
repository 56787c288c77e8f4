"""A job master's effects, as values. Its handlers decide; its driver carries the effects out after each turn.

So no effect is visible while a handler still runs, a handler never calls another one through its effects, and a test or
a simulator can inspect the decisions of a turn before any of them takes effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from penstock.runtime.ports import Background, Cluster, JobListener
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
