"""`FileSink`: writes files in any file system that fsspec knows, exactly once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from typing import Any, Generic, Self, TypeVar

from penstock.base.durable_files import check_outlives
from penstock.base.errors import ConfigurationError
from penstock.base.typeinfo import TypeInformation
from penstock.codecs.serialization import BulkWriterFactory, Encoder, SerializationSchema
from penstock.connectors.file.buckets import BucketAssigner
from penstock.connectors.file.commit_log import FileCommitLog
from penstock.connectors.file.committer import FAIL, IGNORE, FileCommittable, FileCommitter
from penstock.connectors.file.filesystem import absolute_path
from penstock.connectors.file.part_names import PartNames, staging_directory
from penstock.connectors.file.rolling import OutputFileConfig, RollingPolicy
from penstock.connectors.file.writer import FileWriter
from penstock.core.connector import CommitLog, Committer, Sink, SinkWriter, SinkWriterContext

T = TypeVar("T")
RecordT = TypeVar("RecordT")
Encoding = Encoder[Any] | SerializationSchema[Any] | BulkWriterFactory[Any]


class FileSink(Sink[T]):
    """Writes records to files below a directory, each exactly once (G9).

    Make one with `for_row_format` or `for_bulk_format`.

    A file is written in the hidden directory `.penstock` below the base path, and renamed once the checkpoint that
    covers it has completed. Readers that leave out hidden files therefore see whole files only, and each record once.
    Files end at every checkpoint at the latest: the interval between checkpoints sets how many there are. Without
    checkpoints all files appear at the end of the input; in a batch, all of them or none.

    A job that is killed may leave hidden files behind. Its next attempt removes those that no checkpoint or savepoint
    names. Any other job with a sink at this path removes those that were never closed.
    """

    def __init__(
        self,
        base_path: str,
        encoding: Encoding,
        bucket_assigner: BucketAssigner,
        rolling_policy: RollingPolicy,
        file_config: OutputFileConfig,
        missing: str = IGNORE,
    ) -> None:
        self._base_path = base_path
        self._encoding = encoding
        self._bucket_assigner = bucket_assigner
        self._rolling_policy = rolling_policy
        self._file_config = file_config
        self._missing = missing

    @staticmethod
    def for_row_format(
        base_path: str | os.PathLike[str], encoder: Encoder[T] | SerializationSchema[T]
    ) -> FileSink.RowFormatBuilder[T]:
        """Starts a sink that writes record after record; a schema's messages get a line feed each.

        Raises:
            ConfigurationError: if `encoder` is neither an encoder nor a schema.
        """
        if not isinstance(encoder, Encoder | SerializationSchema):
            raise ConfigurationError(f"for_row_format takes an Encoder or a SerializationSchema, not {encoder!r}")
        return FileSink.RowFormatBuilder(base_path, encoder)

    @staticmethod
    def for_bulk_format(
        base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory[T]
    ) -> FileSink.BulkFormatBuilder[T]:
        """Starts a sink that writes by bulk writers, such as CSV's or Parquet's.

        Raises:
            ConfigurationError: if `writer_factory` is not a writer factory.
        """
        if not isinstance(writer_factory, BulkWriterFactory):
            raise ConfigurationError(f"for_bulk_format takes a BulkWriterFactory, not {writer_factory!r}")
        return FileSink.BulkFormatBuilder(base_path, writer_factory)

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[T, FileCommittable]:
        """A writer for one subtask."""
        return self._writer(context, 0)

    def restore_writer(self, context: SinkWriterContext, state: Sequence[Any]) -> SinkWriter[T, FileCommittable]:
        """A writer after a recovery; it does not reuse the numbers of a writer of the checkpoint."""
        return self._writer(context, max(state, default=0))

    def create_committer(self, context: SinkWriterContext) -> Committer[FileCommittable]:
        """The committer, which renames."""
        staging = staging_directory(self._base_path, context.job_id, context.operator_id)
        return FileCommitter(staging, self._missing)

    def create_commit_log(self, context: SinkWriterContext, job_name: str) -> CommitLog:
        """A list of part files, beside them."""
        staging = staging_directory(self._base_path, context.job_id, context.operator_id)
        return FileCommitLog(self._base_path, staging, job_name)

    def for_type(self, type_info: TypeInformation | None) -> FileSink[T]:
        """The sink for records of a declared type, which say how text looks (`Encoder.simple_string_encoder`)."""
        if not isinstance(self._encoding, Encoder):
            return self
        sink: FileSink[T] = copy(self)
        sink._encoding = self._encoding.for_type(type_info)
        return sink

    def _writer(self, context: SinkWriterContext, counter: int) -> FileWriter:
        config = self._file_config
        names = PartNames.of(context, self._base_path, config.part_prefix, config.part_suffix)
        return FileWriter(
            context, self._base_path, self._encoding, self._bucket_assigner, self._rolling_policy, names, counter
        )

    class BaseBuilder(Generic[RecordT]):
        """Collects the settings of a `FileSink`."""

        def __init__(self, base_path: str | os.PathLike[str], encoding: Encoding) -> None:
            check_outlives(os.fspath(base_path))
            self._base_path = absolute_path(base_path)
            self._encoding = encoding
            self._bucket_assigner = BucketAssigner.date_time_bucket_assigner()
            self._rolling_policy: RollingPolicy = RollingPolicy.default_rolling_policy()
            self._file_config = OutputFileConfig()
            self._missing = IGNORE

        def build(self) -> FileSink[RecordT]:
            """The sink."""
            return FileSink(
                self._base_path,
                self._encoding,
                self._bucket_assigner,
                self._rolling_policy,
                self._file_config,
                self._missing,
            )

        def with_missing_part_files(self, missing: str) -> Self:
            """Sets what a job does if a file of the checkpoint that it begins from was taken away, or changed.

            `ignore`, the default: the file was made visible before, and a reader of the output took it away; the job
            goes on, and says so in its log. `fail`: the job fails.

            Raises:
                ConfigurationError: if it is neither.
            """
            if missing not in (IGNORE, FAIL):
                raise ConfigurationError(f"with_missing_part_files takes {IGNORE!r} or {FAIL!r}, not {missing!r}")
            self._missing = missing
            return self

        def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
            """Sets which record goes into which directory; by hours of time unless set."""
            self._bucket_assigner = bucket_assigner
            return self

        def with_bucket_check_interval(self, interval: int) -> Self:
            """Accepted for PyFlink programs (ms). Limits by time are checked with every batch instead."""
            return self

        def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
            """Sets when a file ends before the next checkpoint."""
            self._rolling_policy = rolling_policy
            return self

        def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
            """Sets how files are called."""
            self._file_config = output_file_config
            return self

    class RowFormatBuilder(BaseBuilder[RecordT]):
        """Collects the settings of a sink of rows."""

    class BulkFormatBuilder(BaseBuilder[RecordT]):
        """Collects the settings of a sink by bulk writers, whose files end at checkpoints only unless set otherwise."""

        def __init__(self, base_path: str | os.PathLike[str], encoding: Encoding) -> None:
            super().__init__(base_path, encoding)
            self._rolling_policy = RollingPolicy.on_checkpoint_rolling_policy()
