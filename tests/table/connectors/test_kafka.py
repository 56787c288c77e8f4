"""`kafka`: tables whose rows are in topics of a real broker."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from tests.servers.kafka import KafkaCluster
from tests.table.connectors.tables import build_reader

from penstock.runtime.connector import Boundedness
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, TableEnvironment

STOPS = {"scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset"}


def ddl(columns: str, options: dict[str, str]) -> str:
    given = ", ".join(f"'{key}' = '{value}'" for key, value in {"connector": "kafka", **options}.items())
    return f"CREATE TABLE t ({columns}) WITH ({given})"


def read_rows(kafka: KafkaCluster, columns: str, options: dict[str, str], query: str = "SELECT * FROM t") -> list[Any]:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")
    servers = {"properties.bootstrap.servers": kafka.bootstrap_servers}
    tables.execute_sql(ddl(columns, {**servers, **STOPS, "format": "json", **options}))
    with tables.execute_sql(query).collect() as rows:
        return sorted(map(tuple, rows))


def orders(kafka: KafkaCluster) -> str:
    """Offsets 0 to 4, a second apart."""
    topic = kafka.create_topic("orders")
    for number in range(5):
        value = json.dumps({"id": number, "city": "Delft" if number % 2 else None})
        kafka.produce(topic, [value], key=f"k{number}", timestamp=1_000 * (number + 1), headers=[("h", b"%d" % number)])
    return topic


def test_a_query_reads_a_topic(kafka: KafkaCluster) -> None:
    query = "SELECT city, COUNT(*), SUM(id) FROM t WHERE city IS NOT NULL GROUP BY city"
    rows = read_rows(kafka, "id BIGINT, city STRING", {"topic": orders(kafka)}, query)
    assert rows[-1] == ("Delft", 2, 4)


def test_metadata_columns_tell_about_the_record(kafka: KafkaCluster) -> None:
    topic = orders(kafka)
    columns = (
        "`offset` BIGINT METADATA VIRTUAL, id INT, ts TIMESTAMP(3) METADATA FROM 'timestamp', topic STRING METADATA, "
        "`partition` INT METADATA, headers MAP<STRING, BYTES> METADATA"
    )
    first = read_rows(kafka, columns, {"topic": topic})[0]
    assert first == (0, 0, datetime.datetime(1970, 1, 1, 0, 0, 1), topic, 0, {"h": b"0"})


@pytest.mark.parametrize("name", ["csv", "avro", "json"])
@pytest.mark.parametrize("includes", ["ALL", "EXCEPT_KEY"])
def test_formats_by_position_do_not_see_columns_that_are_in_no_message(
    kafka: KafkaCluster, name: str, includes: str
) -> None:
    """A message of CSV or Avro holds the value's columns, and neither metadata nor, if it is left out, the key."""
    topic = kafka.create_topic(f"{name}-{includes.lower().replace('_', '-')}")
    columns = "a INT, ts TIMESTAMP(3) METADATA FROM 'timestamp', k STRING, `offset` BIGINT METADATA VIRTUAL, b STRING"
    options = {"topic": topic, "format": name, "key.format": name, "key.fields": "k", "value.fields-include": includes}
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")
    servers = {"properties.bootstrap.servers": kafka.bootstrap_servers}
    tables.execute_sql(ddl(columns, {**servers, **options}))
    first = "(1, TIMESTAMP '1970-01-01 00:00:01', 'k', 'x')"
    second = "(2, TIMESTAMP '1970-01-01 00:00:02', 'l', CAST(NULL AS STRING))"
    tables.execute_sql(f"INSERT INTO t VALUES {first}, {second}").wait()
    rows = read_rows(kafka, columns, options)
    times = [datetime.datetime(1970, 1, 1, 0, 0, second) for second in (1, 2)]
    empty = "" if name == "csv" else None
    assert [row[:3] for row in rows] == [(1, times[0], "k"), (2, times[1], "l")]
    assert [row[3:] for row in rows] == [(0, "x"), (1, empty)]


def test_the_time_of_a_record_can_be_the_time_of_the_row(kafka: KafkaCluster) -> None:
    columns = "id INT, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', WATERMARK FOR ts AS ts"
    query = "SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND)) GROUP BY window_start"
    query += ", window_end"
    assert read_rows(kafka, columns, {"topic": orders(kafka)}, query) == [(1,), (2,), (2,)]


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "4000"}, [3, 4]),
        ({"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "partition:0,offset:4"}, [4]),
        ({"scan.startup.mode": "latest-offset"}, []),
        ({"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": "3000"}, [0, 1]),
        ({"scan.bounded.mode": "specific-offsets", "scan.bounded.specific-offsets": "partition:0,offset:1"}, [0]),
    ],
)
def test_options_say_where_a_scan_begins_and_stops(
    kafka: KafkaCluster, options: dict[str, str], ids: list[int]
) -> None:
    assert read_rows(kafka, "id INT", {"topic": orders(kafka), **options}) == [(number,) for number in ids]


def test_group_offsets_begin_where_the_group_is(kafka: KafkaCluster) -> None:
    topic = orders(kafka)
    group = {"topic": topic, "scan.startup.mode": "group-offsets", "properties.group.id": topic}
    rows = read_rows(kafka, "id INT", {**group, "properties.auto.offset.reset": "latest"})
    assert rows == []
    kafka.commit(topic, topic, {0: 3})
    assert read_rows(kafka, "id INT", group) == [(3,), (4,)]


def test_columns_may_be_in_the_key(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    for key in (json.dumps({"id": 7}), None):
        kafka.produce(topic, [json.dumps({"id": 1, "city": "Gouda"})], key=key)
    options = {"topic": topic, "key.format": "json", "value.format": "json"}
    options |= {"key.fields": "key_id", "key.fields-prefix": "key_", "value.fields-include": "EXCEPT_KEY"}
    query = "SELECT key_id, id, city FROM t WHERE key_id IS NOT NULL"
    columns = "id INT, key_id INT, city STRING"
    del_format = {key: value for key, value in options.items() if key != "format"}
    assert read_rows(kafka, columns, del_format, query) == [(7, 1, "Gouda")]
    assert len(read_rows(kafka, columns, del_format, "SELECT id FROM t WHERE key_id IS NULL")) == 1


def test_messages_that_are_no_rows_are_skipped_when_the_format_says_so(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["{", json.dumps({"id": 1}), None])
    columns = "id INT, `offset` BIGINT METADATA"
    assert read_rows(kafka, columns, {"topic": topic, "json.ignore-parse-errors": "true"}) == [(1, 1)]


def test_changes_come_from_a_format_of_changes(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    before, after = {"id": 1, "city": "Delft"}, {"id": 1, "city": "Gouda"}
    changes: list[dict[str, Any]] = [
        {"before": None, "after": before, "op": "c"},
        {"before": before, "after": after, "op": "u"},
    ]
    kafka.produce(topic, [json.dumps(change) for change in changes])
    rows = read_rows(
        kafka, "id INT, city STRING, `offset` BIGINT METADATA", {"topic": topic, "format": "debezium-json"}
    )
    assert len(rows) == 3
    assert rows.count((1, "Delft", 0)) == 1


GIVEN = {"properties.bootstrap.servers": "127.0.0.1:1", "topic": "orders", "format": "json"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topic-pattern": "o.*"}, "one of the options 'topic' and 'topic-pattern'"),
        ({}, "'group-offsets' needs the option 'properties.group.id'"),
        ({"scan.startup.mode": "sometimes"}, "it must be one of earliest-offset, group-offsets"),
        ({**STOPS, "scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "0:1"}, "partition:0,off"),
        ({**STOPS, "key.fields": "id"}, "'key.format' and 'key.fields'"),
        ({**STOPS, "key.format": "json", "key.fields": "nothing"}, "has no columns nothing"),
        ({**STOPS, "key.format": "json", "key.fields": "id", "key.fields-prefix": "k_"}, "do not begin with 'k_'"),
        ({**STOPS, "format": "parquet"}, "has only files"),
        ({**STOPS, "properties.no.such": "1"}, "No such configuration property"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        build_reader(ddl("id INT", {**GIVEN, **options}))


def test_a_table_is_bounded_only_if_it_stops() -> None:
    source = build_reader(ddl("id INT", {**GIVEN, "scan.startup.mode": "earliest-offset"})).source
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    assert build_reader(ddl("id INT", {**GIVEN, **STOPS})).source.boundedness is Boundedness.BOUNDED
