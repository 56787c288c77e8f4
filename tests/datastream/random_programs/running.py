"""Runs a random program under a setting: in virtual time as a stream, by the local driver in the other modes."""

from __future__ import annotations

import itertools
import tempfile
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

from tests.datastream.random_programs.functions import (
    PLAIN,
    PROCESS,
    WINDOW,
    ReduceThatChanges,
    reduce_to_new,
    select_key,
)
from tests.datastream.random_programs.oracle import Results
from tests.datastream.random_programs.programs import (
    LATE_KEY,
    NO_WATERMARKS,
    Event,
    Plain,
    Process,
    Program,
    Reduce,
    Windowed,
    World,
)
from tests.datastream.random_programs.settings import Setting
from tests.spec.virtual_job import LEDGER, LedgerSink, NothingToHandOut, VirtualJob, clear_ledger, environment

from penstock.base.job import JobStatus
from penstock.base.output_tag import OutputTag
from penstock.base.watermark_strategy import WatermarkGenerator, WatermarkStrategy
from penstock.common import Configuration, Duration
from penstock.connectors.collection import CollectionSource
from penstock.connectors.hybrid import HybridSource
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.functions import KeyedBroadcastProcessFunction, MapFunction
from penstock.datastream.state import MapStateDescriptor
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
)
from penstock.runtime.connector import Boundedness, InputStatus, Source, SourceReader
from penstock.runtime.records import Batch

#: records come so often where an input beside them is idle, in virtual ms, and it is idle after so long
PERIOD_MS: Final = 10
#: of sources with a rate
RATE_PER_SECOND: Final = 2_000.0
IDLE_MS: Final = 5
LATE: Final = OutputTag("late")
RULES: Final = MapStateDescriptor("rules")
#: failures that have happened, by a number of their run
FAILED: Final[set[int]] = set()
_RUNS: Final = itertools.count()


def run(program: Program, setting: Setting) -> Results:
    """What the program gives, by key. Raises what makes a job fail."""
    with _general_windows(setting.general), tempfile.TemporaryDirectory(prefix="penstock-random-") as directory:
        rows = _stream(program, setting, Path(directory)) if setting.mode == "STREAMING" else _local(program, setting)
    results: Results = defaultdict(list)
    for key, numbers in rows:
        results[key].append(numbers)
    return dict(results)


@contextmanager
def _general_windows(is_general: bool) -> Any:
    """No window has a trigger that the fast operators know."""
    if not is_general:
        yield
        return
    with mock.patch("penstock.plan.transformation._FAST", {}):
        yield


# --- jobs -------------------------------------------------------------------------------------------------------------


def _local(program: Program, setting: Setting) -> list[Any]:
    options = {
        "execution.target": "local",
        "penstock.source.batch-records": str(setting.batch),
        "execution.micro-batch.max-records": str(max(setting.batch, len(program.world.events) // 12, 1)),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    env.set_parallelism(setting.parallelism).set_max_parallelism(8)
    env.set_runtime_mode(RuntimeExecutionMode[setting.mode])
    if not setting.chains:
        env.disable_operator_chaining()
    return list(build(env, program, setting, -1).execute_and_collect(limit=10**6))


def _stream(program: Program, setting: Setting, directory: Path) -> list[Any]:
    clear_ledger()
    number = next(_RUNS)
    job = _begin(program, setting, directory, number, None)
    if setting.event == "savepoint":
        asked: list[Any] = []
        turn = 3 + len(program.world.events) // 2
        job.when(
            lambda: job.turns >= turn,
            lambda: asked.append(job.stop_with_savepoint(False, str(directory / "savepoints"))),
        )
    status = job.run()
    if status is not JobStatus.FINISHED:
        raise RuntimeError(job.failure())
    # A job that ends before it has stopped needs nothing to go on from.
    if setting.event == "savepoint" and asked and asked[0].exception() is None:
        parallelism = setting.parallelism % 4 + 1 if program.keyed == 1 else 1
        backend = "rocksdb" if setting.backend == "hashmap" else "hashmap"
        again = replace(setting, parallelism=parallelism, backend=backend)
        second = _begin(program, again, directory, number, asked[0].result(0))
        if second.run() is not JobStatus.FINISHED:
            raise RuntimeError(second.failure())
    return [row for rows in LEDGER.values() for row in rows]


def _begin(program: Program, setting: Setting, directory: Path, number: int, path: str | None) -> VirtualJob:
    options: dict[str, Any] = {
        "penstock.source.batch-records": setting.batch,
        "state.backend.type": setting.backend,
        "state.backend.rocksdb.localdir": directory / "rocksdb",
        "execution.checkpointing.dir": directory / "checkpoints",
        "execution.checkpointing.interval": None if setting.checkpoints == "none" else "1 h",
        "execution.state-recovery.path": path,
        "penstock.network.buffer-records": 3,
    }
    if setting.checkpoints == "unaligned":
        options["execution.checkpointing.unaligned.enabled"] = "true"
    if setting.checkpoints == "at least once":
        options["execution.checkpointing.mode"] = "AT_LEAST_ONCE"
    env = environment(setting.parallelism, **options)
    env.set_max_parallelism(8)
    if not setting.chains:
        env.disable_operator_chaining()
    build(env, program, setting, number).sink_to(LedgerSink("out")).uid("sink")
    job = VirtualJob(env)
    if setting.checkpoints != "none":
        for turn in range(4, 4000, 9):
            job.when(lambda turn=turn: job.turns >= turn, job.trigger_checkpoint)  # type: ignore[misc]
    return job


# --- programs ---------------------------------------------------------------------------------------------------------


def build(env: StreamExecutionEnvironment, program: Program, setting: Setting, number: int) -> DataStream:
    """The program's last stream. `number`: of its run, for failures."""
    stream = _source(env, program.world, setting)
    if setting.event == "failure":
        at = len(program.world.events) * 2 // 3
        stream = stream.map(FailsOnce(number, at)).set_parallelism(1).uid("fails")
    is_keyed = False
    for place, stage in enumerate(program.stages):
        if setting.readers > 1:
            _read_beside(stream, f"beside {place}")
        stream = _with_stage(stream, stage, f"stage {place}")
        if not stage.is_keyed and not is_keyed:
            stream.set_parallelism(1)
        is_keyed = is_keyed or stage.is_keyed
    return stream


def _read_beside(stream: DataStream, uid: str) -> None:
    """Another operator, which changes the records; nothing comes of it."""
    changed = stream.map(_changed).uid(uid).filter(_is_nothing).uid(f"{uid} filter")
    changed.sink_to(LedgerSink(uid)).uid(f"{uid} sink")


def _changed(record: Any) -> Any:
    record[1].append(-1)
    record[0] = -1
    return record


def _is_nothing(record: Any) -> bool:
    return False


def _with_stage(stream: DataStream, stage: Any, uid: str) -> DataStream:
    match stage:
        case Plain():
            found: DataStream = PLAIN[stage.kind](stream).uid(uid)
        case Process():
            found = stream.key_by(select_key).process(PROCESS[stage.kind](stage.delay_ms, stage.count)).uid(uid)
        case Reduce():
            function = ReduceThatChanges() if stage.kind == "changes first" else reduce_to_new
            found = stream.key_by(select_key).reduce(function).uid(uid)
        case Windowed():
            found = WINDOW[stage.function](_windows(stream, stage)).uid(uid)
            if stage.keeps_late:
                found = found.union(found.get_side_output(LATE).map(_as_late).uid(f"{uid} late"))
    return found


def _as_late(record: Any) -> Any:
    return [record[0] + LATE_KEY, record[1]]


def _windows(stream: DataStream, stage: Windowed) -> Any:
    kind, *numbers = stage.assigner
    keyed = stream.key_by(select_key)
    windows = keyed.count_window(*numbers) if kind == "count" else keyed.window(_ASSIGNERS[kind](*numbers))
    if stage.trigger is not None:
        of_kind, *more = stage.trigger
        trigger = _TRIGGERS[of_kind](*more)
        windows = windows.trigger(PurgingTrigger.of(trigger) if stage.purges else trigger)
    if stage.evictor is not None:
        of_kind, size, after = stage.evictor
        windows = windows.evictor((CountEvictor if of_kind == "count" else TimeEvictor)(size, after))
    if stage.lateness_ms:
        windows = windows.allowed_lateness(stage.lateness_ms)
    return windows.side_output_late_data(LATE) if stage.keeps_late else windows


_ASSIGNERS: Final[dict[str, Any]] = {
    "tumbling": lambda size, offset: TumblingEventTimeWindows(size, offset),
    "sliding": lambda size, slide: SlidingEventTimeWindows(size, slide, 0),
    "cumulative": lambda size, step: CumulativeEventTimeWindows(size, step, 0),
    "session": lambda gap: EventTimeSessionWindows.with_gap(Duration.of_millis(gap)),
    "global": GlobalWindows,
}
_TRIGGERS: Final[dict[str, Any]] = {
    "count": CountTrigger,
    "continuous": ContinuousEventTimeTrigger,
    "end": EventTimeTrigger,
}


class FailsOnce(MapFunction):
    """Raises at one record, once in a run."""

    def __init__(self, number: int, at: int) -> None:
        self._number, self._at = number, at
        self._seen = 0

    def map(self, value: Any) -> Any:
        self._seen += 1
        if self._seen > self._at and self._number not in FAILED:
            FAILED.add(self._number)
            raise RuntimeError("once")
        return value


# --- sources ----------------------------------------------------------------------------------------------------------


class AfterEachRecord(WatermarkGenerator):
    """A watermark after each record that moves it, see `World`."""

    def __init__(self, lag_ms: int) -> None:
        self._lag_ms = lag_ms
        self._highest: int | None = None

    def on_event(self, value: Any, timestamp_ms: int) -> int | None:  # type: ignore[override]
        if self._lag_ms == NO_WATERMARKS or (self._highest is not None and timestamp_ms <= self._highest):
            return None
        self._highest = timestamp_ms
        return timestamp_ms - self._lag_ms - 1

    def on_periodic_emit(self) -> int | None:  # type: ignore[override]
        return None


class Events(Source[Any, int]):
    """Events in one subtask, at a time or one each `period_ms`; their state is the position."""

    def __init__(self, events: tuple[Event, ...], period_ms: int = 0, waits_ms: int = 0) -> None:
        self.events, self.period_ms, self.waits_ms = events, period_ms, waits_ms

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def max_parallelism(self) -> int | None:
        return 1

    def create_enumerator(self, context: Any, restored: Any) -> Any:
        return NothingToHandOut()

    def create_reader(self, context: Any) -> SourceReader[Any, int]:
        return EventsReader(self, context)


class EventsReader(SourceReader[Any, int]):
    def __init__(self, source: Events, context: Any) -> None:
        self._source, self._context = source, context
        self._position = 0
        self._begun_ms: int = context.now_ms()

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        source = self._source
        if self.retry_after_ms() > 0:
            return InputStatus.NOTHING_AVAILABLE
        if self._position == len(source.events):
            return InputStatus.END_OF_INPUT
        events = source.events[self._position : self._position + (1 if source.period_ms else max_records)]
        self._position += len(events)
        return Batch([[key, [value]] for key, value, _ in events], [time for _, _, time in events])

    def retry_after_ms(self) -> int:
        source = self._source
        due = self._begun_ms + source.waits_ms + source.period_ms * (self._position + 1)
        wait: int = due - self._context.now_ms()
        return max(0, wait) if source.period_ms or source.waits_ms else 0

    def add_splits(self, splits: Any) -> None:
        (self._position,) = splits

    def no_more_splits(self) -> None: ...

    def snapshot_state(self, checkpoint_id: int) -> list[int]:
        return [self._position]


class _Ignores(KeyedBroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(1, value)


def _source(env: StreamExecutionEnvironment, world: World, setting: Setting) -> DataStream:
    """The events, and what is beside them: an input that ends at once, or one that never has a record and is idle."""
    has_idle = "idle" in setting.beside
    period_ms = PERIOD_MS if setting.beside != "nothing" else 0
    if setting.source == "at once" and setting.mode == "STREAMING":
        source: Any = Events(world.events, period_ms)
    else:
        source = _public_source(world.events, setting.source)
    strategy = WatermarkStrategy.for_generator(_Generators(world.lag_ms))
    stream = env.from_source(source, strategy, "events").uid("events").set_parallelism(1)
    empty = WatermarkStrategy.for_monotonous_timestamps()
    if "ended" in setting.beside and "broadcast" not in setting.beside:
        stream = stream.union(env.from_source(Events(()), empty, "ended").uid("ended"))
    if has_idle:
        last_ms = PERIOD_MS * (len(world.events) + 20)
        idle = Events((), waits_ms=last_ms)
        stream = stream.union(
            env.from_source(idle, empty.with_idleness(Duration.of_millis(IDLE_MS)), "idle").uid("idle")
        )
    if setting.beside == "ended broadcast":
        rules = env.from_source(Events(()), empty, "rules").uid("rules").broadcast(RULES)
        stream = stream.key_by(select_key).connect(rules).process(_Ignores()).set_parallelism(1).uid("with rules")
    return stream


class _Generators:
    def __init__(self, lag_ms: int) -> None:
        self._lag_ms = lag_ms

    def __call__(self) -> WatermarkGenerator:
        return AfterEachRecord(self._lag_ms)


def _public_source(events: tuple[Event, ...], kind: str) -> Any:
    """The events in a source that a user would take."""
    if kind.startswith("hybrid"):
        half = len(events) // 2
        part = "at a rate" if kind == "hybrid at a rate" else "at once"
        first = HybridSource.builder(_public_source(events[:half], part))
        return first.add_source(_public_source(events[half:], part)).build()
    values, times = [[key, [value]] for key, value, _ in events], [time for _, _, time in events]
    if kind == "at once":
        return CollectionSource(values, times)
    return DataGeneratorSource(values.__getitem__, len(values), RATE_PER_SECOND, times.__getitem__)
