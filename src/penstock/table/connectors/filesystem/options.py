"""The options of the connector `filesystem`."""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import UnsupportedError
from penstock.connectors.file.rolling import RollingPolicy
from penstock.table.connectors.table_options import TableOptions

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
    (
        re.compile(r"(sink\.partition-commit\..*|partition\.time-extractor\..*)"),
        "files are visible at every checkpoint, and partitions get no mark when they are whole",
    ),
    (re.compile(r"(auto-compaction|compaction\..*)"), "files are not merged"),
    (re.compile(r"sink\.shuffle-by-partition\.enable"), "rows are not sent to writers by their partition"),
    (re.compile(r"(sink|scan)\.parallelism"), "set parallelism.default for the job"),
    (re.compile(r"source\.report-statistics"), "files are not asked for statistics"),
    (
        re.compile(r"lookup\..*"),
        "look-ups hold all rows of files; 'lookup.cache' = 'FULL' takes 'lookup.full-cache.*', which say when files "
        "are read again",
    ),
)


def refuse_unsupported(options: TableOptions) -> None:
    """Raise `UnsupportedError` for options of Flink's connector that are not supported."""
    for key in options:
        for pattern, reason in REFUSED:
            if pattern.fullmatch(key):
                raise UnsupportedError(
                    f"option '{key}' of table {options.title} is not supported ({reason}): leave it out"
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
