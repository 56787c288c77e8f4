"""The Kafka source and sink keep the rules of connectors, on a real broker and on the model of its coordinator."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.connectors.kafka.hostile import TOPIC, ModelSink
from tests.connectors.kafka.reading import EARLIEST, LATEST, texts
from tests.servers.kafka import KafkaCluster

from penstock.common import SimpleStringSchema
from penstock.datastream.connectors.kafka import DeliveryGuarantee, KafkaRecordSerializationSchema, KafkaSink
from penstock.drivers.simulation.outside_world import KafkaModel
from penstock.testing.connectors import (
    SINK_CASES,
    SOURCE_CASES,
    SinkUnderTest,
    SourceUnderTest,
    check_sink,
    check_source,
)

pytestmark = pytest.mark.slow


class KeptModel(KafkaModel):
    """There is one, wherever the sink goes."""

    def __reduce__(self) -> Any:
        MODELS[id(self)] = self
        return kept_model, (id(self),)


MODELS: dict[int, KafkaModel] = {}


def kept_model(number: int) -> KafkaModel:
    return MODELS[number]


def partition_of(text: str) -> str:
    return text[0]


@pytest.mark.parametrize("case", SOURCE_CASES)
def test_a_source_that_stops(kafka: KafkaCluster, case: str) -> None:
    topic = kafka.create_topic(partitions=3)
    expected = [f"{partition} {number}" for partition in range(3) for number in range(4)]
    for partition in range(3):
        kafka.produce(topic, [text for text in expected if partition_of(text) == str(partition)], partition)

    def prepare() -> SourceUnderTest:
        source = texts(kafka, topic).set_bounded(LATEST).build()
        return SourceUnderTest(source, expected, order_of=partition_of, real_time=True, silence_max=2_000)

    check_source(prepare, case, parallelisms=[1, 2], batch_sizes=[2], places=3)


@pytest.mark.parametrize("case", ["undisturbed", "restart-often", "rescale", "reader-alone", "pause", "close"])
def test_a_source_that_goes_on(kafka: KafkaCluster, case: str) -> None:
    def prepare() -> SourceUnderTest:
        topic = kafka.create_topic(partitions=2)
        kafka.produce(topic, ["0 a", "0 b"], 0)
        return SourceUnderTest(
            texts(kafka, topic).set_starting_offsets(EARLIEST).build(),
            ["0 a", "0 b", "1 a", "1 b", "0 c"],
            extend=[lambda: kafka.produce(topic, ["1 a", "1 b"], 1), lambda: kafka.produce(topic, ["0 c"], 0)],
            order_of=partition_of,
            real_time=True,
            silence_max=2_000,
        )

    check_source(prepare, case, parallelisms=[2], batch_sizes=[2], places=2)


EXACTLY_ONCE, AT_LEAST_ONCE, _ = DeliveryGuarantee
ON_A_BROKER = [
    *((EXACTLY_ONCE, case) for case in SINK_CASES if case not in ("close", "rescale")),
    *((AT_LEAST_ONCE, case) for case in ("undisturbed", "close", "restart")),
]


@pytest.mark.parametrize(("guarantee", "case"), ON_A_BROKER)
def test_a_sink_on_a_broker(kafka: KafkaCluster, guarantee: DeliveryGuarantee, case: str) -> None:
    """The rest is for the model."""

    def prepare() -> SinkUnderTest:
        topic = kafka.create_topic()
        schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
        schema.set_value_serialization_schema(SimpleStringSchema())
        builder = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers)
        builder.set_record_serializer(schema.build()).set_delivery_guarantee(guarantee)
        builder.set_transactional_id_prefix(f"prefix-{time.time_ns()}").set_property("transaction.timeout.ms", "60000")

        def read() -> list[str]:
            return [(message.value() or b"").decode() for message in kafka.read(topic)]

        return SinkUnderTest(
            builder.build(),
            [f"{n}" for n in range(4)],
            read,
            held_back=guarantee is EXACTLY_ONCE,
            savepoints_outlive_failures=False,
        )

    check_sink(prepare, case, parallelisms=[2], places=2)


@pytest.mark.parametrize("case", SINK_CASES)
def test_a_sink_on_the_model(case: str) -> None:
    """The same in more places: at every step a failure, with what lives on."""

    def prepare() -> SinkUnderTest:
        model = KeptModel()
        return SinkUnderTest(
            ModelSink(model),
            range(16),
            lambda: list(model.visible(TOPIC)),
            held_back=True,
            savepoints_outlive_failures=False,
        )

    check_sink(prepare, case)
