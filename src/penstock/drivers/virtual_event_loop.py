"""An event loop in virtual time: coroutines that sleep take no time, and everything happens in one order.

What a coroutine may wait for is time (`asyncio.sleep`, `asyncio.timeout`) and other coroutines (locks, queues, tasks).
There are no sockets, threads or processes: asking for one raises NotImplementedError, so that no test waits by mistake.
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
from penstock.core.ports import Clock

T = TypeVar("T")

_log = logging.getLogger("penstock.async")


class VirtualEventLoop(asyncio.AbstractEventLoop):
    """Runs what is ready when it is told to; see the module's text. `clock` is moved by its owner."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: deque[asyncio.Handle] = deque()
        self._scheduled: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self._is_running = False
        self._is_closed = False

    # --- what asyncio asks of a loop -------------------------------------------------------------------------------

    def time(self) -> float:
        """Virtual time in seconds."""
        return self._clock.steady_ms() / 1000

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Let something happen after all that is ready."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Let something happen in this many seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Let something happen at a time in seconds."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._scheduled, (when, self._count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A timer was cancelled; it is skipped when it is due."""

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Any = None, **options: Any
    ) -> asyncio.Task[Any]:
        """Begin a coroutine. Later releases of Python pass more `options`."""
        return asyncio.Task(coro, loop=self, name=name, context=context, **options)

    def is_running(self) -> bool:
        """Whether `run_ready` is at work."""
        return self._is_running

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def get_debug(self) -> bool:
        """Never in debug mode."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log a failure that was never awaited. A call given up without its loop being closed is not a failure."""
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
        """When (ms) anything is to happen next: now, or later, or None."""
        if self._ready:
            return self._clock.steady_ms()
        while self._scheduled and self._scheduled[0][2].cancelled():
            heapq.heappop(self._scheduled)
        # Seconds as floats are off by less than a microsecond.
        return math.ceil(self._scheduled[0][0] * 1000 - 1e-3) if self._scheduled else None

    def run_ready(self) -> bool:
        """Let all happen that is due now, and what follows from it now; return whether there was anything."""
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
    """Implements `core.ports.Coroutines` on a `VirtualEventLoop`; results are handed over by `deliver`."""

    def __init__(self, clock: Clock) -> None:
        self._loop = VirtualEventLoop(clock)  # type: ignore[abstract]
        self._returned: deque[Callable[[], None]] = deque()
        self._fatal: BaseException | None = None
        #: calls begun so far
        self.started = 0
        #: calls that run now
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
        """When (ms) `deliver` has something to do next, as far as is known."""
        return self._loop.next_due_ms()

    def deliver(self) -> bool:
        """Run what is due now and call what waits for results; return whether there were any."""
        self._loop.run_ready()
        fatal, self._fatal = self._fatal, None
        if fatal is not None:
            raise fatal  # as if a process were killed within user code
        delivered = False
        while self._returned:
            delivered = True
            self._returned.popleft()()
        return delivered

    def close(self) -> None:
        """Cancel what runs; its results are not delivered."""
        with suppress(RuntimeError):
            self._loop.close()
        self._returned.clear()
