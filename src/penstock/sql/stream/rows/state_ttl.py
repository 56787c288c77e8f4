"""Base classes of operators: state that expires, mini-batches, and evaluation of expressions.

`StateTimes`: state expires when it has not been written for some time (`table.exec.state.ttl`). For each key, the time
of the last write is kept, in ms of processing time. Expired state is dropped at the next access to its key, before it
is read. Timers drop state that is not accessed: each key has one timer, in a bucket of time, so a key that is written
repeatedly costs one check per lifetime instead of one per write.

`BundlingOperator`: in mini-batches, rows are buffered, so that their combined changes are emitted once
(`table.exec.mini-batch.*`).

`StreamSession`: the settings of the session that operators need, in a form that can be sent to workers.

`EvaluatingOperator`: opens and closes the user-defined functions in the expressions that it evaluates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from functools import partial
from typing import Any, Final

import pyarrow as pa

from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.function_context import RuntimeContext
from penstock.runtime.operators.watermarks import TimerQueue
from penstock.runtime.records import MAX_WATERMARK, Batch
from penstock.sql.functions.definition import Session
from penstock.sql.user_functions.classes import FunctionContext
from penstock.sql.user_functions.definition import CallSettings, OpenFunctions
from penstock.state.backend import KeyedStateBackend

#: The names of the states.
WRITTEN: Final = "last_written"
EXPIRIES: Final = "expiries"
#: State that is not accessed stays longer, by up to its lifetime divided by this.
_BUCKETS: Final = 8


def compute_due_time(written_ms: int, ttl_ms: int) -> int:
    """Return when state that was written at a time is dropped: at the end of the bucket of its expiry."""
    width = max(1, ttl_ms // _BUCKETS)
    return -(-(written_ms + ttl_ms) // width) * width


class StateTimes:
    """The time at which the state of each key was last written.

    Args:
        keyed: the backend that stores the times.
        ttl_ms: how long state lives after a write.
        forget: drops the state of a key and marks it as changed; returns False if it must stay.
    """

    def __init__(self, keyed: KeyedStateBackend, ttl_ms: int, forget: Callable[[Any], bool]) -> None:
        table = keyed.table(WRITTEN)
        self._times, self._mark = table.entries(None), table.mark
        self._timers = TimerQueue(keyed.table(EXPIRIES))
        self._ttl_ms = ttl_ms
        self._forget = forget

    def look(self, keys: Collection[Any], now_ms: int) -> None:
        """Drop the expired state of these keys, before it is read."""
        get, oldest = self._times.get, now_ms - self._ttl_ms
        for key in [key for key in keys if get(key, now_ms) <= oldest]:
            self._forget(key)

    def write(self, keys: Collection[Any], now_ms: int) -> None:
        """Record that the state of these keys is written."""
        times = self._times
        due = compute_due_time(now_ms, self._ttl_ms)
        for key in [key for key in keys if key not in times]:
            self._timers.register(due, key)
        times.update(dict.fromkeys(keys, now_ms))
        self._mark(None, keys)

    def begin(self, keys: Collection[Any], now_ms: int) -> None:
        """Treat restored state of these keys as written now, if the previous job kept no times."""
        if not len(self._timers) and keys:
            self.write(list(keys), now_ms)

    def next_timer_ms(self) -> int | None:
        """Return when the next bucket is due."""
        return self._timers.next_timestamp()

    def fire(self, now_ms: int) -> None:
        """Drop the expired state of the buckets that are due."""
        times, ttl_ms = self._times, self._ttl_ms
        for _, key in self._timers.due(now_ms):
            written = times.get(key)
            if written is None:
                continue
            if written + ttl_ms <= now_ms and self._forget(key):
                del times[key]
                self._mark(None, (key,))
            else:
                self._timers.register(compute_due_time(max(written, now_ms - ttl_ms + 1), ttl_ms), key)


class ExpiringOperator(StreamOperator):
    """An operator whose state expires some time after it was written. Subclasses specify their table with `_expire`."""

    is_keyed = True
    #: how long state lives after a write; 0 for unlimited
    ttl_ms: int = 0
    _lifetimes: StateTimes | None = None

    def _expire(self, entries: dict[Any, Any], mark: Callable[[Any, Collection[Any]], None]) -> None:
        """Let the entries of a table expire, if the state has a lifetime."""
        if self.ttl_ms <= 0:
            return

        def forget(key: Any) -> bool:
            if entries.pop(key, None) is not None:
                mark(None, (key,))
            return True

        self._begin_lifetimes(entries, forget)

    def _begin_lifetimes(self, keys: Collection[Any], forget: Callable[[Any], bool]) -> None:
        if self.ttl_ms > 0:
            self._lifetimes = StateTimes(self.context.keyed, self.ttl_ms, forget)
            self._lifetimes.begin(keys, self.context.now_ms())

    def _look(self, keys: Collection[Any]) -> None:
        """Drop the expired state of these keys, before it is read."""
        if self._lifetimes is not None:
            self._lifetimes.look(keys, self.context.now_ms())

    def _written(self, keys: Collection[Any]) -> None:
        """Record that the state of these keys was written."""
        if self._lifetimes is not None:
            self._lifetimes.write(keys, self.context.now_ms())

    def next_timer_ms(self) -> int | None:
        """Return when state next expires."""
        return None if self._lifetimes is None else self._lifetimes.next_timer_ms()

    def on_processing_time(self, now_ms: int) -> None:
        """Drop expired state."""
        if self._lifetimes is not None:
            self._lifetimes.fire(now_ms)


def lasting(factory: Callable[[], StreamOperator], ttl_ms: int | tuple[int, int]) -> Callable[[], StreamOperator]:
    """Return a factory of an operator whose state lives this long after a write; for joins, of each side.

    0 means unlimited.
    """
    return partial(_made, factory, ttl_ms)


def _made(factory: Callable[[], Any], ttl_ms: int | tuple[int, int]) -> StreamOperator:
    operator = factory()
    operator.ttl_ms = ttl_ms
    return operator  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """The maximum time (ms) that rows are buffered, and the number of rows that make a full bundle."""

    latency_ms: int
    size: int


class Bundle:
    """Buffered rows, in arrival order. All must be taken out before a snapshot."""

    def __init__(self, limits: MiniBatch) -> None:
        self._limits = limits
        self._waiting: list[ColumnBatch] = []
        self._rows = 0
        #: when the buffered rows are due; None without rows
        self.due_ms: int | None = None

    def add(self, batch: ColumnBatch, now_ms: int) -> Iterator[ColumnBatch]:
        """Buffer rows. Yields each full bundle."""
        start = 0
        while len(batch) - start >= self._limits.size - self._rows:
            stop = start + self._limits.size - self._rows
            self._put(batch.slice(start, stop))
            yield from self.take()
            start = stop
        if start < len(batch):
            self._put(batch.slice(start, len(batch)) if start else batch)
            if self.due_ms is None:
                # At a multiple of the latency, as in Flink, so that all steps of a plan are due together.
                self.due_ms = now_ms - now_ms % self._limits.latency_ms + self._limits.latency_ms

    def _put(self, batch: ColumnBatch) -> None:
        self._waiting.append(batch)
        self._rows += len(batch)

    def take(self) -> Iterator[ColumnBatch]:
        """Yield the buffered rows as one batch, if there are any, and empty the buffer."""
        waiting, self._waiting, self._rows, self.due_ms = self._waiting, [], 0, None
        if len(waiting) == 1:
            yield waiting[0]
        elif waiting:
            kinds = None
            if any(batch.kinds is not None for batch in waiting):
                kinds = b"".join(bytes(len(batch)) if batch.kinds is None else batch.kinds for batch in waiting)
            (columns,) = pa.Table.from_batches([batch.columns for batch in waiting]).combine_chunks().to_batches()
            yield ColumnBatch(columns, None, kinds)


class BundlingOperator(ExpiringOperator):
    """An operator that processes rows as they arrive, or in bundles. Subclasses implement `process_rows`.

    Args:
        mini_batch: when bundles are due; None to process rows as they arrive.
    """

    def __init__(self, mini_batch: MiniBatch | None) -> None:
        self.mini_batch = mini_batch
        self._bundle = None if mini_batch is None else Bundle(mini_batch)
        self._watermark: int | None = None

    def process_rows(self, records: ColumnBatch) -> None:
        """Process rows and emit the resulting changes."""
        raise NotImplementedError

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process rows, or buffer them."""
        records = as_columns(batch, self.context.operator_name)
        if self._bundle is None:
            self.process_rows(records)
            return
        for full in self._bundle.add(records, self.context.now_ms()):
            self.process_rows(full)
        self._pass_on_watermark()

    def _flush(self) -> None:
        """Process the buffered rows."""
        if self._bundle is not None:
            for waiting in self._bundle.take():
                self.process_rows(waiting)
            self._pass_on_watermark()

    def _pass_on_watermark(self) -> None:
        """Emit the pending watermark, unless it would overtake buffered rows."""
        watermark, self._watermark = self._watermark, None
        if watermark is not None:
            if self._bundle is not None and self._bundle.due_ms is not None and watermark < MAX_WATERMARK:
                self._watermark = watermark
            else:
                self.output.emit_watermark(watermark)

    def process_watermark(self, timestamp: int) -> None:
        """Emit the watermark after the buffered rows. The last watermark flushes them."""
        self._watermark = timestamp
        if timestamp == MAX_WATERMARK:
            self._flush()
        else:
            self._pass_on_watermark()

    def process_status(self, idle: bool) -> None:
        """Emit rows and watermark before becoming idle: a consumer ignores the watermark of an idle input."""
        if idle:
            self._flush()
        super().process_status(idle)

    def next_timer_ms(self) -> int | None:
        """Return when the buffered rows are due or state next expires."""
        due = (super().next_timer_ms(), None if self._bundle is None else self._bundle.due_ms)
        return min((time_ms for time_ms in due if time_ms is not None), default=None)

    def on_processing_time(self, now_ms: int) -> None:
        """Process the rows that are due, and drop expired state."""
        if self._bundle is not None and self._bundle.due_ms is not None and self._bundle.due_ms <= now_ms:
            self._flush()
        super().on_processing_time(now_ms)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Process the buffered rows, which a snapshot does not contain."""
        self._flush()

    def finish(self) -> None:
        """Process the remaining rows."""
        self._flush()


_MILLISECOND_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class StreamSession:
    """The time zone, the behaviour of casts, and how functions are called."""

    zone: tzinfo = UTC
    legacy_cast: bool = False
    call_settings: CallSettings = field(default_factory=CallSettings)

    def open(
        self,
        now_ms: Callable[[], int],
        watermark: Callable[[], int | None] = lambda: None,
        functions: OpenFunctions | None = None,
    ) -> Session:
        """Return the session of a running operator. Its clock and its watermark are in milliseconds since 1970."""
        return Session(self.zone, lambda: now_ms() * _MILLISECOND_NS, watermark, self.legacy_cast, functions=functions)


class EvaluatingOperator(StreamOperator):
    """An operator with evaluators, which it creates in `open` with the session that `running` returns.

    Creating an evaluator opens the functions of its expressions. A function in several expressions of one operator is
    opened once.
    """

    _functions: OpenFunctions | None = None

    def running(self, session: StreamSession, watermark: Callable[[], int | None] = lambda: None) -> Session:
        """Return the session for the expressions of this subtask."""
        if self._functions is None:
            name = self.context.operator_name
            self._functions = OpenFunctions(name, self._function_context(), session.zone, session.call_settings)
        return session.open(self.context.now_ms, watermark, self._functions)

    def _function_context(self) -> FunctionContext:
        runtime = RuntimeContext(self.context)
        return FunctionContext(
            runtime.get_metrics_group(),
            self.context.job_parameters,
            runtime.get_task_name(),
            runtime.get_task_name_with_subtasks(),
            runtime.get_number_of_parallel_subtasks(),
            runtime.get_max_number_of_parallel_subtasks(),
            runtime.get_index_of_this_subtask(),
            runtime.get_attempt_number(),
        )

    def close(self) -> None:
        """Close the user-defined functions that were opened."""
        functions, self._functions = self._functions, None
        if functions is not None:
            functions.close()
        super().close()
