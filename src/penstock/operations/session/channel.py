"""Messages between two processes over connected sockets: a four-byte length, then msgpack, decoded by type.

Both ends may send from any thread. A peer that sends an invalid message is disconnected.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import msgspec

from penstock.base.errors import OperationError
from penstock.operations.session.messages import MESSAGE_BYTES_MAX

T = TypeVar("T")

_LENGTH: Final = struct.Struct(">I")


class Channel(Generic[T]):
    """One end of the connection.

    Args:
        connected: the socket; the channel closes it.
        kind: the type of incoming messages.
        name: the name of the reader thread.
    """

    def __init__(self, connected: socket.socket, kind: Any, name: str) -> None:
        self._socket = connected
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        self._encoder = msgspec.msgpack.Encoder()
        self._sends = threading.Lock()
        self._name = name

    def listen(self, on_message: Callable[[T], None], on_close: Callable[[str | None], None]) -> threading.Thread:
        """Pass on incoming messages, in a separate thread, until the other end closes.

        Args:
            on_message: called with each message.
            on_close: called once at the end, with the error of an invalid message; None if all were valid.
        """
        thread = threading.Thread(target=self._listen, args=(on_message, on_close), name=self._name, daemon=True)
        thread.start()
        return thread

    def send(self, message: object) -> None:
        """Send a message.

        Raises:
            OperationError: if the other end has closed, or the message is too large.
        """
        data = self._encoder.encode(message)
        if len(data) > MESSAGE_BYTES_MAX:
            raise OperationError(f"a message of {len(data)} bytes is larger than {MESSAGE_BYTES_MAX}")
        try:
            with self._sends:
                self._socket.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise OperationError(f"the process at the other end is gone: {error}") from error

    def close(self) -> None:
        """Close the connection; the other end notices."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _listen(self, on_message: Callable[[T], None], on_close: Callable[[str | None], None]) -> None:
        problem = None
        try:
            while (head := self._exactly(_LENGTH.size)) is not None:
                (length,) = _LENGTH.unpack(head)
                if length > MESSAGE_BYTES_MAX:
                    raise msgspec.DecodeError(f"a message of {length} bytes")
                data = self._exactly(length)
                if data is None:
                    break
                on_message(self._decoder.decode(data))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:  # DecodeError includes validation errors
            problem = f"it sent no message: {error}"
        finally:
            self.close()
            on_close(problem)

    def _exactly(self, count: int) -> bytes | None:
        """Read exactly `count` bytes; None at the end."""
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self._socket.recv(min(count - len(parts), 1 << 20))
            except OSError:
                return None
            if not part:
                return None
            parts += part
        return bytes(parts)
