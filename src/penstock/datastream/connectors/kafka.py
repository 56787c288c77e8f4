"""Kafka as a source and as a sink, under PyFlink's names."""

from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.connectors.kafka.record_schema import (
    FixedPartitioner,
    KafkaPartitioner,
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
)
from penstock.connectors.kafka.records import KafkaRecord, KafkaRecordDeserializationSchema, KafkaRecords
from penstock.connectors.kafka.sink import KafkaSink, KafkaSinkBuilder
from penstock.connectors.kafka.source import KafkaSource, KafkaSourceBuilder
from penstock.datastream.connectors.base import DeliveryGuarantee

__all__ = [
    "DeliveryGuarantee",
    "FixedPartitioner",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaPartitioner",
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaRecords",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
]
