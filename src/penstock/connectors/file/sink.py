"""`FileSink`: writes files in any file system that fsspec knows, exactly once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar

from penstock.common.errors import ConfigurationError
from penstock.common.serialization import BulkWriterFactory, Encoder, SerializationSchema
from penstock.connectors.file.buckets import BucketAssigner
from penstock.connectors.file.committer import FileCommittable, FileCommitter
from penstock.connectors.file.filesystem import absolute_path
from penstock.connectors.file.part_names import PartNames
from penstock.connectors.file.rolling import OutputFileConfig, RollingPolicy
from penstock.connectors.file.writer import FileWriter
from penstock.core.connector import Committer, Sink, SinkWriter, SinkWriterContext

T = TypeVar("T")
RecordT = TypeVar("RecordT")
Encoding = Encoder[Any] | SerializationSchema[Any] | BulkWriterFactory[Any]


class FileSink(Sink[T]):
    """Writes records to files below a directory, each exactly once (G9).

    Make one with `for_row_format` or `for_bulk_format`.

    A file is written under a hidden name (it begins with `.`) and renamed once the checkpoint that covers it has
    completed. So readers that leave out hidden files see whole files only, and each record once. Files end at every
    checkpoint at the latest: the interval between checkpoints sets how many there are. Without checkpoints all files
    appear at the end of the input.

    A job that is killed for good may leave hidden files behind; a later attempt of the same job removes them.
    """

    def __init__(
        self,
        base_path: str,
        encoding: Encoding,
        bucket_assigner: BucketAssigner,
        rolling_policy: RollingPolicy,
        file_config: OutputFileConfig,
    ) -> None:
        self._base_path = base_path
        self._encoding = encoding
        self._bucket_assigner = bucket_assigner
        self._rolling_policy = rolling_policy
        self._file_config = file_config

    @staticmethod
    def for_row_format(
        base_path: str | os.PathLike[str], encoder: Encoder[T] | SerializationSchema[T]
    ) -> FileSink.RowFormatBuilder[T]:
        """Starts a sink that writes record after record; a schema's messages get a line feed each.

        Raises:
            ConfigurationError: if `encoder` is none.
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
            ConfigurationError: if `writer_factory` is none.
        """
        if not isinstance(writer_factory, BulkWriterFactory):
            raise ConfigurationError(f"for_bulk_format takes a BulkWriterFactory, not {writer_factory!r}")
        return FileSink.BulkFormatBuilder(base_path, writer_factory)

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[T, FileCommittable]:
        """A writer for one subtask."""
        return self._writer(context, 0)

    def restore_writer(self, context: SinkWriterContext, state: Sequence[Any]) -> SinkWriter[T, FileCommittable]:
        """A writer after a recovery; it uses no number again that a writer of the checkpoint had used."""
        return self._writer(context, max(state, default=0))

    def create_committer(self, context: SinkWriterContext) -> Committer[FileCommittable]:
        """The committer, which renames."""
        return FileCommitter()

    def _writer(self, context: SinkWriterContext, counter: int) -> FileWriter:
        names = PartNames.of(context, self._file_config.part_prefix, self._file_config.part_suffix)
        return FileWriter(
            context, self._base_path, self._encoding, self._bucket_assigner, self._rolling_policy, names, counter
        )

    class BaseBuilder(Generic[RecordT]):
        """Collects the settings of a `FileSink`."""

        def __init__(self, base_path: str | os.PathLike[str], encoding: Encoding) -> None:
            self._base_path = absolute_path(base_path)
            self._encoding = encoding
            self._bucket_assigner = BucketAssigner.date_time_bucket_assigner()
            self._rolling_policy: RollingPolicy = RollingPolicy.default_rolling_policy()
            self._file_config = OutputFileConfig()

        def build(self) -> FileSink[RecordT]:
            """The sink."""
            return FileSink(
                self._base_path, self._encoding, self._bucket_assigner, self._rolling_policy, self._file_config
            )

        def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
            """Sets which record goes into which directory; by hours of time unless set."""
            self._bucket_assigner = bucket_assigner
            return self

        def with_bucket_check_interval(self, interval: int) -> Self:
            """Accepted for PyFlink programs (ms). Limits by time are looked at with every batch instead."""
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
