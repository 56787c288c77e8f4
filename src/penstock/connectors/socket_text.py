"""Reads lines of text from a TCP socket: for experiments only, because delivered data cannot be read again (J)."""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.base.errors import ConfigurationError, FormatError
from penstock.connectors.split_reader import SplitQueue
from penstock.runtime import connector
from penstock.runtime.records import Batch

#: The pause between two attempts to connect.
RETRY_INTERVAL_MS: Final = 1_000
#: Without a delimiter in this many bytes, the source fails instead of buffering more.
RECORD_BYTES_MAX: Final = 16 << 20
_RECEIVE_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class SocketSplit:
    """The only connection; it does not have a position to return to."""


class SocketTextSource(connector.Source[str, SocketSplit]):
    """Connects to a server and reads the text that it sends, split at a delimiter, in one subtask.

    Args:
        hostname: the server's host.
        port: the server's port, from 1 to 65535.
        delimiter: the separator between records; with a line feed, a carriage return before it is removed as well. When
            the server closes the connection, the text after the last delimiter is a record unless it is empty.
        max_retry: how often to reconnect, once a second, after a lost or failed connection: 0 for never, and a negative
            number for no limit. Every success resets the count. After the last attempt, the stream ends.

    Raises:
        ConfigurationError: if the port is out of range, or the delimiter is empty.
    """

    replayable = False

    def __init__(self, hostname: str, port: int, delimiter: str = "\n", max_retry: int = 0) -> None:
        if not 0 < port < 65_536:
            raise ConfigurationError(f"a port must be between 1 and 65535, not {port}")
        if not delimiter:
            raise ConfigurationError("the delimiter of a socket's records must not be empty")
        self.hostname = hostname
        self.port = port
        self.delimiter = delimiter
        self.max_retry = max_retry

    @property
    def boundedness(self) -> connector.Boundedness:
        """Unbounded, because it is unknown when the server will close the connection."""
        return connector.Boundedness.CONTINUOUS_UNBOUNDED

    def max_parallelism(self) -> int | None:
        """Return 1, because the source has a single connection."""
        return 1

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[SocketSplit], restored: Any | None
    ) -> connector.SplitEnumerator[SocketSplit]:
        """Return an enumerator that assigns the connection."""
        return SplitQueue(context, [SocketSplit()], restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[str, SocketSplit]:
        """Return a new reader, not connected yet."""
        return _SocketReader(self, context)


class _SocketReader(connector.SourceReader[str, SocketSplit]):
    """Never waits for the network: it connects and receives only as far as possible without blocking."""

    def __init__(self, source: SocketTextSource, context: connector.SourceReaderContext) -> None:
        self._source = source
        self._context = context
        self._delimiter = source.delimiter.encode()
        self._splits: list[SocketSplit] = []
        self._requested = False
        self._socket: socket.socket | None = None
        self._is_connected = False
        self._retries = 0
        self._retry_at_ms: int | None = None
        self._received = bytearray()
        self._records: list[str] = []
        self._has_ended = self._no_more = False

    def poll_next(self, max_records: int) -> Batch | connector.InputStatus:
        if not self._records and not self._has_ended:
            if not self._splits:
                return self._ask()
            if self._is_connected or self._connect():
                self._receive()
        if self._records:
            records, self._records = self._records[:max_records], self._records[max_records:]
            return Batch(records)
        return self._ask() if self._has_ended else connector.InputStatus.NOTHING_AVAILABLE

    def _ask(self) -> connector.InputStatus:
        """Request a split, once; return END_OF_INPUT if no more splits will come."""
        if self._no_more:
            return connector.InputStatus.END_OF_INPUT
        if not self._requested:
            self._requested = True
            self._context.request_split()
        return connector.InputStatus.NOTHING_AVAILABLE

    def retry_after_ms(self) -> int:
        if self._retry_at_ms is None:
            return super().retry_after_ms()
        return max(1, self._retry_at_ms - self._context.now_ms())

    def _connect(self) -> bool:
        """Start to connect, or check an attempt's progress; return whether the socket is connected."""
        if self._retry_at_ms is not None and self._context.now_ms() < self._retry_at_ms:
            return False
        self._retry_at_ms = None
        try:
            if self._socket is None:
                addresses = socket.getaddrinfo(self._source.hostname, self._source.port, type=socket.SOCK_STREAM)
                family, kind, protocol, _, address = addresses[0]
                self._socket = socket.socket(family, kind, protocol)
                self._socket.setblocking(False)
                code = self._socket.connect_ex(address)
                if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
                    raise OSError(code, "connecting failed")
            if not select.select([], [self._socket], [], 0)[1]:
                return False
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, "connecting failed")
        except OSError:
            self._lose()
            return False
        self._is_connected, self._retries = True, 0
        return True

    def _lose(self) -> None:
        """Close the lost connection; schedule a reconnect, or end the stream if no retries are left."""
        self.close()
        limit = self._source.max_retry
        if 0 <= limit <= self._retries:
            self._has_ended = True
            return
        self._retries += 1
        self._retry_at_ms = self._context.now_ms() + RETRY_INTERVAL_MS

    def _receive(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        received = self._received
        if not data:
            if received:
                self._records.append(received.decode(errors="replace"))
                received.clear()
            self._lose()
            return
        searched_from = max(0, len(received) - len(self._delimiter) + 1)
        received += data
        if received.find(self._delimiter, searched_from) >= 0:
            *records, rest = bytes(received).split(self._delimiter)
            if self._delimiter == b"\n":
                records = [record.removesuffix(b"\r") for record in records]
            self._records += [record.decode(errors="replace") for record in records]
            received[:] = rest
        if len(received) > RECORD_BYTES_MAX:
            raise FormatError(
                f"{self._source.hostname}:{self._source.port} has sent {len(received)} bytes without the delimiter "
                f"{self._source.delimiter!r}; a record may have at most {RECORD_BYTES_MAX}"
            )

    def add_splits(self, splits: Sequence[SocketSplit]) -> None:
        self._splits += splits
        self._requested = False

    def no_more_splits(self) -> None:
        self._no_more = True

    def snapshot_state(self, checkpoint_id: int) -> list[SocketSplit]:
        return [] if self._has_ended else list(self._splits)

    def close(self) -> None:
        self._is_connected = False
        if self._socket is not None:
            self._socket.close()
            self._socket = None
