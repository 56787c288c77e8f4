"""Converts messages of Protocol Buffers to values of records, and back, with functions built for each message type.

The library parses messages in compiled code; this module only extracts the requested fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.base.errors import FormatError
from penstock.codecs.messages import BAD_RECORD, format_reason
from penstock.formats.protobuf_types import is_map, is_repeated

#: reads a field of a message
Read = Callable[[Any], Any]
#: sets a field of a message
Write = Callable[[Any, Any], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The part of a value to read: some fields of a message, the number of an enum, or any other value as a whole.

    For an array this applies to its elements, for a map to its values.
    """

    fields: Mapping[str, Wanted] | None = None
    is_number: bool = False


PLAIN: Final = Wanted()


class Shapes(Protocol):
    """Converts between values of messages and values of records."""

    def record(self, names: Sequence[str]) -> Callable[[list[Any]], Any]:
        """Return a function that makes a nested record from the values of its fields."""
        ...

    def fields(self, record: Any, names: Sequence[str]) -> Sequence[Any]:
        """Return the values of the fields of a nested record."""
        ...

    def mapping(self, entries: Iterable[tuple[Any, Any]]) -> Any:
        """Convert the entries of a map."""
        ...

    def entries(self, mapping: Any) -> Iterable[tuple[Any, Any]]:
        """Return the entries of a converted map."""
        ...


class MessageReader:
    """Extracts fields from messages.

    Args:
        descriptor: the type of the messages.
        projections: the fields, in order.
        shapes: the representation of values.
        reads_defaults: whether a missing field becomes the default of its type, rather than None.
    """

    def __init__(
        self, descriptor: Any, projections: Mapping[str, Wanted], shapes: Shapes, reads_defaults: bool
    ) -> None:
        self._shapes = shapes
        self._reads_defaults = reads_defaults
        self._fields = [
            (name, self._field(get_field_descriptor(descriptor, name), projection))
            for name, projection in projections.items()
        ]

    def values(self, message: Any) -> list[Any]:
        """Return the values of a message. Raises FormatError, which names the field, if one cannot be read."""
        values = []
        for name, read in self._fields:
            try:
                values.append(read(message))
            except BAD_RECORD as error:
                raise FormatError(f"field {name!r}: {format_reason(error)}") from error
        return values

    def columns(self, messages: Sequence[Any]) -> list[list[Any]]:
        """Return the values of each field of many messages. Raises one of `BAD_RECORD` if one cannot be read."""
        return [list(map(read, messages)) for _, read in self._fields]

    def _field(self, field: Any, projection: Wanted) -> Read:
        name, always = field.name, self._reads_defaults
        if is_map(field):
            of_value = self._value(field.message_type.fields_by_name["value"], projection)
            mapping = self._shapes.mapping

            def read_map(message: Any) -> Any:
                entries = getattr(message, name)
                return (
                    mapping([(key, of_value(value)) for key, value in entries.items()]) if entries or always else None
                )

            return read_map
        of_value = self._value(field, projection)
        if is_repeated(field):
            if of_value is _same:
                return lambda message: list(getattr(message, name)) or ([] if always else None)
            return lambda message: list(map(of_value, getattr(message, name))) or ([] if always else None)
        if field.has_presence and not always:
            return lambda message: of_value(getattr(message, name)) if message.HasField(name) else None
        return lambda message: of_value(getattr(message, name))

    def _value(self, field: Any, projection: Wanted) -> Read:
        if field.message_type is not None:
            assert projection.fields is not None
            inner = MessageReader(field.message_type, projection.fields, self._shapes, self._reads_defaults)
            make = self._shapes.record(list(projection.fields))
            return lambda message: make(inner.values(message))
        if field.enum_type is not None and not projection.is_number:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return lambda number: _to_enum_name(number, names)
        return _same


class MessageWriter:
    """Sets fields of messages.

    Args:
        descriptor: the type of the messages.
        projections: the fields, in order.
        shapes: the representation of values.
        null_text: replaces None in arrays and maps of text; None of another type becomes its default there.
    """

    def __init__(self, descriptor: Any, projections: Mapping[str, Wanted], shapes: Shapes, null_text: str = "") -> None:
        self._shapes = shapes
        self._null_text = null_text
        self._names = list(projections)
        self._fields = [
            (name, self._field(get_field_descriptor(descriptor, name), projection))
            for name, projection in projections.items()
        ]

    def fill(self, message: Any, record: Any) -> None:
        """Set the fields of a message from a record. Raises FormatError, which names the field, if one does not fit."""
        for (name, write), value in zip(self._fields, self._shapes.fields(record, self._names), strict=True):
            if value is not None:
                try:
                    write(message, value)
                except BAD_RECORD as error:
                    raise FormatError(f"field {name!r}: {format_reason(error)}") from error

    def _field(self, field: Any, projection: Wanted) -> Write:
        name = field.name
        if is_map(field):
            return self._map(name, field.message_type.fields_by_name["value"], projection)
        if field.message_type is not None:
            inner = self._inner(field, projection)
            if is_repeated(field):

                def write_messages(message: Any, values: Any) -> None:
                    for value in values:
                        element = getattr(message, name).add()
                        if value is not None:
                            inner.fill(element, value)

                return write_messages

            def write_message(message: Any, value: Any) -> None:
                part = getattr(message, name)
                part.SetInParent()
                inner.fill(part, value)

            return write_message
        lower = self._lowered(field)
        if is_repeated(field):
            return lambda message, values: getattr(message, name).extend(list(map(lower, values)))
        return lambda message, value: setattr(message, name, lower(value))

    def _map(self, name: str, field: Any, projection: Wanted) -> Write:
        entries = self._shapes.entries
        if field.message_type is not None:
            inner = self._inner(field, projection)

            def write_messages(message: Any, value: Any) -> None:
                for key, item in entries(value):
                    part = getattr(message, name)[key]
                    if item is not None:
                        inner.fill(part, item)

            return write_messages
        lower = self._lowered(field)

        def write_map(message: Any, value: Any) -> None:
            target = getattr(message, name)
            for key, item in entries(value):
                target[key] = lower(item)

        return write_map

    def _inner(self, field: Any, projection: Wanted) -> MessageWriter:
        assert projection.fields is not None
        return MessageWriter(field.message_type, projection.fields, self._shapes, self._null_text)

    def _lowered(self, field: Any) -> Callable[[Any], Any]:
        """Return a function that converts a value to one that the library accepts."""
        default = self._null_text if field.type == field.TYPE_STRING else _get_default(field)
        if field.enum_type is not None:
            numbers = {name: value.number for name, value in field.enum_type.values_by_name.items()}
            return lambda value: default if value is None else _to_enum_number(value, numbers)
        return lambda value: default if value is None else value


def get_field_descriptor(descriptor: Any, name: str) -> Any:
    """Return the field with a name. Raises FormatError if it does not exist."""
    field_descriptor = descriptor.fields_by_name.get(name)
    if field_descriptor is None:
        raise FormatError(
            f"message {descriptor.full_name} has no field {name!r}: it has "
            f"{', '.join(field.name for field in descriptor.fields)}"
        )
    return field_descriptor


def _get_default(field: Any) -> Any:
    """Return the replacement of None in arrays and maps; a single value never uses it."""
    if field.enum_type is not None:
        return field.enum_type.values[0].number
    kinds = {field.CPPTYPE_BOOL: False, field.CPPTYPE_FLOAT: 0.0, field.CPPTYPE_DOUBLE: 0.0}
    return b"" if field.type == field.TYPE_BYTES else kinds.get(field.cpp_type, 0)


def _to_enum_name(number: int, names: Mapping[int, str]) -> str:
    if number not in names:
        raise FormatError(f"the enum has no name for {number}")
    return names[number]


def _to_enum_number(value: Any, numbers: Mapping[str, int]) -> int:
    if isinstance(value, str):
        if value not in numbers:
            raise FormatError(f"the enum has no {value!r}: it has {', '.join(numbers)}")
        return numbers[value]
    return int(value)


def _same(value: Any) -> Any:
    return value
