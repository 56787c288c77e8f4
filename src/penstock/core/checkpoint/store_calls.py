"""Calls of the checkpoint store, made in the background: who was deposed hears of that, and nobody waits for ever.

A store may hang: a network file system whose server is gone does. A call that only reads, or only deletes what nobody
needs, is given up after a time, and what it answers later is ignored. A call after which it matters whether it was
carried out is waited for, and the log says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from penstock.base.errors import CallTimeoutError
from penstock.base.options import CHECKPOINTING_TIMEOUT_MS
from penstock.core.checkpoint.news import JobDeposed
from penstock.core.effects import Effects
from penstock.core.ports import Clock
from penstock.storage.leadership import DeposedError

T = TypeVar("T")


@dataclass
class _Waiting:
    what: str
    since_ms: int
    due_ms: int
    #: what is told that there is no answer; None for a call that is waited for
    give_up: Callable[[BaseException], None] | None


class StoreCalls:
    """`tell` takes the news. After `patience_ms` without an answer a call is given up, or the log has a line."""

    def __init__(self, effects: Effects, tell: Callable[[JobDeposed], None], clock: Clock, patience_ms: int) -> None:
        self._effects = effects
        self._tell = tell
        self._clock = clock
        self._patience_ms = patience_ms
        self._waiting: dict[int, _Waiting] = {}
        self._made = 0

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """As `Effects.run`, for callers with their own time-outs; `done` is not called once the master is deposed."""

        def answered(result: T | None, error: BaseException | None) -> None:
            if isinstance(error, DeposedError):
                self._tell(JobDeposed(error))
            else:
                done(result, error)

        self._effects.run(work, answered)

    def give_up_late(
        self, what: str, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """For calls that may be carried out late without harm: without an answer, `done` gets a `CallTimeoutError`."""
        self._watched(what, work, done, lambda error: done(None, error))

    def wait_for(
        self, what: str, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """For calls that must not be carried out when nobody expects it any more."""
        self._watched(what, work, done, None)

    def _watched(
        self,
        what: str,
        work: Callable[[], T],
        done: Callable[[T | None, BaseException | None], None],
        give_up: Callable[[BaseException], None] | None,
    ) -> None:
        self._made += 1
        number, now_ms = self._made, self._clock.steady_ms()
        self._waiting[number] = _Waiting(what, now_ms, now_ms + self._patience_ms, give_up)

        def answered(result: T | None, error: BaseException | None) -> None:
            if self._waiting.pop(number, None) is not None:
                done(result, error)

        self.run(work, answered)

    def next_deadline(self) -> int | None:
        """When (ms) `on_time` has something to do."""
        return min((call.due_ms for call in self._waiting.values()), default=None)

    def on_time(self, now_ms: int) -> None:
        """Give up what has no answer, or say that the job waits for it."""
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
