"""Assigns the columns of a table to the key and the value of records, and finds the formats of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.table.connectors.formats.format import Decoding, Formats, MessageEncoder
from penstock.table.connectors.kafka.options import (
    KEY_FIELDS,
    KEY_FORMAT,
    KEY_PREFIX,
    VALUE_FORMAT,
    VALUE_INCLUDES,
    listed,
)
from penstock.table.connectors.kafka.rows import METADATA, Part
from penstock.table.connectors.table_options import CONNECTOR, FORMAT, TableOptions, missing
from penstock.table.data.errors import ValidationError
from penstock.table.plan.changes import INSERTS, Changes
from penstock.table.plan.logical import Scan, Write
from penstock.table.plan.row_schema import RowSchema

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
    decoding = table_format.decoding_with_metadata(node.schema, indices, below, of_format)
    return Part(_with_messages(decoding, table_format.name, options), indices)


def read_key(node: Scan, options: TableOptions, indices: tuple[int, ...], formats: Formats) -> Part:
    """Return the key's columns and how to decode them."""
    table_format, below = formats.find(options.below(KEY))
    decoding = table_format.decoding(_key_schema(node, options), indices, below)
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
