"""Streams → keyed state → hashes and a stream, as a job whose server, workers and drivers are killed.

One stream is read by position, the other one as a consumer group with one reader.

As a program it is the job's driver: `python -m tests.connectors.redis.pipeline '{"servers": …}'`. It goes on from the
newest checkpoint of the drivers before it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.connectors.kafka.programs import KEYS, tell_workers
from tests.servers.redis import RedisServer

from penstock.common import Configuration, RestartStrategies, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.redis import (
    RedisCommand,
    RedisGroupSource,
    RedisSink,
    RedisStreamEntry,
    RedisStreamSource,
)
from penstock.datastream.state import ValueStateDescriptor

#: The streams that the job reads. All numbers of a key are in one of them, so that their order is the same again.
STREAMS = ("in:0", "in:1")


def stream_of(number: int) -> str:
    return STREAMS[number % KEYS % len(STREAMS)]


class Numbered(KeyedProcessFunction):
    """A key's records with their numbers, from 1."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: int, ctx: Any) -> Iterable[tuple[int, int, int]]:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield value % KEYS, number, value


def read_number(entry: RedisStreamEntry) -> int:
    return int(entry.fields[b"n"])


def to_hash(record: tuple[int, int, int]) -> RedisCommand:
    key, number, value = record
    return RedisCommand.hset(f"out:{key}", {value: number, "last": value})


def to_stream(record: tuple[int, int, int]) -> RedisCommand:
    return RedisCommand.xadd("log", {"n": record[2]})


def fields(server: RedisServer, key: int) -> dict[bytes, int]:
    (parts,) = server.call(("HGETALL", f"out:{key}"))
    return dict(zip(parts[::2], map(int, parts[1::2]), strict=True))


def count(server: RedisServer) -> int:
    """How many records the hashes have."""
    return sum(max(0, size - 1) for size in server.call(*[("HLEN", f"out:{key}") for key in range(KEYS)]))


def check(records: int, server: RedisServer) -> str:
    """Raise `AssertionError` unless the hashes have each record once, numbered from 1 on, and the stream has each."""
    for key in range(KEYS):
        expected = {b"%d" % value: number for number, value in enumerate(range(key, records, KEYS), 1)}
        expected[b"last"] = max(range(key, records, KEYS))
        found = fields(server, key)
        assert found == expected, f"key {key}: {sorted(set(found.items()) ^ set(expected.items()))[:20]}"
    (entries,) = server.call(("XRANGE", "log", "-", "+"))
    logged = [int(parts[1]) for _, parts in entries]
    missing = set(range(records)) - set(logged)
    assert not missing, f"{len(missing)} records are missing in the stream"
    pending, groups = server.call(("XPENDING", STREAMS[1], "job"), ("XINFO", "GROUPS", STREAMS[1]))
    lag = dict(zip(groups[0][::2], groups[0][1::2], strict=True))[b"lag"]
    assert lag == 0, f"the group has not read {lag} entries"
    return f"the stream has {len(logged)} entries, {len(logged) - records} of them repeated, {pending[0]} pending"


def run(servers: str, folder: str, target: str, interval: str, parallelism: int = 2) -> None:
    """The program."""
    configuration = Configuration.from_dict(
        {
            "execution.checkpointing.dir": f"{folder}/checkpoints",
            "execution.checkpointing.interval": interval,
            "penstock.recovery.from-latest": "true",
            **({"execution.target": "local"} if target == "local" else {"spark.master": target}),
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10_000, 100))
    by_position = RedisStreamSource(servers, STREAMS[0], deserialize=read_number)
    in_group = RedisGroupSource(servers, STREAMS[1], group="job", deserialize=read_number)
    no_watermarks = WatermarkStrategy.no_watermarks()
    first = env.from_source(by_position, no_watermarks, "stream").uid("source")
    second = env.from_source(in_group, no_watermarks, "group").set_parallelism(1).uid("group")
    numbers = first.union(second)
    numbered = numbers.key_by(lambda n: n % KEYS).process(Numbered()).uid("numbered")
    numbered.sink_to(RedisSink(servers, to_hash)).uid("hashes")
    numbered.sink_to(RedisSink(servers, to_stream)).uid("log")
    job = env.execute_async("Redis to Redis")
    tell_workers(job, Path(folder, "workers"))
    job.get_job_execution_result().result()


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
