"""Messages of Protocol Buffers as values of records, and back, by functions made for a type of message.

The library parses a message in compiled code; what is done here is to take out the fields that are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.base.errors import FormatError
from penstock.codecs.messages import BAD_RECORD, reason_of
from penstock.formats.protobuf_types import is_map, is_repeated

#: reads a field of a message
Read = Callable[[Any], Any]
#: sets a field of a message
Write = Callable[[Any, Any], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of a value: of a message some fields, of an enum its number; of anything else the value.

    Of an array this is of its elements, of a map of its values.
    """

    fields: Mapping[str, Wanted] | None = None
    is_number: bool = False


PLAIN: Final = Wanted()


class Shapes(Protocol):
    """What values become, and what they were before."""

    def record(self, names: Sequence[str]) -> Callable[[list[Any]], Any]:
        """What makes a record that is inside of another, of the values of its fields."""
        ...

    def fields(self, record: Any, names: Sequence[str]) -> Sequence[Any]:
        """The values of the fields of such a record."""
        ...

    def mapping(self, entries: Iterable[tuple[Any, Any]]) -> Any:
        """What a map becomes."""
        ...

    def entries(self, mapping: Any) -> Iterable[tuple[Any, Any]]:
        """The entries of such a map."""
        ...


class MessageReader:
    """Takes fields out of messages.

    Args:
        descriptor: the type of the messages.
        wanted: the fields, in order.
        shapes: what values become.
        reads_defaults: whether what is not there is the default of its type, rather than None.
    """

    def __init__(self, descriptor: Any, wanted: Mapping[str, Wanted], shapes: Shapes, reads_defaults: bool) -> None:
        self._shapes = shapes
        self._reads_defaults = reads_defaults
        self._fields = [(name, self._field(field_of(descriptor, name), one)) for name, one in wanted.items()]

    def values(self, message: Any) -> list[Any]:
        """The values of a message. Raises FormatError, which names the field, for one that cannot be taken."""
        found = []
        for name, read in self._fields:
            try:
                found.append(read(message))
            except BAD_RECORD as error:
                raise FormatError(f"field {name!r}: {reason_of(error)}") from error
        return found

    def columns(self, messages: Sequence[Any]) -> list[list[Any]]:
        """The values of each field of many messages. Raises one of `BAD_RECORD` if one cannot be taken."""
        return [list(map(read, messages)) for _, read in self._fields]

    def _field(self, field: Any, wanted: Wanted) -> Read:
        name, always = field.name, self._reads_defaults
        if is_map(field):
            of_value = self._value(field.message_type.fields_by_name["value"], wanted)
            mapping = self._shapes.mapping

            def read_map(message: Any) -> Any:
                entries = getattr(message, name)
                return (
                    mapping([(key, of_value(value)) for key, value in entries.items()]) if entries or always else None
                )

            return read_map
        of_value = self._value(field, wanted)
        if is_repeated(field):
            if of_value is _same:
                return lambda message: list(getattr(message, name)) or ([] if always else None)
            return lambda message: list(map(of_value, getattr(message, name))) or ([] if always else None)
        if field.has_presence and not always:
            return lambda message: of_value(getattr(message, name)) if message.HasField(name) else None
        return lambda message: of_value(getattr(message, name))

    def _value(self, field: Any, wanted: Wanted) -> Read:
        if field.message_type is not None:
            assert wanted.fields is not None
            inner = MessageReader(field.message_type, wanted.fields, self._shapes, self._reads_defaults)
            make = self._shapes.record(list(wanted.fields))
            return lambda message: make(inner.values(message))
        if field.enum_type is not None and not wanted.is_number:
            names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
            return lambda number: _name_of(number, names)
        return _same


class MessageWriter:
    """Sets fields of messages.

    Args:
        descriptor: the type of the messages.
        wanted: the fields, in order.
        shapes: what values are.
        null_text: what stands for None in arrays and maps of texts; there None of another type is its default.
    """

    def __init__(self, descriptor: Any, wanted: Mapping[str, Wanted], shapes: Shapes, null_text: str = "") -> None:
        self._shapes = shapes
        self._null_text = null_text
        self._names = list(wanted)
        self._fields = [(name, self._field(field_of(descriptor, name), one)) for name, one in wanted.items()]

    def fill(self, message: Any, record: Any) -> None:
        """Set the fields of a message as a record says. Raises FormatError, with the field, if one does not fit."""
        for (name, write), value in zip(self._fields, self._shapes.fields(record, self._names), strict=True):
            if value is not None:
                try:
                    write(message, value)
                except BAD_RECORD as error:
                    raise FormatError(f"field {name!r}: {reason_of(error)}") from error

    def _field(self, field: Any, wanted: Wanted) -> Write:
        name = field.name
        if is_map(field):
            return self._map(name, field.message_type.fields_by_name["value"], wanted)
        if field.message_type is not None:
            inner = self._inner(field, wanted)
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

    def _map(self, name: str, field: Any, wanted: Wanted) -> Write:
        entries = self._shapes.entries
        if field.message_type is not None:
            inner = self._inner(field, wanted)

            def write_messages(message: Any, value: Any) -> None:
                for key, one in entries(value):
                    part = getattr(message, name)[key]
                    if one is not None:
                        inner.fill(part, one)

            return write_messages
        lower = self._lowered(field)

        def write_map(message: Any, value: Any) -> None:
            target = getattr(message, name)
            for key, one in entries(value):
                target[key] = lower(one)

        return write_map

    def _inner(self, field: Any, wanted: Wanted) -> MessageWriter:
        assert wanted.fields is not None
        return MessageWriter(field.message_type, wanted.fields, self._shapes, self._null_text)

    def _lowered(self, field: Any) -> Callable[[Any], Any]:
        """What makes of a value one that the library takes."""
        default = self._null_text if field.type == field.TYPE_STRING else _default_of(field)
        if field.enum_type is not None:
            numbers = {name: one.number for name, one in field.enum_type.values_by_name.items()}
            return lambda value: default if value is None else _number_of(value, numbers)
        return lambda value: default if value is None else value


def field_of(descriptor: Any, name: str) -> Any:
    """The field of a name. Raises FormatError where there is none."""
    found = descriptor.fields_by_name.get(name)
    if found is None:
        raise FormatError(
            f"message {descriptor.full_name} has no field {name!r}: it has "
            f"{', '.join(field.name for field in descriptor.fields)}"
        )
    return found


def _default_of(field: Any) -> Any:
    """What stands for None among many values; for one value alone it never does."""
    if field.enum_type is not None:
        return field.enum_type.values[0].number
    kinds = {field.CPPTYPE_BOOL: False, field.CPPTYPE_FLOAT: 0.0, field.CPPTYPE_DOUBLE: 0.0}
    return b"" if field.type == field.TYPE_BYTES else kinds.get(field.cpp_type, 0)


def _name_of(number: int, names: Mapping[int, str]) -> str:
    if number not in names:
        raise FormatError(f"the enum has no name for {number}")
    return names[number]


def _number_of(value: Any, numbers: Mapping[str, int]) -> int:
    if isinstance(value, str):
        if value not in numbers:
            raise FormatError(f"the enum has no {value!r}: it has {', '.join(numbers)}")
        return numbers[value]
    return int(value)


def _same(value: Any) -> Any:
    return value
