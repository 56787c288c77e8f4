"""Rows as messages of Protocol Buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.base.errors import FormatError, UnsupportedError, shorten
from penstock.base.types import Row
from penstock.codecs.messages import BAD_RECORD, Deserialized, decode_each
from penstock.codecs.row_batches import make_rows
from penstock.codecs.serialization import DeserializationSchema, SerializationSchema
from penstock.formats.bulk_format import fields_of
from penstock.formats.protobuf_types import ProtobufType, is_map
from penstock.formats.protobuf_values import PLAIN, MessageReader, MessageWriter, Wanted

__all__ = ["ProtobufRowDeserializationSchema", "ProtobufRowSerializationSchema", "ProtobufType"]


class RowShapes:
    """Messages inside of others as rows, maps as dicts."""

    def record(self, names: Sequence[str]) -> Callable[[list[Any]], Any]:
        """See `Shapes`."""
        fields = tuple(names)
        return lambda values: make_rows(fields, (values,))[0]

    def fields(self, record: Any, names: Sequence[str]) -> Sequence[Any]:
        """See `Shapes`."""
        return fields_of(record, names)

    def mapping(self, entries: Iterable[tuple[Any, Any]]) -> Any:
        """See `Shapes`."""
        return dict(entries)

    def entries(self, mapping: Any) -> Iterable[tuple[Any, Any]]:
        """See `Shapes`."""
        found: Iterable[tuple[Any, Any]] = mapping.items()
        return found


class ProtobufRowDeserializationSchema(DeserializationSchema[Row]):
    """Reads rows from messages of Protocol Buffers: a field for each of the message's, under its name.

    Messages inside are rows, repeated fields lists, maps dicts, and of an enum it is the name. What is not there is
    None; but a field that cannot tell, such as a number in proto3 that is not `optional`, has its default.

    Args:
        message: a class that `protoc` made, or a `ProtobufType`.
        read_default_values: whether what is not there has the default of its type.

    Raises:
        NotImplementedError: if a message holds one of its own type, or the library is not installed.
    """

    def __init__(self, message: Any, read_default_values: bool = False) -> None:
        self._type = message if isinstance(message, ProtobufType) else ProtobufType.of_class(message)
        self._reads_defaults = read_default_values
        wanted = all_fields(self._type.descriptor)
        self._names = tuple(wanted)
        self._parse = parser(self._type)
        self._reader = MessageReader(self._type.descriptor, wanted, RowShapes(), read_default_values)

    def deserialize(self, message: bytes) -> Row | None:
        """Returns the row of a message. A message that cannot be read is dropped if such messages are skipped.

        Raises:
            FormatError: if the message is not of the type.
        """
        try:
            return self._record(message)
        except BAD_RECORD as error:
            if self.on_error == "skip":
                return None
            raise FormatError(
                f"cannot read {self._type.descriptor.full_name} {shorten(repr(message))}: {error}"
            ) from error

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Returns the rows of many messages."""
        try:
            columns = self._reader.columns(list(map(self._parse, messages)))
            return Deserialized(make_rows(self._names, map(list, zip(*columns, strict=True))))
        except BAD_RECORD:
            return decode_each(self._record, messages)

    def _record(self, message: bytes) -> Row:
        return make_rows(self._names, (self._reader.values(self._parse(message)),))[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type, self._reads_defaults), self.malformed_handling()


class ProtobufRowSerializationSchema(SerializationSchema[Any]):
    """Writes rows, tuples or dicts as messages of Protocol Buffers; the counterpart of reading them.

    Args:
        message: a class that `protoc` made, or a `ProtobufType`.

    Raises:
        NotImplementedError: if a message holds one of its own type, or the library is not installed.
    """

    def __init__(self, message: Any) -> None:
        self._type = message if isinstance(message, ProtobufType) else ProtobufType.of_class(message)
        self._writer = MessageWriter(self._type.descriptor, all_fields(self._type.descriptor), RowShapes())

    def serialize(self, element: Any) -> bytes:
        """Returns the message for a record.

        Raises:
            FormatError: if the record does not fit the type.
        """
        message = self._type.message_class()
        try:
            self._writer.fill(message, element)
        except BAD_RECORD as error:
            name = self._type.descriptor.full_name
            raise FormatError(f"cannot write {shorten(repr(element))} as {name}: {error}") from error
        data: bytes = message.SerializeToString()
        return data

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type,)


def parser(message_type: ProtobufType) -> Callable[[bytes], Any]:
    """The function that parses a message. It raises FormatError for bytes that are none."""
    from google.protobuf.message import DecodeError

    parse = message_type.message_class.FromString
    name = message_type.message_class.DESCRIPTOR.full_name

    def parsed(message: bytes) -> Any:
        try:
            return parse(message)
        except DecodeError as error:
            reason = str(error)  # which has the type of the message, or not, by the release of protobuf
            raise FormatError(reason if name in reason else f"{reason} with type '{name}'") from error

    return parsed


def all_fields(descriptor: Any, around: tuple[str, ...] = ()) -> Mapping[str, Wanted]:
    """All fields of a message. Raises UnsupportedError for a message that holds one of its own type."""
    if descriptor.full_name in around:
        raise UnsupportedError(
            f"message {descriptor.full_name} holds one of its own type, so its rows have no end: read it as bytes"
        )
    within = (*around, descriptor.full_name)
    return {field.name: _wanted(field, within) for field in descriptor.fields}


def _wanted(field: Any, around: tuple[str, ...]) -> Wanted:
    if is_map(field):
        return _wanted(field.message_type.fields_by_name["value"], around)
    return PLAIN if field.message_type is None else Wanted(all_fields(field.message_type, around))
