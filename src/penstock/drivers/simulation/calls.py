"""Asynchronous functions of simulated jobs: calls that are slow, fail at first, or never return.

However a call behaves, it finally returns the result of the plain map or flat map, so the expected output is the same.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from penstock.core.operators.calls.async_wait import AsyncWaitOperator
from penstock.drivers.simulation.functions import FlatMap, Record, expanded, mapped

#: One in more records than there are.
NEVER: Final = 1 << 40


@dataclass(frozen=True)
class Calls:
    """How a stage's calls behave. `hangs`, `fails`: one in how many records; `salt` selects which.

    All times are short compared with a checkpoint's timeout, because an aligned barrier waits for the calls of the
    records ahead of it.
    """

    is_ordered: bool
    capacity: int
    delay_ms_max: int
    hangs: int
    fails: int
    timeout_ms: int
    salt: int


def draw_calls(world: str, has_order: bool, number: int) -> Calls | None:
    """Draw a stage's calls; every other stage is asynchronous. Its own random numbers keep other draws stable."""
    chance = random.Random(f"calls of {number} in {world}")
    if chance.random() < 0.5:
        return None
    return Calls(
        is_ordered=has_order or chance.random() < 0.5,
        capacity=chance.choice((1, 2, 5, 100)),
        delay_ms_max=chance.choice((0, 1, 3, 6)),
        hangs=chance.choice((NEVER, NEVER, 7)),
        fails=chance.choice((NEVER, NEVER, 5)),
        timeout_ms=chance.choice((12, 25)),
        salt=chance.randrange(1_000),
    )


class AsyncStage(FlatMap):
    """`mapped` or `expanded`, as the response of a slow service."""

    def __init__(self, world: str, keys: int, kind: str, calls: Calls) -> None:
        super().__init__(world, keys)
        self._is_map = kind == "map"
        self._calls = calls

    def open(self, context: Any) -> None:
        super().open(context)
        self._asked: set[Record] = set()

    async def async_invoke(self, record: Record) -> list[Record]:
        calls = self._calls
        number = record[2] * 31 + record[0] * 7 + calls.salt
        is_first = record not in self._asked
        self._asked.add(record)
        self.call()
        await asyncio.sleep(number % (calls.delay_ms_max + 1) / 1000)
        if number % calls.hangs == 0:
            await asyncio.get_running_loop().create_future()
        if is_first and number % calls.fails == 0:
            raise ConnectionError("not at the first time")
        self.call()
        return self.timeout(record)

    def timeout(self, record: Record) -> list[Record]:
        return [mapped(record, self.keys)] if self._is_map else expanded(record, self.keys)


class RetryTwice:
    """Retry twice, after 2 ms."""

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= 2

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return 2

    def get_retry_predicate(self) -> RetryTwice:
        return self

    def result_predicate(self) -> None:
        return None

    def exception_predicate(self) -> Callable[[Exception], bool]:
        return lambda error: isinstance(error, ConnectionError)


def asynchronous(world: str, keys: int, kind: str, calls: Calls) -> Callable[[], AsyncWaitOperator]:
    """Return a factory for the operator of a "map" or "flat_map" stage."""
    function = AsyncStage(world, keys, kind, calls)
    return partial(AsyncWaitOperator, function, calls.is_ordered, calls.timeout_ms, calls.capacity, RetryTwice())
