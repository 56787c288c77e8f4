"""The processing loop of an open task, and the phases of a task's lifecycle.

`Phase`, `May` and `TaskLife` are the lifecycle: tables of its phases, the transitions, and the actions permitted in
each phase. A task opens its operators, processes, and reaches the end of its data. If calls to outside the task are
still pending then, it drains first. Then it waits for the steps that must follow the end of its data, closes, and
terminates. It can fail or be cancelled in every phase.

`ProcessingLoop` processes timers, results of calls, records and control elements, a batch at a time. A step of the loop
does one bounded piece of work and reports whether there is more. A table dispatches control elements between batches:
watermarks to the head of the chain, barriers to the barrier handler. The loop detects the end of the input; the task
decides what follows (`EndListener`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from penstock.runtime import records
from penstock.runtime.operators.connector import Emitted, SourceOperator
from penstock.runtime.ports import Clock
from penstock.runtime.protocol import WatermarkHold
from penstock.runtime.task.barriers import BarrierHandler
from penstock.runtime.task.channels.input_gate import (
    HoldTracker,
    InputChannel,
    InputGate,
    LatencyMarkers,
    TimeChange,
    WatermarkValve,
    hold_of_channels,
    hold_of_splits,
)
from penstock.runtime.task.channels.result_partition import ResultPartition
from penstock.runtime.task.operator_chain import OperatorChain


class Phase(enum.Enum):
    """The phases of a task."""

    #: The operators do not exist yet.
    CREATED = "CREATED"
    #: The operators are open, and wait for all other tasks to open.
    OPEN = "OPEN"
    PROCESSING = "PROCESSING"
    #: The input has ended; operators wait for asynchronous calls.
    DRAINING = "DRAINING"
    #: No more records are emitted. The task waits for the end of its channels, and for its last checkpoint.
    DATA_FINISHED = "DATA_FINISHED"
    #: The operators are closed; the last output waits for credit.
    CLOSING = "CLOSING"
    TERMINAL = "TERMINAL"


_P = Phase
PHASE_MOVES: Final[dict[Phase, frozenset[Phase]]] = {
    _P.CREATED: frozenset({_P.OPEN, _P.PROCESSING, _P.TERMINAL}),
    _P.OPEN: frozenset({_P.PROCESSING, _P.TERMINAL}),
    _P.PROCESSING: frozenset({_P.DRAINING, _P.DATA_FINISHED, _P.TERMINAL}),
    _P.DRAINING: frozenset({_P.DATA_FINISHED, _P.TERMINAL}),
    _P.DATA_FINISHED: frozenset({_P.CLOSING, _P.TERMINAL}),
    _P.CLOSING: frozenset({_P.TERMINAL}),
    _P.TERMINAL: frozenset(),
}


class May(NamedTuple):
    """The permissions of a task in a phase.

    `run_operators`: pass records, due timers and results of calls to operators. Full outputs then block the task.
    `take_input`: poll the input gate, or the source's reader if operators run. `take_barriers`: let barriers that have
    arrived, or waited too long, start checkpoints. `inject_barriers`: start a checkpoint when the coordinator requests
    it. `close_operators`: close the operators when the task fails or is cancelled.
    """

    run_operators: bool = False
    take_input: bool = False
    take_barriers: bool = False
    inject_barriers: bool = False
    close_operators: bool = False


PERMITTED: Final[dict[Phase, May]] = {
    _P.CREATED: May(close_operators=True),
    _P.OPEN: May(close_operators=True),
    _P.PROCESSING: May(
        run_operators=True, take_input=True, take_barriers=True, inject_barriers=True, close_operators=True
    ),
    # Barriers in the channels wait for the end of the data. A source has no channels, so it participates.
    _P.DRAINING: May(run_operators=True, inject_barriers=True, close_operators=True),
    # The input holds only control elements.
    _P.DATA_FINISHED: May(take_input=True, take_barriers=True, inject_barriers=True, close_operators=True),
    _P.CLOSING: May(),
    _P.TERMINAL: May(),
}


class TaskLife:
    """The phase of one task, and its permissions (`may`)."""

    __slots__ = ("may", "phase")

    def __init__(self) -> None:
        self.phase = Phase.CREATED
        self.may = PERMITTED[Phase.CREATED]

    def move(self, phase: Phase) -> None:
        """Switch to a phase; this is the only place that changes it."""
        assert phase in PHASE_MOVES[self.phase], f"no task goes from {self.phase.value} to {phase.value}"
        self.phase = phase
        self.may = PERMITTED[phase]

    @property
    def is_over(self) -> bool:
        """Whether the task has ended."""
        return self.phase is Phase.TERMINAL

    def validate(self) -> None:
        """Assert the invariants that hold between steps. The simulator calls this; a running job never does."""
        assert self.may == PERMITTED[self.phase], f"a task in {self.phase.value} may do what the table says"


#: Maximum number of control elements that one step takes before it returns.
EVENTS_PER_STEP_MAX: Final = 64
#: Maximum number of consecutive steps spent on mail and barriers alone. Back-to-back checkpoints bring both.
STEPS_WITHOUT_INPUT_MAX: Final = 4


class Step(enum.Enum):
    """The outcome of a step."""

    WORKED = "WORKED"
    IDLE = "IDLE"
    BLOCKED = "BLOCKED"
    TERMINAL = "TERMINAL"


class EndListener(Protocol):
    """The task, as seen by its loop."""

    def finish_data(self, drain: bool) -> None:
        """Handle the end of the input; with `drain` it is final. Called again while operators wait for calls."""

    def close_when_done(self) -> None:
        """Handle the end of a channel, which may be the last one."""

    def on_channel_state_recovered(self) -> None:
        """Handle the end of recovery: all records in flight in the restored checkpoint have been processed."""


class ProcessingLoop:
    """See the module docstring. `source` is the head of the chain if that is a source."""

    def __init__(
        self,
        life: TaskLife,
        gate: InputGate,
        chain: OperatorChain,
        source: SourceOperator | None,
        partitions: dict[int, ResultPartition],
        barriers: BarrierHandler,
        clock: Clock,
        task: EndListener,
        markers: LatencyMarkers | None = None,
        *,
        source_batch_records: int,
        buffer_timeout_ms: int,
    ) -> None:
        self.chain = chain
        self.source = source
        self.barriers = barriers
        self.records_in = 0
        self._life = life
        self._gate = gate
        self._partitions = partitions
        self._clock = clock
        self._task = task
        self._markers = markers
        self._source_batch_records = source_batch_records
        self._buffer_timeout_ms = buffer_timeout_ms
        self._flush_at_ms: int | None = None
        self._steps_without_input = 0
        self._valve = WatermarkValve(len(gate.channels), chain.watermark)
        self._holds = HoldTracker()
        self._handlers: Final[dict[type, Callable[[InputChannel, Any], None]]] = {
            records.Watermark: self._on_watermark,
            records.WatermarkStatus: self._on_watermark_status,
            records.LatencyMarker: self._on_marker,
            records.CheckpointBarrier: self.barriers.on_barrier,
            records.CancelCheckpointMarker: self.barriers.on_cancel_marker,
            records.EndOfOutputChannelState: self._on_end_of_channel_state,
            records.EndOfData: self._on_end_of_data,
            records.EndOfPartition: self._on_end_of_partition,
        }

    def release(self) -> None:
        """Drop the handlers after the task has ended: they are methods of this loop and form a reference cycle."""
        self._handlers.clear()

    # --- one step --------------------------------------------------------------------------------------------------

    def step(self) -> Step:
        """Do due work first, then process a batch of input."""
        life = self._life
        overtaking = self._gate.overtaking
        if overtaking and life.may.take_barriers:
            self.barriers.on_overtaking_barrier(*overtaking.popleft())
            if self.passes_input_over():
                # A record that arrived after a barrier must not be processed before the barrier.
                while overtaking and life.may.take_barriers:
                    self.barriers.on_overtaking_barrier(*overtaking.popleft())
                now = self._clock.now_ms()
                self.flush_if_due(now)
                self._take_turn(now)
            return Step.WORKED
        now = self._clock.now_ms()
        self.flush_if_due(now)
        deadline = self.barriers.next_deadline()
        if deadline is not None and now >= deadline and life.may.take_barriers:
            self.barriers.on_time(now)
            if self.passes_input_over():
                self._take_turn(now)
            return Step.WORKED
        return self._take_turn(now)

    def passes_input_over(self) -> bool:
        """Count a step spent on mail or a barrier, and return whether it must also take input.

        This keeps records flowing between checkpoints, however closely the checkpoints follow one another.
        """
        self._steps_without_input += 1
        return self._steps_without_input >= STEPS_WITHOUT_INPUT_MAX

    def _take_turn(self, now: int) -> Step:
        """Run the input part of a step."""
        life, chain = self._life, self.chain
        self._steps_without_input = 0
        if life.may.run_operators and not self._is_available():
            return Step.BLOCKED
        if self._markers is not None and life.may.run_operators:
            self._markers.emit_if_due(now)
        went_on = life.may.run_operators and bool(chain.waiting) and self._go_on()
        may = life.may  # the data may just have ended
        takes_input = may.take_input and (not may.run_operators or chain.is_available())
        worked = (may.run_operators and self._fire_timers(now)) or (takes_input and self._take_input()) or went_on
        chain.settle()
        self._flush_or_wait(now, worked)
        if worked:
            return Step.WORKED
        return Step.IDLE if takes_input else Step.BLOCKED

    def rests_until(self, now_ms: int) -> int:
        """Return before which time (ms) a step finds nothing to do, if nothing arrives; 0 if it may find something.

        It finds something if there is input, a due timer, a pending call, or something to flush.
        """
        gate, source = self._gate, self.source
        if (
            gate.has_data
            or gate.overtaking
            or self.chain.waiting
            or (source is not None and not source.is_resting(now_ms))
        ):
            return 0
        for partition in self._partitions.values():
            # A task that waits for its consumers is stepped, because its times count that.
            if partition.has_open_data or not partition.is_available:
                return 0
        deadline = self.next_deadline()
        return records.MAX_TIMESTAMP if deadline is None else deadline

    def next_deadline(self) -> int | None:
        """Return when (ms) a step is needed even if nothing arrives."""
        may, earliest = self._life.may, self._flush_at_ms
        if may.run_operators and self._is_available():
            due = self._next_timer_ms()
            if due is not None and (earliest is None or due < earliest):
                earliest = due
            due = None if self._markers is None else self._markers.next_deadline()
            if due is not None and (earliest is None or due < earliest):
                earliest = due
        if may.take_barriers:
            due = self.barriers.next_deadline()
            if due is not None and (earliest is None or due < earliest):
                earliest = due
        return earliest

    def validate(self) -> None:
        """Assert the invariants that hold between steps. The simulator calls this; a running job never does."""
        self.barriers.validate()
        self._valve.validate()

    @property
    def watermark(self) -> int:
        """The last watermark that reached the head of the chain, or that the source emitted."""
        reached = self.chain.watermark
        if self.source is not None and reached == records.MIN_TIMESTAMP and self.source.emitted_watermark is not None:
            return self.source.emitted_watermark
        return reached

    def hold(self) -> WatermarkHold | None:
        """Return which inputs hold the watermark back, based on this and earlier calls."""
        now_ms = self._clock.now_ms()
        if self.source is not None:
            return hold_of_splits(self._holds, self.source.watermarks, now_ms)
        return hold_of_channels(self._holds, self._valve, self._gate.channels, now_ms)

    def makes_watermarks(self) -> bool | None:
        """Return whether this task generates watermarks: False for a source without any, None if it receives them."""
        if any(operator.makes_watermarks for operator in self.chain.operators):
            return True
        return None if self.source is None else self.source.watermarks.makes_any

    # --- output ----------------------------------------------------------------------------------------------------

    @property
    def is_back_pressured(self) -> bool:
        """Whether the consumers block the task."""
        return self._life.may.run_operators and not self._is_available()

    def _is_available(self) -> bool:
        for partition in self._partitions.values():  # noqa: SIM110 - asked in every step
            if not partition.is_available:
                return False
        return True

    def _flush_or_wait(self, now_ms: int, worked: bool) -> None:
        """After a step, flush the open buffers if the task is idle, or else set the time to flush them."""
        for partition in self._partitions.values():
            if partition.has_open_data:
                break
        else:
            return
        if not worked:
            # The task is idle: the open buffers gain nothing by waiting longer.
            self._flush()
        elif self._flush_at_ms is None and self._buffer_timeout_ms >= 0:
            self._flush_at_ms = now_ms + self._buffer_timeout_ms

    def flush_if_due(self, now_ms: int) -> None:
        """Flush the open buffers if they have waited long enough."""
        if self._flush_at_ms is not None and now_ms >= self._flush_at_ms:
            self._flush()

    def _flush(self) -> None:
        self._flush_at_ms = None
        for partition in self._partitions.values():
            partition.flush()

    # --- timers, and calls out of the task ---------------------------------------------------------------------------

    def _go_on(self) -> bool:
        """Handle completed calls, and end the data once the task has drained."""
        worked = self.chain.process_completions()
        if self._life.phase is Phase.DRAINING:
            self._task.finish_data(drain=True)
        return worked or not self._life.may.run_operators

    def _next_timer_ms(self) -> int | None:
        # A source that is not being polled need not be woken for its timer.
        is_head_asked = self.source is None or (self._life.may.take_input and self.chain.is_available())
        return self.chain.next_timer_ms(is_head_asked)

    def _fire_timers(self, now_ms: int) -> bool:
        due = self._next_timer_ms()
        if due is None or due > now_ms:
            return False
        self.chain.on_processing_time(now_ms)
        # A source's retry time is not a timer: it asks for the poll that follows.
        return self.source is None

    # --- input -----------------------------------------------------------------------------------------------------

    def _take_input(self) -> bool:
        if self.source is not None and self._life.may.run_operators:
            return self._emit_from_source(self.source)
        return self._process_input()

    def _emit_from_source(self, source: SourceOperator) -> bool:
        emitted = source.emit_next(self._source_batch_records)
        if emitted is Emitted.END:
            self.end_source()
            return True
        return emitted is Emitted.RECORDS

    def end_source(self) -> None:
        """End the source for good: it emits no more records."""
        source = self.source
        assert source is not None, "a task without a source ends when its input does"
        if source.watermarks.idle:
            source.output.emit_status(False)
        source.output.emit_watermark(records.MAX_WATERMARK)
        self.chain.watermark = records.MAX_WATERMARK
        self._task.finish_data(drain=True)

    def _process_input(self) -> bool:
        for processed in range(EVENTS_PER_STEP_MAX):
            polled = self._gate.poll()
            if polled is None:
                return processed > 0
            channel, element = polled
            if isinstance(element, records.Batch):
                self.records_in += len(element)
                self._gate.count(channel, element)
                self.chain.head.process_batch(element, channel.input_index)
                return True
            self._handlers[type(element)](channel, element)
            if not self._life.may.take_input:
                return True
        return True

    def _on_watermark(self, channel: InputChannel, event: records.Watermark) -> None:
        self._on_time_change(self._valve.on_watermark(channel.index, event.timestamp))

    def _on_watermark_status(self, channel: InputChannel, event: records.WatermarkStatus) -> None:
        self._on_time_change(self._valve.on_status(channel.index, event.idle))

    def _on_time_change(self, change: TimeChange) -> None:
        watermark, idle = change
        if watermark is not None:
            self.chain.watermark = watermark
        for head in self.chain.operators[:1]:
            if idle is False:
                head.process_status(False)
            if watermark is not None:
                head.process_watermark(watermark)
            if idle:
                head.process_status(True)

    def _on_marker(self, channel: InputChannel, event: records.LatencyMarker) -> None:
        assert self._markers is not None, "all tasks of a job have the same settings"
        self._markers.on_marker(event, self._clock.now_ms())

    def _on_end_of_channel_state(self, channel: InputChannel, event: records.EndOfOutputChannelState) -> None:
        if self._gate.end_channel_state(channel):
            self._task.on_channel_state_recovered()

    def _on_end_of_data(self, channel: InputChannel, event: records.EndOfData) -> None:
        """End the input once all its channels have drained, and the data once all channels have ended."""
        channel.end_of_data = event
        channels = self._gate.channels
        if all(c.has_drained for c in channels if c.input_index == channel.input_index):
            self.chain.end_input(channel.input_index)
        if all(c.end_of_data is not None for c in channels):
            self._task.finish_data(all(c.has_drained for c in channels))

    def _on_end_of_partition(self, channel: InputChannel, event: records.EndOfPartition) -> None:
        channel.ended = True
        self.barriers.on_channel_ended(channel)
        self._task.close_when_done()
