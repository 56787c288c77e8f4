"""The sink, the source and the tables of SQS, on ElasticMQ, and on moto where that is not installed."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from tests.connectors.aws.test_kinesis import environment, failure_of
from tests.connectors.postgres.test_tables import environment as create_tables
from tests.servers.aws import AwsServer

from penstock.base.errors import ConfigurationError, OperationError
from penstock.common import SimpleStringSchema, WatermarkStrategy
from penstock.connectors.aws.kinesis_sink import ClientBase
from penstock.datastream import RuntimeExecutionMode
from penstock.datastream.connectors.sqs import SqsMessage, SqsSink, SqsSource
from penstock.sql.data.errors import ValidationError
from penstock.testing.connectors import SourceRun

_NUMBERS = itertools.count()


@pytest.fixture(scope="module", params=["moto", "queues"])
def server(request: pytest.FixtureRequest) -> AwsServer:
    running: AwsServer = request.getfixturevalue(request.param)
    return running


def create_queue(server: AwsServer, is_fifo: bool = False, **attributes: str) -> str:
    name = f"queue-{next(_NUMBERS)}" + (".fifo" if is_fifo else "")
    more = {"FifoQueue": "true"} if is_fifo else {}
    answer = server.connect("sqs").create_queue(QueueName=name, Attributes={**more, **attributes})
    return str(answer["QueueUrl"])


def receive(server: AwsServer, url: str) -> list[str]:
    """The messages of a queue, which are deleted."""
    service, bodies = server.connect("sqs"), []
    while messages := service.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        for message in messages:
            bodies.append(message["Body"])
            service.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return bodies


def build_sink(server: AwsServer, url: str) -> Any:
    builder = SqsSink.builder().set_sqs_url(url).set_sqs_client_properties(server.properties)
    return builder.set_max_time_in_buffer_ms(5)


def write(sink: SqsSink[Any], records: list[Any]) -> None:
    env = environment()
    env.from_collection(records).sink_to(sink)
    env.execute()


def test_messages_are_sent(server: AwsServer) -> None:
    url = create_queue(server)
    sink = build_sink(server, url).set_serialization_schema(SimpleStringSchema()).build()
    write(sink, [str(number) for number in range(35)])
    assert sorted(map(int, receive(server, url))) == list(range(35))


def test_messages_of_a_group_arrive_in_order_and_those_with_an_id_once(server: AwsServer) -> None:
    url = create_queue(server, is_fifo=True)
    sink = build_sink(server, url).set_message_converter(to_grouped).build()
    records = [(f"g{number % 3}", number) for number in range(30)]
    write(sink, [*records, *records[-6:]])
    bodies = receive(server, url)
    assert sorted(map(int, bodies)) == list(range(30))
    for group in range(3):
        numbers = [int(body) for body in bodies if int(body) % 3 == group]
        assert numbers == sorted(numbers)


def to_grouped(record: tuple[str, int]) -> SqsMessage:
    return SqsMessage(str(record[1]), group_id=record[0], deduplication_id=str(record[1]))


def test_messages_that_are_refused_are_sent_again_or_fail_the_job(
    server: AwsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = create_queue(server)
    refused: list[Any] = []

    def refuse(self: Any) -> None:
        opened(self)
        send = self._client.send_message_batch

        def answer(QueueUrl: str, Entries: list[Any]) -> Any:
            bad = [each for each in Entries if each["MessageBody"] == "bad"]
            some = [each for each in Entries if each not in bad]
            if len(refused) < 4 and not bad:
                refused.append(some.pop())
            left = [each for each in Entries if each not in some]
            result = send(QueueUrl=QueueUrl, Entries=some) if some else {}
            failed = [
                {"Id": each["Id"], "SenderFault": each in bad, "Code": "InternalError" if not bad else "InvalidMessage"}
                for each in left
            ]
            return {**result, "Failed": failed}

        self._client.send_message_batch = answer

    opened = ClientBase.open
    monkeypatch.setattr(ClientBase, "open", refuse)
    sink = build_sink(server, url).set_serialization_schema(SimpleStringSchema()).build()
    write(sink, [str(number) for number in range(20)])
    assert sorted(map(int, receive(server, url))) == list(range(20))
    assert "the service rejects" in (message := failure_of(lambda: write(sink, ["bad"])))
    assert "InvalidMessage" in message
    sink = build_sink(server, url).set_serialization_schema(SimpleStringSchema()).set_fail_on_error(True).build()
    assert "'bad' is refused: InvalidMessage" in failure_of(lambda: write(sink, ["bad"]))


def test_sinks_that_are_refused(server: AwsServer) -> None:
    wrong: list[tuple[Any, str]] = [
        (SqsSink.builder(), "needs set_sqs_url"),
        (SqsSink.builder().set_sqs_url("q"), "needs set_serialization_schema"),
        (SqsSink.builder().set_sqs_url("q.fifo"), "messages to the FIFO queue q.fifo have groups"),
        (
            SqsSink.builder().set_sqs_url("q").set_serialization_schema(SimpleStringSchema()).set_max_batch_size(11),
            "at most 10 entries",
        ),
    ]
    for builder, message in wrong:
        with pytest.raises(ConfigurationError, match=message):
            builder.build()
    plain, fifo = create_queue(server), create_queue(server, is_fifo=True)
    for url, made, complaint in (
        (plain, "text", "must return an SqsMessage"),
        (plain, SqsMessage("a", "g", "d"), "which only a FIFO queue takes"),
        (fifo, SqsMessage("a"), "has no group_id"),
    ):
        sink = build_sink(server, url).set_message_converter(lambda _, made=made: made).build()
        assert complaint in failure_of(lambda sink=sink: write(sink, [1]))  # type: ignore[misc]


def read_some(run: SourceRun, count: int) -> list[str]:
    while len(run.arrived) < count:
        run.advance(4)
    return [value for _, value, _ in run.arrived]


def count_messages(server: AwsServer, url: str) -> int:
    """How many there are, also those that are being received."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    answer = server.connect("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)
    return sum(int(answer["Attributes"][name]) for name in names)


def send(server: AwsServer, url: str, *bodies: Any) -> None:
    service = server.connect("sqs")
    for body in bodies:
        service.send_message(QueueUrl=url, MessageBody=str(body))


def test_messages_are_deleted_when_a_checkpoint_has_completed(server: AwsServer) -> None:
    url = create_queue(server)
    send(server, url, *range(12))
    source = SqsSource(url, server.properties, SimpleStringSchema())
    run = SourceRun(source, 1, real_time=True)
    assert len(read_some(run, 8)) >= 8
    snapshot = run.snapshot()
    before = len(run.arrived)
    read_some(run, 12)
    run.complete(snapshot)
    run.close()  # waits until they are deleted
    assert count_messages(server, url) == 12 - before


def test_messages_come_again_after_a_failure(server: AwsServer) -> None:
    url = create_queue(server)
    send(server, url, "tea", "rum")
    source = SqsSource(url, server.properties, SimpleStringSchema(), visibility_timeout_s=10)
    run = SourceRun(source, 1, real_time=True)
    read_some(run, 2)
    run.snapshot()
    run.close()
    assert count_messages(server, url) == 2


def test_messages_stay_invisible_until_they_are_deleted(server: AwsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = create_queue(server)
    send(server, url, "tea")
    run = SourceRun(SqsSource(url, server.properties, SimpleStringSchema(), 20), 1, real_time=True)
    read_some(run, 1)
    (reader,) = run.readers
    extended: list[Any] = []

    def note(receipts: Any, timeout_s: int) -> int:
        if timeout_s:  # a reader that closes returns its messages
            extended.append(receipts)
        return 0

    monkeypatch.setattr(reader, "_change_timeouts", note)
    begun = run.hosts[0].now
    reader._extend(begun + 9_000)  # type: ignore[attr-defined]
    assert extended == []
    reader._extend(begun + 21_000)  # type: ignore[attr-defined]
    reader._extend(begun + 21_000)  # type: ignore[attr-defined]
    run.close()
    assert len(extended) == 1


def test_sources_that_are_refused(server: AwsServer) -> None:
    with pytest.raises(ConfigurationError, match="it must be 10 to 43200"):
        SqsSource("q", {}, SimpleStringSchema(), 1)
    missing = SqsSource(f"{server.endpoint}/000000000000/missing", server.properties, SimpleStringSchema())
    run = SourceRun(missing, 1, real_time=True)
    with pytest.raises(OperationError, match="cannot be received: "):
        read_some(run, 1)
    run.close()
    env = environment()
    env.set_runtime_mode(RuntimeExecutionMode.MICRO_BATCH)
    env.from_source(missing, WatermarkStrategy.no_watermarks(), "queue").print()
    with pytest.raises(ConfigurationError, match="does not run in MICRO_BATCH"):
        env.execute()


def ddl(server: AwsServer, url: str, columns: str, partitioned: str = "", more: str = "") -> str:
    options = f"'connector' = 'sqs', 'queue-url' = '{url}', 'format' = 'json', {server.sql}{more}"
    return f"CREATE TABLE t ({columns}) {partitioned} WITH ({options})"


def test_rows_are_messages(server: AwsServer) -> None:
    plain, fifo = create_queue(server), create_queue(server, is_fifo=True)
    tables = create_tables()
    tables.execute_sql(ddl(server, plain, "k STRING, n INT"))
    tables.execute_sql("INSERT INTO t VALUES ('a', 1), ('b', 2)").wait()
    assert sorted(map(json.loads, receive(server, plain)), key=str) == [{"k": "a", "n": 1}, {"k": "b", "n": 2}]
    tables.execute_sql("DROP TABLE t")
    tables.execute_sql(ddl(server, fifo, "k STRING, n INT", "PARTITIONED BY (k)"))
    tables.execute_sql("INSERT INTO t VALUES ('a', 1), ('b', 2), ('a', 3), ('a', 1)").wait()
    rows = [json.loads(body) for body in receive(server, fifo)]
    assert sorted(rows, key=str) == [{"k": "a", "n": 1}, {"k": "a", "n": 3}, {"k": "b", "n": 2}]
    assert [row["n"] for row in rows if row["k"] == "a"] == [1, 3]


def test_tables_that_are_refused(server: AwsServer) -> None:
    tables = create_tables()
    tables.execute_sql(ddl(server, "q", "k STRING", "PARTITIONED BY (k)"))
    with pytest.raises(ValidationError, match="only a FIFO queue has groups"):
        tables.execute_sql("INSERT INTO t VALUES ('a')")
    tables.execute_sql("DROP TABLE t")
    tables.execute_sql(ddl(server, "q", "k STRING", more=", 'sink.batch.max-size' = '11'"))
    with pytest.raises(ValidationError, match="at most 10 rows"):
        tables.execute_sql("INSERT INTO t VALUES ('a')")
