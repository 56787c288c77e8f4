"""Control messages: frames of a version byte, a sequence number on the connection, a mark, and a tagged msgpack body.

Nearly every message is one frame. A message whose body exceeds the frame size is split into several consecutive frames,
each with the next number. The mark of all but the last says that more follow.

Errors about messages and records that cannot be transmitted.
"""

from __future__ import annotations

import pickle
from typing import Any, Final, Generic, TypeVar

import msgspec

from penstock.base.errors import PenstockError, ProtocolError, WrongValueError, shorten

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
