"""Event time goes on after a restart: what was late before it is late after it (C2, H4). Time is virtual.

Each program runs once to its end, and once in two jobs, or with a failure in between. The second job, or the next
attempt, begins with a record that is long late. It must give what the uninterrupted job gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.spec.virtual_job import LEDGER, LedgerSink, Timed, VirtualJob, clear_ledger, environment

from penstock.base.job import JobStatus
from penstock.base.output_tag import OutputTag
from penstock.base.time import Time
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.cep import CEP, Pattern
from penstock.common import Row, Types
from penstock.datastream import DataStream, ProcessJoinFunction, StreamExecutionEnvironment
from penstock.datastream.functions import KeyedCoProcessFunction, KeyedProcessFunction, ProcessFunction
from penstock.datastream.window import (
    CountEvictor,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.runtime.protocol import WorkerLost
from penstock.table import Schema, StreamTableEnvironment

pytestmark = pytest.mark.usefixtures("checkpoints_in_store")

PERIOD_MS, RECORDS, KEYS = 100, 80, 3
#: Each tenth record, and its neighbours up to the number of keys, is so late (ms) that its windows have fired.
LATE_MS, LATE_EVERY = 3_000, 10
#: Ahead of the first late record after it, of which there is one for each key.
STOP_MS = 4_950
LATE = OutputTag("late")


@pytest.fixture(autouse=True)
def nothing_committed() -> None:
    clear_ledger()


def is_late(number: int) -> bool:
    return number >= 4 * LATE_EVERY and number % LATE_EVERY < KEYS


def get_event_time(record: tuple[int, int], timestamp: int) -> int:
    return timestamp - (LATE_MS if is_late(record[1]) else 0)


def select_key(record: tuple[int, int]) -> int:
    return record[1] % KEYS


STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(get_event_time)


def seen_as_late(record: Any, ctx: Any) -> tuple[int, bool]:
    return record[1], ctx.timestamp() <= ctx.timer_service().current_watermark()


class SeenAsLate(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield seen_as_late(value, ctx)


class KeyedSeenAsLate(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield seen_as_late(value, ctx)


class BothSeenAsLate(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield seen_as_late(value, ctx)

    process_element2 = process_element1


class Alarm(KeyedProcessFunction):
    """A timer in the past fires with the next watermark: with the first one, if event time has begun again."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(ctx.timestamp())

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp, ctx.timer_service().current_watermark()


class Pair(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield left[1], right[1]


def add(one: Any, other: Any) -> Any:
    return one[0], one[1] + other[1]


def windowed(assigner: Any, configure: Callable[[Any], Any] = lambda windows: windows) -> Callable[[DataStream], Any]:
    def build(records: DataStream) -> DataStream:
        windows = configure(records.key_by(select_key).window(assigner)).side_output_late_data(LATE)
        sums: DataStream = windows.reduce(add).uid("windows")
        return sums.union(sums.get_side_output(LATE).map(lambda record: ("late", record)).uid("late"))

    return build


def interval_join(records: DataStream) -> DataStream:
    keyed = records.key_by(select_key)
    return keyed.interval_join(keyed).between(Time.milliseconds(0), Time.milliseconds(300)).process(Pair()).uid("join")


def window_join(records: DataStream) -> DataStream:
    windows = (
        records.join(records)
        .where(select_key)
        .equal_to(select_key)
        .window(TumblingEventTimeWindows.of(Time.seconds(1)))
    )
    joined: DataStream = windows.apply(lambda one, other: (one[1], other[1])).uid("join")
    return joined


def pattern(records: DataStream) -> DataStream:
    found = CEP.pattern(records.key_by(select_key), Pattern.begin("a").next("b")).side_output_late_data(LATE)
    matches = found.select(lambda match: (match["a"][0][1], match["b"][0][1])).uid("pattern")
    return matches.union(matches.get_side_output(LATE).map(lambda record: ("late", record)).uid("late"))


def both_inputs(records: DataStream) -> DataStream:
    keyed = records.key_by(select_key)
    return keyed.connect(keyed).process(BothSeenAsLate()).uid("both")


def query(sql: str) -> Callable[[DataStream], DataStream]:
    """A query over the records as a table r of k, n and ts."""

    def build(records: DataStream) -> DataStream:
        tables = StreamTableEnvironment.create(records.get_execution_environment())
        rows = records.map(
            lambda record: Row(select_key(record), record[1]), Types.ROW_NAMED(["k", "n"], [Types.INT()] * 2)
        )
        schema = Schema.new_builder().column("k", "INT").column("n", "INT")
        schema = schema.column_by_metadata("ts", "TIMESTAMP_LTZ(3)", "rowtime").watermark("ts", "SOURCE_WATERMARK()")
        tables.create_temporary_view("r", rows.uid("rows"), schema.build())
        return tables.to_data_stream(tables.sql_query(sql)).map(str).uid("text")

    return build


TUMBLE = "TABLE(TUMBLE(TABLE r, DESCRIPTOR(ts), INTERVAL '1' SECOND))"
A_SECOND = Time.seconds(1)
PROGRAMS: dict[str, Callable[[DataStream], DataStream]] = {
    "tumbling windows": windowed(TumblingEventTimeWindows.of(A_SECOND)),
    "with lateness": windowed(TumblingEventTimeWindows.of(A_SECOND), lambda w: w.allowed_lateness(1_500)),
    "with an evictor": windowed(TumblingEventTimeWindows.of(A_SECOND), lambda w: w.evictor(CountEvictor.of(100))),
    "sliding windows": windowed(SlidingEventTimeWindows.of(A_SECOND, Time.milliseconds(500))),
    "sessions": windowed(EventTimeSessionWindows.with_gap(Time.milliseconds(250))),
    "interval join": interval_join,
    "window join": window_join,
    "patterns": pattern,
    "process": lambda records: records.process(SeenAsLate()).uid("process"),
    "keyed process": lambda records: records.key_by(select_key).process(KeyedSeenAsLate()).uid("process"),
    "two inputs": both_inputs,
    "timers": lambda records: records.key_by(select_key).process(Alarm()).uid("timers"),
    "SQL windows": query(f"SELECT k, window_start, COUNT(*) FROM {TUMBLE} GROUP BY k, window_start, window_end"),
    "SQL GROUP BY": query("SELECT k, SUM(n) FROM r GROUP BY k, TUMBLE(ts, INTERVAL '1' SECOND)"),
    "SQL by row": query("SELECT k, CARDINALITY(COLLECT(n)) FROM r GROUP BY k, TUMBLE(ts, INTERVAL '1' SECOND)"),
    "SQL OVER": query("SELECT k, n, COUNT(*) OVER (PARTITION BY k ORDER BY ts) FROM r"),
    "SQL join": query(
        "SELECT a.n, b.n FROM r a JOIN r b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '0.3' SECOND"
    ),
    "SQL ranks": query(
        f"SELECT k, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY n) AS p "
        f"FROM {TUMBLE}) WHERE p = 1"
    ),
}


@dataclass
class Restart:
    """How a job comes to begin again."""

    parallelism: tuple[int, int] = (2, 2)
    fails: bool = False
    options: tuple[tuple[str, str], ...] = ()


RESTARTS = {
    "savepoint": Restart(),
    "more subtasks": Restart((2, 3)),
    "fewer subtasks": Restart((3, 1)),
    "failure": Restart(fails=True),
    "unaligned": Restart(fails=True, options=(("execution.checkpointing.unaligned.enabled", "true"),)),
    "rocksdb": Restart(fails=True, options=(("state.backend.type", "rocksdb"),)),
    "at the assigner": Restart(options=(("assigner", "true"),)),
}


def build(env: StreamExecutionEnvironment, program: str, assigns_later: bool) -> VirtualJob:
    source_strategy = WatermarkStrategy.no_watermarks() if assigns_later else STRATEGY
    records = env.from_source(Timed(PERIOD_MS, (RECORDS,)), source_strategy, "timed").uid("timed").set_parallelism(1)
    if assigns_later:
        records = records.assign_timestamps_and_watermarks(STRATEGY).uid("assigner").set_parallelism(1)
    PROGRAMS[program](records).sink_to(LedgerSink("out")).uid("sink")
    return VirtualJob(env)


def settings(restart: Restart, tmp_path: Path) -> dict[str, Any]:
    options = {key: value for key, value in restart.options if key != "assigner"}
    return {"penstock.source.batch-records": 1, "state.backend.rocksdb.localdir": tmp_path / "rocksdb", **options}


def results(job: VirtualJob) -> list[Any]:
    assert job.run() is JobStatus.FINISHED, job.failure()
    found = sorted(LEDGER["out"], key=repr)
    clear_ledger()
    return found


def interrupted(program: str, restart: Restart, tmp_path: Path, savepoints: Path) -> list[Any]:
    before, after = restart.parallelism
    options, assigns_later = settings(restart, tmp_path), ("assigner", "true") in restart.options
    first = build(environment(before, **{"execution.checkpointing.interval": "1 h", **options}), program, assigns_later)
    if restart.fails:
        first.at(STOP_MS - 10, first.trigger_checkpoint)
        first.at(STOP_MS - 5, lambda: None)  # the job takes the checkpoint in this turn
        first.at(STOP_MS, lambda: lose_a_worker(first))
        found = results(first)
        assert first.listener.statuses.count("RESTARTING") == 1
        assert first.checkpoints[0].checkpoint_id == 1, "it begins again from the checkpoint that the test asked for"
        return found
    first.at(STOP_MS, lambda: first.stop_with_savepoint(False, str(savepoints)))
    assert first.run() is JobStatus.FINISHED, first.failure()
    (path,) = savepoints.iterdir()
    options["execution.state-recovery.path"] = path
    return results(build(environment(after, **options), program, assigns_later))


def lose_a_worker(job: VirtualJob) -> None:
    worker_id = next(iter(job._cluster._executors))
    job._cluster.release(worker_id)
    job._cluster.inbox.append(WorkerLost(worker_id, "the test took it"))


@pytest.mark.slow
@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_late_record_is_late_after_a_restart(
    program: str, restart: str, tmp_path: Path, store_directory: Path
) -> None:
    """C2, K1: a restart changes no result, though the first record after it is late."""
    how = RESTARTS[restart]
    assigns_later = ("assigner", "true") in how.options
    whole = results(build(environment(2, **settings(how, tmp_path)), program, assigns_later))
    assert interrupted(program, how, tmp_path, store_directory / "savepoints") == whole
