"""Messages between processes: control messages, records as bytes, and buffers of batches and events.

**Errors** here are about messages and records that cannot be transmitted.

`MessageCodec`: a control message is frames of a version byte, a sequence number on the connection, a mark, and a tagged
msgpack body. Nearly every message is one frame. A message whose body exceeds the frame size is split into several
consecutive frames, each with the next number. The mark of all but the last says that more follow.

`BatchEncoder` turns records into bytes: the batches of one message as one pickle, with large buffers in separate
frames. Timestamps are sent as 64-bit integers, little-endian: twice as fast as pickled ints. Values are pickled by
plain pickle, protocol 5. If that fails (a class defined in a function cannot be found by name), records are pickled by
value with cloudpickle from then on.

`BufferCodec` turns buffers into messages: it encodes their elements in order, splits large buffers, and joins them
again. A buffer is a list of batches and events. Its messages carry an outline, a msgpack list with one entry per
element. An event is its own entry. The entry of a batch is its number of records, negative if they continue the last
batch of the previous message. The records of all batches follow in the payload. A single record that is larger than a
message is a part of its own, whose payload is sent in chunks (`streams`).
"""

from __future__ import annotations

import pickle
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import cloudpickle
import msgspec

from penstock.base.errors import PenstockError, ProtocolError, WrongValueError, shorten
from penstock.base.types import RowKind
from penstock.codecs.column_data import ColumnData

FRAME_BYTES_OPTION = "penstock.network.max-frame-bytes"
RECORD_BYTES_OPTION = "penstock.network.record-bytes-max"


class MessageTooLargeError(ProtocolError):
    """A control message exceeds the maximum size, and would do so again at the next attempt."""

    suppresses_restart = True


class RecordSerializationError(PenstockError, ValueError):
    """A record cannot be serialized, or its bytes cannot be deserialized.

    Args:
        text: the message, with the record and the reason.
        cause: the original exception. An error about a class that is missing or not picklable would recur at the next
            attempt.
    """

    def __init__(self, text: str, cause: BaseException | None = None) -> None:
        super().__init__(text)
        self.suppresses_restart = isinstance(cause, ImportError | AttributeError | TypeError | pickle.PicklingError)


class RecordTooLargeError(RecordSerializationError):
    """A single record exceeds the maximum record size."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.suppresses_restart = True


def describe_record(record: object) -> str:
    """Return a record's type and shortened repr; a repr that raises does not hide the current error."""
    try:
        text = repr(record)
    except Exception as error:  # noqa: BLE001 - the user's own repr may raise anything
        text = f"<its repr raises {type(error).__name__}>"
    return f"type {type(record).__module__}.{type(record).__qualname__}: {shorten(text)}"


VERSION: Final = 2
FRAME_BYTES_MIN: Final = 4096
#: The default maximum size of records and control messages.
RECORD_BYTES_MAX: Final = 1 << 30
_SEQUENCE_BYTES: Final = 8
_HEADER_BYTES: Final = 1 + _SEQUENCE_BYTES + 1
_WHOLE: Final = b"\x00"
_MORE: Final = b"\x01"

#: Exceptions that msgspec raises for invalid bytes: RecursionError for nesting, UnicodeDecodeError for text.
DECODING_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, MemoryError)

T = TypeVar("T")


class MessageCodec(Generic[T]):
    """Encodes messages, and decodes them strictly as one of the types of a tagged union.

    Args:
        message_types: a union of tagged `msgspec.Struct` types, the only ones that `decode` returns.
        max_frame_bytes: the maximum size of a frame, in either direction.
        message_bytes_max: the maximum size of a message, in any number of frames.

    Raises:
        ValueError: if `max_frame_bytes` leaves no room for messages.
    """

    def __init__(self, message_types: Any, max_frame_bytes: int, message_bytes_max: int = RECORD_BYTES_MAX) -> None:
        check_frame_bytes(max_frame_bytes)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(message_types)
        self._bytes_max = max_frame_bytes
        self.message_bytes_max = message_bytes_max

    def encode(self, message: object, sequence: int) -> bytes:
        """Encode a message as a single frame.

        Raises:
            MessageTooLargeError: if it does not fit; the error names the message's type and the option to change.
        """
        body = self._encoder.encode(message)
        if len(body) + _HEADER_BYTES > self._bytes_max:
            raise _too_large(message, body, FRAME_BYTES_OPTION, self._bytes_max)
        return _header(sequence, _WHOLE) + body

    def frames(self, message: object, sequence: int) -> list[bytes]:
        """Encode a message as one or more frames, numbered from `sequence`.

        Raises:
            MessageTooLargeError: if it exceeds the maximum message size.
        """
        body = self._encoder.encode(message)
        size = self._bytes_max - _HEADER_BYTES
        if len(body) <= size:
            return [_header(sequence, _WHOLE) + body]
        if len(body) > self.message_bytes_max:
            raise _too_large(message, body, RECORD_BYTES_OPTION, self.message_bytes_max)
        parts = [memoryview(body)[begin : begin + size] for begin in range(0, len(body), size)]
        marks = [_MORE] * (len(parts) - 1) + [_WHOLE]
        return [
            b"".join((_header(sequence + number, mark), part))
            for number, (mark, part) in enumerate(zip(marks, parts, strict=True))
        ]

    def decode(self, frame: bytes) -> tuple[int, T]:
        """Decode a message in a single frame; return its sequence number and the message.

        Raises:
            ProtocolError: if it is not a frame of one of this codec's types.
        """
        sequence, more, body = self.open(frame)
        if more:
            raise ProtocolError("received a part of a message instead of a whole one")
        return sequence, self.decode_body(body)

    def open(self, frame: bytes) -> tuple[int, bool, memoryview]:
        """Return a frame's sequence number, whether the message continues in the next frame, and the frame's part of
        the body.

        Raises:
            ProtocolError: if it is not a valid frame.
        """
        if len(frame) > self._bytes_max:
            raise ProtocolError(f"a control frame has {len(frame)} bytes, at most {self._bytes_max} are allowed")
        if len(frame) < _HEADER_BYTES:
            raise ProtocolError(f"a control frame has {len(frame)} bytes, at least {_HEADER_BYTES} are needed")
        check_version(frame)
        mark = frame[_HEADER_BYTES - 1 : _HEADER_BYTES]
        if mark not in (_WHOLE, _MORE):
            raise ProtocolError(f"a control frame has the mark {mark!r}")
        sequence = int.from_bytes(frame[1 : 1 + _SEQUENCE_BYTES], "big")
        return sequence, mark == _MORE, memoryview(frame)[_HEADER_BYTES:]

    def decode_body(self, body: bytes | bytearray | memoryview) -> T:
        """Decode the complete body of a message.

        Raises:
            ProtocolError: if it is not of one of this codec's types.
        """
        try:
            return self._decoder.decode(body)
        except DECODING_ERRORS as error:
            raise ProtocolError(f"a control frame does not decode: {error}") from error


class MessageReceiver(Generic[T]):
    """Receives the frames of one connection, numbered consecutively from `first`, and returns their messages.

    The memory for an incomplete message is bounded by the codec's `message_bytes_max`, and grows only with the bytes
    that have arrived.

    Attributes:
        expected: the next sequence number.
    """

    def __init__(self, codec: MessageCodec[T], first: int = 0) -> None:
        self.expected = first
        self._codec = codec
        self._begun = bytearray()

    def receive(self, frame: bytes) -> T | None:
        """Receive a frame; return its message, or None if it continues in the next frame.

        A frame that raises leaves `expected` unchanged, so that later frames are out of turn.

        Raises:
            OutOfTurnError: if it is not the next frame.
            ProtocolError: if it is invalid in any other way.
        """
        sequence, more, body = self._codec.open(frame)
        if sequence != self.expected:
            self._begun = bytearray()
            raise OutOfTurnError(f"message {sequence} arrived where {self.expected} was expected")
        if not more and not self._begun:
            message = self._codec.decode_body(body)
        else:
            limit = self._codec.message_bytes_max
            if not body or len(self._begun) + len(body) > limit:
                self._begun = bytearray()
                raise ProtocolError(f"a message comes in parts that are empty, or more than {limit} bytes together")
            self._begun += body
            if more:
                self.expected += 1
                return None
            complete_body, self._begun = self._begun, bytearray()
            message = self._codec.decode_body(complete_body)
        self.expected += 1
        return message

    def refuse(self) -> None:
        """Accept no more frames."""
        self.expected = -1


class OutOfTurnError(ProtocolError):
    """A message arrived out of order: messages were lost, or another peer is sending."""


def _header(sequence: int, mark: bytes) -> bytes:
    return VERSION.to_bytes(1, "big") + sequence.to_bytes(_SEQUENCE_BYTES, "big") + mark


def _too_large(message: object, body: bytes, option: str, bytes_max: int) -> MessageTooLargeError:
    return MessageTooLargeError(
        f"a {type(message).__name__} message has {len(body)} bytes, but {option} allows {bytes_max}"
    )


def check_frame_bytes(max_frame_bytes: int) -> None:
    """Raise `ValueError` if frames of at most this many bytes would be too short to work with."""
    if max_frame_bytes < FRAME_BYTES_MIN:
        raise WrongValueError(f"{FRAME_BYTES_OPTION} must be at least {FRAME_BYTES_MIN}, not {max_frame_bytes}")


def check_version(frame: bytes) -> None:
    """Raise `ProtocolError` if a frame is empty or has another protocol version."""
    if not frame:
        raise ProtocolError("an empty frame")
    if frame[0] != VERSION:
        raise ProtocolError(f"a frame of protocol version {frame[0]}; this release speaks version {VERSION}")


#: A batch's values, as a list or as columns, its timestamps, and, if it has kinds, a byte for each record.
Records: TypeAlias = tuple[Any, ...]
Frame: TypeAlias = bytes | memoryview

#: The maximum number of frames in one message: the header, the pickle, and large buffers.
FRAMES_MAX: Final = 256
#: Smaller buffers are cheaper inside the pickle than in separate frames.
OUT_OF_BAND_BYTES_MIN: Final = 64 * 1024
_TIMESTAMP_BYTES: Final = 8
_PROTOCOL: Final = 5
#: The bytes that represent row kinds.
_KINDS: Final = bytes(kind.value for kind in RowKind)


class BatchEncoder:
    """Encodes batches as frames. It remembers whether plain pickle has sufficed so far."""

    def __init__(self) -> None:
        self._dumps: Callable[..., bytes] = pickle.dumps

    def encode(self, batches: Sequence[Records]) -> list[Frame]:
        """Return the pickle of these batches, followed by its out-of-band buffers.

        Raises:
            RecordSerializationError: if a record cannot be pickled; the error names it.
        """
        content = [
            (values, None if stamps is None else _pack_timestamps(values, stamps), *kinds)
            for values, stamps, *kinds in batches
        ]
        try:
            return _dump(self._dumps, content)
        except Exception as error:  # pickling runs the records' own code, which may raise anything
            if self._dumps is cloudpickle.dumps:
                raise _explain(batches, error) from error
        try:
            frames = _dump(cloudpickle.dumps, content)
        except Exception as error:
            raise _explain(batches, error) from error
        self._dumps = cloudpickle.dumps
        return frames


def decode_batches(frames: Sequence[Frame], counts: Sequence[int]) -> list[Records]:
    """Unpickle the batches of a message, which have the given numbers of records.

    THIS RUNS CODE that the bytes name: call it only with bytes from a peer that has proved to belong to the job.

    Raises:
        ProtocolError: if the unpickled objects do not match the message's header.
        RecordSerializationError: if the records cannot be unpickled here.
    """
    if not frames:
        raise ProtocolError("a buffer with batches came without its payload")
    try:
        content = pickle.loads(frames[0], buffers=frames[1:])
    except Exception as error:
        raise RecordSerializationError(
            f"records from another worker cannot be unpickled here: {type(error).__name__}: {error}", error
        ) from error
    if type(content) is not list or len(content) != len(counts):
        raise ProtocolError(f"a buffer's payload is not its {len(counts)} batches")
    return [_checked(entry, count) for entry, count in zip(content, counts, strict=True)]


def _dump(dumps: Callable[..., bytes], content: object) -> list[Frame]:
    """Pickle `content`, with large contiguous buffers out of band, up to the maximum number of frames."""
    buffers: list[Frame] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        view = memoryview(buffer)
        if view.nbytes < OUT_OF_BAND_BYTES_MIN or not view.contiguous or len(buffers) >= FRAMES_MAX - 2:
            return True
        buffers.append(buffer.raw())
        return False

    return [dumps(content, _PROTOCOL, buffer_callback=keep_in_band), *buffers]


def _pack_timestamps(values: Any, timestamps: Any) -> bytes:
    if len(timestamps) != len(values):
        raise RecordSerializationError(f"a batch has {len(values)} records, but {len(timestamps)} timestamps")
    try:
        packed = array("q", timestamps.tobytes() if isinstance(values, ColumnData) else timestamps)
    except (TypeError, OverflowError) as error:
        for value, timestamp in zip(values, timestamps, strict=True):
            if not _is_timestamp(timestamp):
                raise RecordSerializationError(
                    f"the timestamp {timestamp!r} is not a 64-bit integer; record of {describe_record(value)}"
                ) from error
        raise RecordSerializationError(f"a batch's timestamps are not 64-bit integers: {error}") from error
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _is_timestamp(value: object) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _checked(entry: object, count: int) -> Records:
    """Check that an unpickled object is a batch with the announced number of records, and return it."""
    match entry:
        case (list() | ColumnData() as values, packed, bytes() as kinds) if len(kinds) == count and not kinds.translate(
            None, _KINDS
        ):
            return *_checked((values, packed), count), kinds
        case (list() | ColumnData() as values, None) if len(values) == count:
            return values, None
        case (list() | ColumnData() as values, bytes() as packed) if (
            len(values) == count and len(packed) == count * _TIMESTAMP_BYTES
        ):
            timestamps = array("q", packed)
            if sys.byteorder == "big":
                timestamps.byteswap()
            return values, timestamps if isinstance(values, ColumnData) else timestamps.tolist()
    raise ProtocolError(f"a buffer's payload is not a batch of {count} records")


def _explain(batches: Sequence[Records], error: Exception) -> RecordSerializationError:
    """Return the error for batches that cannot be pickled, naming the first such record."""
    for values, *_ in batches:
        for value in values:
            try:
                cloudpickle.dumps(value, _PROTOCOL)
            except Exception as cause:  # noqa: BLE001 - as above
                return RecordSerializationError(
                    f"a record cannot be sent to another worker: {type(cause).__name__}: {cause}; "
                    f"record of {describe_record(value)}",
                    cause,
                )
    return RecordSerializationError(f"records cannot be sent to another worker: {type(error).__name__}: {error}", error)


#: The maximum number of elements in one message.
ELEMENTS_MAX: Final = 65_536
#: Space reserved for a message's header, apart from its outline and payload.
HEADER_BYTES_MAX: Final = 1024

#: The maximum size of a large record's chunk in one message, so that other messages are not delayed for long.
CHUNK_BYTES_MAX: Final = 8 << 20


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
