"""`maxwell-json`: Maxwell's change messages of a MySQL database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from penstock.base.errors import FormatError
from penstock.table.connectors.formats.changelog import Change, changed, deleted, inserted
from penstock.table.connectors.formats.changelog_json import (
    JsonChangelogFormat,
    JsonEnvelope,
    Known,
    milliseconds_field,
    text_field,
    texts_field,
    with_old,
)

_Row = dict[str, msgspec.Raw]


class _Message(msgspec.Struct, gc=False):
    type: str
    data: _Row
    old: _Row | None = None


class MaxwellEnvelope(JsonEnvelope):
    """Maxwell's message envelope."""

    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Message | None)
    known: ClassVar[Mapping[str, Known]] = {
        "database": text_field("database"),
        "table": text_field("table"),
        "primary-key-columns": texts_field("primary_key_columns"),
        "ingestion-timestamp": milliseconds_field("ts"),
    }

    def changes(self, message: _Message) -> Sequence[Change]:
        """See `JsonEnvelope`."""
        row = msgspec.json.encode(message.data)
        match message.type:
            case "insert":
                return [inserted(row)]
            case "update":
                return changed(with_old(message.data, message.old or {}), row)
            case "delete":
                return [deleted(row)]
            case other:
                raise FormatError(f'unknown "type" value {other!r}: it is one of insert, update and delete')


class MaxwellJsonFormat(JsonChangelogFormat):
    """See the module docstring."""

    name = "maxwell-json"
    envelope = MaxwellEnvelope
    came = b'{"data":%s,"type":"insert"}'
    went = b'{"data":%s,"type":"delete"}'
