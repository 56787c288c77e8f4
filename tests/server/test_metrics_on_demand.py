"""What a running job says when options ask for it: RocksDB's own metrics, times of accesses, latency (A1)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.base.configuration import Configuration
from penstock.base.metrics import ROCKSDB_METRICS
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.drivers.worker_storage import BackendSettings
from penstock.server.dispatcher import DispatchedJob, Dispatcher
from penstock.server.metrics.metric_store import MetricStore
from penstock.server.reporters.prometheus import families
from penstock.state.backend import HeapBackends
from penstock.state.states import ValueStateDescriptor

PATIENCE_SECONDS = 60
ROCKS = {"state.backend.type": "rocksdb"}


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)


class Seen:
    """What a job shows, of which the operator `count` is the last."""

    def __init__(self, store: MetricStore) -> None:
        self._store = store

    def samples(self) -> list[Any]:
        """For Prometheus."""
        return [sample for family in families(list(self._store.scoped())) for sample in family.samples]

    def job(self) -> dict[str, Any]:
        """The job's own metrics."""
        (view,) = self._store.views()
        return dict(self._store.job(view.job_id))

    def when(self, are: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The operator's metrics, once they are as a function says."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found: dict[str, Any] = {}
            for view in self._store.views():
                listed = self._store.vertex(view.job_id, view.vertices[-1].vertex_id)
                found = {name.removeprefix("0.count."): value for name, value in listed.items()}
            if found and are(found):
                return found
            assert time.monotonic() < deadline, f"the metrics are {found}"
            time.sleep(0.02)


@contextmanager
def running(options: dict[str, Any]) -> Iterator[Seen]:
    """A job that counts numbers."""
    configuration = Configuration.from_dict({"execution.target": "local", "parallelism.default": 1, **options})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    source = DataGeneratorSource(int, None, rate_per_second=2_000)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.key_by(lambda number: number % 5).process(Count()).name("count").uid("count")
    graph, job = env.job_graph("counts"), env.execute_async("counts")
    dispatcher = Dispatcher()
    dispatcher.add(DispatchedJob(job, graph, configuration))
    store = MetricStore(dispatcher)
    try:
        yield Seen(store)
    finally:
        job.end()
        store.close()


def test_rocksdb_reports_what_options_ask_for(tmp_path: Path) -> None:
    keys = {option.key(): True for option in ROCKSDB_METRICS.values()}
    with running({**ROCKS, **keys, "state.backend.rocksdb.localdir": str(tmp_path)}) as seen:
        found = seen.when(lambda metrics: metrics.get("rocksdb.estimate-num-keys", 0) > 0)
        samples = {sample.name for sample in seen.samples()}
    names = {f"rocksdb.{name}" for name in ROCKSDB_METRICS} - {"rocksdb.num-files-at-level"}
    levels = {f"rocksdb.num-files-at-level{level}" for level in range(7)}
    assert {name for name in found if name.startswith("rocksdb.")} == names | levels
    assert found["rocksdb.block-cache-capacity"] == 32 << 20
    assert found["rocksdb.cur-size-all-mem-tables"] > 0
    assert "flink_taskmanager_job_task_operator_rocksdb_estimate_num_keys" in samples


def test_rocksdb_reports_nothing_at_first() -> None:
    settings = BackendSettings.of(Configuration.from_dict(ROCKS), "job")
    assert settings.metrics == ()
    heap = BackendSettings.of(Configuration(), "job").backends()
    assert isinstance(heap, HeapBackends)


TRACKED = {"state.latency-track.keyed-state-enabled": True, "state.latency-track.sample-interval": 2}


def test_accesses_to_state_are_timed_where_an_option_asks_for_it() -> None:
    with running(TRACKED) as seen:
        name = "state_name.seen.valueStateUpdateLatency"
        found = seen.when(lambda metrics: metrics.get(f"{name}_count", 0) > 10)
        samples = seen.samples()
    assert found[f"{name}_max"] >= found[f"{name}_p99"] >= found[f"{name}_median"] >= found[f"{name}_min"] > 0
    assert found["state_name.seen.valueStateGetLatency_count"] > 10
    prefix = "flink_taskmanager_job_task_operator_state_name_valueStateGetLatency"
    (p99,) = [one for one in samples if one.name == prefix and one.labels["quantile"] == "0.99"]
    assert p99.labels["state_name"] == "seen"
    assert p99.value > 0


def test_the_name_of_a_state_may_be_a_part_of_the_metrics_name() -> None:
    with running({**TRACKED, "state.latency-track.state-name-as-variable": False}) as seen:
        seen.when(lambda metrics: "seen.valueStateGetLatency_count" in metrics)


def test_what_is_not_asked_for_costs_nothing() -> None:
    with running({}) as seen:
        found = seen.when(lambda metrics: metrics["numRecordsIn"] > 0)
    asked = [name for name in found if "Latency" in name and "mailbox" not in name]
    assert not asked + [name for name in found if name.startswith("rocksdb.")]


def test_the_ages_of_markers_are_metrics_of_the_job() -> None:
    with running({"metrics.latency.interval": "5 ms", "metrics.latency.granularity": "subtask"}) as seen:
        deadline = time.monotonic() + PATIENCE_SECONDS
        source = r"source_id\.\w{32}\.source_subtask_index\.0"
        operator = r"operator_id\.\w{32}\.operator_subtask_index\.0"
        pattern = rf"latency\.{source}\.{operator}\.latency_p99"
        while not [name for name in seen.job() if re.fullmatch(pattern, name)]:
            assert time.monotonic() < deadline, "there are no ages yet"
            time.sleep(0.02)
        samples = seen.samples()
    name = "flink_taskmanager_job_latency_source_id_source_subtask_index_operator_id_operator_subtask_index_latency"
    counts = [one for one in samples if one.name == f"{name}_count"]
    assert {one.labels["operator_subtask_index"] for one in counts} == {"0"}
    assert all(one.value > 0 and {"job_name", "tm_id", "source_id"} <= one.labels.keys() for one in counts)
