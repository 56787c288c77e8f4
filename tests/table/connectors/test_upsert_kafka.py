"""`upsert-kafka`: tables by their primary keys in topics of a real broker."""

from __future__ import annotations

import json
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.servers.kafka import KafkaCluster
from tests.servers.waiting import await_true
from tests.table.connectors.kafka_tables import insert, kafka_ddl, kafka_tables, messages
from tests.table.connectors.tables import build_reader, build_write

from penstock.base.errors import PenstockError
from penstock.codecs.column_data import ChangeData, ColumnData
from penstock.runtime.connector import SinkWriter, SinkWriterContext
from penstock.sql.connectors.kafka.sink import Holding, HoldingWriter
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.table import TableEnvironment

COLUMNS = "city STRING, orders BIGINT, PRIMARY KEY (city) NOT ENFORCED"
JSON = {"connector": "upsert-kafka", "key__format": "json", "value__format": "json"}
STOPS = {"scan__bounded__mode": "latest-offset"}


def upsert_ddl(kafka: KafkaCluster, topic: str, columns: str = COLUMNS, **options: str) -> str:
    return kafka_ddl(kafka, topic, columns, **{**JSON, **options})


def changes_of(tables: TableEnvironment, query: str = "SELECT * FROM t") -> list[tuple[Any, ...]]:
    """The changes of a query: the letters of their kinds, and their values."""
    with tables.execute_sql(query).collect() as rows:
        return [(row.get_row_kind().short_string, *row) for row in rows]


def rows_at_the_end(changes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    there: list[tuple[Any, ...]] = []
    for kind, *row in changes:
        if kind.startswith("+"):
            there.append(tuple(row))
        else:
            there.remove(tuple(row))
    return sorted(there)


def test_a_table_goes_there_and_back_again(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=2)
    tables = kafka_tables(upsert_ddl(kafka, topic, **STOPS))
    words = "(VALUES ('a', 1), ('b', 1), ('a', 2), ('a', 3)) AS v(city, n)"
    insert(tables, f"INSERT INTO t SELECT city, COUNT(*) FROM {words} GROUP BY city")
    found = messages(kafka, topic)
    assert [value["orders"] for key, value in found if key == {"city": "a"}][-1] == 3
    assert {(key["city"], value["city"]) for key, value in found} == {("a", "a"), ("b", "b")}
    assert rows_at_the_end(changes_of(tables)) == [("a", 3), ("b", 1)]
    assert rows_at_the_end(changes_of(tables, "SELECT SUM(orders) FROM t")) == [(4,)]


def test_a_row_that_goes_is_a_tombstone(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    tables = kafka_tables(upsert_ddl(kafka, topic, **STOPS))
    # The word goes when it has come for the second time.
    words = "(VALUES ('a'), ('b'), ('b')) AS v(city)"
    insert(tables, f"INSERT INTO t SELECT city, COUNT(*) FROM {words} GROUP BY city HAVING COUNT(*) < 2")
    found = messages(kafka, topic)
    assert found[-1] == ({"city": "b"}, None)
    assert ({"city": "a"}, {"city": "a", "orders": 1}) in found
    assert rows_at_the_end(changes_of(tables)) == [("a", 1)]


def test_records_without_values_delete_by_key(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    for key, value in (("a", 1), ("b", 2), ("a", None), ("c", None), ("b", 3)):
        text = None if value is None else json.dumps({"orders": value})
        kafka.produce(topic, [text], key=json.dumps({"city": key}), timestamp=1_000)
    columns = "k_city STRING, orders BIGINT, `partition` INT METADATA VIRTUAL, PRIMARY KEY (k_city) NOT ENFORCED"
    options = {"key__fields_prefix": "k_", "value__fields_include": "EXCEPT_KEY"}
    tables = kafka_tables(upsert_ddl(kafka, topic, columns, **STOPS, **options))
    changes = changes_of(tables)
    assert changes == [
        ("+I", "a", 1, 0),
        ("+I", "b", 2, 0),
        ("-D", "a", 1, 0),
        ("-U", "b", 2, 0),
        ("+U", "b", 3, 0),
    ]


def test_only_tombstones_are_no_rows(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [None, None], key=json.dumps({"city": "a"}))
    assert changes_of(kafka_tables(upsert_ddl(kafka, topic, **STOPS))) == []


@pytest.mark.parametrize(("key", "sentence"), [(None, "it has no key"), ("{", "the key: ")])
def test_a_record_without_a_readable_key_fails_the_query_or_is_skipped(
    kafka: KafkaCluster, key: str | None, sentence: str
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [json.dumps({"city": "a", "orders": 1})], key=key)
    kafka.produce(topic, [None], key=key)
    kafka.produce(topic, [json.dumps({"city": "b", "orders": 2})], key=json.dumps({"city": "b"}))
    with pytest.raises(PenstockError, match=sentence):
        changes_of(kafka_tables(upsert_ddl(kafka, topic, **STOPS)))
    skips = {"value__json__ignore_parse_errors": "true"}
    assert changes_of(kafka_tables(upsert_ddl(kafka, topic, **STOPS, **skips))) == [("+I", "b", 2)]


def test_the_last_change_of_each_key_is_written_when_changes_are_held_back(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    holds = {"sink__buffer_flush__max_rows": "1000", "sink__buffer_flush__interval": "1 h"}
    tables = kafka_tables(upsert_ddl(kafka, topic, **STOPS, **holds))
    words = "(VALUES ('a'), ('a'), ('b')) AS v(city)"
    insert(tables, f"INSERT INTO t SELECT city, COUNT(*) FROM {words} GROUP BY city")
    assert sorted(map(str, messages(kafka, topic))) == [
        "({'city': 'a'}, {'city': 'a', 'orders': 2})",
        "({'city': 'b'}, {'city': 'b', 'orders': 1})",
    ]
    assert rows_at_the_end(changes_of(tables)) == [("a", 2), ("b", 1)]


def test_upserts_exactly_once(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    options = {"sink__delivery_guarantee": "exactly-once", "sink__transactional_id_prefix": topic}
    options |= {"properties__transaction.timeout.ms": "600000", "properties__isolation.level": "read_committed"}
    holds = {"sink__buffer_flush__max_rows": "2", "sink__buffer_flush__interval": "1 h"}
    tables = kafka_tables(upsert_ddl(kafka, topic, **STOPS, **options, **holds))
    insert(tables, "INSERT INTO t VALUES ('a', 1), ('b', 2), ('a', 3) ON CONFLICT DO DEDUPLICATE")
    # Brokers show a transaction a moment after they have taken its commit.
    await_true(lambda: len(kafka.read(topic)) >= 2, "the transaction is not seen")
    assert rows_at_the_end(changes_of(tables)) == [("a", 3), ("b", 2)]


# --- without a broker ------------------------------------------------------------------------------------------------


class Written(SinkWriter[Any, Any]):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        raise AssertionError("columns are written")

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        assert isinstance(data, ChangeData)
        self.told.append(list(zip(data.kinds, *[column.to_pylist() for column in data.columns.columns], strict=True)))

    def flush(self, end_of_input: bool) -> None:
        self.told.append(f"flush {end_of_input}")

    def prepare_commit(self) -> list[Any]:
        self.told.append("prepare")
        return []


class Clock:
    def now_ms(self) -> int:
        return 1_000


def held_back(rows: int) -> tuple[HoldingWriter, Written]:
    inner, context = Written(), cast("SinkWriterContext", Clock())
    return HoldingWriter(inner, build_write(ddl({})).schema, Holding((0,), rows, 500), context), inner


def changes(*rows: tuple[int, str, int | None]) -> tuple[ColumnData, bytes]:
    arrays = [pa.array([key for _, key, _ in rows]), pa.array([value for *_, value in rows], pa.int64())]
    return ColumnData(pa.RecordBatch.from_arrays(arrays, ["c0", "c1"])), bytes(kind for kind, *_ in rows)


def test_changes_wait_until_they_are_enough_or_it_is_time() -> None:
    writer, inner = held_back(rows=4)
    assert writer.next_flush_ms() is None
    writer.write_changes(*changes((INSERT, "a", 1), (INSERT, "b", 1)), None)
    assert (writer.next_flush_ms(), inner.told) == (1_500, [])
    writer.write_changes(*changes((UPDATE_BEFORE, "a", 1), (UPDATE_AFTER, "a", 2)), None)
    assert inner.told.pop() == [(INSERT, "b", 1), (UPDATE_AFTER, "a", 2)]
    assert writer.next_flush_ms() is None
    writer.write_columns(changes((INSERT, "c", 1))[0], None)
    writer.write_changes(*changes((DELETE, "c", None)), None)
    writer.flush(False)
    # It was time: nobody waits for Kafka, as a checkpoint does.
    assert inner.told == [[(DELETE, "c", None)]]
    writer.flush(False)
    writer.prepare_commit()
    writer.flush(True)
    assert inner.told[1:] == ["flush False", "prepare", "flush True"]


GIVEN = {"connector": "upsert-kafka", "properties.bootstrap.servers": "127.0.0.1:1", "topic": "orders"}
GIVEN |= {"key.format": "json", "value.format": "json"}


def ddl(options: dict[str, str], columns: str = COLUMNS) -> str:
    given = ", ".join(f"'{key}' = '{value}'" for key, value in {**GIVEN, **options}.items())
    return f"CREATE TABLE t ({columns}) WITH ({given})"


@pytest.mark.parametrize(
    ("options", "columns", "sentence"),
    [
        ({}, "city STRING", "'upsert-kafka' tables require to define a PRIMARY KEY constraint"),
        ({"value.format": "debezium-json"}, COLUMNS, "doesn't support 'debezium-json' as value format, because"),
        ({"key.format": "debezium-json"}, COLUMNS, "doesn't support 'debezium-json' as key format, because"),
        ({"key.fields-prefix": "k_", "value.fields-include": "EXCEPT_KEY"}, COLUMNS, "do not begin with 'k_'"),
        ({"key.fields-prefix": "ci"}, COLUMNS, "it needs 'value.fields-include' = 'EXCEPT_KEY'"),
        ({"topic": "a;b", "scan.startup.mode": "latest-offset"}, COLUMNS, "Unsupported options.*scan.startup.mode"),
        ({"sink.partitioner": "fixed"}, COLUMNS, "Unsupported options.*sink.partitioner"),
    ],
)
def test_tables_that_are_no_upserts_are_refused(options: dict[str, str], columns: str, sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        build_reader(ddl(options, columns))
    with pytest.raises(ValidationError, match=sentence):
        kafka_tables(ddl(options, columns)).execute_sql("INSERT INTO t SELECT * FROM t")
