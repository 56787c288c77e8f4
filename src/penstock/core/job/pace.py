"""Workers that need far more time for a record than their peers do. Pure: what workers report in, comparisons out.

Theory. Records alone say nothing: keys are skewed, and where one subtask is slow, back-pressure lets its peers do no
more than it does. What can be compared is what a record costs: the records that a worker took, per second that its loop
was at work rather than waiting. A worker with a hot key takes more records and is busy for longer, at the same cost.
A worker on a bad host, or with a function that waits for a slow server, is busy for far fewer records.

Tasks of a worker share its loop, so a worker is compared by all of its vertices, and is behind only if it is so in
each; and with workers that have the same vertices, because what one has alone takes time from the others. One that
also waits for input is not behind, whatever its records cost. A record may rightly cost more than another, and a reader
that blocks counts as work: so this is a hint.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.core.protocol import ExecutionId

#: Over how long (ms) workers are compared, and for how many of these times one has to be behind.
WINDOW_MS: Final = 60_000
WINDOWS_MIN: Final = 2
#: How many workers with the same vertices it takes to compare them.
WORKERS_MIN: Final = 3
#: How busy a worker is at least that is behind, and how many times as much a record costs it.
BUSY_MIN: Final = 0.9
FACTOR: Final = 4
#: A vertex whose subtasks took fewer records than this in the median is not compared.
RECORDS_MIN: Final = 100


@dataclass(frozen=True)
class Work:
    """What a worker has done up to a moment (ms): for how long it was busy, and the records of its running tasks."""

    at_ms: int
    busy_ms: int
    records: Mapping[ExecutionId, int]


@dataclass(frozen=True)
class Behind:
    """How a worker is behind: by how much in the vertex in which it is so least; `since_ms` as in `Work`."""

    vertex: int
    busy_share: float
    records_per_second: float
    peers_records_per_second: float
    since_ms: int


@dataclass(frozen=True)
class _Done:
    """What was done between two moments; records by vertex."""

    for_ms: int
    busy_ms: int
    records: Mapping[int, int]

    def records_per_second(self, vertex: int) -> float:
        return 1000 * self.records[vertex] / max(1, self.busy_ms)


class Pace:
    """Feed it what workers report; it compares them after each window."""

    def __init__(self) -> None:
        self._first: dict[str, Work] = {}
        self._last: dict[str, Work] = {}
        self._begun_ms: int | None = None
        #: since when (ms), and for how many windows, workers have been behind
        self._behind: dict[str, tuple[int, int]] = {}

    def keep(self, worker_ids: Collection[str]) -> None:
        """All other workers are gone."""
        self._first = {name: work for name, work in self._first.items() if name in worker_ids}
        self._last = {name: work for name, work in self._last.items() if name in worker_ids}
        self._behind = {name: behind for name, behind in self._behind.items() if name in worker_ids}

    def take(self, worker_id: str, work: Work) -> dict[str, Behind] | None:
        """A worker's report; at the end of a window the workers that are behind, None at other times."""
        self._first.setdefault(worker_id, work)
        self._last[worker_id] = work
        if self._begun_ms is None:
            self._begun_ms = work.at_ms
        if work.at_ms < self._begun_ms + WINDOW_MS:
            return None
        done = {name: _between(self._first[name], last) for name, last in self._last.items()}
        found = {name: behind for name in done if (behind := _compared(name, done, self._begun_ms)) is not None}
        before, self._behind = self._behind, {}
        for name in found:
            since_ms, windows = before.get(name, (self._begun_ms, 0))
            self._behind[name] = since_ms, windows + 1
        self._first, self._begun_ms = dict(self._last), work.at_ms
        return {
            name: Behind(
                b.vertex, b.busy_share, b.records_per_second, b.peers_records_per_second, self._behind[name][0]
            )
            for name, b in found.items()
            if self._behind[name][1] >= WINDOWS_MIN
        }


def _between(first: Work, last: Work) -> _Done:
    records: dict[int, int] = {}
    for execution, count in last.records.items():
        if execution in first.records:  # else it began in between, and is compared from the next window on
            records[execution.vertex] = records.get(execution.vertex, 0) + count - first.records[execution]
    return _Done(last.at_ms - first.at_ms, last.busy_ms - first.busy_ms, records)


def _compared(worker_id: str, done: Mapping[str, _Done], since_ms: int) -> Behind | None:
    own = done[worker_id]
    peers = [other for name, other in done.items() if name != worker_id and other.records.keys() == own.records.keys()]
    share = own.busy_ms / max(1, own.for_ms)
    if len(peers) + 1 < WORKERS_MIN or share < BUSY_MIN:
        return None
    compared = []
    for vertex in own.records:
        if statistics.median(peer.records[vertex] for peer in peers) < RECORDS_MIN:
            continue
        median = statistics.median(peer.records_per_second(vertex) for peer in peers)
        rate = own.records_per_second(vertex)
        compared.append((rate / median, Behind(vertex, min(1.0, share), rate, median, since_ms)))
    ratio, behind = max(compared, key=lambda pair: pair[0], default=(1.0, None))
    return behind if ratio * FACTOR <= 1 else None
