"""Bounded and unbounded sources in one job, and the last checkpoint of a job that is over; hours in virtual time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.spec.virtual_job import LEDGER, REFUSED, LedgerSink, Timed, VirtualJob, clear_ledger, environment, records

from penstock.base.job import JobStatus
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.datastream import CoProcessFunction, KeyedCoProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.runtime.protocol import DeclineCheckpoint
from penstock.storage.metadata import OperatorState

pytestmark = pytest.mark.usefixtures("checkpoints_in_store")

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
INTERVAL_MS = 10_000
AN_HOUR: Any = {"execution.checkpointing.interval": "1 h"}


@pytest.fixture(autouse=True)
def nothing_committed() -> None:
    clear_ledger()


class Both(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield "one", value

    def process_element2(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield "other", value


class WithRate(KeyedCoProcessFunction):
    """Each record of the second stream with the last one of the first, which is kept in state."""

    def open(self, runtime_context: Any) -> None:
        self.rate = runtime_context.get_state(ValueStateDescriptor("rate"))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.rate.update(value[1])

    def process_element2(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value[1], self.rate.value()


def mixed(how: str, endless: Timed, **options: Any) -> VirtualJob:
    """A source of five records joined with one that goes on."""
    env = environment(2, **options)
    strategy = WatermarkStrategy.no_watermarks()
    one = env.from_source(Timed(1_000, (5,)), strategy, "bounded").uid("bounded")
    other = env.from_source(endless, strategy, "endless").uid("endless")
    if how == "connect":
        joined = one.connect(other).process(Both())
    elif how == "keyed":
        joined = one.connect(other).key_by(lambda r: r[0], lambda r: r[0]).process(WithRate())
    else:
        joined = one.union(other).map(lambda record: record)
    joined.uid("joined").sink_to(LedgerSink("out"))
    return VirtualJob(env)


def by_uid(operators: Iterable[OperatorState]) -> dict[str | None, OperatorState]:
    return {o.uid: o for o in operators}


@pytest.mark.slow
@pytest.mark.parametrize(("how", "hours"), [("connect", 3), ("keyed", 1), ("union", 1)])
def test_checkpoints_go_on_for_hours_after_one_source_has_ended(how: str, hours: int) -> None:
    """G10, F6: a bounded source joined to an endless one: for hours every checkpoint completes, on time, and holds the
    finished frontier; what it covers is committed."""
    job = mixed(how, Timed(7_000, (None,)))
    job.at(hours * HOUR_MS + 1, job.cancel)
    assert job.run() is JobStatus.CANCELED
    count = hours * HOUR_MS // INTERVAL_MS
    assert [c.checkpoint_id for c in job.checkpoints] == list(range(1, count + 1))
    assert [c.timestamp_ms for c in job.checkpoints] == list(range(INTERVAL_MS, hours * HOUR_MS + 1, INTERVAL_MS))
    statistics = job.master.checkpoints.statistics
    assert (statistics.triggered, statistics.completed, statistics.failed) == (count, count, 0)
    for checkpoint in job.checkpoints:
        operators = by_uid(checkpoint.operators)
        assert operators["bounded"].fully_finished
        assert operators["endless"].finished == operators["joined"].finished == ()
    endless = 2 * len(range(0, hours * HOUR_MS, 7_000))
    assert len(LEDGER["out"]) == endless + (0 if how == "keyed" else 10)
    if how == "keyed":
        assert {rate for n, rate in LEDGER["out"] if n > 0} == {4}, "the state of the ended stream stays forever"


def test_the_state_of_an_ended_stream_survives_a_failure_hours_later() -> None:
    """G10, G8: what the join keeps of the stream that ended is still there after a failure hours later."""
    job = mixed("keyed", Timed(MINUTE_MS, (None,)))
    job.at(2 * HOUR_MS, lambda: _break(job))
    job.at(3 * HOUR_MS, job.cancel)
    assert job.run() is JobStatus.CANCELED
    assert job.master.history.restarts == 1
    assert {rate for n, rate in LEDGER["out"] if n > 0} == {4}
    minutes = [n for n, _ in LEDGER["out"]]
    assert sorted(minutes) == sorted(2 * list(range(3 * 60)))


def _break(job: VirtualJob) -> None:
    """The job's next checkpoint fails, and that is one failure too many."""
    task = job.master._graph.executions()[0].id
    job.when(
        lambda: job.master.checkpoints._pending,
        lambda: job.master.on_message(
            DeclineCheckpoint(task, max(job.master.checkpoints._pending), "disk full", is_failure=True)
        ),
    )


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_bounded_job_commits_its_last_records_in_a_last_checkpoint(parallelism: int) -> None:
    """F6: what came after the last periodic checkpoint is committed by one more, in which everything has finished."""
    counts = (23, 12)[:parallelism]
    env = environment(parallelism)
    committed: list[int] = []
    stream = env.from_source(Timed(1_001, counts), WatermarkStrategy.no_watermarks(), "records")
    stream.key_by(lambda record: record).map(lambda record: record).sink_to(LedgerSink("out"))
    job = VirtualJob(env)
    job.at(20_500, lambda: committed.append(len(LEDGER["out"])))
    assert job.run() is JobStatus.FINISHED
    assert [c.checkpoint_id for c in job.checkpoints] == [1, 2, 3]
    assert committed == [sum(min(count, 20) for count in counts)]
    assert sorted(LEDGER["out"]) == records(*counts)
    assert all(o.fully_finished for o in job.checkpoints[-1].operators)
    assert not any(o.fully_finished for o in job.checkpoints[-2].operators)


@pytest.mark.parametrize("counts", [(3,), (3, 9), (0, 4), (5, 1)], ids=str)
def test_a_job_that_is_over_does_not_wait_for_the_interval(counts: tuple[int, ...]) -> None:
    """F6: with an hour between checkpoints, a job whose sources have all ended takes its last one at once, and ends."""
    env = environment(len(counts), **AN_HOUR)
    stream = env.from_source(Timed(1_000, counts), WatermarkStrategy.no_watermarks(), "records")
    stream.key_by(lambda record: record).map(lambda record: record).sink_to(LedgerSink("out"))
    job = VirtualJob(env)
    assert job.run() is JobStatus.FINISHED
    assert job.now_ms == 1_000 * (max(counts) - 1), "the moment of the last record"
    assert [c.checkpoint_id for c in job.checkpoints] == [1]
    assert sorted(LEDGER["out"]) == records(*counts)


def test_a_job_that_is_over_after_a_failure_does_not_wait_either() -> None:
    """F6, G8: the same for an attempt that comes to the end of its data, and for one that has only to commit."""
    env = environment(1, **AN_HOUR)
    stream = env.from_source(Timed(1_000, (3,)), WatermarkStrategy.no_watermarks(), "records")
    stream.key_by(lambda record: record).map(lambda record: record).sink_to(LedgerSink("out"))
    job = VirtualJob(env)
    REFUSED.add("out")
    assert job.run() is JobStatus.FINISHED
    assert job.now_ms == 2_000 + 1_000, "and the delay of the restart"
    assert LEDGER["out"] == records(3)


def test_an_end_during_a_checkpoint_is_followed_by_another() -> None:
    """F6: when the data ends while a checkpoint is in the making, that one commits what came before it, and the next
    follows at once."""
    env = environment(1, **AN_HOUR)
    stream = env.from_source(Timed(1_000, (3,)), WatermarkStrategy.no_watermarks(), "records")
    stream.sink_to(LedgerSink("out"))
    job = VirtualJob(env)
    job.at(2_000, job.trigger_checkpoint)
    assert job.run() is JobStatus.FINISHED
    assert job.now_ms == 2_000
    assert [c.checkpoint_id for c in job.checkpoints] == [1, 2]
    assert LEDGER["out"] == records(3)


def test_the_last_checkpoint_is_tried_again_at_once() -> None:
    """F6: when the last checkpoint is declined by a task that was not ready, it is taken again soon, not after an
    hour."""
    env = environment(1, **AN_HOUR)
    stream = env.from_source(Timed(1_000, (3,)), WatermarkStrategy.no_watermarks(), "records")
    stream.key_by(lambda record: record).map(lambda record: record).sink_to(LedgerSink("out"))
    job = VirtualJob(env)
    task = job.master._graph.executions()[-1].id
    job.when(
        lambda: job.master.checkpoints._pending,
        lambda: job.master.on_message(DeclineCheckpoint(task, 1, "not ready")),
    )
    assert job.run() is JobStatus.FINISHED
    assert LEDGER["out"] == records(3)
    assert job.now_ms < MINUTE_MS
