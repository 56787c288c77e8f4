"""Process functions: user code that sees timestamps, timers and side outputs (A1)."""

from __future__ import annotations

import enum
from collections.abc import Callable
from types import GeneratorType
from typing import Any

from penstock.base.errors import WrongTypeError
from penstock.core.operators.base import FunctionOperator
from penstock.core.operators.context import OperatorContext
from penstock.core.operators.emitting import split_side_outputs
from penstock.core.operators.returned import results_of
from penstock.core.operators.timers import TimerQueue
from penstock.core.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.state.states import NO_KEY

EVENT_TIMERS = "_penstock_timers_event"
PROCESSING_TIMERS = "_penstock_timers_processing"


class TimeDomain(enum.Enum):
    """Which time a timer goes by."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class TimerService:
    """Times and timers of a process function; all times in ms since the epoch. Timers belong to the current key."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._keyed = context.keyed
        self.watermark = MIN_TIMESTAMP
        self._is_quiesced = False
        event_table = context.keyed.table(EVENT_TIMERS)
        self.event_timers = TimerQueue(event_table)
        self._event_buckets = event_table.panes
        self.processing_timers = TimerQueue(context.keyed.table(PROCESSING_TIMERS))

    def current_processing_time(self) -> int:
        """Processing time in ms."""
        return self._context.clock.now_ms()

    def current_watermark(self) -> int:
        """The event time that this subtask has reached, ms."""
        return self.watermark

    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` for the current key when the watermark passes `timestamp`; not once the input has ended."""
        key = self._keyed.current_key
        bucket = self._event_buckets.get(timestamp)
        # Most often the timer is there already.
        if (bucket is None or key not in bucket) and not self._is_quiesced:
            self.event_timers.put(timestamp, key, bucket)

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` for the current key when the clock passes `timestamp`; never, when the input ends before."""
        if not self._is_quiesced:
            self.processing_timers.register(timestamp, self._keyed.current_key)

    def quiesce(self) -> None:
        """Take no more timers (F5): event time has come to its end, and processing time no longer counts."""
        self._is_quiesced = True

    def begin_anew(self) -> None:
        """Batch execution goes on with other keys: event time begins again, and timers are taken again."""
        self._is_quiesced = False
        self.watermark = MIN_TIMESTAMP

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Forget the current key's timer at `timestamp`, when there is one."""
        self.event_timers.delete(timestamp, self._keyed.current_key)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Forget the current key's timer at `timestamp`, when there is one."""
        self.processing_timers.delete(timestamp, self._keyed.current_key)


class UnkeyedTimerService(TimerService):
    """Times of a process function on a stream without keys: it may read them, but has no key to set a timer for."""

    def register_event_time_timer(self, timestamp: int) -> None:
        """Raise: timers belong to a key."""
        raise WrongTypeError("timers can only be set on a keyed stream: call key_by first")

    register_processing_time_timer = register_event_time_timer
    delete_event_time_timer = register_event_time_timer
    delete_processing_time_timer = register_event_time_timer


class ProcessContext:
    """What `process_element` is handed beside the record."""

    __slots__ = ("_timers", "element_timestamp")

    def __init__(self, timers: TimerService) -> None:
        self._timers = timers
        self.element_timestamp: int | None = None

    def timestamp(self) -> int | None:
        """The record's (or the timer's) event time in ms; None when the record carries none."""
        return self.element_timestamp

    def timer_service(self) -> TimerService:
        """Times and timers."""
        return self._timers


class KeyedProcessContext(ProcessContext):
    """What a keyed `process_element` is handed beside the record."""

    __slots__ = ("_keyed",)

    def __init__(self, timers: TimerService, keyed: Any) -> None:
        super().__init__(timers)
        self._keyed = keyed

    def get_current_key(self) -> Any:
        """The record's key."""
        return self._keyed.current_key


class OnTimerContext(KeyedProcessContext):
    """What `on_timer` is handed beside the timer's time."""

    __slots__ = ("domain",)

    domain: TimeDomain

    def time_domain(self) -> TimeDomain:
        """Which time the timer went by."""
        return self.domain


class ProcessOperator(FunctionOperator):
    """A `ProcessFunction` on a stream without keys."""

    def open(self) -> None:
        """Open the function."""
        self._timers = UnkeyedTimerService(self.context)
        self._ctx = ProcessContext(self._timers)
        super().open()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Call the function for every record."""
        results: list[Any] = []
        times: list[int] = []
        process, ctx, timestamps = self.function.process_element, self._ctx, batch.timestamps
        value: Any = None
        try:
            if timestamps is None:
                ctx.element_timestamp = None
                for value in batch.values:
                    yielded = process(value, ctx)
                    if yielded is not None:
                        if yielded.__class__ is not GeneratorType and yielded.__class__ is not list:
                            yielded = results_of(yielded, process)
                        results.extend(yielded)
            else:
                for value, timestamp in zip(batch.values, timestamps, strict=True):
                    ctx.element_timestamp = timestamp
                    yielded = process(value, ctx)
                    if yielded is not None:
                        if yielded.__class__ is not GeneratorType and yielded.__class__ is not list:
                            yielded = results_of(yielded, process)
                        results.extend(yielded)
                        while len(times) < len(results):
                            times.append(timestamp)
        except Exception as error:
            raise self.failed(value) from error
        out = split_side_outputs(self.output, results, None if timestamps is None else times)
        if len(out):
            self.output.collect(out)

    def process_watermark(self, timestamp: int) -> None:
        """Note event time."""
        self._timers.watermark = timestamp
        self.output.emit_watermark(timestamp)


class KeyedProcessOperator(FunctionOperator):
    """A `KeyedProcessFunction`: keyed state, timers of both kinds."""

    is_keyed = True

    def __init__(self, function: Any, key_selector: Callable[[Any], Any]) -> None:
        super().__init__(function)
        self._key_selector = key_selector

    def open(self) -> None:
        """Open the function."""
        self._timers = TimerService(self.context)
        self.make_contexts()
        super().open()

    def make_contexts(self) -> None:
        """What the function is handed beside records and timers."""
        self._ctx: Any = KeyedProcessContext(self._timers, self.context.keyed)
        self._timer_ctx: Any = OnTimerContext(self._timers, self.context.keyed)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Call the function for every record, under the record's key."""
        self.process_records(batch, self.function.process_element, self._key_selector)

    def process_records(self, batch: Batch, process: Callable[[Any, Any], Any], key_of: Callable[[Any], Any]) -> None:
        """Call `process` for every record, under the record's key, and emit what it gives."""
        results: list[Any] = []
        times: list[int] = []
        ctx, keyed = self._ctx, self.context.keyed
        values, timestamps = batch.values, batch.timestamps
        keys = self.keys_of(values, key_of)
        value: Any = None
        try:
            if timestamps is None:
                ctx.element_timestamp = None
                for value, keyed.current_key in zip(values, keys, strict=True):
                    yielded = process(value, ctx)
                    if yielded is not None:
                        if yielded.__class__ is not GeneratorType and yielded.__class__ is not list:
                            yielded = results_of(yielded, process)
                        results.extend(yielded)
            else:
                for value, timestamp, keyed.current_key in zip(values, timestamps, keys, strict=True):
                    ctx.element_timestamp = timestamp
                    yielded = process(value, ctx)
                    if yielded is not None:
                        if yielded.__class__ is not GeneratorType and yielded.__class__ is not list:
                            yielded = results_of(yielded, process)
                        results.extend(yielded)
                        while len(times) < len(results):
                            times.append(timestamp)
        except Exception as error:
            raise self.failed(value) from error
        finally:
            keyed.current_key = NO_KEY
        for sweeper in keyed.sweepers.values():
            sweeper.on_records(len(values))
        out = split_side_outputs(self.output, results, None if timestamps is None else times)
        if len(out):
            self.output.collect(out)

    def process_watermark(self, timestamp: int) -> None:
        """Fire the event-time timers that are due, then pass the watermark on."""
        self._timers.watermark = timestamp
        self._fire(self._timers.event_timers, timestamp, TimeDomain.EVENT_TIME)
        self.output.emit_watermark(timestamp)

    def next_timer_ms(self) -> int | None:
        """The earliest processing-time timer (ms)."""
        return self._timers.processing_timers.next_timestamp()

    def on_processing_time(self, now_ms: int) -> None:
        """Fire the processing-time timers that are due."""
        self._fire(self._timers.processing_timers, now_ms, TimeDomain.PROCESSING_TIME)

    def quiesce_timers(self) -> None:
        """Drop the processing-time timers that have not fired, or fire them all now when the function asks for it."""
        self._timers.quiesce()
        if getattr(self.function, "drain_processing_time_timers", False):
            self._fire(self._timers.processing_timers, MAX_WATERMARK, TimeDomain.PROCESSING_TIME)
        self._timers.processing_timers.clear()

    def end_keys(self) -> None:
        """Fire all timers of both kinds; those that are set meanwhile are not taken, as in Flink's batch execution."""
        self._timers.quiesce()
        super().end_keys()
        self._fire(self._timers.processing_timers, MAX_WATERMARK, TimeDomain.PROCESSING_TIME)
        self._timers.begin_anew()

    def advance_keys(self, timestamp: int) -> None:
        """Fire the event-time timers that are due."""
        before = self._timers.watermark
        self.process_watermark(timestamp)
        self._timers.watermark = before

    def _fire(self, queue: TimerQueue, up_to: int, domain: TimeDomain) -> None:
        results: list[Any] = []
        times: list[int] = []
        keyed, ctx = self.context.keyed, self._timer_ctx
        # A map or flat-map function of two inputs sets no timers, and has nothing to call.
        on_timer: Any = getattr(self.function, "on_timer", None)
        ctx.domain = domain
        fired = 0
        try:
            for timestamp, keyed.current_key in queue.due(up_to):
                fired += 1
                ctx.element_timestamp = timestamp
                yielded = on_timer(timestamp, ctx)
                if yielded is not None:
                    if yielded.__class__ is not GeneratorType and yielded.__class__ is not list:
                        yielded = results_of(yielded, on_timer)
                    results.extend(yielded)
                    while len(times) < len(results):
                        times.append(timestamp)
        except Exception as error:
            raise self.failed(("timer", ctx.element_timestamp, keyed.current_key)) from error
        finally:
            keyed.current_key = NO_KEY
        self.context.fired_timers += fired
        out = split_side_outputs(self.output, results, times)
        if len(out):
            self.output.collect(out)
