"""The source of streams and the sink with message ids, on a real server of NATS."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.connectors.rabbitmq.test_rabbitmq import QUICK, TEXTS, environment, failure_of, read, write
from tests.servers.queues import NatsServer

from penstock.base.errors import ConfigurationError, OperationError
from penstock.common import SimpleStringSchema, WatermarkStrategy
from penstock.connectors.nats import parse_reply
from penstock.datastream.connectors.nats import NatsMessage, NatsPublication, NatsSink, NatsSource
from penstock.table import EnvironmentSettings, TableEnvironment
from penstock.testing.connectors import (
    SINK_CASES,
    SOURCE_CASES,
    SinkUnderTest,
    SourceUnderTest,
    check_sink,
    check_source,
)
from penstock.testing.connectors.source_run import SourceRun


def call(server: NatsServer, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    """What a function of a JetStream context returns."""
    import nats

    async def run() -> Any:
        connection = await nats.connect(server.url)
        try:
            return await work(connection.jetstream())
        finally:
            await connection.close()

    return asyncio.run(run())


def create(server: NatsServer, stream: str, texts: list[str] = TEXTS, **more: Any) -> None:
    """A stream with these messages."""

    async def work(context: Any) -> None:
        await context.add_stream(name=stream, subjects=[f"{stream}.>"], **more)
        for text in texts:
            await context.publish(f"{stream}.a", text.encode(), headers={"h": text})

    call(server, work)


def advance(run: SourceRun) -> None:
    for _ in range(1_000):
        run.advance(5)


def collect(source: NatsSource) -> list[Any]:
    return environment().from_source(source, WatermarkStrategy.no_watermarks(), "stream").collect()


def by_sequence(server: NatsServer, stream: str, **more: Any) -> NatsSource:
    return NatsSource(server.url, stream, bounded=True, deserialization_schema=SimpleStringSchema(), **more)


def test_streams_are_read_by_sequence(server: NatsServer, stream: str) -> None:
    create(server, stream)
    assert collect(by_sequence(server, stream)) == TEXTS
    assert collect(by_sequence(server, stream, starts_at=191)) == TEXTS[190:]
    assert collect(by_sequence(server, stream, starts_at="last")) == TEXTS[-1:]
    assert collect(by_sequence(server, stream, subject=f"{stream}.b")) == []
    (message,) = collect(NatsSource(server.url, stream, bounded=True, starts_at=200))
    assert message._replace(timestamp=0) == NatsMessage(f"{stream}.a", b"199", {"h": "199"}, 200, 0, 1)


def test_messages_that_were_removed_before_they_were_read_are_an_error(server: NatsServer, stream: str) -> None:
    create(server, stream, TEXTS[:20])
    run = SourceRun(NatsSource(server.url, stream), 1, real_time=True)
    while not run.arrived:
        run.advance(5)
    snapshot = run.snapshot()
    run.close()
    call(server, lambda context: context.purge_stream(stream, seq=15))
    run.restart(snapshot)
    expected = r"messages after \d+ were removed before they were read; the oldest is 15"
    with pytest.raises(OperationError, match=expected):
        advance(run)
    run.close()


def test_durable_consumers_acknowledge_at_checkpoints(server: NatsServer, stream: str) -> None:
    """More messages than may be unacknowledged arrive, with two readers, and none remains."""
    create(server, stream)
    source = NatsSource(
        server.url, stream, durable="d", max_ack_pending=20, deserialization_schema=SimpleStringSchema()
    )
    assert sorted(read(source, 200, environment(2)), key=int) == TEXTS


def test_messages_that_no_checkpoint_covers_come_again(server: NatsServer, stream: str) -> None:
    create(server, stream, TEXTS[:20])
    source = NatsSource(server.url, stream, durable="d", deserialization_schema=SimpleStringSchema())
    run = SourceRun(source, 1, real_time=True)
    while len(run.arrived) < 20:
        run.advance(5)
    run.close()
    assert sorted(read(source, 20), key=int) == TEXTS[:20]


def test_messages_with_ids_are_stored_once(server: NatsServer, stream: str) -> None:
    create(server, stream, [])
    for _ in range(2):
        sink = NatsSink(server.url, f"{stream}.a", SimpleStringSchema(), message_id=lambda text: text, settings=QUICK)
        write(TEXTS, sink)
    assert collect(by_sequence(server, stream)) == TEXTS


def test_a_wrong_expected_sequence_fails_the_job(server: NatsServer, stream: str) -> None:
    create(server, stream, TEXTS[:5])

    def sink(expected: int) -> NatsSink[Any]:
        return NatsSink(
            server.url,
            to_message=lambda text: NatsPublication(f"{stream}.a", text.encode(), expected_last_sequence=expected),
        )

    write(["tea"], sink(5))
    assert "wrong last sequence: 6" in failure_of(lambda: write(["tea"], sink(5)))


def test_a_subject_without_a_stream_fails_the_job(server: NatsServer) -> None:
    sink = NatsSink(server.url, "nowhere", SimpleStringSchema(), settings=QUICK)
    assert "no stream answers for the subject 'nowhere'" in failure_of(lambda: write(["tea"], sink))


def test_tables(server: NatsServer, stream: str) -> None:
    create(server, stream, [])
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")
    options = f"'connector' = 'nats', 'url' = '{server.url}', 'format' = 'json', 'scan.bounded.mode' = 'latest'"
    tables.execute_sql(
        "CREATE TABLE cups (id BIGINT, kind STRING, s STRING METADATA FROM 'subject', "
        "h MAP<STRING, STRING> METADATA FROM 'headers', m STRING METADATA FROM 'message-id', "
        "n BIGINT METADATA FROM 'sequence' VIRTUAL, t TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL) WITH "
        f"({options}, 'stream' = '{stream}')"
    )
    for _ in range(2):
        tables.execute_sql(
            f"INSERT INTO cups VALUES (1, 'tea', '{stream}.x', MAP['a', 'b'], 'one'), "
            f"(2, CAST(NULL AS STRING), '{stream}.y', CAST(NULL AS MAP<STRING, STRING>), 'two')"
        ).wait()
    with tables.execute_sql(
        "SELECT id, kind, s, h['a'], m, n, t > TIMESTAMP '2020-01-01 00:00:00' FROM cups"
    ).collect() as (rows):
        assert sorted(tuple(row) for row in rows) == [
            (1, "tea", f"{stream}.x", "b", "one", 1, True),
            (2, None, f"{stream}.y", None, "two", 2, True),
        ]


def test_reply_subjects() -> None:
    assert parse_reply("$JS.ACK.S.C.2.10.3.1700000000000000000.7") == (2, 10, 3, 1_700_000_000_000_000_000, 7)
    assert parse_reply("$JS.ACK._.h.S.C.2.10.3.1700000000000000000.7.x") == (2, 10, 3, 1_700_000_000_000_000_000, 7)


def test_what_is_refused() -> None:
    for action, message in (
        (lambda: NatsSource("http://me:letmein12@h", "s"), "begins with nats://"),
        (lambda: NatsSource("nats://h", ""), "needs the name of a stream"),
        (lambda: NatsSource("nats://h", "s", starts_at=0), "'first', 'last', 'next' or a number"),
        (lambda: NatsSource("nats://h", "s", durable="d", bounded=True), "a durable consumer has no end"),
        (lambda: NatsSource("nats://h", "s", ack_wait_s=0), "must be positive"),
        (lambda: NatsSink("nats://h", "s"), "needs a subject and a serialization_schema, or to_message"),
    ):
        with pytest.raises(ConfigurationError, match=message) as raised:
            action()
        assert "letmein12" not in str(raised.value)


def test_wrong_tokens_are_hidden(server: NatsServer, stream: str, tmp_path: Any) -> None:
    create(server, stream, [])
    other = NatsServer(tmp_path)
    command = other.command
    other.command = lambda: [*command(), "--auth", "right-token-1"]  # type: ignore[method-assign]
    other.start()
    try:
        wrong = NatsSource(other.url, stream, token="wrong-token-1")
        message = failure_of(lambda: read(wrong, 1))
        assert "refuses the connection" in message
        assert "wrong-token-1" not in message
    finally:
        other.kill()


@pytest.mark.slow
@pytest.mark.parametrize("case", SOURCE_CASES)
def test_streams_keep_the_rules(server: NatsServer, case: str) -> None:
    stream = f"KIT_{case}"
    create(server, stream, TEXTS[:12])

    def prepare() -> SourceUnderTest:
        return SourceUnderTest(by_sequence(server, stream), TEXTS[:12], real_time=True)

    check_source(prepare, case, batch_sizes=[5], places=3)


@pytest.mark.slow
@pytest.mark.parametrize("case", SINK_CASES)
def test_the_sink_keeps_the_rules(server: NatsServer, case: str) -> None:
    """With message ids: nothing is stored twice."""
    numbers = itertools.count()

    def prepare() -> SinkUnderTest:
        stream = f"SINK_{case}_{next(numbers)}"
        create(server, stream, [])

        def look() -> list[str]:
            return [text for text in collect(by_sequence(server, stream)) if text]

        sink = NatsSink(server.url, f"{stream}.a", SimpleStringSchema(), message_id=lambda text: text, settings=QUICK)
        return SinkUnderTest(sink, TEXTS[:12], look)

    check_sink(prepare, case)
