"""A paced source keeps to its rate, and is its source in everything else."""

from typing import Any

from penstock.cli.demo.program import PacedSource
from penstock.connectors.split_reader import NumberSequenceSource
from penstock.runtime.connector import InputStatus, SourceReader
from penstock.runtime.records import Batch
from penstock.testing.connectors import EnumeratorHost, ReaderHost

PER_SECOND = 1_000


def started(host: ReaderHost, restored: list[Any] | None = None) -> SourceReader:
    source = PacedSource(NumberSequenceSource(0, 99_999), PER_SECOND)
    reader = source.create_reader(host)
    if restored is None:
        enumerators = EnumeratorHost(host.parallelism)
        enumerator = source.create_enumerator(enumerators, None)
        enumerator.start()
        enumerator.handle_split_request(host.subtask_index)
        enumerators.run_background()
        restored = [split for _, split in enumerators.assigned]
    reader.add_splits(restored)
    reader.start()
    return reader


def read_for(host: ReaderHost, reader: SourceReader, seconds: float) -> list[int]:
    """What the reader gives in that time, asked as often as it wants to be."""
    values: list[int] = []
    end_ms = host.now + int(seconds * 1000)
    while host.now < end_ms:
        polled = reader.poll_next(4096)
        if isinstance(polled, Batch):
            values += polled.values
        else:
            assert polled is InputStatus.NOTHING_AVAILABLE
            host.now += reader.retry_after_ms()
    return values


def test_the_rate_is_kept() -> None:
    host = ReaderHost()
    values = read_for(host, started(host), 3)
    assert abs(len(values) - 3 * PER_SECOND) <= PER_SECOND // 10
    assert values == list(range(len(values)))


def test_subtasks_share_the_rate() -> None:
    host = ReaderHost(parallelism=4)
    assert abs(len(read_for(host, started(host), 4)) - PER_SECOND) <= PER_SECOND // 10


def test_a_snapshot_stands_behind_the_last_record() -> None:
    host = ReaderHost()
    reader = started(host)
    before = read_for(host, reader, 1)
    after = read_for(host, started(host, reader.snapshot_state(1)), 1)
    assert after[0] == before[-1] + 1


def test_the_end_of_the_source_is_passed_on() -> None:
    host = ReaderHost()
    source = PacedSource(NumberSequenceSource(0, 9), PER_SECOND)
    reader = source.create_reader(host)
    reader.start()
    reader.no_more_splits()
    host.now += 1_000
    assert reader.poll_next(10) is InputStatus.END_OF_INPUT
    reader.close()
