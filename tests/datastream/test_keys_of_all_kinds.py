"""Programs over keys of all kinds: as many results as keys, in every execution mode, on every backend (D1, I1)."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.datastream.environments import collect, local_environment
from tests.state.keys import ONE, Color, Labelled, Point, counted, without_nan

from penstock.base.errors import JobExecutionError
from penstock.base.types import Row
from penstock.common import Time, WatermarkStrategy
from penstock.datastream import RuntimeExecutionMode
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.expressions import lit
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from penstock.formats.arrow import ArrowIpcFormat
from penstock.state.states import ValueStateDescriptor

EXECUTION_MODES = [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH, RuntimeExecutionMode.MICRO_BATCH]
KEYS: list[Any] = [
    *ONE,
    frozenset({"a", "b"}),
    frozenset({"asb"}),
    Row(a=1, b=2),
    Row(x=1, y=2),
    Row(1, 2),
    Labelled(1, "x"),
    Labelled(1, "y"),
    Point(1, float("nan")),
    (1, "a", float("nan")),
    (True, Color.RED, None),
    (1, "red", None),
]


class Count(KeyedProcessFunction):
    """Emits the count so far, with the number of the record."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value[0], count


@pytest.mark.parametrize("execution_mode", EXECUTION_MODES, ids=lambda execution_mode: execution_mode.name)
@pytest.mark.parametrize("parallelism", [1, 4])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_each_key_has_one_state(execution_mode: RuntimeExecutionMode, parallelism: int, backend: str) -> None:
    """D1, D4, I1: equal keys share a state, others do not, NaN is one key."""
    records = [(number, key) for number, key in enumerate(KEYS * 3)]
    random.Random(5).shuffle(records)
    env = local_environment(parallelism, state__backend__type=backend).set_runtime_mode(execution_mode)
    found = dict(collect(env.from_collection(records).key_by(lambda record: record[1]).process(Count())))
    last: dict[Any, int] = {}
    for number, key in records:
        key = without_nan(key)
        last[key] = max(last.get(key, 0), found[number])
    assert sorted(last.values()) == counted([key for _, key in records])


FLOATS = [0.0, -0.0, math.nan, -math.nan, 1.5, 0.0, -0.0, math.nan, 1.5, None]
STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")


@pytest.mark.parametrize("execution_mode", EXECUTION_MODES, ids=lambda execution_mode: execution_mode.name)
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(
    "assigner",
    [TumblingEventTimeWindows.of(Time.seconds(10)), EventTimeSessionWindows.with_gap(Time.seconds(1))],
    ids=["tumbling", "session"],
)
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.float16()], ids=str)
def test_columns_have_the_keys_of_rows(
    execution_mode: RuntimeExecutionMode, parallelism: int, assigner: Any, kind: Any, tmp_path: Path
) -> None:
    """D1: Arrow tells zeros and NaNs by their bits; keys do not."""
    keys = pa.array(numpy.array([key or 0.0 for key in FLOATS], kind.to_pandas_dtype()), kind)
    keys = pc.if_else(pa.array([key is None for key in FLOATS]), pa.scalar(None, kind), keys)
    table = pa.table({"k": keys, "at": range(len(FLOATS))})
    with pa.OSFile(str(tmp_path / "keys.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    source = FileSource.for_bulk_file_format(ArrowIpcFormat(), str(tmp_path)).build()
    env = local_environment(parallelism).set_runtime_mode(execution_mode)
    stream = env.from_source(source, STRATEGY, "keys").key_by("k").window(assigner)
    found = [tuple(row)[::3] for row in collect(stream.select(lit(1).count.alias("n")))]
    assert sorted((str(key), count) for key, count in found) == [("0.0", 4), ("1.5", 2), ("None", 1), ("nan", 3)]


def test_a_key_that_is_refused_is_named_with_operator_and_record() -> None:
    """D1: in the exchange ahead of the operator."""
    stream = local_environment(2).from_collection([(1, [2]), (1, [2])]).key_by(lambda record: record[1])
    with pytest.raises(JobExecutionError, match=r"(?s)Keyed Process.*\(1, \[2\]\).*key of type list.*key selector"):
        collect(stream.process(Count()))
