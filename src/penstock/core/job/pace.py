"""Workers that need far more time for a record than their peers. Pure: workers' reports in, comparisons out.

Theory. Record counts alone mean nothing: keys are skewed, and if one subtask is slow, back-pressure holds its peers at
the same rate. The comparable quantity is the cost of a record: the records that a worker processed, per second that its
loop was at work rather than waiting. A worker with a hot key processes more records and is busy for longer, at the same
cost. A worker on a bad host, or with a function that waits for a slow server, is busy for far fewer records.

Tasks of a worker share its loop, so a worker is compared in all its vertices, and lags only if it lags in each of them.
It is compared only with workers that have the same vertices, because additional vertices would take time from the
shared ones. A worker that also waits for input does not lag, whatever its records cost. A record may rightly cost more
than another, and a reader that blocks counts as work, so the result is only a hint.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.core.protocol import ExecutionId

#: The comparison window (ms), and how many windows in a row a worker must lag to be reported.
WINDOW_MS: Final = 60_000
WINDOWS_MIN: Final = 2
#: The minimum number of workers with the same vertices for a comparison.
WORKERS_MIN: Final = 3
#: The minimum busy share of a lagging worker, and the minimum ratio of its record cost to its peers'.
BUSY_MIN: Final = 0.9
FACTOR: Final = 4
#: A vertex whose subtasks took fewer records than this in the median is not compared.
RECORDS_MIN: Final = 100


@dataclass(frozen=True)
class Work:
    """A worker's work up to a moment (ms): its busy time, and the records of its running tasks."""

    at_ms: int
    busy_ms: int
    records: Mapping[ExecutionId, int]


@dataclass(frozen=True)
class Behind:
    """How far a worker lags, in the vertex where it lags least; `since_ms` uses the clock of `Work.at_ms`."""

    vertex: int
    busy_share: float
    records_per_second: float
    peers_records_per_second: float
    since_ms: int


@dataclass(frozen=True)
class _Done:
    """The work between two moments, with records by vertex."""

    for_ms: int
    busy_ms: int
    records: Mapping[int, int]

    def records_per_second(self, vertex: int) -> float:
        return 1000 * self.records[vertex] / max(1, self.busy_ms)


class Pace:
    """Compares workers by their reports, after each window."""

    def __init__(self) -> None:
        self._first: dict[str, Work] = {}
        self._last: dict[str, Work] = {}
        self._begun_ms: int | None = None
        #: since when (ms), and for how many windows, workers have lagged
        self._behind: dict[str, tuple[int, int]] = {}

    def keep(self, worker_ids: Collection[str]) -> None:
        """Forget all other workers."""
        self._first = {name: work for name, work in self._first.items() if name in worker_ids}
        self._last = {name: work for name, work in self._last.items() if name in worker_ids}
        self._behind = {name: behind for name, behind in self._behind.items() if name in worker_ids}

    def take(self, worker_id: str, work: Work) -> dict[str, Behind] | None:
        """Add a worker's report; return the lagging workers at the end of a window, None at other times."""
        self._first.setdefault(worker_id, work)
        self._last[worker_id] = work
        if self._begun_ms is None:
            self._begun_ms = work.at_ms
        if work.at_ms < self._begun_ms + WINDOW_MS:
            return None
        done = {name: _between(self._first[name], last) for name, last in self._last.items()}
        stragglers = {name: behind for name in done if (behind := _compared(name, done, self._begun_ms)) is not None}
        before, self._behind = self._behind, {}
        for name in stragglers:
            since_ms, windows = before.get(name, (self._begun_ms, 0))
            self._behind[name] = since_ms, windows + 1
        self._first, self._begun_ms = dict(self._last), work.at_ms
        return {
            name: Behind(
                b.vertex, b.busy_share, b.records_per_second, b.peers_records_per_second, self._behind[name][0]
            )
            for name, b in stragglers.items()
            if self._behind[name][1] >= WINDOWS_MIN
        }


def _between(first: Work, last: Work) -> _Done:
    records: dict[int, int] = {}
    for execution, count in last.records.items():
        if execution in first.records:  # otherwise it began in between, and is compared from the next window on
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
