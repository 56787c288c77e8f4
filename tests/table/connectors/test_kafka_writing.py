"""`kafka`: rows and changes that are written into topics of a real broker."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.servers.kafka import KafkaCluster
from tests.servers.waiting import await_true
from tests.table.connectors.kafka_tables import insert, kafka_ddl, kafka_tables, messages
from tests.table.connectors.tables import writer_of

from penstock.base.errors import PenstockError
from penstock.codecs.column_data import ChangeData, ColumnData
from penstock.sql.connectors.kafka.rows import BatchPartitioner, TableMessages, WrittenPart
from penstock.sql.data.errors import ValidationError

ROWS = "(1, 'Delft'), (2, 'Gouda'), (3, CAST(NULL AS STRING))"


def test_rows_are_messages(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    tables = kafka_tables(kafka_ddl(kafka, topic, "id INT, city STRING", format="json"))
    insert(tables, f"INSERT INTO t VALUES {ROWS}")
    found = messages(kafka, topic)
    assert [value["id"] for _, value in found] == [1, 2, 3]
    assert [value["city"] for _, value in found] == ["Delft", "Gouda", None]
    assert {key for key, _ in found} == {None}


def test_columns_go_into_the_key_and_out_of_the_value(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=3)
    options = {"key__format": "json", "key__fields": "k_id", "key__fields_prefix": "k_"}
    options |= {"value__format": "json", "value__fields_include": "EXCEPT_KEY"}
    tables = kafka_tables(kafka_ddl(kafka, topic, "k_id INT, city STRING", **options))
    insert(tables, f"INSERT INTO t VALUES {ROWS}")
    insert(tables, f"INSERT INTO t VALUES {ROWS}")
    found = kafka.read(topic)
    assert len(found) == 6
    places: dict[Any, set[int | None]] = {}
    for message in found:
        places.setdefault(message.key(), set()).add(message.partition())
    assert set(places) == {b'{"id":1}', b'{"id":2}', b'{"id":3}'}
    assert all(len(of_key) == 1 for of_key in places.values())
    assert {value["city"] for _, value in messages(kafka, topic)} == {"Delft", "Gouda", None}


def test_time_and_headers_come_from_columns(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    columns = (
        "id INT, at_time TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', about MAP<STRING, BYTES> METADATA FROM 'headers', "
        "`offset` BIGINT METADATA VIRTUAL"
    )
    tables = kafka_tables(kafka_ddl(kafka, topic, columns, format="json"))
    insert(tables, "INSERT INTO t VALUES (1, TO_TIMESTAMP_LTZ(1234, 3), MAP['h', CAST('x' AS BYTES)])")
    (message,) = kafka.read(topic)
    assert (message.value(), message.timestamp()[1], message.headers()) == (b'{"id":1}', 1234, [("h", b"x")])


def test_changes_are_written_in_a_format_of_changes_and_read_again(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    options = {"format": "debezium-json", "scan__startup__mode": "earliest-offset"}
    ddl = kafka_ddl(kafka, topic, "city STRING, orders BIGINT", **options, scan__bounded__mode="latest-offset")
    tables = kafka_tables(ddl, "CREATE VIEW c AS SELECT * FROM (VALUES ('a'), ('b'), ('a')) AS v(city)")
    insert(tables, "INSERT INTO t SELECT city, COUNT(*) FROM c GROUP BY city")
    # An update is a deletion and an insertion, as Flink writes it.
    assert {value["op"] for _, value in messages(kafka, topic)} == {"c", "d"}
    with tables.execute_sql("SELECT SUM(orders), COUNT(*) FROM t").collect() as rows:
        assert tuple(list(rows)[-1]) == (3, 2)


def test_a_format_of_rows_refuses_updates(kafka: KafkaCluster) -> None:
    tables = kafka_tables(kafka_ddl(kafka, "none", "city STRING, orders BIGINT", format="json"))
    with pytest.raises(ValidationError, match="doesn't support consuming update changes which is produced by node"):
        tables.execute_sql("INSERT INTO t SELECT city, COUNT(*) FROM (VALUES ('a')) AS v(city) GROUP BY city")


def test_exactly_once_shows_rows_by_transactions(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    options = {"format": "json", "sink__delivery_guarantee": "exactly-once"}
    options |= {"sink__transactional_id_prefix": topic, "properties__transaction.timeout.ms": "600000"}
    tables = kafka_tables(kafka_ddl(kafka, topic, "id INT, city STRING", **options))
    insert(tables, f"INSERT INTO t VALUES {ROWS}")
    # Brokers show a transaction a moment after they have taken its commit.
    await_true(lambda: bool(kafka.read(topic)), "the transaction is not seen")
    assert sorted(value["id"] for _, value in messages(kafka, topic)) == [1, 2, 3]
    # The end of the transaction has an offset of its own.
    kafka.produce(topic, ["{}"])
    assert kafka.read(topic)[-1].offset() == 4


def test_partitions_are_chosen_in_turn_or_by_subtask(kafka: KafkaCluster) -> None:
    for name, expected in (("round-robin", {0: 1, 1: 1, 2: 1}), ("fixed", {0: 3})):
        topic = kafka.create_topic(partitions=3)
        options = {"format": "json", "sink__partitioner": name, "sink__parallelism": "1"}
        tables = kafka_tables(kafka_ddl(kafka, topic, "id INT, city STRING", **options))
        insert(tables, f"INSERT INTO t VALUES {ROWS}")
        found = [message.partition() for message in kafka.read(topic)]
        assert {partition: found.count(partition) for partition in set(found)} == expected


def test_a_partitioner_goes_on_where_it_was() -> None:
    in_turn, fixed = BatchPartitioner(True), BatchPartitioner(False)
    for one in (in_turn, fixed):
        one.open(4, 5)
    assert [*in_turn.chosen(4, 3), *in_turn.chosen(2, 3)] == [1, 2, 0, 1, 2, 0]
    assert fixed.chosen(2, 3) == [1, 1]
    assert in_turn.partition(None, None, None, "t", 3) == 1


GIVEN = {"connector": "kafka", "properties.bootstrap.servers": "127.0.0.1:1", "topic": "orders", "format": "json"}


def ddl(options: dict[str, str], columns: str = "id INT") -> str:
    given = ", ".join(f"'{key}' = '{value}'" for key, value in {**GIVEN, **options}.items())
    return f"CREATE TABLE t ({columns}) WITH ({given})"


@pytest.mark.parametrize(
    ("options", "columns", "sentence"),
    [
        ({"topic": "a;b"}, "id INT", "only supports a single topic.*a, b"),
        ({"sink.delivery-guarantee": "twice"}, "id INT", "it must be one of none, at-least-once, exactly-once"),
        ({"sink.delivery-guarantee": "exactly-once"}, "id INT", "sink.transactional-id-prefix must be specified"),
        ({"sink.partitioner": "org.Mine"}, "id INT", "it must be one of default, fixed, round-robin"),
        (
            {"sink.partitioner": "round-robin", "key.format": "json", "key.fields": "id"},
            "id INT",
            "'round-robin' partitioner only works when option 'key.fields' is not specified",
        ),
        ({"format": "parquet"}, "id INT", "has only files, and no messages"),
        ({"key.format": "debezium-json", "key.fields": "id"}, "id INT", "which a key has none of"),
        ({}, "id INT, p INT METADATA FROM 'partition'", "Invalid metadata key 'partition'.*headers, timestamp"),
        ({}, "id INT, ts STRING METADATA FROM 'timestamp'", "is STRING, and is not written"),
        ({"properties.transactional.id": "x"}, "id INT", "the sink names its transactions itself"),
    ],
)
def test_options_that_do_not_fit_a_sink_are_refused(options: dict[str, str], columns: str, sentence: str) -> None:
    with pytest.raises(PenstockError, match=sentence):
        writer_of(ddl(options, columns))


def test_a_primary_key_needs_a_format_of_changes() -> None:
    tables = kafka_tables(ddl({}, "id INT, PRIMARY KEY (id) NOT ENFORCED"))
    with pytest.raises(ValidationError, match="doesn't support defining PRIMARY KEY constraint"):
        tables.execute_sql("INSERT INTO t VALUES (1)")


def test_properties_of_consumers_stay_with_the_reader() -> None:
    properties = {"properties.isolation.level": "read_committed", "properties.group.id": "g"}
    assert writer_of(ddl(properties)).sink.shows_on_commit is False


class Texts:
    """Writes the only column as text, and refuses NULL."""

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        return [value.encode() for value in columns.column(0).to_pylist()]


def test_a_row_that_goes_is_a_message_without_a_value() -> None:
    encoder: Any = Texts()
    made = TableMessages(
        "t", value=WrittenPart(encoder, (1,), ("b",)), key=WrittenPart(encoder, (0,), ("a",)), is_upsert=True
    )
    columns = pa.RecordBatch.from_arrays([pa.array(["k", "l", "m"]), pa.array(["x", None, None])], ["c0", "c1"])
    found = made.messages(ChangeData(columns, bytes([2, 3, 1])), None, lambda topic: 1)
    assert (found.keys, found.values) == ([b"k", b"l", b"m"], [b"x", None, None])
    assert made.messages(ColumnData(columns.slice(0, 1)), None, lambda topic: 1).values == [b"x"]
