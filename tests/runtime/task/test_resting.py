"""A worker steps the tasks that have something to do, and leaves the others alone."""

from __future__ import annotations

import pickle
from functools import partial
from itertools import count
from typing import Any

import pytest
from tests.runtime.task.fakes import Rig

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource, GeneratorSplit, RateLimiterStrategy
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.connector import SourceOperator
from penstock.runtime.operators.record.stateless import MapOperator
from penstock.runtime.protocol import AssignSplits, NotifyCheckpointAborted, TaskMetrics
from penstock.runtime.records import Batch
from penstock.runtime.task.channels.result_partition import ForwardPartitioner
from penstock.runtime.task.processing import Step


def double(value: int) -> int:
    return 2 * value


class Waiting(StreamOperator):
    """Has a timer at 50 ms, and notes when it fires."""

    def __init__(self) -> None:
        self.fired: list[int] = []

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self.output.collect(batch)

    def next_timer_ms(self) -> int | None:
        return None if self.fired else 50

    def on_processing_time(self, now_ms: int) -> None:
        self.fired.append(now_ms)


def is_resting(rig: Rig) -> bool:
    return rig.clock.now_ms() < rig.task.rests_until_ms


@pytest.fixture
def rig() -> Rig:
    return Rig([partial(MapOperator, double)], partitioner=ForwardPartitioner())


def test_a_task_without_input_rests_and_is_not_stepped(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_resting(rig)
    steps = count()
    step = rig.task.step

    def counted() -> Step:
        next(steps)
        return step()

    monkeypatch.setattr(rig.task, "step", counted)
    assert not rig.executor.step()
    assert next(steps) == 0
    rig.executor.on_buffer(rig.inputs[0], [Batch([1])])
    assert rig.executor.step()
    assert next(steps) == 2


def test_input_wakes_a_task(rig: Rig) -> None:
    rig.executor.on_buffer(rig.inputs[0], [Batch([1])])
    assert not is_resting(rig)
    rig.run()
    assert is_resting(rig)


def test_mail_wakes_a_task(rig: Rig) -> None:
    rig.executor.on_message(NotifyCheckpointAborted(rig.execution, 1))
    assert not is_resting(rig)
    rig.run()
    assert is_resting(rig)


def test_open_buffers_keep_a_task_awake_until_they_are_flushed(rig: Rig) -> None:
    rig.executor.on_buffer(rig.inputs[0], [Batch([1])])
    assert rig.executor.step()
    assert not is_resting(rig), "what it has emitted waits in an open buffer"
    assert not rig.executor.step()
    assert is_resting(rig)
    assert [element.values for element in rig.outbox.elements()] == [[2]]


def test_a_blocked_task_is_stepped_because_its_times_count_that() -> None:
    rig = Rig([partial(MapOperator, double)], partitioner=ForwardPartitioner(), credit=0)
    for _ in range(4):
        rig.feed(0, Batch([1, 2, 3, 4]))
    assert not is_resting(rig)


def test_a_due_timer_wakes_a_task() -> None:
    rig = Rig([Waiting])
    rig.clock.advance(49)
    assert is_resting(rig)
    rig.clock.advance(1)
    assert not is_resting(rig)
    rig.run()
    assert rig.task.chain is not None
    assert isinstance(rig.task.chain.head, Waiting)
    assert rig.task.chain.head.fired == [50]
    assert is_resting(rig)


def test_a_source_rests_until_its_rate_allows_a_record() -> None:
    source: Any = DataGeneratorSource(double, rate_limiter_strategy=RateLimiterStrategy.per_second(10))
    rig = Rig(
        [partial(SourceOperator, source, WatermarkStrategy.no_watermarks())], inputs=0, partitioner=ForwardPartitioner()
    )
    rig.message(AssignSplits(rig.execution, "op0", (pickle.dumps(GeneratorSplit(0, 1, None)),), True))
    rig.clock.advance(99)
    assert is_resting(rig)
    rig.clock.advance(2)
    assert not is_resting(rig)
    rig.run()
    assert [element.values for element in rig.outbox.elements()] == [[0]]
    assert is_resting(rig)


def test_a_report_counts_the_wait_until_then() -> None:
    rig = Rig([partial(MapOperator, double)], metrics_interval_ms=500)
    rig.advance(1_000)
    *_, last = rig.outbox.of(TaskMetrics)
    assert last.figures is not None
    assert last.figures.idle_ms == 1_000
