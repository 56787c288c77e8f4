"""What a task says of itself: where its time goes, what it moves, and the same operator by operator (A1)."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

import msgspec
import pytest
from tests.runtime.task.fakes import SETTINGS, Rig

from penstock.base.metrics import MetricGroup
from penstock.datastream.functions import KeyedProcessFunction
from penstock.runtime.operators.record.process import KeyedProcessOperator
from penstock.runtime.operators.record.stateless import FilterOperator, FlatMapOperator, MapOperator
from penstock.runtime.protocol import CancelTask, ExecutionId, OperatorFigures, TaskFigures, TaskMetrics
from penstock.runtime.records import MIN_TIMESTAMP, Batch, CheckpointBarrier, Watermark
from penstock.runtime.task.channels.result_partition import (
    QUEUED_BUFFERS_MAX,
    ByteCount,
    ForwardPartitioner,
    estimated_bytes,
)
from penstock.runtime.task.stream_task import TaskTimes


def double(value: int) -> int:
    return 2 * value


def is_big(value: int) -> bool:
    return value > 4


def twice(value: int) -> list[int]:
    return [value, value]


def figures(rig: Rig) -> TaskFigures:
    found = rig.task.metrics().figures
    assert found is not None
    return found


def records(found: TaskFigures) -> list[tuple[str, int, int]]:
    return [(one.operator_id, one.records_in, one.records_out) for one in found.operators]


def test_each_operator_of_a_chain_counts_its_records() -> None:
    rig = Rig([partial(FlatMapOperator, twice), partial(MapOperator, double)], partitioner=ForwardPartitioner())
    rig.feed(0, Batch([1, 2, 3]))
    rig.feed(0, Batch([4]))
    assert records(figures(rig)) == [("op0", 4, 8), ("op1", 8, 8)]
    metrics = rig.task.metrics()
    assert (metrics.records_in, metrics.records_out) == (4, 8)


def test_operators_that_work_in_one_pass_count_too() -> None:
    steps: list[Any] = [partial(MapOperator, double), partial(FilterOperator, is_big), partial(MapOperator, double)]
    rig = Rig(steps, partitioner=ForwardPartitioner())
    rig.feed(0, Batch([1, 2, 3, 4]))
    assert records(figures(rig)) == [("op0", 4, 4), ("op1", 4, 2), ("op2", 2, 2)]


def test_each_operator_has_its_watermarks() -> None:
    rig = Rig([partial(MapOperator, double)], partitioner=ForwardPartitioner())
    (before,) = figures(rig).operators
    assert (before.input_watermark_ms, before.output_watermark_ms) == (MIN_TIMESTAMP, MIN_TIMESTAMP)
    rig.feed(0, Watermark(7))
    (after,) = figures(rig).operators
    assert after == OperatorFigures("op0", 0, 0, 7, 7)


def test_a_task_without_input_is_idle() -> None:
    rig = Rig([partial(MapOperator, double)], partitioner=ForwardPartitioner())
    rig.advance(500)
    found = figures(rig)
    assert (found.idle_ms, found.busy_ms, found.back_pressured_ms) == (500, 0, 0)
    assert not found.is_back_pressured


def test_a_task_whose_output_is_full_is_back_pressured() -> None:
    rig = Rig([partial(MapOperator, double)], partitioner=ForwardPartitioner(), credit=0)
    for _ in range(4):
        rig.feed(0, Batch([1, 2, 3, 4]))
    rig.advance(300)
    found = figures(rig)
    assert found.is_back_pressured
    assert found.back_pressured_ms == 300
    assert found.buffers_queued_out == 2
    assert found.buffers_queued_in == 2
    assert (found.buffers_in_max, found.buffers_out_max) == (SETTINGS.buffers_per_channel, QUEUED_BUFFERS_MAX)
    assert found.longest_back_pressure_ms == 300


def test_the_longest_back_pressure_is_that_since_the_last_report() -> None:
    times = TaskTimes(0)
    times.stepped(0, 10, is_back_pressured=True)
    times.stepped(30, 30, is_back_pressured=True)  # asked again, and still full
    times.stepped(50, 60, is_back_pressured=False)
    times.stepped(70, 80, is_back_pressured=True)
    times.stepped(95, 100, is_back_pressured=False)
    assert times.take_longest_back_pressure() == 40
    assert times.take_longest_back_pressure() == 0
    times.stepped(110, 120, is_back_pressured=True)
    times.stepped(150, 150, is_back_pressured=True)
    assert times.take_longest_back_pressure() == 30
    times.stepped(170, 170, is_back_pressured=True)
    assert times.take_longest_back_pressure() == 50, "a wait that goes on counts from its beginning"


class Slow:
    """Takes 20 ms for a record."""

    clock: Any = None

    def map(self, value: int) -> int:
        self.clock.advance_to(self.clock.now_ms() + 20)
        return value


def test_a_task_is_busy_while_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig([partial(MapOperator, Slow())], partitioner=ForwardPartitioner())
    monkeypatch.setattr(Slow, "clock", rig.clock)
    rig.feed(0, Batch([1, 2, 3]))
    rig.advance(40)
    found = figures(rig)
    assert (found.busy_ms, found.idle_ms) == (60, 40)


def test_a_cheap_task_beside_a_slow_one_is_not_busy() -> None:
    """It waits for the thread of the worker, with input at hand, while the other one has it."""
    cheap, slow = TaskTimes(0), TaskTimes(0)
    for begun_ms in range(0, 1_000, 100):
        cheap.stepped(begun_ms, begun_ms + 1, is_back_pressured=False)
        slow.stepped(begun_ms + 1, begun_ms + 100, is_back_pressured=False)
    assert (cheap.busy_ms, slow.busy_ms) == (10, 990)
    assert (cheap.idle_ms, cheap.back_pressured_ms) == (891, 0)


def test_buffers_and_bytes_are_counted() -> None:
    rig = Rig([partial(MapOperator, double)], partitioner=ForwardPartitioner())
    batch = Batch([1, 2, 3, 4])
    rig.feed(0, batch)
    rig.feed(0, batch)
    found = figures(rig)
    assert (found.buffers_in, found.buffers_out) == (2, 2)
    assert found.bytes_in == 2 * estimated_bytes(batch)
    assert found.bytes_out > 0


def test_what_comes_from_other_workers_is_counted_apart() -> None:
    rig = Rig([partial(MapOperator, double)], inputs=2, partitioner=ForwardPartitioner())
    near, far = rig.task.gate.channels
    near.is_remote, far.is_remote = False, True
    batch = Batch([1, 2, 3, 4])
    rig.feed(0, batch)
    rig.feed(1, batch)
    rig.feed(1, batch)
    found = figures(rig)
    assert (found.buffers_in, found.buffers_in_remote) == (3, 2)
    assert found.bytes_in_remote == 2 * estimated_bytes(batch)


def test_a_worker_that_is_late_for_a_report_is_late_for_mail() -> None:
    rig = Rig([partial(MapOperator, double)], partitioner=ForwardPartitioner(), metrics_interval_ms=500)
    rig.advance(500)
    rig.clock.advance_to(1_070)  # a step has taken so long
    rig.run()
    reported = rig.outbox.of(TaskMetrics)[-1].figures
    assert reported is not None
    assert reported.mailbox_latency is not None
    assert reported.mailbox_latency[:3] == (2, 0, 70)


def test_a_worker_that_had_nothing_to_do_is_not_late() -> None:
    """It owes no reports meanwhile; the next task reports at once."""
    rig = Rig([partial(MapOperator, double)], partitioner=ForwardPartitioner(), metrics_interval_ms=500)
    again = msgspec.structs.replace(rig.task.deployment, execution=ExecutionId(1, 0, 1))
    rig.message(CancelTask(rig.execution))
    assert rig.executor.tasks == []
    rig.clock.advance_to(60_000)
    before = len(rig.outbox.of(TaskMetrics))
    rig.message(again)
    (first,) = rig.outbox.of(TaskMetrics)[before:]
    assert first.figures is not None
    assert first.figures.mailbox_latency is not None
    assert first.figures.mailbox_latency[0] == 0
    rig.advance(500)
    assert len(rig.outbox.of(TaskMetrics)) == before + 2


def test_the_size_of_records_is_looked_at_now_and_then() -> None:
    size = ByteCount()
    for number in range(65):
        before = size.bytes
        size.add(Batch(["x" * 100] if number else ["x"]))
        assert size.bytes > before
    small, large = estimated_bytes(Batch(["x"])), estimated_bytes(Batch(["x" * 100]))
    assert size.bytes == 64 * small + large


def test_a_gauge_of_the_user_is_asked_once_for_a_report() -> None:
    """What a task and its operators show is the same measurement."""
    rig = Rig([partial(MapOperator, double)], partitioner=ForwardPartitioner())
    assert rig.task.chain is not None
    asked = count()
    MetricGroup(rig.task.chain.contexts[0].metrics).gauge("asked", lambda: next(asked))
    metrics = rig.task.metrics()
    assert metrics.gauges == {"asked": 0.0}
    assert metrics.figures is not None
    assert metrics.figures.operators[0].gauges == {"asked": 0.0}


def test_an_empty_batch_has_no_bytes() -> None:
    size = ByteCount()
    size.add(Batch([]))
    assert size.bytes == 0


def test_the_last_checkpoint_shows_its_delay_and_alignment() -> None:
    rig = Rig([partial(MapOperator, double)], inputs=2, partitioner=ForwardPartitioner())
    rig.advance(5)
    rig.feed(0, CheckpointBarrier(1, 2))
    rig.advance(10)
    rig.feed(1, CheckpointBarrier(1, 2))
    found = figures(rig)
    assert (found.checkpoint_start_delay_ms, found.checkpoint_alignment_ms) == (3, 10)


class Alarm(KeyedProcessFunction):
    """Sets a timer at each value, which sends it on."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp, ctx):
        yield timestamp


def test_timers_that_have_fired_are_counted() -> None:
    rig = Rig([partial(KeyedProcessOperator, Alarm(), double)], partitioner=ForwardPartitioner())
    rig.feed(0, Batch([1, 2, 3, 30], [0, 0, 0, 0]))
    rig.feed(0, Watermark(10))
    assert figures(rig).fired_timers == 3
    rig.feed(0, Watermark(30))
    assert figures(rig).fired_timers == 4


def test_a_checkpoint_says_what_was_processed_while_it_was_aligned() -> None:
    rig = Rig([partial(MapOperator, double)], partitioner=ForwardPartitioner(), inputs=2)
    before, during, after = Batch([1] * 4), Batch([2] * 4), Batch([3] * 4)
    rig.feed(0, before)
    rig.feed(0, CheckpointBarrier(1, 0))
    rig.feed(1, during)
    rig.feed(1, CheckpointBarrier(1, 0))
    rig.feed(1, after)
    part = rig.task.snapshots.last_part
    assert part is not None
    assert part.processed_bytes == estimated_bytes(during)
