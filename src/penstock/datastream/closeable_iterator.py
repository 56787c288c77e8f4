"""What `execute_and_collect` gives back: the results of a running job, as they come."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.connectors.collect import CollectedRecords

if TYPE_CHECKING:
    from penstock.drivers.running_job import RunningJob

__all__ = ["CloseableIterator"]


class CloseableIterator:
    """Results of a running job, as they come. Closing it (or leaving its `with` block) cancels the job."""

    def __init__(self) -> None:
        self._records = CollectedRecords()
        self._arrived: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._current: Iterator[Any] = iter(())
        self._job: RunningJob | None = None
        self._ended = False

    def on_frame(self, subtask_index: int, frame: bytes) -> None:
        """A frame of the job's collecting sink."""
        records = self._records.take(frame)
        if records:
            self._arrived.put(records)

    def begin(self, job: RunningJob) -> None:
        """The job runs; when it ends, so do the results."""
        self._job = job
        job.get_job_execution_result().add_done_callback(lambda future: self._arrived.put([]))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """The next result; waits for it. Raises what made the job fail."""
        while True:
            for value in self._current:
                return value
            if self._ended:
                raise StopIteration
            arrived = self._arrived.get()
            self._current = iter(arrived)
            if not arrived:
                self._ended = True
                if self._job is not None:
                    self._job.wait()

    def next(self) -> Any:
        """The next result; waits for it. Raises StopIteration at the end, and what made the job fail."""
        return self.__next__()

    def close(self) -> None:
        """Cancel the job, when it still runs, and wait for its end."""
        job, self._job = self._job, None
        if job is not None:
            job.end()

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
