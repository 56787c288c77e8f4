"""JSON changelogs: `debezium-json`, `canal-json`, `maxwell-json` and `ogg-json`, with Flink's options.

A message is parsed only down to its rows, which stay bytes; the `json` decoder then turns all rows of all messages into
columns at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from penstock.base.config_options import ConfigOption
from penstock.base.errors import FormatError
from penstock.codecs.json_text import check_utf8, normalize_message
from penstock.table.connectors.formats.changelog import (
    Change,
    ChangelogDecoder,
    ChangelogEncoder,
    Envelope,
    Told,
    changelog_decoding,
    changelog_encoding,
)
from penstock.table.connectors.formats.format import Decoding, Encoding, TableFormat
from penstock.table.connectors.formats.json_options import CHANGELOG_OPTIONS, json_rules
from penstock.table.connectors.formats.json_reading import JsonMessageDecoder
from penstock.table.connectors.formats.json_rules import JsonRules
from penstock.table.connectors.formats.json_values import value_reader
from penstock.table.connectors.formats.json_writing import JsonMessageEncoder
from penstock.table.connectors.table_options import TableOptions
from penstock.table.data import logical_types as types
from penstock.table.data.logical_types import DataType
from penstock.table.plan.row_schema import RowSchema

#: the value of a field that is null or missing
NOTHING: Final = msgspec.Raw(b"null")
_MILLISECOND_NS: Final = 1_000_000
_TEXT: Final = types.VarCharType(types.LENGTH_MAX)


class Known(NamedTuple):
    """A METADATA column of a format: its type, its path in a message, and the conversion to an internal value."""

    type: DataType
    path: tuple[str, ...]
    held: Callable[[Any], Any]


def text_field(*path: str) -> Known:
    """Return a string column."""
    return Known(_TEXT, path, str)


def texts_field(*path: str) -> Known:
    """Return a column of string arrays."""
    return Known(
        types.ArrayType(_TEXT), path, lambda value: [None if element is None else str(element) for element in value]
    )


def milliseconds_field(*path: str) -> Known:
    """Return a TIMESTAMP_LTZ column, given in milliseconds since 1970."""
    return Known(types.LocalZonedTimestampType(3), path, lambda value: int(value) * _MILLISECOND_NS)


def timestamp_field(*path: str) -> Known:
    """Return a TIMESTAMP_LTZ column, given as text in UTC."""
    read = value_reader(types.TimestampType(6), JsonRules(), "metadata")
    return Known(types.LocalZonedTimestampType(6), path, lambda value: read(value.replace("T", " ").removesuffix("Z")))


def map_field(of: DataType, convert: Callable[[Any], Any], *path: str) -> Known:
    """Return a column of maps with string keys."""
    return Known(
        types.MapType(_TEXT, of),
        path,
        lambda value: [(name, None if item is None else convert(item)) for name, item in value.items()],
    )


class JsonEnvelope(Envelope):
    """The envelope of JSON changelog messages.

    Args:
        keys: the METADATA columns to read.
        settings: further options, for formats that have them.
    """

    #: parses a message down to its rows
    decoder: msgspec.json.Decoder[Any]
    #: the available METADATA columns
    known: ClassVar[Mapping[str, Known]] = {}

    def __init__(self, keys: Sequence[str] = (), settings: Any = None) -> None:
        self._parts = tuple(keys), settings
        self._wanted = [self.known[key] for key in keys]
        self.settings = settings

    @abstractmethod
    def changes(self, message: Any) -> Sequence[Change] | None:
        """Return the changes in a message parsed by `decoder`; None if it describes no row changes."""

    def told(self, message: bytes) -> Told | None:
        """See `Envelope`. An empty or null message is a tombstone: earlier messages of its key are no longer needed."""
        message, parsed = self._parse(message) if message else (message, None)
        changes = None if parsed is None else self.changes(parsed)
        if changes is None:
            return None
        return Told(changes, self._metadata(msgspec.json.decode(message)) if self._wanted else ())

    def _parse(self, message: bytes) -> tuple[bytes, Any]:
        """Return the message in a form that msgspec can parse, and the parsed message."""
        check_utf8(message)
        try:
            return message, self.decoder.decode(message)
        except (msgspec.MsgspecError, RecursionError):
            message = normalize_message(message)
        try:
            return message, self.decoder.decode(message)
        except RecursionError as error:
            raise FormatError("JSON is malformed: objects and arrays are nested too deeply") from error

    def where_metadata_is(self, parsed: Any) -> Any:
        """Return the part of a message, as dicts, that contains the METADATA values."""
        return parsed

    def _metadata(self, parsed: Any) -> list[Any]:
        parsed = self.where_metadata_is(parsed)
        values = []
        for field in self._wanted:
            value = parsed
            for name in field.path:
                value = value.get(name) if isinstance(value, dict) else None
            values.append(None if value is None else field.held(value))
        return values

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


class JsonChangelogFormat(TableFormat):
    """Base class of JSON changelog formats. A subclass defines its envelope and its messages."""

    options: ClassVar[tuple[ConfigOption[Any], ...]] = CHANGELOG_OPTIONS
    envelope: ClassVar[type[JsonEnvelope]]
    #: messages for an inserted row and for a deleted row
    came: ClassVar[bytes]
    went: ClassVar[bytes]

    def settings(self, options: TableOptions) -> Any:
        """Return the options that the envelope needs."""
        return None

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> Decoding:
        """See `TableFormat`."""
        return self.decoding_with_metadata(schema, wanted, options, {})

    def decoding_with_metadata(
        self, schema: RowSchema, wanted: Sequence[int], options: TableOptions, metadata: Mapping[int, str]
    ) -> Decoding:
        """See `TableFormat`."""
        rules = json_rules(options)
        of_rows = [position for position in wanted if position not in metadata]
        of_messages = [position for position in wanted if position in metadata]
        come = [*of_rows, *of_messages]
        decoder = ChangelogDecoder(
            self.envelope([metadata[position] for position in of_messages], self.settings(options)),
            JsonMessageDecoder(RowSchema(tuple(schema[position] for position in of_rows)), rules, takes_arrays=False),
            [(schema[position], self.envelope.known[metadata[position]].type) for position in of_messages],
            None if come == list(wanted) else [come.index(position) for position in wanted],
        )
        return changelog_decoding(decoder, rules.ignores_errors)

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """See `TableFormat`."""
        return {key: known.type for key, known in self.envelope.known.items()}

    def encoding(self, schema: RowSchema, options: TableOptions) -> Encoding:
        """See `TableFormat`."""
        encoder = ChangelogEncoder(JsonMessageEncoder(schema, json_rules(options)), self.came, self.went)
        return changelog_encoding(encoder, schema)


def given(row: msgspec.Raw, what: str) -> bytes:
    """Return the bytes of a row. Raises FormatError if it is null."""
    raw = bytes(row)
    if raw == b"null":
        raise FormatError(f"{what} is null")
    return raw


def with_old(row: Mapping[str, msgspec.Raw], old: Mapping[str, msgspec.Raw]) -> bytes:
    """Return the previous row, from the new row and the old values of the changed fields."""
    return msgspec.json.encode({**row, **old})
