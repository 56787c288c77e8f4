"""The options of `kafka` and `upsert-kafka` tables, which match Flink's connectors of the same names.

They assign the columns of a table to the key and the value of records, and name the formats of both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import ConfigurationError
from penstock.connectors.kafka.client import DISCOVERY_INTERVAL, RESET
from penstock.connectors.kafka.partitions import KafkaOffsetResetStrategy, KafkaOffsetsInitializer, KafkaTopicPartition
from penstock.sql.connectors.kafka.rows import METADATA, Part
from penstock.sql.data.errors import ValidationError
from penstock.sql.formats.format import Decoding, Formats, MessageEncoder, decode_columns
from penstock.sql.logical.nodes import INSERTS, Changes, RowSchema, Scan, Write
from penstock.sql.tables.connector import CONNECTOR, FORMAT, TableOptions, missing

PROPERTIES: Final = "properties."


def _text(key: str, description: str) -> ConfigOption[str | None]:
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


SERVERS: Final = _text("properties.bootstrap.servers", "The bootstrap servers, as `host:port,host:port`.")
GROUP: Final = _text("properties.group.id", "The consumer group to which the offsets of checkpoints are committed.")
TOPIC: Final = _text("topic", "The topics to read, separated by `;`, or the one topic to write.")
TOPIC_PATTERN: Final = _text("topic-pattern", "A regular expression that the whole names of the topics to read match.")
VALUE_FORMAT: Final = _text("value.format", "An alternative to `format`.")
KEY_FORMAT: Final = _text("key.format", "The format of keys; its options are prefixed with `key.` and its name.")
KEY_FIELDS: Final = _text("key.fields", "The columns of the key, separated by `;`.")
KEY_PREFIX: Final = (
    ConfigOptions.key("key.fields-prefix")
    .string_type()
    .default_value("")
    .with_description("A prefix of the names of key columns, which the key itself does not have.")
)
VALUE_INCLUDES: Final = (
    ConfigOptions.key("value.fields-include")
    .string_type()
    .default_value("ALL")
    .with_description("`EXCEPT_KEY`: the value does not include the key columns.")
)
STARTUP: Final = (
    ConfigOptions.key("scan.startup.mode")
    .string_type()
    .default_value("group-offsets")
    .with_description(
        "Where to start: `earliest-offset`, `latest-offset`, `group-offsets`, `timestamp`, `specific-offsets`."
    )
)
STARTUP_OFFSETS: Final = _text(
    "scan.startup.specific-offsets", "The start offsets, as `partition:0,offset:42;partition:1,offset:300`."
)
STARTUP_TIMESTAMP: Final = (
    ConfigOptions.key("scan.startup.timestamp-millis")
    .long_type()
    .no_default_value()
    .with_description("The timestamp of the first record, in ms.")
)
BOUNDED: Final = (
    ConfigOptions.key("scan.bounded.mode")
    .string_type()
    .default_value("unbounded")
    .with_description("Where to stop: `unbounded`, `latest-offset`, `group-offsets`, `timestamp`, `specific-offsets`.")
)
BOUNDED_OFFSETS: Final = _text(
    "scan.bounded.specific-offsets", "The end offsets (exclusive), as for `scan.startup.specific-offsets`."
)
BOUNDED_TIMESTAMP: Final = (
    ConfigOptions.key("scan.bounded.timestamp-millis")
    .long_type()
    .no_default_value()
    .with_description("The timestamp of the first record that is not read, in ms.")
)
DISCOVERY: Final = (
    ConfigOptions.key("scan.topic-partition-discovery.interval")
    .duration_type()
    .default_value(300_000)
    .with_description("The interval at which new partitions are discovered; 0 disables discovery.")
)
PARTITIONER: Final = (
    ConfigOptions.key("sink.partitioner")
    .string_type()
    .default_value("default")
    .with_description(
        "How to choose the partition of a row: `default`, by its key, or by the Kafka client's choice without one; "
        "`fixed`, one per subtask; `round-robin`, for rows without keys."
    )
)
GUARANTEE: Final = (
    ConfigOptions.key("sink.delivery-guarantee")
    .string_type()
    .default_value("at-least-once")
    .with_description("`at-least-once`, `exactly-once` with transactions, or `none`.")
)
TRANSACTION_PREFIX: Final = _text(
    "sink.transactional-id-prefix", "The prefix of transactional ids; `exactly-once` needs one that no other job uses."
)
UPSERT_TOPIC: Final = _text("topic", "The topic to read or write.")
UPSERT_KEY_FORMAT: Final = _text(
    "key.format", "The format of the primary key; its options are prefixed with `key.` and its name."
)
UPSERT_VALUE_FORMAT: Final = _text(
    "value.format", "The format of rows; its options are prefixed with `value.` and its name."
)
BUFFER_ROWS: Final = (
    ConfigOptions.key("sink.buffer-flush.max-rows")
    .int_type()
    .default_value(0)
    .with_description(
        "The maximum number of buffered changes; only the last change per key is written. 0 disables buffering."
    )
)
BUFFER_INTERVAL: Final = (
    ConfigOptions.key("sink.buffer-flush.interval")
    .duration_type()
    .default_value(0)
    .with_description("The maximum time that changes stay buffered; buffering needs both options.")
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


KEY = "key."
VALUE = "value."


def of_value(options: TableOptions) -> TableOptions:
    """Return the options that configure the value's format."""
    if VALUE_FORMAT.key() in options:
        return options.below(VALUE)
    if FORMAT.key() not in options:
        raise missing(options.title, [FORMAT.key()])
    return options


def key_places(node: Scan | Write, options: TableOptions) -> tuple[int, ...]:
    """Return the indexes of the key columns, which the option `key.fields` names."""
    names = listed(options.read(KEY_FIELDS))
    if (KEY_FORMAT.key() in options) != bool(names):
        raise ValidationError(f"The options 'key.format' and 'key.fields' of table {options.title} need each other")
    columns = node.schema.names
    unknown = [name for name in names if name not in columns or columns.index(name) in dict(node.metadata)]
    if unknown:
        raise options.wrong(KEY_FIELDS.key(), f"the table has no columns {', '.join(unknown)}")
    indices = tuple(map(columns.index, names))
    check_prefix(node, indices, options)
    return indices


def check_prefix(node: Scan | Write, indices: Sequence[int], options: TableOptions) -> None:
    """Raise `ValidationError` if the name of a key column lacks the prefix."""
    prefix = options.read(KEY_PREFIX)
    wrong = [node.schema[index].name for index in indices if not node.schema[index].name.startswith(prefix)]
    if wrong:
        raise options.wrong(KEY_PREFIX.key(), f"the names of {', '.join(wrong)} do not begin with {prefix!r}")


def _value_places(node: Scan | Write, options: TableOptions, in_key: Sequence[int]) -> tuple[int, ...]:
    includes = options.read(VALUE_INCLUDES)
    if includes not in ("ALL", "EXCEPT_KEY"):
        raise options.wrong(VALUE_INCLUDES.key(), f"it must be ALL or EXCEPT_KEY, not {includes!r}")
    if includes == "ALL" and options.read(KEY_PREFIX):
        raise options.wrong(KEY_PREFIX.key(), "it needs 'value.fields-include' = 'EXCEPT_KEY'")
    about = {index for index, key in node.metadata if key in METADATA}
    left_out = about | (set(in_key) if includes == "EXCEPT_KEY" else set())
    return tuple(index for index in range(len(node.schema)) if index not in left_out)


def _key_schema(node: Scan | Write, options: TableOptions) -> RowSchema:
    prefix = options.read(KEY_PREFIX)
    return node.schema.renamed([name.removeprefix(prefix) for name in node.schema.names])


def read_value(node: Scan, options: TableOptions, in_key: Sequence[int], formats: Formats) -> Part:
    """Return the value's columns and how to decode them."""
    of_format = {index: key.removeprefix(VALUE) for index, key in node.metadata if key not in METADATA}
    indices = _value_places(node, options, in_key)
    table_format, below = formats.find(of_value(options))
    decoding = decode_columns(table_format, node.schema, indices, below, of_format)
    return Part(_with_messages(decoding, table_format.name, options), indices)


def read_key(node: Scan, options: TableOptions, indices: tuple[int, ...], formats: Formats) -> Part:
    """Return the key's columns and how to decode them."""
    table_format, below = formats.find(options.below(KEY))
    decoding = decode_columns(table_format, _key_schema(node, options), indices, below)
    _check_key_changes(decoding.changes, table_format.name, node, options)
    return Part(replace(_with_messages(decoding, table_format.name, options), skips_bad=False), indices)


def _check_key_changes(changes: Changes, name: str, node: Scan | Write, options: TableOptions) -> None:
    if changes != INSERTS:
        connector = dict(node.options)[CONNECTOR.key()]
        raise options.wrong(
            KEY_FORMAT.key(),
            f"'{connector}' connector doesn't support '{name}' as key format, because '{name}' is not in insert-only "
            "mode: it describes changes, which a key has none of",
        )


def written_value(
    node: Write, options: TableOptions, in_key: Sequence[int], formats: Formats
) -> tuple[MessageEncoder, tuple[int, ...], Changes]:
    """Return the value's encoder, its columns, and the changes that it can encode."""
    indices = _value_places(node, options, in_key)
    table_format, below = formats.find(of_value(options))
    encoding = table_format.encoding(RowSchema(tuple(node.schema[index] for index in indices)), below)
    if encoding.messages is None:
        raise _without_messages(table_format.name, options)
    return encoding.messages, indices, encoding.accepts


def written_key(node: Write, options: TableOptions, indices: Sequence[int], formats: Formats) -> MessageEncoder:
    """Return the key's encoder."""
    schema = _key_schema(node, options)
    table_format, below = formats.find(options.below(KEY))
    encoding = table_format.encoding(RowSchema(tuple(schema[index] for index in indices)), below)
    _check_key_changes(encoding.accepts, table_format.name, node, options)
    if encoding.messages is None:
        raise _without_messages(table_format.name, options)
    return encoding.messages


def _with_messages(decoding: Decoding, name: str, options: TableOptions) -> Decoding:
    if decoding.messages is None:
        raise _without_messages(name, options)
    return decoding


def _without_messages(name: str, options: TableOptions) -> ValidationError:
    return ValidationError(f"Format '{name}' has only files, and no messages: table {options.title}")
