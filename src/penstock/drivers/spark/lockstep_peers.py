"""The sockets of a task that works in lockstep: one to receive from all other tasks, and one to send to each of them.

Only the job's tasks hold its keys, and only holders of the keys can send messages, see `authentication`. So a task may
unpickle the messages. A message is the pickled value and the contents of its arrays as they lie in memory, in pieces.
"""

from __future__ import annotations

import pickle
from typing import Any, Final

import msgspec
import zmq

from penstock.base.errors import PenstockError
from penstock.codecs.pickling import dumps_in_parts
from penstock.drivers.spark.authentication import KeyAuthenticator
from penstock.drivers.spark.keys import WorkerKeys
from penstock.drivers.spark.lockstep_meeting import MESSAGE_BYTES_MAX, Here, Line
from penstock.drivers.spark.sockets import LinkMonitor, Socket, bind_server, connect_client

#: Longer arrays are split into several frames (bytes).
_FRAME_BYTES_MAX: Final = 1 << 24
#: How often to check the connections while nothing arrives (ms).
_LOOK_MS: Final = 500
_CONNECT_SECONDS: Final = 60.0
#: How long to wait for the last value of a task whose connection has broken (ms).
_LAST_MS: Final = 5_000
#: How long the end of a task waits for its last messages to be sent (ms); its peers wait for them.
_LINGER_MS: Final = 60_000


class PeerLostError(PenstockError, ConnectionError):
    """Another task of the stage has died. Spark has noticed as well and ends this one."""


class LockstepPeers:
    """A listening task. Call `meet`, then `send` and `receive`, all in one thread.

    Args:
        subtask: this task's subtask index.
        keys: the job's keys.
        driver: the address of its `MeetingPoint`.
        host: the host at which the others reach this machine.
    """

    def __init__(self, subtask: int, keys: WorkerKeys, driver: str, host: str) -> None:
        self._subtask = subtask
        self._keys = keys
        self._context: zmq.Context[Socket] = zmq.Context()
        #: the context of outgoing connections, so that all data has been sent before others see the end
        self._outgoing: zmq.Context[Socket] = zmq.Context()
        self._authenticator = KeyAuthenticator(self._context, keys.worker_public)
        self._links: dict[int, tuple[Socket, LinkMonitor]] = {}
        self._inbox: Socket = self._context.socket(zmq.PULL)
        self._inbox.setsockopt(zmq.RCVHWM, 0)
        self._driver: Socket = self._outgoing.socket(zmq.DEALER)
        self._driver_monitor = LinkMonitor(self._outgoing, self._driver, _CONNECT_SECONDS)
        try:
            connect_client(self._driver, keys, keys.master_public, driver, MESSAGE_BYTES_MAX)
            #: the address for the others to connect to
            self.address = bind_server(
                self._inbox, keys.worker_public, keys.worker_secret, host, host, _FRAME_BYTES_MAX
            )
        except BaseException:
            self.close()
            raise

    def meet(self, here: Here) -> None:
        """Report this task's address to the driver, wait until all tasks have done so, and connect to the others.

        Raises:
            PeerLostError: if the driver cannot be reached.
        """
        self._driver.send(msgspec.msgpack.encode(here))
        while not self._driver.poll(_LOOK_MS):
            if (reason := self._driver_monitor.broken()) is not None:
                raise PeerLostError(f"the driver is gone: {reason}")
        for subtask, address in enumerate(msgspec.msgpack.decode(self._driver.recv(), type=list[str])):
            if subtask == self._subtask:
                continue
            link: Socket = self._outgoing.socket(zmq.PUSH)
            self._links[subtask] = link, LinkMonitor(self._outgoing, link, _CONNECT_SECONDS)
            connect_client(link, self._keys, self._keys.worker_public, address, _FRAME_BYTES_MAX)

    def tell(self, line: str) -> None:
        """Send a progress line to the driver."""
        self._driver.send(msgspec.msgpack.encode(Line(line)))

    def send(self, to: int, number: int, value: Any) -> None:
        """Send a value for a round to another task without waiting. The value must not change afterwards."""
        data, arrays = dumps_in_parts(value)
        pieces = [_pieces(part) for part in (memoryview(data), *arrays)]
        header = pickle.dumps((self._subtask, number, list(map(len, pieces))), 5)
        frames: list[Any] = [header, *(piece for part in pieces for piece in part)]
        self._links[to][0].send_multipart(frames, copy=False)

    def receive(self, awaited: int) -> tuple[int, int, Any]:
        """Wait for the next value; return its subtask, its round, and the value, whose arrays are read-only.

        Args:
            awaited: the subtask that must still send a value; other subtasks may have ended well.

        Raises:
            PeerLostError: if the connection to that subtask has broken and no more of its data arrives.
        """
        monitor, reason = self._links[awaited][1], None
        while not self._inbox.poll(_LOOK_MS if reason is None else _LAST_MS):
            if reason is not None:
                raise PeerLostError(f"subtask {awaited + 1} of the stage is gone: {reason}")
            reason = monitor.broken()  # data that it sent before may still arrive
        header, *frames = self._inbox.recv_multipart(copy=False)
        sender, number, counts = pickle.loads(header.buffer)
        parts, offset = [], 0
        for count in counts:
            pieces = [frame.buffer for frame in frames[offset : offset + count]]
            parts.append(pieces[0] if count == 1 else b"".join(pieces))
            offset += count
        return sender, number, pickle.loads(parts[0], buffers=parts[1:])

    def close(self) -> None:
        """Send the remaining messages, and close."""
        for link, monitor in self._links.values():
            monitor.close()
            link.close(linger=_LINGER_MS)
        self._driver_monitor.close()
        self._driver.close(linger=_LINGER_MS)
        self._outgoing.term()
        self._inbox.close()
        self._authenticator.close()
        self._context.term()


def _pieces(part: memoryview) -> list[memoryview]:
    """Split a part into frames, at least one."""
    return [part[begin : begin + _FRAME_BYTES_MAX] for begin in range(0, max(1, len(part)), _FRAME_BYTES_MAX)]
