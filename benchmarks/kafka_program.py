"""From a topic to a topic, by PyFlink's names: one program for Penstock and for PyFlink.

`python kafka_program.py '{"library": "pyflink", …}'` runs it to the end of the topic, with the modules of that library.
It imports nothing else, since PyFlink has an environment of its own.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

CHECKPOINTS_MS = 1_000
COLUMNS = "id BIGINT, `user` STRING, product STRING, price DOUBLE, quantity INT, `at` STRING, `comment` STRING"
QUERY = "SELECT id, `user`, product, price * quantity, quantity, `at`, `comment` FROM orders"


def billed(text: str) -> str:
    """An order with its price for all pieces."""
    order = json.loads(text)
    order["price"] = order["price"] * order["quantity"]
    return json.dumps(order)


def run_stream(library: str, servers: str, source: str, target: str, options: dict[str, str]) -> None:
    """JSON is read and written by Python, in a function of each record."""
    common, datastream = import_module(f"{library}.common"), import_module(f"{library}.datastream")
    kafka = import_module(f"{library}.datastream.connectors.kafka")
    text = import_module(f"{library}.common.serialization").SimpleStringSchema()
    configuration = common.Configuration()
    for key, value in options.items():
        configuration.set_string(key, value)
    env = datastream.StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    env.enable_checkpointing(CHECKPOINTS_MS)
    orders = (
        kafka.KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(source)
        .set_group_id("benchmark")
        .set_starting_offsets(kafka.KafkaOffsetsInitializer.earliest())
        .set_bounded(kafka.KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(text)
        .build()
    )
    record = kafka.KafkaRecordSerializationSchema.builder().set_topic(target).set_value_serialization_schema(text)
    sink = (
        kafka.KafkaSink.builder()
        .set_bootstrap_servers(servers)
        .set_record_serializer(record.build())
        .set_delivery_guarantee(kafka.DeliveryGuarantee.AT_LEAST_ONCE)
        .build()
    )
    stream = env.from_source(orders, common.WatermarkStrategy.no_watermarks(), "orders")
    stream.map(billed, common.Types.STRING()).sink_to(sink)
    env.execute("orders")


def run_sql(library: str, servers: str, source: str, target: str, options: dict[str, str]) -> None:
    """JSON is read and written by the library's format, and the function is an expression of SQL."""
    table = import_module(f"{library}.table")
    tables = table.TableEnvironment.create(table.EnvironmentSettings.in_streaming_mode())
    settings = {"parallelism.default": "1", "execution.checkpointing.interval": f"{CHECKPOINTS_MS} ms"}
    for key, value in {**settings, **options}.items():
        tables.get_config().set(key, value)
    common = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json'"
    bounds = "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"
    group = "'properties.group.id' = 'benchmark'"
    tables.execute_sql(f"CREATE TABLE orders ({COLUMNS}) WITH ({common}, {bounds}, {group}, 'topic' = '{source}')")
    tables.execute_sql(f"CREATE TABLE billed ({COLUMNS}) WITH ({common}, 'topic' = '{target}')")
    tables.execute_sql(f"INSERT INTO billed {QUERY}").wait()


def run(kind: str, **arguments: Any) -> None:
    """Run one of both."""
    (run_sql if kind == "sql" else run_stream)(**arguments)


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
