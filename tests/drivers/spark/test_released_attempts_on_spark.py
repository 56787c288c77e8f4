"""Tasks that have ended leave nothing in the memory of Spark's workers (E6)."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.census import live_parts

from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import MapFunction
from penstock.drivers.spark.handle import SparkHandle

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FAILURES = 3
LAST = 999


class Counts(MapFunction):
    """Notes which parts of tasks are alive as it opens, and fails in its first runs."""

    def __init__(self, notes: Path, failures: int) -> None:
        self.notes = notes
        self.failures = failures

    def open(self, runtime_context: Any) -> None:
        gc.disable()  # from the first run on, so that cycles stay
        self.run = len(self.read())
        with self.notes.open("a") as notes:
            notes.write(json.dumps([os.getpid(), live_parts()]) + "\n")

    def read(self) -> list[list[Any]]:
        """Process and counts of each run."""
        return [json.loads(line) for line in self.notes.read_text().splitlines()] if self.notes.exists() else []

    def map(self, value: int) -> tuple[int, str]:
        if value == 500 and self.run < self.failures:
            raise ValueError(f"run {self.run}")
        if value == LAST:
            gc.enable()
        return value, "x" * 1_000


def counting(mode: str, function: Counts, **options: str) -> StreamExecutionEnvironment:
    settings = {
        "execution.runtime-mode": mode,
        "penstock.source.batch-records": "64",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": str(FAILURES),
        "restart-strategy.fixed-delay.delay": "1 ms",
        "penstock.restart.identical-failures-max": "0",
        **options,
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings)).set_parallelism(1)
    numbers = env.from_source(DataGeneratorSource(int, LAST + 1), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.map(function).key_by(lambda pair: pair[0]).reduce(lambda one, _: one).filter(lambda _: False).print()
    return env


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_worker_keeps_nothing_of_failed_attempts(spark: SparkHandle, tmp_path: Path, backend: str) -> None:
    """E6: all attempts run in one process, and each begins without the parts of those before."""
    function = Counts(tmp_path / "notes", FAILURES)
    counting("STREAMING", function, **{"state.backend.type": backend}).execute()
    runs = function.read()
    assert len(runs) == 1 + FAILURES
    assert len({process for process, _ in runs}) == 1
    for _, counts in runs:
        # The other task of the attempt is deployed by another message, and opens after this one.
        assert counts["StreamTask"] in (1, 2)
        assert (counts["OperatorChain"], counts["OperatorContext"]) == (1, 2)
        assert counts["HeapKeyedStateBackend" if backend == "hashmap" else "_OwnDirectory"] == 2


def test_a_worker_keeps_nothing_of_earlier_epochs(spark: SparkHandle, tmp_path: Path) -> None:
    """E6, I1: Spark runs the tasks of many epochs in one process."""
    function = Counts(tmp_path / "notes", 0)
    options = {"execution.micro-batch.max-records": "200", "parallelism.default": "1"}
    counting("MICRO_BATCH", function, **options).execute()
    runs = function.read()
    assert len(runs) > 4
    in_same_process = [counts for process, counts in runs if process == runs[0][0]]
    assert len(in_same_process) > 1
    assert [counts["EpochTask"] for counts in in_same_process] == [1] * len(in_same_process)
