"""`ogg-json`: Oracle GoldenGate's change messages of a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from penstock.base.errors import FormatError
from penstock.table.connectors.formats.changelog import Change, changed, deleted, inserted
from penstock.table.connectors.formats.changelog_json import (
    NOTHING,
    JsonChangelogFormat,
    JsonEnvelope,
    Known,
    given,
    text_field,
    texts_field,
    timestamp_field,
)


class _Message(msgspec.Struct, gc=False):
    op_type: str
    before: msgspec.Raw = NOTHING
    after: msgspec.Raw = NOTHING


class OggEnvelope(JsonEnvelope):
    """GoldenGate's message envelope."""

    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Message | None)
    known: ClassVar[Mapping[str, Known]] = {
        "table": text_field("table"),
        "primary-keys": texts_field("primary_keys"),
        "ingestion-timestamp": timestamp_field("current_ts"),
        "event-timestamp": timestamp_field("op_ts"),
    }

    def changes(self, message: _Message) -> Sequence[Change]:
        """See `JsonEnvelope`."""
        match message.op_type:
            case "I":
                return [inserted(given(message.after, 'the "after" field of an INSERT message'))]
            case "U":
                before = given(message.before, 'the "before" field of an UPDATE message')
                return changed(before, given(message.after, 'the "after" field of an UPDATE message'))
            case "D":
                return [deleted(given(message.before, 'the "before" field of a DELETE message'))]
            case other:
                raise FormatError(f'unknown "op_type" value {other!r}: it is one of I, U and D')


class OggJsonFormat(JsonChangelogFormat):
    """See the module docstring."""

    name = "ogg-json"
    envelope = OggEnvelope
    came = b'{"before":null,"after":%s,"op_type":"I"}'
    went = b'{"before":%s,"after":null,"op_type":"D"}'
