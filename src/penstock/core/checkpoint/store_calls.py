"""Calls of the checkpoint store, made in the background: a job master that was deposed hears of that by any of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.core.checkpoint.news import JobDeposed
from penstock.core.effects import Effects
from penstock.storage.leadership import DeposedError

T = TypeVar("T")


class StoreCalls:
    """`tell` takes the news."""

    def __init__(self, effects: Effects, tell: Callable[[JobDeposed], None]) -> None:
        self._effects = effects
        self._tell = tell

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """As `Effects.run`; `done` is not called once the job master is deposed."""

        def answered(result: T | None, error: BaseException | None) -> None:
            if isinstance(error, DeposedError):
                self._tell(JobDeposed(error))
            else:
                done(result, error)

        self._effects.run(work, answered)
