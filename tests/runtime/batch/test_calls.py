"""A task that waits for calls blocks meanwhile, until something is due at the latest."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.runtime.batch.task import WAIT_MS_MAX, OpenCalls
from penstock.testing import VirtualClock


class Waiting:
    """An operator whose only call has not come back, and whose timer is due at a time."""

    def __init__(self, due_ms: int | None) -> None:
        self.due_ms = due_ms

    def drain(self) -> bool:
        return self.due_ms == 0

    def next_timer_ms(self) -> int | None:
        return self.due_ms

    def on_processing_time(self, now_ms: int) -> None:
        self.due_ms = 0


class Chain:
    def __init__(self, *waiting: Waiting) -> None:
        self.waiting = waiting

    def process_completions(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("due_ms", "waited"), [(1_030, [30]), (900, [0]), (1_000 + 2 * WAIT_MS_MAX + 1, [WAIT_MS_MAX, WAIT_MS_MAX, 1])]
)
def test_a_task_blocks_until_a_timer_is_due_or_for_a_while(due_ms: int, waited: list[int]) -> None:
    clock = VirtualClock(1_000)
    waits: list[int] = []

    def wait(ms: int) -> None:
        waits.append(ms)
        clock.advance(ms)

    chain: Any = Chain(Waiting(due_ms))
    assert len(list(OpenCalls(chain, clock, wait).bring_back())) == len(waited)
    assert waits == waited
