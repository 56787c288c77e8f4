"""Sources and sinks under PyFlink's names."""

from penstock.connectors.split_reader import NumberSequenceSource
from penstock.datastream.connectors.base import (
    AsyncSinkBase,
    AsyncSinkSettings,
    DeliveryGuarantee,
    RequestClient,
    RequestError,
    RequestResult,
    Sink,
    Source,
)
from penstock.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    FileSourceBuilder,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)
from penstock.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcExecutionOptions, JdbcSink
from penstock.datastream.connectors.kafka import KafkaSource

__all__ = [
    "AsyncSinkBase",
    "AsyncSinkSettings",
    "BucketAssigner",
    "DeliveryGuarantee",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "JdbcConnectionOptions",
    "JdbcExecutionOptions",
    "JdbcSink",
    "KafkaSource",
    "NumberSequenceSource",
    "OutputFileConfig",
    "RequestClient",
    "RequestError",
    "RequestResult",
    "RollingPolicy",
    "Sink",
    "Source",
    "StreamFormat",
]
