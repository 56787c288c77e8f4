"""The ports of a process that runs tasks: event loops for user coroutines, background work, clock, garbage collection.

`EventLoopThread` is the event loop of a worker: user coroutines run on their own thread; results are delivered in the
owner's turn.

`ThreadBackground` runs work in a few threads, and delivers the results within the owner's turn. `InlineBackground` runs
it at once, for jobs in virtual time.

`VirtualEventLoop` is an event loop in virtual time: coroutines that sleep take no time, and everything happens in one
order. A coroutine may wait for time (`asyncio.sleep`, `asyncio.timeout`) and for other coroutines (locks, queues,
tasks). Sockets, threads and processes do not exist: using one raises NotImplementedError, so that no test waits by
mistake.

`EndedTasks` runs Python's cycle collector once for each restart. Penstock's tasks release their parts when they end, so
they leave no cycles. User-defined functions may, for example with `self.handlers = {"a": self.on_a}`. Python's
collector runs after many allocations, so a few large objects, such as a model that every attempt loads, may stay for
hours. A collection takes about 0.1 s for 1,000,000 objects.

`rare_collections` sets how often Python looks for reference cycles in the processes that run tasks.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Set
from contextlib import contextmanager, suppress
from functools import partial
from threading import Lock
from typing import Any, Final, TypeVar

from penstock.base.errors import UnsupportedError
from penstock.runtime.ports import Clock

_LOG: Final = logging.getLogger(__name__)

#: The maximum time (ms) that a driver's loop waits: timers become due if the host's clock is set meanwhile.
WAIT_MS_MAX: Final = 1_000


class SystemClock:
    """The host's clock as processing time, and a monotonic clock.

    Processing time follows the host's clock forward at once, for example after a suspension. If that clock is set back,
    processing time advances at half speed until the two agree, so timers do not stall.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._steady_ns = time.monotonic_ns()
        self._now_ns = time.time_ns()

    def now_ms(self) -> int:
        """Return the processing time."""
        with self._lock:
            steady_ns, host_ns = time.monotonic_ns(), time.time_ns()
            passed_ns = steady_ns - self._steady_ns
            if host_ns < self._now_ns + passed_ns:
                host_ns = max(host_ns, self._now_ns + passed_ns // 2)
            self._steady_ns, self._now_ns = steady_ns, host_ns
            return host_ns // 1_000_000

    def steady_ms(self) -> int:
        """Return the monotonic time, for timeouts."""
        return time.monotonic_ns() // 1_000_000

    def steady_ns(self) -> int:
        """Return the monotonic time, for durations below a millisecond."""
        return time.monotonic_ns()


T = TypeVar("T")

_Done = Callable[[Any, BaseException | None], None]

#: How long `close` waits for cancelled coroutines, and for the thread.
CLOSE_TIMEOUT_SECONDS: Final = 2.0


class _Call:
    """One coroutine: not started, running as `task`, or cancelled. One that releases resources has no `done`."""

    __slots__ = ("done", "is_cancelled", "make", "task")

    def __init__(self, make: Callable[[], Awaitable[Any]], done: _Done | None) -> None:
        self.make = make
        self.done = done
        self.task: asyncio.Task[None] | None = None
        self.is_cancelled = False


class EventLoopThread:
    """Implements `runtime.ports.Coroutines` with asyncio on a daemon thread, which starts with the first call.

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
        self._releasing: set[asyncio.Task[None]] = set()

    # --- the owner's side ------------------------------------------------------------------------------------------

    def start(
        self, make: Callable[[], Awaitable[T]], done: Callable[[T | None, BaseException | None], None]
    ) -> Callable[[], None]:
        call = _Call(make, done)
        loop = self._enqueue(call)

        def cancel() -> None:
            call.is_cancelled = True
            if self._loop is loop:
                loop.call_soon_threadsafe(self._cancel, call)

        return cancel

    def release(self, make: Callable[[], Awaitable[object]]) -> None:
        self._enqueue(_Call(make, None))

    def _enqueue(self, call: _Call) -> asyncio.AbstractEventLoop:
        loop = self._loop or self._begin()
        self._to_start.append(call)
        if len(self._to_start) == 1:
            loop.call_soon_threadsafe(self._start_all)
        return loop

    def deliver(self) -> bool:
        """Call the callbacks of all ready results; return whether there were any."""
        returned = self._returned
        delivered = False
        while returned:
            delivered = True
            call, result, error = returned.popleft()
            if not call.is_cancelled and call.done is not None:
                call.done(result, error)
        return delivered

    def close(self) -> None:
        """Cancel running coroutines and end the thread, or abandon it if it hangs. No more results are delivered.

        Coroutines of `release` are awaited, so that they close their connections.
        """
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
            for kept in (self._releasing, set[asyncio.Task[None]]()):
                tasks = asyncio.all_tasks(loop)  # includes tasks started by user code
                for task in tasks - kept:
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
                if call.done is None:
                    self._releasing.add(call.task)
                    call.task.add_done_callback(self._releasing.discard)
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
        if call.done is None and isinstance(error, Exception):
            _LOG.warning("resources were not released: %s", error, exc_info=error)
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


#: Work that takes longer counts as hanging; when all threads hang, another one is started.
HANGS_SECONDS: Final = 5.0
THREADS_MAX: Final = 16


class ThreadBackground:
    """Implements `runtime.ports.Background` with daemon threads, so that hanging work never delays the process end.

    Args:
        name: the prefix of the threads' names.
        threads: how many pieces of work run at once, not counting hanging ones; they start with the first work.
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
        self._threads_wanted = threads

    @property
    def has_results(self) -> bool:
        """Whether `deliver` has something to deliver."""
        return bool(self._finished)

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
        if len(self._threads) < self._threads_wanted or (all_hang and len(self._threads) < THREADS_MAX):
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


class InlineBackground:
    """Runs work at once; its result is delivered in the owner's next turn, as if it had taken time.

    For jobs in virtual time, which have no threads.
    """

    def __init__(self) -> None:
        self._done: deque[Callable[[], None]] = deque()

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run the work."""
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except (Exception, SystemExit) as caught:  # noqa: BLE001 - handed to `done`, whatever it is
            error = caught
        self._done.append(partial(done, result, error))
        del error  # its traceback refers to this frame: a reference cycle

    @property
    def has_results(self) -> bool:
        """Whether `deliver` has something to deliver."""
        return bool(self._done)

    def deliver(self) -> bool:
        """Call the callbacks of all results; return whether there were any."""
        delivered = False
        while self._done:
            delivered = True
            self._done.popleft()()
        return delivered

    def close(self, **_: Any) -> None:
        """Do nothing: no work is left."""


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

    # --- the interface of asyncio ----------------------------------------------------------------------------------

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

    # --- the interface of its owner --------------------------------------------------------------------------------

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

    def close(self, kept: Set[asyncio.Task[None]] = frozenset()) -> None:
        """Cancel all tasks but these, and let all of them end."""
        for task in asyncio.all_tasks(self) - kept:
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
        self._releasing: set[asyncio.Task[None]] = set()

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

    def release(self, make: Callable[[], Awaitable[object]]) -> None:
        async def run() -> None:
            await make()

        def begin() -> None:
            task = self._loop.create_task(run())
            self._releasing.add(task)
            task.add_done_callback(self._releasing.discard)

        self._loop.call_soon(begin)

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
        """Cancel running calls; their results are not delivered. Resources are released."""
        with suppress(RuntimeError):
            self._loop.close(self._releasing)
        self._returned.clear()


class EndedTasks:
    """Implements the port `CycleCollector`. The executors of a local cluster share one, so it runs once per restart.

    Args:
        collect: frees reference cycles.
    """

    def __init__(self, collect: Callable[[], object] = gc.collect) -> None:
        self._collect = collect
        self._has_ended_tasks = False

    def note(self) -> None:
        """Note that tasks have ended, which may have left cycles."""
        self._has_ended_tasks = True

    def collect(self) -> None:
        """Free cycles if tasks have ended since the last call."""
        if self._has_ended_tasks:
            self._has_ended_tasks = False
            self._collect()


#: The number of new objects after which Python looks for cycles.
GC_THRESHOLD = 200_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Make Python look for cycles less often: batches consist of many short-lived objects without cycles."""
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
