"""When the partitions of a table of files are complete, and files of one checkpoint that are merged: their options.

Source: Flink's filesystem SQL connector, "Partition Commit" and "File Compaction".
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final
from urllib.parse import unquote

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import FormatError, UnsupportedError
from penstock.connectors.file.commit_coordinator import (
    PartitionCommit,
    PartitionCommitPolicy,
    PartitionTime,
    SuccessFilePolicy,
)
from penstock.connectors.file.compaction import Compaction, FileCompactor, FileCompactStrategy
from penstock.sql.data.datetimes import zone_by_id
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.datetime_format.formatting import modern_parser, parse_default
from penstock.sql.tables.connector import TableOptions
from penstock.sql.tables.tables import PartitionTimeExtractor

_PROCESS_TIME, _PARTITION_TIME = "process-time", "partition-time"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _text(key: str, description: str, default: str | None = None) -> ConfigOption[Any]:
    option = ConfigOptions.key(key).string_type()
    return (option.no_default_value() if default is None else option.default_value(default)).with_description(
        description
    )


TRIGGER: Final = _text(
    "sink.partition-commit.trigger",
    "`process-time`: a partition is complete a delay after its first file; `partition-time`: when the watermark has "
    "passed the time in its values by a delay.",
    _PROCESS_TIME,
)
DELAY: Final = (
    ConfigOptions.key("sink.partition-commit.delay")
    .duration_type()
    .default_value(0)
    .with_description(
        "The delay after which a partition is complete, such as `1 h` for partitions by hour. With `0 s` and "
        "`process-time`, a partition is committed at each checkpoint that adds files to it."
    )
)
ZONE: Final = _text(
    "sink.partition-commit.watermark-time-zone",
    "The time zone of partition times, for the comparison with watermarks. `partition-time` only.",
    "UTC",
)
KIND: Final = _text(
    "sink.partition-commit.policy.kind",
    "What happens to a complete partition, separated by commas: `success-file` writes an empty file into its "
    "directory; `custom` calls a class. If unset, partitions are not committed.",
)
CLASS: Final = _text(
    "sink.partition-commit.policy.class",
    "For `custom`: the path of a class in Python, `module.Class`, a `PartitionCommitPolicy`.",
)
PARAMETERS: Final = _text(
    "sink.partition-commit.policy.class.parameters", "For `custom`: the arguments of the class, separated by `;`."
)
SUCCESS_FILE: Final = _text(
    "sink.partition-commit.success-file.name",
    "For `success-file`: the name of the file.",
    SuccessFilePolicy().file_name,
)
EXTRACTOR: Final = _text(
    "partition.time-extractor.kind",
    "`default`: the time is made by the pattern below; `custom`: by a class. `partition-time` only.",
    "default",
)
EXTRACTOR_CLASS: Final = _text(
    "partition.time-extractor.class",
    "For `custom`: the path of a class in Python, `module.Class`, a `PartitionTimeExtractor`.",
)
TIME_PATTERN: Final = _text(
    "partition.time-extractor.timestamp-pattern",
    "The text of a partition's time, where `$column` stands for the value of a partition column, such as "
    "`$day $hour:00:00`. If unset, the value of the first column.",
)
TIME_FORMATTER: Final = _text(
    "partition.time-extractor.timestamp-formatter",
    "The pattern of this text, such as `yyyyMMdd HH`. If unset, `yyyy-MM-dd HH:mm:ss` or `yyyy-MM-dd`.",
)
COMPACTION: Final = (
    ConfigOptions.key("auto-compaction")
    .boolean_type()
    .default_value(False)
    .with_description(
        "Whether the files of a checkpoint are merged before they become visible, by one task for each table."
    )
)
COMPACTION_SIZE: Final = (
    ConfigOptions.key("compaction.file-size")
    .memory_type()
    .no_default_value()
    .with_description("The size up to which files are merged; by default that at which a file is closed.")
)
COMPACTION_PARALLELISM: Final = (
    ConfigOptions.key("compaction.parallelism")
    .int_type()
    .default_value(1)
    .with_description("How many files are merged at the same time.")
)
_OF_PARTITIONS: Final[tuple[ConfigOption[Any], ...]] = (
    *(TRIGGER, DELAY, ZONE, KIND, CLASS, PARAMETERS, SUCCESS_FILE),
    *(EXTRACTOR, EXTRACTOR_CLASS, TIME_PATTERN, TIME_FORMATTER),
)
COMMIT_OPTIONS: Final = (*_OF_PARTITIONS, COMPACTION, COMPACTION_SIZE, COMPACTION_PARALLELISM)


@dataclass(frozen=True, slots=True)
class _ByPattern(PartitionTimeExtractor):
    pattern: str | None
    formatter: str | None

    def extract(self, keys: Sequence[str], values: Sequence[str]) -> datetime:
        text = values[0] if self.pattern is None else self.pattern
        if self.pattern is not None:
            for key, value in zip(keys, values, strict=True):
                text = text.replace(f"${key}", value)
        time_ns = parse_default(text) if self.formatter is None else modern_parser(self.formatter)(text)
        if time_ns is None:
            expected = self.formatter or "yyyy-MM-dd HH:mm:ss or yyyy-MM-dd"
            raise FormatError(
                f"the time of a partition is {text!r}, which is not of the form {expected}: see "
                f"'{TIME_PATTERN.key()}' and '{TIME_FORMATTER.key()}'"
            )
        return datetime(1970, 1, 1) + timedelta(microseconds=time_ns // 1000)


@dataclass(frozen=True, slots=True)
class TablePartitionTime(PartitionTime):
    """The times of the partitions of a table, by an extractor, in a time zone."""

    keys: tuple[str, ...]
    extractor: PartitionTimeExtractor
    zone: tzinfo

    def get_time_ms(self, bucket_id: str) -> int:
        """Return the time (ms). Raises `FormatError` if the values have none."""
        values = [unquote(part.partition("=")[2]) for part in bucket_id.split("/")]
        time = self.extractor.extract(self.keys, values)
        return (time.replace(tzinfo=self.zone) - _EPOCH) // timedelta(milliseconds=1)


def read_partition_commit(options: TableOptions, keys: Sequence[str]) -> PartitionCommit | None:
    """Return when the partitions of a table are complete, and what happens then; None if nothing does.

    Raises:
        ValidationError: if the options contradict each other, or name an unknown trigger, policy, zone or class.
    """
    used = [option.key() for option in _OF_PARTITIONS if option.key() in options]
    kinds = [kind.strip() for kind in (options.read(KIND) or "").split(",") if kind.strip()]
    if not used:
        return None
    if not keys:
        raise options.wrong(used[0], "the table has no partitions: declare PARTITIONED BY, or leave the option out")
    if not kinds:
        raise options.wrong(used[0], f"it needs '{KIND.key()}', such as 'success-file'")
    trigger = options.read(TRIGGER)
    if trigger not in (_PROCESS_TIME, _PARTITION_TIME):
        raise options.wrong(TRIGGER.key(), f"it is {_PROCESS_TIME} or {_PARTITION_TIME}, not {trigger!r}")
    time = _read_time(options, keys) if trigger == _PARTITION_TIME else None
    return PartitionCommit(tuple(_read_policies(options, kinds)), options.read(DELAY), time)


def _read_policies(options: TableOptions, kinds: Sequence[str]) -> Iterator[PartitionCommitPolicy]:
    for kind in kinds:
        if kind == "success-file":
            name = options.read(SUCCESS_FILE)
            if not name or "/" in name:
                raise options.wrong(SUCCESS_FILE.key(), f"it is the name of a file, not {name!r}")
            yield SuccessFilePolicy(name)
        elif kind == "custom":
            parameters = options.read(PARAMETERS)
            arguments = [] if parameters is None else parameters.split(";")
            policy = _load(options, CLASS)(*arguments)
            if not isinstance(policy, PartitionCommitPolicy):
                raise options.wrong(CLASS.key(), f"{type(policy).__name__} is not a PartitionCommitPolicy")
            yield policy
        elif kind == "metastore":
            raise UnsupportedError(
                f"option '{KIND.key()}' of table {options.title}: the policy 'metastore' is not supported, since there "
                "is no Hive metastore here; use 'success-file', or a class that registers partitions ('custom')"
            )
        else:
            raise options.wrong(KIND.key(), f"it is success-file or custom, or both, not {kind!r}")


def _read_time(options: TableOptions, keys: Sequence[str]) -> TablePartitionTime:
    zone = zone_by_id(options.read(ZONE))
    if zone is None:
        raise options.wrong(ZONE.key(), f"there is no time zone {options.read(ZONE)!r}")
    kind = options.read(EXTRACTOR)
    if kind == "custom":
        extractor = _load(options, EXTRACTOR_CLASS)()
        if not isinstance(extractor, PartitionTimeExtractor):
            raise options.wrong(EXTRACTOR_CLASS.key(), f"{type(extractor).__name__} is not a PartitionTimeExtractor")
    elif kind == "default":
        formatter = options.read(TIME_FORMATTER)
        try:
            if formatter is not None:
                modern_parser(formatter)
        except TableRuntimeError as error:
            raise options.wrong(TIME_FORMATTER.key(), str(error)) from error
        extractor = _ByPattern(options.read(TIME_PATTERN), formatter)
    else:
        raise options.wrong(EXTRACTOR.key(), f"it is default or custom, not {kind!r}")
    return TablePartitionTime(tuple(keys), extractor, zone)


def _load(options: TableOptions, option: ConfigOption[Any]) -> Any:
    target = options.read(option)
    module, _, attribute = (target or "").replace(":", ".").rpartition(".")
    if not module:
        raise options.wrong(option.key(), f"it is the path of a class in Python, module.Class, not {target!r}")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise options.wrong(option.key(), f"{target} cannot be imported: {error}") from error


def read_compaction(options: TableOptions, file_size: int) -> Compaction | None:
    """Return how the files of a checkpoint are merged; None if they are not.

    Raises:
        ValidationError: if a size or the parallelism is not positive, or is set without `auto-compaction`.
    """
    if not options.read(COMPACTION):
        for option in (COMPACTION_SIZE, COMPACTION_PARALLELISM):
            if option.key() in options:
                raise options.wrong(option.key(), f"it has no effect without '{COMPACTION.key()}' = 'true'")
        return None
    size, threads = options.read(COMPACTION_SIZE), options.read(COMPACTION_PARALLELISM)
    for option, value in ((COMPACTION_SIZE, size), (COMPACTION_PARALLELISM, threads)):
        if value is not None and value < 1:
            raise options.wrong(option.key(), f"it must be above 0, not {value}")
    strategy = FileCompactStrategy(checkpoints=1, compact_threads=threads, target_bytes=size or file_size)
    return Compaction(strategy, FileCompactor.format_file_compactor())
