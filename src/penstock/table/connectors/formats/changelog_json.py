"""Changelogs in JSON: `debezium-json`, `canal-json`, `maxwell-json` and `ogg-json`, with Flink's options.

A message is parsed only as far as its rows, which stay bytes; then the decoder of `json` makes columns of all rows of
all messages at once.
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

#: what a field holds that is null, or not there
NOTHING: Final = msgspec.Raw(b"null")
_MILLISECOND_NS: Final = 1_000_000
_TEXT: Final = types.VarCharType(types.LENGTH_MAX)


class Known(NamedTuple):
    """A METADATA column of a format: its type, where its value is in a message, and what makes a held one of it."""

    type: DataType
    path: tuple[str, ...]
    held: Callable[[Any], Any]


def text_at(*path: str) -> Known:
    """A text."""
    return Known(_TEXT, path, str)


def texts_at(*path: str) -> Known:
    """An array of texts."""
    return Known(types.ArrayType(_TEXT), path, lambda value: [None if one is None else str(one) for one in value])


def milliseconds_at(*path: str) -> Known:
    """A point on the time line, given in milliseconds since 1970."""
    return Known(types.LocalZonedTimestampType(3), path, lambda value: int(value) * _MILLISECOND_NS)


def moment_at(*path: str) -> Known:
    """A point on the time line, given as text in UTC."""
    read = value_reader(types.TimestampType(6), JsonRules(), "metadata")
    return Known(types.LocalZonedTimestampType(6), path, lambda value: read(value.replace("T", " ").removesuffix("Z")))


def map_at(of: DataType, held: Callable[[Any], Any], *path: str) -> Known:
    """A map from texts."""
    return Known(
        types.MapType(_TEXT, of),
        path,
        lambda value: [(name, None if one is None else held(one)) for name, one in value.items()],
    )


class JsonEnvelope(Envelope):
    """What is around the rows of messages in JSON.

    Args:
        keys: the METADATA columns that are wanted.
        settings: what else the options say, for a format that has more of them.
    """

    #: parses a message as far as its rows
    decoder: msgspec.json.Decoder[Any]
    #: the METADATA columns that there are
    known: ClassVar[Mapping[str, Known]] = {}

    def __init__(self, keys: Sequence[str] = (), settings: Any = None) -> None:
        self._parts = tuple(keys), settings
        self._wanted = [self.known[key] for key in keys]
        self.settings = settings

    @abstractmethod
    def changes(self, found: Any) -> Sequence[Change] | None:
        """What a message says, of what `decoder` made of it; None for one that says nothing of rows."""

    def told(self, message: bytes) -> Told | None:
        """See `Envelope`. A message of no bytes, or null, tells that earlier ones of its key are not needed."""
        message, found = self._parse(message) if message else (message, None)
        changes = None if found is None else self.changes(found)
        if changes is None:
            return None
        return Told(changes, self._metadata(msgspec.json.decode(message)) if self._wanted else ())

    def _parse(self, message: bytes) -> tuple[bytes, Any]:
        """The message in a form that msgspec parses, and the parsed message."""
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
        """The part of a message, as dicts, in which the values of METADATA columns are found."""
        return parsed

    def _metadata(self, parsed: Any) -> list[Any]:
        parsed = self.where_metadata_is(parsed)
        found = []
        for one in self._wanted:
            value = parsed
            for name in one.path:
                value = value.get(name) if isinstance(value, dict) else None
            found.append(None if value is None else one.held(value))
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


class JsonChangelogFormat(TableFormat):
    """The base of all. A format says what its envelope is, and how its messages look."""

    options: ClassVar[tuple[ConfigOption[Any], ...]] = CHANGELOG_OPTIONS
    envelope: ClassVar[type[JsonEnvelope]]
    #: messages of a row that comes, and of one that goes
    came: ClassVar[bytes]
    went: ClassVar[bytes]

    def settings(self, options: TableOptions) -> Any:
        """What the envelope has to know of the options."""
        return None

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> Decoding:
        """See `TableFormat`."""
        return self.decoding_with_metadata(schema, wanted, options, {})

    def decoding_with_metadata(
        self, schema: RowSchema, wanted: Sequence[int], options: TableOptions, metadata: Mapping[int, str]
    ) -> Decoding:
        """See `TableFormat`."""
        rules = json_rules(options)
        of_rows = [place for place in wanted if place not in metadata]
        of_messages = [place for place in wanted if place in metadata]
        come = [*of_rows, *of_messages]
        decoder = ChangelogDecoder(
            self.envelope([metadata[place] for place in of_messages], self.settings(options)),
            JsonMessageDecoder(RowSchema(tuple(schema[place] for place in of_rows)), rules, takes_arrays=False),
            [(schema[place], self.envelope.known[metadata[place]].type) for place in of_messages],
            None if come == list(wanted) else [come.index(place) for place in wanted],
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
    """The bytes of a row that has to be there."""
    found = bytes(row)
    if found == b"null":
        raise FormatError(f"{what} is null")
    return found


def with_old(row: Mapping[str, msgspec.Raw], old: Mapping[str, msgspec.Raw]) -> bytes:
    """The row as it was, of the row as it is and the fields that had other values."""
    return msgspec.json.encode({**row, **old})
