"""Work outside a loop's own turn: a few threads, whose results come back into the turn."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_Done = Callable[[Any, BaseException | None], None]


class ThreadBackground:
    """Implements `core.ports.Background` with daemon threads, so that work that hangs never holds up the process's end.

    Args:
        name: begins the threads' names.
        threads: how many pieces of work run at once.
        wake: called from a thread when a result is ready; the owner then calls `deliver` in its turn.
    """

    def __init__(self, name: str, threads: int, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], _Done] | None] = queue.SimpleQueue()
        self._finished: deque[tuple[_Done, Any, BaseException | None]] = deque()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{index}", daemon=True) for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
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

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            if self._closed:
                continue
            work, done = item
            result, error = None, None
            try:
                result = work()
            except BaseException as caught:  # noqa: BLE001 - handed to `done`, whatever it is
                error = caught
            self._finished.append((done, result, error))
            if not self._closed:
                self._wake()
