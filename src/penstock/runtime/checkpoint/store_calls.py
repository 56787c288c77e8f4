"""Background calls to the checkpoint store, with timeouts and detection of lost leadership.

A store may hang, such as a network file system whose server is down. A call that only reads, or only deletes unneeded
files, is abandoned after a timeout, and its late answer is ignored. If it matters whether a call was carried out, the
job waits for it, and the log says so.

Messages from the checkpoint coordinator to the job master: values, handled once the handler has returned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from penstock.base.errors import CallTimeoutError
from penstock.base.options import CHECKPOINTING_TIMEOUT_MS
from penstock.runtime.checkpoint.savepoints import SavepointRequest
from penstock.runtime.effects import Effects
from penstock.runtime.ports import Clock
from penstock.runtime.protocol import Failure
from penstock.storage.leadership import DeposedError


@dataclass(frozen=True, slots=True)
class CheckpointsFailed:
    """The job must restart: too many checkpoints failed, or a source ended for a savepoint that failed."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class CheckpointsSettled:
    """The outcome of every checkpoint is known."""


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """A checkpoint that the job can restart from is complete."""


@dataclass(frozen=True, slots=True)
class SavepointSettled:
    """A requested savepoint is complete, at `path`, or has failed, for the reason `error`."""

    request: SavepointRequest
    path: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class JobDeposed:
    """Another job master has taken over the job."""

    error: DeposedError


CheckpointNews: TypeAlias = CheckpointCompleted | CheckpointsFailed | CheckpointsSettled | SavepointSettled | JobDeposed


T = TypeVar("T")


@dataclass
class _Waiting:
    what: str
    since_ms: int
    due_ms: int
    #: receives the timeout error; None for a call that must be waited for
    give_up: Callable[[BaseException], None] | None


class StoreCalls:
    """Makes store calls and reports lost leadership. After `patience_ms`, abandons a call or logs the wait for it."""

    def __init__(self, effects: Effects, tell: Callable[[JobDeposed], None], clock: Clock, patience_ms: int) -> None:
        self._effects = effects
        self._tell = tell
        self._clock = clock
        self._patience_ms = patience_ms
        self._waiting: dict[int, _Waiting] = {}
        self._made = 0

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `work` like `Effects.run`, for callers with their own timeouts; skip `done` once deposed."""

        def answered(result: T | None, error: BaseException | None) -> None:
            if isinstance(error, DeposedError):
                self._tell(JobDeposed(error))
            else:
                done(result, error)

        self._effects.run(work, answered)

    def give_up_late(
        self, action: str, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Make a call that is harmless if carried out late; on timeout, `done` gets a `CallTimeoutError`."""
        self._watched(action, work, done, lambda error: done(None, error))

    def wait_for(
        self, action: str, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Make a call that must not be carried out after its caller has given up, so wait for it without a limit."""
        self._watched(action, work, done, None)

    def _watched(
        self,
        action: str,
        work: Callable[[], T],
        done: Callable[[T | None, BaseException | None], None],
        give_up: Callable[[BaseException], None] | None,
    ) -> None:
        self._made += 1
        number, now_ms = self._made, self._clock.steady_ms()
        self._waiting[number] = _Waiting(action, now_ms, now_ms + self._patience_ms, give_up)

        def answered(result: T | None, error: BaseException | None) -> None:
            if self._waiting.pop(number, None) is not None:
                done(result, error)

        self.run(work, answered)

    def next_deadline(self) -> int | None:
        """Return when (ms) `on_time` is due."""
        return min((call.due_ms for call in self._waiting.values()), default=None)

    def on_time(self, now_ms: int) -> None:
        """Abandon overdue calls, or log that the job waits for them."""
        for number, call in list(self._waiting.items()):
            if now_ms < call.due_ms or number not in self._waiting:
                continue
            silence = f"the checkpoint store has not answered for {(now_ms - call.since_ms) // 1000} s"
            if call.give_up is None:
                call.due_ms = now_ms + self._patience_ms
                self._effects.log(f"{silence}; the job waits until it {call.what}")
            else:
                del self._waiting[number]
                call.give_up(CallTimeoutError(f"{silence} ({CHECKPOINTING_TIMEOUT_MS.key()})"))
