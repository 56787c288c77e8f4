"""Brokers that want TLS and a password: by both clients, librdkafka and the one that ends transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from tests.connectors.kafka.programs import build, check
from tests.connectors.kafka.reading import LATEST
from tests.servers.security import MECHANISMS, Secure, secure_kafka

from penstock.base.errors import PenstockError
from penstock.common import Configuration, SimpleStringSchema, WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.closeable_iterator import CloseableIterator
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)

RECORDS = 500


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    with secure_kafka(tmp_path_factory.mktemp("secure") / "kafka") as running:
        yield running


def environment() -> StreamExecutionEnvironment:
    settings = {
        "execution.target": "local",
        "execution.checkpointing.interval": "50 ms",
        "restart-strategy.type": "none",
    }
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))


def build_source(broker: Secure, topic: str, properties: dict[str, str]) -> KafkaSource[str]:
    builder = KafkaSource.builder().set_bootstrap_servers(broker.address).set_topics(topic).set_bounded(LATEST)
    return builder.set_properties(properties).set_value_only_deserializer(SimpleStringSchema()).build()


def read(source: KafkaSource[str]) -> list[Any]:
    stream = environment().from_source(source, WatermarkStrategy.no_watermarks(), "texts")
    with cast(CloseableIterator, stream.execute_and_collect()) as found:
        return list(found)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_source_reads_through_tls_with_a_password(broker: Secure, mechanism: str) -> None:
    """G9: its offsets are committed there, too."""
    topic = broker.kafka.create_topic()
    broker.kafka.produce(topic, ["a", "b"])
    source = build_source(broker, topic, {**broker.properties(mechanism), "group.id": topic})
    assert read(source) == ["a", "b"]
    assert broker.kafka.committed(topic, topic) == {0: 2}


def write(broker: Secure, topic: str, properties: dict[str, str], guarantee: DeliveryGuarantee) -> None:
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    builder = KafkaSink.builder().set_bootstrap_servers(broker.address).set_transactional_id_prefix(topic)
    builder.set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
    for name, value in {**properties, "transaction.timeout.ms": "120000"}.items():
        builder.set_property(name, value)
    env = environment()
    numbers = DataGeneratorSource(lambda index: index, count=RECORDS, rate_per_second=1_000)
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
    build(stream, builder.set_delivery_guarantee(guarantee).build())
    env.execute("to a broker with TLS")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_sink_writes_exactly_once_through_tls_with_a_password(broker: Secure, mechanism: str) -> None:
    """G9: transactions are begun by librdkafka and ended by the client of the protocol."""
    topic = broker.kafka.create_topic()
    write(broker, topic, broker.properties(mechanism), DeliveryGuarantee.EXACTLY_ONCE)
    check(RECORDS, [message.value() for message in broker.kafka.read(topic)])


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE])
def test_a_sink_says_that_its_password_is_wrong(broker: Secure, mechanism: str, guarantee: DeliveryGuarantee) -> None:
    properties = broker.properties(mechanism, password="wrong-one")
    told = rf"brokers of {broker.address} refuse the connection: .*[Aa]uthentication.*Check the properties"
    with pytest.raises(PenstockError, match=told) as failed:
        write(broker, broker.kafka.create_topic(), properties, guarantee)
    assert "wrong-one" not in str(failed.value)


@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE])
def test_a_sink_says_that_it_does_not_trust_the_broker(broker: Secure, guarantee: DeliveryGuarantee) -> None:
    properties = broker.properties("PLAIN")
    del properties["ssl.ca.location"]
    with pytest.raises(PenstockError, match=r"refuse the connection: .*certificate verify failed"):
        write(broker, broker.kafka.create_topic(), properties, guarantee)


def test_a_wrong_password_is_an_error_that_does_not_tell_it(broker: Secure) -> None:
    quickly = {"brokers.unavailable.timeout.ms": "1000"}
    properties = {**broker.properties("PLAIN", password="wrong-one"), **quickly}
    source = build_source(broker, broker.kafka.create_topic(), properties)
    with pytest.raises(PenstockError, match=r"refuse the connection: .*[Aa]uthentication") as failed:
        read(source)
    assert "wrong-one" not in str(failed.value)
