"""Merging of small files before they become visible: when (`FileCompactStrategy`), and how (`FileCompactor`).

The sink's coordinator (`commit_coordinator`) keeps the files of a bucket until the strategy says that they are merged,
and then commits them as one `MergedFile`. The committer writes the merged file under a hidden name, makes it visible,
and only then removes its inputs. So a commit that is repeated finds either all inputs, and merges them again to the
same file, or the merged file. Source: Flink's `FileSink`, "Compaction".
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from penstock.base.errors import ConfigurationError, FormatError
from penstock.connectors.file.committer import FileCommittable
from penstock.formats.avro import read_header

#: precedes the name of the first of the files that were merged
PREFIX: Final = "compacted-"
#: how many bytes of rows are put into a row group of a merged file
_GROUP_BYTES: Final = 128 << 20
_GROUP_ROWS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class MergedFile:
    """A file to be made of others, which no longer exist afterwards.

    Attributes:
        inputs: the files, all of one bucket, in the order of their rows.
    """

    inputs: tuple[FileCommittable, ...]

    @property
    def final_path(self) -> str:
        """The path of the merged file: that of the first input, with a prefix."""
        directory, _, name = self.inputs[0].final_path.rpartition("/")
        return f"{directory}/{PREFIX}{name}"

    @property
    def hidden_path(self) -> str:
        """The path under which the merged file is written, in the staging directory of the first input."""
        directory, _, name = self.inputs[0].hidden_path.rpartition("/")
        return f"{directory}/.{PREFIX}{name.removeprefix('.')}"


class FileCompactor(ABC):
    """Merges files into one, of the same rows.

    Examples:
        >>> import io
        >>> from penstock.datastream.connectors.file_system import FileCompactor
        >>> merged = io.BytesIO()
        >>> FileCompactor.concat_file_compactor(b";").compact([io.BytesIO(b"tea"), io.BytesIO(b"rum")], merged)
        >>> merged.getvalue()
        b'tea;rum'
    """

    @abstractmethod
    def compact(self, inputs: Sequence[BinaryIO], output: BinaryIO) -> None:
        """Write the rows of all inputs, in order.

        The same inputs must give the same rows: after a failure it may be called again.
        """

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """Return a compactor that writes the bytes of one file after the other, with a delimiter between two."""
        return _Concat(file_delimiter or b"")

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """Return a compactor that copies its only input; it raises for several. Strategies then only delay files."""
        return _Identical()

    @staticmethod
    def format_file_compactor() -> FileCompactor:
        """Return a compactor that goes by the first bytes of files: rows of Parquet, ORC and Avro, bytes of others.

        Files with a line of column names at the beginning cannot be merged by it.
        """
        return _ByFormat()


class _Concat(FileCompactor):
    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter

    def compact(self, inputs: Sequence[BinaryIO], output: BinaryIO) -> None:
        for number, file in enumerate(inputs):
            if number and self._delimiter:
                output.write(self._delimiter)
            shutil.copyfileobj(file, output)


class _Identical(FileCompactor):
    def compact(self, inputs: Sequence[BinaryIO], output: BinaryIO) -> None:
        if len(inputs) != 1:
            raise ConfigurationError(
                f"identical_file_compactor copies a single file, and there are {len(inputs)}: use "
                "concat_file_compactor or format_file_compactor"
            )
        shutil.copyfileobj(inputs[0], output)


class _ByFormat(FileCompactor):
    def compact(self, inputs: Sequence[BinaryIO], output: BinaryIO) -> None:
        magic = inputs[0].read(4)
        for file in inputs:
            file.seek(0)
        if magic == b"PAR1":
            _merge_parquet(inputs, output)
        elif magic.startswith(b"ORC"):
            _merge_orc(inputs, output)
        elif magic == b"Obj\x01":
            _merge_avro(inputs, output)
        else:
            _Concat(b"").compact(inputs, output)


def _merge_parquet(inputs: Sequence[BinaryIO], output: BinaryIO) -> None:
    files = [pq.ParquetFile(file) for file in inputs]
    schema = files[0].schema_arrow
    codecs = {
        files[0].metadata.row_group(0).column(index).compression
        for index in range(files[0].metadata.num_columns if files[0].num_row_groups else 0)
    }
    compression = codecs.pop().lower() if len(codecs) == 1 else "snappy"
    compression = "none" if compression == "uncompressed" else compression
    batches = (batch for file in files for batch in file.iter_batches())
    with pq.ParquetWriter(output, schema, compression=compression, store_decimal_as_integer=True) as writer:
        for table in _group(batches, schema):
            writer.write_table(table, row_group_size=_GROUP_ROWS)


def _merge_orc(inputs: Sequence[BinaryIO], output: BinaryIO) -> None:
    files = [orc.ORCFile(file) for file in inputs]
    schema = files[0].schema
    batches = (file.read_stripe(stripe) for file in files for stripe in range(file.nstripes))
    writer = orc.ORCWriter(output, compression=files[0].compression.lower(), file_version="0.12")
    is_empty = True
    for table in _group(batches, schema):
        writer.write(table)
        is_empty = False
    if is_empty:  # Arrow derives the columns of a file from the data written to it
        writer.write(schema.empty_table())
    writer.close()


def _group(batches: Iterator[Any], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield tables of about the size of a row group."""
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        if batch.schema != schema:
            batch = batch.cast(schema)  # the metadata of a column may differ
        waiting.append(batch)
        rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
        if rows >= _GROUP_ROWS or size_bytes >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting, schema)
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def _merge_avro(inputs: Sequence[BinaryIO], output: BinaryIO) -> None:
    """Write one header and the blocks of all files: their marks are equal, being made of the schema."""
    header = read_header(inputs[0])
    output.write(header)
    for number, file in enumerate(inputs):
        if number and read_header(file) != header:
            raise FormatError("Avro files with different headers cannot be merged")
        shutil.copyfileobj(file, output)


@dataclass(frozen=True, slots=True)
class FileCompactStrategy:
    """When the files of a bucket are merged. Build one with `builder`; at least one condition is needed.

    Attributes:
        checkpoints: merge a bucket's files after so many checkpoints; None for no such condition.
        size_threshold: merge them once they have so many bytes; None for no such condition.
        compact_threads: how many files are merged at the same time.
        target_bytes: make several files of one bucket rather than one that is larger; None for a single file.

    Examples:
        >>> from penstock.datastream.connectors.file_system import FileCompactStrategy
        >>> strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(5).set_size_threshold(1 << 20)
        >>> strategy.build().checkpoints
        5
    """

    checkpoints: int | None = None
    size_threshold: int | None = None
    compact_threads: int = 1
    target_bytes: int | None = None

    @staticmethod
    def builder() -> FileCompactStrategy.Builder:
        """Return a builder."""
        return FileCompactStrategy.Builder()

    class Builder:
        """Collects the settings of a `FileCompactStrategy`."""

        def __init__(self) -> None:
            self._checkpoints: int | None = None
            self._size_threshold: int | None = None
            self._compact_threads = 1

        def enable_compaction_on_checkpoint(
            self, num_checkpoints_before_compaction: int
        ) -> FileCompactStrategy.Builder:
            """Merge a bucket's files once so many checkpoints have passed since the last time.

            Raises:
                ConfigurationError: if the number is below 1.
            """
            self._checkpoints = _check("enable_compaction_on_checkpoint", num_checkpoints_before_compaction)
            return self

        def set_size_threshold(self, size_threshold: int) -> FileCompactStrategy.Builder:
            """Merge a bucket's files once they have so many bytes.

            Raises:
                ConfigurationError: if the number is below 1.
            """
            self._size_threshold = _check("set_size_threshold", size_threshold)
            return self

        def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategy.Builder:
            """Set how many files are merged at the same time; 1 by default.

            Raises:
                ConfigurationError: if the number is below 1.
            """
            self._compact_threads = _check("set_num_compact_threads", num_compact_threads)
            return self

        def build(self) -> FileCompactStrategy:
            """Build the strategy.

            Raises:
                ConfigurationError: without a condition.
            """
            if self._checkpoints is None and self._size_threshold is None:
                raise ConfigurationError(
                    "a FileCompactStrategy never merges anything without enable_compaction_on_checkpoint() or "
                    "set_size_threshold()"
                )
            return FileCompactStrategy(self._checkpoints, self._size_threshold, self._compact_threads)


def _check(method: str, number: int) -> int:
    if number < 1:
        raise ConfigurationError(f"{method} takes a number of at least 1, not {number}")
    return number


@dataclass(frozen=True, slots=True)
class Compaction:
    """When files are merged, and how."""

    strategy: FileCompactStrategy
    compactor: FileCompactor

    def split(self, files: Sequence[FileCommittable]) -> list[FileCommittable | MergedFile]:
        """Return what becomes visible of the files of a bucket: files of about the target size, in order."""
        target = self.strategy.target_bytes
        groups: list[list[FileCommittable]] = []
        size_bytes = 0
        for file in files:
            if not groups or (target is not None and size_bytes + file.size_bytes > target):
                groups.append([])
                size_bytes = 0
            groups[-1].append(file)
            size_bytes += file.size_bytes
        return [group[0] if len(group) == 1 else MergedFile(tuple(group)) for group in groups]
