"""Whole jobs whose records carry kinds, in every tempo, on Spark too (B3)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.configuration import Configuration
from penstock.common.types import Row, RowKind
from penstock.core.columns.batch import ColumnBatch, kinds_of
from penstock.core.columns.keys import ColumnKey
from penstock.core.operators.base import StreamOperator
from penstock.core.records import Batch
from penstock.core.task.channels.partitioners import HashPartitioner
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.data_stream import DataStream
from penstock.plan.transformation import Transformation, Upstream

NUMBERS = 400
KEYS = 9


def kind_of(number: int) -> int:
    return number % 4


class Changes(StreamOperator):
    """Numbers become records (key, number) with kinds: as tuples, rows or columns."""

    def __init__(self, form: str) -> None:
        self.form = form

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        kinds = bytes(map(kind_of, batch.values))
        pairs = [(number % KEYS, number) for number in batch.values]
        times = batch.values if self.form == "columns" else None
        if self.form == "rows":
            made = [Row.of_kind(RowKind(kind), key=k, number=n) for (k, n), kind in zip(pairs, kinds, strict=True)]
            self.output.collect(Batch(made, times))
        elif self.form == "tuples":
            self.output.collect(Batch(list(pairs), times, kinds))
        else:
            keys, numbers = (pa.array(column, pa.int64()) for column in zip(*pairs, strict=True))
            columns = pa.RecordBatch.from_arrays([keys, numbers], ["key", "number"])
            self.output.collect(ColumnBatch(columns, np.array(times, np.int64), kinds))


class Seen(StreamOperator):
    """What arrives: (key, number, kind)."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        kinds = kinds_of(batch) or bytes(len(batch))
        self.output.collect(Batch([(*tuple(v), kind) for v, kind in zip(batch.values, kinds, strict=True)]))


class SeenByKey(Seen):
    is_keyed = True


def first(value: Any) -> Any:
    return value[0]


def run(form: str, mode: str, keyed: bool, target: str = "local", **options: str) -> Counter[Any]:
    configuration = Configuration.from_dict({"execution.target": target, "execution.runtime-mode": mode, **options})
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    source = env.from_collection(list(range(NUMBERS)))
    changes = Transformation("Changes", _Make(Changes, form), source.upstreams)
    key: Any = ColumnKey(("key",)) if form == "columns" else first
    seen = Transformation(
        "Seen", SeenByKey if keyed else Seen, (Upstream(changes, HashPartitioner(key)),), is_stateful=keyed
    )
    env.add(changes)
    env.add(seen)
    results: Any = DataStream(env, (Upstream(seen),)).execute_and_collect()
    with results:
        return Counter(results)


class _Make:
    def __init__(self, operator: Any, form: str) -> None:
        self.operator, self.form = operator, form

    def __call__(self) -> Any:
        return self.operator(self.form)


EXPECTED = Counter((number % KEYS, number, kind_of(number)) for number in range(NUMBERS))


@pytest.mark.parametrize("keyed", [False, True], ids=["by batch", "by key"])
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH", "MICRO_BATCH"])
@pytest.mark.parametrize("form", ["tuples", "rows", "columns"])
def test_kinds_reach_the_consumer_in_every_tempo(form: str, mode: str, keyed: bool) -> None:
    """B3, I1: between the tasks of a job, whatever carries the records."""
    assert run(form, mode, keyed) == EXPECTED


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH", "MICRO_BATCH"])
def test_kinds_reach_the_consumer_on_spark(mode: str) -> None:
    """B3, I1: over the wire, and through Spark's shuffles."""
    for form, keyed in (("tuples", True), ("columns", False)):
        assert run(form, mode, keyed, "spark") == EXPECTED
