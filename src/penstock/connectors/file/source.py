"""`FileSource`: reads files from any file system that fsspec supports, once or by monitoring paths."""

from __future__ import annotations

import datetime
import os
from typing import Any, Generic, TypeVar

from penstock.base.errors import ConfigurationError
from penstock.base.lineage import LineageDataset, name_location
from penstock.base.time import Duration, Time, to_millis
from penstock.connectors.file.filesystem import absolute_path
from penstock.connectors.file.reader import FileEnumerator, FileSourceReader, FileSplit
from penstock.formats.file_format import BulkFormat, StreamFormat
from penstock.runtime import connector

T = TypeVar("T")


class FileSource(connector.Source[T, FileSplit]):
    """Reads files (G8). Create one with `for_record_stream_format` or `for_bulk_file_format`.

    A path is a file, a directory (including everything below it) or a glob pattern; files and directories whose names
    begin with `.` or `_` are skipped. Files with a compression suffix (`.gz`, `.bz2`, `.xz`, `.zip` with a single file)
    are decompressed, each by one reader.

    Files must not change once they exist: a monitoring source finds new files, not new lines. Write a file under a
    hidden name and then rename it, as `FileSink` does.

    Examples:
        >>> from pathlib import Path
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import FileSource, StreamFormat
        >>> _ = Path("words.txt").write_text("tea")
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "words.txt").build()
        >>> env.from_source(source, WatermarkStrategy.no_watermarks(), "words").collect()
        ['tea']
    """

    def __init__(
        self,
        file_format: StreamFormat[T] | BulkFormat[T],
        paths: tuple[str, ...],
        interval_ms: int | None,
        split_bytes: int | None,
    ) -> None:
        self._format = file_format
        self._paths = paths
        self._interval_ms = interval_ms
        self._split_bytes = split_bytes

    @staticmethod
    def for_record_stream_format(
        stream_format: StreamFormat[T], *paths: str | os.PathLike[str]
    ) -> FileSourceBuilder[T]:
        """Return a builder of a source of line-based files: text, CSV, JSON lines.

        Raises:
            ConfigurationError: if the format is of another kind or no path is given.
        """
        if not isinstance(stream_format, StreamFormat):
            raise ConfigurationError(f"for_record_stream_format takes a StreamFormat, not {stream_format!r}")
        return FileSourceBuilder(stream_format, *paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: BulkFormat[T], *paths: str | os.PathLike[str]) -> FileSourceBuilder[T]:
        """Return a builder of a source of files that consist of large units: Parquet.

        Raises:
            ConfigurationError: if the format is of another kind or no path is given.
        """
        if not isinstance(bulk_format, BulkFormat):
            raise ConfigurationError(f"for_bulk_file_format takes a BulkFormat, not {bulk_format!r}")
        return FileSourceBuilder(bulk_format, *paths)

    @property
    def boundedness(self) -> connector.Boundedness:
        """Unbounded if the source monitors its paths."""
        return (
            connector.Boundedness.BOUNDED if self._interval_ms is None else connector.Boundedness.CONTINUOUS_UNBOUNDED
        )

    def describe_lineage(self) -> tuple[LineageDataset, ...]:
        """Return the paths."""
        return self.lineage or tuple(LineageDataset(*name_location(str(path))) for path in self._paths)

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[FileSplit], restored: Any | None
    ) -> connector.SplitEnumerator[FileSplit]:
        """Create an enumerator, or restore one from a result of `snapshot_state`."""
        splittable = not isinstance(self._format, StreamFormat) or self._format.splittable
        return FileEnumerator(context, self._paths, splittable, self._split_bytes, self._interval_ms, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[T, FileSplit]:
        """Create a reader for one subtask."""
        return FileSourceReader(context, self._format)


class FileSourceBuilder(Generic[T]):
    """Collects the settings of a `FileSource`.

    Examples:
        >>> from penstock.common import Duration
        >>> from penstock.datastream.connectors import FileSource, StreamFormat
        >>> builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "words")
        >>> source = builder.monitor_continuously(Duration.of_seconds(10)).build()
        >>> source.boundedness.name
        'CONTINUOUS_UNBOUNDED'
    """

    def __init__(self, file_format: StreamFormat[T] | BulkFormat[T], *paths: str | os.PathLike[str]) -> None:
        if not paths:
            raise ConfigurationError("a FileSource needs at least one path")
        self._format = file_format
        self._paths = tuple(map(absolute_path, paths))
        self._interval_ms: int | None = None
        self._split_bytes: int | None = None

    def monitor_continuously(
        self, discovery_interval: Duration | Time | datetime.timedelta | int
    ) -> FileSourceBuilder[T]:
        """Discover new files repeatedly at this interval (an int counts ms); the source never ends.

        Raises:
            ConfigurationError: if the interval is not positive.
        """
        self._interval_ms = to_millis(discovery_interval)
        if self._interval_ms <= 0:
            raise ConfigurationError(f"the discovery interval must be positive, not {self._interval_ms} ms")
        return self

    def process_static_file_set(self) -> FileSourceBuilder[T]:
        """Discover files once, and end when all are read; the default."""
        self._interval_ms = None
        return self

    def set_split_size(self, split_bytes: int) -> FileSourceBuilder[T]:
        """Set the size in bytes of the splits of large files; by default each reader gets one, of 1 to 16 MiB.

        Raises:
            ConfigurationError: if the size is not positive.
        """
        if split_bytes <= 0:
            raise ConfigurationError(f"the split size must be positive, not {split_bytes}")
        self._split_bytes = split_bytes
        return self

    def build(self) -> FileSource[T]:
        """Build the source."""
        return FileSource(self._format, self._paths, self._interval_ms, self._split_bytes)
