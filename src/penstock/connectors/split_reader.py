"""Sources whose splits are known from the start: their readers and enumerators, their rates, and generating sources.

`PositionedReader` and `SeriesReader` read a split's records from a position: collections, numbers, generators.
`SplitQueue` and `SeriesQueue` are their enumerators, and `DiscoveredSplits` that of splits that a server lists.
`ReadAheadReader` reads a split in a thread (`Background`), some rows ahead, so that the task does not block while a
server responds.

`RateLimiter`: a source that generates records emits them at a rate, or N of them between two checkpoints.

`DataGeneratorSource` calls a function with each index; `NumberSequenceSource` emits integers.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Generic, TypeVar

from penstock.base.errors import ConfigurationError
from penstock.runtime import connector
from penstock.runtime.columns import ColumnBatch, SplitColumnBatch
from penstock.runtime.operators.results import holds_objects, with_copies
from penstock.runtime.records import Batch

#: How much a source that was delayed by its host may catch up, in ms of its rate.
_CATCH_UP_MS: Final = 1_000
#: How long (ms) a source waits before it checks again whether a checkpoint has completed.
_CHECKPOINT_POLL_MS: Final = 10


class RateLimiter(ABC):
    """Counts the records of one subtask; the reader reports time, records and checkpoints."""

    @abstractmethod
    def allowance(self, now_ms: int) -> int:
        """Return the number of records that may be emitted now."""

    @abstractmethod
    def spend(self, records: int) -> None:
        """Count emitted records."""

    @abstractmethod
    def retry_after_ms(self) -> int:
        """Return the time until a record may be emitted, in ms, at least 1."""

    @abstractmethod
    def share(self, factor: float) -> None:
        """Multiply the even share of the subtask by a factor, because it reads more or fewer splits than others."""

    def begin_at(self, time_ms: int) -> None:  # noqa: B027 - for limits by time
        """Count from an earlier time (ms): no records have been emitted since then."""

    def notify_checkpoint_complete(self) -> None:  # noqa: B027 - most limits do not care
        """Note that a checkpoint has completed."""


class RateLimit(RateLimiter):
    """Limits records to a rate, by a clock that the caller reads.

    Args:
        per_second: the records per second.
        now_ms: the time at which counting begins.
    """

    def __init__(self, per_second: float, now_ms: int) -> None:
        self._even_per_ms = self._per_ms = per_second / 1_000
        self._credit = 0.0
        self._credited_ms = now_ms

    def allowance(self, now_ms: int) -> int:
        """Return the number of records that may be emitted now, including the unused ones of the last second."""
        self._credit += max(now_ms - self._credited_ms, 0) * self._per_ms
        self._credit = min(self._credit, max(self._per_ms * _CATCH_UP_MS, 1.0))
        self._credited_ms = max(now_ms, self._credited_ms)
        return int(self._credit)

    def spend(self, records: int) -> None:
        """Count emitted records."""
        self._credit -= records

    def retry_after_ms(self) -> int:
        """Return the time until a record may be emitted, in ms, at least 1."""
        return max(int((1.0 - self._credit) / self._per_ms) + 1, 1)

    def share(self, factor: float) -> None:
        """See `RateLimiter`."""
        self._per_ms = self._even_per_ms * factor

    def begin_at(self, time_ms: int) -> None:
        """See `RateLimiter`."""
        self._credited_ms = min(self._credited_ms, time_ms)


class CheckpointLimit(RateLimiter):
    """Allows N records, and N more after each completed checkpoint; without checkpoints, it stops after the first N."""

    def __init__(self, per_checkpoint: int) -> None:
        self._even = self._per_checkpoint = per_checkpoint
        self._left = per_checkpoint

    def allowance(self, now_ms: int) -> int:
        """Return the number of records left until the next checkpoint."""
        return self._left

    def spend(self, records: int) -> None:
        """Count emitted records."""
        self._left -= records

    def retry_after_ms(self) -> int:
        """Return a short time: it is unknown when the checkpoint will complete, so the source checks again soon."""
        return _CHECKPOINT_POLL_MS

    def share(self, factor: float) -> None:
        """See `RateLimiter`; at least one record."""
        spent = self._per_checkpoint - self._left
        self._per_checkpoint = max(1, int(self._even * factor))
        self._left = self._per_checkpoint - spent

    def notify_checkpoint_complete(self) -> None:
        """Allow N records again."""
        self._left = self._per_checkpoint


@dataclass(frozen=True, slots=True)
class RateLimiterStrategy:
    """Creates the limiter of each subtask; the limit applies to all subtasks together. Use the static methods.

    Examples:
        >>> from penstock.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
        >>> limit = RateLimiterStrategy.per_second(100)
        >>> source = DataGeneratorSource(str, count=1_000, rate_limiter_strategy=limit)
    """

    records_per_second: float | None = None
    records_per_checkpoint: int | None = None

    @staticmethod
    def per_second(records_per_second: float) -> RateLimiterStrategy:
        """Allow at most this many records per second.

        Raises:
            ConfigurationError: if the rate is not positive.
        """
        if records_per_second <= 0:
            raise ConfigurationError(f"the rate must be positive: {records_per_second}")
        return RateLimiterStrategy(records_per_second=records_per_second)

    @staticmethod
    def per_checkpoint(records_per_checkpoint: int) -> RateLimiterStrategy:
        """Allow at most this many records between two completed checkpoints; they are divided among the subtasks.

        Raises:
            ConfigurationError: if the number is not positive; in the job, if it is below the source's parallelism.
        """
        if records_per_checkpoint <= 0:
            raise ConfigurationError(f"the records per checkpoint must be positive: {records_per_checkpoint}")
        return RateLimiterStrategy(records_per_checkpoint=records_per_checkpoint)

    @staticmethod
    def no_op() -> RateLimiterStrategy:
        """Set no limit."""
        return RateLimiterStrategy()

    def create_rate_limiter(self, parallelism: int, now_ms: int) -> RateLimiter | None:
        """Create the limiter of one of `parallelism` subtasks; None for no limit."""
        if self.records_per_second is not None:
            return RateLimit(self.records_per_second / parallelism, now_ms)
        if self.records_per_checkpoint is not None:
            if self.records_per_checkpoint < parallelism:
                raise ConfigurationError(
                    f"{self.records_per_checkpoint} records per checkpoint are too few for {parallelism} subtasks: "
                    "allow at least one per subtask, or lower the source's parallelism"
                )
            return CheckpointLimit(self.records_per_checkpoint // parallelism)
        return None


SplitT = TypeVar("SplitT")


class PositionedReader(connector.SourceReader[Any, SplitT], Generic[SplitT]):
    """Reads splits in order; a split is immutable and holds its own position (G8)."""

    #: set by readers with a rate limit
    _limit: RateLimiter | None = None

    def __init__(self, context: connector.SourceReaderContext) -> None:
        self._context = context
        self._splits: deque[SplitT] = deque()
        self._requested = False
        self._no_more = False

    @abstractmethod
    def read(self, split: SplitT, max_records: int) -> tuple[Batch, SplitT] | connector.InputStatus | None:
        """Return the next records, at least one, and the split after them; None at the end of the split.

        Return NOTHING_AVAILABLE if no record is ready yet.
        """

    def poll_next(self, max_records: int) -> Batch | connector.InputStatus:
        """Return at most `max_records` records, or a status if no record is ready."""
        max_records = self.allowance(max_records)
        if max_records <= 0:
            return connector.InputStatus.NOTHING_AVAILABLE
        while self._splits:
            result = self.read(self._splits[0], max_records)
            if isinstance(result, connector.InputStatus):
                return result
            if result is not None:
                batch, self._splits[0] = result
                return batch
            self.end_split(self._splits.popleft())
        if self._no_more:
            return connector.InputStatus.END_OF_INPUT
        if not self._requested:
            self._requested = True
            self._context.request_split()
        return connector.InputStatus.NOTHING_AVAILABLE

    def allowance(self, max_records: int) -> int:
        """Return how many records may be emitted now: at most as many as the rate allows."""
        if self._limit is None or not self._splits:
            return max_records
        return min(max_records, self._limit.allowance(self._context.now_ms()))

    def retry_after_ms(self) -> int:
        """Return the time until the rate allows a record; without a rate, see `SourceReader`."""
        return super().retry_after_ms() if self._limit is None else self._limit.retry_after_ms()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify the rate limiter, because some rates are per checkpoint."""
        if self._limit is not None:
            self._limit.notify_checkpoint_complete()

    def held_back_ms(self) -> int | None:
        """See `SourceReader`."""
        return None if self._limit is None or not self._splits else self._limit.retry_after_ms()

    def begin_at(self, time_ms: int) -> None:
        """See `SourceReader`."""
        if self._limit is not None:
            self._limit.begin_at(time_ms)

    def end_split(self, split: SplitT) -> None:
        """Called when the split has no more records; a hook."""

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Add splits to read."""
        self._splits.extend(splits)
        self._requested = False

    def no_more_splits(self) -> None:
        """Note that no further splits will come."""
        self._no_more = True

    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        """Return the splits with their positions."""
        return list(self._splits)


class SeriesReader(PositionedReader[SplitT], Generic[SplitT]):
    """Reads all its splits side by side; the split at the lowest place comes first.

    The splits are series of one source that generates records 0, 1, 2 and so on, and they share its event time. Subtask
    i of n reads the series i, i + n, i + 2n and so on. After a restore at another parallelism, a subtask may have
    several series. Each has its own watermark, so no series is late because another one is ahead.
    """

    def __init__(self, context: connector.SourceReaderContext) -> None:
        super().__init__(context)
        self._paused: frozenset[str] = frozenset()

    @abstractmethod
    def get_series_name(self, split: SplitT) -> str:
        """Return the name of the series, regardless of its position."""

    @abstractmethod
    def get_series_step(self, split: SplitT) -> int:
        """Return the distance between two records of the series: the number of all series of its source."""

    @abstractmethod
    def get_series_position(self, split: SplitT) -> Any:
        """Return how far the series has come, as a value comparable across series."""

    def compute_series_share(self, max_records: int) -> int:
        """Return one series' share of `max_records`, at least 1, so that no series runs far ahead of the others."""
        return max(1, max_records // len(self._splits))

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """See `PositionedReader`."""
        super().add_splits(splits)
        if self._limit is not None:
            self._limit.share(
                sum(1 / self.get_series_step(split) for split in self._splits) * self._context.parallelism
            )
        for split in splits:
            self._context.open_split(self.get_series_name(split))

    def end_split(self, split: SplitT) -> None:
        """See `PositionedReader`."""
        self._context.close_split(self.get_series_name(split))

    def poll_next(self, max_records: int) -> Batch | connector.InputStatus:
        """Return records of the series with the lowest place that is not paused."""
        if not self._requested and not self._no_more:
            # Restored splits may not be all of this subtask's; requested at their end, the others would never arrive.
            self._requested = True
            self._context.request_split()
        if len(self._splits) > 1 or self._paused:
            self._splits = deque(sorted(self._splits, key=self._get_priority))
            if self._splits and self.get_series_name(self._splits[0]) in self._paused:
                return connector.InputStatus.NOTHING_AVAILABLE
        result = super().poll_next(max_records)
        if not isinstance(result, Batch):
            return result
        name = self.get_series_name(self._splits[0])
        if isinstance(result, ColumnBatch):
            return SplitColumnBatch(result, name)
        return connector.SplitBatch(result.values, result.timestamps, name, result.kinds)

    def _get_priority(self, split: SplitT) -> tuple[bool, Any]:
        return self.get_series_name(split) in self._paused, self.get_series_position(split)

    def pause_or_resume_splits(self, splits_to_pause: Sequence[str], splits_to_resume: Sequence[str]) -> None:
        """See `SourceReader`."""
        self._paused = (self._paused | {*splits_to_pause}) - {*splits_to_resume}


class SplitQueue(connector.SplitEnumerator[SplitT], Generic[SplitT]):
    """Assigns a fixed list of splits, each to the next reader that asks; its state is the remaining splits (G8)."""

    def __init__(
        self, context: connector.SplitEnumeratorContext[SplitT], splits: Iterable[SplitT], restored: Any | None
    ) -> None:
        self._context = context
        self._splits: deque[SplitT] = deque(splits if restored is None else restored)

    def start(self) -> None:
        """Do nothing, because the splits are known."""

    def handle_split_request(self, subtask_index: int) -> None:
        """Assign the next split, or signal that no splits are left."""
        if self._splits:
            self._context.assign_split(self._splits.popleft(), subtask_index)
        else:
            self._context.signal_no_more_splits(subtask_index)

    def add_splits_back(self, splits: Sequence[SplitT], subtask_index: int) -> None:
        """Put splits back, to be assigned first."""
        self._splits.extendleft(reversed(splits))

    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        """Return the remaining splits."""
        return list(self._splits)


class SeriesQueue(SplitQueue[SplitT]):
    """Reserves each split for one subtask: read by another one after its own, it would be too late for its event time.

    Args:
        context: the enumerator's context.
        splits: one for each subtask.
        restored: the result of `snapshot_state`.
        number_of: returns the number of a split; subtask i of n reads the numbers i, i + n, i + 2n and so on.
    """

    def __init__(
        self,
        context: connector.SplitEnumeratorContext[SplitT],
        splits: Iterable[SplitT],
        restored: Any | None,
        number_of: Callable[[SplitT], int],
    ) -> None:
        super().__init__(context, splits, restored)
        self._number_of = number_of

    def handle_split_request(self, subtask_index: int) -> None:
        """Assign all splits of the subtask, and signal that it gets no more."""
        for split in list(self._splits):
            if self._number_of(split) % self._context.parallelism == subtask_index:
                self._splits.remove(split)
                self._context.assign_split(split, subtask_index)
        self._context.signal_no_more_splits(subtask_index)


class DiscoveredSplits(connector.SplitEnumerator[SplitT], Generic[SplitT]):
    """Finds the splits once, elsewhere, and assigns each to the next reader that asks (G8).

    Args:
        context: the enumerator's context.
        find: finds the splits; called once, outside the task, and not after a restore.
        restored: the result of `snapshot_state`.
    """

    def __init__(
        self,
        context: connector.SplitEnumeratorContext[SplitT],
        find: Callable[[], list[SplitT]],
        restored: Any | None,
    ) -> None:
        self._context, self._find = context, find
        self._splits: list[SplitT] | None = restored
        self._waiting: list[int] = []

    def start(self) -> None:
        """Find the splits."""
        if self._splits is None:
            self._context.call_async(self._find, self._on_found)

    def _on_found(self, splits: list[SplitT] | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        self._splits = splits
        waiting, self._waiting = self._waiting, []
        for subtask_index in waiting:
            self.handle_split_request(subtask_index)

    def handle_split_request(self, subtask_index: int) -> None:
        """Assign a split, or signal that none is left."""
        if self._splits is None:
            self._waiting.append(subtask_index)
        elif self._splits:
            self._context.assign_split(self._splits.pop(0), subtask_index)
        else:
            self._context.signal_no_more_splits(subtask_index)

    def add_splits_back(self, splits: Sequence[SplitT], subtask_index: int) -> None:
        """Take splits back."""
        self._waiting = [other for other in self._waiting if other != subtask_index]
        if splits:
            self._splits = [*splits, *(self._splits or [])]

    def snapshot_state(self, checkpoint_id: int) -> list[SplitT] | None:
        """Return the splits that were not assigned; None if they are not known yet."""
        return None if self._splits is None else list(self._splits)


T = TypeVar("T")

#: How many items to read ahead.
_AHEAD: Final = 3
_WAIT_S: Final = 0.05


class Background(Generic[T]):
    """Runs an iterator in its own thread, a few items ahead.

    Args:
        make: creates the iterator, in the thread.
        interrupt: unblocks a call that hangs in the iterator; called by `close`.
    """

    def __init__(self, make: Callable[[], Iterator[T]], interrupt: Callable[[], None]) -> None:
        self._items: queue.Queue[Any] = queue.Queue(_AHEAD)
        self._is_closed = threading.Event()
        self._interrupt = interrupt
        self._error: BaseException | None = None
        self._is_done = False
        self._thread = threading.Thread(target=self._run, args=(make,), name="source-read-ahead", daemon=True)
        self._thread.start()

    def _run(self, make: Callable[[], Iterator[T]]) -> None:
        items = make()
        try:
            for item in items:
                if not self._put((item, None)):
                    return
            self._put((None, StopIteration()))
        except BaseException as error:  # noqa: BLE001 - it is raised where the items are taken
            self._put((None, error))
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                with contextlib.suppress(Exception):  # an interrupted query raises here
                    close()

    def _put(self, entry: Any) -> bool:
        while not self._is_closed.is_set():
            try:
                self._items.put(entry, timeout=_WAIT_S)
            except queue.Full:
                continue
            return True
        return False

    @property
    def is_done(self) -> bool:
        """Whether `take` has reported the iterator's end or its error."""
        return self._is_done

    def take(self, wait_s: float = 0.0) -> T | None:
        """Return the next item, or None if none arrives within `wait_s`. Raises any error that the iterator raised."""
        if self._is_done:
            return None
        try:
            item, error = self._items.get(timeout=wait_s) if wait_s > 0 else self._items.get_nowait()
        except queue.Empty:
            return None
        if isinstance(error, StopIteration):
            self._is_done = True
            return None
        if error is not None:
            self._is_done = True
            raise error
        return item  # type: ignore[no-any-return]

    def close(self) -> None:
        """Stop the thread and wait for it to end."""
        self._is_closed.set()
        if self._thread.is_alive():
            self._interrupt()
        self._thread.join()


RowsT = TypeVar("RowsT")

#: How long (s) a poll waits for rows that are being read: too short to be noticed, and usually long enough. The next
#: poll follows at once.
WAIT_S: Final = 0.01


class ReadAheadReader(PositionedReader[SplitT], Generic[SplitT, RowsT]):
    """Reads its splits one after the other."""

    def __init__(self, context: connector.SourceReaderContext) -> None:
        super().__init__(context)
        self._background: Background[RowsT] | None = None
        #: rows that were read but not handed out yet
        self._rows: RowsT | None = None

    @abstractmethod
    def begin(self, split: SplitT) -> Background[RowsT]:
        """Begin to read at the split's position."""

    @abstractmethod
    def part(self, split: SplitT, rows: RowsT, max_records: int) -> tuple[Batch, SplitT]:
        """Return some of the rows and the split after them; set `_rows` to the remaining rows, or None."""

    def on_end(self, split: SplitT) -> None:
        """Called when a split was read to its end; a hook."""

    def read(self, split: SplitT, max_records: int) -> tuple[Batch, SplitT] | connector.InputStatus | None:
        """See `PositionedReader`."""
        if self._rows is None:
            if self._background is None:
                self._background = self.begin(split)
            self._rows = self._background.take(WAIT_S)
            if self._rows is None:
                if not self._background.is_done:
                    return connector.InputStatus.NOTHING_AVAILABLE
                self.close_split()
                self.on_end(split)
                return None
        return self.part(split, self._rows, max_records)

    def close_split(self) -> None:
        """Stop the current read."""
        background, self._background, self._rows = self._background, None, None
        if background is not None:
            background.close()

    def retry_after_ms(self) -> int:
        """Return 0 while a split is being read: an epoch that has begun to read it waits for the rest."""
        return 0 if self._background is not None else super().retry_after_ms()

    def close(self) -> None:
        """Stop reading."""
        self.close_split()


@dataclass(frozen=True, slots=True)
class GeneratorSplit:
    """The indexes `position`, `position + step`, … below `stop` (None: unbounded)."""

    position: int
    step: int
    stop: int | None

    @property
    def number(self) -> int:
        """The number of the series, independent of the position."""
        return self.position % self.step


class DataGeneratorSource(connector.Source[T, GeneratorSplit]):
    """Emits `function(0)`, `function(1)`, …, distributed over all subtasks (G8: the position is an index).

    Subtask i of n emits the series i, i + n, i + 2n, …, so that all subtasks advance together. After a restore at
    another parallelism a subtask may own several series: it reads them side by side, each with its own watermark, and
    gets their shares of the rate.

    Args:
        function: returns the record of an index; it must return the same record for the same index at every call. It
            may reuse an object: its records are copied if it holds mutable objects.
        count: the number of records; None for no end.
        rate_per_second: records per second over all subtasks; None for no limit.
        timestamps: returns the event time (ms) of an index; None for no event times.
        rate_limiter_strategy: another way to limit the rate, or the number of records per checkpoint.

    Raises:
        ConfigurationError: if the count is negative, the rate is not positive, or the rate is given both ways.

    Examples:
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors.datagen import DataGeneratorSource
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> source = DataGeneratorSource(lambda index: f"cup {index}", count=3)
        >>> env.from_source(source, WatermarkStrategy.no_watermarks(), "cups").collect()
        ['cup 0', 'cup 1', 'cup 2']
    """

    def __init__(
        self,
        function: Callable[[int], T],
        count: int | None = None,
        rate_per_second: float | None = None,
        timestamps: Callable[[int], int] | None = None,
        rate_limiter_strategy: RateLimiterStrategy | None = None,
    ) -> None:
        if count is not None and count < 0:
            raise ConfigurationError(f"the count must not be negative: {count}")
        if rate_per_second is not None:
            if rate_limiter_strategy is not None:
                raise ConfigurationError("give rate_per_second or rate_limiter_strategy, not both")
            rate_limiter_strategy = RateLimiterStrategy.per_second(rate_per_second)
        self._function = function
        self._count = count
        self._strategy = rate_limiter_strategy or RateLimiterStrategy.no_op()
        self._timestamps = timestamps

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded if a count is given."""
        return connector.Boundedness.CONTINUOUS_UNBOUNDED if self._count is None else connector.Boundedness.BOUNDED

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[GeneratorSplit], restored: Any | None
    ) -> connector.SplitEnumerator[GeneratorSplit]:
        """Return an enumerator that assigns one series of indexes to each subtask."""
        step = context.parallelism
        splits = [GeneratorSplit(i, step, self._count) for i in range(step)]
        return SeriesQueue(context, splits, restored, lambda split: split.number)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[T, GeneratorSplit]:
        """Return a new reader."""
        limiter = self._strategy.create_rate_limiter(context.parallelism, context.now_ms())
        return _GeneratorReader(context, self._function, self._timestamps, limiter)


class _GeneratorReader(SeriesReader[GeneratorSplit]):
    def __init__(
        self,
        context: connector.SourceReaderContext,
        function: Callable[[int], Any],
        timestamps: Callable[[int], int] | None,
        limit: RateLimiter | None,
    ) -> None:
        super().__init__(context)
        self._function = with_copies(function) if holds_objects(function) else function
        self._timestamps = timestamps
        self._limit = limit

    def get_series_name(self, split: GeneratorSplit) -> str:
        return f"{split.number} of {split.step}"

    def get_series_position(self, split: GeneratorSplit) -> int:
        return split.position

    def get_series_step(self, split: GeneratorSplit) -> int:
        return split.step

    def read(self, split: GeneratorSplit, max_records: int) -> tuple[Batch, GeneratorSplit] | None:
        stop = split.position + self.compute_series_share(max_records) * split.step
        indexes = range(split.position, stop if split.stop is None else min(stop, split.stop), split.step)
        if not indexes:
            return None
        if self._limit is not None:
            self._limit.spend(len(indexes))
        timestamps = (
            None
            if self._timestamps is None
            else connector.call_each(self._timestamps, indexes, "the function of timestamps")
        )
        following = replace(split, position=split.position + len(indexes) * split.step)
        return Batch(connector.call_each(self._function, indexes, "the generator function"), timestamps), following


@dataclass(frozen=True, slots=True)
class NumberSplit:
    """The numbers from `position` up to, but excluding, `stop`."""

    position: int
    stop: int


class NumberSequenceSource(connector.Source[int, NumberSplit]):
    """Emits the integers from `start` to `end`, both included, distributed over all subtasks (G8).

    There is one contiguous range for each subtask, emitted in order.

    Raises:
        ConfigurationError: if `end` is less than `start`.

    Examples:
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import NumberSequenceSource
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> source = NumberSequenceSource(1, 3)
        >>> env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").collect()
        [1, 2, 3]
    """

    def __init__(self, start: int, end: int) -> None:
        if end < start:
            raise ConfigurationError(f"the end of a sequence must not be before its start: {start} to {end}")
        self._start = start
        self._stop = end + 1

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded."""
        return connector.Boundedness.BOUNDED

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[NumberSplit], restored: Any | None
    ) -> connector.SplitEnumerator[NumberSplit]:
        """Return an enumerator with one range for each subtask."""
        return SplitQueue(context, even_ranges(self._start, self._stop, context.parallelism), restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[int, NumberSplit]:
        """Return a new reader."""
        return _NumberReader(context)


class _NumberReader(PositionedReader[NumberSplit]):
    def read(self, split: NumberSplit, max_records: int) -> tuple[Batch, NumberSplit] | None:
        stop = min(split.position + max_records, split.stop)
        if stop <= split.position:
            return None
        return Batch(list(range(split.position, stop))), replace(split, position=stop)


def even_ranges(start: int, stop: int, count: int) -> list[NumberSplit]:
    """Cut a range into at most `count` non-empty ranges whose lengths differ by at most one."""
    total = stop - start
    bounds = [start + total * i // count for i in range(count + 1)]
    return [NumberSplit(low, high) for low, high in pairwise(bounds) if low < high]
