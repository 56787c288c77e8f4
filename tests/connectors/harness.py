"""One hostile host for all sources and sinks: it snapshots, kills and restores between every two calls."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

from penstock.core.columns.batch import SplitColumnBatch
from penstock.core.connector import InputStatus, Source, SourceReader, SplitBatch, SplitEnumerator
from penstock.core.records import Batch

POLLS_MAX = 200_000


class EnumeratorHost:
    """The job master as an enumerator sees it; background work runs when the test says so."""

    def __init__(self, parallelism: int = 1) -> None:
        self.parallelism = parallelism
        self.assigned: list[tuple[int, Any]] = []
        self.finished: list[int] = []
        self.background: list[tuple[Callable[[], Any], Callable[[Any, Any], None], int]] = []

    def assign_split(self, split: Any, subtask_index: int) -> None:
        assert subtask_index not in self.finished, "a split after the end would be lost"
        self.assigned.append((subtask_index, pickle.loads(pickle.dumps(split))))

    def signal_no_more_splits(self, subtask_index: int) -> None:
        self.finished.append(subtask_index)

    def call_async(self, work: Callable[[], Any], handler: Callable[[Any, Any], None], delay_ms: int = 0) -> None:
        self.background.append((work, handler, delay_ms))

    def run_background(self) -> None:
        """Runs what was waiting, once."""
        waiting, self.background = self.background, []
        for work, handler, _ in waiting:
            result, error = None, None
            try:
                result = work()
            except Exception as caught:  # noqa: BLE001 - the handler decides
                error = caught
            handler(result, error)


class ReaderHost:
    """A task as a reader sees it."""

    def __init__(self, subtask_index: int = 0, parallelism: int = 1) -> None:
        self.subtask_index = subtask_index
        self.parallelism = parallelism
        self.now = 0
        self.requests = 0
        self.counts: dict[str, int] = {}
        self.gauges: dict[str, Callable[[], int | float]] = {}
        self.side: list[tuple[str, Any]] = []
        self.open_splits: list[str] = []

    def now_ms(self) -> int:
        return self.now

    def request_split(self) -> None:
        self.requests += 1

    def count(self, name: str, increment: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + increment

    def gauge(self, name: str, function: Callable[[], int | float]) -> None:
        self.gauges[name] = function

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        self.side += [(tag_id, value) for value in batch.values]

    def open_split(self, split_id: str) -> None:
        self.open_splits.append(split_id)

    def close_split(self, split_id: str) -> None:
        self.open_splits.remove(split_id)


class Cluster:
    """Reads a source with some subtasks; `restart` replaces everything by what its snapshots make."""

    def __init__(self, source: Source[Any, Any], parallelism: int = 1) -> None:
        self.source = pickle.loads(pickle.dumps(source))
        self.parallelism = parallelism
        self.hosts = [ReaderHost(i, parallelism) for i in range(parallelism)]
        self.values: list[list[Any]] = [[] for _ in range(parallelism)]
        self.timestamps: list[Any] = []
        self.ended: set[int] = set()
        self._start(None, [[] for _ in range(parallelism)])

    def _start(self, enumerator_state: Any, splits: list[list[Any]]) -> None:
        self.master = EnumeratorHost(self.parallelism)
        self.enumerator: SplitEnumerator[Any] = self.source.create_enumerator(self.master, enumerator_state)
        self.enumerator.start()
        self.readers: list[SourceReader[Any, Any]] = []
        for host, restored in zip(self.hosts, splits, strict=True):
            host.requests = 0
            host.open_splits = []
            reader = self.source.create_reader(host)
            if restored:
                reader.add_splits(restored)
            reader.start()
            self.readers.append(reader)

    def snapshot(self) -> Any:
        state = self.enumerator.snapshot_state(1), [reader.snapshot_state(1) for reader in self.readers]
        return pickle.loads(pickle.dumps(state))

    def restart(self) -> None:
        enumerator_state, splits = self.snapshot()
        self.close()
        self.ended = set()
        self._start(enumerator_state, splits)

    def close(self) -> None:
        for reader in self.readers:
            reader.close()
        self.enumerator.close()

    def deliver(self) -> bool:
        """Brings messages between readers and enumerator; whether a split was among them."""
        for host in self.hosts:
            for _ in range(host.requests):
                self.enumerator.handle_split_request(host.subtask_index)
            host.requests = 0
        self.master.run_background()
        for subtask_index, split in self.master.assigned:
            self.readers[subtask_index].add_splits([split])
        for subtask_index in self.master.finished:
            self.readers[subtask_index].no_more_splits()
        found = bool(self.master.assigned)
        self.master.assigned, self.master.finished = [], []
        return found

    def poll(self, subtask_index: int, batch_size: int) -> Batch | InputStatus:
        found = self.readers[subtask_index].poll_next(batch_size)
        if isinstance(found, Batch):
            assert 0 < len(found) <= batch_size
            if isinstance(found, SplitBatch | SplitColumnBatch):
                assert found.split_id in self.hosts[subtask_index].open_splits
            self.values[subtask_index] += found.values
            if found.timestamps is not None:
                assert len(found.timestamps) == len(found.values)
                self.timestamps += found.timestamps
        elif found is InputStatus.END_OF_INPUT:
            self.ended.add(subtask_index)
        return found

    @property
    def all_values(self) -> list[Any]:
        return [value for values in self.values for value in values]

    @property
    def side(self) -> list[Any]:
        return [entry for host in self.hosts for entry in host.side]


def read(source: Source[Any, Any], batch_size: int = 1000, parallelism: int = 1, hostile: bool = False) -> Cluster:
    """Reads a bounded source to its end; when hostile, restarts after every batch and every split handed out."""
    cluster = Cluster(source, parallelism)
    try:
        for turn in range(POLLS_MAX):
            found = cluster.poll(turn % parallelism, batch_size)
            if len(cluster.ended) == parallelism:
                return cluster
            if isinstance(found, Batch):
                if hostile:
                    cluster.restart()
            elif cluster.deliver() and hostile:
                cluster.restart()
        raise AssertionError("the source does not end")
    finally:
        cluster.close()


class SinkHost:
    """A task as a writer sees it."""

    def __init__(
        self,
        subtask_index: int = 0,
        parallelism: int = 1,
        attempt: int = 0,
        job_id: str = "job",
        operator: str = "op",
        run: str = "",
        restored: int | None = None,
        forerunners: tuple[str, ...] = (),
        owes_nothing: bool = False,
    ) -> None:
        self.subtask_index = subtask_index
        self.parallelism = parallelism
        self.attempt = attempt
        self.job_id = job_id
        self.operator_id = operator
        self.run = run or str(attempt)
        self.restored_checkpoint_id = restored
        self.forerunners = forerunners
        self.owes_nothing = owes_nothing
        self.now = 0
        self.emitted: list[bytes] = []
        self.counts: dict[str, int] = {}

    def now_ms(self) -> int:
        return self.now

    def count(self, name: str, increment: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + increment

    def emit_to_client(self, payload: bytes) -> None:
        self.emitted.append(payload)


def chunks(values: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


class Killed(Exception):
    """A job ends as by kill -9."""


class MortalJob:
    """A job of one source and `parallelism` writers with checkpoints, killed at the steps in `deaths`.

    Ahead of each checkpoint it takes a savepoint. A subclass says what an attempt does.
    """

    def __init__(self, records: int, deaths: set[int], parallelisms: list[int]) -> None:
        self.records = records
        self.deaths = deaths
        self.parallelisms = parallelisms
        self.calls = 0
        #: The last snapshot that was begun.
        self.number = 0
        # Completed checkpoint: its number, position of the source, writer states, committables by subtask.
        self.checkpoint: tuple[int, int, list[Any], list[list[Any]]] = (0, 0, [], [])
        #: What each savepoint that was taken holds.
        self.savepoints: list[list[Any]] = []

    def step(self) -> None:
        self.calls += 1
        if self.calls in self.deaths:
            raise Killed

    def run(self) -> None:
        attempt = 0
        while True:
            try:
                self.attempt(attempt, self.parallelisms[attempt % len(self.parallelisms)])
                return
            except Killed:
                attempt += 1

    def attempt(self, attempt: int, parallelism: int) -> None:
        raise NotImplementedError
