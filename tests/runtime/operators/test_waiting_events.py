"""Events that wait for their time: where they are kept."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.runtime.operators.patterns import pattern_operator as waiting
from penstock.runtime.operators.patterns.pattern_operator import WaitingEvents
from penstock.state.heap import HeapKeyedStateBackend


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
    assert events.take(20) == {"k": [(10, "b"), (20, "a"), (20, "c"), (20, "e")], "other": [(20, "d")]}
    assert events.next_ms is None
