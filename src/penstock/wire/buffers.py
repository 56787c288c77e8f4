"""Buffers as messages: encodes their elements in order, splits large buffers, and joins them again.

A buffer is a list of batches and events. Its messages carry an outline, a msgpack list with one entry per element. An
event is its own entry. The entry of a batch is its number of records, negative if they continue the last batch of the
previous message. The records of all batches follow in the payload. A single record that is larger than a message is a
part of its own, whose payload is sent in chunks (`streams`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from penstock.base.errors import ProtocolError
from penstock.codecs.column_data import ColumnData
from penstock.wire.errors import RECORD_BYTES_OPTION, RecordTooLargeError, describe_record
from penstock.wire.messages import DECODING_ERRORS, RECORD_BYTES_MAX, check_frame_bytes
from penstock.wire.payload import FRAMES_MAX, BatchEncoder, Frame, Records, decode_batches

#: The maximum number of elements in one message.
ELEMENTS_MAX: Final = 65_536
#: Space reserved for a message's header, apart from its outline and payload.
HEADER_BYTES_MAX: Final = 1024

#: The maximum size of a large record's chunk in one message, so that other messages are not delayed for long.
CHUNK_BYTES_MAX: Final = 8 << 20

T = TypeVar("T")


class Part(NamedTuple):
    """One message of a buffer: its outline, its payload, and whether another message continues the buffer.

    If `is_large` is set, the payload is sent ahead of the message, in chunks.
    """

    outline: bytes
    payload: list[Frame]
    more: bool
    is_large: bool = False


class BufferCodec(Generic[T]):
    """Encodes buffers whose elements are batches of one type, or events of a union.

    Args:
        event_types: a union of tagged, array-like `msgspec.Struct` types.
        batch_type: the type of batches; `content()` returns a batch's values (a list or `ColumnData`), its timestamps,
            and a byte for each record if the batch has `kinds`.
        make_batch: creates a batch from such content.
        max_frame_bytes: the maximum total size of a message of a buffer.
        record_bytes_max: the maximum size of a record, in any number of messages.
    """

    def __init__(
        self,
        event_types: Any,
        batch_type: type[Any],
        make_batch: Callable[..., T],
        max_frame_bytes: int,
        record_bytes_max: int = RECORD_BYTES_MAX,
    ) -> None:
        check_frame_bytes(max_frame_bytes)
        outline_type: Any = Annotated[list[int | event_types], msgspec.Meta(max_length=ELEMENTS_MAX)]
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(outline_type)
        self._batches = BatchEncoder()
        self._batch_type = batch_type
        self._make_batch = make_batch
        self._bytes_max = max_frame_bytes - HEADER_BYTES_MAX
        self.record_bytes_max = record_bytes_max
        #: The number of bytes of a large payload in one message.
        self.chunk_bytes = min(self._bytes_max, CHUNK_BYTES_MAX)

    def encode(self, buffer: Sequence[T]) -> list[Part]:
        """Return the messages of a buffer, in order; nearly always one.

        Raises:
            RecordSerializationError: if a record cannot be pickled, or exceeds the maximum record size.
        """
        batch_type = self._batch_type
        outline: list[Any] = []
        batches: list[Records] = []
        for element in buffer:
            if isinstance(element, batch_type):
                content = element.content()
                outline.append(len(content[0]))
                batches.append(content)
            else:
                outline.append(element)
        parts: list[Part] = []
        self._encode_into(parts, outline, batches)
        parts[-1] = parts[-1]._replace(more=False)
        return parts

    def decode(self, outline: bytes | msgspec.Raw, payload: Sequence[Frame], joined: list[T]) -> None:
        """Append the elements of one message to `joined`. UNPICKLES: only for bytes from an authenticated peer.

        Raises:
            ProtocolError: if the bytes violate the protocol.
            RecordSerializationError: if records cannot be unpickled here.
        """
        if len(payload) > FRAMES_MAX:
            raise ProtocolError(f"a buffer has {len(payload)} frames, at most {FRAMES_MAX} are allowed")
        try:
            entries = self._decoder.decode(outline)
        except DECODING_ERRORS as error:
            raise ProtocolError(f"a buffer's outline does not decode: {error}") from error
        counts = [abs(entry) for entry in entries if type(entry) is int]
        batches = iter(decode_batches(payload, counts) if counts else ())
        for position, entry in enumerate(entries):
            if type(entry) is not int:
                joined.append(entry)
            elif entry >= 0:
                joined.append(self._make_batch(*next(batches)))
            elif position == 0:
                self._continue_batch(joined, next(batches))
            else:
                raise ProtocolError("a batch inside a message claims to continue another message")

    def _continue_batch(self, joined: list[T], records: Records) -> None:
        last: Any = joined[-1] if joined else None
        values, timestamps, *of_records = records
        kinds = of_records[0] if of_records else None
        if (
            not isinstance(last, self._batch_type)
            or (last.timestamps is None) != (timestamps is None)
            or (last.kinds is None) != (kinds is None)
        ):
            raise ProtocolError("a message continues a batch that the message before did not begin")
        if isinstance(values, ColumnData):
            joined.append(self._make_batch(*records))
            return
        last.values.extend(values)
        if last.timestamps is not None:
            last.timestamps.extend(timestamps)
        if kinds is not None:
            last.kinds += kinds

    def _encode_into(self, parts: list[Part], outline: list[Any], batches: list[Records]) -> None:
        """Append one message if these elements fit into it; otherwise encode their first and second half separately."""
        if len(outline) <= ELEMENTS_MAX:
            head = self._encoder.encode(outline)
            payload = self._batches.encode(batches) if batches else []
            size = len(head) + sum(len(frame) for frame in payload)
            if size <= self._bytes_max:
                parts.append(Part(head, payload, more=True))
                return
            if sum(_weight(entry) for entry in outline) <= 1:
                if size > self.record_bytes_max or len(head) > self._bytes_max:
                    raise self._too_large(size, batches)
                parts.append(Part(head, payload, more=True, is_large=True))
                return
        for half_outline, half_batches in _halves(outline, batches):
            self._encode_into(parts, half_outline, half_batches)

    def _too_large(self, size: int, batches: list[Records]) -> RecordTooLargeError:
        record = next((value for values, *_ in batches for value in values), None)
        return RecordTooLargeError(
            f"a record needs {size} bytes, but {RECORD_BYTES_OPTION} allows {self.record_bytes_max}; raise it, or send "
            f"smaller records; record of {describe_record(record)}"
        )


def _weight(entry: Any) -> int:
    """Return into how many pieces an element can be split: a nonempty batch into its records."""
    return max(1, abs(entry)) if type(entry) is int else 1


def _halves(outline: list[Any], batches: list[Records]) -> list[tuple[list[Any], list[Records]]]:
    """Split elements at the middle record. A split batch continues in the second half, where its entry is negative."""
    room = sum(_weight(entry) for entry in outline) // 2
    position = batch_count = 0
    while _weight(outline[position]) <= room:
        room -= _weight(outline[position])
        batch_count += type(outline[position]) is int
        position += 1
    first, second = outline[:position], outline[position:]
    first_batches, second_batches = batches[:batch_count], batches[batch_count:]
    if room:
        content = second_batches[0]
        first.append(room if second[0] >= 0 else -room)
        second[0] = room - abs(second[0])
        first_batches.append(tuple(None if part is None else part[:room] for part in content))
        second_batches[0] = tuple(None if part is None else part[room:] for part in content)
    return [(first, first_batches), (second, second_batches)]
