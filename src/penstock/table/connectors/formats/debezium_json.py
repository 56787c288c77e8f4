"""`debezium-json`: Debezium's change messages of a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from penstock.base.errors import FormatError
from penstock.table.connectors.formats.changelog import Change, changed, deleted, inserted, without_before
from penstock.table.connectors.formats.changelog_json import (
    NOTHING,
    JsonChangelogFormat,
    JsonEnvelope,
    Known,
    given,
    map_field,
    milliseconds_field,
    text_field,
)
from penstock.table.connectors.formats.format import Encoding
from penstock.table.connectors.formats.json_options import CHANGELOG_OPTIONS, switch
from penstock.table.connectors.table_options import TableOptions
from penstock.table.data import logical_types as types
from penstock.table.plan.row_schema import RowSchema

SCHEMA_INCLUDE: Final = switch(
    "schema-include", "Whether messages include their schema, as Kafka Connect writes them by default."
)
_TEXT: Final = types.VarCharType(types.LENGTH_MAX)


class _Payload(msgspec.Struct, gc=False):
    op: str
    before: msgspec.Raw = NOTHING
    after: msgspec.Raw = NOTHING


class _WithSchema(msgspec.Struct, gc=False):
    payload: _Payload | None


_WITH_SCHEMA: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_WithSchema | None)


def _property(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class DebeziumEnvelope(JsonEnvelope):
    """Debezium's message envelope. The setting is whether messages include a schema."""

    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Payload | None)
    known: ClassVar[Mapping[str, Known]] = {
        "schema": text_field("schema"),
        "ingestion-timestamp": milliseconds_field("ts_ms"),
        "source.timestamp": milliseconds_field("source", "ts_ms"),
        "source.database": text_field("source", "db"),
        "source.schema": text_field("source", "schema"),
        "source.table": text_field("source", "table"),
        "source.properties": map_field(_TEXT, _property, "source"),
    }

    def __init__(self, keys: Sequence[str] = (), settings: Any = None) -> None:
        super().__init__(keys, settings)
        if settings:
            self.decoder = _WITH_SCHEMA

    def changes(self, message: _Payload | _WithSchema) -> Sequence[Change] | None:
        """See `JsonEnvelope`."""
        if isinstance(message, _WithSchema):
            return None if message.payload is None else self.changes(message.payload)
        match message.op:
            case "c" | "r":
                return [inserted(given(message.after, f'the "after" field of an INSERT ({message.op!r}) message'))]
            case "u":
                before = _before(message.before, "an UPDATE")
                return changed(before, given(message.after, 'the "after" field of an UPDATE message'))
            case "d":
                return [deleted(_before(message.before, "a DELETE"))]
            case other:
                raise FormatError(f'unknown "op" value {other!r}: it is one of c, r, u and d')

    def where_metadata_is(self, parsed: Any) -> Any:
        """See `JsonEnvelope`. The schema is returned as text."""
        if not self.settings:
            return parsed
        schema = parsed.get("schema")
        text = None if schema is None else msgspec.json.encode(schema).decode()
        return {**parsed["payload"], "schema": text}


def _before(row: msgspec.Raw, kind: str) -> bytes:
    raw = bytes(row)
    if raw == b"null":
        raise without_before(kind)
    return raw


class DebeziumJsonFormat(JsonChangelogFormat):
    """See the module docstring."""

    name = "debezium-json"
    options = (SCHEMA_INCLUDE, *CHANGELOG_OPTIONS)
    envelope = DebeziumEnvelope
    came = b'{"before":null,"after":%s,"op":"c"}'
    went = b'{"before":%s,"after":null,"op":"d"}'

    def settings(self, options: TableOptions) -> Any:
        """Return whether messages include a schema."""
        return options.read(SCHEMA_INCLUDE)

    def encoding(self, schema: RowSchema, options: TableOptions) -> Encoding:
        """See `TableFormat`."""
        if options.read(SCHEMA_INCLUDE):
            raise options.wrong(SCHEMA_INCLUDE.key(), "it is for reading alone: rows are written without a schema")
        return super().encoding(schema, options)
