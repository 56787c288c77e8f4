"""The source of sessions and the sink of acknowledged publishes, on a real server of MQTT."""

from __future__ import annotations

import itertools
import random
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from tests.connectors.rabbitmq.test_rabbitmq import QUICK, TEXTS, environment, failure_of, read, write
from tests.servers.queues import MosquittoServer

from penstock.base.errors import ConfigurationError, OperationError
from penstock.common import SimpleStringSchema
from penstock.connectors.mqtt import build_message, get_payload, read_plain_message
from penstock.datastream.connectors.mqtt import MqttMessage, MqttPublication, MqttSink, MqttSource
from penstock.table import EnvironmentSettings, TableEnvironment
from penstock.testing.connectors import SINK_CASES, SinkUnderTest, check_sink
from penstock.testing.connectors.source_run import SourceRun


def url(server: MosquittoServer) -> str:
    return f"mqtt://127.0.0.1:{server.port}"


def source(server: MosquittoServer, topic: str, client: str, **more: Any) -> MqttSource:
    return MqttSource(url(server), topic, client_id=client, deserialization_schema=SimpleStringSchema(), **more)


def drain(run: SourceRun, count: int) -> list[str]:
    """What the readers of a run have got when there are so many records."""
    deadline = time.monotonic() + 30
    while len(run.arrived) < count:
        assert time.monotonic() < deadline, f"only {len(run.arrived)} records"
        run.advance(7)
    return [value for _, value, _ in run.arrived]


def begin(mqtt: MqttSource, parallelism: int = 1) -> SourceRun:
    """A run whose readers have subscribed."""
    run = SourceRun(mqtt, parallelism, real_time=True)
    deadline = time.monotonic() + 30
    readers: list[Any] = run.readers
    while not all(any(each.is_connected for each in reader._subscriptions.values()) for reader in readers):
        assert time.monotonic() < deadline, "the readers do not connect"
        run.advance(7)
    return run


@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_messages_come_again_and_acknowledged_ones_do_not(
    server: MosquittoServer, topic: str, qos: int
) -> None:
    """paho-mqtt itself takes the responsibility for messages of QoS 2 before the job has them."""
    mqtt = source(server, topic, topic, qos=qos)
    begin(mqtt).close()
    write(TEXTS[:20], MqttSink(url(server), topic, SimpleStringSchema(), qos=qos))
    run = SourceRun(mqtt, 1, real_time=True)
    assert drain(run, 20) == TEXTS[:20]
    run.snapshot()
    run.close()
    again = SourceRun(mqtt, 1, real_time=True)
    assert drain(again, 20) == TEXTS[:20]
    again.complete(again.snapshot())
    time.sleep(0.2)
    again.close()
    write(["last"], MqttSink(url(server), topic, SimpleStringSchema(), qos=qos))
    last = SourceRun(mqtt, 1, real_time=True)
    assert drain(last, 1) == ["last"]
    last.close()


def test_qos_0_is_not_replayable(server: MosquittoServer, topic: str) -> None:
    mqtt = source(server, topic, topic, qos=0)
    assert not mqtt.replayable
    run = begin(mqtt)
    write(TEXTS[:20], MqttSink(url(server), topic, SimpleStringSchema(), qos=0))
    assert drain(run, 20) == TEXTS[:20]
    run.close()


def test_shared_subscriptions_are_read_on_by_fewer_readers(server: MosquittoServer, topic: str) -> None:
    """Mosquitto deals messages to the sessions of three readers also while one reader has to be all of them."""
    mqtt = source(server, f"$share/bar/{topic}", topic)
    assert mqtt.max_parallelism() is None
    run = begin(mqtt, 3)
    snapshot = run.snapshot()
    run.complete(snapshot)
    run.close()
    write(TEXTS[:30], MqttSink(url(server), topic, SimpleStringSchema()))
    run.restart(snapshot, 1)
    run.arrived.clear()
    assert sorted(drain(run, 30), key=int) == TEXTS[:30]
    run.close()


def test_a_lost_session_is_an_error_unless_it_is_ignored(server: MosquittoServer, topic: str) -> None:
    run = begin(source(server, topic, topic))
    snapshot = run.snapshot()
    run.close()
    clear = source(server, topic, topic)
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    client = paho.Client(CallbackAPIVersion.VERSION2, f"{topic}-0", protocol=paho.MQTTv5)
    client.connect("127.0.0.1", server.port, clean_start=True)
    client.loop_start()
    client.publish("other", b"", 1).wait_for_publish(10)
    client.disconnect()
    client.loop_stop()
    lost = SourceRun(clear, 1, real_time=True)
    lost.restart(snapshot)
    with pytest.raises(OperationError, match="has lost the session of this client"):
        drain(lost, 1)
    lost.close()


def test_properties_and_retained_messages(server: MosquittoServer, topic: str) -> None:
    publication = MqttPublication(
        topic, b"tea", 1, True, {"content_type": "text/plain", "correlation_data": b"\x00"}, [("a", "1"), ("a", "2")]
    )
    write([publication], MqttSink(url(server), to_message=lambda each: each))
    (message,) = read(MqttSource(url(server), topic, client_id=topic), 1)
    assert message == MqttMessage(
        topic,
        b"tea",
        1,
        True,
        False,
        {"content_type": "text/plain", "correlation_data": b"\x00"},
        [("a", "1"), ("a", "2")],
    )


def test_the_sink_keeps_the_order(server: MosquittoServer, topic: str) -> None:
    mqtt = source(server, topic, topic)
    begin(mqtt).close()
    write(TEXTS, MqttSink(url(server), topic, SimpleStringSchema(), settings=QUICK))
    assert read(mqtt, len(TEXTS)) == TEXTS


def test_tables(server: MosquittoServer, topic: str) -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")
    tables.get_config().set("execution.checkpointing.interval", "100 ms")
    tables.execute_sql(
        "CREATE TABLE cups (id BIGINT, kind STRING, t STRING METADATA FROM 'topic', q INT METADATA FROM 'qos', "
        "p MAP<STRING, STRING> METADATA FROM 'user-properties', r BOOLEAN METADATA FROM 'retain') WITH "
        f"('connector' = 'mqtt', 'url' = '{url(server)}', 'topic' = '{topic}/#', 'client-id' = '{topic}', "
        "'format' = 'json')"
    )
    tables.execute_sql(
        f"INSERT INTO cups VALUES (1, 'tea', '{topic}/1', 1, MAP['a', 'b'], TRUE), "
        f"(2, CAST(NULL AS STRING), '{topic}/2', 2, CAST(NULL AS MAP<STRING, STRING>), TRUE)"
    ).wait()
    with tables.execute_sql("SELECT * FROM cups").collect() as rows:
        found = sorted(tuple(row) for row in itertools.islice(rows, 2))
    assert found == [
        (1, "tea", f"{topic}/1", 1, {"a": "b"}, True),
        (2, None, f"{topic}/2", 1, {}, True),
    ]


def test_what_is_refused(server: MosquittoServer) -> None:
    def mqtt(*topics: str, **more: Any) -> Callable[[], Any]:
        return lambda: MqttSource("mqtt://h", *topics, **{"client_id": "c", **more})

    for action, message in (
        (lambda: MqttSource("http://me:letmein12@h", "t", client_id="c"), "it is mqtt://HOST:PORT"),
        (lambda: MqttSource("mqtt://h", "t", client_id="c", ca="x"), "it must begin with mqtts://"),
        (mqtt(), "needs a topic filter"),
        (mqtt("t", client_id=""), "needs a client_id"),
        (mqtt("t", qos=3), "qos is 0, 1 or 2"),
        (mqtt("t", session_expiry_s=0), "session_expiry_s must be positive"),
        (mqtt("t", receive_maximum=0), "receive_maximum must be from 1 to 65535"),
        (lambda: MqttSink("mqtt://h", "t"), "needs a topic and a serialization_schema, or to_message"),
    ):
        with pytest.raises(ConfigurationError, match=message) as raised:
            action()
        assert "letmein12" not in str(raised.value)
    assert source(server, "t", "c").max_parallelism() == 1


def test_wrong_passwords_are_hidden(server: MosquittoServer, topic: str) -> None:
    lines = (server.directory / "mosquitto.conf").read_text()
    server.stop()
    (server.directory / "mosquitto.conf").write_text(lines.replace("anonymous true", "anonymous false"))
    server.start()
    try:
        address = f"mqtt://me:letmein12@127.0.0.1:{server.port}"
        mqtt = MqttSource(address, topic, client_id=topic)
        for action in (
            lambda: read(mqtt, 1),
            lambda: write(["a"], MqttSink(address, topic, SimpleStringSchema(), settings=QUICK)),
        ):
            message = failure_of(action)
            assert "Not authorized" in message
            assert "letmein12" not in message
    finally:
        server.stop()
        (server.directory / "mosquitto.conf").write_text(lines)
        server.start()
    assert environment(1, None) is not None


@pytest.mark.slow
@pytest.mark.parametrize("case", SINK_CASES)
def test_the_sink_keeps_the_rules(server: MosquittoServer, case: str) -> None:
    """What a subscriber receives, with a client of its own."""
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    numbers = itertools.count()

    def prepare() -> SinkUnderTest:
        topic = f"kit/{case}/{next(numbers)}"
        seen: set[str] = set()
        client = paho.Client(CallbackAPIVersion.VERSION2, "", protocol=paho.MQTTv5)
        client.on_message = lambda _, __, message: seen.add(message.payload.decode())
        client.connect("127.0.0.1", server.port)
        client.loop_start()
        client.subscribe(topic, 1)
        client.publish("other", b"", 1).wait_for_publish(10)

        def look() -> list[str]:
            time.sleep(0.05)
            return sorted(seen)

        def close() -> None:
            client.disconnect()
            client.loop_stop()

        sink = MqttSink(url(server), topic, SimpleStringSchema(), settings=QUICK)
        return SinkUnderTest(sink, TEXTS[:12], look, close=close)

    check_sink(prepare, case)


def test_plain_messages_are_those_that_paho_decodes() -> None:
    """Any other packet is left to paho: with properties, of QoS 2, cut off, with a topic that is no UTF-8."""
    seed = random.randrange(1 << 31)
    print(f"seed {seed}")
    chance = random.Random(seed)
    theirs: list[Any] = []
    client: Any = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5, manual_ack=True)
    client.on_message = lambda client, data, message: theirs.append(message)
    for _ in range(1_000):
        topic = chance.choice((b"cups/7", "größe/茶".encode(), b"", b"\xff", b"t" * 300))
        qos, properties = chance.choice((0, 1, 1, 2)), Properties(PacketTypes.PUBLISH)
        if chance.random() < 0.3:
            properties.ContentType = "text"
        head = struct.pack("!H", len(topic)) + topic
        if qos:
            head += struct.pack("!H", chance.randrange(1, 1 << 16))
        packet = bytearray(head + properties.pack() + chance.randbytes(chance.choice((0, 1, 200))))
        command = 0x30 | qos << 1 | chance.choice((0, 1, 8, 9))
        message = read_plain_message(command, packet)
        assert (message is not None) == (qos < 2 and properties.isEmpty() and topic not in (b"", b"\xff"))
        assert read_plain_message(command, packet[: chance.randrange(len(head) + 1)]) is None
        if message is not None:
            client._in_packet = {"command": command, "packet": packet}
            client._handle_publish()
            assert build_message(message) == build_message(theirs[-1])
            assert (message.mid, get_payload(message)) == (theirs[-1].mid, get_payload(theirs[-1]))
    assert len(theirs) > 100
