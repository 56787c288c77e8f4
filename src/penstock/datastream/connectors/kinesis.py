"""Kinesis: a source of streams, and sinks of streams and of Firehose."""

from penstock.connectors.aws.kinesis_records import KinesisDeserializationSchema, KinesisRecord
from penstock.connectors.aws.kinesis_sink import (
    KinesisFirehoseSink,
    KinesisFirehoseSinkBuilder,
    KinesisStreamsSink,
    KinesisStreamsSinkBuilder,
    PartitionKeyGenerator,
)
from penstock.connectors.aws.kinesis_source import KinesisStreamsSource, KinesisStreamsSourceBuilder

__all__ = [
    "KinesisDeserializationSchema",
    "KinesisFirehoseSink",
    "KinesisFirehoseSinkBuilder",
    "KinesisRecord",
    "KinesisStreamsSink",
    "KinesisStreamsSinkBuilder",
    "KinesisStreamsSource",
    "KinesisStreamsSourceBuilder",
    "PartitionKeyGenerator",
]
