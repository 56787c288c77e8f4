"""Asynchronous functions: external calls that run while their records wait, and the queues that order the answers (A1).

**Queues** hold calls in the order of their records, with the watermarks between them. They hand out results and
watermarks that may be emitted, in order, and never let a result cross a watermark:

- `OrderedCalls`: in the order of the input.
- `UnorderedCalls`: results between two watermarks in the order of their completion. A *segment* is the calls between
  two watermarks. Only the first segment's results go out; its watermark follows when all its calls have completed.

`AsyncWaitOperator` runs many calls at once. A record comes in, its call starts, and its results go out when the call
has returned. They go out in the order of the input or of completion, but never across a watermark. At most `capacity`
records are between the start of their call and the emission of their results. Further records of a batch wait
unstarted, and the operator is not available: the task takes no more input, while results, timers and checkpoints go on.

A function may change its results later, even while other calls are running. So mutable results are copied as soon as
the call returns, on the event loop (`results`).

A returned call is only recorded; `process_completions` handles it in the task's step. So its errors fail the task like
errors of any other function, and results are emitted in batches.

Snapshots. The operator knows nothing of a running call except its record. All records whose results have not gone out
are split operator state. A restored task calls the function for them again, before its input. So a call may be made
more than once, but its results are emitted exactly once.

The end. The task waits for running calls (`drain`), retries included, so that the last records of a bounded stream are
treated like all others. Their results go through everything downstream before the operators there are notified of the
end. A suspended task waits for nothing: its records are in the savepoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, Protocol, TypeAlias

from penstock.base.copies import detached
from penstock.base.errors import CallTimeoutError, MisuseError, UnsupportedError, short_repr
from penstock.runtime.operators.base import FunctionOperator
from penstock.runtime.ports import Coroutines
from penstock.runtime.records import Batch
from penstock.state.snapshot import StateCapture


class Call:
    """One record on its way through an asynchronous function."""

    __slots__ = ("attempt", "cancel", "deadline_ms", "is_done", "results", "timestamp", "value")

    def __init__(self, value: Any, timestamp: int | None) -> None:
        self.value = value
        self.timestamp = timestamp
        self.results: list[Any] = []
        self.is_done = False
        #: The current attempt, from 1; 0 before the first.
        self.attempt = 0
        self.cancel: Callable[[], None] | None = None
        self.deadline_ms: int | None = None


class Mark:
    """A watermark (ms) and a change of idleness that wait for all earlier calls.

    If no call has come in between, later values replace the values of the waiting mark.
    """

    __slots__ = ("idle", "watermark")

    def __init__(self) -> None:
        self.watermark: int | None = None
        self.idle: bool | None = None


Ready: TypeAlias = "Call | Mark"


class OrderedCalls:
    """A queue in the order of the input; see the module docstring."""

    def __init__(self) -> None:
        self._entries: deque[Call | Mark] = deque()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, call: Call) -> None:
        """Append a call."""
        self._entries.append(call)

    def last_mark(self) -> Mark:
        """Return the mark after all calls, and create it if needed. The queue must not be empty."""
        last = self._entries[-1]
        if not isinstance(last, Mark):
            last = Mark()
            self._entries.append(last)
        return last

    def on_done(self, call: Call) -> None:
        """Note that a call has its results."""

    def take_ready(self) -> Iterator[Ready]:
        """Remove and yield the entries that may go out now."""
        entries = self._entries
        while entries:
            entry = entries[0]
            if type(entry) is Call and not entry.is_done:
                return
            yield entries.popleft()

    def calls(self) -> Iterator[Call]:
        """Return all calls that have not gone out, in the order of their records."""
        return (entry for entry in self._entries if isinstance(entry, Call))


class _Segment:
    __slots__ = ("calls", "done", "mark")

    def __init__(self) -> None:
        #: an ordered set, in the order of the records
        self.calls: dict[Call, None] = {}
        self.done: deque[Call] = deque()
        self.mark: Mark | None = None


class UnorderedCalls:
    """A queue in the order of completion between watermarks; see the module docstring."""

    def __init__(self) -> None:
        self._segments: deque[_Segment] = deque()
        #: the segment of each call outside the first segment
        self._later: dict[Call, _Segment] = {}

    def __bool__(self) -> bool:
        return bool(self._segments)

    def add(self, call: Call) -> None:
        """Append a call."""
        segments = self._segments
        if not segments or segments[-1].mark is not None:
            segments.append(_Segment())
        segments[-1].calls[call] = None
        if len(segments) > 1:
            self._later[call] = segments[-1]

    def last_mark(self) -> Mark:
        """Return the mark after all calls, and create it if needed. The queue must not be empty."""
        last = self._segments[-1]
        if last.mark is None:
            last.mark = Mark()
        return last.mark

    def on_done(self, call: Call) -> None:
        """Note that a call has its results."""
        self._later.pop(call, self._segments[0]).done.append(call)

    def take_ready(self) -> Iterator[Ready]:
        """Remove and yield the entries that may go out now."""
        segments = self._segments
        while segments:
            first = segments[0]
            while first.done:
                call = first.done.popleft()
                del first.calls[call]
                yield call
            if first.calls:
                return
            segments.popleft()
            if segments:
                for call in segments[0].calls:
                    self._later.pop(call, None)
            if first.mark is not None:
                yield first.mark

    def calls(self) -> Iterator[Call]:
        """Return all calls that have not gone out, in the order of their records."""
        return (call for segment in self._segments for call in segment.calls)


RECORDS_STATE: Final = "_penstock_async_records"


class RetryPredicate(Protocol):
    """Decides which attempts are repeated; a predicate of None never repeats any."""

    def result_predicate(self) -> Callable[[list[Any]], bool] | None: ...

    def exception_predicate(self) -> Callable[[Exception], bool] | None: ...


class RetryStrategy(Protocol):
    """Decides how often an attempt is repeated, and after which delay; attempts are counted from 1."""

    def can_retry(self, current_attempts: int) -> bool: ...

    def get_backoff_time_millis(self, current_attempts: int) -> int: ...

    def get_retry_predicate(self) -> RetryPredicate: ...


class AsyncWaitOperator(FunctionOperator):
    """Calls an asynchronous function for each record; see the module docstring.

    Args:
        function: has `async_invoke(value)`, a coroutine function, and perhaps `timeout(value)`; or a plain
            coroutine function. Each returns a list or iterator of results, or None for no results.
        is_ordered: whether results go out in the order of the input.
        timeout_ms: the time limit of a call, from its first attempt, with retries and their delays; 0 for no limit.
        capacity: how many records may be in progress.
        retry_strategy: None: an error fails the task.
    """

    def __init__(
        self,
        function: Any,
        is_ordered: bool,
        timeout_ms: int,
        capacity: int,
        retry_strategy: RetryStrategy | None = None,
    ) -> None:
        super().__init__(function)
        self._is_ordered = is_ordered
        self._timeout_ms = timeout_ms
        self._capacity = capacity
        self._strategy = retry_strategy

    def initialize_state(self) -> None:
        """Queue the records of the checkpoint before all new ones; their calls start with the first step."""
        super().initialize_state()
        self._queue: OrderedCalls | UnorderedCalls = OrderedCalls() if self._is_ordered else UnorderedCalls()
        self._unstarted: deque[Call] = deque()
        #: how many records have a started call whose results have not gone out
        self._on_their_way = 0
        #: calls without results, in the order of their starts, which is also the order of their deadlines
        self._pending: dict[Call, None] = {}
        self._came_back: deque[tuple[Call, int, Any, BaseException | None]] = deque()
        self._retries: list[tuple[int, int, Call]] = []
        self._retries_made = 0
        self._idle: bool | None = None
        self._records = self.context.operator_state.list_state(RECORDS_STATE)
        for value, timestamp in self._records.get():
            self._add(Call(value, timestamp))

    def open(self) -> None:
        """Open the function."""
        if self.context.coroutines is None:
            raise UnsupportedError(f"{self.context.operator_name}: this driver does not run asynchronous functions")
        self._coroutines: Coroutines = self.context.coroutines
        self._invoke: Callable[[Any], Awaitable[Any]] = getattr(self.function, "async_invoke", self.function)
        predicate = self._strategy.get_retry_predicate() if self._strategy else None
        self._repeats_result = predicate.result_predicate() if predicate else None
        self._repeats_error = predicate.exception_predicate() if predicate else None
        super().open()

    # --- input -----------------------------------------------------------------------------------------------------

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Queue the records, and start as many calls as the capacity allows."""
        if batch.timestamps is None:
            for value in batch.values:
                self._add(Call(value, None))
        else:
            for value, timestamp in zip(batch.values, batch.timestamps, strict=True):
                self._add(Call(value, timestamp))
        self._start_some()

    def _add(self, call: Call) -> None:
        self._queue.add(call)
        self._unstarted.append(call)

    def process_watermark(self, timestamp: int) -> None:
        """Emit the watermark after the results of all earlier records."""
        if self._queue:
            self._queue.last_mark().watermark = timestamp
        else:
            self.output.emit_watermark(timestamp)

    def process_status(self, idle: bool) -> None:
        """Emit the status after the results of all earlier records."""
        if self._queue:
            self._queue.last_mark().idle = idle
        else:
            self._emit_status(idle)

    def is_available(self) -> bool:
        """Return whether another record's call could start at once."""
        return not self._unstarted and self._on_their_way < self._capacity

    # --- calls -----------------------------------------------------------------------------------------------------

    def _start_some(self) -> bool:
        unstarted = self._unstarted
        count = min(len(unstarted), self._capacity - self._on_their_way)
        if count <= 0:
            return False
        deadline_ms = self.context.now_ms() + self._timeout_ms if self._timeout_ms else None
        self._on_their_way += count
        for _ in range(count):
            call = unstarted.popleft()
            call.deadline_ms = deadline_ms
            self._pending[call] = None
            self._attempt(call)
        return True

    def _attempt(self, call: Call) -> None:
        call.attempt += 1
        call.cancel = self._coroutines.start(
            partial(self._call_function, call.value), partial(self._on_return, call, call.attempt)
        )

    async def _call_function(self, value: Any) -> Any:
        """Call the function, and copy its results on the event loop, before another call can change them."""
        return _as_returned(await self._invoke(value))

    def _on_return(self, call: Call, attempt: int, results: Any, error: BaseException | None) -> None:
        self._came_back.append((call, attempt, results, error))

    def process_completions(self) -> bool:
        """Handle the calls that have returned, emit the results that may go out, and start new calls."""
        came_back, worked = self._came_back, False
        while came_back:
            worked = True
            call, attempt, results, error = came_back.popleft()
            if call.is_done or attempt != call.attempt:
                continue  # it has timed out before
            call.cancel = None
            if not self._repeats(call, results, error):
                if error is not None:
                    raise self.failed(call.value) from error
                self._complete(call, results, "async_invoke()")
        if worked:
            self._emit_ready()
        return self._start_some() or worked

    def _complete(self, call: Call, results: Any, method: str) -> None:
        if results is None:
            results = []
        elif not isinstance(results, list):
            raise self.failed(call.value) from MisuseError(
                f"{method} must return a list of results, or None for no results, not {short_repr(results)}"
            )
        call.results = results
        call.is_done = True
        del self._pending[call]
        self._queue.on_done(call)

    def _emit_ready(self) -> None:
        values: list[Any] = []
        times: list[int] = []
        has_times = False
        for ready in self._queue.take_ready():
            if isinstance(ready, Mark):
                self._emit(values, times if has_times else None)
                values, times = [], []
                self._emit_mark(ready)
                continue
            self._on_their_way -= 1
            timestamp = ready.timestamp
            if (timestamp is not None) is not has_times:
                self._emit(values, times if has_times else None)
                values, times, has_times = [], [], timestamp is not None
            values += ready.results
            if timestamp is not None:
                times += [timestamp] * len(ready.results)
        self._emit(values, times if has_times else None)

    def _emit(self, values: list[Any], times: list[int] | None) -> None:
        if values:
            self.output.collect(Batch(values, times))

    def _emit_mark(self, mark: Mark) -> None:
        # An operator becomes idle after its last watermark, and active before its next one.
        if mark.idle is False:
            self._emit_status(False)
        if mark.watermark is not None:
            self.output.emit_watermark(mark.watermark)
        if mark.idle:
            self._emit_status(True)

    def _emit_status(self, idle: bool) -> None:
        if idle is not self._idle:
            self._idle = idle
            self.output.emit_status(idle)

    # --- retries and time-outs -------------------------------------------------------------------------------------

    def _repeats(self, call: Call, results: Any, error: BaseException | None) -> bool:
        """Schedule another attempt if this one does not count; returns whether it did so."""
        strategy = self._strategy
        if strategy is None:
            return False
        try:
            if error is None:
                is_retryable = self._repeats_result is not None and self._repeats_result(
                    [] if results is None else results
                )
            else:
                is_retryable = (
                    self._repeats_error is not None and isinstance(error, Exception) and self._repeats_error(error)
                )
            if not is_retryable or not strategy.can_retry(call.attempt):
                return False
            due_ms = self.context.now_ms() + max(0, strategy.get_backoff_time_millis(call.attempt))
        except Exception as raised:
            raise self.failed(call.value) from raised
        self._schedule_retry(due_ms, call)
        return True

    def _schedule_retry(self, due_ms: int, call: Call) -> None:
        self._retries_made += 1
        heappush(self._retries, (due_ms, self._retries_made, call))

    def next_timer_ms(self) -> int | None:
        """Return when the next call times out or the next retry is due (ms)."""
        retries = self._retries
        while retries and retries[0][2].is_done:
            heappop(retries)
        times = [retries[0][0]] if retries else []
        if self._timeout_ms and self._pending:
            deadline_ms = next(iter(self._pending)).deadline_ms
            assert deadline_ms is not None
            times.append(deadline_ms)
        return min(times, default=None)

    def on_processing_time(self, now_ms: int) -> None:
        """Time out the calls that are overdue, and start the retries that are due."""
        timed_out = False
        while self._timeout_ms and self._pending:
            call = next(iter(self._pending))
            assert call.deadline_ms is not None
            if call.deadline_ms > now_ms:
                break
            timed_out = True
            self._time_out(call)
        while self._retries and self._retries[0][0] <= now_ms:
            call = heappop(self._retries)[2]
            if not call.is_done:
                self._attempt(call)
        if timed_out:
            self._emit_ready()

    def _time_out(self, call: Call) -> None:
        if call.cancel is not None:
            call.cancel()
            call.cancel = None
        timeout = getattr(self.function, "timeout", None)
        try:
            if timeout is None:
                raise CallTimeoutError(f"the asynchronous call took longer than {self._timeout_ms} ms")
            results = _as_returned(timeout(call.value))
        except Exception as error:
            raise self.failed(call.value) from error
        self._complete(call, results, "timeout()")

    # --- snapshots and the end -------------------------------------------------------------------------------------

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the records whose results have not gone out."""
        self._records.update([(call.value, call.timestamp) for call in self._queue.calls()])
        return super().snapshot_state(checkpoint_id)

    def drain(self) -> bool:
        """Return whether all results have gone out."""
        return not self._queue

    def close(self) -> None:
        """Cancel the running calls, then close the function."""
        for call in getattr(self, "_pending", ()):
            if call.cancel is not None:
                call.cancel()
                call.cancel = None
        super().close()


def _as_returned(results: Any) -> Any:
    """Return a copy of the results if they are a list or an iterator, otherwise the object itself."""
    is_iterable = isinstance(results, list) or hasattr(type(results), "__next__")
    return list(map(detached, results)) if is_iterable else results
