"""Kafka streams whose topics and clusters change, under PyFlink's names."""

from penstock.connectors.kafka.dynamic import DynamicKafkaSource, DynamicKafkaSourceBuilder
from penstock.connectors.kafka.metadata_service import (
    ClusterMetadata,
    KafkaMetadataService,
    KafkaStream,
    SingleClusterTopicMetadataService,
)

__all__ = [
    "ClusterMetadata",
    "DynamicKafkaSource",
    "DynamicKafkaSourceBuilder",
    "KafkaMetadataService",
    "KafkaStream",
    "SingleClusterTopicMetadataService",
]
