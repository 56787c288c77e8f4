"""Files as a source and as a sink."""

from penstock.connectors.file.buckets import BucketAssigner
from penstock.connectors.file.rolling import (
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from penstock.connectors.file.sink import FileSink
from penstock.connectors.file.source import FileSource, FileSourceBuilder
from penstock.formats.bulk_format import BulkFormat
from penstock.formats.stream_format import StreamFormat

__all__ = [
    "BucketAssigner",
    "BulkFormat",
    "DefaultRollingPolicy",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
]
