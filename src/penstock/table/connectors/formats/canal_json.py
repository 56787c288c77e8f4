"""`canal-json`: Canal's change messages of a MySQL database."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import FormatError
from penstock.table.connectors.formats.changelog import Change, changed, deleted, inserted
from penstock.table.connectors.formats.changelog_json import (
    JsonChangelogFormat,
    JsonEnvelope,
    Known,
    map_field,
    milliseconds_field,
    text_field,
    texts_field,
    with_old,
)
from penstock.table.connectors.formats.json_options import CHANGELOG_OPTIONS
from penstock.table.connectors.table_options import TableOptions
from penstock.table.data import logical_types as types

DATABASE_INCLUDE: Final = (
    ConfigOptions.key("database.include")
    .string_type()
    .no_default_value()
    .with_description("A regular expression for databases; changes of others are skipped.")
)
TABLE_INCLUDE: Final = (
    ConfigOptions.key("table.include")
    .string_type()
    .no_default_value()
    .with_description("A regular expression for tables; changes of others are skipped.")
)

_Row = dict[str, msgspec.Raw]


class _Message(msgspec.Struct, gc=False):
    type: str
    data: list[_Row] | None = None
    old: list[_Row | None] | None = None
    database: str | None = None
    table: str | None = None


class CanalEnvelope(JsonEnvelope):
    """Canal's message envelope. The settings are the patterns of databases and tables to read; None for any."""

    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Message | None)
    known: ClassVar[Mapping[str, Known]] = {
        "database": text_field("database"),
        "table": text_field("table"),
        "sql-type": map_field(types.IntType(), int, "sqlType"),
        "pk-names": texts_field("pkNames"),
        "ingestion-timestamp": milliseconds_field("ts"),
        "event-timestamp": milliseconds_field("es"),
    }

    def changes(self, message: _Message) -> Sequence[Change] | None:
        """See `JsonEnvelope`. A message may describe many rows. CREATE concerns a table and is skipped."""
        if not self._counts(message):
            return None
        rows = message.data or []
        match message.type:
            case "INSERT":
                return [inserted(msgspec.json.encode(row)) for row in rows]
            case "DELETE":
                return [deleted(msgspec.json.encode(row)) for row in rows]
            case "UPDATE":
                old = message.old or []
                if len(old) != len(rows):
                    raise FormatError(f'an UPDATE message has {len(rows)} rows in "data" and {len(old)} in "old"')
                updates = zip(rows, old, strict=True)
                pairs = [changed(with_old(row, was or {}), msgspec.json.encode(row)) for row, was in updates]
                return list(itertools.chain.from_iterable(pairs))
            case "CREATE":
                return None
            case other:
                raise FormatError(f'unknown "type" value {other!r}: it is one of INSERT, UPDATE, DELETE and CREATE')

    def _counts(self, message: _Message) -> bool:
        database, table = self.settings or (None, None)
        return _matches(database, message.database) and _matches(table, message.table)


def _matches(pattern: str | None, name: str | None) -> bool:
    return pattern is None or (name is not None and re.fullmatch(pattern, name) is not None)


class CanalJsonFormat(JsonChangelogFormat):
    """See the module docstring."""

    name = "canal-json"
    options = (*CHANGELOG_OPTIONS, DATABASE_INCLUDE, TABLE_INCLUDE)
    envelope = CanalEnvelope
    came = b'{"data":[%s],"type":"INSERT"}'
    went = b'{"data":[%s],"type":"DELETE"}'

    def settings(self, options: TableOptions) -> Any:
        """Return the patterns of databases and tables to read."""
        return _pattern(DATABASE_INCLUDE, options), _pattern(TABLE_INCLUDE, options)


def _pattern(option: ConfigOption[str | None], options: TableOptions) -> str | None:
    pattern = options.read(option)
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise options.wrong(option.key(), f"it is no regular expression: {error}") from error
    return pattern
