"""Files as a source and as a sink."""

from penstock.connectors.file.buckets import (
    BucketAssigner,
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from penstock.connectors.file.commit_coordinator import PartitionCommitPolicy, SuccessFilePolicy
from penstock.connectors.file.compaction import FileCompactor, FileCompactStrategy
from penstock.connectors.file.sink import FileSink
from penstock.connectors.file.source import FileSource, FileSourceBuilder
from penstock.formats.file_format import BulkFormat, StreamFormat

__all__ = [
    "BucketAssigner",
    "BulkFormat",
    "DefaultRollingPolicy",
    "FileCompactStrategy",
    "FileCompactor",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "PartitionCommitPolicy",
    "RollingPolicy",
    "StreamFormat",
    "SuccessFilePolicy",
]
