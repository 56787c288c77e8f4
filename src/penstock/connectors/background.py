"""Reads ahead in a thread, so that the task does not block while a server responds."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

#: How many items to read ahead.
_AHEAD: Final = 3
_WAIT_S: Final = 0.05


class Background(Generic[T]):
    """Runs an iterator in its own thread, a few items ahead.

    Args:
        make: creates the iterator, in the thread.
        interrupt: unblocks a call that hangs in the iterator; called by `close`.
    """

    def __init__(self, make: Callable[[], Iterator[T]], interrupt: Callable[[], None]) -> None:
        self._items: queue.Queue[Any] = queue.Queue(_AHEAD)
        self._is_closed = threading.Event()
        self._interrupt = interrupt
        self._error: BaseException | None = None
        self._is_done = False
        self._thread = threading.Thread(target=self._run, args=(make,), name="source-read-ahead", daemon=True)
        self._thread.start()

    def _run(self, make: Callable[[], Iterator[T]]) -> None:
        items = make()
        try:
            for item in items:
                if not self._put((item, None)):
                    return
            self._put((None, StopIteration()))
        except BaseException as error:  # noqa: BLE001 - it is raised where the items are taken
            self._put((None, error))
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                with contextlib.suppress(Exception):  # an interrupted query raises here
                    close()

    def _put(self, entry: Any) -> bool:
        while not self._is_closed.is_set():
            try:
                self._items.put(entry, timeout=_WAIT_S)
            except queue.Full:
                continue
            return True
        return False

    @property
    def is_done(self) -> bool:
        """Whether `take` has reported the iterator's end or its error."""
        return self._is_done

    def take(self, wait_s: float = 0.0) -> T | None:
        """Return the next item, or None if none arrives within `wait_s`. Raises any error that the iterator raised."""
        if self._is_done:
            return None
        try:
            item, error = self._items.get(timeout=wait_s) if wait_s > 0 else self._items.get_nowait()
        except queue.Empty:
            return None
        if isinstance(error, StopIteration):
            self._is_done = True
            return None
        if error is not None:
            self._is_done = True
            raise error
        return item  # type: ignore[no-any-return]

    def close(self) -> None:
        """Stop the thread and wait for it to end."""
        self._is_closed.set()
        if self._thread.is_alive():
            self._interrupt()
        self._thread.join()
