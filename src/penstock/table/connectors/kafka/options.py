"""The options of `kafka` and `upsert-kafka` tables, which match Flink's connectors of the same names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import ConfigurationError
from penstock.connectors.kafka.consumer_settings import DISCOVERY_INTERVAL, RESET
from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.table.connectors.table_options import FORMAT, TableOptions
from penstock.table.data.errors import ValidationError

PROPERTIES: Final = "properties."


def _text(key: str, description: str) -> ConfigOption[str | None]:
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


SERVERS: Final = _text("properties.bootstrap.servers", "the brokers to begin with, as `host:port,host:port`")
GROUP: Final = _text("properties.group.id", "the consumer group to which offsets of checkpoints are committed")
TOPIC: Final = _text("topic", "the topics to read, with `;` between them; the one topic to write to")
TOPIC_PATTERN: Final = _text("topic-pattern", "a regular expression: topics whose whole names match are read")
VALUE_FORMAT: Final = _text("value.format", "as `format`, whose place it takes")
KEY_FORMAT: Final = _text("key.format", "how keys are written as bytes; its options begin with `key.` and its name")
KEY_FIELDS: Final = _text("key.fields", "the columns that are in the key, with `;` between them")
KEY_PREFIX: Final = (
    ConfigOptions.key("key.fields-prefix")
    .string_type()
    .default_value("")
    .with_description("what stands in front of the names of the key's columns, and not in the key itself")
)
VALUE_INCLUDES: Final = (
    ConfigOptions.key("value.fields-include")
    .string_type()
    .default_value("ALL")
    .with_description("`EXCEPT_KEY`: the key's columns are not in the value")
)
STARTUP: Final = (
    ConfigOptions.key("scan.startup.mode")
    .string_type()
    .default_value("group-offsets")
    .with_description(
        "where to begin: `earliest-offset`, `latest-offset`, `group-offsets`, `timestamp`, `specific-offsets`"
    )
)
STARTUP_OFFSETS: Final = _text(
    "scan.startup.specific-offsets", "offsets, as `partition:0,offset:42;partition:1,offset:300`"
)
STARTUP_TIMESTAMP: Final = (
    ConfigOptions.key("scan.startup.timestamp-millis")
    .long_type()
    .no_default_value()
    .with_description("the time of the first record, in ms")
)
BOUNDED: Final = (
    ConfigOptions.key("scan.bounded.mode")
    .string_type()
    .default_value("unbounded")
    .with_description("where to stop: `unbounded`, `latest-offset`, `group-offsets`, `timestamp`, `specific-offsets`")
)
BOUNDED_OFFSETS: Final = _text("scan.bounded.specific-offsets", "as for `scan.startup.specific-offsets`; excluded")
BOUNDED_TIMESTAMP: Final = (
    ConfigOptions.key("scan.bounded.timestamp-millis")
    .long_type()
    .no_default_value()
    .with_description("the time of the first record that is not read, in ms")
)
DISCOVERY: Final = (
    ConfigOptions.key("scan.topic-partition-discovery.interval")
    .duration_type()
    .default_value(300_000)
    .with_description("how often new partitions are looked for; 0 for never")
)
PARTITIONER: Final = (
    ConfigOptions.key("sink.partitioner")
    .string_type()
    .default_value("default")
    .with_description(
        "the partition of a row: `default`, by its key, else as Kafka's client likes; `fixed`, one for each subtask; "
        "`round-robin`, in turn, for rows without keys"
    )
)
GUARANTEE: Final = (
    ConfigOptions.key("sink.delivery-guarantee")
    .string_type()
    .default_value("at-least-once")
    .with_description("`at-least-once`, `exactly-once` by transactions, or `none`")
)
TRANSACTION_PREFIX: Final = _text(
    "sink.transactional-id-prefix", "how the ids of transactions begin; `exactly-once` needs one that no other job has"
)
UPSERT_TOPIC: Final = _text("topic", "the topic to read or to write")
UPSERT_KEY_FORMAT: Final = _text(
    "key.format", "how the primary key is written as bytes; its options begin with `key.` and its name"
)
UPSERT_VALUE_FORMAT: Final = _text(
    "value.format", "how rows are written as bytes; its options begin with `value.` and its name"
)
BUFFER_ROWS: Final = (
    ConfigOptions.key("sink.buffer-flush.max-rows")
    .int_type()
    .default_value(0)
    .with_description("how many changes are held back, so that only the last one of each key is written; 0 for none")
)
BUFFER_INTERVAL: Final = (
    ConfigOptions.key("sink.buffer-flush.interval")
    .duration_type()
    .default_value(0)
    .with_description("how long changes are held back at most; holding back needs both options")
)

OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (
    TOPIC,
    TOPIC_PATTERN,
    GROUP,
    FORMAT,
    VALUE_FORMAT,
    KEY_FORMAT,
    KEY_FIELDS,
    KEY_PREFIX,
    VALUE_INCLUDES,
    STARTUP,
    STARTUP_OFFSETS,
    STARTUP_TIMESTAMP,
    BOUNDED,
    BOUNDED_OFFSETS,
    BOUNDED_TIMESTAMP,
    DISCOVERY,
    PARTITIONER,
    GUARANTEE,
    TRANSACTION_PREFIX,
)
UPSERT_OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (
    GROUP,
    KEY_PREFIX,
    VALUE_INCLUDES,
    BOUNDED,
    BOUNDED_OFFSETS,
    BOUNDED_TIMESTAMP,
    DISCOVERY,
    GUARANTEE,
    TRANSACTION_PREFIX,
    BUFFER_ROWS,
    BUFFER_INTERVAL,
)

_OFFSET: Final = re.compile(r"partition:(\d+),offset:(\d+)")
_RESETS: Final = {
    "earliest": KafkaOffsetResetStrategy.EARLIEST,
    "latest": KafkaOffsetResetStrategy.LATEST,
    "none": KafkaOffsetResetStrategy.NONE,
}


def listed(text: str | None) -> list[str]:
    """Return the items of a list separated by `;`."""
    return [item.strip() for item in (text or "").split(";") if item.strip()]


def consumer_properties(options: TableOptions) -> dict[str, str]:
    """Return the `properties.` options and the partition discovery interval."""
    properties = dict(options.below(PROPERTIES))
    if DISCOVERY.key() in options:
        properties[DISCOVERY_INTERVAL] = str(options.read(DISCOVERY) or -1)
    return properties


def starting(options: TableOptions) -> KafkaOffsetsInitializer:
    """Return where to start reading."""
    initializer = _initializer(options, STARTUP, STARTUP_OFFSETS, STARTUP_TIMESTAMP)
    assert initializer is not None
    return initializer


def stopping(options: TableOptions) -> KafkaOffsetsInitializer | None:
    """Return where to stop reading; None for never."""
    return _initializer(options, BOUNDED, BOUNDED_OFFSETS, BOUNDED_TIMESTAMP)


def _initializer(
    options: TableOptions,
    mode: ConfigOption[str],
    offsets: ConfigOption[str | None],
    timestamp: ConfigOption[int | None],
) -> KafkaOffsetsInitializer | None:
    reset = options.get(PROPERTIES + RESET, "none")
    if reset not in _RESETS:
        raise options.wrong(PROPERTIES + RESET, f"it must be one of {', '.join(_RESETS)}, not {reset!r}")
    modes: dict[str, Callable[[], KafkaOffsetsInitializer | None]] = {
        "latest-offset": KafkaOffsetsInitializer.latest,
        "group-offsets": lambda: KafkaOffsetsInitializer.committed_offsets(_RESETS[reset]),
        "timestamp": lambda: KafkaOffsetsInitializer.timestamp(options.required(timestamp)),
        "specific-offsets": lambda: _specific(options, offsets),
        **({"unbounded": lambda: None} if mode is BOUNDED else {"earliest-offset": KafkaOffsetsInitializer.earliest}),
    }
    chosen = options.read(mode)
    if chosen not in modes:
        raise options.wrong(mode.key(), f"it must be one of {', '.join(sorted(modes))}, not {chosen!r}")
    if chosen == "group-offsets" and GROUP.key() not in options:
        raise options.wrong(mode.key(), f"'group-offsets' needs the option '{GROUP.key()}'")
    try:
        return modes[chosen]()
    except ConfigurationError as error:
        raise options.wrong(mode.key(), str(error)) from error


def _specific(options: TableOptions, option: ConfigOption[str | None]) -> KafkaOffsetsInitializer:
    topics = listed(options.get(TOPIC.key()))
    if len(topics) != 1:
        raise ValidationError(f"'specific-offsets' of table {options.title} are those of one topic: set 'topic' to it")
    offsets: dict[KafkaTopicPartition, int] = {}
    for item in listed(options.required(option)):
        match = _OFFSET.fullmatch(item.replace(" ", ""))
        if match is None:
            raise options.wrong(option.key(), f"{item!r} is not of the form partition:0,offset:42")
        offsets[KafkaTopicPartition(topics[0], int(match[1]))] = int(match[2])
    return KafkaOffsetsInitializer.offsets(offsets)
