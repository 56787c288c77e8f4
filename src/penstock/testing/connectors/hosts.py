"""Contexts for connectors under test: fakes of the job master and the tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.codecs.pickling import dumps_named, loads_named
from penstock.runtime.connector import late_split
from penstock.runtime.records import Batch


class EnumeratorHost:
    """A fake job master that hosts an enumerator; background work runs when the test asks for it.

    Args:
        parallelism: the number of readers.
        what: the source's name in errors.
    """

    receives_source_events = True

    def __init__(self, parallelism: int = 1, what: str = "the source") -> None:
        self.parallelism = parallelism
        self._what = what
        #: assigned splits that have not reached their readers: (subtask, split)
        self.assigned: list[tuple[int, Any]] = []
        #: readers to be notified that no split will follow
        self.finished: list[int] = []
        #: readers that have been notified of this, or are about to be
        self.told: set[int] = set()
        #: whether a split was assigned to one of these readers
        self.was_late = False
        #: work requested by `call_async`: (work, handler, delay in ms)
        self.background: list[tuple[Callable[[], Any], Callable[[Any, Any], None], int]] = []

    def assign_split(self, split: Any, subtask_index: int) -> None:
        """Queue a pickled copy of the split for the reader."""
        if subtask_index in self.told:
            self.was_late = True
            raise late_split(self._what, subtask_index)
        description = f"a split of {self._what}"
        self.assigned.append((subtask_index, loads_named(dumps_named(split, description), description)))

    def signal_no_more_splits(self, subtask_index: int) -> None:
        """Queue the notification of the reader."""
        self.told.add(subtask_index)
        self.finished.append(subtask_index)

    def call_async(self, work: Callable[[], Any], handler: Callable[[Any, Any], None], delay_ms: int = 0) -> None:
        """Queue the work."""
        self.background.append((work, handler, delay_ms))

    def run_background(self) -> None:
        """Run the work queued so far, once, ignoring its delays."""
        waiting, self.background = self.background, []
        for work, handler, _ in waiting:
            run_and_handle(work, handler)


def run_and_handle(work: Callable[[], Any], handler: Callable[[Any, Any], None]) -> None:
    """Run background work, and then the handler with its result or error."""
    result, error = None, None
    try:
        result = work()
    except Exception as caught:  # noqa: BLE001 - the handler decides
        error = caught
    handler(result, error)


class ReaderHost:
    """A fake task that hosts a reader."""

    def __init__(self, subtask_index: int = 0, parallelism: int = 1) -> None:
        self.subtask_index = subtask_index
        self.parallelism = parallelism
        #: processing time, in ms
        self.now = 0
        #: split requests that have not reached the enumerator
        self.requests = 0
        #: pickled events that have not reached the enumerator
        self.events: list[bytes] = []
        self.counts: dict[str, int] = {}
        self.gauges: dict[str, Callable[[], int | float]] = {}
        #: records of side outputs: (tag, value)
        self.side: list[tuple[str, Any]] = []
        self.open_splits: list[str] = []
        #: splits closed during the current call
        self.closed_now: list[str] = []

    def now_ms(self) -> int:
        """Return the processing time, which only the test advances."""
        return self.now

    def request_split(self) -> None:
        """Count the request."""
        self.requests += 1

    def send_source_event(self, event: Any) -> None:
        """Queue the event, pickled."""
        self.events.append(dumps_named(event, "an event of a reader"))

    def count(self, name: str, increment: int = 1) -> None:
        """Count."""
        self.counts[name] = self.counts.get(name, 0) + increment

    def gauge(self, name: str, function: Callable[[], int | float]) -> None:
        """Register the gauge."""
        self.gauges[name] = function

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        """Record the batch."""
        self.side += [(tag_id, value) for value in batch.values]

    def open_split(self, split_id: str) -> None:
        """Mark the split as open; a second call has no effect."""
        if split_id not in self.open_splits:
            self.open_splits.append(split_id)

    def close_split(self, split_id: str) -> None:
        """Mark the split as closed."""
        if split_id in self.open_splits:
            self.open_splits.remove(split_id)
            self.closed_now.append(split_id)


class SinkHost:
    """A fake task that hosts a writer or a committer.

    Args:
        subtask_index: the subtask.
        parallelism: the number of subtasks.
        attempt: the number of the job's attempt.
        job_id: the job.
        operator: the id of the sink's operator.
        run: an id that distinguishes this run from all others; by default the attempt.
        restored: the checkpoint that the task was restored from.
        forerunners: the jobs that this one continues.
        owes_nothing: set in MICRO_BATCH, where each epoch commits before the next begins.
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
        #: bytes sent to the client
        self.emitted: list[bytes] = []
        #: receives the bytes sent to the client: (subtask, bytes)
        self.client: Callable[[int, bytes], Any] | None = None
        self.counts: dict[str, int] = {}

    def now_ms(self) -> int:
        """Return the processing time, which only the test advances."""
        return self.now

    def count(self, name: str, increment: int = 1) -> None:
        """Count."""
        self.counts[name] = self.counts.get(name, 0) + increment

    def emit_to_client(self, payload: bytes) -> None:
        """Record the bytes, and pass them to the client."""
        self.emitted.append(payload)
        if self.client is not None:
            self.client(self.subtask_index, payload)
