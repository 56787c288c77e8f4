"""Work outside a loop's own turn: a few threads, whose results come back into the turn."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: After this time work counts as hanging: when all threads hang, another one is started.
HANGS_SECONDS: Final = 5.0
THREADS_MAX: Final = 16

_Done = Callable[[Any, BaseException | None], None]


class ThreadBackground:
    """Implements `core.ports.Background` with daemon threads, so that work that hangs never holds up the process's end.

    Args:
        name: begins the threads' names.
        threads: how many pieces of work run at once, not counting those that hang.
        wake: called from a thread when a result is ready; the owner then calls `deliver` in its turn.
    """

    def __init__(self, name: str, threads: int, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], _Done] | None] = queue.SimpleQueue()
        self._finished: deque[tuple[_Done, Any, BaseException | None]] = deque()
        self._closed = False
        self._name = name
        self._threads: list[threading.Thread] = []
        #: since when each thread has been at its present work, None for one that waits for work
        self._since: list[float | None] = []
        for _ in range(threads):
            self._start()

    def _start(self) -> None:
        index = len(self._threads)
        self._since.append(None)
        self._threads.append(
            threading.Thread(target=self._run, args=(index,), name=f"{self._name}-{index}", daemon=True)
        )
        self._threads[-1].start()

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        long_ago = time.monotonic() - HANGS_SECONDS
        all_hang = bool(self._since) and all(since is not None and since < long_ago for since in self._since)
        if all_hang and len(self._threads) < THREADS_MAX:
            self._start()
        self._work.put((work, done))

    def deliver(self) -> bool:
        """Calls what waits for results that are ready; True when there were any."""
        delivered = False
        while self._finished:
            done, result, error = self._finished.popleft()
            delivered = True
            done(result, error)
        return delivered

    def close(self, *, finish: bool = False, timeout_seconds: float = 2.0) -> None:
        """Ends the threads, and waits for them; results not delivered by now never are.

        Args:
            finish: whether work that has not begun is still done.
            timeout_seconds: how long to wait for each thread; one that hangs is left to itself.
        """
        self._closed = not finish
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join(timeout_seconds)
        self._closed = True
        self._finished.clear()

    def _run(self, index: int) -> None:
        while self._do_next(index):
            pass

    def _do_next(self, index: int) -> bool:
        """Wait for work and do it; returns False at the end.

        A call per item, because a waiting thread must not refer to the last work: a snapshot is as large as the state.
        """
        item = self._work.get()
        if item is None:
            return False
        if self._closed:
            return True
        work, done = item
        self._since[index] = time.monotonic()
        result, error = None, None
        try:
            result = work()
        except BaseException as caught:  # noqa: BLE001 - handed to `done`, whatever it is
            error = caught
        self._since[index] = None
        self._finished.append((done, result, error))
        del error  # its traceback refers to this frame, which is a reference cycle
        if not self._closed:
            self._wake()
        return True
