"""Readers and enumerators for sources whose splits are known from the start, and readers that read ahead in a thread.

`PositionedReader` and `SeriesReader` generate a split's records from a position: collections, numbers, generators.
`SplitQueue` and `SeriesQueue` are their enumerators. `ReadAheadReader` reads a split in a thread (`Background`), some
rows ahead, so that the task does not block while a server responds.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from penstock.connectors.rate_limiter import RateLimiter
from penstock.runtime import connector
from penstock.runtime.columns import ColumnBatch, SplitColumnBatch
from penstock.runtime.records import Batch

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
