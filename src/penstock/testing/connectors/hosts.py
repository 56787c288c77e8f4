"""What stands in for the job master and the tasks, as connectors see them: their contexts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.codecs.pickling import dumps_named, loads_named
from penstock.core.connector import late_split
from penstock.core.records import Batch


class EnumeratorHost:
    """The job master as an enumerator sees it; background work runs when the test says so.

    Args:
        parallelism: of the readers.
        what: what errors call the source.
    """

    def __init__(self, parallelism: int = 1, what: str = "the source") -> None:
        self.parallelism = parallelism
        self._what = what
        #: splits that were assigned and have not reached their readers: (subtask, split)
        self.assigned: list[tuple[int, Any]] = []
        #: readers that are to hear that no split will follow
        self.finished: list[int] = []
        #: readers that were told so, or are about to be
        self.told: set[int] = set()
        #: whether a split was assigned to one of them
        self.was_late = False
        #: what was asked for by `call_async`: (work, handler, delay in ms)
        self.background: list[tuple[Callable[[], Any], Callable[[Any, Any], None], int]] = []

    def assign_split(self, split: Any, subtask_index: int) -> None:
        """Note the split, which travels."""
        if subtask_index in self.told:
            self.was_late = True
            raise late_split(self._what, subtask_index)
        what = f"a split of {self._what}"
        self.assigned.append((subtask_index, loads_named(dumps_named(split, what), what)))

    def signal_no_more_splits(self, subtask_index: int) -> None:
        """Note that the reader is to be told."""
        self.told.add(subtask_index)
        self.finished.append(subtask_index)

    def call_async(self, work: Callable[[], Any], handler: Callable[[Any, Any], None], delay_ms: int = 0) -> None:
        """Note the work."""
        self.background.append((work, handler, delay_ms))

    def run_background(self) -> None:
        """Do what was waiting, once; its time does not matter."""
        waiting, self.background = self.background, []
        for work, handler, _ in waiting:
            run_and_handle(work, handler)


def run_and_handle(work: Callable[[], Any], handler: Callable[[Any, Any], None]) -> None:
    """Background work, and then the handler with what came of it."""
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
        #: processing time, in ms
        self.now = 0
        #: requests for splits that have not reached the enumerator
        self.requests = 0
        self.counts: dict[str, int] = {}
        self.gauges: dict[str, Callable[[], int | float]] = {}
        #: what went to side outputs: (tag, value)
        self.side: list[tuple[str, Any]] = []
        self.open_splits: list[str] = []
        #: what was closed during the present call
        self.closed_now: list[str] = []

    def now_ms(self) -> int:
        """Processing time, which only the test moves."""
        return self.now

    def request_split(self) -> None:
        """Note the request."""
        self.requests += 1

    def count(self, name: str, increment: int = 1) -> None:
        """Count."""
        self.counts[name] = self.counts.get(name, 0) + increment

    def gauge(self, name: str, function: Callable[[], int | float]) -> None:
        """Note the gauge."""
        self.gauges[name] = function

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        """Note the records."""
        self.side += [(tag_id, value) for value in batch.values]

    def open_split(self, split_id: str) -> None:
        """The split is open; a second call changes nothing."""
        if split_id not in self.open_splits:
            self.open_splits.append(split_id)

    def close_split(self, split_id: str) -> None:
        """The split is no longer open."""
        if split_id in self.open_splits:
            self.open_splits.remove(split_id)
            self.closed_now.append(split_id)


class SinkHost:
    """A task as a writer or a committer sees it.

    Args:
        subtask_index: the subtask.
        parallelism: how many there are.
        attempt: which attempt of the job.
        job_id: the job.
        operator: the id of the sink's operator.
        run: tells this run from all others; by default the attempt does.
        restored: the checkpoint that the task began from.
        forerunners: the jobs that this one continues.
        owes_nothing: as in MICRO_BATCH, where each epoch commits before the next begins.
    """

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
        #: processing time, in ms
        self.now = 0
        #: what went to the client
        self.emitted: list[bytes] = []
        #: takes what goes to the client: (subtask, bytes)
        self.client: Callable[[int, bytes], Any] | None = None
        self.counts: dict[str, int] = {}

    def now_ms(self) -> int:
        """Processing time, which only the test moves."""
        return self.now

    def count(self, name: str, increment: int = 1) -> None:
        """Count."""
        self.counts[name] = self.counts.get(name, 0) + increment

    def emit_to_client(self, payload: bytes) -> None:
        """Note the bytes, and hand them to the client."""
        self.emitted.append(payload)
        if self.client is not None:
            self.client(self.subtask_index, payload)
