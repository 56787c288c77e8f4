"""The Kafka sink on a real broker: what messages look like, what each guarantee means, and what its errors say."""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
from tests.connectors.kafka.programs import check, kafka_sink
from tests.datastream.environments import local_environment
from tests.servers.kafka import KafkaCluster, kafka_server
from tests.servers.waiting import await_true

from penstock.base.errors import ConfigurationError, UnsupportedError, WrongTypeError
from penstock.codecs.json_row import JsonRowSerializationSchema
from penstock.codecs.serialization import SerializationSchema
from penstock.common import Row, SimpleStringSchema, Types
from penstock.connectors.kafka.cluster import KafkaCluster as Brokers
from penstock.connectors.kafka.cluster import client_settings
from penstock.connectors.kafka.message_producer import DeliveryError
from penstock.connectors.kafka.producer import (
    FENCED_TIMEOUT_MS,
    ONGOING,
    TransactionEndedError,
    TransactionLostError,
)
from penstock.connectors.kafka.sink import PrefixTakenError
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    FixedPartitioner,
    KafkaPartitioner,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaTopicSelector,
)
from penstock.testing.connectors import SinkHost

pytestmark = pytest.mark.slow

EXACTLY_ONCE, AT_LEAST_ONCE, NONE = DeliveryGuarantee
TEXT = KafkaRecordSerializationSchema.builder().set_value_serialization_schema(SimpleStringSchema())


class ByFirst(KafkaTopicSelector):
    """The topic that a record names first."""

    def __init__(self, topics: list[str]) -> None:
        self.topics = topics

    def apply(self, data: Any) -> str:
        topic: str = self.topics[data[0]]
        return topic


class Field(SerializationSchema[Any]):
    def __init__(self, number: int) -> None:
        self.number = number

    def serialize(self, element: Any) -> bytes:
        return str(element[self.number]).encode()


class Last(KafkaPartitioner):
    def partition(self, record: Any, key: bytes | None, value: bytes | None, topic: str, partitions: int) -> int:
        is_first: bool = record[0] == "first"
        return partitions - 1 - is_first


def write(sink: KafkaSink[Any], records: list[Any], timestamps: list[int] | None = None, **host: Any) -> None:
    """By a sink that has travelled."""
    travelled = pickle.loads(cloudpickle.dumps(sink))
    writer = travelled.create_writer(SinkHost(**host))
    writer.write_batch(records, timestamps)
    writer.flush(True)
    writer.close()


def sink_of(kafka: KafkaCluster, schema: Any, guarantee: DeliveryGuarantee = AT_LEAST_ONCE, **properties: str) -> Any:
    builder = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_record_serializer(schema)
    builder.set_delivery_guarantee(guarantee).set_transactional_id_prefix(f"prefix-{time.time_ns()}")
    builder.set_property("transaction.timeout.ms", "60000")
    for name, value in properties.items():
        builder.set_property(name.replace("_", "."), value)
    return builder.build()


# --- what messages look like ------------------------------------------------------------------------------------------


def test_a_message_has_the_key_the_headers_and_the_time_of_its_record(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=3)
    schema = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_key_serialization_schema(Field(0))
        .set_value_serialization_schema(Field(1))
        .set_header_provider(lambda record: [("kind", b"test"), ("none", None)] if record[1] else None)
        .build()
    )
    write(sink_of(kafka, schema), [("a", 1), ("b", 0), ("a", 2)], [1_000, 2_000, 3_000])
    found = sorted(kafka.read(topic), key=lambda message: message.timestamp())
    assert [(m.key(), m.value(), m.timestamp()[1]) for m in found] == [
        (b"a", b"1", 1_000),
        (b"b", b"0", 2_000),
        (b"a", b"2", 3_000),
    ]
    assert [m.headers() for m in found] == [
        [("kind", b"test"), ("none", None)],
        None,
        [("kind", b"test"), ("none", None)],
    ]
    assert found[0].partition() == found[2].partition()


def test_a_key_goes_to_the_partition_that_javas_clients_choose(kafka: KafkaCluster) -> None:
    """By murmur2: the figures are those of the Java client for four partitions."""
    topic = kafka.create_topic(partitions=4)
    schema = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_key_serialization_schema(SimpleStringSchema())
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    write(sink_of(kafka, schema), ["21", "foobar", "abc"])
    # murmur2("21") = -973932308, murmur2("foobar") = -790332482, murmur2("abc") = 479470107: Kafka's own known values.
    expected = {
        key: (hashed & 0x7FFFFFFF) % 4
        for key, hashed in (("21", -973932308), ("foobar", -790332482), ("abc", 479470107))
    }
    assert {(m.value() or b"").decode(): m.partition() for m in kafka.read(topic)} == expected


def test_a_selector_names_topics_and_a_partitioner_partitions(kafka: KafkaCluster) -> None:
    topics = [kafka.create_topic("one", 2), kafka.create_topic("two", 3)]
    builder = KafkaRecordSerializationSchema.builder().set_topic_selector(ByFirst(topics))
    schema = builder.set_value_serialization_schema(Field(1)).set_partitioner(FixedPartitioner()).build()
    write(sink_of(kafka, schema), [(0, "a"), (1, "b"), (0, "c")], subtask_index=4, parallelism=5)
    assert [[(m.value(), m.partition()) for m in kafka.read(topic)] for topic in topics] == [
        [(b"a", 0), (b"c", 0)],
        [(b"b", 1)],
    ]
    schema = TEXT.set_topic(topics[0]).build()
    by_record = KafkaRecordSerializationSchema(topics[1], Field(0), partitioner=Last())
    write(sink_of(kafka, by_record), [("first",), ("second",)])
    assert [(m.value(), m.partition()) for m in kafka.read(topics[1])][1:] == [(b"first", 1), (b"second", 2)]
    assert schema.partitioner is None


def test_rows_become_json(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    row_type = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
    schema = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_value_serialization_schema(JsonRowSerializationSchema.builder().with_type_info(row_type).build())
        .build()
    )
    env = local_environment(2)
    rows = env.from_collection([Row(1, "a"), Row(2, "b")], type_info=row_type)
    rows.sink_to(sink_of(kafka, schema))
    env.execute("rows")
    assert sorted(json.loads(m.value() or b"")["id"] for m in kafka.read(topic)) == [1, 2]


def test_what_is_sent_is_counted_under_flinks_names(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(max_message_bytes="1000")
    for guarantee in (AT_LEAST_ONCE, EXACTLY_ONCE):
        host = SinkHost()
        writer = sink_of(kafka, TEXT.set_topic(topic).build(), guarantee).create_writer(host)
        writer.write_batch(["ab", "c" * 2_000], None)
        with pytest.raises(DeliveryError):
            writer.flush(False)
        writer.close()
        assert host.counts == {"numRecordsSend": 2, "numBytesSend": 2_002, "numRecordsSendErrors": 1}


# --- guarantees -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", list(DeliveryGuarantee))
def test_all_is_there_when_a_job_has_ended(kafka: KafkaCluster, guarantee: DeliveryGuarantee) -> None:
    topic = kafka.create_topic(partitions=2)
    env = local_environment(2, execution__checkpointing__interval="100 ms")
    numbers = env.from_collection(list(range(10_000)))
    numbers.map(str).sink_to(kafka_sink(kafka.bootstrap_servers, topic, guarantee))
    env.execute("numbers")
    assert sorted(int(m.value() or b"-1") for m in kafka.read(topic)) == list(range(10_000))


def test_at_least_once_waits_for_kafka_at_a_checkpoint_and_none_does_not(kafka: KafkaCluster) -> None:
    for guarantee, count in ((AT_LEAST_ONCE, 1), (NONE, 0)):
        topic = kafka.create_topic()
        sink = sink_of(kafka, TEXT.set_topic(topic).build(), guarantee, linger_ms="60000")
        writer = sink.create_writer(SinkHost())
        writer.write_batch(["a"], None)
        assert kafka.read(topic) == []
        writer.flush(False)
        assert len(kafka.read(topic)) == count
        writer.flush(True)
        assert len(kafka.read(topic)) == 1
        writer.close()
        assert sink.create_committer(SinkHost()) is None


def test_nothing_is_seen_before_its_commit_and_what_was_not_prepared_is_never_seen(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    sink = sink_of(kafka, TEXT.set_topic(topic).build(), EXACTLY_ONCE)
    writer, committer = sink.create_writer(SinkHost()), sink.create_committer(SinkHost())
    writer.write_batch(["a"], None)
    writer.flush(False)
    committables = pickle.loads(pickle.dumps(writer.prepare_commit()))
    assert kafka.read(topic) == []
    committer.commit(committables)
    committer.recommit(committables)
    writer.write_batch(["b"], None)
    writer.flush(False)
    writer.close()  # as a failure does
    other = sink.create_committer(SinkHost(1))
    other.recommit(committables)
    assert [m.value() for m in kafka.read(topic)] == [b"a"]
    committer.close()
    other.close()


def test_a_few_ids_serve_for_many_checkpoints(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    sink = sink_of(kafka, TEXT.set_topic(topic).build(), EXACTLY_ONCE)
    writer, committer = sink.create_writer(SinkHost()), sink.create_committer(SinkHost())
    ids, former, threads = set(), [], len(os.listdir("/proc/self/task"))
    for number in range(9):
        writer.write_batch([str(number)], None)
        writer.flush(False)
        committables = writer.prepare_commit()
        writer.snapshot_state(number)
        committer.commit(committables)
        former += committables
        ids.add(committables[0].key.transactional_id)
    committer.recommit(former)  # of some, the id was used again: the log says that they were committed
    assert len(ids) < 6
    # No producer is left but the spare one, which has four threads, and the committer's and the writer's connections.
    assert len(os.listdir("/proc/self/task")) - threads < 12
    assert [m.value() for m in kafka.read(topic)] == [str(number).encode() for number in range(9)]
    writer.close()
    committer.close()


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_transaction_that_timed_out_is_an_error(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    sink = sink_of(kafka, TEXT.set_topic(topic).build(), EXACTLY_ONCE, transaction_timeout_ms="1000")
    writer, committer = sink.create_writer(SinkHost()), sink.create_committer(SinkHost())
    writer.write_batch(["lost"], None)
    writer.flush(False)
    committables = writer.prepare_commit()
    await_end(kafka, committables[0].key.transactional_id)
    with pytest.raises(TransactionLostError, match=r"1 records .* are lost to readers.*transaction\.timeout\.ms"):
        committer.commit(committables)
    writer.write_batch(["again"], None)
    writer.flush(False)
    await_end(kafka, writer._names.format_transactional_id(writer._open[0]))
    with pytest.raises(TransactionEndedError, match="records are written again"):
        writer.prepare_commit()
    writer.close()
    committer.close()
    assert kafka.read(topic) == []


def test_how_a_transaction_ended_is_unknown_when_its_topic_is_gone(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    sink = sink_of(kafka, TEXT.set_topic(topic).build(), EXACTLY_ONCE)
    writer = sink.create_writer(SinkHost())
    writer.write_batch(["a"], None)
    writer.flush(False)
    committables = writer.prepare_commit()
    brokers = Brokers({"bootstrap.servers": kafka.bootstrap_servers}, patience_s=2)
    brokers.fence(committables[0].key.transactional_id)
    assert brokers.find_marker(committables[0]) is False
    kafka.delete_topic(topic)
    await_true(lambda: brokers.find_marker(committables[0]) is None, "the topic is there")
    brokers.close()
    writer.close()


def await_end(kafka: KafkaCluster, transactional_id: str) -> None:
    brokers = Brokers({"bootstrap.servers": kafka.bootstrap_servers})
    deadline = time.monotonic() + 60
    while brokers.describe([transactional_id])[transactional_id].state == ONGOING:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    brokers.close()


def test_a_later_job_with_the_same_prefix_fences_an_earlier_one(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    sink = sink_of(kafka, TEXT.set_topic(topic).build(), EXACTLY_ONCE)
    first, committer = sink.create_writer(SinkHost()), sink.create_committer(SinkHost())
    first.write_batch(["a"], None)
    first.flush(False)
    committables = first.prepare_commit()
    first.write_batch(["b"], None)
    first.flush(False)
    second = sink.create_writer(SinkHost(job_id="another"))
    second.write_batch(["c"], None)
    with pytest.raises(PrefixTakenError, match="another job with the transactional id prefix"):
        write_on(first)
    with pytest.raises(TransactionLostError, match="Another job with the transactional id prefix"):
        committer.commit(committables)
    second.flush(False)
    committer.commit(second.prepare_commit())
    assert [m.value() for m in kafka.read(topic)] == [b"c"]
    for one in (first, second, committer):
        one.close()


def write_on(writer: Any) -> None:
    writer.write_batch(["more"], None)
    writer.flush(False)
    writer.prepare_commit()


def test_an_attempt_fences_the_one_before(kafka: KafkaCluster) -> None:
    """Also the id that a writer which lives on has taken over for its next transaction."""
    topic = kafka.create_topic()
    sink = sink_of(kafka, TEXT.set_topic(topic).build(), EXACTLY_ONCE)
    zombie = sink.create_writer(SinkHost())
    zombie.write_batch(["a"], None)
    zombie.flush(False)
    zombie.prepare_commit()
    zombie._spare[1]._init.join()
    writer = sink.create_writer(SinkHost(attempt=1))
    writer.flush(False)
    states = writer._brokers.describe(zombie._names.format_transactional_id(number) for number in range(2))
    assert {state.timeout_ms for state in states.values()} == {FENCED_TIMEOUT_MS}
    with pytest.raises(PrefixTakenError):
        write_on(zombie)
    zombie.close()
    writer.close()


def test_a_message_that_kafka_does_not_take_fails_the_task_with_its_topic_and_the_reason(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(max_message_bytes="1000")
    for guarantee in (AT_LEAST_ONCE, EXACTLY_ONCE):
        writer = sink_of(kafka, TEXT.set_topic(topic).build(), guarantee).create_writer(SinkHost())
        writer.write_batch(["fits", "x" * 2_000], None)
        with pytest.raises(DeliveryError, match=rf"topic {topic}, partition 0: .*too large"):
            writer.flush(False)
        writer.close()
    with pytest.raises(DeliveryError, match=r"message 2 of a batch: .*too large"):
        write(sink_of(kafka, TEXT.set_topic(topic).build(), max_request_size="1500"), ["fits", "x" * 2_000])


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE])
def test_the_brokers_reason_is_told_when_a_later_message_meets_it(
    kafka: KafkaCluster, guarantee: DeliveryGuarantee
) -> None:
    """After a refusal a transaction takes no messages, and the client only says "Erroneous state"."""
    topic = kafka.create_topic(max_message_bytes="1000")
    writer = sink_of(kafka, TEXT.set_topic(topic).build(), guarantee).create_writer(SinkHost())

    def write_until_it_fails() -> None:
        writer.write_batch(["x" * 2_000], None)
        while True:
            writer.write_batch(["next"], None)

    with pytest.raises(DeliveryError, match=rf"topic {topic}, partition 0: Broker: .*too large"):
        write_until_it_fails()
    writer.close()


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE])
def test_a_topic_that_is_not_there_is_an_error(kafka: KafkaCluster, guarantee: DeliveryGuarantee) -> None:
    """Also in a transaction, which has nothing in it then."""
    schema = TEXT.set_topic("no-such-topic").build()
    with pytest.raises(DeliveryError, match="topic no-such-topic: Broker: Unknown topic"):
        write(sink_of(kafka, schema, guarantee, topic_metadata_propagation_max_ms="100"), ["a"])


def test_a_full_queue_holds_records_back(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    sink = sink_of(kafka, TEXT.set_topic(topic).build(), queue_buffering_max_messages="10")
    write(sink, list(map(str, range(1_000))))
    assert [m.value() for m in kafka.read(topic)] == [str(number).encode() for number in range(1_000)]
    schema = KafkaRecordSerializationSchema(topic, SimpleStringSchema(), SimpleStringSchema())
    write(sink_of(kafka, schema, queue_buffering_max_messages="10"), list(map(str, range(1_000))), [5] * 1_000)
    assert [int(m.value() or b"") for m in kafka.read(topic)] == [*range(1_000), *range(1_000)]


@pytest.fixture(scope="module")
def strict_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with kafka_server(tmp_path_factory.mktemp("strict"), transaction_max_timeout_ms=5_000) as kafka:
        yield kafka


def test_a_time_out_that_the_brokers_do_not_allow_is_an_error_that_says_what_to_do(strict_kafka: KafkaCluster) -> None:
    topic = strict_kafka.create_topic()
    with pytest.raises(ConfigurationError, match=r"transaction\.max\.timeout\.ms"):
        write(sink_of(strict_kafka, TEXT.set_topic(topic).build(), EXACTLY_ONCE), ["a"])


def test_builders_say_what_is_missing() -> None:
    builder = KafkaSink.builder()
    with pytest.raises(ConfigurationError, match="set_bootstrap_servers"):
        builder.build()
    builder.set_bootstrap_servers("broker:9092")
    with pytest.raises(ConfigurationError, match="set_record_serializer"):
        builder.build()
    with pytest.raises(WrongTypeError, match="takes a KafkaRecordSerializationSchema, not SimpleStringSchema"):
        builder.set_record_serializer(SimpleStringSchema())  # type: ignore[arg-type]
    schema = KafkaRecordSerializationSchema.builder()
    with pytest.raises(ConfigurationError, match="set_topic or set_topic_selector"):
        schema.build()
    with pytest.raises(ConfigurationError, match="set_value_serialization_schema"):
        schema.set_topic("topic").build()
    builder.set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
    with pytest.raises(ConfigurationError, match="set_transactional_id_prefix"):
        builder.set_delivery_guarantee(EXACTLY_ONCE).build()
    for prefix in ("", "ä", "x" * 300):
        with pytest.raises(ConfigurationError, match="printable ASCII"):
            builder.set_transactional_id_prefix(prefix)
    with pytest.raises(ConfigurationError, match=r"cannot take the property transactional\.id"):
        builder.set_transactional_id_prefix("x").set_property("transactional.id", "y").build()
    with pytest.raises(ConfigurationError, match="'fail' or 'ignore'"):
        builder.with_unknown_transactions("perhaps")
    with pytest.raises(
        ConfigurationError, match="a setting of the Kafka sink is wrong: No such configuration property"
    ):
        write(
            KafkaSink.builder()
            .set_bootstrap_servers("broker:9092")
            .set_record_serializer(schema.build())
            .set_property("no.such.thing", "1")
            .build(),
            ["a"],
        )


def test_credentials_reach_both_clients() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="secret";'
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers("a:1,b:2")
        .set_record_serializer(TEXT.set_topic("topic").build())
        .set_property("security.protocol", "SASL_PLAINTEXT")
        .set_property("sasl.mechanism", "PLAIN")
        .set_property("sasl.jaas.config", jaas)
        .build()
    )
    assert client_settings(sink._settings) == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "me",
        "sasl_plain_password": "secret",
    }
    with pytest.raises(UnsupportedError, match=r"does not work with sasl\.mechanism OAUTHBEARER"):
        client_settings({**sink._settings, "sasl.mechanism": "OAUTHBEARER"})


# --- whole jobs -------------------------------------------------------------------------------------------------------


def test_a_stop_at_one_parallelism_goes_on_at_another(kafka: KafkaCluster, store_directory: Any) -> None:
    """2, then 3, then 1, each from the savepoint of the one before."""
    from tests.connectors.kafka.programs import build, generated_numbers

    topic, path = kafka.create_topic(partitions=3), None
    for parallelism in (2, 3, 1):
        env = local_environment(parallelism, execution__checkpointing__interval="100 ms")
        if path is not None:
            env = local_environment(
                parallelism, execution__checkpointing__interval="100 ms", execution__state_recovery__path=path
            )
        rate = None if parallelism == 1 else 2_000
        build(generated_numbers(env, 4_000, rate), kafka_sink(kafka.bootstrap_servers, topic, EXACTLY_ONCE))
        job = env.execute_async("rescaled")
        if parallelism == 1:
            job.get_job_execution_result().result()
        else:
            time.sleep(0.7)
            path = job.stop_with_savepoint(False, str(store_directory / f"savepoints-{parallelism}")).result()
    check(4_000, [m.value() for m in kafka.read(topic)])
