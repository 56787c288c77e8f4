"""The demo's job, and its check: departures and delays per airport and hour, and each carrier's worst delay so far.

**The job.** Flights arrive in order of departure; their event time is the minute of planned departure. A delay is
therefore also how late a record is, and the watermark lags by six hours. A flight with a longer delay may find its hour
closed; it then goes to a side output, which is also written. The set of these flights depends on the readers' progress,
but the windows and the side outputs together always contain every departure exactly once.

`PacedSource` limits the rate, so that a small input lasts as long as a stream would.

**The check.** An `Answer` holds one answer to the demo's question; the job's output is one, and `answer` computes
another with a plain loop, without Spark. `differences` compares two of them. `print_comparison` prints the table at the
end of the demo, with both answers side by side.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table

from penstock.base.output_tag import OutputTag
from penstock.base.time import Duration
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.cli.demo.flights import MINUTE_MS, hour_ms
from penstock.connectors.split_reader import RateLimit
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
from penstock.runtime import connector
from penstock.runtime.records import Batch

T = TypeVar("T")
SplitT = TypeVar("SplitT")

#: The interval at which a reader emits the records that its rate allows.
_PERIOD_MS: Final = 50


class PacedSource(connector.Source[T, SplitT]):
    """Limits the rate of another source, whose positions and splits it uses; no thread sleeps.

    Args:
        source: the source to slow down.
        per_second: records per second of all subtasks together.
    """

    def __init__(self, source: connector.Source[T, SplitT], per_second: float) -> None:
        self._source = source
        self._per_second = per_second

    @property
    def boundedness(self) -> connector.Boundedness:
        """The boundedness of the other source."""
        return self._source.boundedness

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[SplitT], restored: Any | None
    ) -> connector.SplitEnumerator[SplitT]:
        """Return the enumerator of the other source."""
        return self._source.create_enumerator(context, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[T, SplitT]:
        """Return a reader of the other source, limited to this subtask's share of the rate."""
        return _PacedReader(self._source.create_reader(context), context, self._per_second / context.parallelism)

    def max_parallelism(self) -> int | None:
        """Return the maximum parallelism of the other source."""
        return self._source.max_parallelism()


class _PacedReader(connector.SourceReader[T, SplitT]):
    def __init__(
        self, reader: connector.SourceReader[T, SplitT], context: connector.SourceReaderContext, per_second: float
    ) -> None:
        self._reader = reader
        self._context = context
        self._limit = RateLimit(per_second, context.now_ms())
        self._records_min = max(1, int(per_second * _PERIOD_MS / 1000))
        self._held_back = False

    def start(self) -> None:
        self._reader.start()

    def poll_next(self, max_records: int) -> Batch | connector.InputStatus:
        allowed = self._limit.allowance(self._context.now_ms())
        self._held_back = allowed < self._records_min
        if self._held_back:
            return connector.InputStatus.NOTHING_AVAILABLE
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


def _source(departures: Path, per_second: float | None) -> connector.Source[Flight, Any]:
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


K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class Answer:
    """The answer to the demo's question, in integers only.

    Attributes:
        hourly: departures and the sum of their delays in minutes, by (origin, hour).
        worst: the carrier's worst delay in minutes from the start of the year to that day, by (carrier, day).
        late: the number of flights that were too late for their hour and went to the side output.
        faults: messages about output that no correct answer can contain.
    """

    hourly: Mapping[tuple[str, str], tuple[int, int]]
    worst: Mapping[tuple[str, str], int]
    late: int = 0
    faults: tuple[str, ...] = ()


def read_output(output: Path) -> Answer:
    """Return the job's output, with the late flights added to its rows."""
    hourly: dict[tuple[str, str], tuple[int, int]] = {}
    worst: dict[tuple[str, str], int] = {}
    late = 0
    faults = []

    def add_hour(key: tuple[str, str], departures: int, delay: int) -> None:
        before = hourly.get(key, (0, 0))
        hourly[key] = before[0] + departures, before[1] + delay

    for row in _rows(output / HOURLY):
        add_hour((row["origin"], row["hour"]), int(row["departures"]), int(row["delay_minutes"]))
    for row in _rows(output / LATE_FOR_HOUR):
        late += 1
        add_hour((row["origin"], hour_name(int(row["hour_ms"]))), 1, int(row["delay_minutes"]))
    for row in _rows(output / WORST):
        key = row["carrier"], row["day"]
        if key in worst:
            faults.append(f"worst delay of {' '.join(key)}: Penstock wrote it twice")
        worst[key] = int(row["worst_delay_minutes"])
    for row in _rows(output / LATE_FOR_DAY):
        key = row["carrier"], day_name(int(row["hour_ms"]))
        worst[key] = max(worst.get(key, int(row["delay_minutes"])), int(row["delay_minutes"]))
    return Answer(hourly, running_worst(worst), late, tuple(faults))


def running_worst(worst: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Return the worst delay up to each day, by (carrier, day)."""
    so_far: dict[str, int] = {}
    result = {}
    for carrier, day in sorted(worst):
        delay = worst[carrier, day]
        result[carrier, day] = so_far[carrier] = max(delay, so_far.get(carrier, delay))
    return result


def differences(ours: Answer, theirs: Answer) -> list[str]:
    """Return one line for each row that differs between the answers or occurs twice."""
    return [
        *ours.faults,
        *_unequal("departures and minutes of delay", ours.hourly, theirs.hourly),
        *_unequal("worst delay", ours.worst, theirs.worst),
    ]


def by_origin(answer: Answer) -> dict[str, tuple[int, int]]:
    """Return the departures of the year and the sum of their delays, by origin."""
    totals: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for (origin, _), (departures, delay) in sorted(answer.hourly.items()):
        totals[origin] = totals[origin][0] + departures, totals[origin][1] + delay
    return dict(totals)


def by_carrier(answer: Answer) -> dict[str, int]:
    """Return the worst delay of the year, by carrier."""
    return {carrier: delay for (carrier, _), delay in sorted(answer.worst.items())}


def _rows(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of all visible files; a side output without records has no folder."""
    for path in sorted(folder.glob("[!._]*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)


def _unequal(measure: str, ours: Mapping[K, V], theirs: Mapping[K, V]) -> Iterator[str]:
    for key in sorted({*ours, *theirs}, key=str):
        if ours.get(key) != theirs.get(key):
            name = " ".join(key) if isinstance(key, tuple) else key
            yield f"{measure} of {name}: Penstock {ours.get(key, 'nothing')}, check {theirs.get(key, 'nothing')}"


def answer(flights: Path) -> Answer:
    """Compute the answer from the package's file."""
    hourly: dict[tuple[str, str], tuple[int, int]] = {}
    of_days: dict[str, dict[str, int]] = {}
    with flights.open(encoding="utf-8", newline="") as file:
        for flight in csv.DictReader(file):
            if flight["dep_delay"] == "NA":
                continue
            delay, carrier, day = int(flight["dep_delay"]), flight["carrier"], flight["time_hour"][:10]
            departures, delays = hourly.get((flight["origin"], flight["time_hour"]), (0, 0))
            hourly[flight["origin"], flight["time_hour"]] = departures + 1, delays + delay
            days = of_days.setdefault(carrier, {})
            days[day] = max(delay, days.get(day, delay))
    worst = {}
    for carrier, days in of_days.items():
        so_far = min(days.values())
        for day in sorted(days):
            worst[carrier, day] = so_far = max(so_far, days[day])
    return Answer(hourly, worst)


DIFFERENCES_SHOWN_MAX = 20
_HOURS_SHOWN = 4


def print_comparison(console: Console, ours: Answer, theirs: Answer, checked_by: str, mismatches: list[str]) -> None:
    """Print the table and the verdict.

    Args:
        console: the console to print to.
        ours: the job's output.
        theirs: the answer of the check.
        checked_by: the name of the check.
        mismatches: the differences.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("Penstock", justify="right")
    table.add_column(checked_by, justify="right")
    table.add_column("")
    _add(table, "departures, mean delay", _named(by_origin(ours)), _named(by_origin(theirs)))
    _add(table, "worst hours", *_worst_hours(ours, theirs))
    worst, check = by_carrier(ours), by_carrier(theirs)
    minutes = {carrier: f"{delay:,} min" for carrier, delay in worst.items()}
    _add(table, "worst delay of the year", minutes, {carrier: f"{delay:,} min" for carrier, delay in check.items()})
    table.add_row("rows compared", "", "", "")
    _add_row(table, "hours at an airport", f"{len(ours.hourly):,}", f"{len(theirs.hourly):,}")
    _add_row(table, "days of a carrier", f"{len(ours.worst):,}", f"{len(theirs.worst):,}")
    console.print(table)
    if not mismatches:
        rows = len(ours.hourly) + len(ours.worst)
        console.print(f"[bold green]equal[/]: all {rows:,} rows are the same")
        return
    console.print(f"[bold red]different[/]: {len(mismatches):,} rows are not the same")
    for line in mismatches[:DIFFERENCES_SHOWN_MAX]:
        console.print(f"  {line}", markup=False, soft_wrap=True)
    if len(mismatches) > DIFFERENCES_SHOWN_MAX:
        console.print(f"  and {len(mismatches) - DIFFERENCES_SHOWN_MAX:,} more")


def _named(totals: dict[str, tuple[int, int]]) -> dict[str, str]:
    return {origin: _count_and_mean(total) for origin, total in totals.items()}


def _count_and_mean(total: tuple[int, int] | None) -> str:
    if total is None:
        return "nothing"
    departures, delay_minutes = total
    return f"{departures:,}, {delay_minutes / departures:.1f} min"


def _worst_hours(ours: Answer, theirs: Answer) -> tuple[dict[str, str], dict[str, str]]:
    """Return the hours with the most total delay, according to the check."""
    keys = sorted(theirs.hourly, key=lambda key: (-theirs.hourly[key][1], key))[:_HOURS_SHOWN]
    names = [f"{origin} {hour[:10]} {hour[11:16]} UTC" for origin, hour in keys]
    sides = ([_count_and_mean(side.hourly.get(key)) for key in keys] for side in (ours, theirs))
    left, right = (dict(zip(names, texts, strict=True)) for texts in sides)
    return left, right


def _add(table: Table, title: str, ours: dict[str, str], theirs: dict[str, str]) -> None:
    table.add_row(f"[bold]{title}[/]", "", "", "")
    for name in sorted({*ours, *theirs}):
        _add_row(table, name, ours.get(name, "nothing"), theirs.get(name, "nothing"))
    table.add_section()


def _add_row(table: Table, name: str, ours: str, theirs: str) -> None:
    table.add_row(f"  {name}", ours, theirs, "[green]=[/]" if ours == theirs else "[bold red]differs[/]")
