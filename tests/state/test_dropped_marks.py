"""Marks of what was dropped: kept for snapshots that build on others, and for nothing else (G7)."""

from __future__ import annotations

from penstock.state.snapshot import read_keyed
from penstock.state.table import StateTable

MAX = 8


def test_without_a_snapshot_dropping_leaves_no_mark() -> None:
    """G7: a job without checkpoints drops a window or a bucket of timers every now and then, for years."""
    table = StateTable("windows")
    for window in range(1_000):
        table.entries(window)["key"] = 1
        table.changed(window).add("key")
        table.drop(window)
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
