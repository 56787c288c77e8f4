"""Files that a `filesystem` table writes, each row exactly once; Hive-style partition directories; and the options.

A partition's directory has a name such as `day=2020-12-30/hour=12`. `WantedPartitions` are the partitions that a query
needs, by its conditions on partition columns. `TableFilesSink` writes a directory for each partition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import FormatError, UnsupportedError
from penstock.codecs.column_data import ChangeData, ColumnData
from penstock.codecs.serialization import BulkWriterFactory
from penstock.connectors.file.buckets import BucketAssigner, OutputFileConfig, RollingPolicy
from penstock.connectors.file.commit_coordinator import PartitionCommit
from penstock.connectors.file.compaction import Compaction
from penstock.connectors.file.part_files import PartNames
from penstock.connectors.file.sink import FileSink, FileWriter
from penstock.runtime.connector import SinkWriterContext
from penstock.sql.data import types
from penstock.sql.data.arrow import columns_of_changes
from penstock.sql.data.row_data import FewRows
from penstock.sql.data.types import DataType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.formats.text_columns import ReadColumn, TextRules, column_reader
from penstock.sql.functions.definition import Session
from penstock.sql.functions.text_casts import text_kernel
from penstock.sql.logical.nodes import RowSchema
from penstock.sql.tables.connector import TableOptions
from penstock.sql.typed import Constant, Field, FunctionCall, Typed

#: the characters that are percent-encoded in directory names
_ESCAPED: Final = re.compile(r'[\x00-\x1f\x7f"#%\'*/:=?\\{\[\]^]')
_TYPES: Final = (
    types.CharType,
    types.VarCharType,
    types.BooleanType,
    types.IntegralType,
    types.FloatType,
    types.DoubleType,
    types.DecimalType,
    types.DateType,
    types.TimeType,
    types.TimestampType,
)
_STRING: Final = types.VarCharType(types.LENGTH_MAX)


def escaped(text: str) -> str:
    """Return a name or value as encoded in a directory name."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def check_types(title: str, schema: RowSchema, keys: Sequence[str]) -> None:
    """Raise `UnsupportedError` for partition columns whose values cannot be directory names."""
    for column in schema:
        if column.name in keys and not isinstance(column.type, _TYPES):
            raise UnsupportedError(
                f"table {title} cannot be partitioned by column '{column.name}' of type {column.type}"
            )


def build_partition_path(partition: Mapping[str, str | None], keys: Sequence[str], default_name: str) -> str:
    """Return the directory of a partition, relative to the path of its table."""
    return "/".join(f"{escaped(key)}={escaped(partition[key] or default_name)}" for key in keys)


def parse_partition(path: str, keys: Sequence[str], default_name: str) -> dict[str, str | None]:
    """Return the partition values in a file's path. Raises `FormatError` if the file is not in a partition."""
    values: dict[str, str | None] = {}
    for part in path.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals and unquote(name) in keys:
            text = unquote(value)
            values[unquote(name)] = None if text == default_name else text
    absent = [key for key in keys if key not in values]
    if absent:
        raise FormatError(f"{path} is in no partition: no directory of its path is called {absent[0]}=…")
    return values


class PartitionTexts:
    """Computes the directory of each row."""

    def __init__(self, keys: Sequence[str], kinds: Sequence[DataType], default_name: str) -> None:
        self._keys = keys
        self._default = default_name
        self._shows = [
            None if isinstance(kind, types.VarCharType) else text_kernel(kind, _STRING, Session()) for kind in kinds
        ]

    def directories(self, columns: Sequence[pa.Array]) -> pa.DictionaryArray:
        """Return the directories, dictionary-encoded, of rows with these values of the partition columns."""
        parts = []
        for key, show, column in zip(self._keys, self._shows, columns, strict=True):
            texts = (column if show is None else show(column)).dictionary_encode()
            names = [f"{escaped(key)}={escaped(text or self._default)}" for text in texts.dictionary.to_pylist()]
            null = f"{escaped(key)}={escaped(self._default)}"
            parts.append(pa.array(names, pa.string()).take(texts.indices).fill_null(null))
        joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "/")
        return joined.dictionary_encode()


class PartitionValues:
    """Computes partition columns: one value for all rows of a file."""

    def __init__(self, kinds: Mapping[str, DataType], default_name: str) -> None:
        self._kinds = dict(kinds)
        self._default = default_name
        self._reads: dict[str, ReadColumn] = {
            name: column_reader(kind, TextRules(), f"column '{name}'") for name, kind in kinds.items()
        }

    def of_file(self, path: str) -> dict[str, pa.Scalar]:
        """Return the values of a file's partition columns. Raises `FormatError` for an invalid value."""
        scalars = {}
        for name, text in parse_partition(path, list(self._kinds), self._default).items():
            values, bad = self._reads[name](pa.array([text], pa.string()))
            if bad is not None:
                raise FormatError(f"{path}: partition column '{name}': {text!r} is no {self._kinds[name]}")
            scalars[name] = values[0]
        return scalars


#: functions that never fail and do not depend on the session
_PLAIN: Final = frozenset(
    {"=", "<>", "<", "<=", ">", ">=", "AND", "OR", "NOT", "IN", "IS NULL", "IS NOT NULL", "IS TRUE", "IS FALSE", "LIKE"}
)


def is_plain(condition: Typed) -> bool:
    """Return whether a condition can be evaluated on directory names alone."""
    return all(
        isinstance(node, Field | Constant) or (isinstance(node, FunctionCall) and node.function in _PLAIN)
        for node in condition.walk()
    )


@dataclass(frozen=True, slots=True)
class WantedPartitions:
    """The partitions that satisfy conditions, optionally restricted to some of them.

    Attributes:
        conditions: over the partition columns, in the order of `keys`.
        keys: the names of these columns.
        kinds: their types.
        default_name: the name of the partition of NULL.
        all_keys: the names of all partition columns.
        only: the values of `all_keys` in the partitions to read; None for all.
    """

    conditions: tuple[Typed, ...]
    keys: tuple[str, ...]
    kinds: tuple[DataType, ...]
    default_name: str
    all_keys: tuple[str, ...] = ()
    only: frozenset[tuple[str | None, ...]] | None = None

    def asker(self) -> Callable[[str], bool]:
        """Return a function that checks whether a file is in a wanted partition, once per directory."""
        values = PartitionValues(dict(zip(self.keys, self.kinds, strict=True)), self.default_name)
        ask = Evaluator(self.conditions, Session())
        known: dict[str, bool] = {}

        def is_wanted(path: str) -> bool:
            directory = path.rpartition("/")[0]
            if directory not in known:
                known[directory] = self._is_one_of_them(path) and are_true(path)
            return known[directory]

        def are_true(path: str) -> bool:
            scalars = values.of_file(path)
            columns = [pa.array([scalars[key].as_py()], scalars[key].type) for key in self.keys]
            return all(answer[0].as_py() is True for answer in ask(Columns(columns, 1)))

        return is_wanted

    def _is_one_of_them(self, path: str) -> bool:
        if self.only is None:
            return True
        values = parse_partition(path, self.all_keys, self.default_name)
        return tuple(values[key] for key in self.all_keys) in self.only


PATH: Final = (
    ConfigOptions.key("path").string_type().no_default_value().with_description("The path of a file or a directory.")
)
INTERVAL: Final = (
    ConfigOptions.key("source.monitor-interval")
    .duration_type()
    .no_default_value()
    .with_description(
        "The interval at which new files are discovered. If unset, only the files that exist at the start are read."
    )
)
PATTERN: Final = (
    ConfigOptions.key("source.path.regex-pattern")
    .string_type()
    .no_default_value()
    .with_description("A regular expression that the whole path of a file must match.")
)
DEFAULT_NAME: Final = (
    ConfigOptions.key("partition.default-name")
    .string_type()
    .default_value("__HIVE_DEFAULT_PARTITION__")
    .with_description("The name of the partition for NULL and for the empty string.")
)
FILE_SIZE: Final = (
    ConfigOptions.key("sink.rolling-policy.file-size")
    .memory_type()
    .default_value(128 << 20)
    .with_description("The size at which a file is closed.")
)
ROLLOVER: Final = (
    ConfigOptions.key("sink.rolling-policy.rollover-interval")
    .duration_type()
    .default_value(30 * 60_000)
    .with_description("The time after which a file is closed.")
)
INACTIVITY: Final = (
    ConfigOptions.key("sink.rolling-policy.inactivity-interval")
    .duration_type()
    .default_value(30 * 60_000)
    .with_description("The time without new rows after which a file is closed.")
)
CHECK_INTERVAL: Final = (
    ConfigOptions.key("sink.rolling-policy.check-interval")
    .duration_type()
    .default_value(60_000)
    .with_description("No effect: files are checked with every batch of rows.")
)
READ_OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (INTERVAL, PATTERN)
WRITE_OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (FILE_SIZE, ROLLOVER, INACTIVITY, CHECK_INTERVAL)

#: unsupported options of Flink's connector, and why
REFUSED: Final = (
    (re.compile(r"sink\.shuffle-by-partition\.enable"), "rows are not sent to writers by their partition"),
    (re.compile(r"(sink|scan)\.parallelism"), "set parallelism.default for the job"),
    (re.compile(r"source\.report-statistics"), "files are not asked for statistics"),
    (
        re.compile(r"lookup\..*"),
        "look-ups hold all rows of files; 'lookup.cache' = 'FULL' takes 'lookup.full-cache.*', which say when files "
        "are read again",
    ),
)


def rolling_policy(options: TableOptions) -> RollingPolicy:
    """Return the policy that ends files before the next checkpoint."""
    limits = []
    for option in (FILE_SIZE, ROLLOVER, INACTIVITY):
        value = options.read(option)
        if value <= 0:
            raise options.wrong(option.key(), f"it must be above 0, not {options[option.key()]!r}")
        limits.append(value)
    return RollingPolicy.default_rolling_policy(*limits)


class TableFilesSink(FileSink[Any]):
    """Accepts rows as (kind, internal values), or columns.

    Args:
        path: the directory.
        factory: writes the columns stored in files, under their names in the table.
        schema: the columns of the table.
        keys: the partition columns, whose values name directories.
        default_name: the name of the partition of NULL.
        rolling_policy: when a file ends before the next checkpoint.
        compaction: how the files of a checkpoint are merged, if they are.
        partition_commit: when partitions are complete, and what happens then, if anything does.
    """

    def __init__(
        self,
        path: str,
        factory: BulkWriterFactory[Any],
        schema: RowSchema,
        keys: Sequence[str],
        default_name: str,
        rolling_policy: RollingPolicy,
        compaction: Compaction | None = None,
        partition_commit: PartitionCommit | None = None,
    ) -> None:
        buckets, names = BucketAssigner.base_path_bucket_assigner(), OutputFileConfig()
        super().__init__(
            path, factory, buckets, rolling_policy, names, compaction=compaction, partition_commit=partition_commit
        )
        self._schema = schema
        self._keys = tuple(keys)
        self._default_name = default_name

    def _writer(self, context: SinkWriterContext, counter: int) -> FileWriter:
        config = self._file_config
        names = PartNames.of(context, self._base_path, config.part_prefix, config.part_suffix, self._stage)
        return TableFilesWriter(
            context,
            self._base_path,
            self._encoding,
            self._bucket_assigner,
            self._rolling_policy,
            names,
            counter,
            self._stage,
            schema=self._schema,
            keys=self._keys,
            default_name=self._default_name,
        )


#: Batches of at most this many rows wait.
_FEW_ROWS: Final = 64
#: the maximum number of waiting rows
_WAITING_MAX: Final = 1 << 12
#: the maximum time (ms) for which rows wait
_WAIT_MS: Final = 1_000


class TableFilesWriter(FileWriter):
    """Writes columns. Partition columns appear only in directory names.

    Kernels cost as much for one row as for a hundred. So the rows of small batches wait until there are many, a second
    has passed, or the writer is flushed. No reader misses them: a file becomes visible after a flush.
    """

    def __init__(self, *parts: Any, schema: RowSchema, keys: Sequence[str], default_name: str) -> None:
        super().__init__(*parts)
        names = schema.names
        self._schema = schema
        self._kept = [name for name in names if name not in keys]
        self._key_places = [names.index(key) for key in keys]
        kinds = [schema[index].type for index in self._key_places]
        self._texts = PartitionTexts(keys, kinds, default_name) if keys else None
        self._few = FewRows()
        self._flush_ms = 0

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Write rows as columns."""
        if not values:
            return
        self._write_waiting()
        columns, kinds = columns_of_changes(values, self._schema.names, self._schema.types)
        self._write_rows(columns, kinds if any(kinds) else None)

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """Write columns, whatever their names; a few rows wait."""
        if 0 < len(data) <= _FEW_ROWS:
            if not self._few.add(data):
                self._write_waiting()
                self._few.add(data)
            if self._few.rows == len(data):
                self._flush_ms = self._context.now_ms() + _WAIT_MS
            if self._few.rows >= _WAITING_MAX:
                self._write_waiting()
        else:
            self._write_waiting()
            self._write_rows(data.columns, None)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """Write changes, whatever the names of their columns."""
        self._write_waiting()
        self._write_rows(data.columns, kinds)

    def next_flush_ms(self) -> int | None:
        """Return when the waiting rows are written at the latest."""
        return self._flush_ms if self._few.rows else None

    def flush(self, end_of_input: bool) -> None:
        """Write the waiting rows, and note whether the input has ended."""
        self._write_waiting()
        super().flush(end_of_input)

    def _write_waiting(self) -> None:
        if self._few.rows:
            self._write_rows(self._few.take().columns, None)

    def _write_rows(self, columns: pa.RecordBatch, kinds: bytes | None) -> None:
        now_ms = self._context.now_ms()
        self._roll_by_policy(now_ms)
        columns = columns.rename_columns(self._schema.names)
        stored = columns.select(self._kept)
        if self._texts is None:
            self._write("", _data(stored, kinds), now_ms)
        else:
            directories = self._texts.directories([columns.column(index) for index in self._key_places])
            names, codes = directories.dictionary.to_pylist(), directories.indices.to_numpy()
            for code, directory in enumerate(names):
                if len(names) == 1:
                    part = _data(stored, kinds)
                else:
                    indices = np.flatnonzero(codes == code)
                    part = _data(
                        stored.take(pa.array(indices)),
                        None if kinds is None else np.frombuffer(kinds, np.uint8)[indices].tobytes(),
                    )
                self._write(directory, part, now_ms)
        self._roll_by_policy(now_ms)


def _data(columns: pa.RecordBatch, kinds: bytes | None) -> ColumnData:
    return ColumnData(columns) if kinds is None else ChangeData(columns, kinds)
