"""The demo's job: departures and delays per airport and hour, and each carrier's worst delay so far.

Flights arrive in order of departure; their event time is the minute of planned departure. A delay is therefore also how
late a record is, and the watermark lags by six hours. A flight with a longer delay may find its hour closed; it then
goes to a side output, which is also written. The set of these flights depends on the readers' progress, but the windows
and the side outputs together always contain every departure exactly once.

A rate-limited source, so that a small input lasts as long as a stream would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.base.output_tag import OutputTag
from penstock.base.time import Duration
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.cli.demo.flights import MINUTE_MS, hour_ms
from penstock.connectors.rate_limiter import RateLimit
from penstock.datastream import (
    AggregateFunction,
    DataStream,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors import BucketAssigner, FileSink, FileSource, OutputFileConfig
from penstock.datastream.formats.csv import CsvFormat, CsvWriterFactory
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import TimeWindow, TumblingEventTimeWindows
from penstock.runtime.connector import (
    Boundedness,
    InputStatus,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from penstock.runtime.records import Batch

T = TypeVar("T")
SplitT = TypeVar("SplitT")

#: The interval at which a reader emits the records that its rate allows.
_PERIOD_MS: Final = 50


class PacedSource(Source[T, SplitT]):
    """Limits the rate of another source, whose positions and splits it uses; no thread sleeps.

    Args:
        source: the source to slow down.
        per_second: records per second of all subtasks together.
    """

    def __init__(self, source: Source[T, SplitT], per_second: float) -> None:
        self._source = source
        self._per_second = per_second

    @property
    def boundedness(self) -> Boundedness:
        """The boundedness of the other source."""
        return self._source.boundedness

    def create_enumerator(
        self, context: SplitEnumeratorContext[SplitT], restored: Any | None
    ) -> SplitEnumerator[SplitT]:
        """Return the enumerator of the other source."""
        return self._source.create_enumerator(context, restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[T, SplitT]:
        """Return a reader of the other source, limited to this subtask's share of the rate."""
        return _PacedReader(self._source.create_reader(context), context, self._per_second / context.parallelism)

    def max_parallelism(self) -> int | None:
        """Return the maximum parallelism of the other source."""
        return self._source.max_parallelism()


class _PacedReader(SourceReader[T, SplitT]):
    def __init__(self, reader: SourceReader[T, SplitT], context: SourceReaderContext, per_second: float) -> None:
        self._reader = reader
        self._context = context
        self._limit = RateLimit(per_second, context.now_ms())
        self._records_min = max(1, int(per_second * _PERIOD_MS / 1000))
        self._held_back = False

    def start(self) -> None:
        self._reader.start()

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        allowed = self._limit.allowance(self._context.now_ms())
        self._held_back = allowed < self._records_min
        if self._held_back:
            return InputStatus.NOTHING_AVAILABLE
        polled = self._reader.poll_next(min(max_records, allowed))
        if isinstance(polled, Batch):
            self._limit.spend(len(polled))
        return polled

    def retry_after_ms(self) -> int:
        return _PERIOD_MS if self._held_back else self._reader.retry_after_ms()

    def held_back_ms(self) -> int | None:
        return _PERIOD_MS if self._held_back else self._reader.held_back_ms()

    def begin_at(self, time_ms: int) -> None:
        self._limit.begin_at(time_ms)
        self._reader.begin_at(time_ms)

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        self._reader.add_splits(splits)

    def no_more_splits(self) -> None:
        self._reader.no_more_splits()

    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        return self._reader.snapshot_state(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._reader.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._reader.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        self._reader.close()


#: An input flight: origin, carrier, planned hour (ms), minute in it, delay of the departure in minutes or None.
Flight = tuple[str, str, int, int, int | None]
#: Carrier, day, and the worst delay of the year up to that day in minutes.
Worst = tuple[str, str, int]

DAY_MS = 86_400_000
OUT_OF_ORDERNESS = Duration.of_hours(6)
SPLIT_BYTES = 1 << 20

HOURLY, WORST, LATE_FOR_HOUR, LATE_FOR_DAY = "hourly", "worst", "late-for-hour", "late-for-day"
COLUMNS = {
    HOURLY: ["origin", "hour", "departures", "delay_minutes"],
    WORST: ["carrier", "day", "worst_delay_minutes"],
    LATE_FOR_HOUR: ["origin", "carrier", "hour_ms", "minute", "delay_minutes"],
    LATE_FOR_DAY: ["origin", "carrier", "hour_ms", "minute", "delay_minutes"],
}


def build(env: StreamExecutionEnvironment, departures: Path, output: Path, per_second: float | None) -> None:
    """Add the job to an environment.

    Args:
        env: the environment.
        departures: the flights in order of departure.
        output: the output folder, which gets one folder for each of `COLUMNS`.
        per_second: flights per second; None for no limit.
    """
    planned = WatermarkStrategy.for_bounded_out_of_orderness(OUT_OF_ORDERNESS).with_timestamp_assigner(planned_ms)
    departed = env.from_source(_source(departures, per_second), planned, "flights").filter(has_departed)

    late_for_hour = OutputTag(LATE_FOR_HOUR)
    hourly = (
        departed.key_by(get_origin_airport)
        .window(TumblingEventTimeWindows.of(Duration.of_hours(1)))
        .side_output_late_data(late_for_hour)
        .aggregate(CountAndSum(), NameHour())
        .name("hours")
    )
    worst = departed.key_by(get_carrier).process(WorstDelay()).name("worst delays")

    _write(hourly, output, HOURLY)
    _write(hourly.get_side_output(late_for_hour), output, LATE_FOR_HOUR)
    _write(worst, output, WORST)
    _write(worst.get_side_output(WorstDelay.LATE), output, LATE_FOR_DAY)


def _source(departures: Path, per_second: float | None) -> Source[Flight, Any]:
    columns: dict[str, Any] = {"origin": str, "carrier": str, "time_hour": hour_ms, "minute": int, "dep_delay": int}
    flights = CsvFormat(columns, null_values=["NA"], as_tuple=True)
    source = FileSource.for_record_stream_format(flights, departures).set_split_size(SPLIT_BYTES).build()
    return source if per_second is None else PacedSource(source, per_second)


def _write(stream: DataStream, output: Path, name: str) -> None:
    sink: FileSink[tuple[Any, ...]] = (
        FileSink.for_bulk_format(output / name, CsvWriterFactory(COLUMNS[name], header=True))
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_output_file_config(OutputFileConfig(part_suffix=".csv"))
        .build()
    )
    stream.sink_to(sink).name(name)


def planned_ms(flight: Flight) -> int:
    """Return the event time."""
    return flight[2] + flight[3] * MINUTE_MS


def has_departed(flight: Flight) -> bool:
    """Return whether the flight was not cancelled."""
    return flight[4] is not None


def get_origin_airport(flight: Flight) -> str:
    """Return the airport of departure."""
    return flight[0]


def get_carrier(flight: Flight) -> str:
    """Return the airline's code."""
    return flight[1]


def hour_name(timestamp_ms: int) -> str:
    """Format an hour as in the data, such as `2013-01-01T10:00:00Z`."""
    return datetime.fromtimestamp(timestamp_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def day_name(timestamp_ms: int) -> str:
    """Format a day, such as `2013-01-01`."""
    return hour_name(timestamp_ms)[:10]


class CountAndSum(AggregateFunction):
    """Counts departures and sums their delays, as integers, so that results compare exactly."""

    def create_accumulator(self) -> tuple[int, int]:
        """Return a count and sum of 0."""
        return 0, 0

    def add(self, value: Flight, accumulator: tuple[int, int]) -> tuple[int, int]:
        """Add a departure."""
        assert value[4] is not None
        return accumulator[0] + 1, accumulator[1] + value[4]

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        """Return the count and sum."""
        return accumulator


class NameHour(ProcessWindowFunction[tuple[int, int], tuple[str, str, int, int], str, TimeWindow]):
    """Prepends origin and hour to the result of a window."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[tuple[int, int]]
    ) -> Iterator[tuple[str, str, int, int]]:
        """Yield one row per window."""
        for departures, delay_minutes in elements:
            yield key, hour_name(context.window().start), departures, delay_minutes


class WorstDelay(KeyedProcessFunction):
    """Emits, at the end of each day with a flight of the carrier, its worst delay of the year so far.

    Flights of the next day arrive before the timer of this day fires. The worst delays of open days are therefore
    stored separately, and each is merged into the running one when its day ends. A flight whose day has ended goes to
    `LATE`. The watermark alone does not show that: it is not part of a checkpoint, so after a recovery it lags the
    state for a moment.
    """

    LATE = OutputTag(LATE_FOR_DAY)

    def open(self, runtime_context: RuntimeContext) -> None:
        """Look up the state."""
        self._of_open_days = runtime_context.get_map_state(MapStateDescriptor("of open days"))
        self._so_far = runtime_context.get_state(ValueStateDescriptor("worst delay and end of the last closed day"))

    def process_element(self, value: Flight, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        """Record the delay for its day."""
        timestamp_ms, timers = ctx.timestamp(), ctx.timer_service()
        assert timestamp_ms is not None
        day_end_ms = timestamp_ms - timestamp_ms % DAY_MS + DAY_MS - 1
        so_far = self._so_far.value()
        if day_end_ms <= timers.current_watermark() or (so_far is not None and day_end_ms <= so_far[1]):
            yield self.LATE, value
            return
        worst = self._of_open_days.get(day_end_ms)
        if worst is None:
            timers.register_event_time_timer(day_end_ms)
        if worst is None or value[4] > worst:
            self._of_open_days.put(day_end_ms, value[4])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Worst]:
        """Close the day and emit the worst delay so far."""
        worst = self._of_open_days.get(timestamp)
        assert worst is not None
        self._of_open_days.remove(timestamp)
        so_far = self._so_far.value()
        if so_far is not None:
            worst = max(worst, so_far[0])
        self._so_far.update((worst, timestamp))
        yield ctx.get_current_key(), day_name(timestamp), worst
