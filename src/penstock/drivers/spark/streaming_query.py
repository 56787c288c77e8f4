"""One Spark query that reads the streaming data frames of a job and passes its batches to the job's thread.

The frames are combined into one frame, so that there is one log of offsets. It has a column for each of them, and the
number of the frame that a row comes from. Spark calls back in its own thread, which waits until a checkpoint of the job
includes the batch. If the job ends before that, the query is stopped while the call still waits. Spark then begins no
further trigger, which would report the batch to its sources as complete.

The query's checkpoint location is a directory of this process, removed at its end, or by the next query if the process
is killed: see `query_position`.
"""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.drivers.held_directory import HeldDirectory
from penstock.drivers.spark.query_position import archive_position, lay_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: How often to check whether Spark has registered the stop of the query.
STOP_LOOK_SECONDS = 0.01


class StreamingBatch:
    """One batch of the query. Its rows may be read several times until the batch is released."""

    def __init__(self, frame: DataFrame, batch_id: int) -> None:
        self.batch_id = batch_id
        self._frame = frame
        self._is_over = threading.Event()

    @property
    def session(self) -> SparkSession:
        """The session of the batch; all frames that are combined with it must come from this session."""
        return self._frame.sparkSession

    def select_records(self, number: int) -> DataFrame:
        """Return the rows of one of the frames, in a column `record`."""
        from pyspark.sql import functions as sql

        return self._frame.where(f"source = {number}").select(sql.col(f"record{number}").alias("record"))

    def release(self) -> None:
        """Let Spark continue with the next batch."""
        self._is_over.set()

    def wait(self) -> None:
        """Wait for the release, in Spark's thread."""
        self._is_over.wait()


class FrameQuery:
    """See the module docstring. The query begins on construction; call `close` to end it.

    Args:
        frames: the frames to read, in the order of the archive.
        archive: the position to continue from; None to begin from the start.
        interval_ms: how often Spark looks for data; None to end when all available data has been read.
        name: the query's name on Spark's pages.

    Raises:
        Exception: whatever Spark raises when the query cannot begin.
    """

    def __init__(self, frames: Sequence[DataFrame], archive: bytes | None, interval_ms: int | None, name: str) -> None:
        self._batches: queue.SimpleQueue[StreamingBatch] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._at_hand: StreamingBatch | None = None
        self._is_closed = False
        self._directory = HeldDirectory("penstock-query-")
        self._location = self._directory.path
        try:
            if archive is not None:
                lay_out(archive, self._location)
            self._query = self._start(frames, interval_ms, name)
        except BaseException:
            self._directory.remove()
            raise

    def _start(self, frames: Sequence[DataFrame], interval_ms: int | None, name: str) -> StreamingQuery:
        writer = _as_one(frames).writeStream.foreachBatch(self._take).queryName(name)
        writer = writer.option("checkpointLocation", self._location.as_uri())
        if interval_ms is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{interval_ms} milliseconds").start()

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        """Take a batch; Spark calls this for each batch in a thread of its own."""
        batch = StreamingBatch(frame, batch_id)
        with self._lock:
            if self._is_closed:
                return
            self._at_hand = batch
        self._batches.put(batch)
        batch.wait()

    def next(self, for_ms: int) -> StreamingBatch | None:
        """Return the next batch if one comes within the given time; the caller must release it."""
        try:
            return self._batches.get(timeout=for_ms / 1000)
        except queue.Empty:
            return None

    @property
    def has_ended(self) -> bool:
        """Whether there will be no more batches.

        Raises:
            Exception: the exception that the query failed with.
        """
        if self._query.isActive:
            return False
        failure = self._query.exception()
        if failure is not None:
            raise failure
        return True

    @property
    def is_looking(self) -> bool:
        """Whether Spark is processing a trigger, so that a batch may come soon."""
        return bool(self._query.status["isTriggerActive"])

    def archive(self, batch_id: int) -> bytes:
        """Return the query's position including the current batch."""
        return archive_position(self._location, batch_id)

    def close(self) -> None:
        """End the query; a batch in progress does not count as complete."""
        stopper = threading.Thread(target=self._query.stop, name="penstock-stop-query", daemon=True)
        stopper.start()
        try:
            # Once the query is inactive, Spark begins no more triggers; it waits for the call in progress.
            while self._query.isActive and stopper.is_alive():
                stopper.join(STOP_LOOK_SECONDS)
        finally:
            with self._lock:
                self._is_closed = True
                if self._at_hand is not None:
                    self._at_hand.release()
        stopper.join()
        self._directory.remove()


def _as_one(frames: Sequence[DataFrame]) -> DataFrame:
    from pyspark.sql import functions as sql

    def part(number: int, frame: DataFrame) -> DataFrame:
        columns = [
            (sql.struct("*") if i == number else sql.lit(None).cast(other.schema)).alias(f"record{i}")
            for i, other in enumerate(frames)
        ]
        return frame.select(sql.lit(number).alias("source"), *columns)

    return functools.reduce(
        lambda combined, other: combined.union(other), [part(i, frame) for i, frame in enumerate(frames)]
    )
