"""What a running job says of its state when options ask for it: RocksDB's own metrics (A1)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.base.configuration import Configuration
from penstock.base.options import ROCKSDB_METRICS
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.generator import DataGeneratorSource
from penstock.core.task.heap_backends import HeapBackends
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.drivers.backends import BackendSettings
from penstock.operations.dispatcher import DispatchedJob, Dispatcher
from penstock.operations.metrics.listing import MetricStore
from penstock.operations.reporters.prometheus import families
from penstock.state.descriptors import ValueStateDescriptor

PATIENCE_SECONDS = 60
ROCKS = {"state.backend.type": "rocksdb"}


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)


@contextmanager
def running(options: dict[str, Any]) -> Iterator[Callable[[Callable[[dict[str, Any]], bool]], dict[str, Any]]]:
    """A job that counts; gives what waits until its operator's metrics are as a function says, and returns them."""
    configuration = Configuration.from_dict({"execution.target": "local", "parallelism.default": 1, **options})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    source = DataGeneratorSource(int, None, rate_per_second=2_000)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.key_by(lambda number: number % 5).process(Count()).name("count").uid("count")
    graph, job = env.job_graph("counts"), env.execute_async("counts")
    dispatcher = Dispatcher()
    dispatcher.add(DispatchedJob(job, graph, configuration))
    store = MetricStore(dispatcher)

    def wait(are: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found: dict[str, Any] = {}
            for view in store.views():
                listed = store.vertex(view.job_id, view.vertices[-1].vertex_id)
                found = {name.removeprefix("0.count."): value for name, value in listed.items()}
            if found and are(found):
                return found
            assert time.monotonic() < deadline, f"the metrics are {found}"
            time.sleep(0.02)

    wait.store = store  # type: ignore[attr-defined]
    try:
        yield wait
    finally:
        job.end()
        store.close()


def test_rocksdb_reports_what_options_ask_for(tmp_path: Path) -> None:
    keys = {option.key(): True for option in ROCKSDB_METRICS.values()}
    with running({**ROCKS, **keys, "state.backend.rocksdb.localdir": str(tmp_path)}) as wait:
        found = wait(lambda metrics: metrics.get("rocksdb.estimate-num-keys", 0) > 0)
        samples = {sample.name for family in families(list(wait.store.scoped())) for sample in family.samples}
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
