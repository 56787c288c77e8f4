"""Events that wait for their time: where they are kept, and when they are taken."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from penstock.runtime.operators.patterns import waiting
from penstock.runtime.operators.patterns.waiting import WaitingEvents
from penstock.state.backend import HeapKeyedStateBackend


def taken(events: WaitingEvents, up_to: int) -> list[tuple[Any, int, Any]]:
    """What is due, in the order in which it came."""
    columns = [some.read() for some in events.take(up_to)]
    return [row for some in columns for row in zip(some.keys, some.times.tolist(), some.events, strict=True)]


def test_events_that_are_too_many_for_memory_wait_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LISTED_MAX", 3)
    table: Any = HeapKeyedStateBackend(128).table("events")
    events = WaitingEvents(table, None)
    events.add_all(["k", "k"], [20, 10], ["a", "b"])
    events.add_all(["k"], [20], ["c"])
    assert not table.panes
    events.add_all(["other"], [20], ["d"])
    assert set(table.panes) == {10, 20}
    events.add_all(["k"], [20], ["e"])
    assert taken(events, 20) == [("k", 10, "b"), ("k", 20, "a"), ("k", 20, "c"), ("other", 20, "d"), ("k", 20, "e")]
    assert events.next_ms is None
    assert not table.panes


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=5), st.integers(0, 3), st.booleans()), max_size=8))
def test_each_event_is_taken_once_when_it_is_due(steps: list[tuple[list[int], int, bool]]) -> None:
    """Batches are due in part, again and again, and the rest of them is stored at times."""
    events = WaitingEvents(HeapKeyedStateBackend(128).table("events"), None)
    left: list[tuple[Any, int, Any]] = []
    watermark, number = -1, 0
    for delays, step, is_stored in steps:
        times = [watermark + 1 + delay for delay in delays]
        batch = [(time % 3, time, number + index) for index, time in enumerate(times)]
        number += len(batch)
        left += batch
        events.add_all([row[0] for row in batch], times, [row[2] for row in batch])
        if is_stored:
            events.store()
        watermark += step
        due = taken(events, watermark)
        assert sorted(due, key=lambda row: row[2]) == [row for row in left if row[1] <= watermark]
        for key in range(3):
            of_key = [row for row in due if row[0] == key]
            in_time = sorted(of_key, key=lambda row: row[1])
            assert in_time == sorted(of_key, key=lambda row: row[1:]), "events of one time come as they arrived"
        left = [row for row in left if row[1] > watermark]
        assert events.next_ms == min((row[1] for row in left), default=None)
