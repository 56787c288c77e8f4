"""Event time of tables in topics: each partition has its own, whoever reads it."""

from __future__ import annotations

import json

import pytest
from tests.servers.kafka import KafkaCluster
from tests.table.connectors.kafka_tables import kafka_ddl, kafka_tables

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
