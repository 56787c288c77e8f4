"""Savepoints of jobs of which a part has come to its end hold its state in a form that any backend reads (G10, H1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.spec.virtual_job import LEDGER, LedgerSink, VirtualJob, clear_ledger, environment

from penstock.base.job import JobStatus
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.storage.file_store import FileCheckpointStore

KEYS = 3


@pytest.fixture(autouse=True)
def nothing_committed() -> None:
    clear_ledger()


class Count(KeyedProcessFunction):
    """Numbers the records of each key, and keeps them."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        self.seen.add(value)
        yield value % KEYS, self.count.value(), len(self.seen.get())


def job(folder: Path, backend: str, parallelism: int, path: str | None = None, **options: Any) -> VirtualJob:
    """A part that ends soon, and one that does not end."""
    more = {
        "state.backend.type": backend,
        "state.backend.rocksdb.localdir": folder / "rocksdb",
        "execution.checkpointing.dir": folder / "checkpoints",
        "execution.checkpointing.interval": "1 s",
        "execution.state-recovery.path": path,
        **options,
    }
    env = environment(parallelism, **more)
    for name, count, rate in (("short", 12, None), ("long", None, 10)):
        source: Any = DataGeneratorSource(lambda n: n, count, rate)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), name).uid(name)
        counts = numbers.key_by(lambda n: n % KEYS).process(Count()).uid(f"count {name}")
        counts.sink_to(LedgerSink(name)).uid(f"sink {name}")
    return VirtualJob(env)


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
@pytest.mark.parametrize(("first", "second"), [("rocksdb", "hashmap"), ("hashmap", "rocksdb"), ("rocksdb", "rocksdb")])
def test_another_backend_goes_on(first: str, second: str, inline_bytes: int, tmp_path: Path) -> None:
    """G10, H1."""
    options = {"execution.checkpointing.data-inline-threshold": f"{inline_bytes} b"}
    one, asked = job(tmp_path, first, 2, **options), []
    one.at(5_000, lambda: asked.append(one.stop_with_savepoint(False, str(tmp_path / "savepoints"))))
    assert one.run() is JobStatus.FINISHED, one.failure()
    assert len(LEDGER["short"]) == 12
    path = asked[0].result(0)
    metadata = FileCheckpointStore(None, "", 0).load(path)
    subtasks = [(o.name, state) for o in metadata.operators for state in o.subtasks.values()]
    assert any(o.finished and any(state.keyed for state in o.subtasks.values()) for o in metadata.operators)
    assert [name for name, state in subtasks if state.native] == []
    before = len(LEDGER["long"])
    other = job(tmp_path, second, 3, path, **options)
    other.at(3_000, other.cancel)
    other.run()
    assert len(LEDGER["short"]) == 12
    assert len(LEDGER["long"]) > before
    by_key: dict[int, list[Any]] = {}
    for key, *counts in sorted(LEDGER["long"]):
        by_key.setdefault(key, []).append(counts)
    for counts in by_key.values():
        assert counts == [[n, n] for n in range(1, len(counts) + 1)]
