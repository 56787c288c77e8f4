"""A Delta Lake table: its location, errors, column types, partition values, column statistics and data files.

delta-rs is an optional dependency, imported on use; the error says how to install it. The errors of a table would recur
in another attempt, so they fail the job without a restart.

Delta Lake's column types are a subset of Arrow's. The value of a partition column is constant in a data file, and
stored as text in the table's log. The log also has the column statistics of a data file: minimum, maximum and NULL
count.

`DataFilesWriter` writes data files that are not yet part of the table, one per partition until it reaches the target
size.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from penstock.base.errors import ConfigurationError, FormatError, OperationError, PenstockError, UnsupportedError
from penstock.base.typeinfo import RowTypeInfo
from penstock.codecs.arrow_columns import arrow_schema, arrow_type, exact_cast, get_map_key_type
from penstock.connectors.base import require

if TYPE_CHECKING:
    from deltalake import DeltaTable


def require_library() -> None:
    """Raise `ConfigurationError` unless the library is installed."""
    require("deltalake", "Delta Lake", "deltalake", "delta")


class CommitError(PenstockError, RuntimeError):
    """Raised when a file that a checkpoint names is missing, so its rows cannot be committed."""

    suppresses_restart = True


class MissingTableError(PenstockError, FileNotFoundError):
    """Raised when a table, or one of its files, does not exist."""

    suppresses_restart = True


class TableMismatchError(FormatError):
    """Raised when a table lacks columns that the source reads."""

    suppresses_restart = True


class VersionError(OperationError):
    """Raised when a version is no longer in the log, or makes changes that the source is not configured to read."""

    suppresses_restart = True


class UnsupportedTableError(OperationError, NotImplementedError):
    """Raised when a table has features that are not supported, or rules that the sink does not enforce."""

    suppresses_restart = True


#: Matches delta-rs errors about table features that it cannot read.
def list_invariants(table: DeltaTable) -> None:
    """List the feature of NOT NULL in the protocol of a new table: delta-rs leaves it out, and Spark refuses the table.

    An old protocol, which lists no features, implies it. The addition is a version without rows.
    """
    from deltalake import TableFeatures

    features = table.protocol().writer_features
    if features and "invariants" not in features and '"nullable":false' in table.schema().to_json().replace(" ", ""):
        table.alter.add_feature(TableFeatures.Invariants, allow_protocol_versions_increase=True)


_UNSUPPORTED: Final = re.compile("not supported|unsupported|column mapping|catalog-managed", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A directory, local or in an object store.

    Attributes:
        path: an absolute path or a URL.
        options: the storage options of delta-rs, such as `aws_region`; others come from the environment.
    """

    path: str
    options: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(path: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> TablePlace:
        """Return the location for a path, in a form that is valid on every machine."""
        text = os.fspath(path)
        if text.startswith("file://"):
            text = text.removeprefix("file://")
        if "://" not in text:
            text = os.path.abspath(text)
        return TablePlace(text.rstrip("/") or "/", tuple(sorted((options or {}).items())))

    @property
    def is_local(self) -> bool:
        """Whether the table is in the local file system."""
        return "://" not in self.path

    def exists(self) -> bool:
        """Return whether the table exists."""
        require_library()
        from deltalake import DeltaTable

        return bool(DeltaTable.is_deltatable(self.path, dict(self.options)))

    def open(self, version: int | None = None) -> DeltaTable:
        """Open the table at its newest version or at the given one.

        Raises:
            MissingTableError: if the table does not exist.
            UnsupportedTableError: for a table with features that delta-rs does not support.
        """
        require_library()
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return DeltaTable(self.path, version=version, storage_options=dict(self.options))
        except TableNotFoundError as error:
            raise MissingTableError(f"there is no Delta table at {self.path}: {_first_line(error)}") from error
        except DeltaError as error:
            if not _UNSUPPORTED.search(str(error)):
                raise
            raise UnsupportedTableError(
                f"the Delta table {self.path} cannot be opened: {_first_line(error)}. Drop the feature, or use a copy "
                "of the table"
            ) from error

    def files(self) -> pafs.FileSystem:
        """Return the table's file system, with paths relative to the table."""
        require_library()
        from deltalake.fs import DeltaStorageHandler

        if self.is_local:
            os.makedirs(self.path, exist_ok=True)
        return pafs.PyFileSystem(DeltaStorageHandler(self.path, dict(self.options)))

    def make_durable(self, paths: Sequence[str]) -> None:
        """Sync written files and their directory entries to disk before they are referenced."""
        if not self.is_local:
            return
        directories = set()
        for path in paths:
            full = os.path.join(self.path, path)
            _sync(full)
            while full != self.path:
                full = os.path.dirname(full)
                directories.add(full)
        for directory in directories:
            _sync(directory)


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def read_arrow_schema(table: Any) -> pa.Schema:
    """Return the Arrow schema of an open table."""
    return pa.schema(table.schema().to_arrow())


def columns_of_type(row_type: Any, owner: str) -> pa.Schema:
    """Return the columns of a row type, of a dict from name to type, or of an Arrow schema.

    Raises:
        ConfigurationError: for anything else; the message names `owner`.
    """
    if isinstance(row_type, RowTypeInfo):
        return arrow_schema(row_type)
    if isinstance(row_type, dict):
        return pa.schema([(name, arrow_type(kind)) for name, kind in row_type.items()])
    if isinstance(row_type, pa.Schema) and len(row_type):
        return row_type
    raise ConfigurationError(f"{owner} needs a row type, a dict of types or an Arrow schema, not {row_type!r}")


def stored_schema(columns: pa.Schema) -> pa.Schema:
    """Convert columns to the table's storage types; all are nullable.

    Raises:
        UnsupportedError: for a column type that Delta Lake does not have; the message names the column.
    """
    return pa.schema([pa.field(field.name, stored_type(field.type, field.name)) for field in columns])


def stored_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the table's storage type for a type. Raises as `stored_schema` does."""
    types = pa.types
    if types.is_timestamp(kind):
        if kind.unit == "ns":
            raise _unsupported(column, kind, "points in time have microseconds: use 6 digits, TIMESTAMP(6)")
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, stored_type(field.type, f"{column}.{field.name}")) for field in kind])
    if types.is_map(kind):
        return pa.map_(stored_type(get_map_key_type(kind), column), stored_type(kind.item_type, column))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(stored_type(kind.value_type, column))
    if types.is_dictionary(kind):
        return stored_type(kind.value_type, column)
    is_plain = types.is_boolean(kind) or types.is_signed_integer(kind) or types.is_date32(kind)
    if is_plain or kind in (pa.string(), pa.binary(), pa.float32(), pa.float64()):
        return kind
    if types.is_decimal128(kind):
        return kind
    raise _unsupported(column, kind, "store it as a number or as text")


def _unsupported(column: str, kind: pa.DataType, advice: str) -> UnsupportedError:
    return UnsupportedError(f"column {column!r} has the type {kind}, which Delta Lake does not have: {advice}")


def is_same(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether two table types are equal, ignoring Arrow's list item names and nullability."""
    return bool(stored_type(kind, "") == stored_type(other, ""))


#: Other characters become `_` in directory names, which are only for humans: the log has the values.
_STRANGE: Final = re.compile(r"[^A-Za-z0-9.=_-]")
_NAME_LENGTH_MAX: Final = 64
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
Texts = tuple[str | None, ...]


def check_partition_type(column: str, kind: pa.DataType) -> None:
    """Raise `UnsupportedError` for a column whose values cannot be converted to text and back."""
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise UnsupportedError(f"a Delta table cannot be partitioned by column {column!r} of type {kind}")


def to_log_texts(column: pa.Array) -> pa.Array:
    """Convert values to the log's text format."""
    kind = column.type
    if pa.types.is_string(kind):
        # Delta Lake has no empty strings here: it reads them as NULL.
        return pc.if_else(pc.equal(column, ""), None, column)
    texts = column.cast(pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        texts = pc.replace_substring(texts, " ", "T", max_replacements=1)
    return texts


def parse_value(text: str | None, kind: pa.DataType, column: str) -> pa.Scalar:
    """Parse a value from the log's text format. Raises `FormatError` for invalid text."""
    if text is None or text == "":
        return pa.scalar(None, kind)
    try:
        if pa.types.is_timestamp(kind) and kind.tz is not None and not re.search(r"(Z|[+-]\d\d:?\d\d)$", text):
            text += "Z"
        return exact_cast(pa.array([text], pa.string()), kind)[0]
    except pa.ArrowException as error:
        raise FormatError(f"partition column {column!r} has the value {text!r}, which is no {kind}") from error


def build_partition_path(names: Sequence[str], texts: Texts) -> str:
    """Return the directory for files of a partition; empty if there are no partition columns."""
    parts = [f"{name}={_NULL if text is None else text}" for name, text in zip(names, texts, strict=True)]
    return "/".join(_STRANGE.sub("_", part)[:_NAME_LENGTH_MAX] for part in parts)


def by_partition(columns: Sequence[pa.Array]) -> Iterator[tuple[Texts, Any]]:
    """Yield the texts of each partition among the rows and the indices of its rows, in order."""
    codes = np.zeros(len(columns[0]), np.int64)
    dictionaries = []
    for column in columns:
        encoded = to_log_texts(column).dictionary_encode(null_encoding="encode")
        dictionaries.append(encoded.dictionary.to_pylist())
        codes = codes * len(dictionaries[-1]) + encoded.indices.to_numpy(zero_copy_only=False)
    unique_codes, inverse = np.unique(codes, return_inverse=True)
    for number, code in enumerate(unique_codes.tolist()):
        texts: list[str | None] = []
        for dictionary in reversed(dictionaries):
            code, index = divmod(code, len(dictionary))
            texts.append(dictionary[index])
        yield tuple(reversed(texts)), np.flatnonzero(inverse == number)


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
