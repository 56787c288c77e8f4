"""Names the code in which a worker's process is blocked when a call holds Python's global interpreter lock (GIL).

A C function that does not release the lock stops all Python threads of the process, including the heartbeats. The job
master gets only silence. So each worker has a watchdog that runs without the lock: `faulthandler` writes the stacks of
all threads into a local connection if the heartbeat thread has not restarted it in time. A thread of libzmq, which does
not need the lock either, passes them on to the job master.
"""

from __future__ import annotations

import faulthandler
import logging
import re
import secrets
import socket
import threading
from typing import Final, NamedTuple

import zmq

from penstock.base.errors import OperationError
from penstock.drivers.spark.control_frames import STALL_ROLE, identity
from penstock.drivers.spark.keys import WorkerKeys
from penstock.drivers.spark.sockets import Context, connect_client

_log = logging.getLogger("penstock.spark")

#: The limit (characters) for the stacks of one worker. `faulthandler` itself limits threads and frames.
DUMP_CHARS_MAX: Final = 256 << 10
#: the beginning of the output of `faulthandler`
DUMP_BEGIN: Final = "Timeout ("
#: The limit (frames) for the stack in an error; the innermost ones are kept.
FRAMES_MAX: Final = 30
_CONNECT_TIMEOUT_S: Final = 5.0
_TRIES_MAX: Final = 3
_UNSENT_MAX: Final = 1_000
_FRAME: Final = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)\n')
#: Functions in which an idle thread of a worker waits without the lock.
_WAITS: Final = ("/threading.py", "/selectors.py", "/zmq/", "/queue.py", "/concurrent/futures/", "/stalls.py")
#: Penstock's packages that appear in the stack of a task.
_PENSTOCK: Final = re.compile(r"/penstock/(?:core|drivers|datastream|table|connectors|state|storage|wire|codecs)/")
_OF_PYTHON: Final = re.compile(r"<frozen|/(?:pyspark|py4j|zmq)/|/lib/python(?!.*-packages/)")


class StallWatch:
    """The watchdog of this process, which must be restarted regularly by `rearm`.

    Args:
        keys: the worker's part of the job's keys.
        worker_id: the worker's id.
        master_address: the job master's address.
        max_frame_bytes: the limit for a message.
        stall_ms: the time without `rearm` after which the stacks are sent.

    Raises:
        OSError: if this machine does not allow local connections.
    """

    def __init__(
        self, keys: WorkerKeys, worker_id: str, master_address: str, max_frame_bytes: int, stall_ms: int
    ) -> None:
        self._stall_s = stall_ms / 1_000
        # A separate context: terminating it ends the thread.
        self._context: Context = zmq.Context()
        try:
            dealer = self._context.socket(zmq.DEALER)
            dealer.setsockopt(zmq.ROUTING_ID, identity(STALL_ROLE, worker_id))
            connect_client(dealer, keys, keys.master_public, master_address, max_frame_bytes, _UNSENT_MAX)
            stream = self._context.socket(zmq.STREAM)
            stream.setsockopt(zmq.LINGER, 0)
            self._pipe = _connect(stream)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._thread = threading.Thread(target=_pass_on, args=(stream, dealer), name="penstock-stalls", daemon=True)
        self._thread.start()

    def rearm(self) -> None:
        """Restart the timer. From now on this process has no other watchdog of `faulthandler`."""
        faulthandler.dump_traceback_later(self._stall_s, file=self._pipe.fileno())

    def close(self) -> None:
        """Stop the watchdog and its thread."""
        faulthandler.cancel_dump_traceback_later()
        self._pipe.close()
        self._context.term()
        self._thread.join()


def _connect(stream: zmq.Socket[bytes]) -> socket.socket:
    """Connect a libzmq socket to a socket of this process; other processes cannot connect."""
    with socket.create_server(("127.0.0.1", 0), backlog=8) as server:
        server.settimeout(_CONNECT_TIMEOUT_S)
        stream.connect(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        for _ in range(_TRIES_MAX):
            pipe, _ = server.accept()
            token = secrets.token_bytes(16)
            pipe.sendall(token)
            if _received(stream, token):
                # The watchdog must not block on a full buffer: the heartbeat thread waits for it when it restarts it.
                pipe.setblocking(False)
                return pipe
            pipe.close()  # another process on this machine was faster
    raise OperationError("other processes of this machine took the local connection that tells of blocked functions")


def _received(stream: zmq.Socket[bytes], token: bytes) -> bool:
    received = b""
    while len(received) < len(token) and stream.poll(int(_CONNECT_TIMEOUT_S * 1_000)):
        _, data = stream.recv_multipart()  # an empty message: the connection was made
        received += data
    return received == token


def _pass_on(stream: zmq.Socket[bytes], dealer: zmq.Socket[bytes]) -> None:
    try:
        zmq.proxy(stream, dealer)
    except zmq.ContextTerminated:
        pass
    finally:
        stream.close(linger=0)
        dealer.close(linger=0)


# --- the job master's side --------------------------------------------------------------------------------------------


class Frame(NamedTuple):
    """A call in a stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function} ({self.file.rpartition('/')[2]}:{self.line})"


class Stall(NamedTuple):
    """The place where a process is blocked: the user's function, and the stack from there on, innermost call last."""

    at: str
    stack: str


def find_stall(dump: str) -> Stall | None:
    """Find the code that blocks a worker in the output of `faulthandler`; return None if no thread appears to block it.

    The output does not show which thread holds the lock. It must be a thread outside of the functions that wait:
    preferably the one that runs tasks, otherwise another one.
    """
    stacks = [
        stack for stack in map(_frames, re.split(r"^(?:Current thread|Thread) ", dump, flags=re.MULTILINE)) if stack
    ]
    stacks.sort(key=lambda stack: not any("/penstock/core/task/" in frame.file for frame in stack))
    for stack in stacks:
        if not any(part in stack[-1].file for part in _WAITS):
            begin = _users_call(stack)
            frames = stack[begin:][-FRAMES_MAX:]
            text = "".join(f'  File "{frame.file}", line {frame.line}, in {frame.function}\n' for frame in frames)
            return Stall(str(stack[begin]), text)
    return None


def _frames(text: str) -> list[Frame]:
    """Return the frames of one thread, outermost first, without an incomplete last line."""
    frames = [Frame(match["file"], int(match["line"]), match["function"]) for match in _FRAME.finditer(text)]
    return frames[::-1]


def _users_call(stack: list[Frame]) -> int:
    """Return the index of the first function of the user's code that Penstock calls, else of the innermost function."""
    is_inside = False
    for index, frame in enumerate(stack):
        if _PENSTOCK.search(frame.file):
            is_inside = True
        elif is_inside and not _OF_PYTHON.search(frame.file):
            return index
    return len(stack) - 1
