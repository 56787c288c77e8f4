"""Kafka as a source and as a sink, under PyFlink's names."""

from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.connectors.kafka.records import KafkaRecord, KafkaRecordDeserializationSchema, KafkaRecords
from penstock.connectors.kafka.source import KafkaSource, KafkaSourceBuilder

__all__ = [
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaRecords",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
]
