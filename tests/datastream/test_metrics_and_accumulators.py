"""What functions measure and add up, and the settings that they read: as whole programs and one by one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.datastream.environments import collect, local_environment
from tests.failing import FailsOnce

from penstock.base.accumulators import Accumulator, DoubleCounter, Histogram, IntCounter, ListAccumulator
from penstock.base.errors import UserFunctionError
from penstock.base.metrics import MetricGroup, MetricRegistry
from penstock.base.restart_strategy import RestartStrategies
from penstock.datastream.functions import MapFunction, RuntimeContext
from penstock.runtime.job.view import job_progress
from penstock.runtime.operators.record.stateless import MapOperator
from penstock.testing import OneInputOperatorHarness, VirtualClock


class Measures(MapFunction):
    """Every kind of metric."""

    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group().add_group("shop", "main").add_group("orders")
        self.orders = group.counter("seen")
        self.sizes = group.distribution("size")
        self.rate = group.meter("rate", time_span_in_seconds=10)
        self.last = 0
        group.gauge("last", lambda: self.last)
        group.gauge("broken", lambda: 1 // 0)

    def map(self, value: int) -> int:
        self.orders.inc()
        self.orders.inc(2)
        self.orders.dec()
        self.sizes.update(value)
        self.rate.mark_event(2)
        self.last = value
        return value


def test_metrics_of_a_subtask() -> None:
    """A1: counters, gauges, distributions and meters under the names of their groups; broken gauges say nothing."""
    harness = OneInputOperatorHarness(lambda: MapOperator(Measures()))
    harness.open()
    for value in (3, 9, 4):
        harness.process(value)
        harness.advance_processing_time(1_000)
    metrics = harness.context.metrics
    assert metrics.counters() == {"shop.main.orders.seen": 6, "shop.main.orders.rate": 6}
    assert metrics.distributions() == {"shop.main.orders.size": (3, 16.0, 3.0, 9.0)}
    assert metrics.gauges() == {"shop.main.orders.last": 4.0, "shop.main.orders.rate.rate": 2.0}


def test_a_meter_forgets_what_is_older_than_its_span() -> None:
    """A1: the rate is that of the last seconds."""
    clock = VirtualClock()
    meter = MetricGroup(MetricRegistry(clock.now_ms)).meter("m", 10)
    meter.mark_event(100)
    rates = []
    for _ in range(4):
        clock.advance(5_000)
        rates.append(meter.get_rate())
    assert rates == [20.0, 10.0, 0.0, 0.0]
    assert meter.get_count() == 100


def test_a_name_is_one_metric() -> None:
    """A1: asking again gives the same one; another kind of the name is refused."""
    group = MetricGroup(MetricRegistry(lambda: 0))
    assert group.counter("n") is group.counter("n")
    with pytest.raises(ValueError, match="'n' is already a Counter, not a Meter"):
        group.meter("n")
    with pytest.raises(ValueError, match="at least 1 s"):
        group.meter("m", 0)


def test_progress_shows_metrics_of_all_subtasks() -> None:
    """A1: totals of counters, all gauges, distributions taken together."""
    env = local_environment()
    env.from_collection([1, 5, 3]).rebalance().map(Measures()).set_parallelism(2).name("measures").print()
    job = env.execute_async()
    job.wait()
    last = job_progress(job._master.view())  # type: ignore[attr-defined]
    assert last.counters["shop.main.orders.seen"] == 6
    assert last.distributions["shop.main.orders.size"] == (3, 9.0, 1.0, 5.0)
    gauges = [name for name in last.gauges if name.endswith("orders.last")]
    assert [name.split(".")[1] for name in sorted(gauges)] == ["0", "1"]


# --- accumulators ---------------------------------------------------------------------------------------------------


class Adds(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.context = runtime_context
        runtime_context.add_accumulator("records", IntCounter())
        runtime_context.add_accumulator("sum", DoubleCounter())
        runtime_context.add_accumulator("values", ListAccumulator())
        runtime_context.add_accumulator("histogram", Histogram())

    def map(self, value: int) -> int:
        self.context.get_accumulator("records").add(1)  # type: ignore[union-attr]
        for name in ("sum", "values", "histogram"):
            self.context.get_accumulator(name).add(value)  # type: ignore[union-attr]
        return value


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_accumulators_of_all_subtasks_are_one_at_the_end(mode: str) -> None:
    """A1, I1: the result of the job has what all subtasks added, in both kinds of execution."""
    env = local_environment(3, execution__runtime_mode=mode)
    env.from_collection([1, 2, 2, 4]).rebalance().map(Adds()).print()
    job = env.execute_async()
    result = job.wait()
    assert result.get_accumulator_result("records") == 4
    assert result.get_accumulator_result("sum") == 9.0
    assert sorted(result.get_accumulator_result("values")) == [1, 2, 2, 4]
    assert result.get_accumulator_result("histogram") == {1: 1, 2: 2, 4: 1}
    assert result.get_accumulator_result("nothing") is None
    assert job.get_accumulators().result()["records"] == 4


class Twice(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.add_accumulator("n", IntCounter())
        runtime_context.add_accumulator("n", IntCounter())

    def map(self, value: Any) -> Any:
        return value


def test_an_accumulator_has_one_name() -> None:
    """A1: a second one of the name is an error of the program."""
    with pytest.raises(UserFunctionError, match="already has an accumulator 'n'"):
        collect(local_environment().from_collection([1]).map(Twice()).name("twice"))


class Breaks(Accumulator[Any, Any]):
    def add(self, value: Any) -> None: ...

    def get_local_value(self) -> Any:
        raise KeyError("what")

    def reset_local(self) -> None: ...

    def merge(self, other: Any) -> None: ...


class Broken(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.add_accumulator("breaks", Breaks())
        stays = ListAccumulator()
        stays.add(threading.Lock())
        runtime_context.add_accumulator("stays", stays)

    def map(self, value: Any) -> Any:
        return value


def test_a_broken_accumulator_fails_no_job() -> None:
    """A1: its place holds the reason."""
    env = local_environment()
    env.from_collection([1]).map(Broken()).print()
    result = env.execute()
    assert isinstance(result.get_accumulator_result("breaks"), KeyError)
    assert "cannot be pickled" in str(result.get_accumulator_result("stays"))


# --- the job's parameters -------------------------------------------------------------------------------------------


class Reads(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.greeting = runtime_context.get_job_parameter("greeting", "hello")
        self.name = runtime_context.get_job_parameter("name", "nobody")

    def map(self, value: Any) -> Any:
        return self.greeting, self.name


@pytest.mark.parametrize("epochs", [{}, {"execution__micro_batch__max_records": 1}])
def test_accumulators_of_all_epochs_are_one_at_the_end(epochs: dict[str, Any]) -> None:
    """A1, I1: a task lives for an epoch, and what it added counts beyond it."""
    env = local_environment(2, execution__runtime_mode="MICRO_BATCH", **epochs)
    env.from_collection([1, 2, 2, 4]).rebalance().map(Adds()).print()
    result = env.execute()
    assert result.get_accumulator_result("records") == 4
    assert result.get_accumulator_result("sum") == 9.0
    assert sorted(result.get_accumulator_result("values")) == [1, 2, 2, 4]
    assert result.get_accumulator_result("histogram") == {1: 1, 2: 2, 4: 1}


@pytest.mark.parametrize("mode", ["MICRO_BATCH", "BATCH"])
def test_an_epoch_that_is_run_again_counts_once(mode: str, store_directory: Path) -> None:
    """A1, G8: what the attempt that failed had added is forgotten; the same for a back-fill."""
    epochs: dict[str, Any] = {"execution__micro_batch__max_records": 10}
    back_fill: dict[str, Any] = {"execution__batch__savepoint_path": store_directory / "filled"}
    env = local_environment(1, execution__runtime_mode=mode, **(epochs if mode == "MICRO_BATCH" else back_fill))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    env.from_collection(list(range(100))).map(Adds()).map(FailsOnce(store_directory / "marker", 5)).print()
    result = env.execute()
    assert (store_directory / "marker").exists()
    assert result.get_accumulator_result("records") == 100
    assert sorted(result.get_accumulator_result("values")) == list(range(100))


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH", "MICRO_BATCH"])
def test_functions_read_the_jobs_parameters(mode: str) -> None:
    """A1: the user's own settings, and a default for those that are not set."""
    env = local_environment(execution__runtime_mode=mode)
    env.get_config().set_global_job_parameters({"name": "you"})
    assert collect(env.from_collection([1]).map(Reads())) == [("hello", "you")]
