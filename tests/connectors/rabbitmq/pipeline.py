"""Queues → keyed state → queues, as a job whose server, workers and drivers are killed.

As a program it is the job's driver: `python -m tests.connectors.rabbitmq.pipeline '{"servers": …}'`. It goes on from
the newest checkpoint of the drivers before it. The same job reads and writes queues of RabbitMQ, MQTT and NATS.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.connectors.kafka.programs import KEYS, tell_workers

from penstock.common import Configuration, RestartStrategies, SimpleStringSchema, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors import Sink, Source
from penstock.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSink, RMQSource, RMQStreamSource
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor


class Numbered(KeyedProcessFunction):
    """A key's records with their numbers, from 1, and how often the key has seen each of them."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen"))

    def process_element(self, value: int, ctx: Any) -> Iterable[str]:
        number = (self.count.value() or 0) + 1
        times = (self.seen.get(value) or 0) + 1
        self.count.update(number)
        self.seen.put(value, times)
        yield json.dumps([value % KEYS, number, value, times])


def check(records: int, lines: list[str], counts: Mapping[int, int] | None) -> str:
    """Raise `AssertionError` unless each record came out, and counts in the state as often as `counts` says."""
    rows = {tuple(json.loads(line)) for line in lines}
    times: Counter[int] = Counter()
    for _, _, value, seen in rows:
        times[value] = max(times[value], seen)
    missing = set(range(records)) - set(times)
    assert not missing, f"{len(missing)} records are missing: {sorted(missing)[:20]}"
    repeated = sum(seen > 1 for seen in times.values())
    if counts is not None:
        # a publisher that was cut off may have published a number that it does not count
        wrong = {value: seen for value, seen in times.items() if seen != counts.get(value, 1)}
        assert not wrong, f"{len(wrong)} records count more or less often than they are there: {wrong}"
        for key in range(KEYS):
            numbers = {number for its_key, number, _, _ in rows if its_key == key}
            assert not numbers or max(numbers) == len(numbers), f"key {key} has gaps"
    return (
        f"{records} records, none lost, {repeated} of them counted again; {len(lines)} lines written, "
        f"{len(lines) - len(rows)} of them repeated"
    )


def run_job(
    build: Callable[[], tuple[Source[Any, Any], Sink[Any]]],
    folder: str,
    target: str,
    interval: str,
    parallelism: int,
) -> None:
    """Run the job until it is killed."""
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
    source, sink = build()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "queue").uid("source")
    if (limit := source.max_parallelism()) is not None:
        stream.set_parallelism(limit)
    stream.map(int).key_by(lambda n: n % KEYS).process(Numbered()).uid("numbered").sink_to(sink).uid("sink")
    job = env.execute_async("queue to queue")
    tell_workers(job, Path(folder, "workers"))
    job.get_job_execution_result().result()


def run(servers: str, folder: str, target: str, interval: str, parallelism: int = 2) -> None:
    """The program. `servers` is `MODE URI`: the mode is ids, queue or stream."""
    mode, uri = servers.split(" ")

    def build() -> tuple[Source[Any, Any], Sink[Any]]:
        config = RMQConnectionConfig.Builder().set_uri(uri).set_prefetch_count(5_000).build()
        source: Source[Any, Any]
        if mode == "stream":
            source = RMQStreamSource(config, "in", SimpleStringSchema())
        else:
            source = RMQSource(config, "in", mode == "ids", SimpleStringSchema())
        return source, RMQSink(config, "out", SimpleStringSchema())

    run_job(build, folder, target, interval, parallelism)


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
