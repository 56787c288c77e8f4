"""Webhook → keyed state → requests, as a job whose receiver, workers and drivers are killed.

As a program it is the job's driver: `python -m tests.connectors.http.pipeline '{"servers": …}'`. It goes on from the
newest checkpoint of the drivers before it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.connectors.kafka.programs import KEYS, tell_workers

from penstock.common import Configuration, RestartStrategies, SimpleStringSchema, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.http import HttpSink, HttpSinkRequestEntry, WebhookSettings, WebhookSource
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor


class Numbered(KeyedProcessFunction):
    """A key's values with their numbers, from 1; a value that was sent again is left out."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen"))

    def process_element(self, value: int, ctx: Any) -> Iterable[tuple[int, int, int]]:
        if not self.seen.contains(value):
            number = (self.count.value() or 0) + 1
            self.count.update(number)
            self.seen.put(value, number)
            yield value % KEYS, number, value


def to_entry(record: tuple[int, int, int]) -> HttpSinkRequestEntry:
    return HttpSinkRequestEntry("POST", json.dumps(record).encode(), record[0])


def check(records: int, bodies: Sequence[bytes]) -> str:
    """Raise `AssertionError` unless the last value of each number is right: each once, numbered without a gap."""
    rows: dict[tuple[int, int], int] = {}
    count = 0
    for body in bodies:
        for key, number, value in json.loads(body):
            rows[key, number] = value
            count += 1
    for key in range(KEYS):
        values = [rows.get((key, number)) for number in range(1, len(range(key, records, KEYS)) + 1)]
        missing = set(range(key, records, KEYS)) ^ set(values)
        assert not missing, f"key {key}: {sorted(missing, key=repr)[:20]}"
    assert len(rows) == records, f"{len(rows)} numbers for {records} records"
    return f"{count} arrived in {len(bodies)} requests, {count - records} of them repeated"


def count_rows(bodies: Sequence[bytes]) -> int:
    return len({(key, number) for body in bodies for key, number, _ in json.loads(body)})


def run(servers: str, topic: str, folder: str, target: str, interval: str, parallelism: int = 2) -> None:
    """The program; `topic` has the ports of the webhook."""
    configuration: Mapping[str, str] = {
        "execution.checkpointing.dir": f"{folder}/checkpoints",
        "execution.checkpointing.interval": interval,
        "penstock.recovery.from-latest": "true",
        **({"execution.target": "local"} if target == "local" else {"spark.master": target}),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(dict(configuration)))
    env.set_parallelism(parallelism).set_restart_strategy(RestartStrategies.fixed_delay_restart(10_000, 100))
    source = WebhookSource(WebhookSettings(topic, mode="lines"), SimpleStringSchema())
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "webhook").uid("source").map(int)
    numbered = numbers.key_by(lambda n: n % KEYS).process(Numbered()).uid("numbered")
    sink = HttpSink.builder().set_endpoint_url(servers).set_element_converter(to_entry).set_max_time_in_buffer_ms(50)
    numbered.sink_to(sink.set_max_in_flight_requests(4).set_max_attempts(1_000).build()).uid("requests")
    job = env.execute_async("webhook to requests")
    tell_workers(job, Path(folder, "workers"))
    job.get_job_execution_result().result()


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
