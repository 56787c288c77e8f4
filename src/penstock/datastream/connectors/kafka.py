"""Kafka as a source and as a sink, under PyFlink's names."""

from penstock.connectors.kafka.partitions import KafkaOffsetResetStrategy, KafkaOffsetsInitializer, KafkaTopicPartition
from penstock.connectors.kafka.records import (
    FixedPartitioner,
    KafkaPartitioner,
    KafkaRecord,
    KafkaRecordDeserializationSchema,
    KafkaRecords,
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
)
from penstock.connectors.kafka.share_group import KafkaShareGroupSource
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
    "KafkaShareGroupSource",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
]
