"""Random pipelines over random keyed, out-of-order data come to the same result in all three execution modes (I1).

What the pipelines are, and what they may not depend on: `pipelines.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from tests.datastream.pipelines import RUNNING, STEPS, Record, Timed, at, build, many_records
from tests.effort import tries

from penstock.common import Configuration
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.runtime.batch.exchange import Rows
from penstock.runtime.batch.task import BatchTask

pytestmark = pytest.mark.slow

#: Epochs of a pipeline at most, but for the last one.
EPOCHS_MAX = 20

#: Few that shrink well, or many.
RECORDS = st.lists(
    st.tuples(st.tuples(st.integers(-1, 3), st.integers(-5, 20)), st.integers(-60, 200).map(at)), max_size=10
) | st.integers(0, 10**6).map(many_records)


def result(
    mode: RuntimeExecutionMode,
    parallelism: int,
    steps: list[str],
    one: Timed,
    other: Timed,
    ends: str | None,
    **options: int,
) -> list[Record]:
    """What a pipeline comes to."""
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    for name, value in options.items():
        configuration.set_string(OPTIONS[name], str(value))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism).set_max_parallelism(8).set_runtime_mode(mode)
    results = build(env, steps, one, other, ends).execute_and_collect(limit=10**6)
    assert isinstance(results, list)
    return sorted(dict(results).items() if ends is not None else results)


OPTIONS = {
    "batch_records": "penstock.source.batch-records",
    "epoch_records": "execution.micro-batch.max-records",
}


@contextmanager
def rows_cut(size: int) -> Iterator[None]:
    """Batch tasks get their sorted rows a few at a time, as from Spark."""
    run = BatchTask.run

    def run_cut(task: BatchTask, inputs: Iterable[Rows]) -> Iterator[Rows]:
        return run(task, (part for rows in inputs for part in split_rows(rows, size)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchTask, "run", run_cut)
        yield


def split_rows(rows: Rows, size: int) -> Iterator[Rows]:
    for begin in range(0, len(rows), size):
        part = Rows()
        for mine, theirs in zip(rows.columns(), part.columns(), strict=True):
            theirs.extend(mine[begin : begin + size])
        yield part


@settings(max_examples=tries(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    parallelism=st.integers(1, 4),
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5),
    one=RECORDS,
    other=RECORDS,
    ends=st.none() | st.sampled_from(sorted(RUNNING)),
    cut=st.sampled_from([1, 2, 5, 1000]),
    batch_records=st.sampled_from([1, 3, 4096]),
    epoch_records=st.integers(1, 12),
)
def test_all_execution_modes_agree(
    parallelism: int,
    steps: list[str],
    one: Timed,
    other: Timed,
    ends: str | None,
    cut: int,
    batch_records: int,
    epoch_records: int,
) -> None:
    """I1: in micro-batch by epochs of a few records each, so that state, timers and time go from one to the next."""
    program = parallelism, steps, one, other, ends
    streamed = result(RuntimeExecutionMode.STREAMING, *program, batch_records=batch_records)
    with rows_cut(cut):
        assert result(RuntimeExecutionMode.BATCH, *program) == streamed
    epoch_records = max(epoch_records, -(-max(len(one), len(other)) // EPOCHS_MAX))
    assert result(RuntimeExecutionMode.MICRO_BATCH, *program, epoch_records=epoch_records) == streamed
