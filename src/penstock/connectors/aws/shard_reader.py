"""`ShardReader` reads shards side by side, each by requests for records; it serves Kinesis and DynamoDB Streams.

Requests run in a few threads, one for a shard at a time and at most one ahead of the records that the task took; a poll
never waits. The service allows five requests a second for each shard; the reader keeps to that, waits after an answer
without records, and waits longer and longer when it is throttled nevertheless. While the service is away it tries
again, for a minute at most.

A position is the sequence number of the last record that the task has taken; numbers are compared as integers. A
position within an aggregated record also says how many of its user records were taken.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.base.errors import OperationError
from penstock.codecs.column_data import ColumnData
from penstock.connectors.aws import client
from penstock.connectors.aws.kinesis_records import KinesisDeserializationSchema, KinesisRecords
from penstock.connectors.aws.shards import Listing, ParentQuestion, ShardSplit
from penstock.connectors.base import refuse_or_skip
from penstock.runtime import connector
from penstock.runtime.columns import ColumnBatch, SplitColumnBatch
from penstock.runtime.records import Batch

#: How many requests for records a shard allows in `_SECOND_MS`.
REQUESTS_A_SECOND: Final = 5
_SECOND_MS: Final = 1_000
#: The delays (ms) after a request that is throttled or fails: the first, which doubles, and the greatest.
RETRY_MS: Final = 250
RETRY_MAX_MS: Final = 10_000
#: How long (ms) the service may be away before the job fails.
PATIENCE_MS: Final = 60_000
#: How soon (ms) the task looks for the answer to a request in flight.
_LOOK_MS: Final = 5
THREADS: Final = 4


class Fetched(NamedTuple):
    """The answer to a request for records.

    Attributes:
        records: the records.
        iterator: where the next request goes on; None at the end of a closed shard.
        behind_ms: how far the records are behind the newest of the shard.
    """

    records: KinesisRecords
    iterator: str | None
    behind_ms: int


class ShardService(ABC):
    """A service that has shards. Its methods are called in threads, and raise the errors of boto3."""

    @abstractmethod
    def list_shards(self) -> Listing:
        """Return all shards."""

    @abstractmethod
    def find_iterator(self, split: ShardSplit) -> str:
        """Return the iterator for a position."""

    @abstractmethod
    def fetch(self, split: ShardSplit, iterator: str, limit: int) -> Fetched:
        """Return the next records, at most `limit`."""

    def close(self) -> None:  # noqa: B027 - a service may have nothing to close
        """Close all connections."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How shards are read.

    Attributes:
        max_records: how many records a request asks for.
        empty_ms: how long to wait after an answer without records.
        nonempty_ms: how long to wait after an answer with records.
        threads: how many requests of a reader are in flight; with 0 they run in the task's thread, for tests.
    """

    max_records: int = 10_000
    empty_ms: int = 250
    nonempty_ms: int = 0
    threads: int = THREADS


class _Reading:
    """A shard that is being read."""

    def __init__(self, split: ShardSplit) -> None:
        self.split = split
        #: where the next request begins: after the records that wait
        self.ahead = split
        self.iterator: str | None = None
        self.request: Future[Fetched] | None = None
        self.waiting: deque[KinesisRecords] = deque()
        self.is_at_end = self.is_paused = False
        self.due_ms = 0
        self.requests_ms: deque[int] = deque(maxlen=REQUESTS_A_SECOND)
        self.failures = 0
        self.failing_since_ms: int | None = None
        self.behind_ms = 0

    @property
    def is_read(self) -> bool:
        """Whether the task has taken all records of a closed shard."""
        return self.is_at_end and not self.waiting

    def find_due_ms(self) -> int:
        """Return when the next request may be sent."""
        is_full = len(self.requests_ms) == REQUESTS_A_SECOND
        return max(self.due_ms, self.requests_ms[0] + _SECOND_MS if is_full else 0)


class ShardReader(connector.SourceReader[Any, ShardSplit | ParentQuestion]):
    """See the module docstring.

    Args:
        context: the context of the task.
        service: the service, which the reader closes.
        schema: makes records of the job.
        settings: how shards are read.
        what: the name of the source, for errors.
    """

    def __init__(
        self,
        context: connector.SourceReaderContext,
        service: ShardService,
        schema: KinesisDeserializationSchema[Any],
        settings: ReadSettings,
        what: str,
    ) -> None:
        self._context, self._service, self._schema = context, service, schema
        self._settings, self._what = settings, what
        self._readings: dict[str, _Reading] = {}
        self._turns: deque[str] = deque()
        #: shards that are read to their ends, but whose last batch the task may not have taken yet
        self._ended: list[str] = []
        self._questions: deque[ParentQuestion] = deque()
        self._is_last = False
        self._threads = ThreadPoolExecutor(settings.threads, "penstock-shards") if settings.threads else None
        context.gauge(
            "millisBehindLatest", lambda: max((each.behind_ms for each in self._readings.values()), default=0)
        )

    def start(self) -> None:
        """Register with the enumerator."""
        self._context.request_split()

    def poll_next(self, max_records: int) -> Batch | connector.InputStatus:
        """Return the next records of one shard."""
        while self._ended:
            self._context.close_split(self._ended.pop())
        self._answer()
        now_ms = self._context.now_ms()
        for shard_id in list(self._turns):
            self._turns.rotate(-1)
            reading = self._readings[shard_id]
            self._receive(reading, now_ms)
            batch = None if reading.is_paused else self._hand_out(reading, max_records)
            if reading.is_read:
                self._end(shard_id)
            else:
                self._request(reading, now_ms)
            if batch is not None:
                return batch
        if self._is_last and not self._readings and not self._ended:
            return connector.InputStatus.END_OF_INPUT
        return connector.InputStatus.NOTHING_AVAILABLE

    @property
    def _has_answer(self) -> bool:
        return bool(self._questions) and self._questions[0].shard_id not in self._readings

    def _answer(self) -> None:
        """Answer the question whose shard this reader has not, or not any more."""
        if self._has_answer:
            self._questions.popleft()
            self._context.request_split()

    def _end(self, shard_id: str) -> None:
        del self._readings[shard_id]
        self._turns.remove(shard_id)
        self._ended.append(shard_id)

    # --- requests ----------------------------------------------------------------------------------------------------

    def _request(self, reading: _Reading, now_ms: int) -> None:
        """Send a request for records, if one is due."""
        is_ahead = len(reading.waiting) > 1 or (reading.is_paused and reading.waiting)
        if reading.request is not None or reading.is_at_end or is_ahead or now_ms < reading.find_due_ms():
            return
        reading.requests_ms.append(now_ms)
        if self._threads is not None:
            reading.request = self._threads.submit(self._fetch, reading.ahead, reading.iterator)
            return
        reading.request = Future()
        try:
            reading.request.set_result(self._fetch(reading.ahead, reading.iterator))
        except Exception as error:  # noqa: BLE001 - as a thread would keep it
            reading.request.set_exception(error)

    def _fetch(self, split: ShardSplit, iterator: str | None) -> Fetched:
        """Return the next records. Called in a thread."""
        if iterator is None:
            iterator = self._service.find_iterator(split)
        return self._service.fetch(split, iterator, self._settings.max_records)

    def _receive(self, reading: _Reading, now_ms: int) -> None:
        """Take the answer to a request, if there is one."""
        request = reading.request
        if request is None or not request.done():
            return
        reading.request = None
        error = request.exception()
        if error is not None:
            self._retry(reading, error, now_ms)
            return
        fetched = request.result()
        reading.failures, reading.failing_since_ms = 0, None
        reading.iterator, reading.behind_ms = fetched.iterator, fetched.behind_ms
        reading.is_at_end = fetched.iterator is None
        records = drop_read(reading.ahead, fetched.records)
        wait_ms = self._settings.nonempty_ms if len(fetched.records) else self._settings.empty_ms
        # An empty answer before the end of the shard is a gap, and the next answer may have records.
        reading.due_ms = now_ms + (0 if not len(fetched.records) and fetched.behind_ms else wait_ms)
        if len(records):
            reading.waiting.append(records)
            reading.ahead = replace(reading.ahead, sequence_number=records.sequence_numbers[-1], emitted=None)

    def _retry(self, reading: _Reading, error: BaseException, now_ms: int) -> None:
        """Note that a request failed; raise the error if it does not pass."""
        code, shard_id = client.read_code(error), reading.split.shard_id
        if code in ("ExpiredIteratorException", "ExpiredIterator"):
            reading.iterator = None  # it was idle for too long; the position is still good
            return
        if code in ("ResourceNotFoundException", "TrimmedDataAccessException"):
            raise OperationError(
                f"{self._what} cannot read shard {shard_id} after sequence number {reading.ahead.sequence_number}: it "
                "does not exist any more, so its unread records are lost. Let the stream keep records for longer than "
                "the job may be interrupted; start the job without the checkpoint to go on without them"
            ) from error
        if not client.is_passing(error):
            raise OperationError(f"{self._what} cannot read shard {shard_id}: {client.describe(error)}") from error
        is_throttled = client.is_throttled(error)
        self._context.count("numThrottled" if is_throttled else "numConnectionFailures")
        if not is_throttled:
            reading.iterator = None
            reading.failing_since_ms = reading.failing_since_ms or now_ms
            if now_ms - reading.failing_since_ms > PATIENCE_MS:
                raise OperationError(
                    f"{self._what} has no answer about shard {shard_id} for {PATIENCE_MS // 1_000} s: "
                    f"{client.describe(error)}"
                ) from error
        delay_ms = min(RETRY_MAX_MS, RETRY_MS * 2 ** min(reading.failures, 10))
        reading.failures += 1
        reading.due_ms = now_ms + int(delay_ms * random.uniform(1, 1.5))

    # --- records -----------------------------------------------------------------------------------------------------

    def _hand_out(self, reading: _Reading, max_records: int) -> Batch | None:
        """Return the next records that wait; None if they make no records of the job."""
        while reading.waiting:
            records = reading.waiting.popleft()
            if len(records) > max_records:
                reading.waiting.appendleft(records[max_records:])
                records = records[:max_records]
            batch = self._decode(reading.split.shard_id, records)
            reading.split = advance(reading.split, records, reading.waiting[0] if reading.waiting else None)
            if batch is not None:
                return batch
        return None

    def _decode(self, shard_id: str, records: KinesisRecords) -> Batch | None:
        deserialized = self._schema.deserialize_batch(records)
        self._context.count("numBytesIn", sum(map(len, records.data)))
        if deserialized.bad:
            self._context.count("numRecordsInErrors", len(deserialized.bad))
            refuse_or_skip(
                deserialized.bad,
                records.data,
                lambda index: (shard_id, int(records.sequence_numbers[index])),
                self._context,
                self._schema.on_error,
                self._schema.malformed_output,
            )
        if not len(deserialized.values):
            return None
        times = list(deserialized.of_records(records.timestamps))
        if isinstance(deserialized.values, ColumnData):
            batch = ColumnBatch(deserialized.values, np.asarray(times, np.int64), deserialized.kinds)
            return SplitColumnBatch(batch, shard_id)
        return connector.SplitBatch(deserialized.values, times, shard_id, deserialized.kinds)

    # --- splits ------------------------------------------------------------------------------------------------------

    def add_splits(self, splits: Sequence[ShardSplit | ParentQuestion]) -> None:
        """See `SourceReader`."""
        for split in splits:
            if isinstance(split, ParentQuestion):
                self._questions.append(split)
                continue
            self._readings[split.shard_id] = _Reading(split)
            self._turns.append(split.shard_id)
            self._context.open_split(split.shard_id)

    def no_more_splits(self) -> None:
        """See `SourceReader`."""
        self._is_last = True

    def snapshot_state(self, checkpoint_id: int) -> list[ShardSplit | ParentQuestion]:
        """Return the shards with their positions; the enumerator repeats its questions."""
        return [reading.split for reading in self._readings.values()]

    def pause_or_resume_splits(self, splits_to_pause: Sequence[str], splits_to_resume: Sequence[str]) -> None:
        """See `SourceReader`."""
        for splits, is_paused in ((splits_to_pause, True), (splits_to_resume, False)):
            for shard_id in splits:
                if shard_id in self._readings:
                    self._readings[shard_id].is_paused = is_paused

    def retry_after_ms(self) -> int:
        """Return a short time while an answer is awaited."""
        if self._ended or self._has_answer:
            return 1
        if any(each.request is not None and not each.is_paused for each in self._readings.values()):
            return _LOOK_MS if self._threads is not None else 1
        return super().retry_after_ms()

    def close(self) -> None:
        """Close the connections."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._service.close()


def drop_read(split: ShardSplit, records: KinesisRecords) -> KinesisRecords:
    """Return the records after a position; of an aggregated record some user records may be left."""
    if split.sequence_number is None:
        return records
    last = int(split.sequence_number)
    start = 0
    for number, index in zip(records.sequence_numbers, records.sub_sequence_numbers, strict=True):
        if int(number) > last or (int(number) == last and split.emitted is not None and index >= split.emitted):
            break
        start += 1
    return records[start:] if start else records


def advance(split: ShardSplit, read: KinesisRecords, following: KinesisRecords | None) -> ShardSplit:
    """Return the position after records that were read. `following`: the next ones, if they are known."""
    number = read.sequence_numbers[-1]
    is_within = following is not None and following.sequence_numbers[0] == number
    emitted = read.sub_sequence_numbers[-1] + 1 if is_within else None
    return replace(split, sequence_number=number, emitted=emitted)
