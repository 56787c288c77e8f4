"""An event loop in virtual time: coroutines that sleep take no time, and everything happens in one order.

A coroutine may wait for time (`asyncio.sleep`, `asyncio.timeout`) and for other coroutines (locks, queues, tasks).
Sockets, threads and processes do not exist: using one raises NotImplementedError, so that no test waits by mistake.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from penstock.base.errors import UnsupportedError
from penstock.runtime.ports import Clock

T = TypeVar("T")

_log = logging.getLogger("penstock.async")


class VirtualEventLoop(asyncio.AbstractEventLoop):
    """Runs ready callbacks on request; see the module docstring. Its owner advances `clock`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: deque[asyncio.Handle] = deque()
        self._scheduled: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self._is_running = False
        self._is_closed = False

    # --- what asyncio asks of a loop -------------------------------------------------------------------------------

    def time(self) -> float:
        """Return virtual time in seconds."""
        return self._clock.steady_ms() / 1000

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback after all that are ready."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback in `delay` seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback for a time in seconds."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._scheduled, (when, self._count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is skipped when it is due."""

    def create_future(self) -> asyncio.Future[Any]:
        """Create a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Any = None, **options: Any
    ) -> asyncio.Task[Any]:
        """Start a coroutine as a task. Later Python releases pass more `options`."""
        return asyncio.Task(coro, loop=self, name=name, context=context, **options)

    def is_running(self) -> bool:
        """Return whether `run_ready` is running."""
        return self._is_running

    def is_closed(self) -> bool:
        """Return whether `close` was called."""
        return self._is_closed

    def get_debug(self) -> bool:
        """Return False: the loop has no debug mode."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log a failure that was never awaited. A call abandoned without its loop being closed is not a failure."""
        if "exception" in context:
            _log.error("%s", context.get("message"), exc_info=context["exception"])

    async def create_connection(self, *arguments: Any, **options: Any) -> Any:
        """Refuse."""
        raise UnsupportedError("in virtual time there is no network: replace the service in the test")

    getaddrinfo = create_connection

    def run_in_executor(self, *arguments: Any) -> Any:  # type: ignore[override]
        """Refuse."""
        raise UnsupportedError("in virtual time there are no threads: replace the blocking call in the test")

    # --- what its owner asks ---------------------------------------------------------------------------------------

    def next_due_ms(self) -> int | None:
        """Return when (ms) the next callback is due: now, or later; None if nothing is scheduled."""
        if self._ready:
            return self._clock.steady_ms()
        while self._scheduled and self._scheduled[0][2].cancelled():
            heapq.heappop(self._scheduled)
        # Seconds as floats are off by less than a microsecond.
        return math.ceil(self._scheduled[0][0] * 1000 - 1e-3) if self._scheduled else None

    def run_ready(self) -> bool:
        """Run all callbacks that are due now, and those they make due now; return whether there were any."""
        ran = False
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self._is_running = True
        try:
            while (due_ms := self.next_due_ms()) is not None and due_ms <= self._clock.steady_ms():
                ran = True
                handle: asyncio.Handle = self._ready.popleft() if self._ready else heapq.heappop(self._scheduled)[2]
                if not handle.cancelled():
                    handle._run()
        finally:
            self._is_running = False
            asyncio._set_running_loop(outer)
        return ran

    def close(self) -> None:
        """Cancel all tasks and let them end."""
        for task in asyncio.all_tasks(self):
            task.cancel()
        self.run_ready()
        self._scheduled.clear()
        self._is_closed = True


class VirtualCoroutines:
    """Implements `runtime.ports.Coroutines` on a `VirtualEventLoop`; `deliver` passes results on."""

    def __init__(self, clock: Clock) -> None:
        self._loop = VirtualEventLoop(clock)  # type: ignore[abstract]
        self._returned: deque[Callable[[], None]] = deque()
        self._fatal: BaseException | None = None
        #: number of calls started so far
        self.started = 0
        #: calls in progress
        self.running: set[asyncio.Task[None]] = set()

    def start(
        self, make: Callable[[], Awaitable[T]], done: Callable[[T | None, BaseException | None], None]
    ) -> Callable[[], None]:
        self.started += 1
        is_cancelled = False
        task: asyncio.Task[None] | None = None

        async def run() -> None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = await make()
            except (Exception, asyncio.CancelledError) as caught:  # noqa: BLE001 - handed to `done`, whatever it is
                error = caught
            except BaseException as caught:  # noqa: BLE001 - raised by `deliver`
                self._fatal = caught
                return
            self._returned.append(lambda: None if is_cancelled else done(result, error))

        def begin() -> None:
            nonlocal task
            task = self._loop.create_task(run())
            self.running.add(task)
            task.add_done_callback(self.running.discard)

        def cancel() -> None:
            nonlocal is_cancelled
            is_cancelled = True
            begun.cancel()
            if task is not None:
                task.cancel()

        begun = self._loop.call_soon(begin)
        return cancel

    def next_due_ms(self) -> int | None:
        """Return when (ms) `deliver` next has something to do, as far as is known."""
        return self._loop.next_due_ms()

    def deliver(self) -> bool:
        """Run due callbacks and deliver results; return whether there were any results."""
        self._loop.run_ready()
        fatal, self._fatal = self._fatal, None
        if fatal is not None:
            raise fatal  # as if the process were killed within user code
        delivered = False
        while self._returned:
            delivered = True
            self._returned.popleft()()
        return delivered

    def close(self) -> None:
        """Cancel running calls; their results are not delivered."""
        with suppress(RuntimeError):
            self._loop.close()
        self._returned.clear()
