"""Schemas and encoders: how records become bytes at the edges of a job, and bytes records.

PyFlink's schemas and encoders only name Java classes. These do the work, and may be subclassed.
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
    """Turns records into messages."""

    @abstractmethod
    def serialize(self, element: T) -> bytes:
        """Returns the message for a record.

        Raises:
            FormatError: if the record cannot be written in this format.
        """

    def serialize_batch(self, elements: Sequence[Any] | ColumnData) -> list[bytes]:
        """Returns the message for each of many records; by default `serialize` is called for each.

        Raises:
            FormatError: if a record cannot be written in this format; it shows the record.
        """
        records: Iterable[Any] = elements
        return list(map(self.serialize, records))


class DeserializationSchema(ABC, Generic[T]):
    """Turns messages into records.

    Attributes:
        on_error: what a source does for a message that is not in this format: `fail`, unless `skip_malformed` was
            called.
        malformed_output: the side output to which such messages go, if any.
    """

    on_error: OnError = "fail"
    malformed_output: OutputTag | None = None

    @abstractmethod
    def deserialize(self, message: bytes) -> T | None:
        """Returns the record of a message; None drops the message.

        Raises:
            FormatError: if the message is not in this format.
        """

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Returns the records of many messages, and those that are not in this format; see `Deserialized`.

        Sources call this, and nothing for each message. By default `deserialize` is called for each; it may use an
        object again that it has returned.
        """
        return decode_each(with_own_results(self.deserialize), messages)

    def skip_malformed(self, output: OutputTag | None = None) -> Self:
        """Returns this schema with another rule: a source leaves out messages that are not in the format.

        It counts them in the metric `malformed_records`. Without this call such a message fails the job.

        Args:
            output: a side output of the source. A tuple goes there for each such message: the split (of Kafka, topic
                and partition), the position in it, the reason, and the message's bytes.
        """
        changed = copy.copy(self)
        changed.on_error, changed.malformed_output = "skip", output
        return changed

    def malformed_handling(self) -> dict[str, Any]:
        """What a schema that pickles as the arguments of its constructor adds to them: what `skip_malformed` set."""
        return {"on_error": self.on_error, "malformed_output": self.malformed_output}

    def is_end_of_stream(self, next_element: T) -> bool:
        """True when the record says that it is the last one; never, unless overridden."""
        return False

    def get_produced_type(self) -> TypeInformation:
        """The type of the records; any Python object, unless overridden."""
        return Types.PICKLED_BYTE_ARRAY()


class SimpleStringSchema(SerializationSchema[str], DeserializationSchema[str]):
    """Text as bytes of a character set.

    Raises:
        LookupError: if there is no such character set.
    """

    def __init__(self, charset: str = "UTF-8") -> None:
        self._charset = codecs.lookup(charset).name

    def serialize(self, element: str) -> bytes:
        """Returns the text's bytes."""
        if not isinstance(element, str):
            raise FormatError(f"SimpleStringSchema writes str, not {type(element).__name__}: {element!r}")
        try:
            return element.encode(self._charset)
        except UnicodeError as error:
            raise FormatError(f"cannot write {element!r} as {self._charset}: {error}") from error

    def serialize_batch(self, elements: Sequence[Any] | ColumnData) -> list[bytes]:
        """Returns the bytes of many texts."""
        charset = self._charset
        try:
            return [element.encode(charset) for element in elements]
        except (AttributeError, UnicodeError):
            return super().serialize_batch(elements)

    def deserialize(self, message: bytes) -> str:
        """Returns the text; bytes invalid in this character set become the replacement character, as in Java."""
        return message.decode(self._charset, errors="replace")

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Returns the texts of many messages."""
        charset = self._charset
        return Deserialized([message.decode(charset, "replace") for message in messages])

    def get_produced_type(self) -> TypeInformation:
        """Text."""
        return Types.STRING()


class ByteArraySchema(SerializationSchema[bytes], DeserializationSchema[bytes]):
    """Bytes as they are."""

    def __init__(self) -> None:
        super().__init__()

    def serialize(self, element: bytes) -> bytes:
        """Returns the record itself, which must be bytes."""
        return _require_bytes(element, "ByteArraySchema writes bytes")

    def deserialize(self, message: bytes) -> bytes:
        """Returns the message itself."""
        return message

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Returns the messages themselves."""
        return Deserialized(list(messages))

    def get_produced_type(self) -> TypeInformation:
        """Bytes."""
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema[Any]):
    """Takes one field of a row, which holds bytes, for the message; the key of a Kafka record, for instance.

    Args:
        field_index: the position of the field, counted from 0.

    Raises:
        ValueError: if the position is negative.
    """

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            raise WrongValueError(f"the position of a field must not be negative: {field_index}")
        self._field_index = field_index

    def serialize(self, element: Any) -> bytes:
        """Returns the field's bytes; none for a field that is None."""
        if self._field_index >= len(element):
            raise FormatError(f"no field {self._field_index} in {element!r}")
        field = element[self._field_index]
        return b"" if field is None else _require_bytes(field, f"field {self._field_index} must hold bytes")


class Encoder(Generic[T]):
    """Writes records one after the other to a file.

    Args:
        encode: returns a record's bytes, the end of line included.
    """

    def __init__(self, encode: Callable[[T], bytes]) -> None:
        self._encode = encode

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder[Any]:
        """Writes a record as text, and the end of a line.

        Records of a declared type look as Flink writes them: `(hi,1)` a TUPLE, `+I[hi, 1]` a ROW, `true` a boolean,
        `1.0E10` a double. Others are written as `str` gives them.

        Raises:
            LookupError: if there is no such character set.
        """
        return Encoder(_StringLine(codecs.lookup(charset_name).name))

    def for_type(self, type_info: TypeInformation | None) -> Encoder[T]:
        """The encoder for records of a declared type, None for none; by default the type makes no difference."""
        encode = getattr(self, "_encode", None)  # a subclass may do without
        return Encoder(encode.for_type(type_info)) if isinstance(encode, _StringLine) else self

    def encode(self, element: T, stream: BinaryIO) -> None:
        """Writes a record at the stream's position."""
        stream.write(self._encode(element))


class _StringLine:
    """A line of text for each record; a class, so that encoders pickle."""

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
    """Writes many records to one file in a format that needs them together, such as Parquet."""

    @abstractmethod
    def add_element(self, element: T) -> None:
        """Takes a record, which may stay in memory until `flush`."""

    @abstractmethod
    def flush(self) -> None:
        """Writes what is in memory."""

    @abstractmethod
    def finish(self) -> None:
        """Writes what is in memory and the end of the file; leaves the stream open."""


class BulkWriterFactory(ABC, Generic[T]):
    """Makes a `BulkWriter` for each file."""

    @abstractmethod
    def create(self, stream: BinaryIO) -> BulkWriter[T]:
        """Returns a writer to a new, empty file."""


def _require_bytes(value: Any, rule: str) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise FormatError(f"{rule}, not {type(value).__name__}: {value!r}")
    return bytes(value)
