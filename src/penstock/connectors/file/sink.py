"""`FileSink`: writes files to any file system that fsspec supports, exactly once."""

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

    Create one with `for_row_format` or `for_bulk_format`.

    A file is written in the hidden directory `.penstock` below the base path, and renamed once its checkpoint has
    completed. Readers that skip hidden files therefore see only complete files, and each record once. Files end at
    every checkpoint at the latest, so the checkpoint interval determines how many there are. Without checkpoints all
    files appear at the end of the input; in a batch, all of them or none.

    A killed job may leave hidden files. Its next attempt removes files that no checkpoint or savepoint names. Any other
    job with a sink at this path removes files that were never closed.
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
        """Return a builder of a sink that writes record by record; a line feed follows each message of a schema.

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
        """Return a builder of a sink that uses bulk writers, such as those of CSV or Parquet.

        Raises:
            ConfigurationError: if `writer_factory` is not a writer factory.
        """
        if not isinstance(writer_factory, BulkWriterFactory):
            raise ConfigurationError(f"for_bulk_format takes a BulkWriterFactory, not {writer_factory!r}")
        return FileSink.BulkFormatBuilder(base_path, writer_factory)

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[T, FileCommittable]:
        """Create a writer for one subtask."""
        return self._writer(context, 0)

    def restore_writer(self, context: SinkWriterContext, state: Sequence[Any]) -> SinkWriter[T, FileCommittable]:
        """Create a writer after a recovery, which does not reuse the file numbers of the checkpoint's writer."""
        return self._writer(context, max(state, default=0))

    def create_committer(self, context: SinkWriterContext) -> Committer[FileCommittable]:
        """Create the committer, which renames files."""
        staging = staging_directory(self._base_path, context.job_id, context.operator_id)
        return FileCommitter(staging, self._missing)

    def create_commit_log(self, context: SinkWriterContext, job_name: str) -> CommitLog:
        """Create the commit log, a list of part files beside them."""
        staging = staging_directory(self._base_path, context.job_id, context.operator_id)
        return FileCommitLog(self._base_path, staging, job_name)

    def for_type(self, type_info: TypeInformation | None) -> FileSink[T]:
        """Return the sink for a declared record type, which defines the text (`Encoder.simple_string_encoder`)."""
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
            """Build the sink."""
            return FileSink(
                self._base_path,
                self._encoding,
                self._bucket_assigner,
                self._rolling_policy,
                self._file_config,
                self._missing,
            )

        def with_missing_part_files(self, missing: str) -> Self:
            """Set how to handle a missing or changed file of the checkpoint that the job starts from.

            `ignore`, the default, assumes that the file became visible and a reader of the output removed it; the job
            continues and logs a warning. `fail` fails the job.

            Raises:
                ConfigurationError: for any other value.
            """
            if missing not in (IGNORE, FAIL):
                raise ConfigurationError(f"with_missing_part_files takes {IGNORE!r} or {FAIL!r}, not {missing!r}")
            self._missing = missing
            return self

        def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
            """Set how records are assigned to directories; by the hour of writing by default."""
            self._bucket_assigner = bucket_assigner
            return self

        def with_bucket_check_interval(self, interval: int) -> Self:
            """Accept PyFlink's setting (ms) without effect. Time limits are checked with every batch instead."""
            return self

        def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
            """Set when a file ends before the next checkpoint."""
            self._rolling_policy = rolling_policy
            return self

        def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
            """Set the names of part files."""
            self._file_config = output_file_config
            return self

    class RowFormatBuilder(BaseBuilder[RecordT]):
        """Collects the settings of a row-format sink."""

    class BulkFormatBuilder(BaseBuilder[RecordT]):
        """Collects the settings of a bulk-format sink, whose files end only at checkpoints by default."""

        def __init__(self, base_path: str | os.PathLike[str], encoding: Encoding) -> None:
            super().__init__(base_path, encoding)
            self._rolling_policy = RollingPolicy.on_checkpoint_rolling_policy()
