"""What becomes of timers when a job ends, is suspended, or goes on after some of its subtasks have ended (F5)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from tests.spec.virtual_job import LEDGER, LedgerSink, Timed, VirtualJob, clear_ledger, environment

from penstock.base.job import JobStatus
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.datastream import DataStream
from penstock.datastream.functions import KeyedCoProcessFunction, KeyedProcessFunction
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.job.view import job_progress
from penstock.runtime.operators.record.process import KeyedProcessOperator, TimeDomain
from penstock.runtime.records import MAX_WATERMARK
from penstock.state.keys import assign_key_group, key_group_range

pytestmark = pytest.mark.usefixtures("checkpoints_in_store")

AN_HOUR: Any = {"execution.checkpointing.interval": "1 h"}
FAILS: set[str] = set()


@pytest.fixture(autouse=True)
def nothing_committed() -> None:
    clear_ledger()
    FAILS.clear()


class Alarms(KeyedProcessFunction):
    """Sets timers at the given distances (ms) from each record, and emits those that fire.

    Those of processing time set two more, one of each kind, `again` ms later.
    """

    def __init__(self, event: Iterable[int] = (), processing: Iterable[int] = (), again: int | None = None) -> None:
        self.event, self.processing, self.again = event, processing, again

    def process_element(self, value: Any, ctx: Any) -> None:
        timers = ctx.timer_service()
        for distance in self.event:
            timers.register_event_time_timer(min(ctx.timestamp() + distance, MAX_WATERMARK))
        for distance in self.processing:
            timers.register_processing_time_timer(timers.current_processing_time() + distance)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        if self.again is not None and ctx.time_domain() is TimeDomain.PROCESSING_TIME:
            ctx.timer_service().register_processing_time_timer(timestamp + self.again)
            ctx.timer_service().register_event_time_timer(timestamp + self.again)
        yield ctx.time_domain().name.removesuffix("_TIME").lower(), timestamp


class DrainedAlarms(Alarms):
    """Asks for all to fire."""

    drain_processing_time_timers = True


def run(function: Any, source: Timed, env: Any = None, **options: Any) -> VirtualJob:
    """A job of one keyed function."""
    env = env or environment(1, **{**AN_HOUR, **options})
    stream = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "records")
    stream.key_by(lambda record: record[0]).process(function).sink_to(LedgerSink("fired"))
    return VirtualJob(env)


def test_event_time_timers_fire_at_the_end_of_time() -> None:
    """F3, F5: MAX_WATERMARK fires all event-time timers in order, that at the very end of time included."""
    job = run(Alarms(event=(MAX_WATERMARK, 2_000_000, 1_000_000)), Timed(1_000, (2,)))
    assert job.run() is JobStatus.FINISHED
    times = [1_000_000, 1_001_000, 2_000_000, 2_001_000, MAX_WATERMARK]
    assert LEDGER["fired"] == [("event", time) for time in times]


def test_pending_processing_time_timers_are_dropped() -> None:
    """F5: processing-time timers that are not due at the end never fire, and the job does not wait for them."""
    job = run(Alarms(processing=(1_500, 60_000)), Timed(1_000, (4,)))
    assert job.run() is JobStatus.FINISHED
    assert LEDGER["fired"] == [("processing", 1_500), ("processing", 2_500)]
    assert job.now_ms == 3_000


def test_a_function_may_ask_for_its_processing_time_timers() -> None:
    """F5: with `drain_processing_time_timers` all that wait fire at the end, in order of time, before `finish`; what
    they set is not taken."""
    job = run(DrainedAlarms(processing=(90_000, 60_000), again=1), Timed(1_000, (3,)))
    assert job.run() is JobStatus.FINISHED
    times = [60_000, 61_000, 62_000, 90_000, 91_000, 92_000]
    assert LEDGER["fired"] == [("processing", time) for time in times]
    assert job.now_ms == 2_000


class TwoInputs(KeyedCoProcessFunction):
    """A timer from each input, far ahead."""

    drain_processing_time_timers = True

    def process_element1(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_processing_time_timer(60_000 + value[1])

    def process_element2(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_processing_time_timer(70_000 + value[1])

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield timestamp


def test_two_inputs_drain_at_the_end_of_both() -> None:
    """F5: timers of a function with two inputs go on when the first one ends, and are drained when both have ended."""
    env = environment(1, **AN_HOUR)
    one, other = (
        env.from_source(Timed(period, (count,)), WatermarkStrategy.no_watermarks(), "records").key_by(lambda r: r[0])
        for period, count in ((1_000, 2), (61_000, 2))
    )
    one.connect(other).process(TwoInputs()).sink_to(LedgerSink("fired"))
    job = VirtualJob(env)
    times: list[int] = []
    job.at(60_500, lambda: times.append(job_progress(job.master.view()).vertices[2].records_out))
    assert job.run() is JobStatus.FINISHED
    assert LEDGER["fired"] == [60_000, 60_001, 70_000, 70_001]
    assert job.now_ms == 61_000


# --- the state that is left -----------------------------------------------------------------------------------------


def key_of_subtask(subtask: int, parallelism: int) -> str:
    """A key whose key group belongs to the subtask, so that no network edge is needed in front of the operator."""
    first, last = key_group_range(subtask, 128, parallelism)
    return next(k for k in map(str, range(1_000)) if first <= assign_key_group(k, 128) <= last)


KEYS = [key_of_subtask(subtask, 2) for subtask in range(2)]


def own_key(record: tuple[int, int]) -> str:
    return KEYS[record[0]]


def fail_when_told(value: Any) -> Any:
    if FAILS:
        FAILS.clear()
        raise RuntimeError("told to fail")
    return value


def test_dropped_timers_are_in_no_snapshot() -> None:
    """F5, G10: a subtask that has ended leaves no processing-time timer in checkpoints: when it runs again after a
    failure, long after they would have been due, nothing fires."""
    assert fired_by_a_subtask_that_ran_again(Alarms(processing=(60_000,))) == []


def test_timers_set_by_drained_timers_are_in_no_snapshot() -> None:
    """F5, G10: what drained timers set is not taken, of neither kind: when the subtask runs again, nothing fires."""
    fired = fired_by_a_subtask_that_ran_again(DrainedAlarms(processing=(60_000,), again=10))
    assert fired == [("processing", 60_000), ("processing", 61_000)]


def fired_by_a_subtask_that_ran_again(function: Any) -> list[Any]:
    """Subtask 0 ends at 1 s, subtask 1 goes on, and fails at 70 s; the job goes on from the checkpoint before."""
    env = environment(2)
    stream = env.from_source(Timed(1_000, (2, 90)), WatermarkStrategy.for_monotonous_timestamps(), "records")
    stream = stream.map(fail_when_told).filter(lambda record: record[0] == 0)
    made = Transformation("Alarms", partial(KeyedProcessOperator, function, own_key), stream.upstreams)
    env.add(made)
    DataStream(env, (Upstream(made),)).sink_to(LedgerSink("fired"))
    job = VirtualJob(env)
    job.at(70_000, lambda: FAILS.add("now"))
    assert job.run() is JobStatus.FINISHED
    assert job.master.history.restarts == 1
    return LEDGER.get("fired", [])


@pytest.mark.parametrize("function", [Alarms(processing=(60_000,)), DrainedAlarms(processing=(60_000,))])
def test_suspended_timers_go_on_in_the_next_job(function: Any, store_directory: Any) -> None:
    """F5, H2: stopping without drain is no end: no timer fires or is dropped, not even those to be drained; the job
    that begins from the savepoint fires them when they are due."""
    job = run(function, Timed(1_000, (None,)))
    stopped: list[Any] = []
    job.at(2_500, lambda: stopped.append(job.stop_with_savepoint(False, str(store_directory))))
    assert job.run() is JobStatus.FINISHED
    assert LEDGER.get("fired", []) == []
    job = run(function, Timed(1_000, (None,)), **{"execution.state-recovery.path": stopped[0].result(0)})
    fired: list[Any] = []
    job.at(62_500, lambda: fired.append(job.stop_with_savepoint(False, str(store_directory))))
    assert job.run() is JobStatus.FINISHED
    # Its clock began anew, and the records that come at 1 s and 2 s were read by the job before.
    assert LEDGER["fired"] == [("processing", 60_000), ("processing", 61_000), ("processing", 62_000)]


def test_drain_drops_them_like_any_end(store_directory: Any) -> None:
    """F5, H2: stopping with drain fires the event-time timers and drops those of processing time."""
    job = run(Alarms(event=(50_000,), processing=(60_000,)), Timed(1_000, (None,)))
    job.at(1_500, lambda: job.stop_with_savepoint(True, str(store_directory)))
    assert job.run() is JobStatus.FINISHED
    assert LEDGER["fired"] == [("event", 50_000), ("event", 51_000)]
