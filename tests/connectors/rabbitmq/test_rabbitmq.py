"""Sources of queues and streams and the sink with confirms, on a real server of RabbitMQ."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.servers.queues import RabbitServer
from tests.servers.waiting import await_true
from tests.simulation.fresh_seeds import commit_number

from penstock.base.errors import ConfigurationError, JobExecutionError
from penstock.common import Configuration, RestartStrategies, SimpleStringSchema, WatermarkStrategy
from penstock.connectors.rabbitmq.sink import Frames
from penstock.connectors.rabbitmq.source import build_message
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import AsyncSinkSettings, Source
from penstock.datastream.connectors.rabbitmq import (
    RMQConnectionConfig,
    RMQMessage,
    RMQPublication,
    RMQSink,
    RMQSource,
    RMQStreamSource,
)
from penstock.runtime.connector import Sink
from penstock.testing.connectors import (
    SINK_CASES,
    SOURCE_CASES,
    SinkUnderTest,
    SourceUnderTest,
    check_sink,
    check_source,
)
from penstock.testing.connectors.source_run import SourceRun

QUICK = AsyncSinkSettings(max_batch_size=7, max_in_flight_requests=3, max_time_in_buffer_ms=5, retry_delay_ms=20)
STREAM = {"x-queue-type": "stream"}
QUORUM = {"x-queue-type": "quorum"}


def environment(parallelism: int = 1, interval_ms: int | None = 100) -> StreamExecutionEnvironment:
    settings = Configuration()
    settings.set_string("execution.target", "local")
    env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(parallelism)
    env.set_restart_strategy(RestartStrategies.no_restart())
    if interval_ms is not None:
        env.enable_checkpointing(interval_ms)
    return env


def config(server: RabbitServer, prefetch: int = 1_000) -> RMQConnectionConfig:
    return RMQConnectionConfig.Builder().set_uri(server.uri).set_prefetch_count(prefetch).build()


def write(records: list[Any], sink: Sink[Any]) -> None:
    env = environment()
    env.from_collection(records).sink_to(sink)
    env.execute()


def read(source: Source[Any, Any], count: int, env: StreamExecutionEnvironment | None = None) -> list[Any]:
    """The first records."""
    stream = (env or environment()).from_source(source, WatermarkStrategy.no_watermarks(), "queue")
    collected: Any = stream.execute_and_collect()
    with collected as records:
        return list(itertools.islice(records, count))


def publish(server: RabbitServer, queue: str, numbers: range, arguments: dict[str, Any] | None = None) -> None:
    """Numbers as bodies and as correlation ids, into a queue that is declared if it is not there."""
    import pika

    with server.channel() as channel:
        channel.queue_declare(queue, durable=True, arguments=arguments)
        channel.confirm_delivery()
        for n in numbers:
            properties = pika.BasicProperties(correlation_id=str(n), delivery_mode=2)
            channel.basic_publish("", queue, str(n).encode(), properties)


def count(server: RabbitServer, queue: str) -> int:
    """How many messages a queue has that are not delivered."""
    with server.channel() as channel:
        return int(channel.queue_declare(queue, passive=True).method.message_count)


def failure_of(action: Callable[[], Any]) -> str:
    with pytest.raises(JobExecutionError) as raised:
        action()
    return str(raised.value)


TEXTS = [str(n) for n in range(200)]


def test_what_is_written_is_read_in_order(server: RabbitServer, queue: str) -> None:
    write(TEXTS, RMQSink(config(server), queue, SimpleStringSchema(), settings=QUICK))
    assert read(RMQSource(config(server), queue, False, SimpleStringSchema()), 200) == TEXTS


@pytest.mark.parametrize("arguments", [None, QUORUM], ids=["classic", "quorum"])
def test_checkpoints_acknowledge(server: RabbitServer, queue: str, arguments: dict[str, Any] | None) -> None:
    """More messages than the prefetch arrive only if checkpoints acknowledge, also by two readers."""
    publish(server, queue, range(100), arguments)
    source = RMQSource(config(server, prefetch=10), queue, False, SimpleStringSchema())
    assert sorted(map(int, read(source, 100, environment(2)))) == list(range(100))


def test_unacknowledged_messages_come_again(server: RabbitServer, queue: str) -> None:
    """A reader that is closed before its checkpoint has completed leaves the messages in the queue."""
    publish(server, queue, range(20))
    run = SourceRun(RMQSource(config(server), queue, False, SimpleStringSchema()), 1, real_time=True)
    while len(run.arrived) < 20:
        run.advance(7)
    run.snapshot()
    run.close()
    await_true(lambda: count(server, queue) == 20, "the messages do not return")


def test_without_checkpoints_messages_are_acknowledged_at_once_and_the_job_says_so(
    server: RabbitServer, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    publish(server, queue, range(20))
    source = RMQSource(config(server, prefetch=5), queue, False, SimpleStringSchema())
    with caplog.at_level("INFO"):
        assert len(read(source, 20, environment(interval_ms=None))) == 20
    assert not source.replayable
    assert "source 'queue' cannot be replayed: a failure loses the records in flight" in caplog.text


def test_a_message_without_a_correlation_id_is_an_error(server: RabbitServer, queue: str) -> None:
    write(["tea"], RMQSink(config(server), queue, SimpleStringSchema()))
    message = failure_of(lambda: read(RMQSource(config(server), queue, True, SimpleStringSchema()), 1))
    assert "a message has none" in message


def test_streams_are_read_from_an_offset(server: RabbitServer, queue: str) -> None:
    publish(server, queue, range(50), STREAM)
    source = RMQStreamSource(config(server), queue, deserialize=lambda m: (m.offset, m.body), starts_at=45)
    assert read(source, 5) == [(n, b"%d" % n) for n in range(45, 50)]
    assert read(RMQStreamSource(config(server), queue, SimpleStringSchema()), 50) == [str(n) for n in range(50)]


def test_headers_and_properties_come_back_as_they_were(server: RabbitServer, queue: str) -> None:
    """pika 1.4.4 reads 2.5 as 2, and does not write it."""
    headers = {"half": 2.5, "minus": -0.25, "whole": 2**40, "text": "ü", "flag": True, "list": [1.5, "a"]}
    publication = RMQPublication(
        b"tea", queue, headers=headers, properties={"correlation_id": "c", "message_id": "m", "timestamp": 77}
    )
    publish(server, queue, range(0))
    write([publication], RMQSink(config(server), to_message=lambda each: each))
    (message,) = read(RMQSource(config(server), queue), 1)
    assert message == RMQMessage(b"tea", "", queue, headers, "c", "m", 77)
    assert "L" not in repr(message.headers["whole"])


def test_floats_of_32_bits_keep_their_fraction() -> None:
    import pika
    from pika import data

    RMQSource(RMQConnectionConfig(), "q")
    assert data.decode_value(b"f\x40\x20\x00\x00", 0) == (2.5, 5)
    properties = pika.BasicProperties(headers={"h": 0.1})
    (encoded,) = [b"".join(properties.encode())]
    assert pika.BasicProperties().decode(encoded).headers == {"h": 0.1}


def test_messages_that_no_queue_takes(server: RabbitServer, queue: str) -> None:
    publish(server, queue, range(0))

    def publications(n: int) -> RMQPublication:
        return RMQPublication(str(n).encode(), queue if n % 2 else "nowhere")

    message = failure_of(lambda: write(list(range(4)), RMQSink(config(server), to_message=publications)))
    assert "NO_ROUTE (312)" in message
    with server.channel() as channel:
        channel.queue_purge(queue)
    write(list(range(8)), RMQSink(config(server), to_message=publications, returned="drop", settings=QUICK))
    with server.channel() as channel:
        found = {int(channel.basic_get(queue, auto_ack=True)[2]) for _ in range(4)}
    assert found == {1, 3, 5, 7}


def test_an_exchange_that_does_not_exist_fails_the_job(server: RabbitServer) -> None:
    sink: RMQSink[int] = RMQSink(config(server), to_message=lambda n: RMQPublication(b"", "k", "no-such-exchange"))
    assert "no exchange 'no-such-exchange'" in failure_of(lambda: write([1], sink))


def test_wrong_passwords_fail_at_once_and_are_hidden(server: RabbitServer, queue: str) -> None:
    wrong = RMQConnectionConfig(host="127.0.0.1", port=server.port, password="letmein12")
    for action in (
        lambda: read(RMQSource(wrong, queue, False, SimpleStringSchema()), 1),
        lambda: write(["tea"], RMQSink(wrong, queue, SimpleStringSchema())),
    ):
        message = failure_of(action)
        assert "ACCESS_REFUSED" in message or "Authentication" in message
        assert "letmein12" not in message
    assert "letmein12" not in repr(wrong)


def test_configurations_that_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="begins with amqp://"):
        RMQConnectionConfig.Builder().set_uri("http://me:letmein12@mq").build()
    with pytest.raises(ConfigurationError, match="from 1 to 65535, not 0"):
        RMQConnectionConfig.Builder().set_prefetch_count(0).build()
    settings = RMQConnectionConfig()
    with pytest.raises(ConfigurationError, match="needs the name of a queue"):
        RMQSource(settings, "")
    with pytest.raises(ConfigurationError, match="not both"):
        RMQSource(settings, "q", False, SimpleStringSchema(), deserialize=len)
    with pytest.raises(ConfigurationError, match="'first', 'last', 'next' or an offset"):
        RMQStreamSource(settings, "q", starts_at=-1)
    with pytest.raises(ConfigurationError, match="needs a queue_name and a serialization_schema, or to_message"):
        RMQSink(settings, "q")
    with pytest.raises(ConfigurationError, match="'fail' the job or are 'drop'ped"):
        RMQSink(settings, "q", SimpleStringSchema(), returned="ignore")
    with pytest.raises(ConfigurationError, match=r"set execution\.runtime-mode to STREAMING"):
        RMQSource(settings, "q").check_execution_mode("MICRO_BATCH", is_local=True)
    with pytest.raises(ConfigurationError, match="the certificates for amqps://localhost cannot be read"):
        RMQConnectionConfig(ssl_ca="/no/such/file").build_parameters("tests")


def test_the_server_is_away_when_the_job_starts(server: RabbitServer, queue: str) -> None:
    """A killed server that comes back has confirmed messages, and a reader waits for it."""
    publish(server, queue, range(30))
    server.kill()
    stream = environment().add_source(RMQSource(config(server), queue, False, SimpleStringSchema()))
    collected: Any = stream.execute_and_collect()
    with collected as records:
        server.start()
        assert sorted(map(int, itertools.islice(records, 30))) == list(range(30))


@pytest.mark.slow
@pytest.mark.parametrize("case", SOURCE_CASES)
def test_the_queue_keeps_the_rules(server: RabbitServer, case: str) -> None:
    """With correlation ids: each message once, through restarts from checkpoints that nothing has acknowledged."""
    numbers = itertools.count()

    def prepare() -> SourceUnderTest:
        queue = f"kit-{case}-{next(numbers)}"
        publish(server, queue, range(12))
        source = RMQSource(config(server), queue, True, SimpleStringSchema())
        return SourceUnderTest(source, TEXTS[:12], real_time=True)

    check_source(prepare, case, batch_sizes=[5], places=3)


@pytest.mark.slow
@pytest.mark.parametrize("case", SOURCE_CASES)
def test_the_stream_keeps_the_rules(server: RabbitServer, case: str) -> None:
    queue = f"kit-stream-{case}"
    publish(server, queue, range(12), STREAM)

    def prepare() -> SourceUnderTest:
        source = RMQStreamSource(config(server), queue, SimpleStringSchema())
        return SourceUnderTest(source, TEXTS[:12], real_time=True)

    check_source(prepare, case, batch_sizes=[5], places=3)


@pytest.mark.slow
@pytest.mark.parametrize("case", SINK_CASES)
def test_the_sink_keeps_the_rules(server: RabbitServer, case: str) -> None:
    numbers = itertools.count()

    def prepare() -> SinkUnderTest:
        queue = f"kit-sink-{case}-{next(numbers)}"
        shown: list[str] = []

        def look() -> list[str]:
            with server.channel() as channel:
                while (answer := channel.basic_get(queue, auto_ack=True))[0] is not None:
                    shown.append(answer[2].decode())
            return sorted(set(shown))

        publish(server, queue, range(0))
        return SinkUnderTest(RMQSink(config(server), queue, SimpleStringSchema(), settings=QUICK), TEXTS[:12], look)

    check_sink(prepare, case)


def test_messages_are_built_of_what_pika_delivers() -> None:
    import pika

    method = pika.spec.Basic.Deliver("c", 1, False, "e", "k")
    assert build_message((method, pika.BasicProperties(), b"x")) == RMQMessage(b"x", "e", "k")


def test_the_sink_sends_the_frames_that_pika_would_send() -> None:
    """Messages of random sizes and properties, from a fresh seed; bodies fill several frames, and pieces are cut."""
    import pika

    seed = commit_number()
    print(f"seed {seed}")
    choose = random.Random(seed)
    channel = SimpleNamespace(channel_number=7, connection=SimpleNamespace(_body_max_length=40_000))
    properties: list[dict[str, Any]] = [{}, {"correlation_id": "7"}, {"delivery_mode": 1, "content_type": "text/plain"}]
    entries = [
        RMQPublication(
            choose.randbytes(choose.choice([0, 1, 50, 39_999, 40_000, 40_001, 90_000])),
            choose.choice(["cups", "tassen", "käse"]),
            choose.choice(["", "amq.topic"]),
            choose.choice([None, {}, {"n": 1, "x": 0.5}]),
            choose.random() < 0.5,
            choose.choice(properties),
        )
        for _ in range(50)
    ]
    expected = []
    for entry in entries:
        method = pika.spec.Basic.Publish(
            exchange=entry.exchange, routing_key=entry.routing_key, mandatory=entry.mandatory
        )
        with_headers = {"headers": dict(entry.headers)} if entry.headers else {}
        values = pika.BasicProperties(**{"delivery_mode": 2, **entry.properties, **with_headers})
        expected += [pika.frame.Method(7, method), pika.frame.Header(7, len(entry.body), values)]
        bodies = [entry.body[start : start + 40_000] for start in range(0, len(entry.body), 40_000)]
        expected += [pika.frame.Body(7, part) for part in bodies]
    pieces = Frames(pika).build(channel, entries)
    assert b"".join(pieces) == b"".join(frame.marshal() for frame in expected)
    assert len(pieces) > 1
    with pytest.raises(pika.exceptions.ShortStringTooLong):
        Frames(pika).build(channel, [RMQPublication(b"x", "k" * 300)])


def test_messages_of_several_frames_arrive(server: RabbitServer, queue: str) -> None:
    bodies = ["", "x" * 300_000, "y", "z" * 131_064]
    write(bodies, RMQSink(config(server), queue, SimpleStringSchema(), settings=QUICK))
    with server.channel() as channel:
        received = [channel.basic_get(queue, auto_ack=True)[2].decode() for _ in bodies]
    assert received == bodies
