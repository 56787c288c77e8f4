"""Control messages: a version byte, the message's number on its connection, and a tagged msgpack body."""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec

from penstock.common.errors import ProtocolError
from penstock.wire.errors import FRAME_BYTES_OPTION

VERSION: Final = 1
FRAME_BYTES_MIN: Final = 4096
_SEQUENCE_BYTES: Final = 8
_HEADER_BYTES: Final = 1 + _SEQUENCE_BYTES

#: What msgspec raises on bytes that it cannot read: RecursionError for nesting, UnicodeDecodeError for text.
DECODING_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, MemoryError)

T = TypeVar("T")


class MessageCodec(Generic[T]):
    """Encodes messages, and decodes them strictly as one of the types of a tagged union.

    Args:
        message_types: a union of tagged `msgspec.Struct` types, the only ones that `decode` yields.
        max_frame_bytes: no frame is longer, in either direction.

    Raises:
        ValueError: if `max_frame_bytes` leaves no room for messages.
    """

    def __init__(self, message_types: Any, max_frame_bytes: int) -> None:
        check_frame_bytes(max_frame_bytes)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(message_types)
        self._bytes_max = max_frame_bytes

    def encode(self, message: object, sequence: int) -> bytes:
        """The frame of a message.

        Raises:
            ProtocolError: if it would be too long; the text names the message's type and the option to change.
        """
        body = self._encoder.encode(message)
        if len(body) + _HEADER_BYTES > self._bytes_max:
            raise ProtocolError(
                f"a {type(message).__name__} message has {len(body)} bytes, "
                f"but {FRAME_BYTES_OPTION} allows {self._bytes_max}"
            )
        return VERSION.to_bytes(1, "big") + sequence.to_bytes(_SEQUENCE_BYTES, "big") + body

    def decode(self, frame: bytes) -> tuple[int, T]:
        """The number of a message, and the message.

        Raises:
            ProtocolError: for anything that is no frame of one of this codec's types.
        """
        if len(frame) > self._bytes_max:
            raise ProtocolError(f"a control frame has {len(frame)} bytes, at most {self._bytes_max} are allowed")
        if len(frame) < _HEADER_BYTES:
            raise ProtocolError(f"a control frame has {len(frame)} bytes, at least {_HEADER_BYTES} are needed")
        check_version(frame)
        try:
            message = self._decoder.decode(memoryview(frame)[_HEADER_BYTES:])
        except DECODING_ERRORS as error:
            raise ProtocolError(f"a control frame does not decode: {error}") from error
        return int.from_bytes(frame[1:_HEADER_BYTES], "big"), message


def check_frame_bytes(max_frame_bytes: int) -> None:
    """Raise `ValueError` when frames of at most so many bytes would be too short to work with."""
    if max_frame_bytes < FRAME_BYTES_MIN:
        raise ValueError(f"{FRAME_BYTES_OPTION} must be at least {FRAME_BYTES_MIN}, not {max_frame_bytes}")


def check_version(frame: bytes) -> None:
    """Raise `ProtocolError` when a frame is empty or was written by another version of the protocol."""
    if not frame:
        raise ProtocolError("an empty frame")
    if frame[0] != VERSION:
        raise ProtocolError(f"a frame of protocol version {frame[0]}; this release speaks version {VERSION}")
