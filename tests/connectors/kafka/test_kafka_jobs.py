"""Jobs that read Kafka, in one process and on Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.connectors.kafka.reading import LATEST, texts
from tests.failing import FailsOnce
from tests.servers.kafka import KafkaCluster, kafka_server
from tests.servers.waiting import await_true

from penstock.base.errors import JobExecutionError
from penstock.common import Configuration, JsonRowDeserializationSchema, OutputTag, Row, Types, WatermarkStrategy
from penstock.common.time import Duration
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors.kafka import KafkaSource, KafkaSourceBuilder
from penstock.datastream.functions import ProcessFunction

pytestmark = pytest.mark.slow

BEHIND = WatermarkStrategy.no_watermarks()


def environment(target: str = "local", **settings: str) -> StreamExecutionEnvironment:
    names = {name.replace("__", "-").replace("_", "."): value for name, value in settings.items()}
    configuration = Configuration.from_dict({"execution.checkpointing.interval": "50 ms", **names})
    if target == "local":
        configuration.set_string("execution.target", "local")
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)


def numbered(kafka: KafkaCluster, partitions: int, of_each: int) -> str:
    topic = kafka.create_topic(partitions=partitions)
    for partition in range(partitions):
        kafka.produce(topic, [b"%d" % (of_each * partition + number) for number in range(of_each)], partition)
    return topic


def to_end(kafka: KafkaCluster, topic: str, **properties: str) -> KafkaSource[Any]:
    return texts(kafka, topic, **properties).set_bounded(LATEST).build()


def collect(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return list(results)


def running_sums(env: StreamExecutionEnvironment, source: KafkaSource[Any]) -> Any:
    pairs = env.from_source(source, BEHIND, "numbers").map(lambda text: (int(text) % 7, int(text)))
    return pairs.key_by(lambda pair: pair[0]).reduce(lambda one, other: (one[0], one[1] + other[1]))


def last_sums(results: Any) -> dict[int, int]:
    last: dict[int, int] = {}
    for key, total in results:
        last[key] = max(total, last.get(key, 0))
    return last


def sums_of(count: int) -> dict[int, int]:
    return {key: sum(range(key, count, 7)) for key in range(7)}


def test_state_counts_each_record_once_when_the_job_fails_between_checkpoints(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    topic = numbered(kafka, 3, 2000)
    env = environment(restart__strategy_type="fixed-delay", restart__strategy_fixed__delay_delay="10 ms")
    texts_read = env.from_source(to_end(kafka, topic), BEHIND, "numbers").map(FailsOnce(tmp_path / "failed", 1500))
    pairs = texts_read.map(lambda text: (int(text) % 7, int(text))).key_by(lambda pair: pair[0])
    sums = pairs.reduce(lambda one, other: (one[0], one[1] + other[1]))
    assert last_sums(collect(sums)) == sums_of(6000)
    assert (tmp_path / "failed").exists()


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.BATCH, "MICRO_BATCH"])
def test_a_bounded_source_is_read_in_other_modes_too(kafka: KafkaCluster, mode: Any) -> None:
    topic = numbered(kafka, 3, 500)
    env = environment(**({"execution_runtime__mode": mode} if isinstance(mode, str) else {}))
    if not isinstance(mode, str):
        env.set_runtime_mode(mode)
    assert last_sums(collect(running_sums(env, to_end(kafka, topic)))) == sums_of(1500)


def test_offsets_of_checkpoints_are_committed_for_others_to_see(kafka: KafkaCluster) -> None:
    topic = numbered(kafka, 2, 10)
    env = environment()
    env.from_source(texts(kafka, topic, group_id=topic).build(), BEHIND, "numbers").map(int).print()
    job = env.execute_async("commits")
    try:
        await_true(lambda: kafka.committed(topic, topic) == {0: 10, 1: 10}, "nothing is committed")

        def measured() -> bool:
            figures = job.get_progress().result()
            name = f"KafkaSourceReader.topic.{topic}.partition"
            gauges = {key.partition("KafkaSourceReader.topic")[2]: value for key, value in figures.gauges.items()}
            return (
                figures.counters.get("KafkaSourceReader.commitsSucceeded", 0) >= 1
                and figures.counters.get("numBytesIn") == 30
                and any(key.endswith("pendingRecords") and not value for key, value in figures.gauges.items())
                and all(
                    gauges.get(f"{name}.{partition}.{which}".removeprefix("KafkaSourceReader.topic")) == 10
                    for partition in range(2)
                    for which in ("currentOffset", "committedOffset")
                )
            )

        await_true(measured, "the metrics do not say so")
    finally:
        job.cancel().result()


def test_a_bounded_job_commits_where_it_has_ended(kafka: KafkaCluster) -> None:
    topic = numbered(kafka, 2, 10)
    env = environment()
    env.from_source(to_end(kafka, topic, group_id=topic), BEHIND, "numbers").print()
    env.execute("to the end")
    await_true(lambda: kafka.committed(topic, topic) == {0: 10, 1: 10}, f"{kafka.committed(topic, topic)}")


def test_a_broker_that_dies_under_a_running_job_costs_nothing_but_time(tmp_path: Path) -> None:
    with kafka_server(tmp_path / "own") as kafka:
        topic = numbered(kafka, 2, 1000)
        env = environment()
        job = running_sums(env, texts(kafka, topic).build())
        with job.execute_and_collect() as results:
            seen = (next(results) for _ in range(10_000))
            before = [next(seen) for _ in range(2000)]
            kafka.kill()
            kafka.start()
            for partition in range(2):
                kafka.produce(topic, [b"%d" % (2000 + 1000 * partition + n) for n in range(1000)], partition)
            after = [next(seen) for _ in range(2000)]
        assert last_sums(before + after) == sums_of(4000)


class Tell(ProcessFunction):
    """The value, its time, and the watermark before it."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


def test_each_partition_has_a_watermark_of_its_own(kafka: KafkaCluster) -> None:
    """One reader reads two partitions, one of which is a day ahead: no record of the other is late."""
    topic = kafka.create_topic(partitions=2)
    day_ms = 24 * 60 * 60 * 1000
    for number in range(200):
        kafka.produce(topic, ["late", *["x"] * 50], 0, timestamp=1_000 + number)
        kafka.produce(topic, ["ahead", *["x"] * 50], 1, timestamp=day_ms + number)
    env = environment().set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    told = env.from_source(to_end(kafka, topic), strategy, "times").process(Tell())
    times = [(time_ms, watermark) for _, time_ms, watermark in collect(told)]
    assert len(times) == 200 * 51 * 2
    assert all(watermark < time_ms for time_ms, watermark in times)


def test_a_partition_that_is_far_ahead_is_held_back(kafka: KafkaCluster) -> None:
    """With alignment, what comes out of the fast partition stays near the slow one, and nothing is lost."""
    topic = kafka.create_topic(partitions=2)
    for number in range(100):
        kafka.produce(topic, [f"slow {number}"] * 20, 0, timestamp=10_000 + number)
    for number in range(100):
        kafka.produce(topic, [f"fast {number}"] * 20, 1, timestamp=10_000 + 100 * number)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment(
        "group", Duration.of_millis(500), Duration.of_millis(10)
    )
    env = environment(penstock_source_batch__records="50").set_parallelism(1)
    values = collect(env.from_source(to_end(kafka, topic), strategy, "times"))
    assert len(values) == 4000
    last_slow = max(place for place, value in enumerate(values) if value.startswith("slow"))
    assert not any(value == "fast 99" for value in values[:last_slow])


ORDERS = Types.ROW_NAMED(["id", "city"], [Types.LONG(), Types.STRING()])
BAD = OutputTag("bad")


def orders(kafka: KafkaCluster) -> tuple[str, KafkaSourceBuilder[Any]]:
    topic = kafka.create_topic()
    kafka.produce(topic, [json.dumps({"id": 1, "city": "Delft"}), "{no", json.dumps({"id": 2, "city": None})])
    return topic, texts(kafka, topic).set_bounded(LATEST)


def test_a_message_that_cannot_be_read_fails_the_job_with_its_place(kafka: KafkaCluster) -> None:
    topic, builder = orders(kafka)
    builder.set_value_only_deserializer(JsonRowDeserializationSchema.builder().type_info(ORDERS).build())
    env = environment(restart__strategy_type="none")
    env.from_source(builder.build(), BEHIND, "orders").print()
    with pytest.raises(JobExecutionError, match=f"{topic}-0, offset 1"):
        env.execute("orders")


def test_or_goes_to_a_side_output(kafka: KafkaCluster) -> None:
    topic, builder = orders(kafka)
    schema = JsonRowDeserializationSchema.builder().type_info(ORDERS).build().skip_malformed(BAD)
    env = environment()
    stream = env.from_source(builder.set_value_only_deserializer(schema).build(), BEHIND, "orders")
    bad = stream.get_side_output(BAD).map(lambda one: (one[0], one[1], one[3]))
    assert collect(bad) == [(f"{topic}-0", 1, b"{no")]
    assert collect(stream) == [Row(id=1, city="Delft"), Row(id=2, city=None)]


@pytest.mark.spark
def test_workers_of_spark_read_partitions_and_go_on_when_a_task_has_failed(kafka: KafkaCluster, tmp_path: Path) -> None:
    topic = numbered(kafka, 4, 2000)
    env = environment("spark", restart__strategy_type="fixed-delay", restart__strategy_fixed__delay_delay="10 ms")
    env.set_parallelism(2)
    read = env.from_source(to_end(kafka, topic, group_id=topic), BEHIND, "numbers")
    failing = read.map(FailsOnce(tmp_path / "failed", 2500)).map(lambda text: (int(text) % 7, int(text)))
    sums = failing.key_by(lambda pair: pair[0]).reduce(lambda one, other: (one[0], one[1] + other[1]))
    assert last_sums(collect(sums)) == sums_of(8000)
    assert (tmp_path / "failed").exists()
    await_true(lambda: kafka.committed(topic, topic) == dict.fromkeys(range(4), 2000), "offsets are not committed")
