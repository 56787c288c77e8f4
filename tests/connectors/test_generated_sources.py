"""Sources that make their records: what is particular to each. `test_conformance` has what they all keep."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from penstock.base.errors import ConfigurationError
from penstock.connectors.collection import CollectionSource
from penstock.connectors.nexmark import Auction, Bid, NexmarkSource, Person
from penstock.connectors.split_reader import DataGeneratorSource, NumberSequenceSource, RateLimit, RateLimiterStrategy
from penstock.runtime.connector import Boundedness, InputStatus, SplitBatch
from penstock.runtime.records import Batch
from penstock.testing.connectors import SourceRun, read_source


def double(index: int) -> int:
    return 2 * index


def times(index: int) -> int:
    return index * 1000


def test_timestamps_travel_with_records() -> None:
    source = DataGeneratorSource(double, 101, timestamps=times)
    assert sorted(read_source(source, 7, 3, hostile=True).timestamps) == [i * 1000 for i in range(101)]
    assert read_source(CollectionSource("ab", [5, 3])).timestamps == [5, 3]
    with pytest.raises(ConfigurationError, match="1 timestamps for 2 values"):
        CollectionSource("ab", [5])


def test_numbers_are_shared_evenly() -> None:
    cluster = read_source(NumberSequenceSource(1, 10), 100, 4)
    assert sorted(map(len, cluster.values)) == [2, 2, 3, 3]
    with pytest.raises(ConfigurationError):
        NumberSequenceSource(2, 1)


def test_collection_is_read_by_one_subtask() -> None:
    assert CollectionSource([1]).max_parallelism() == 1


def test_rate_is_kept_by_the_hosts_clock() -> None:
    source = DataGeneratorSource(double, None, rate_per_second=100)
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    cluster = SourceRun(source, 2)
    counts = []
    for now_ms in range(0, 10_000, 5):
        for host in cluster.hosts:
            host.now = now_ms
            cluster.poll(host.subtask_index, 1000)
        cluster.deliver()
        counts.append(len(cluster.all_values))
    assert 990 <= counts[-1] <= 1000
    assert max(b - a for a, b in pairwise(counts)) <= 2
    assert 1 <= cluster.readers[0].retry_after_ms() <= 21
    assert sorted(cluster.all_values) == [2 * i for i in range(counts[-1])]
    cluster.close()


def test_rate_limit_forgives_no_more_than_a_second() -> None:
    limit = RateLimit(10, 0)
    assert limit.allowance(60_000) == 10
    limit.spend(10)
    assert limit.allowance(60_050) == 0
    assert limit.allowance(60_000 + limit.retry_after_ms() + 50) == 1


def test_nexmark_is_the_same_every_time_and_in_proportion() -> None:
    source = NexmarkSource(100_000, seed=1)
    values = read_source(source, 1000).all_values
    assert Counter(map(type, values)) == {Bid: 92_000, Auction: 6_000, Person: 2_000}
    bids = [value for value in values if isinstance(value, Bid)]
    hits = Counter(bid.auction for bid in bids)
    assert 0.08 < hits[0] / len(bids) < 0.13
    assert len(hits) > 4_000
    assert all(0 <= key < 10_000 for key in hits)
    assert values[:3] == NexmarkSource(3, seed=1).chunk(0).values
    assert values[:1000] != NexmarkSource(1000, seed=2).chunk(0).values
    assert read_source(NexmarkSource(100_000, seed=1, bids_only=True)).all_values == bids
    event_times = read_source(NexmarkSource(1_500, events_per_second=10)).timestamps
    assert event_times == sorted(event_times)
    assert event_times[-1] - event_times[0] == 149_900


def test_nexmark_scalar_and_vector_mixing_agree() -> None:
    source = NexmarkSource(seed=12345678901234567890)
    indexes = np.array([0, 1, 50, 2**40], dtype=np.uint64)
    assert source._mix(indexes, 6).tolist() == [source._one(int(i), 6) for i in indexes]


def test_unbounded_sources_do_not_end() -> None:
    cluster = SourceRun(NexmarkSource())
    for _ in range(20):
        assert cluster.poll(0, 500) is not InputStatus.END_OF_INPUT
        cluster.deliver()
    assert isinstance(cluster.poll(0, 500), Batch)
    cluster.close()


def test_so_many_records_between_two_checkpoints() -> None:
    """A2: each subtask has its share, and gets it anew when a checkpoint has completed."""
    source = DataGeneratorSource(double, 100, rate_limiter_strategy=RateLimiterStrategy.per_checkpoint(7))
    cluster = SourceRun(source, 2)
    for _ in range(2):
        for subtask in range(2):
            for _ in range(6):
                cluster.poll(subtask, 2)
                cluster.deliver()
        assert cluster.poll(0, 2) is InputStatus.NOTHING_AVAILABLE
        for reader in cluster.readers:
            reader.notify_checkpoint_complete(1)
    assert cluster.all_values == [0, 4, 8, 12, 16, 20, 2, 6, 10, 14, 18, 22]
    cluster.close()


def test_limits_that_make_no_sense_are_refused() -> None:
    """A2: the message says what to do."""
    with pytest.raises(ConfigurationError, match="not both"):
        DataGeneratorSource(double, 1, 5.0, rate_limiter_strategy=RateLimiterStrategy.per_second(5))
    with pytest.raises(ConfigurationError, match="positive"):
        RateLimiterStrategy.per_checkpoint(0)
    with pytest.raises(ConfigurationError, match="too few for 2 subtasks"):
        SourceRun(DataGeneratorSource(double, 1, rate_limiter_strategy=RateLimiterStrategy.per_checkpoint(1)), 2)


def test_a_strategy_without_limit_is_none() -> None:
    """A2: `no_op` lets everything through."""
    assert read_source(
        DataGeneratorSource(double, 5, rate_limiter_strategy=RateLimiterStrategy.no_op())
    ).all_values == [*(0, 2, 4, 6, 8)]


# --- several series in one subtask, after a restore -------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_no_series_of_a_generator_starves_after_a_rescale(parallelism: int) -> None:
    """G8: they are read side by side, the one furthest behind first."""
    run = SourceRun(DataGeneratorSource(abs), 3)
    for _ in range(30):
        run.advance(4)
    run.restart(parallelism=parallelism)
    begun = len(run.all_values)
    for _ in range(120):
        run.advance(4)
    for index, values in enumerate(run.values):
        highest = [max((value for value in values if value % 3 == series), default=0) for series in range(3)]
        mine = [place for place in highest if place]
        assert max(mine, default=0) - min(mine, default=0) <= 2 * 3 * 4, (index, highest)
    assert len(run.all_values) > begun
    assert len(set(run.all_values)) == len(run.all_values)
    run.close()


def test_several_series_have_their_shares_of_the_rate() -> None:
    """G8: so all series advance together, whatever subtask reads them."""
    run = SourceRun(DataGeneratorSource(abs, rate_per_second=3_000), 3)
    run.advance(1)
    run.restart(parallelism=2)
    for _ in range(400):
        run.advance(100)
    highest = [max(value for value in run.all_values if value % 3 == series) for series in range(3)]
    assert min(highest) > 100
    assert max(highest) - min(highest) <= 0.2 * max(highest)
    run.close()


@pytest.mark.parametrize("source", [DataGeneratorSource(double, 900, timestamps=double), NexmarkSource(5_000, seed=1)])
def test_no_record_of_several_series_is_late(source: Any) -> None:
    """C2: a series has a watermark of its own, which lies in its batches."""
    run = SourceRun(source, 3)
    for _ in range(20):
        run.advance(16)
    run.restart(parallelism=1)
    reached = dict.fromkeys(run.hosts[0].open_splits, -1)
    while run.hosts[0].open_splits:
        found = run.advance(16)
        if isinstance(found, SplitBatch):
            assert found.timestamps is not None
            assert found.timestamps == sorted(found.timestamps)
            assert found.timestamps[0] >= min(reached[name] for name in run.hosts[0].open_splits)
            reached[found.split_id] = found.timestamps[-1]
    assert len(run.all_values) == (900 if isinstance(source, DataGeneratorSource) else 5_000)
    run.close()
