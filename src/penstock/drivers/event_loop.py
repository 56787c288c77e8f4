"""The event loop of a worker: user coroutines run on their own thread; results are delivered in the owner's turn."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from penstock.drivers.clock import WAIT_MS_MAX

T = TypeVar("T")

_Done = Callable[[Any, BaseException | None], None]

#: How long `close` waits for cancelled coroutines, and for the thread.
CLOSE_TIMEOUT_SECONDS: Final = 2.0


class _Call:
    """One coroutine: not started, running as `task`, or cancelled."""

    __slots__ = ("done", "is_cancelled", "make", "task")

    def __init__(self, make: Callable[[], Awaitable[Any]], done: _Done) -> None:
        self.make = make
        self.done = done
        self.task: asyncio.Task[None] | None = None
        self.is_cancelled = False


class EventLoopThread:
    """Implements `core.ports.Coroutines` with asyncio on a daemon thread, which starts with the first call.

    Each side wakes the other only if the queue was empty before. Each side checks the queue after it adds an item, and
    again after it takes the last one, so neither side misses an item.

    Args:
        name: the name of the thread.
        wake: called from the thread when results are ready; the owner then calls `deliver` in its turn.
    """

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        self._name = name
        self._wake = wake
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._to_start: deque[_Call] = deque()
        self._returned: deque[tuple[_Call, Any, BaseException | None]] = deque()
        #: Used by the loop's thread only: keeps its tasks alive.
        self._running: set[asyncio.Task[None]] = set()

    # --- the owner's side ------------------------------------------------------------------------------------------

    def start(
        self, make: Callable[[], Awaitable[T]], done: Callable[[T | None, BaseException | None], None]
    ) -> Callable[[], None]:
        call = _Call(make, done)
        loop = self._loop or self._begin()
        self._to_start.append(call)
        if len(self._to_start) == 1:
            loop.call_soon_threadsafe(self._start_all)

        def cancel() -> None:
            call.is_cancelled = True
            if self._loop is loop:
                loop.call_soon_threadsafe(self._cancel, call)

        return cancel

    def deliver(self) -> bool:
        """Call the callbacks of all ready results; return whether there were any."""
        returned = self._returned
        delivered = False
        while returned:
            delivered = True
            call, result, error = returned.popleft()
            if not call.is_cancelled:
                call.done(result, error)
        return delivered

    def close(self) -> None:
        """Cancel running coroutines and end the thread, or abandon it if it hangs. No more results are delivered."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join(2 * CLOSE_TIMEOUT_SECONDS)
        self._returned.clear()

    def _begin(self) -> asyncio.AbstractEventLoop:
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(loop,), name=self._name, daemon=True)
        self._thread.start()
        return loop

    # --- the thread's side -----------------------------------------------------------------------------------------

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            tasks = asyncio.all_tasks(loop)  # includes tasks started by user code
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_SECONDS))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    def _start_all(self) -> None:
        calls = self._to_start
        while calls:
            # The call stays in the queue until it has started, so the owner sees that the queue is still being emptied.
            call = calls[0]
            if not call.is_cancelled:
                call.task = asyncio.create_task(self._await(call))
                self._running.add(call.task)
                call.task.add_done_callback(self._running.discard)
            calls.popleft()

    def _cancel(self, call: _Call) -> None:
        if call.task is not None:
            call.task.cancel()

    async def _await(self, call: _Call) -> None:
        result, error = None, None
        try:
            result = await call.make()
        except BaseException as caught:  # noqa: BLE001 - handed to `done`, whatever it is
            error = caught
        self._returned.append((call, result, error))
        del error  # its traceback refers to this frame: a reference cycle
        if len(self._returned) == 1:
            self._wake()


class WaitingEventLoop:
    """An `EventLoopThread` for an owner that waits for nothing else, such as `BatchTask`."""

    def __init__(self, name: str) -> None:
        self._event = threading.Event()
        self.coroutines = EventLoopThread(name, self._event.set)

    def wait(self, ms: int) -> None:
        """Wait up to this many ms for a result; deliver the results that are ready.

        A long wait ends sooner, because the host's clock may be set meanwhile.
        """
        self._event.wait(min(ms, WAIT_MS_MAX) / 1000)
        self._event.clear()
        self.coroutines.deliver()

    def __enter__(self) -> WaitingEventLoop:
        return self

    def __exit__(self, *exception: object) -> None:
        self.coroutines.close()
