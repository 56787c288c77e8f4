"""Event time of tables in topics: each partition has its own, whoever reads it."""

from __future__ import annotations

import json

import pytest
from tests.servers.kafka import KafkaCluster
from tests.table.connectors.kafka_tables import kafka_ddl, kafka_tables, messages

from penstock.base.errors import JobExecutionError
from penstock.table import TableEnvironment

COLUMNS = "city STRING, s INT, ts AS TO_TIMESTAMP_LTZ(s, 0), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
WHOLE = {"scan__startup__mode": "earliest-offset", "format": "json"}
STOPS = {"scan__bounded__mode": "latest-offset"}
COUNTS = """
    SELECT city, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY city, window_start, window_end
"""


def fill(kafka: KafkaCluster, topic: str, partition: int, city: str, seconds: range) -> None:
    values = [json.dumps({"city": city, "s": second}) for second in seconds]
    kafka.produce(topic, values, partition, key=json.dumps({"city": city}))


def counts(tables: TableEnvironment, windows: int | None = None) -> dict[str, int]:
    """How many rows of each city are in windows, of all or of the first so many."""
    found: dict[str, int] = {}
    with tables.execute_sql(COUNTS).collect() as rows:
        for number, (city, count) in enumerate(map(tuple, rows), 1):
            found[city] = found.get(city, 0) + count
            if number == windows:
                break
    return found


@pytest.mark.parametrize("more", [{}, {"scan__watermark__emit__strategy": "on-event"}])
def test_a_partition_that_is_hours_behind_is_not_late(kafka: KafkaCluster, more: dict[str, str]) -> None:
    """C2, G9: one subtask reads both, and whichever it reads first makes no rows of the other late."""
    topic = kafka.create_topic(partitions=2)
    fill(kafka, topic, 0, "ahead", range(7200, 7400))
    fill(kafka, topic, 1, "behind", range(200))
    tables = kafka_tables(kafka_ddl(kafka, topic, COLUMNS, **WHOLE, **STOPS, **more))
    tables.get_config().set("parallelism.default", "1")
    assert counts(tables) == {"ahead": 200, "behind": 200}


def test_a_partition_without_records_holds_nothing_back_once_it_is_idle(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=2)
    fill(kafka, topic, 0, "alone", range(25))
    tables = kafka_tables(kafka_ddl(kafka, topic, COLUMNS, **WHOLE, scan__watermark__idle_timeout="300 ms"))
    assert counts(tables, windows=2) == {"alone": 20}


def test_partitions_may_be_aligned(kafka: KafkaCluster) -> None:
    """The one that is ahead waits, and goes on."""
    topic = kafka.create_topic(partitions=2)
    fill(kafka, topic, 0, "ahead", range(5000))
    fill(kafka, topic, 1, "behind", range(0, 5000, 10))
    aligned = {"scan__watermark__alignment__group": "g", "scan__watermark__alignment__max_drift": "10 s"}
    tables = kafka_tables(kafka_ddl(kafka, topic, COLUMNS, **WHOLE, **STOPS, **aligned))
    tables.get_config().set("parallelism.default", "2")
    assert counts(tables) == {"ahead": 5000, "behind": 500}


def test_rows_that_are_replaced_and_deleted_have_the_times_of_their_partition(kafka: KafkaCluster) -> None:
    """A tombstone has no time: it deletes the row that was there, from the window that this was in."""
    topic = kafka.create_topic(partitions=2)
    fill(kafka, topic, 0, "gone", range(7200, 7202))
    fill(kafka, topic, 0, "stays", range(7202, 7203))
    kafka.produce(topic, [None], 0, key=json.dumps({"city": "gone"}))
    fill(kafka, topic, 1, "behind", range(1))
    formats = {"connector": "upsert-kafka", "key__format": "json", "value__format": "json"}
    columns = f"{COLUMNS}, PRIMARY KEY (city) NOT ENFORCED"
    tables = kafka_tables(kafka_ddl(kafka, topic, columns, **formats, **STOPS))
    tables.get_config().set("parallelism.default", "1")
    assert counts(tables) == {"stays": 1, "behind": 1}


def test_error_of_a_null_event_time_names_partition_and_offset(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=2)
    fill(kafka, topic, 0, "whole", range(3))
    kafka.produce(topic, ['{"city": "a", "s": 1}', None, '{"city": "b"}'], 1)
    tables = kafka_tables(kafka_ddl(kafka, topic, COLUMNS, **WHOLE, **STOPS))
    with pytest.raises(JobExecutionError) as raised:
        counts(tables)
    assert f"column 'ts' of table default_catalog.default_database.t is NULL in a row at {topic}-1, offset 2." in str(
        raised.value
    )
    assert "record: {'city': 'b', 's': None}" in str(raised.value)


WATERMARKS = {"source": "ts - INTERVAL '1' SECOND", "step": "LEAST(ts, CURRENT_TIMESTAMP)"}


def fill_upserts(kafka: KafkaCluster, topic: str) -> None:
    """Rows by city; `b` comes without a time, `a` loses its time, and `c` is deleted."""
    for city, second in (("a", 1), ("b", None), ("c", 2), ("a", None), ("d", 3)):
        kafka.produce(topic, [json.dumps({"city": city, "s": second})], key=json.dumps({"city": city}))
    kafka.produce(topic, [None], key=json.dumps({"city": "c"}))


@pytest.mark.parametrize("action", ["drop", "route"])
@pytest.mark.parametrize("watermark", WATERMARKS.values(), ids=WATERMARKS)
def test_upsert_without_time_deletes_the_row_of_its_key(kafka: KafkaCluster, watermark: str, action: str) -> None:
    """A row that leaves the stream is inserted into the other table, whatever was there."""
    topic, side = kafka.create_topic(), kafka.create_topic()
    fill_upserts(kafka, topic)
    options = {"connector": "upsert-kafka", "key__format": "json", "value__format": "json"}
    options["scan__watermark__null_time"] = action
    if action == "route":
        options["scan__watermark__null_time__table"] = "bad"
    columns = "city STRING, s INT, ts AS TO_TIMESTAMP_LTZ(s, 0), PRIMARY KEY (city) NOT ENFORCED"
    tables = kafka_tables(
        kafka_ddl(kafka, topic, f"{columns}, WATERMARK FOR ts AS {watermark}", **options, **STOPS),
        kafka_ddl(kafka, side, "city STRING, s INT, ts TIMESTAMP_LTZ(3)", "bad", format="json"),
    )
    with tables.execute_sql("SELECT city FROM t").collect() as rows:
        found = [(row.get_row_kind().short_string, row[0]) for row in rows]
    assert found == [("+I", "a"), ("+I", "c"), ("-D", "a"), ("+I", "d"), ("-D", "c")]
    routed = [value["city"] for _, value in messages(kafka, side)]
    assert routed == (["b", "a"] if action == "route" else [])


@pytest.mark.parametrize("watermark", WATERMARKS.values(), ids=WATERMARKS)
def test_rows_without_time_go_exactly_once_into_a_topic(kafka: KafkaCluster, watermark: str) -> None:
    """G9: from two partitions, by transactions, with checkpoints."""
    topic, side = kafka.create_topic(partitions=2), kafka.create_topic()
    for partition, city in ((0, "a"), (1, "b")):
        values = [json.dumps({"city": city, "s": second if second % 4 else None}) for second in range(400)]
        kafka.produce(topic, values, partition)
    options = {"scan__watermark__null_time": "route", "scan__watermark__null_time__table": "bad", **WHOLE, **STOPS}
    columns = f"city STRING, s INT, ts AS TO_TIMESTAMP_LTZ(s, 0), WATERMARK FOR ts AS {watermark}"
    once = {"sink__delivery_guarantee": "exactly-once", "sink__transactional_id_prefix": side}
    once["properties__transaction__timeout__ms"] = "60000"
    tables = kafka_tables(
        kafka_ddl(kafka, topic, columns, **options),
        kafka_ddl(kafka, side, "city STRING, s INT, ts TIMESTAMP_LTZ(3)", "bad", format="json", **once),
    )
    tables.get_config().set("parallelism.default", "2")
    tables.get_config().set("execution.checkpointing.interval", "50 ms")
    assert counts(tables) == {"a": 300, "b": 300}
    assert sorted(value["city"] for _, value in messages(kafka, side)) == ["a"] * 100 + ["b"] * 100
