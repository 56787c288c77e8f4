"""What jobs without a master tell of themselves: records, what functions measure, and epochs (A1, I1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.datastream.environments import local_environment
from tests.failing import FailsOnce

from penstock.base.restart_strategy import RestartStrategies
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.runtime.job.view import JobProgress, VertexProgress
from penstock.runtime.records import MAX_WATERMARK

BATCH, MICRO = RuntimeExecutionMode.BATCH, RuntimeExecutionMode.MICRO_BATCH


class Measures(KeyedProcessFunction):
    """Counts and weighs its records, and lets one in two pass."""

    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group().add_group("orders")
        self.seen = group.counter("seen")
        self.sizes = group.distribution("size")
        self.last = 0
        group.gauge("last", lambda: self.last)

    def process_element(self, value: int, ctx: Any) -> Any:
        self.seen.inc()
        self.sizes.update(value)
        self.last = value
        if value % 2:
            yield value


def environment(mode: Any, parallelism: int = 2, **options: Any) -> StreamExecutionEnvironment:
    return local_environment(parallelism, **options).set_runtime_mode(mode)


def progress_of(env: StreamExecutionEnvironment, numbers: range, then: Any = None) -> JobProgress:
    """The last figures of a job that measures numbers by their last digit."""
    measured = env.from_collection(list(numbers)).key_by(lambda n: n % 10).process(Measures()).name("measures")
    passed = measured.rebalance()
    (passed if then is None else passed.map(then)).print()
    job = env.execute_async()
    job.wait()
    return job.get_progress().result(10)


@pytest.mark.parametrize("options", [{}, {"execution__micro_batch__max_records": 7}], ids=["one epoch", "epochs"])
@pytest.mark.parametrize("mode", [BATCH, MICRO])
def test_each_vertex_tells_its_records(mode: Any, options: dict[str, Any]) -> None:
    """A1: in and out, over all subtasks and epochs, as in streaming."""
    source, measures, sink = progress_of(environment(mode, **options), range(100)).vertices
    assert source == VertexProgress(source.name, True, 100, 100, MAX_WATERMARK)
    assert (measures.records_in, measures.records_out, measures.watermark_ms) == (100, 50, MAX_WATERMARK)
    assert (sink.records_in, sink.records_out) == (50, 0)


@pytest.mark.parametrize("mode", [BATCH, MICRO])
def test_progress_shows_what_functions_measure(mode: Any) -> None:
    """A1: counters and distributions over all subtasks and epochs; gauges of each subtask, from its last epoch."""
    progress = progress_of(environment(mode, execution__micro_batch__max_records=30), range(1, 101))
    assert progress.counters["orders.seen"] == 100
    assert progress.distributions["orders.size"] == (100, 5050.0, 1.0, 100.0)
    gauges = sorted(name.split(".")[-3] for name in progress.gauges if name.endswith("orders.last"))
    assert gauges == ["0", "1"]


def test_epochs_are_counted() -> None:
    """A1, D1: with their checkpoints; the last one drains the job."""
    progress = progress_of(environment(MICRO, execution__micro_batch__max_records=25), range(100))
    assert progress.checkpoints_completed == progress.last_checkpoint_id
    assert 5 <= progress.checkpoints_completed <= 6
    assert progress.last_checkpoint_bytes > 0


def test_an_epoch_that_fails_adds_nothing(tmp_path: Path) -> None:
    """A1, G8: records are counted once, and the restart is."""
    env = environment(MICRO, execution__micro_batch__max_records=25)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    progress = progress_of(env, range(100), FailsOnce(tmp_path / "marker", 3))
    assert (tmp_path / "marker").exists()
    assert progress.restarts == 1
    assert progress.counters["orders.seen"] == progress.source_records == 100


def test_a_batch_has_no_checkpoints() -> None:
    """I2."""
    assert progress_of(environment(BATCH), range(10)).checkpoints_completed == 0
