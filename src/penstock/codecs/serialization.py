"""Schemas and encoders, which convert between records and bytes at the edges of a job.

PyFlink's schemas and encoders only wrap Java classes. These do the work themselves and can be subclassed.
"""

from __future__ import annotations

import codecs
import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO, Generic, Self, TypeVar

from penstock.base.copies import with_own_results
from penstock.base.errors import FormatError, WrongValueError
from penstock.base.output_tag import OutputTag
from penstock.base.typeinfo import TypeInformation, Types
from penstock.codecs.column_data import ColumnData
from penstock.codecs.messages import Deserialized, OnError, decode_each
from penstock.codecs.rendering import renderer

__all__ = [
    "BulkWriter",
    "BulkWriterFactory",
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]

T = TypeVar("T")


class SerializationSchema(ABC, Generic[T]):
    """Converts records to messages."""

    @abstractmethod
    def serialize(self, element: T) -> bytes:
        """Return the message for a record.

        Raises:
            FormatError: if the record cannot be written in this format.
        """

    def serialize_batch(self, elements: Sequence[Any] | ColumnData) -> list[bytes]:
        """Return the message for each of many records; calls `serialize` for each by default.

        Raises:
            FormatError: if a record cannot be written in this format; the message shows the record.
        """
        records: Iterable[Any] = elements
        return list(map(self.serialize, records))


class DeserializationSchema(ABC, Generic[T]):
    """Converts messages to records.

    Attributes:
        on_error: how a source handles a message that is not in this format: `fail`, unless `skip_malformed` was called.
        malformed_output: the side output for such messages, if any.
    """

    on_error: OnError = "fail"
    malformed_output: OutputTag | None = None

    @abstractmethod
    def deserialize(self, message: bytes) -> T | None:
        """Return the record of a message, or None to drop the message.

        Raises:
            FormatError: if the message is not in this format.
        """

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Return the records of many messages and the malformed messages; see `Deserialized`.

        Sources call only this method. By default it calls `deserialize` for each message, which may reuse an object
        that it has already returned.
        """
        return decode_each(with_own_results(self.deserialize), messages)

    def skip_malformed(self, output: OutputTag | None = None) -> Self:
        """Return a copy of this schema that makes sources skip malformed messages.

        Skipped messages are counted in the metric `malformed_records`. By default a malformed message fails the job.

        Args:
            output: a side output of the source. It receives a tuple for each such message: the split (for Kafka, topic
                and partition), the position in it, the reason, and the message's bytes.
        """
        changed = copy.copy(self)
        changed.on_error, changed.malformed_output = "skip", output
        return changed

    def malformed_handling(self) -> dict[str, Any]:
        """Return the settings of `skip_malformed`, for schemas that pickle as their constructor's arguments."""
        return {"on_error": self.on_error, "malformed_output": self.malformed_output}

    def is_end_of_stream(self, next_element: T) -> bool:
        """Return whether the record marks the end of the stream; False unless overridden."""
        return False

    def get_produced_type(self) -> TypeInformation:
        """Return the type of the records; any Python object, unless overridden."""
        return Types.PICKLED_BYTE_ARRAY()


class SimpleStringSchema(SerializationSchema[str], DeserializationSchema[str]):
    """Converts text to and from the bytes of a character set.

    Raises:
        LookupError: if the character set is unknown.
    """

    def __init__(self, charset: str = "UTF-8") -> None:
        self._charset = codecs.lookup(charset).name

    def serialize(self, element: str) -> bytes:
        """Return the encoded text."""
        if not isinstance(element, str):
            raise FormatError(f"SimpleStringSchema writes str, not {type(element).__name__}: {element!r}")
        try:
            return element.encode(self._charset)
        except UnicodeError as error:
            raise FormatError(f"cannot write {element!r} as {self._charset}: {error}") from error

    def serialize_batch(self, elements: Sequence[Any] | ColumnData) -> list[bytes]:
        """Return the encoded form of many texts."""
        charset = self._charset
        try:
            return [element.encode(charset) for element in elements]
        except (AttributeError, UnicodeError):
            return super().serialize_batch(elements)

    def deserialize(self, message: bytes) -> str:
        """Return the text; invalid bytes become the replacement character, as in Java."""
        return message.decode(self._charset, errors="replace")

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Return the texts of many messages."""
        charset = self._charset
        return Deserialized([message.decode(charset, "replace") for message in messages])

    def get_produced_type(self) -> TypeInformation:
        """Text."""
        return Types.STRING()


class ByteArraySchema(SerializationSchema[bytes], DeserializationSchema[bytes]):
    """Passes bytes through unchanged."""

    def __init__(self) -> None:
        super().__init__()

    def serialize(self, element: bytes) -> bytes:
        """Return the record itself, which must be bytes."""
        return _require_bytes(element, "ByteArraySchema writes bytes")

    def deserialize(self, message: bytes) -> bytes:
        """Return the message itself."""
        return message

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Return the messages themselves."""
        return Deserialized(list(messages))

    def get_produced_type(self) -> TypeInformation:
        """Bytes."""
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema[Any]):
    """Uses one bytes field of a row as the message, for example as the key of a Kafka record.

    Args:
        field_index: the index of the field, from 0.

    Raises:
        ValueError: if the index is negative.
    """

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            raise WrongValueError(f"the position of a field must not be negative: {field_index}")
        self._field_index = field_index

    def serialize(self, element: Any) -> bytes:
        """Return the bytes of the field, or empty bytes if the field is None."""
        if self._field_index >= len(element):
            raise FormatError(f"no field {self._field_index} in {element!r}")
        field = element[self._field_index]
        return b"" if field is None else _require_bytes(field, f"field {self._field_index} must hold bytes")


class Encoder(Generic[T]):
    """Writes records to a file one after the other.

    Args:
        encode: returns a record's bytes, including the line end.
    """

    def __init__(self, encode: Callable[[T], bytes]) -> None:
        self._encode = encode

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder[Any]:
        """Return an encoder that writes each record as a line of text.

        Records of a declared type are formatted as in Flink: a TUPLE as `(hi,1)`, a ROW as `+I[hi, 1]`, a boolean as
        `true`, a double as `1.0E10`. All others are formatted by `str`.

        Raises:
            LookupError: if the character set is unknown.
        """
        return Encoder(_StringLine(codecs.lookup(charset_name).name))

    def for_type(self, type_info: TypeInformation | None) -> Encoder[T]:
        """Return the encoder for records of a declared type, or of none; by default the type has no effect."""
        encode = getattr(self, "_encode", None)  # a subclass may not set `_encode`
        return Encoder(encode.for_type(type_info)) if isinstance(encode, _StringLine) else self

    def encode(self, element: T, stream: BinaryIO) -> None:
        """Write a record at the stream's position."""
        stream.write(self._encode(element))


class _StringLine:
    """Formats a record as a line of text; a class, so that encoders can be pickled."""

    def __init__(self, charset: str, type_info: TypeInformation | None = None) -> None:
        self._charset = charset
        self._type_info = type_info
        self._render: Callable[[Any], str] | None = None

    def for_type(self, type_info: TypeInformation | None) -> _StringLine:
        return _StringLine(self._charset, type_info)

    def __call__(self, element: Any) -> bytes:
        render = self._render
        if render is None:
            render = self._render = renderer(self._type_info)
        return f"{render(element)}\n".encode(self._charset)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_render": None}


class BulkWriter(ABC, Generic[T]):
    """Writes records to one file in a format that buffers them, such as Parquet."""

    @abstractmethod
    def add_element(self, element: T) -> None:
        """Add a record, which may stay in memory until `flush`."""

    @abstractmethod
    def flush(self) -> None:
        """Write the buffered records."""

    @abstractmethod
    def finish(self) -> None:
        """Write the buffered records and the file footer; leave the stream open."""


class BulkWriterFactory(ABC, Generic[T]):
    """Creates a `BulkWriter` for each file."""

    @abstractmethod
    def create(self, stream: BinaryIO) -> BulkWriter[T]:
        """Return a writer for a new, empty file."""


def _require_bytes(value: Any, rule: str) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise FormatError(f"{rule}, not {type(value).__name__}: {value!r}")
    return bytes(value)
