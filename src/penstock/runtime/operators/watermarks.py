"""Timers of one operator in one time domain, and the generation of watermarks (C2).

`TimerQueue` fires timers in time order, each item at most once per time. Timers with the same time share a bucket, so
registering one costs a dictionary access, and a heap operation only for the first of its time. Deletion is exact.

`WatermarkGenerator` generates watermarks from timestamps or by a user's generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from inspect import signature
from itertools import repeat
from operator import countOf
from typing import Any, Final

from penstock.base import watermark_strategy
from penstock.base.errors import MisuseError, OperationError, StopIterationRaised, WrongTypeError, short_repr
from penstock.base.time import whole_ms
from penstock.base.watermark_strategy import WatermarkGenerator as UserGenerator
from penstock.runtime.columns import ColumnBatch, describe_origin, extract_rowtimes, make_batch
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.records import MIN_TIMESTAMP, Batch
from penstock.state.backend import KeyedTable
from penstock.state.states import NO_KEY

_MISSING = object()
#: The metric of timers that were set too late to fire.
DROPPED_TIMERS: Final = "numTimersDropped"


class EndlessTimersError(OperationError):
    """A key keeps setting timers after the end of its input. Another attempt would not end either."""

    suppresses_restart = True


class TimersAfterEnd:
    """Admits timers that keys set after the end of their input, up to a limit for each key.

    All timers are due by then, so a timer that always sets another would never end. The limit 0 admits none.
    """

    __slots__ = ("_context", "_counts")

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._counts: dict[Any, int] = {}

    def admit(self, key: Any) -> bool:
        """Return whether the key may set another timer.

        Raises:
            EndlessTimersError: if the key has set too many.
        """
        limit = self._context.timers_after_end_max
        if limit == 0:
            self._context.count(DROPPED_TIMERS)
            return False
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count > limit:
            raise EndlessTimersError(
                f"{self._context.operator_name}: key {short_repr(key)} has set more than {limit} timers after the end "
                "of its input, when all timers are due, so it would never end. Set no timer when the current watermark "
                "is 2**63 - 1. If the timers do end, raise penstock.timers.after-end-of-input.max; 0 drops them"
            )
        return True

    def clear(self) -> None:
        """Reset the counts for other keys."""
        self._counts.clear()


class TimerQueue:
    """Items (such as keys) with the times (ms) at which they are due.

    The buckets are namespaces of a state table, so timers are part of every snapshot, and a queue over a restored table
    continues where it was.
    """

    __slots__ = ("_buckets", "_heap", "_lone", "_table")

    def __init__(self, table: KeyedTable) -> None:
        self._table = table
        self._buckets = table.panes
        #: the items that are the only ones due at their times
        self._lone: dict[int, Any] = {} if table.lone is None else table.lone
        self._heap = [*self._buckets, *self._lone]
        heapify(self._heap)

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values())) + len(self._lone)

    def register(self, timestamp: int, item: Any) -> None:
        """Make `item` due at `timestamp`; a second registration changes nothing."""
        bucket = self._buckets.get(timestamp)
        if bucket is None or item not in bucket:
            self.put(timestamp, item, bucket)

    def put(self, timestamp: int, item: Any, bucket: dict[Any, Any] | None) -> None:
        """Register an item that is not in `bucket`, the existing bucket of its time, if any."""
        table = self._table
        if bucket is not None:
            bucket[item] = None
        else:
            known = self._lone.get(timestamp, _MISSING)
            if known is _MISSING:
                if item is NO_KEY:
                    hash(item)  # raises: timers without a key fail like state without a key
                heappush(self._heap, timestamp)
                if table.lone is not None:
                    table.lone[timestamp] = item
                else:
                    table.entries(timestamp)[item] = None
            elif known is item or known == item:
                return
            else:
                table.entries(timestamp)[item] = None
        if not table.is_next_whole:
            table.changed(timestamp).add(item)

    def delete(self, timestamp: int, item: Any) -> None:
        """Remove `item` at `timestamp`, if it is there."""
        if timestamp in self._lone:
            self._table.entries(timestamp)
        bucket = self._buckets.get(timestamp)
        if bucket is not None and item in bucket:
            del bucket[item]
            if not self._table.is_next_whole:
                self._table.changed(timestamp).add(item)

    def next_timestamp(self) -> int | None:
        """Return the earliest time at which anything is due, or None."""
        while self._heap:
            timestamp: int = self._heap[0]
            if timestamp in self._lone or self._buckets.get(timestamp):
                return timestamp
            heappop(self._heap)
            self._table.drop(timestamp)
        return None

    def peek(self, up_to: int) -> Iterator[tuple[int, Any]]:
        """Yield (timestamp, item) for all items due at or before `up_to`, in no order; none may be added meanwhile."""
        heap, indices = self._heap, [0]
        while indices:
            index = indices.pop()
            if index < len(heap) and (timestamp := heap[index]) <= up_to:
                indices += (2 * index + 1, 2 * index + 2)
                item = self._lone.get(timestamp, _MISSING)
                if item is not _MISSING:
                    yield timestamp, item
                for other in list(self._buckets.get(timestamp) or ()):
                    yield timestamp, other

    def clear(self) -> None:
        """Remove all timers."""
        for timestamp in list(self._buckets):
            self._table.drop(timestamp)
        for timestamp in list(self._lone):
            self._table.drop(timestamp)
        self._heap.clear()

    def fire(self, up_to: int, on_timer: Callable[[int, Any], None]) -> int:
        """Call `on_timer(timestamp, item)` for all items due at or before `up_to`; timers may be added meanwhile.

        Returns the number of timers fired.
        """
        fired = 0
        for timestamp, item in self.due(up_to):
            fired += 1
            on_timer(timestamp, item)
        return fired

    def due(self, up_to: int) -> Iterator[tuple[int, Any]]:
        """Yield (timestamp, item) for all items due at or before `up_to`, removing each when it is requested.

        Timers may be added and deleted meanwhile.
        """
        heap, buckets, table = self._heap, self._buckets, self._table
        take_lone, settle = self._lone.pop, table.settle
        while heap and (timestamp := heap[0]) <= up_to:
            item = take_lone(timestamp, _MISSING)
            if item is not _MISSING:
                heappop(heap)
                if not table.is_next_whole:
                    table.drop(timestamp)
                yield timestamp, item
                continue
            bucket = buckets.get(timestamp)
            if not bucket:
                heappop(heap)
                table.drop(timestamp)
                continue
            for item in list(bucket):
                # A timer deleted by an earlier one of the same time must not fire.
                if bucket.pop(item, _MISSING) is not _MISSING:
                    yield timestamp, item
                    if settle is not None:
                        settle()
                    if heap[0] < timestamp:
                        break  # a timer was set for an earlier time and fires next


#: Names of the user's functions in errors.
ASSIGNER: Final = "the timestamp assigner"
GENERATOR: Final = "the watermark generator"
EVENT_TIME: Final = "the event time"
#: The counter of records that arrive after the watermark has passed them.
LATE_RECORDS: Final = "late_records_dropped"
#: The counter of records removed from the stream because their event time is NULL.
NULL_TIME_RECORDS: Final = "null_time_records"


class _Output(watermark_strategy.WatermarkOutput):
    """Collects the watermark and the idleness that a generator emits in one call."""

    def __init__(self) -> None:
        self._watermark: Any = None
        #: whether the generator marked the stream as idle; None if it did not say
        self.idle: bool | None = None

    def emit_watermark(self, watermark: Any) -> None:
        proposed = whole_ms(getattr(watermark, "timestamp", watermark), GENERATOR)
        self._watermark = proposed if self._watermark is None else max(proposed, self._watermark)
        self.idle = False

    def mark_idle(self) -> None:
        self.idle = True

    def mark_active(self) -> None:
        self.idle = False

    def taken(self) -> tuple[Any, bool | None]:
        """Return the highest watermark and the latest idleness since the last call, and reset both."""
        result = self._watermark, self.idle
        self._watermark = self.idle = None
        return result


def _takes_output(method: Callable[..., Any], arity: int) -> bool:
    """Return whether a generator's method has a parameter for the output after its `arity` parameters."""
    try:
        parameters = signature(method).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return len(positional) > arity or any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)


class AssignerError(Exception):
    """The user's timestamp assigner or watermark generator raised on a record (None: when called periodically)."""

    def __init__(self, record: Any, what: str = ASSIGNER) -> None:
        super().__init__(record, what)
        self.record = record
        self.what = what


def _made(factory: Callable[[], Any]) -> Any:
    """Create the user's generator.

    Raises:
        AssignerError: if the factory raises, or returns an object without the methods of a generator.
    """
    try:
        generator = factory()
        if not isinstance(generator, watermark_strategy.BatchWatermarks):
            names = ("on_event", "on_periodic_emit")
            missing = [f"no method {name}()" for name in names if not callable(getattr(generator, name, None))]
            if missing:
                raise WrongTypeError(
                    f"the factory of the watermark generator returned {short_repr(generator)}, which has "
                    f"{' and '.join(missing)}: return a WatermarkGenerator"
                )
    except Exception as error:
        raise AssignerError(None, GENERATOR) from error
    return generator


class WatermarkGenerator:
    """Assigns timestamps and generates watermarks for one stream, or for one split of a source.

    A bounded watermark is the highest timestamp minus the bound minus 1 ms. The generator emits it once per batch, so
    it depends on the records alone and not on a clock. A user's generator sees each record, and its watermark comes
    right after that record; it is also called periodically. Ingestion time uses the clock: a watermark follows each
    batch, or comes periodically when there are no batches. Idleness also uses the clock: a stream without records for
    `idleness_ms` stops holding others back.

    Raises:
        AssignerError: if the user's generator cannot be created.
    """

    def __init__(self, strategy: watermark_strategy.WatermarkStrategy) -> None:
        self._assigner = strategy.timestamp_assigner
        self._kind = strategy.kind
        generator = None if strategy.generator_factory is None else _made(strategy.generator_factory)
        self._of_batches = generator if isinstance(generator, watermark_strategy.BatchWatermarks) else None
        self._user = None if isinstance(generator, watermark_strategy.BatchWatermarks) else generator
        self._output = _Output()
        #: whether the user's methods have a parameter for the output
        self._with_output = (
            (False, False)
            if self._user is None
            else (_takes_output(self._user.on_event, 2), _takes_output(self._user.on_periodic_emit, 0))
        )
        #: the tag of the side output for records that `assign` leaves out; None if it leaves out none
        self.side_tag = None if self._of_batches is None else self._of_batches.side_tag
        self._delay_ms = (strategy.out_of_orderness_ms or 0) + 1
        self._idleness_ms = strategy.idleness_ms
        #: the highest watermark so far
        self.watermark = MIN_TIMESTAMP
        self._ingested_ms = MIN_TIMESTAMP
        self._last_record_ms: int | None = None
        self.idle = False

    def assign(self, batch: Batch, now_ms: int) -> Batch:
        """Return the batch with the strategy's timestamps; `left_out` returns the records left out without one."""
        if self._kind == "ingestion":
            self._ingested_ms = max(now_ms, self._ingested_ms, self.watermark + 1)
            return make_batch(batch.content()[0], [self._ingested_ms] * len(batch), batch.kinds)
        if self._of_batches is not None:
            try:
                assigned: Batch = self._of_batches.assign(batch)
            except AssignerError:
                raise
            except Exception as error:
                raise AssignerError(f"a batch of {len(batch)} rows", EVENT_TIME) from error
            return assigned
        if self._assigner is None:
            return batch
        if isinstance(self._assigner, watermark_strategy.ColumnAssigner) and isinstance(batch, ColumnBatch):
            try:
                return batch.with_rowtimes(extract_rowtimes(batch, self._assigner.column))
            except (TypeError, ValueError) as error:
                raise AssignerError(None) from error
        timestamps: list[int] = []
        try:
            self._assigner.extend(timestamps, batch.values, batch.timestamps)
            if len(timestamps) != len(batch.values):
                raise StopIterationRaised("the timestamp assigner")
        except Exception as error:
            raise AssignerError(batch.values[len(timestamps)]) from error
        if countOf(map(type, timestamps), int) != len(timestamps):
            timestamps = _whole(timestamps, batch, self._assigner)
        return make_batch(batch.content()[0], timestamps, batch.kinds)

    def left_out(self) -> Batch | None:
        """Return the records that the last `assign` left out, or None."""
        return None if self._of_batches is None else self._of_batches.left_out()

    def follow(self, batch: Batch) -> Iterable[tuple[Batch, int | None]]:
        """Return the records in parts, each with the watermark after it, or None if it has not advanced."""
        if self._of_batches is not None:
            return self._by_batch(batch, self._of_batches)
        return ((batch, self.advance(batch)),) if self._user is None else self._by_record(batch, self._user)

    def _by_batch(
        self, batch: Batch, of_batches: watermark_strategy.BatchWatermarks
    ) -> Iterator[tuple[Batch, int | None]]:
        parts = iter(of_batches.follow(batch))
        while True:
            try:
                part, proposed = next(parts)
            except StopIteration:
                return
            except Exception as error:
                raise AssignerError(f"a batch of {len(batch)} rows", EVENT_TIME) from error
            yield part, None if proposed is None else self._reach(proposed)

    def _by_record(self, batch: Batch, user: UserGenerator) -> Iterator[tuple[Batch, int | None]]:
        values, begin, takes_output = batch.values, 0, self._with_output[0]
        timestamps: Any = repeat(watermark_strategy.NO_TIMESTAMP) if batch.timestamps is None else batch.timestamps
        for index, (value, timestamp) in enumerate(zip(values, timestamps)):  # noqa: B905 - repeat has no end
            try:
                if takes_output:
                    user.on_event(value, timestamp, self._output)
                    proposed = self._said()
                else:
                    proposed = user.on_event(value, timestamp)  # type: ignore[call-arg]
                watermark = None if proposed is None else self._reach(whole_ms(proposed, GENERATOR))
            except Exception as error:
                raise AssignerError(value, GENERATOR) from error
            if watermark is not None:
                yield batch.slice(begin, index + 1), watermark
                begin = index + 1
        if begin < len(values):
            yield (batch.slice(begin, len(values)) if begin else batch), None

    def advance(self, batch: Batch) -> int | None:
        """Return the strategy's watermark after these records, or None if it has not advanced."""
        if self._kind in ("none", "custom", "batches"):
            return None
        highest = batch.max_timestamp()
        return None if highest is None else self._reach(highest - self._delay_ms)

    @property
    def is_periodic(self) -> bool:
        """Whether to call `on_periodic`."""
        return self._kind in ("custom", "ingestion")

    def on_periodic(self, now_ms: int) -> int | None:
        """Return the generator's periodic watermark, if it advances.

        A stream that is idle for lack of records is not asked; a stream that its generator marked as idle is.
        """
        if self.idle and not self._with_output[1]:
            return None
        if self._user is None:
            return self._reach(max(now_ms, self._ingested_ms) - self._delay_ms) if self._kind == "ingestion" else None
        try:
            if self._with_output[1]:
                self._user.on_periodic_emit(self._output)
                proposed = self._said()
            else:
                proposed = self._user.on_periodic_emit()
            return None if proposed is None else self._reach(whole_ms(proposed, GENERATOR))
        except Exception as error:
            raise AssignerError(None, GENERATOR) from error

    def _said(self) -> Any:
        """Return the watermark that the generator has emitted, or None, and update whether the stream is idle."""
        proposed, idle = self._output.taken()
        if idle is not None:
            self.idle = idle
        return proposed

    def _reach(self, watermark: int) -> int | None:
        if watermark <= self.watermark:
            return None
        self.watermark = watermark
        return watermark

    def resume(self, now_ms: int) -> None:
        """Restart the idle timeout: the stream was held back until now, which does not count as silence."""
        if self._last_record_ms is not None:
            self._last_record_ms = now_ms

    def saw_records(self, now_ms: int) -> bool:
        """Note activity; return True if the stream had been idle until now."""
        self._last_record_ms = now_ms
        was_idle, self.idle = self.idle, False
        return was_idle

    @property
    def tracks_idleness(self) -> bool:
        """Whether the strategy detects idleness."""
        return self._idleness_ms is not None

    def idle_deadline_ms(self) -> int | None:
        """Return when (ms) the stream becomes idle if no records arrive."""
        if self._idleness_ms is None or self.idle or self._last_record_ms is None:
            return None
        return self._last_record_ms + self._idleness_ms

    def check_idle(self, now_ms: int) -> bool:
        """Mark the stream as idle if it has been silent for long enough; return True if it just became idle."""
        if self._last_record_ms is None:
            self._last_record_ms = now_ms
        deadline = self.idle_deadline_ms()
        if deadline is None or now_ms < deadline:
            return False
        self.idle = True
        return True


def _whole(timestamps: list[Any], batch: Batch, assigner: Any) -> list[int]:
    """Return the timestamps as plain ints."""
    subject = (
        f"the timestamp column {assigner.column!r}"
        if isinstance(assigner, watermark_strategy.ColumnAssigner)
        else ASSIGNER
    )
    times: list[int] = []
    try:
        times.extend(whole_ms(timestamp, subject) for timestamp in timestamps)
    except MisuseError as error:
        origin = describe_origin(batch, len(times))
        cause = MisuseError(f"{error}. It is a record {origin}") if origin else error
        raise AssignerError(batch.values[len(times)]) from cause
    return times
