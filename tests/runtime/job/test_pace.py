"""E2: what a record costs a worker is compared with what it costs its peers, and nothing else is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.runtime.job.slow_workers import WINDOW_MS, Pace, Work
from penstock.runtime.protocol import ExecutionId


class Cluster:
    """Workers that report every 10 s: the share of the time in which each is busy, and its records in a second."""

    def __init__(self, **workers: tuple[float, Mapping[int, float]]) -> None:
        self.workers: Mapping[str, tuple[float, Mapping[int, float]]] = workers
        self.pace = Pace()
        self.now_ms = 0
        self.found: dict[str, float] = {}

    def run(self, windows: float) -> list[str]:
        """Who is behind at the end."""
        until_ms = self.now_ms + int(windows * WINDOW_MS)
        while self.now_ms <= until_ms:
            for number, (name, (busy, rates)) in enumerate(self.workers.items()):
                records = {ExecutionId(v, number, 0): int(rate * self.now_ms / 1000) for v, rate in rates.items()}
                behind = self.pace.take(name, Work(self.now_ms, int(busy * self.now_ms), records))
                if behind is not None:
                    self.found = {name: one.since_ms for name, one in behind.items()}
            self.now_ms += 10_000
        return list(self.found)


def test_a_worker_that_is_always_busy_with_as_many_records_as_its_idle_peers() -> None:
    """E2: back-pressure lets none do more than the slow one, so it is not the records that tell."""
    peers = {name: (0.1, {0: 200.0, 1: 200.0}) for name in "abc"}
    cluster = Cluster(slow=(1.0, {0: 200.0, 1: 200.0}), **peers)
    assert cluster.run(1) == []
    assert cluster.run(1.2) == ["slow"]
    assert cluster.found == {"slow": 0}


@pytest.mark.parametrize(
    ("name", "slow"),
    [
        ("a hot key: more records, for which it is busy for longer", (1.0, {0: 200.0, 1: 2_000.0})),
        ("it waits for input", (0.5, {0: 10.0, 1: 10.0})),
        ("a little slower", (1.0, {0: 700.0, 1: 700.0})),
        ("another vertex has it to itself", (1.0, {0: 200.0, 1: 200.0, 2: 10.0})),
    ],
)
def test_others_are_not_behind(name: str, slow: tuple[float, Mapping[int, float]]) -> None:
    """E2: a worker that does more, or other work, or has none, is none that is slow."""
    peers = {name: (0.1, {0: 200.0, 1: 200.0}) for name in "abc"}
    assert Cluster(slow=slow, **peers).run(4) == []


def test_with_one_peer_nobody_knows_which_of_them_is_as_it_should_be() -> None:
    assert Cluster(slow=(1.0, {0: 200.0}), peer=(0.1, {0: 200.0})).run(4) == []


def test_a_few_records_say_nothing() -> None:
    """E2: one window that fires may take longer than all of them."""
    assert Cluster(slow=(1.0, {0: 1.0}), a=(0.1, {0: 1.0}), b=(0.1, {0: 1.0})).run(4) == []


def test_a_worker_that_has_begun_again_is_compared_from_then_on() -> None:
    """E2: its tasks count their records from the beginning."""
    peers = {name: (0.1, {0: 200.0}) for name in "ab"}
    cluster = Cluster(slow=(1.0, {0: 200.0}), **peers)
    assert cluster.run(2.2) == ["slow"]
    cluster.pace.keep({"a", "b"})
    cluster.workers = peers
    assert cluster.run(2) == []
