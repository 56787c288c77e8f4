"""A stream of Kinesis in memory, whose shards can be split and merged, and a random tester of sources that read it.

Its sequence numbers have more and more digits, so they do not sort as text. Requests may fail, may be throttled, may
give few records or none, and their iterators may expire.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.common import SimpleStringSchema
from penstock.connectors.aws.kinesis_records import KinesisDeserializationSchema, KinesisRecord, KinesisRecords
from penstock.connectors.aws.kinesis_source import KinesisStreamsSource
from penstock.connectors.aws.shard_reader import Fetched, ReadSettings, ShardService
from penstock.connectors.aws.shards import ALL_HASH_KEYS, AT_TIMESTAMP, Listing, Shard, ShardSplit
from penstock.testing.connectors import ReaderHost, SourceRun

#: Streams by name: services are pickled with the source, so they find theirs here.
STREAMS: dict[str, Stream] = {}


class ServiceError(Exception):
    """An error as the client library raises it."""

    def __init__(self, code: str, status: int = 400) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


class Stream:
    """Call `put`, `split` and `merge`; `closed_after` maps a shard to how many records it has in the end."""

    def __init__(self, name: str, shards: int = 2, faults: random.Random | None = None) -> None:
        STREAMS[name] = self
        self.name, self.faults = name, faults
        self.now_ms = 1_000
        self.sequence = 95
        self.shards: dict[str, Shard] = {}
        self.records: dict[str, list[tuple[int, int, str, bytes]]] = {}
        width = (ALL_HASH_KEYS[1] + 1) // shards
        for number in range(shards):
            self._open((), (number * width, (number + 1) * width - 1))

    def _open(self, parents: tuple[str, ...], hash_keys: tuple[int, int]) -> str:
        shard_id = f"shardId-{len(self.shards):012}"
        self.shards[shard_id] = Shard(shard_id, parents, False, hash_keys)
        self.records[shard_id] = []
        return shard_id

    @property
    def open_shards(self) -> list[str]:
        return [shard_id for shard_id, shard in self.shards.items() if not shard.is_closed]

    def put(self, shard_id: str, data: bytes, key: str = "k") -> None:
        assert not self.shards[shard_id].is_closed
        self.sequence += 1
        self.now_ms += 1
        self.records[shard_id].append((self.sequence, self.now_ms, key, data))

    def split(self, shard_id: str) -> None:
        first, last = self.shards[shard_id].hash_keys
        middle = (first + last) // 2
        self._close(shard_id)
        self._open((shard_id,), (first, middle))
        self._open((shard_id,), (middle + 1, last))

    def merge(self, one: str, other: str) -> None:
        self._close(one)
        self._close(other)
        keys = [*self.shards[one].hash_keys, *self.shards[other].hash_keys]
        self._open((one, other), (min(keys), max(keys)))

    def _close(self, shard_id: str) -> None:
        self.shards[shard_id] = self.shards[shard_id]._replace(is_closed=True)

    def expire(self, shard_id: str) -> None:
        """Forget a closed shard, as after the time for which the stream keeps records."""
        del self.shards[shard_id], self.records[shard_id]


class MemoryService(ShardService):
    """The requests to a stream in memory."""

    def __init__(self, name: str) -> None:
        self.stream = STREAMS[name]

    def _fail_at_times(self) -> None:
        faults = self.stream.faults
        if faults is not None and faults.random() < 0.2:
            raise faults.choice(
                [
                    ServiceError("ProvisionedThroughputExceededException"),
                    ServiceError("ExpiredIteratorException"),
                    ServiceError("InternalFailure", 500),
                    ConnectionResetError("gone"),
                ]
            )

    def list_shards(self) -> Listing:
        return Listing(list(self.stream.shards.values()), self.stream.now_ms)

    def find_iterator(self, split: ShardSplit) -> str:
        self._fail_at_times()
        if split.shard_id not in self.stream.shards:
            raise ServiceError("ResourceNotFoundException")
        records = self.stream.records[split.shard_id]
        if split.sequence_number is not None:
            last = int(split.sequence_number) - (split.emitted is not None)
            return str(sum(number <= last for number, *_ in records))
        if split.start == AT_TIMESTAMP:
            assert split.timestamp_ms is not None
            return str(sum(time < split.timestamp_ms for _, time, *_ in records))
        return "0"

    def fetch(self, split: ShardSplit, iterator: str, limit: int) -> Fetched:
        self._fail_at_times()
        stream, start = self.stream, int(iterator)
        if split.shard_id not in stream.shards:
            raise ServiceError("ResourceNotFoundException")
        records = stream.records[split.shard_id]
        if stream.faults is not None:
            limit = stream.faults.randint(0, 4)
        given = records[start : start + limit]
        answer = [
            {"SequenceNumber": str(n), "PartitionKey": key, "Data": data, "ApproximateArrivalTimestamp": time / 1_000}
            for n, time, key, data in given
        ]
        end = start + len(given)
        is_over = stream.shards[split.shard_id].is_closed and end == len(records)
        found = KinesisRecords.read(split.shard_id, answer, split.shard.hash_keys)
        return Fetched(found, None if is_over else str(end), 0 if end == len(records) else 1)


class Located(KinesisDeserializationSchema[tuple[str, str]]):
    """Records with their shards."""

    def deserialize(self, record: KinesisRecord) -> tuple[str, str]:
        return record.shard_id, record.data.decode()


def build_source(stream: Stream, start: str = "TRIM_HORIZON", timestamp_ms: int | None = None) -> Any:
    settings = ReadSettings(empty_ms=1, threads=0)
    connect = partial(MemoryService, stream.name)
    return KinesisStreamsSource(connect, Located(), start, timestamp_ms, 10, settings)


def text_source(stream: Stream) -> Any:
    """The data alone."""
    schema = KinesisDeserializationSchema.of(SimpleStringSchema())
    return KinesisStreamsSource(
        partial(MemoryService, stream.name), schema, "TRIM_HORIZON", None, 10, ReadSettings(threads=0)
    )


class LineageTester:
    """Reads a stream that is resharded meanwhile, with restarts from any snapshot and at any parallelism.

    Raises `AssertionError` unless each record comes once, and the records of a shard after those of its parents.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.stream = Stream(f"lineage-{seed}", self.chance.randint(1, 4), random.Random(seed + 1))
        self.count = 0

    def run(self) -> None:
        random.seed(self.chance.random())  # the delays of readers
        chance, run = self.chance, SourceRun(build_source(self.stream), self.chance.randint(1, 3))
        snapshots = [run.snapshot()]
        actions: list[tuple[int, Callable[[], Any]]] = [
            (20, lambda: [run.advance(chance.randint(1, 4)) for _ in range(chance.randint(1, 30))]),
            (8, self._put),
            (2, self._split),
            (2, self._merge),
            (3, lambda: snapshots.append(run.snapshot(late_barrier=chance.random() < 0.5))),
            (1, lambda: self._restart(run, snapshots)),
            (1, lambda: run.pause(chance.randint(0, 4))),
        ]
        for _ in range(chance.randint(20, 120)):
            (_, action) = chance.choices(actions, [weight for weight, _ in actions])[0]
            action()
        run.pause(0)
        for _ in range(4_000):
            if len(run.arrived) >= self.count and all(not reader._questions for reader in run.readers):  # type: ignore[attr-defined]
                break
            for _ in range(10):
                run.advance(3)
        self.check([value for _, value, _ in run.arrived])
        run.close()

    def _put(self) -> None:
        for _ in range(self.chance.randint(1, 6)):
            self.stream.put(self.chance.choice(self.stream.open_shards), str(self.count).encode())
            self.count += 1

    def _split(self) -> None:
        if len(self.stream.open_shards) < 6:
            self.stream.split(self.chance.choice(self.stream.open_shards))

    def _merge(self) -> None:
        if len(self.stream.open_shards) > 1:
            self.stream.merge(*self.chance.sample(self.stream.open_shards, 2))

    def _restart(self, run: SourceRun, snapshots: list[Any]) -> None:
        snapshot = self.chance.choice(snapshots)
        del snapshots[snapshots.index(snapshot) + 1 :]
        if len(snapshot.readers) != run.parallelism:
            # first as many as at the snapshot, as the run expects
            now = run.hosts[0].now
            run.close()
            run._is_open, run.parallelism = False, len(snapshot.readers)
            run.hosts = [ReaderHost(index, run.parallelism) for index in range(run.parallelism)]
            for host in run.hosts:
                host.now = now
        run.restart(snapshot, self.chance.randint(1, 3))

    def check(self, arrived: list[tuple[str, str]]) -> None:
        expected = [(name, data.decode()) for name, records in self.stream.records.items() for *_, data in records]
        missing, extra = set(expected) - set(arrived), len(arrived) - len(set(arrived))
        assert (missing, extra) == (set(), 0)
        places: dict[str, list[int]] = {shard_id: [] for shard_id in self.stream.shards}
        for place, (shard_id, _) in enumerate(arrived):
            places[shard_id].append(place)
        for shard in self.stream.shards.values():
            in_order = [data for read, data in arrived if read == shard.shard_id]
            assert in_order == [data.decode() for *_, data in self.stream.records[shard.shard_id]], shard.shard_id
            for ancestor in self._find_ancestors(shard.shard_id):
                if places[shard.shard_id] and places[ancestor]:
                    assert max(places[ancestor]) < min(places[shard.shard_id]), f"{shard.shard_id} before {ancestor}"

    def _find_ancestors(self, shard_id: str) -> set[str]:
        parents = self.stream.shards[shard_id].parents
        return set(parents).union(*map(self._find_ancestors, parents))
