"""The result of `execute_and_collect`: the records of a running job, as they arrive."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from penstock.base.errors import CallTimeoutError
from penstock.connectors.collect import CollectedRecords
from penstock.drivers.cancellation import ends_on_second_interrupt, take_item

if TYPE_CHECKING:
    from penstock.drivers.running_job import RunningJob

__all__ = ["CloseableIterator"]

_log = logging.getLogger("penstock.job")


class CloseableIterator:
    """Iterates over the results of a running job. Closing it (or leaving its `with` block) cancels the job.

    Args:
        other_sinks: the names of the program's other sinks; a warning lists them if they are cancelled as well.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> with env.from_elements("tea", "milk").execute_and_collect() as results:
        ...     for word in results:
        ...         print(word)
        tea
        milk
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
        """Handle a frame from the job's collecting sink."""
        records = () if self._drops else self._records.take(frame)
        if records:
            self._arrived.put(records)

    def begin(self, job: RunningJob) -> None:
        """Attach the running job; its end is the end of the results."""
        self._job = job
        job.get_job_execution_result().add_done_callback(lambda future: self._arrived.put([]))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """Wait for the next result and return it. If the job fails, raise its error."""
        while True:
            for value in self._current:
                return value
            if self._ended:
                raise StopIteration
            self._take_arrived(None)

    def _take_arrived(self, timeout_seconds: float | None) -> None:
        """Continue with the next results. Raises the job's error if it fails, and `queue.Empty` at the timeout."""
        try:
            arrived = self._arrived.get_nowait()
        except queue.Empty:
            with ends_on_second_interrupt():
                arrived = take_item(self._arrived, timeout_seconds)
        self._current = iter(arrived)
        if not arrived:
            self._ended = True
            if self._job is not None:
                self._job.wait()

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait until the next result can be read, or the results have ended; no result is consumed.

        Args:
            timeout_ms: the maximum time to wait, in milliseconds; None for no limit.

        Raises:
            CallTimeoutError: if no result arrives in time and the job still runs.
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
        """The job that produces the results; None once they are closed."""
        return self._job

    def next(self) -> Any:
        """Wait for the next result and return it. Raises StopIteration at the end, or the job's error if it fails."""
        return self.__next__()

    def take(self, limit: int, is_bounded: bool) -> list[Any]:
        """Return at most `limit` results, and end the job.

        A job without other sinks is cancelled once the results have arrived, and so is an unbounded job. A bounded job
        with other sinks runs to its end, so that they get all records; its other results are dropped.

        Raises:
            JobExecutionError: if the job fails, even after the last requested result.
        """
        with self:
            results = list(islice(self, limit))
            if self._other_sinks and is_bounded and self._job is not None:
                self._drops = True
                self._job.wait()
            elif self._is_running():
                self._warn_of_other_sinks(f"the limit of {limit} records is reached")
                self._other_sinks = ()
            return results

    def _is_running(self) -> bool:
        return self._job is not None and not self._job.get_job_execution_result().done()

    def _warn_of_other_sinks(self, reason: str) -> None:
        if self._other_sinks:
            names = ", ".join(map(repr, self._other_sinks))
            _log.warning("%s, so the job is cancelled: uncommitted output of its sinks %s is lost", reason, names)

    def close(self) -> None:
        """Cancel the job if it is still running, and wait for its end."""
        if self._is_running():
            self._warn_of_other_sinks("the results are closed")
        job, self._job = self._job, None
        if job is not None:
            job.end()

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
