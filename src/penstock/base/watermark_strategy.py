"""Event time of streams: `WatermarkStrategy`, a frozen description that the runtime executes.

A watermark `w` says that no more records with a timestamp of `w` or less are expected. If `max_ts` is the largest
timestamp seen, the watermark of the bounded strategy is `max_ts - out_of_orderness_ms - 1`. The strategy for monotonous
timestamps is the bounded one with 0. All times are milliseconds since the epoch, UTC.
"""

from __future__ import annotations

import datetime
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Literal

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.base.time import Duration, Time, to_millis
from penstock.base.types import get_field

__all__ = [
    "NO_TIMESTAMP",
    "TimestampAssigner",
    "WatermarkAlignment",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]

NO_TIMESTAMP = -(2**63)
"""What a timestamp assigner is given as the record's present timestamp when there is none."""

_DEFAULT_ALIGNMENT_INTERVAL_MS = 1_000
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class TimestampAssigner(ABC):
    """Assigns event time to records.

    Examples:
        >>> from penstock.common import TimestampAssigner, WatermarkStrategy
        >>> class OrderTime(TimestampAssigner):
        ...     def extract_timestamp(self, value, record_timestamp):
        ...         return value["seconds"] * 1_000
        >>> by_order_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(OrderTime())
        >>> by_order_time.timestamp_assigner({"seconds": 2}, None)
        2000
    """

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return the event time of a record, in milliseconds since the epoch.

        Args:
            value: the record.
            record_timestamp: the record's current timestamp, such as Kafka's; `NO_TIMESTAMP` if it has none.
        """


class WatermarkOutput(ABC):
    """Receives a generator's watermarks and idleness.

    Examples:
        >>> from penstock.common.watermark_strategy import WatermarkOutput
        >>> class Kept(WatermarkOutput):
        ...     def emit_watermark(self, watermark):
        ...         self.watermark = watermark
        ...     def mark_idle(self):
        ...         self.is_idle = True
        ...     def mark_active(self):
        ...         self.is_idle = False
        >>> output = Kept()
        >>> output.emit_watermark(10)
        >>> output.watermark
        10
    """

    @abstractmethod
    def emit_watermark(self, watermark: Any) -> None:
        """Emit a watermark: milliseconds, or an object with a `timestamp` in milliseconds. The stream becomes active.

        A watermark that is not higher than the last one has no effect.
        """

    @abstractmethod
    def mark_idle(self) -> None:
        """Mark the stream idle: it does not hold back the event time of others until `mark_active` or a watermark."""

    @abstractmethod
    def mark_active(self) -> None:
        """Mark the stream active: it holds back others again."""


class WatermarkGenerator(ABC):
    """Generates watermarks by its own rules; each source split has its own generator.

    In Flink's form, the methods take an output, on which the generator emits watermarks and marks its stream idle. A
    method without that parameter returns a watermark instead.

    Examples:
        >>> from penstock.common.watermark_strategy import WatermarkGenerator, WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> class Punctuated(WatermarkGenerator):
        ...     def on_event(self, value, timestamp_ms, output):
        ...         output.emit_watermark(timestamp_ms)
        ...     def on_periodic_emit(self, output):
        ...         pass
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> strategy = WatermarkStrategy.for_generator(Punctuated).with_timestamp_assigner(lambda ms: ms)
        >>> env.from_elements(1, 2).assign_timestamps_and_watermarks(strategy).collect()
        [1, 2]
    """

    @abstractmethod
    def on_event(self, value: Any, timestamp_ms: int, output: WatermarkOutput) -> int | None:
        """Process a record and its event time.

        Returns:
            None if the method takes `output`; otherwise a watermark in milliseconds to emit at once, or None.
        """

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> int | None:
        """Emit a periodic watermark; called every `pipeline.auto-watermark-interval`.

        Returns:
            None if the method takes `output`; otherwise a watermark in milliseconds to emit, or None.
        """


class BatchWatermarks(ABC):
    """Assigns timestamps to the records of one stream or split and generates watermarks, a batch at a time.

    Used by layers above streams of records, such as tables; user programs use `WatermarkGenerator`.
    """

    #: the side output tag for records that `assign` leaves out; None if it never does
    side_tag: str | None = None

    @abstractmethod
    def assign(self, batch: Any) -> Any:
        """Return the batch with timestamps. It may leave out records without an event time."""

    def left_out(self) -> Any | None:
        """Return the records that the last `assign` left out, or None."""
        return None

    @abstractmethod
    def follow(self, batch: Any) -> Iterable[tuple[Any, int | None]]:
        """Return the batch in parts, each with the watermark (ms) that follows it, or None."""


@dataclass(frozen=True, slots=True)
class WatermarkAlignment:
    """Holds back sources that run ahead of the slowest one in their group.

    Attributes:
        group: the group's name; sources with the same group name are aligned.
        max_drift_ms: how far, in milliseconds, a source may be ahead of the group's lowest watermark.
        update_interval_ms: how often sources report and are updated, in milliseconds.

    Examples:
        >>> from penstock.common.watermark_strategy import WatermarkStrategy
        >>> strategy = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment("shop", 1_000)
        >>> strategy.alignment
        WatermarkAlignment(group='shop', max_drift_ms=1000, update_interval_ms=1000)
    """

    group: str
    max_drift_ms: int
    update_interval_ms: int


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """How timestamps and watermarks are generated; immutable, each `with_` method returns a new strategy.

    Attributes:
        kind: "none" for no watermarks, "bounded" for the largest timestamp minus a bound, "ingestion" for the clock,
            "custom" for a generator, "batches" for a generator over batches.
        out_of_orderness_ms: how far out of order records may be, for "bounded".
        timestamp_assigner: a function of the record and its current timestamp (or None) that returns the event time in
            milliseconds; None to keep the source's timestamps.
        idleness_ms: how long a split may have no records before it is idle and stops holding back the watermark; None
            for never.
        alignment: the group of sources to stay close to; None without alignment.
        generator_factory: creates the generator of a "custom" or "batches" strategy.

    Examples:
        >>> from penstock.common import Duration, WatermarkStrategy
        >>> strategy = (
        ...     WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
        ...     .with_timestamp_assigner(lambda order: order["ms"])
        ...     .with_idleness(Duration.of_minutes(1))
        ... )
        >>> strategy.out_of_orderness_ms, strategy.idleness_ms
        (5000, 60000)
    """

    kind: Literal["none", "bounded", "ingestion", "custom", "batches"]
    out_of_orderness_ms: int = 0
    timestamp_assigner: OneArgumentAssigner | TwoArgumentsAssigner | ColumnAssigner | None = None
    idleness_ms: int | None = None
    alignment: WatermarkAlignment | None = None
    generator_factory: Callable[[], WatermarkGenerator | BatchWatermarks] | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Return the strategy for timestamps that never decrease within a split."""
        return WatermarkStrategy("bounded")

    @staticmethod
    def for_bounded_out_of_orderness(
        max_out_of_orderness: Duration | Time | datetime.timedelta | int,
    ) -> WatermarkStrategy:
        """Return the strategy for records that are at most this much older than the latest; an int is in milliseconds.

        Raises:
            TypeError: if the bound is not a length of time.
            ValueError: if it is negative.

        Examples:
            >>> WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5)).out_of_orderness_ms
            5000
        """
        return WatermarkStrategy("bounded", _at_least(0, max_out_of_orderness, "out-of-orderness"))

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Return the strategy for programs without event time."""
        return WatermarkStrategy("none")

    @staticmethod
    def for_ingestion_time() -> WatermarkStrategy:
        """Return the strategy whose event time is the arrival time by the worker's clock, so no record is ever late."""
        return WatermarkStrategy("ingestion")

    @staticmethod
    def for_generator(generator_factory: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Return the strategy for user-defined watermarks; the factory is called once for each source split.

        Raises:
            TypeError: if the factory cannot be called.
        """
        if not callable(generator_factory):
            raise WrongTypeError(f"a generator factory must be callable, not {generator_factory!r}")
        return WatermarkStrategy("custom", generator_factory=generator_factory)

    @staticmethod
    def for_batches(generator_factory: Callable[[], BatchWatermarks]) -> WatermarkStrategy:
        """Return the strategy that computes timestamps and watermarks for whole batches; see `BatchWatermarks`."""
        return WatermarkStrategy("batches", generator_factory=generator_factory)

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | Callable[[Any], int] | Callable[[Any, int], int]
    ) -> WatermarkStrategy:
        """Return the same strategy with timestamps from the given assigner.

        Args:
            timestamp_assigner: a `TimestampAssigner`, or a function of the record, or of the record and its current
                timestamp. Parameters with a default do not count, so `lambda r, field="ts": r[field]` has one. The
                function returns an int for every record: anything else, including None, fails the job.

        Raises:
            TypeError: if it is something else.
            ValueError: if the strategy is that of ingestion time, where the clock sets the timestamps.

        Examples:
            >>> in_order = WatermarkStrategy.for_monotonous_timestamps()
            >>> in_order.with_timestamp_assigner(lambda order: order["ms"]).timestamp_assigner({"ms": 1_000}, None)
            1000
        """
        if self.kind == "ingestion":
            raise WrongValueError(
                "ingestion time takes its timestamps from the clock: leave out the timestamp assigner"
            )
        return replace(self, timestamp_assigner=_normalised(timestamp_assigner))

    def with_timestamp_column(self, column: str) -> WatermarkStrategy:
        """Return the same strategy with timestamps from a column, or a field of that name: integers (ms), or datetimes.

        Batches of columns are then never read record by record. Datetimes without a time zone are UTC.

        Raises:
            ValueError: if the strategy is that of ingestion time, where the clock sets the timestamps.
        """
        if self.kind == "ingestion":
            raise WrongValueError("ingestion time takes its timestamps from the clock: leave out the timestamp column")
        return replace(self, timestamp_assigner=ColumnAssigner(column))

    def with_idleness(self, idle_timeout: Duration | Time | datetime.timedelta | int) -> WatermarkStrategy:
        """Return the same strategy with splits idle after this long without records; an int is in milliseconds.

        Raises:
            TypeError: if the timeout is not a length of time.
            ValueError: if it is not positive.

        Examples:
            >>> WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_minutes(1)).idleness_ms
            60000
        """
        return replace(self, idleness_ms=_at_least(1, idle_timeout, "idle timeout"))

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Duration | Time | datetime.timedelta | int,
        update_interval: Duration | Time | datetime.timedelta | int | None = None,
    ) -> WatermarkStrategy:
        """Return the same strategy, aligned with the other sources of a group; ints are in milliseconds.

        Args:
            watermark_group: the group's name.
            max_allowed_watermark_drift: how far a source may run ahead of the slowest one.
            update_interval: how often sources report and are updated; None for one second.

        Raises:
            TypeError: if an argument is not a length of time.
            ValueError: if the drift is negative, the interval not positive, the group's name empty, or the strategy has
                no watermarks, because the rest of the group would wait forever.
        """
        if self.kind == "none":
            raise WrongValueError(
                f"a source without watermarks would block its whole group {watermark_group!r} forever"
            )
        if not watermark_group:
            raise WrongValueError("the name of a watermark group must not be empty")
        interval = _DEFAULT_ALIGNMENT_INTERVAL_MS if update_interval is None else update_interval
        alignment = WatermarkAlignment(
            watermark_group,
            _at_least(0, max_allowed_watermark_drift, "watermark drift"),
            _at_least(1, interval, "update interval"),
        )
        return replace(self, alignment=alignment)


@dataclass(frozen=True, slots=True)
class OneArgumentAssigner:
    """Calls a function of the record alone."""

    function: Callable[[Any], int]

    def __call__(self, value: Any, record_timestamp: int | None) -> int:
        return self.function(value)

    def extend(self, target: list[int], values: list[Any], record_timestamps: list[int] | None) -> None:
        """Append the timestamps of many records, up to the first record that makes the function raise."""
        target.extend(map(self.function, values))


@dataclass(frozen=True, slots=True)
class ColumnAssigner:
    """Takes timestamps from a column, or from the field of that name if records are not columns."""

    column: str

    def __call__(self, value: Any, record_timestamp: int | None) -> int:
        moment = get_field(value, self.column)
        return _to_millis(moment) if isinstance(moment, datetime.datetime) else moment

    def extend(self, target: list[int], values: list[Any], record_timestamps: list[int] | None) -> None:
        """Append the timestamps of many records, up to the first record without one."""
        target.extend(self(value, None) for value in values)


@dataclass(frozen=True, slots=True)
class TwoArgumentsAssigner:
    """Calls a function of the record and its timestamp, which is `NO_TIMESTAMP` if the record has none."""

    function: Callable[[Any, int], int]

    def __call__(self, value: Any, record_timestamp: int | None) -> int:
        return self.function(value, NO_TIMESTAMP if record_timestamp is None else record_timestamp)

    def extend(self, target: list[int], values: list[Any], record_timestamps: list[int] | None) -> None:
        """Append the timestamps of many records, up to the first record that makes the function raise."""
        target.extend(
            map(self.function, values, repeat(NO_TIMESTAMP) if record_timestamps is None else record_timestamps)
        )


def _to_millis(moment: datetime.datetime) -> int:
    """Return the milliseconds since the epoch, rounded down."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
    return (aware - _EPOCH) // datetime.timedelta(milliseconds=1)


def _normalised(assigner: Any) -> OneArgumentAssigner | TwoArgumentsAssigner:
    extract = getattr(assigner, "extract_timestamp", None)
    if callable(extract):
        return TwoArgumentsAssigner(extract)
    if not callable(assigner):
        raise WrongTypeError(
            f"a timestamp assigner must have extract_timestamp(value, timestamp) or be callable: {assigner!r}"
        )
    argument_count = _required_arguments(assigner)
    if argument_count > 2:
        raise WrongTypeError(
            f"a timestamp assigner takes the record and at most its timestamp, but {assigner!r} requires "
            f"{argument_count}"
        )
    return TwoArgumentsAssigner(assigner) if argument_count == 2 else OneArgumentAssigner(assigner)


def _required_arguments(function: Callable[..., Any]) -> int:
    """Return how many positional arguments a function requires; 1 for built-ins without a signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is inspect.Parameter.empty for p in parameters)


def _at_least(low_ms: int, value: Duration | Time | datetime.timedelta | int, setting: str) -> int:
    value_ms = to_millis(value)
    if value_ms < low_ms:
        raise WrongValueError(f"the {setting} must be at least {low_ms} ms, not {value_ms} ms")
    return value_ms
