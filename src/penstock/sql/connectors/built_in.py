"""The available connectors: built into Penstock, or provided by installed packages."""

from __future__ import annotations

import importlib.metadata
from functools import partial
from pkgutil import resolve_name
from typing import Any, Final

from penstock.sql.formats import built_in_formats
from penstock.sql.tables.connector import Connectors

#: the entry point group where packages register connectors; each entry is a subclass of `TableConnector`
ENTRY_POINTS: Final = "penstock.table.connectors"
#: the class of each built-in connector, below `penstock.sql.connectors`
CONNECTORS: Final = {
    "blackhole": "spark:BlackholeConnector",
    "clickhouse": "clickhouse:ClickHouseConnector",
    "datagen": "datagen:DatagenConnector",
    "delta": "delta:DeltaConnector",
    "dynamodb": "dynamodb:DynamoDbConnector",
    "iceberg": "iceberg:IcebergConnector",
    "jdbc": "jdbc:JdbcConnector",
    "mongodb": "mongodb:MongodbConnector",
    "mongodb-cdc": "mongodb:MongodbCdcConnector",
    "mysql-cdc": "mysql_cdc:MySqlCdcConnector",
    "nexmark": "nexmark:NexmarkConnector",
    "postgres-cdc": "postgres_cdc:PostgresCdcConnector",
    "print": "spark:PrintConnector",
    "prometheus": "prometheus:PrometheusConnector",
    "qdrant": "qdrant:QdrantConnector",
    "redis": "redis:RedisConnector",
    "redis-streams": "redis_streams:RedisStreamsConnector",
    "savepoint": "savepoint:SavepointConnector",
    "spark": "spark:SparkConnector",
    "sqlite-vec": "sqlite_vec:SqliteVecConnector",
    "vector-function": "spark:VectorFunctionConnector",
}
#: connectors that are created with the formats
CONNECTORS_WITH_FORMATS: Final = {
    "elasticsearch-7": "opensearch:Elasticsearch7Connector",
    "filesystem": "filesystem.connector:FilesystemConnector",
    "http": "http:HttpLookupConnector",
    "http-async-sink": "http_sink:HttpSinkConnector",
    "http-sink": "http_sink:FormerHttpSinkConnector",
    "http-webhook": "http_sink:WebhookConnector",
    "firehose": "kinesis:FirehoseConnector",
    "kafka": "kafka.connector:KafkaConnector",
    "kinesis": "kinesis:KinesisConnector",
    "mqtt": "mqtt:MqttConnector",
    "nats": "nats:NatsConnector",
    "opensearch": "opensearch:OpensearchConnector",
    "rabbitmq": "rabbitmq:RabbitmqConnector",
    "rest-lookup": "http:RestLookupConnector",
    "socket": "spark:SocketConnector",
    "sqs": "sqs:SqsConnector",
    "upsert-kafka": "kafka.connector:UpsertKafkaConnector",
}


def built_in() -> Connectors:
    """Return all connectors. A package's connector replaces a built-in one of the same name."""
    formats = built_in_formats()
    return Connectors(
        *(point.load()() for point in importlib.metadata.entry_points(group=ENTRY_POINTS)),
        built_in={
            **{name: partial(_create, path) for name, path in CONNECTORS.items()},
            **{name: partial(_create, path, formats) for name, path in CONNECTORS_WITH_FORMATS.items()},
        },
    )


def _create(path: str, *arguments: Any) -> Any:
    return resolve_name(f"penstock.sql.connectors.{path}")(*arguments)


__all__ = ["built_in"]
