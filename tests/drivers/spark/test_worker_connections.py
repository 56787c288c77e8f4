"""Connections by descriptors, which the system uses again (E2)."""

from __future__ import annotations

from penstock.drivers.spark.job_master import WorkerConnections

BEGUN, ENDED = True, False


def test_a_connection_that_ends_is_its_workers() -> None:
    """E2: told once; connections of nobody, such as those for heartbeats, do not count."""
    connections = WorkerConnections()
    assert connections.take([(7, "a"), (8, "b")], [(7, BEGUN), (8, BEGUN), (9, BEGUN)]) == []
    assert connections.take([], [(9, ENDED), (8, ENDED)]) == ["b"]
    assert connections.take([], [(8, BEGUN), (8, ENDED)]) == []
    assert connections.take([], [(7, ENDED)]) == ["a"]


def test_a_descriptor_is_used_again_at_once() -> None:
    """E2: the worker that has it now is not the one that had it."""
    connections = WorkerConnections()
    connections.take([(7, "a")], [(7, BEGUN)])
    assert connections.take([(7, "b")], [(7, ENDED), (7, BEGUN)]) == ["a"]
    assert connections.take([], [(7, ENDED)]) == ["b"]


def test_a_worker_that_is_gone_when_it_is_read() -> None:
    """E2: its connection has ended already, or is another worker's by now."""
    connections = WorkerConnections()
    assert connections.take([(7, "a")], [(7, BEGUN), (7, ENDED)]) == ["a"]
    assert connections.take([(7, "b"), (7, "c")], [(7, BEGUN)]) == ["b"]
    assert connections.take([], [(7, ENDED)]) == ["c"]
