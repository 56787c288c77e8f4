"""Runs work outside a loop's own turn in a few threads, and delivers the results within the turn."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: Work that takes longer counts as hanging; when all threads hang, another one is started.
HANGS_SECONDS: Final = 5.0
THREADS_MAX: Final = 16

_Done = Callable[[Any, BaseException | None], None]


class ThreadBackground:
    """Implements `core.ports.Background` with daemon threads, so that hanging work never delays the end of the process.

    Args:
        name: the prefix of the threads' names.
        threads: how many pieces of work run at once, not counting hanging ones.
        wake: called from a thread when a result is ready; the owner then calls `deliver` in its turn.
    """

    def __init__(self, name: str, threads: int, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], _Done] | None] = queue.SimpleQueue()
        self._finished: deque[tuple[_Done, Any, BaseException | None]] = deque()
        self._closed = False
        self._name = name
        self._threads: list[threading.Thread] = []
        #: when each thread began its current work; None if it waits for work
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
        """Call the callbacks whose results are ready; return whether there were any."""
        delivered = False
        while self._finished:
            done, result, error = self._finished.popleft()
            delivered = True
            done(result, error)
        return delivered

    def close(self, *, finish: bool = False, timeout_seconds: float = 2.0) -> None:
        """End the threads and wait for them; results that are not delivered yet are dropped.

        Args:
            finish: whether to finish work that has not begun.
            timeout_seconds: how long to wait for each thread; one that hangs is abandoned.
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
        """Wait for work and do it; return False at the end.

        Each item gets a call of its own, so that a waiting thread does not refer to the last work: a snapshot is as
        large as the state.
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
        del error  # its traceback refers to this frame: a reference cycle
        if not self._closed:
            self._wake()
        return True
