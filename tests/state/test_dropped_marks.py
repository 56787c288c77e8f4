"""Marks of what was dropped: kept for snapshots that build on others, and for nothing else (G7)."""

from __future__ import annotations

from penstock.runtime.operators.watermarks import TimerQueue
from penstock.state.backend import HeapKeyedStateBackend, StateTable
from penstock.state.snapshot import read_keyed
from penstock.state.states import ValueStateDescriptor

MAX = 8


def test_without_a_snapshot_dropping_leaves_no_mark() -> None:
    """G7: a job without checkpoints drops a window or a bucket of timers every now and then, for years."""
    table = StateTable("windows")
    for window in range(1_000):
        table.entries(window)["key"] = 1
        table.changed(window).add("key")
        table.drop(window)
    assert not table._dropped
    assert not table._changed


def test_without_a_snapshot_keys_that_come_and_go_leave_no_mark() -> None:
    """G7: nor do those of a job whose keys are orders or sessions; the first snapshot is whole all the same."""
    backend = HeapKeyedStateBackend(MAX)
    table = backend.table("sessions")
    entries, changed = table.entries(None), table.changed(None)
    for key in range(20_000):
        entries[key] = key
        entries.pop(key - 10, None)
        changed.update((key, key - 10))
        backend.settle()
    assert len(changed) < 10_000
    (capture,) = backend.capture(1)
    assert capture.is_whole
    assert sorted(read_keyed([capture.to_bytes(MAX)], 0, MAX - 1)[None]) == list(range(19_990, 20_000))


def test_after_a_savepoint_marks_go_on_being_for_nothing() -> None:
    """G7, H1: of a job without checkpoints nobody hears that a savepoint completed, and nothing builds on it."""
    backend = HeapKeyedStateBackend(MAX)
    table = backend.table("sessions")
    entries, changed = table.entries(None), table.changed(None)
    for step in range(20_000):
        entries[step] = table.entries(("window", step))["key"] = step
        changed.add(step)
        table.changed(("window", step)).add("key")
        if step == 100:
            backend.capture(1)
            backend.take_back(1)
        entries.pop(step - 10, None)
        changed.add(step - 10)
        table.drop(("window", step - 10))
        backend.settle()
    assert len(changed) < 10_000
    assert len(table._changed) <= 11
    assert not table._dropped


def test_after_a_snapshot_dropping_is_told_to_the_next() -> None:
    """G7: and before it, nothing need be."""
    table = StateTable("windows")
    for window in ("gone before", "stays", "gone after"):
        table.entries(window)["key"] = window
        table.changed(window).add("key")
    table.drop("gone before")
    first = table.capture(1, "op")
    table.confirm(1)
    table.drop("gone after")
    second = table.capture(2, "op")
    assert first is not None
    assert second is not None
    files = [first.to_bytes(MAX), second.to_bytes(MAX)]
    assert sorted(read_keyed(files[:1], 0, MAX - 1)) == ["gone after", "stays"]
    assert sorted(read_keyed(files, 0, MAX - 1)) == ["stays"]


def test_what_was_restored_counts_as_a_snapshot() -> None:
    """G7: when the next one adds to it."""
    table = StateTable("windows")
    table.restore("key", "old", 1)
    table.build_on_snapshot()
    table.drop("old")
    assert list(table._dropped) == ["old"]


def test_timers_that_came_and_went_are_not_told_of_one_by_one() -> None:
    """G7: of 50,000 that fired since the last snapshot none was in it: the 100 that wait are written instead."""
    backend = HeapKeyedStateBackend(MAX)
    table = backend.table("timers")
    timers = TimerQueue(table)
    timers.register(-1, "gone after the first snapshot")
    backend.capture(1)
    backend.confirm(1)
    for time in range(50_000):
        timers.register(time, "key")
        timers.fire(time - 100, lambda time, key: None)
        backend.settle()
    assert len(table._dropped) + len(table._changed) < 5_000
    (capture,) = backend.capture(2)
    assert capture.is_whole
    assert read_keyed([capture.to_bytes(MAX)], 0, MAX - 1) == {time: {"key": None} for time in range(49_900, 50_000)}


def test_a_timer_set_after_a_whole_snapshot_is_in_the_next_one() -> None:
    """G7: marks count again, for timers and for values, from the moment of the capture on."""
    backend = HeapKeyedStateBackend(MAX)
    timers, value = TimerQueue(backend.table("timers")), backend.value_state(ValueStateDescriptor("value"))
    for backend.current_key in range(5_000):
        timers.register(backend.current_key, backend.current_key)
        value.update(1)
        backend.settle()
    files = [[capture.to_bytes(MAX)] for capture in backend.capture(1)]
    backend.confirm(1)
    timers.register(9_000, 7)
    timers.delete(8, 8)
    backend.current_key = 7
    value.update(2)
    backend.current_key = 8
    value.clear()
    for captures, capture in zip(files, backend.capture(2), strict=True):
        assert not capture.is_whole
        captures.append(capture.to_bytes(MAX))
    of_timers, of_values = (read_keyed(captures, 0, MAX - 1) for captures in files)
    due = {(time, key) for time, keys in of_timers.items() for key in keys}
    assert due == {(key, key) for key in range(5_000) if key != 8} | {(9_000, 7)}
    assert of_values[None] == {key: 2 if key == 7 else 1 for key in range(5_000) if key != 8}
