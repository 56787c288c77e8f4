"""Makes Ctrl-C work while a program waits; a second Ctrl-C ends a process that cannot run Python code.

Python handles signals in the main thread, which needs the global interpreter lock (GIL). With the local target,
functions run in the program's process. If one of them calls C code that does not return and holds the lock, Ctrl-C has
no effect. Therefore the default action is restored when a signal arrives (`SA_RESETHAND`), and the Python handler first
reinstalls itself. If the handler does not get to run, the next Ctrl-C ends the process.

The system may deliver a signal to any thread of the process. The main thread still runs the Python handler, but nothing
wakes it. Therefore the functions here that wait wake up from time to time.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import platform
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: The interval at which a waiting program wakes up to handle signals that another thread received.
SIGNALS_SECONDS: Final = 0.5

_RESET_HANDLER: Final = -0x80000000
#: The structure below is different on other systems and processors.
_IS_KNOWN: Final = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")


class _Action(ctypes.Structure):
    """`struct sigaction`."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint8 * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


@contextlib.contextmanager
def ends_on_second_interrupt() -> Iterator[None]:
    """Let SIGINT work as before, but end the process if Python has not handled the previous SIGINT.

    This has no effect outside the main thread, if the program ignores SIGINT, or on systems other than Linux.
    """
    before = signal.getsignal(signal.SIGINT)
    if not _IS_KNOWN or not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    action = _Action()

    def on_interrupt(number: int, frame: FrameType | None) -> Any:
        _set(action)
        return before(number, frame)

    signal.signal(signal.SIGINT, on_interrupt)
    if _call(None, action):
        action.flags |= _RESET_HANDLER
        _set(action)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is on_interrupt:
            signal.signal(signal.SIGINT, before)


def wait_until_done(future: Future[Any]) -> None:
    """Wait for a future, whatever its outcome; signals take effect within `SIGNALS_SECONDS`."""
    while not wait([future], SIGNALS_SECONDS).done:
        pass


def take_item(items: SimpleQueue[T], timeout_seconds: float | None = None) -> T:
    """Return the next item of a queue, or raise `Empty` at the timeout. Handles signals like `wait_until_done`."""
    left = math.inf if timeout_seconds is None else timeout_seconds
    until = time.monotonic() + left
    while True:
        try:
            return items.get(timeout=min(left, SIGNALS_SECONDS))
        except Empty:
            left = max(0.0, until - time.monotonic())
            if not left:
                raise


def _set(action: _Action) -> None:
    if action.handler:
        _call(action, None)


def _call(action: _Action | None, former: _Action | None) -> bool:
    """Call `sigaction`; return whether it succeeded."""
    pointers = [None if argument is None else ctypes.byref(argument) for argument in (action, former)]
    return bool(ctypes.CDLL(None).sigaction(int(signal.SIGINT), *pointers) == 0)
