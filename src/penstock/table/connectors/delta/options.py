"""The options of the connector `delta`, named as in Flink's connector where it has them."""

from __future__ import annotations

from typing import Any, Final

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import ConfigurationError
from penstock.connectors.delta.data_files import TARGET_BYTES
from penstock.connectors.delta.place import TablePlace
from penstock.connectors.delta.source import INTERVAL_MS, parse_start
from penstock.connectors.delta.split import Start
from penstock.table.connectors.table_options import TableOptions


def _text(key: str, description: str) -> ConfigOption[str | None]:
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


def _flag(key: str, description: str) -> ConfigOption[bool]:
    return ConfigOptions.key(key).boolean_type().default_value(False).with_description(description)


BATCH: Final = "batch"
STREAMING: Final = "streaming"

PATH: Final = _text("table-path", "the directory of the table, or a URL such as `s3://bucket/table`")
MODE: Final = (
    ConfigOptions.key("mode")
    .string_type()
    .default_value(BATCH)
    .with_description("`batch`: one version is read; `streaming`: the table as it is, and then what is added")
)
VERSION_AS_OF: Final = (
    ConfigOptions.key("versionAsOf")
    .long_type()
    .no_default_value()
    .with_description("with `batch`: which version is read; by default the newest")
)
TIMESTAMP_AS_OF: Final = _text("timestampAsOf", "the same by a time, such as `2026-01-31T12:00:00Z`")
STARTING_VERSION: Final = _text(
    "startingVersion",
    "with `streaming`: leave out the table as it is, and read from this version on; `latest`: what comes from now on",
)
STARTING_TIMESTAMP: Final = _text("startingTimestamp", "the same by a time")
INTERVAL: Final = (
    ConfigOptions.key("updateCheckIntervalMillis")
    .long_type()
    .default_value(INTERVAL_MS)
    .with_description("how often new versions are looked for")
)
IGNORE_DELETES: Final = _flag(
    "ignoreDeletes", "whether versions that only delete rows are passed over, and do not fail"
)
IGNORE_CHANGES: Final = _flag("ignoreChanges", "whether rows of rewritten files are taken as new ones, and do not fail")
CHANGE_FEED: Final = _flag(
    "readChangeFeed",
    "with `streaming`: whether the changes of rows are read as such; the table has `delta.enableChangeDataFeed`",
)
MERGE_SCHEMA: Final = _flag("mergeSchema", "whether a sink adds columns that the table lacks")
FILE_SIZE: Final = (
    ConfigOptions.key("targetFileSize")
    .memory_type()
    .default_value(TARGET_BYTES)
    .with_description("how large a data file grows before the next one begins")
)
COMPACTION: Final = (
    ConfigOptions.key("compactAfterVersions")
    .int_type()
    .no_default_value()
    .with_description("after how many versions of the table a sink puts small files together; by default never")
)
OPTIONAL: Final[tuple[ConfigOption[Any], ...]] = (
    MODE,
    VERSION_AS_OF,
    TIMESTAMP_AS_OF,
    STARTING_VERSION,
    STARTING_TIMESTAMP,
    INTERVAL,
    IGNORE_DELETES,
    IGNORE_CHANGES,
    CHANGE_FEED,
    MERGE_SCHEMA,
    FILE_SIZE,
    COMPACTION,
)
#: the prefix of options for delta-rs's storage
STORAGE: Final = "storage."
#: the prefix of properties for a new table
PROPERTIES: Final = "delta."
_OF_BATCH: Final = (VERSION_AS_OF, TIMESTAMP_AS_OF)
_OF_STREAMING: Final = (STARTING_VERSION, STARTING_TIMESTAMP, IGNORE_DELETES, IGNORE_CHANGES, CHANGE_FEED)


def read_place(options: TableOptions) -> TablePlace:
    """Return the location of the table."""
    return TablePlace.of(options.required(PATH), dict(options.below(STORAGE)))


def read_table_properties(options: TableOptions) -> dict[str, str]:
    """Return the properties for a new table."""
    return {f"{PROPERTIES}{key}": value for key, value in options.below(PROPERTIES).items()}


def follows(options: TableOptions) -> bool:
    """Return whether new versions are followed. Raises `ValidationError` for options that conflict with the mode."""
    mode = options.read(MODE).lower()
    if mode not in (BATCH, STREAMING):
        raise options.wrong(MODE.key(), f"it is {BATCH} or {STREAMING}, not {mode}")
    for option in _OF_BATCH if mode == STREAMING else _OF_STREAMING:
        if option.key() in options:
            other = STREAMING if mode == BATCH else BATCH
            raise options.wrong(option.key(), f"it goes with '{MODE.key()}' = '{other}'")
    return mode == STREAMING


def where_to_begin(options: TableOptions) -> Start:
    """Return where reading begins. Raises `ValidationError` if both a version and a timestamp are set."""
    version = options.read(STARTING_VERSION) if options.read(VERSION_AS_OF) is None else options.read(VERSION_AS_OF)
    timestamp = options.read(STARTING_TIMESTAMP) or options.read(TIMESTAMP_AS_OF)
    if version is not None and timestamp is not None:
        raise options.wrong(MODE.key(), "reading begins at a version or at a time, not at both")
    if version is None:
        return Start(timestamp=timestamp)
    try:
        return Start(**parse_start(version))
    except ConfigurationError as error:
        raise options.wrong(STARTING_VERSION.key(), str(error)) from error
