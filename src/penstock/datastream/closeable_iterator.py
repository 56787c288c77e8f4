"""What `execute_and_collect` gives back: the results of a running job, as they come."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from penstock.base.errors import CallTimeoutError
from penstock.connectors.collect import CollectedRecords
from penstock.drivers.interrupts import ends_on_second_interrupt, next_of

if TYPE_CHECKING:
    from penstock.drivers.running_job import RunningJob

__all__ = ["CloseableIterator"]

_log = logging.getLogger("penstock.job")


class CloseableIterator:
    """Results of a running job, as they come. Closing it (or leaving its `with` block) cancels the job.

    Args:
        other_sinks: the names of the program's other sinks; a warning names them when they are cancelled too.
    """

    def __init__(self, other_sinks: Sequence[str] = ()) -> None:
        self._other_sinks = other_sinks
        self._drops = False
        self._records = CollectedRecords()
        self._arrived: queue.SimpleQueue[Sequence[Any]] = queue.SimpleQueue()
        self._current: Iterator[Any] = iter(())
        self._job: RunningJob | None = None
        self._ended = False

    def on_frame(self, subtask_index: int, frame: bytes) -> None:
        """A frame of the job's collecting sink."""
        records = () if self._drops else self._records.take(frame)
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
            self._take_arrived(None)

    def _take_arrived(self, timeout_seconds: float | None) -> None:
        """Go on with the results that arrive next. Raises what made the job fail, and `queue.Empty` at the timeout."""
        try:
            arrived = self._arrived.get_nowait()
        except queue.Empty:
            with ends_on_second_interrupt():
                arrived = next_of(self._arrived, timeout_seconds)
        self._current = iter(arrived)
        if not arrived:
            self._ended = True
            if self._job is not None:
                self._job.wait()

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait until the next result can be read, or there are no more; all results stay.

        Args:
            timeout_ms: how long to wait at most, in milliseconds; None for no limit.

        Raises:
            CallTimeoutError: if there is no result by then and the job still runs.
            JobExecutionError: if the job fails before.
        """
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while not self._ended:
            for value in self._current:
                self._current = chain((value,), self._current)
                return
            try:
                self._take_arrived(None if deadline is None else max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise CallTimeoutError(f"no result within {timeout_ms} ms; the job still runs") from None

    @property
    def job(self) -> RunningJob | None:
        """The job that makes the results; None once they are closed."""
        return self._job

    def next(self) -> Any:
        """The next result; waits for it. Raises StopIteration at the end, and what made the job fail."""
        return self.__next__()

    def take(self, limit: int, is_bounded: bool) -> list[Any]:
        """At most `limit` results; then the job is over.

        A job without other sinks is cancelled once the results are there, and so is a job that never ends. A bounded
        job with other sinks goes on to its end, so that they get all records. Its other results are dropped.

        Raises:
            JobExecutionError: if the job fails, also after the last result that is wanted.
        """
        with self:
            taken = list(islice(self, limit))
            if self._other_sinks and is_bounded and self._job is not None:
                self._drops = True
                self._job.wait()
            elif self._is_running():
                self._warn_of_other_sinks(f"the limit of {limit} records is reached")
                self._other_sinks = ()
            return taken

    def _is_running(self) -> bool:
        return self._job is not None and not self._job.get_job_execution_result().done()

    def _warn_of_other_sinks(self, reason: str) -> None:
        if self._other_sinks:
            names = ", ".join(map(repr, self._other_sinks))
            _log.warning("%s, so the job is cancelled: uncommitted output of its sinks %s is lost", reason, names)

    def close(self) -> None:
        """Cancel the job if it still runs, and wait for its end."""
        if self._is_running():
            self._warn_of_other_sinks("the results are closed")
        job, self._job = self._job, None
        if job is not None:
            job.end()

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
