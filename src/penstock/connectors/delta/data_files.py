"""Writes data files that are not yet part of the table, one per partition until it reaches the target size.

Column statistics of data files in the log: minimum, maximum and NULL count.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.delta.table import TablePlace, Texts, build_partition_path, by_partition

#: The number of leading columns with statistics (`delta.dataSkippingNumIndexedCols`).
COLUMNS: Final = 32
#: Longer text is truncated to this many characters.
_TEXT_LENGTH: Final = 32
#: Appended to truncated text to form an upper bound for all text with that prefix.
_ABOVE: Final = "\U0010ffff"


def encode_statistics(metadata: Any, schema: pa.Schema) -> str:
    """Return the statistics of a complete file, in the log's format. `metadata` is that of the Parquet file."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    plain = {field.name for field in list(schema)[:COLUMNS] if not pa.types.is_nested(field.type)}
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        if name not in plain:
            continue
        chunks = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
        if any(chunk is None or not chunk.has_null_count for chunk in chunks):
            continue
        nulls[name] = sum(chunk.null_count for chunk in chunks)
        valued = [chunk for chunk in chunks if chunk.num_values]
        if valued and all(chunk.has_min_max for chunk in valued):
            kind = schema.field(name).type
            try:
                low = _shown(min(chunk.min for chunk in valued), kind, False)
                high = _shown(max(chunk.max for chunk in valued), kind, True)
            except (OverflowError, ValueError):  # Python cannot represent this timestamp
                continue
            if low is not None and high is not None:
                least[name], greatest[name] = low, high
    return json.dumps(
        {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls},
        ensure_ascii=False,
    )


def _shown(value: Any, kind: pa.DataType, is_greatest: bool) -> Any:
    """Return a value in the log's format; None for types without statistics, such as floats."""
    if isinstance(value, str):
        if len(value) <= _TEXT_LENGTH:
            return value
        return value[:_TEXT_LENGTH] + (_ABOVE if is_greatest else "")
    if isinstance(value, float):
        # Parquet ignores NaN, but Spark orders it above all values, so readers would skip rows that they need.
        return None
    if isinstance(value, datetime.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text if kind.tz is None else f"{text}Z"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value if isinstance(value, int) and not isinstance(value, bool) else None


#: An open file buffers up to this many rows or bytes in memory.
GROUP_ROWS: Final = 1 << 16
GROUP_BYTES: Final = 16 << 20
#: A file of this size is closed and followed by a new one.
TARGET_BYTES: Final = 128 << 20


@dataclass(frozen=True, slots=True)
class DataFile:
    """A complete Parquet file.

    Attributes:
        path: the path relative to the table.
        size_bytes: the file size.
        partition: the values of the partition columns, in the log's format.
        statistics: the column statistics, in the log's format.
        written_ms: the time at which the file was written.
    """

    path: str
    size_bytes: int
    partition: Texts
    statistics: str
    written_ms: int


class _OpenFile:
    def __init__(self, files: Any, path: str, partition: Texts, schema: pa.Schema) -> None:
        self.path, self.partition = path, partition
        self._files, self._schema = files, schema
        self._stream = files.open_output_stream(path)
        self._writer = pq.ParquetWriter(self._stream, schema, compression="snappy")
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> int:
        """Write rows and return the approximate size of the file."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()
        return int(self._stream.tell()) + self._bytes

    def _flush(self) -> None:
        batches, self._batches, self._rows, self._bytes = self._batches, [], 0, 0
        if batches:
            self._writer.write_table(pa.Table.from_batches(batches, self._schema), row_group_size=GROUP_ROWS)

    def finish(self, now_ms: int) -> DataFile:
        self._flush()
        self._writer.close()
        size_bytes = int(self._stream.tell())
        self._stream.close()
        statistics = encode_statistics(self._writer.writer.metadata, self._schema)
        return DataFile(self.path, size_bytes, self.partition, statistics, now_ms)

    def discard(self) -> None:
        with contextlib.suppress(Exception):
            self._writer.close()
            self._stream.close()
            self._files.delete_file(self.path)


class DataFilesWriter:
    """Writes columns to files below a table.

    Args:
        location: the table's location.
        schema: the schema of the columns.
        partition_columns: the columns that are stored only in the log.
        stem: the prefix of the file names, unique to this writer.
        target_bytes: the target file size.
    """

    def __init__(
        self, location: TablePlace, schema: pa.Schema, partition_columns: tuple[str, ...], stem: str, target_bytes: int
    ) -> None:
        self._place = location
        self._files = location.files()
        self._partition_columns = partition_columns
        self._kept = [name for name in schema.names if name not in partition_columns]
        self._stored = pa.schema([schema.field(name) for name in self._kept])
        self._stem = stem
        self._target_bytes = target_bytes
        self._number = 0
        self._open: dict[Texts, _OpenFile] = {}
        self._whole: list[DataFile] = []

    def write(self, batch: pa.RecordBatch, now_ms: int) -> None:
        """Write rows that have the schema."""
        if not self._partition_columns:
            self._write((), batch, now_ms)
            return
        stored = batch.select(self._kept)
        partitions = list(by_partition([batch.column(name) for name in self._partition_columns]))
        for texts, rows in partitions:
            self._write(texts, stored if len(partitions) == 1 else stored.take(pa.array(rows)), now_ms)

    def _write(self, partition: Texts, batch: pa.RecordBatch, now_ms: int) -> None:
        file = self._open.get(partition)
        if file is None:
            directory = build_partition_path(self._partition_columns, partition)
            name = f"{self._stem}-c{self._number:03d}.snappy.parquet"
            self._number += 1
            path = f"{directory}/{name}" if directory else name
            file = self._open[partition] = _OpenFile(self._files, path, partition, self._stored)
        if file.write(batch) >= self._target_bytes:
            self._whole.append(self._open.pop(partition).finish(now_ms))

    def finish(self, now_ms: int) -> tuple[DataFile, ...]:
        """Close all files and return those not yet returned."""
        while self._open:
            self._whole.append(self._open.pop(next(iter(self._open))).finish(now_ms))
        finished, self._whole = tuple(self._whole), []
        self._place.make_durable([file.path for file in finished])
        return finished

    def discard(self) -> None:
        """Remove all files that `finish` has not returned."""
        for file in self._open.values():
            file.discard()
        for data_file in self._whole:
            with contextlib.suppress(Exception):
                self._files.delete_file(data_file.path)
        self._open, self._whole = {}, []
