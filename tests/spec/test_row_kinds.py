"""Whole jobs whose records carry kinds, in every execution mode, on Spark too (B3)."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
from tests.spec.kinded_operators import KEYS, Changes, Seen, SeenByKey, choose_kind, first

from penstock.base.configuration import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.data_stream import DataStream
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.columns import ColumnKey
from penstock.runtime.task.channels.result_partition import HashPartitioner

NUMBERS = 400


def run(form: str, mode: str, keyed: bool, target: str = "local", **options: str) -> Counter[Any]:
    configuration = Configuration.from_dict({"execution.target": target, "execution.runtime-mode": mode, **options})
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    source = env.from_collection(list(range(NUMBERS)))
    changes = Transformation("Changes", partial(Changes, form), source.upstreams)
    key: Any = ColumnKey(("key",)) if form == "columns" else first
    seen = Transformation(
        "Seen", SeenByKey if keyed else Seen, (Upstream(changes, HashPartitioner(key)),), is_stateful=keyed
    )
    env.add(changes)
    env.add(seen)
    results: Any = DataStream(env, (Upstream(seen),)).execute_and_collect()
    with results:
        return Counter(results)


EXPECTED = Counter((number % KEYS, number, choose_kind(number)) for number in range(NUMBERS))


@pytest.mark.parametrize("keyed", [False, True], ids=["by batch", "by key"])
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH", "MICRO_BATCH"])
@pytest.mark.parametrize("form", ["tuples", "rows", "columns"])
def test_kinds_reach_the_consumer_in_every_execution_mode(form: str, mode: str, keyed: bool) -> None:
    """B3, I1: between the tasks of a job, whatever carries the records."""
    assert run(form, mode, keyed) == EXPECTED


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH", "MICRO_BATCH"])
def test_kinds_reach_the_consumer_on_spark(mode: str) -> None:
    """B3, I1: over the wire, and through Spark's shuffles."""
    for form, keyed in (("tuples", True), ("columns", False)):
        assert run(form, mode, keyed, "spark") == EXPECTED
