"""Shards that are split and merged while they are read: each record once, and children after their parents."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import Any

import pytest
from tests.connectors.aws.streams import LineageTester, MemoryService, ServiceError, Stream, build_source, text_source
from tests.simulation.fresh_seeds import commit_number

from penstock.base.errors import OperationError
from penstock.connectors.aws import shard_reader, shards
from penstock.connectors.aws.kinesis_records import MAGIC, KinesisRecords, split_aggregated
from penstock.testing.connectors import SOURCE_CASES, SourceRun, SourceUnderTest, check_source

SEEDS = 25


@pytest.mark.parametrize("offset", range(4))
def test_shards_are_read_once_and_children_after_their_parents(offset: int) -> None:
    for number in range(SEEDS):
        seed = commit_number() * 1_000 + offset * SEEDS + number
        print(f"seed {seed}")
        LineageTester(seed).run()


def _text(split: Any, records: Any) -> Any:
    last = split.sequence_number
    keep = [last is None or number > last for number in records.sequence_numbers]
    return records[keep.index(True) :] if True in keep else records[len(records) :]


def _ahead(self: Any, checkpoint_id: int) -> list[Any]:
    return [reading.ahead for reading in self._readings.values()]


def _hasty(self: Any) -> None:
    if self._questions:
        self._questions.popleft()
        self._context.request_split()


def _early(self: Any) -> None:
    shard_id = self._questions[0].shard_id if self._questions else None
    if shard_id is not None and (shard_id not in self._readings or self._readings[shard_id].is_at_end):
        self._questions.popleft()
        self._context.request_split()


def _forgetful(self: Any, checkpoint_id: int) -> Any:
    return shards.EnumeratorState(self._has_looked, set(self._seen), list(self._pending), set())


def _late(self: Any, checkpoint_id: int) -> Any:
    return shards.EnumeratorState(self._has_looked, set(self._seen), [], set(self._unfinished))


def _owners_only(self: Any, parent: str) -> set[int]:
    return {self._owners.get(parent, shards.choose_reader(parent, self._context.parallelism))}


PLANTED: dict[str, tuple[Any, str, Any]] = {
    "sequence numbers compared as text": (shard_reader, "drop_read", _text),
    "positions of what was fetched": (shard_reader.ShardReader, "snapshot_state", _ahead),
    "questions answered at once": (shard_reader.ShardReader, "_answer", _hasty),
    "questions answered before the last records are taken": (shard_reader.ShardReader, "_answer", _early),
    "unfinished shards forgotten": (shards.ShardEnumerator, "snapshot_state", _forgetful),
    "pending shards forgotten": (shards.ShardEnumerator, "snapshot_state", _late),
    "restored shards looked for where they would be assigned": (shards.ShardEnumerator, "_find_holders", _owners_only),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_the_random_tester_finds_planted_faults(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[fault])
    for seed in range(400):
        try:
            LineageTester(seed).run()
        except (AssertionError, OperationError):
            return
    pytest.fail("no seed shows it")


@pytest.mark.parametrize("case", SOURCE_CASES)
def test_a_source_of_shards_keeps_the_rules(case: str) -> None:
    def prepare() -> SourceUnderTest:
        stream = Stream("kit", 2)

        def put(shard: int, *values: int) -> None:
            for value in values:
                stream.put(f"shardId-{shard:012}", str(value).encode())

        put(0, 0, 1, 2)
        put(1, 3, 4)

        def reshard() -> None:
            stream.split("shardId-000000000000")
            put(2, 5, 6)
            put(3, 7)

        def merge() -> None:
            stream.merge("shardId-000000000001", "shardId-000000000002")
            put(4, 8, 9)

        return SourceUnderTest(text_source(stream), [str(n) for n in range(10)], extend=[reshard, merge])

    check_source(prepare, case, parallelisms=[1, 2], batch_sizes=[3], places=8)


def advance_often(run: SourceRun) -> None:
    for _ in range(10_000):
        run.advance(10)


def read_all(stream: Stream, **start: Any) -> list[str]:
    run = SourceRun(build_source(stream, **start))
    for _ in range(200):
        run.advance(10)
    return [data for _, (_, data), _ in run.arrived]


def test_a_stream_is_read_from_a_time_or_the_present_on() -> None:
    stream = Stream("starts", 1)
    for number in range(4):
        stream.put("shardId-000000000000", str(number).encode())
    stream.split("shardId-000000000000")
    stream.put("shardId-000000000001", b"4")
    assert sorted(read_all(stream)) == ["0", "1", "2", "3", "4"]
    assert sorted(read_all(stream, start="AT_TIMESTAMP", timestamp_ms=1_003)) == ["2", "3", "4"]
    stream.now_ms += 1
    run = SourceRun(build_source(stream, start="LATEST"))
    while not run.enumerator.snapshot_state(1).has_looked:
        run.advance(1)
    snapshot = run.snapshot()
    # what comes after the source has listed the shards is read, even if it restarts before it has read anything
    stream.put("shardId-000000000002", b"5")
    run.restart(snapshot, 2)
    stream.split("shardId-000000000001")
    stream.put("shardId-000000000003", b"6")
    for _ in range(300):
        run.advance(10)
    assert sorted(data for _, (_, data), _ in run.arrived) == ["5", "6"]


def test_a_shard_that_expired_before_it_was_read_is_an_error() -> None:
    stream = Stream("expired", 1)
    stream.put("shardId-000000000000", b"0")
    run = SourceRun(build_source(stream))
    while not run.arrived:
        run.advance(1)
    snapshot = run.snapshot()
    stream.split("shardId-000000000000")
    stream.expire("shardId-000000000000")
    run.restart(snapshot)
    with pytest.raises(OperationError, match="000000000000 after sequence number 96: it does not exist any more"):
        advance_often(run)


def test_a_child_whose_parent_expired_is_read() -> None:
    stream = Stream("orphan", 1)
    stream.split("shardId-000000000000")
    stream.expire("shardId-000000000000")
    stream.put("shardId-000000000001", b"1")
    assert read_all(stream) == ["1"]


def test_a_shard_gets_five_requests_a_second_and_fewer_when_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream("rates", 1)
    for number in range(60):
        stream.put("shardId-000000000000", str(number).encode())
    requests: list[int] = []
    is_throttled = False

    def fetch(self: MemoryService, split: Any, iterator: str, limit: int) -> Any:
        requests.append(run.hosts[0].now)
        if is_throttled:
            raise ServiceError("ProvisionedThroughputExceededException")
        return answer(self, split, iterator, 1)

    answer = MemoryService.fetch
    monkeypatch.setattr(MemoryService, "fetch", fetch)
    run = SourceRun(build_source(stream))
    while len(requests) < 30:
        run.advance(10)
    assert all(later - earlier >= 1_000 for earlier, later in zip(requests, requests[5:], strict=False))
    assert run.hosts[0].gauges["millisBehindLatest"]() == 1
    is_throttled = True
    requests.clear()
    while len(requests) < 5:
        run.advance(10)
    waits = [later - earlier for earlier, later in pairwise(requests)]
    assert waits == sorted(waits)
    assert waits[-1] >= 4 * waits[0] / 1.5
    assert run.hosts[0].counts["numThrottled"] == 4


def test_a_service_that_stays_away_fails_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(self: MemoryService, split: Any, iterator: str, limit: int) -> Any:
        raise ConnectionResetError("gone")

    monkeypatch.setattr(MemoryService, "fetch", fetch)
    run = SourceRun(build_source(Stream("away", 1)))
    with pytest.raises(OperationError, match="no answer about shard shardId-000000000000 for 60 s: ConnectionReset"):
        advance_often(run)
    assert run.hosts[0].counts["numConnectionFailures"] > 5


def encode(number: int, value: bytes | int) -> bytes:
    """A field of Protocol Buffers."""
    if isinstance(value, int):
        return bytes([number << 3]) + encode_integer(value)
    return bytes([number << 3 | 2]) + encode_integer(len(value)) + value


def encode_integer(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + encode_integer(value >> 7)


def aggregate(records: list[tuple[str, bytes]], hash_keys: dict[int, str]) -> bytes:
    """A record as the producer library makes it."""
    message = b"".join(encode(1, key.encode()) for key, _ in records)
    message += b"".join(encode(2, key.encode()) for key in hash_keys.values())
    for index, (_, data) in enumerate(records):
        explicit = encode(2, list(hash_keys).index(index)) if index in hash_keys else b""
        message += encode(3, encode(1, index) + explicit + encode(3, data))
    return MAGIC + message + hashlib.md5(message).digest()


def test_aggregated_records_are_unpacked() -> None:
    long = b"x" * 300
    data = aggregate([("ann", b"1"), ("bob", long)], {1: "7"})
    assert split_aggregated(data) == [("ann", None, b"1"), ("bob", "7", long)]
    assert split_aggregated(data[:-1] + b"?") is None
    assert split_aggregated(MAGIC) is None
    assert split_aggregated(b"1") is None


def test_user_records_of_another_shard_are_left_out() -> None:
    data = aggregate([("ann", b"1"), ("bob", b"2"), ("eve", b"3")], {0: "5", 1: "99", 2: "6"})
    answer = [{"SequenceNumber": "1", "PartitionKey": "a", "Data": data, "ApproximateArrivalTimestamp": 1.5}]
    records = KinesisRecords.read("shardId-000000000000", answer, (0, 10))
    assert [(record.data, record.sub_sequence_number) for record in records] == [(b"1", 0), (b"3", 2)]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7])
def test_a_position_within_an_aggregated_record_survives_a_restart(batch_size: int) -> None:
    stream = Stream("aggregated", 1)
    stream.put("shardId-000000000000", b"0")
    for first in (1, 5):
        users = [(f"key {number}", str(number).encode()) for number in range(first, first + 4)]
        stream.put("shardId-000000000000", aggregate(users, {}))
    stream.put("shardId-000000000000", b"9")
    run = SourceRun(build_source(stream))
    while len(run.arrived) < 10:
        run.advance(batch_size)
        run.restart()
        for _ in range(3):
            run.advance(batch_size)
    assert [data for _, (_, data), _ in run.arrived] == [str(number) for number in range(10)]
