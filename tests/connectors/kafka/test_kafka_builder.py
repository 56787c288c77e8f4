"""What a Kafka source takes, and what it says to what it does not; no broker is needed."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pytest

from penstock.base.errors import ConfigurationError, PenstockError
from penstock.common import SimpleStringSchema
from penstock.connectors.kafka.client import ConsumerOptions, consumer_options
from penstock.connectors.kafka.partitions import KafkaTopicPartition, assign_reader
from penstock.datastream import connectors
from penstock.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaSourceBuilder,
)
from penstock.runtime.connector import Boundedness

LATEST = KafkaOffsetsInitializer.latest()


def builder(**properties: str) -> KafkaSourceBuilder[Any]:
    made = KafkaSource.builder().set_bootstrap_servers("127.0.0.1:1").set_topics("orders")
    made.set_value_only_deserializer(SimpleStringSchema())
    return made.set_properties({name.replace("_", "."): value for name, value in properties.items()})


def options(**properties: str) -> ConsumerOptions:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return consumer_options({"bootstrap.servers": "127.0.0.1:1", **named}, None, looks_once=False)


def test_the_source_is_found_where_pyflink_has_it() -> None:
    assert connectors.KafkaSource is KafkaSource


def test_a_source_is_a_description_that_travels() -> None:
    source = builder().set_bounded(LATEST).set_client_id_prefix("reader").build()
    assert pickle.loads(pickle.dumps(source)).boundedness is Boundedness.BOUNDED
    assert builder().build().boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    assert builder().set_unbounded(LATEST).build().boundedness is Boundedness.CONTINUOUS_UNBOUNDED


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: KafkaSource.builder().build(), "needs set_topics, set_topic_pattern or set_partitions"),
        (lambda: KafkaSource.builder().set_topics("orders").build(), "needs set_value_only_deserializer or set_des"),
        (lambda: builder(bootstrap_servers="").build(), "needs set_bootstrap_servers"),
        (lambda: builder().set_topic_pattern("x.*"), "is set already"),
        (lambda: KafkaSource.builder().set_topics(), "names of topics"),
        (lambda: KafkaSource.builder().set_partitions({"orders"}), "KafkaTopicPartitions"),  # type: ignore[arg-type]
        (lambda: builder().set_deserializer(SimpleStringSchema()), "goes to set_value_only"),  # type: ignore[arg-type]
        (lambda: builder().set_starting_offsets("earliest"), "KafkaOffsetsInitializer"),  # type: ignore[arg-type]
        (lambda: builder().set_starting_offsets(KafkaOffsetsInitializer.committed_offsets()).build(), "set_group_id"),
        (lambda: builder(no_such_thing="1").build(), 'No such configuration property: "no.such.thing"'),
        (lambda: builder(fetch_min_bytes="many").build(), "fetch.min.bytes"),
        (lambda: builder(auto_offset_reset="sometimes").build(), "auto.offset.reset must be one of"),
        (lambda: builder(missing_partition="maybe").build(), "missing.partition must be one of fail, ignore"),
        (lambda: builder(partition_discovery_interval_ms="soon").build(), "partition.discovery.interval.ms must be"),
        (lambda: builder(enable_auto_commit="true").build(), "set_group_id"),
        (lambda: builder(client_id="mine").build(), "set_client_id_prefix"),
        (lambda: builder(sasl_jaas_config="Krb5LoginModule required").build(), "user name and a password"),
        (lambda: builder(ssl_truststore_location="/x.jks").build(), r"ssl.ca.location with a file in PEM"),
        (lambda: KafkaOffsetsInitializer.timestamp(-1), "negative"),
        (lambda: KafkaOffsetsInitializer.offsets({KafkaTopicPartition("orders", 0): -1}), "orders-0 must not be neg"),
        (lambda: KafkaOffsetsInitializer.committed_offsets("earliest"), "Strategy"),  # type: ignore[arg-type]
        (lambda: KafkaTopicPartition("orders", -1), "must not be negative"),
    ],
)
def test_what_cannot_be_is_said(make: Any, sentence: str) -> None:
    with pytest.raises(PenstockError, match=sentence):
        make()


def test_without_the_library_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigurationError, match=r'pip install "penstock-streams\[kafka\]"'):
        builder().build()


def test_properties_have_java_s_names_and_defaults() -> None:
    found = options(
        fetch_max_wait_ms="100",
        value_deserializer="org.apache.kafka.common.serialization.StringDeserializer",
        sasl_jaas_config='PlainLoginModule required username="ann" password="se=cret";',
    )
    settings = found.of_consumer(3)
    assert settings["fetch.wait.max.ms"] == "100"
    assert "value.deserializer" not in settings
    assert (settings["sasl.username"], settings["sasl.password"]) == ("ann", "se=cret")
    assert settings["isolation.level"] == "read_uncommitted"
    assert not found.reads_committed
    assert (found.discovery_interval_ms, found.unavailable_timeout_ms) == (300_000, 300_000)
    assert found.reset is None
    assert options(auto_offset_reset="none").reset is KafkaOffsetResetStrategy.NONE
    assert consumer_options({"bootstrap.servers": "x"}, "orders", looks_once=True).discovery_interval_ms is None


def test_offsets_are_committed_only_to_a_group_that_the_program_names() -> None:
    assert not options().commits
    assert options(group_id="readers").commits
    assert not options(group_id="readers", commit_offsets_on_checkpoint="false").commits


def test_partitions_of_a_topic_go_round_from_a_reader_of_its_name_s() -> None:
    """As in Flink, whose rule takes Java's hash of the name: that of `orders` is -1008770331."""
    start = (-1008770331 * 31 & 0x7FFFFFFF) % 4
    found = [assign_reader(KafkaTopicPartition("orders", partition), 4) for partition in range(6)]
    assert found == [(start + partition) % 4 for partition in range(6)]
