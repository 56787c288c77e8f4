"""Hybrid sources: one source after the other, nothing lost or doubled at the seams."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.spec.virtual_job import LEDGER, REFUSED, LedgerSink, VirtualJob, clear_ledger, environment

from penstock.base.errors import ConfigurationError
from penstock.common import Configuration, JobStatus, WatermarkStrategy
from penstock.connectors.collection import CollectionSource
from penstock.connectors.split_reader import DataGeneratorSource, NumberSequenceSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.hybrid_source import HybridSource
from penstock.runtime.connector import Boundedness
from penstock.testing.connectors import SourceRun, read_source


def hundred_more(index: int) -> int:
    return 100 + index


THREE = (
    HybridSource.builder(NumberSequenceSource(0, 29))
    .add_source(DataGeneratorSource(hundred_more, 25))
    .add_source(NumberSequenceSource(200, 219))
    .build()
)
WANTED = [*range(30), *range(100, 125), *range(200, 220)]


def read_with_restarts(batch_size: int, parallelism: int) -> SourceRun:
    """A restart before every third step or so; after each one, readers hear anew that there is no more for them."""
    chance = random.Random(f"{batch_size} {parallelism}")
    cluster = SourceRun(THREE, parallelism)
    while len(cluster.ended) < parallelism:
        cluster.poll(chance.randrange(parallelism), batch_size)
        if chance.random() < 0.7:
            cluster.deliver()
        if chance.random() < 0.3:
            cluster.restart()
    cluster.close()
    return cluster


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [1, 2, 7, 1000])
def test_every_record_once_and_no_source_before_its_turn(batch_size: int, parallelism: int, hostile: bool) -> None:
    """G8: with restarts from snapshots anywhere, between two sources included."""
    cluster = read_with_restarts(batch_size, parallelism) if hostile else read_source(THREE, batch_size, parallelism)
    assert Counter(cluster.all_values) == Counter(WANTED)
    for values in cluster.values:
        assert [v // 100 for v in values] == sorted(v // 100 for v in values)
    if parallelism == 1:
        assert cluster.all_values == WANTED


def test_the_next_source_waits_for_every_reader() -> None:
    """A2: a reader that is through waits for the others."""
    cluster = SourceRun(THREE, 2)
    for _ in range(50):
        cluster.poll(0, 100)
        cluster.deliver()
    assert cluster.values[1] == []
    assert all(value < 100 for value in cluster.values[0])
    cluster.close()


def test_a_source_that_never_ends_can_only_be_the_last() -> None:
    """A2: said when the source is built."""
    endless, ends = DataGeneratorSource(str), NumberSequenceSource(1, 2)
    with pytest.raises(ConfigurationError, match="source 1 of the 2"):
        HybridSource.builder(endless).add_source(ends).build()
    assert HybridSource.builder(ends).add_source(endless).build().boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    with pytest.raises(ConfigurationError, match="consists of sources"):
        HybridSource.builder("a path")  # type: ignore[arg-type]


def test_it_has_the_limits_of_its_parts() -> None:
    """B2, J: a part that cannot be split or replayed limits the whole."""
    whole = HybridSource.builder(NumberSequenceSource(1, 2)).add_source(CollectionSource([3])).build()
    assert whole.max_parallelism() == 1
    assert whole.replayable
    assert THREE.max_parallelism() is None


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_reads_all_of_it_once_over_a_restart(parallelism: int) -> None:
    """G8, G9: exactly once, when a commit fails in the middle."""
    clear_ledger()
    slow = DataGeneratorSource(lambda n: 1000 + n, 100, rate_per_second=10)
    source = HybridSource.builder(NumberSequenceSource(0, 99)).add_source(slow).build()
    env = environment(parallelism, **{"execution.checkpointing.interval": "1 s"})
    env.from_source(source, WatermarkStrategy.no_watermarks(), "hybrid").sink_to(LedgerSink("out"))
    job = VirtualJob(env)
    job.at(4_500, lambda: REFUSED.add("out"))
    assert job.run() is JobStatus.FINISHED
    assert job.master.history.restarts == 1
    assert sorted(LEDGER["out"]) == [*range(100), *range(1000, 1100)]


@pytest.mark.parametrize("records_max", [2, 1_000])
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("mode", ["BATCH", "MICRO_BATCH"])
def test_all_of_it_is_read_where_splits_are_dealt_out_ahead(mode: str, parallelism: int, records_max: int) -> None:
    """I1: splits of later sources wait in the reader, and in its snapshot between two epochs."""
    settings = {"execution.runtime-mode": mode, "execution.micro-batch.max-records": records_max}
    configuration = Configuration.from_dict({"execution.target": "local", **settings})
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)
    numbers = env.from_source(THREE, WatermarkStrategy.no_watermarks(), "three")
    assert sorted(numbers.execute_and_collect()) == WANTED
