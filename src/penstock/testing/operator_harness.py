"""The operator harness: one subtask of one operator in virtual time, with the snapshots of the real runtime.

    harness = OneInputOperatorHarness(lambda: KeyedReduceOperator(max, lambda r: r[0]))
    harness.open()
    harness.process(("a", 1), 10)
    snapshot = harness.snapshot(1)          # bytes: captured, written and checksummed as in a checkpoint
    other = OneInputOperatorHarness(...)    # possibly with another parallelism: keyed state is redistributed
    other.restore(snapshot)
    other.open()

`TwoInputOperatorHarness` is for operators with two inputs. `CapturedOutput` is the output of an operator under test.
`harness_for` creates an operator and its harness for a user-defined function.

As in a job, a restored operator continues from the event time of its snapshots.

Nothing here waits in real time. Processing time (`VirtualClock`) advances only by `advance_processing_time`, and by
`end`, which waits for the calls that an asynchronous function has in progress. Coroutines run in virtual time too, so
`asyncio.sleep` takes no real time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import msgspec

from penstock.base.errors import WrongTimeError, WrongTypeError, WrongValueError
from penstock.base.output_tag import OutputTag
from penstock.datastream import functions
from penstock.datastream.async_data_stream import is_asynchronous
from penstock.drivers.event_loop import VirtualCoroutines
from penstock.runtime.checkpoint.statistics import watermarks_of_subtask
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.calls import AsyncWaitOperator
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.operators.keyed.aggregates import KeyedReduceOperator
from penstock.runtime.operators.record.process import KeyedProcessOperator, ProcessOperator
from penstock.runtime.operators.record.stateless import FilterOperator, FlatMapOperator, MapOperator, method
from penstock.runtime.protocol import ExecutionId
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch, Watermark
from penstock.runtime.task.channels.input_gate import WatermarkValve
from penstock.runtime.task.checkpoints import SnapshotWriter, StateHistories, restore_operator
from penstock.state.backend import HeapKeyedStateBackend
from penstock.state.keys import key_group_range
from penstock.state.migrations import registered
from penstock.state.operator_state import OperatorStateBackend
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.metadata import (
    ChannelState,
    CheckpointMetadata,
    OperatorState,
    decode_metadata,
    encode_metadata,
    state_of_subtask,
)


class VirtualClock:
    """Implements the `Clock` port; time (ms) does not advance by itself.

    Examples:
        >>> from penstock.testing import VirtualClock
        >>> clock = VirtualClock(now_ms=1_000)
        >>> clock.advance(500)
        >>> clock.now_ms()
        1500
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._ahead_ms = 0

    def now_ms(self) -> int:
        """Return the time in ms."""
        return self._now_ms

    def steady_ms(self) -> int:
        """Return the time in ms, excluding the jumps."""
        return self._now_ms - self._ahead_ms

    def steady_ns(self) -> int:
        """Return the same in nanoseconds."""
        return self.steady_ms() * 1_000_000

    def jump(self, by_ms: int) -> None:
        """Set the clock forward by this many ms, as when a host's clock is adjusted or the host resumes from
        suspension.
        """
        self.advance(by_ms)
        self._ahead_ms += by_ms

    def advance_to(self, now_ms: int) -> None:
        """Advance to a time (ms).

        Raises:
            ValueError: if it lies in the past.
        """
        if now_ms < self._now_ms:
            raise WrongValueError(f"time does not run backwards: it is {self._now_ms} ms, not {now_ms} ms")
        self._now_ms = now_ms

    def advance(self, by_ms: int) -> None:
        """Advance by this many ms."""
        self.advance_to(self._now_ms + by_ms)


@dataclass(frozen=True, repr=False)
class Record:
    """A value with its event time in ms, or None.

    Examples:
        >>> from penstock.testing import Record, harness_for
        >>> with harness_for(str.upper) as harness:
        ...     harness.process("tea", timestamp=10)
        ...     harness.output == [Record("TEA", 10)]
        True
    """

    value: Any
    timestamp: int | None = None

    def __repr__(self) -> str:
        return f"Record({self.value!r})" if self.timestamp is None else f"Record({self.value!r}, {self.timestamp})"


@dataclass(frozen=True)
class ProcessingTime:
    """Advances the clock by this many ms.

    Examples:
        >>> from penstock.testing import ProcessingTime, Record, operator_factory_for, run_hostile
        >>> inputs = [Record("tea"), ProcessingTime(60_000), Record("milk")]
        >>> run_hostile(operator_factory_for(str.upper), inputs, expected=["TEA", "MILK"])
    """

    by_ms: int


Element: TypeAlias = Record | Watermark | ProcessingTime


class CapturedOutput:
    """Implements `Output` by recording everything in order, and checks the invariants of each batch."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.sides: dict[str, list[Record]] = {}
        self.watermarks: list[int] = []
        #: the last watermark (ms) before the restore; watermarks up to this one are dropped
        self.restored_watermark = MIN_TIMESTAMP
        self.idle_changes: list[bool] = []
        #: records, watermarks (ms) and idleness (bool) in the order of emission
        self.order: list[Record | int | bool] = []

    def collect(self, batch: Batch) -> None:
        """Record a batch of the main output."""
        records = _records(batch)
        self.records += records
        self.order += records

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        """Record a batch of a side output."""
        self.sides.setdefault(tag_id, []).extend(_records(batch))

    def emit_watermark(self, timestamp: int) -> None:
        """Record a watermark, which must not fall."""
        if timestamp <= self.restored_watermark:
            return
        if self.watermarks and timestamp < self.watermarks[-1]:
            raise AssertionError(f"the watermark fell from {self.watermarks[-1]} to {timestamp}")
        self.watermarks.append(timestamp)
        self.order.append(timestamp)

    @property
    def watermark(self) -> int:
        """The last watermark (ms), or that of the restored run if none has been emitted since."""
        return self.watermarks[-1] if self.watermarks else self.restored_watermark

    def emit_status(self, idle: bool) -> None:
        """Idleness."""
        self.idle_changes.append(idle)
        self.order.append(idle)


def _records(batch: Batch) -> list[Record]:
    if batch.timestamps is None:
        return [Record(value) for value in batch.values]
    if len(batch.timestamps) != len(batch.values):
        raise AssertionError(f"a batch of {len(batch.values)} values has {len(batch.timestamps)} timestamps")
    return [Record(value, timestamp) for value, timestamp in zip(batch.values, batch.timestamps, strict=True)]


OPERATOR_ID = "operator-under-test"


class OneInputOperatorHarness:
    """Hosts an operator as a task would: same context, same order of calls, same handling of state.

    Args:
        operator_factory: creates the operator, for example `partial(MapOperator, function)`.
        parallelism: the operator's parallelism.
        subtask: the index of this subtask, from 0; it owns that subtask's key groups.
        max_parallelism: the number of key groups.
        name: the operator's name, as it appears in errors.
        checkpointing: whether the simulated job takes checkpoints.
        clock: to share one clock between harnesses; by default each has its own, starting at 0.

    Examples:
        >>> from penstock.testing import OneInputOperatorHarness, operator_factory_for
        >>> with OneInputOperatorHarness(operator_factory_for(str.upper)) as harness:
        ...     harness.process("tea", timestamp=10)
        ...     harness.output
        [Record('TEA', 10)]
    """

    def __init__(
        self,
        operator_factory: Callable[[], StreamOperator],
        parallelism: int = 1,
        subtask: int = 0,
        max_parallelism: int = 128,
        *,
        name: str = "Operator",
        checkpointing: bool = True,
        attempt: int = 0,
        clock: VirtualClock | None = None,
    ) -> None:
        if not 0 <= subtask < parallelism <= max_parallelism:
            raise WrongValueError(f"no subtask {subtask} of {parallelism} with {max_parallelism} key groups")
        self.clock = clock or VirtualClock()
        self.operator = operator_factory()
        self.captured = CapturedOutput()
        #: bytes that the operator sent to the job's client
        self.client_output: list[bytes] = []
        self.splits_requested = 0
        self._coroutines = VirtualCoroutines(self.clock)
        self.context = OperatorContext(
            job_id="0" * 32,
            operator_id=OPERATOR_ID,
            operator_name=name,
            task_name=name,
            subtask_index=subtask,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            attempt=attempt,
            clock=self.clock,
            checkpointing=checkpointing,
            keyed=HeapKeyedStateBackend(max_parallelism, name),
            operator_state=OperatorStateBackend(),
            emit_to_client=self.client_output.append,
            request_split=self._count_request,
            migrations=registered(),
            coroutines=self._coroutines,
        )
        self._key_groups = key_group_range(subtask, max_parallelism, parallelism)
        self._storage = FileCheckpointStore(None, self.context.job_id, 0)
        self._histories = StateHistories()
        self._restored: list[bytes] = []
        #: event time (ms) at the operator's input
        self._watermark = self._restored_watermark = MIN_TIMESTAMP
        self._is_open = False

    def _count_request(self) -> None:
        self.splits_requested += 1

    # --- life cycle ------------------------------------------------------------------------------------------------

    def restore(self, *snapshots: bytes) -> None:
        """Start from the state of these snapshots, one for each subtask of the previous run; call before `open`."""
        if self._is_open:
            raise WrongTimeError("restore() comes before open()")
        self._restored += snapshots

    def open(self) -> None:
        """Set up the operator, initialise its state (from the snapshots, if any) and open it (F1)."""
        self._set_up()
        self.operator.initialize_state()
        self.operator.context.columns.check_taken()
        self.operator.open()
        self._is_open = True
        if self._watermark > MIN_TIMESTAMP:
            self.operator.resume_event_time(self._watermark)
        self._go_on()

    def recover_finished(self) -> None:
        """Use instead of `open` if all subtasks had finished before the snapshots were taken (G10)."""
        self._set_up()
        self.operator.recover_finished()

    def _set_up(self) -> None:
        context = self.context
        self.operator.setup(context, self.captured)
        if self._restored:
            context.operator_state.restored_checkpoint_id, state = _merged(self._restored)
            mine = state_of_subtask(state, context.subtask_index, context.parallelism, context.max_parallelism)
            restore_operator(mine, context, self._storage, self._key_groups, self._histories, _no_channels)
            marks = watermarks_of_subtask(state, context.subtask_index, context.parallelism)
            self._watermark, self.captured.restored_watermark = marks
            self._restored_watermark = self._watermark

    def end(self) -> None:
        """End the input: MAX_WATERMARK, end of input, timers quiesced, finish (F3, F5)."""
        self._advance(MAX_WATERMARK)
        self._drain()
        self.operator.end_input()
        self.operator.quiesce_timers()
        self.operator.finish()

    def _drain(self) -> None:
        """Advance time until the operator has no calls in progress."""
        while not self.operator.drain():
            due_ms = self._next_due_ms()
            if due_ms is None:
                raise AssertionError(f"{self.context.operator_name} waits for a call that never returns")
            self.advance_processing_time(max(0, due_ms - self.clock.now_ms()))

    def close(self) -> None:
        """Release resources (F4)."""
        self._is_open = False
        try:
            self.operator.close()
        finally:
            self._coroutines.close()
            self.context.keyed.close()

    def __enter__(self) -> OneInputOperatorHarness:
        self.open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- input -----------------------------------------------------------------------------------------------------

    def process(self, value: Any, timestamp: int | None = None) -> None:
        """Process one record.

        Args:
            value: the record.
            timestamp: its event time in ms; None for none.

        Examples:
            >>> with OneInputOperatorHarness(operator_factory_for(str.upper)) as harness:
            ...     harness.process("tea", timestamp=10)
            ...     harness.process("milk")
            ...     harness.output
            [Record('TEA', 10), Record('MILK')]
        """
        self.process_batch([value], None if timestamp is None else [timestamp])

    def process_batch(self, values: Sequence[Any], timestamps: Iterable[int] | None = None) -> None:
        """Process several records as one batch."""
        self.operator.process_batch(Batch(list(values), None if timestamps is None else list(timestamps)))
        self._go_on()

    def watermark(self, timestamp: int) -> None:
        """Advance event time to `timestamp` (ms)."""
        self._advance(timestamp)
        self._go_on()

    def _advance(self, timestamp: int) -> None:
        if timestamp > self._restored_watermark:  # a task forwards no older one
            self._watermark = max(self._watermark, timestamp)
            self.operator.process_watermark(timestamp)

    def status(self, idle: bool) -> None:
        """Mark the input as idle or active."""
        self.operator.process_status(idle)

    def advance_processing_time(self, by_ms: int) -> None:
        """Advance the clock; timers fire and coroutines resume at their own times."""
        target = self.clock.now_ms() + by_ms
        while (due := self._next_due_ms()) is not None and due <= target:
            self.clock.advance_to(max(due, self.clock.now_ms()))
            self._go_on()
            timer = self.operator.next_timer_ms()
            if timer is not None and timer <= self.clock.now_ms():
                self.operator.on_processing_time(self.clock.now_ms())
                self._go_on()
            if self._next_due_ms() == due:
                break  # the next poll of a source, which is not a timer
        self.clock.advance_to(target)

    def _next_due_ms(self) -> int | None:
        times = (self.operator.next_timer_ms(), self._coroutines.next_due_ms())
        return min((time for time in times if time is not None), default=None)

    def _go_on(self) -> None:
        """Finish a step as a task does: handle completed calls, and settle keyed state."""
        while self._coroutines.deliver() or self.operator.process_completions():
            pass
        self.context.keyed.settle()

    @property
    def calls_out(self) -> int:
        """The number of asynchronous calls in progress."""
        return len(self._coroutines.running)

    @property
    def calls_started(self) -> int:
        """The number of asynchronous calls started so far, including retries."""
        return self._coroutines.started

    def feed(self, element: object) -> None:
        """Process a record or a watermark, or advance processing time."""
        if isinstance(element, Record):
            self.process(element.value, element.timestamp)
        elif isinstance(element, Watermark):
            self.watermark(element.timestamp)
        elif isinstance(element, ProcessingTime):
            self.advance_processing_time(element.by_ms)
        else:
            raise WrongTypeError(f"not an element of a stream: {element!r}")

    # --- checkpoints -----------------------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> bytes:
        """Take part in a checkpoint; return the bytes of its `_metadata`, which contain all state.

        Examples:
            >>> with OneInputOperatorHarness(operator_factory_for(str.upper)) as harness:
            ...     metadata = harness.snapshot(checkpoint_id=1)
            >>> restored = OneInputOperatorHarness(operator_factory_for(str.upper))
            >>> restored.restore(metadata)
            >>> with restored:
            ...     restored.process("tea")
            ...     restored.values
            ['TEA']
        """
        context = self.context
        self.operator.prepare_snapshot(checkpoint_id)
        captures = {OPERATOR_ID: self.operator.snapshot_state(checkpoint_id)}
        execution = ExecutionId(0, context.subtask_index, context.attempt)
        writer = SnapshotWriter(self._storage, checkpoint_id, execution, self._key_groups, context.max_parallelism)
        stored = writer.store(captures, self._histories.confirmed)
        self._histories.on_stored(checkpoint_id, stored)
        state = OperatorState(
            OPERATOR_ID,
            None,
            context.operator_name,
            context.parallelism,
            context.max_parallelism,
            {context.subtask_index: stored[OPERATOR_ID]},
            watermarks={context.subtask_index: (self._watermark, self.captured.watermark)},
        )
        return encode_metadata(
            CheckpointMetadata(checkpoint_id, context.job_id, "harness", self.clock.now_ms(), False, (state,))
        )

    def notify_complete(self, checkpoint_id: int) -> None:
        """Complete the checkpoint, so that later snapshots are incremental to it."""
        self._histories.on_complete(checkpoint_id)
        self.context.keyed.confirm(checkpoint_id)
        self.context.columns.confirm(checkpoint_id)
        self.operator.notify_checkpoint_complete(checkpoint_id)

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Notify the operator that the checkpoint will not complete."""
        self.operator.notify_checkpoint_aborted(checkpoint_id)

    # --- output ----------------------------------------------------------------------------------------------------

    @property
    def output(self) -> list[Record]:
        """Records of the main output so far, with timestamps."""
        return list(self.captured.records)

    @property
    def values(self) -> list[Any]:
        """Values of the main output so far."""
        return [record.value for record in self.captured.records]

    def side_output(self, tag: OutputTag | str) -> list[Record]:
        """Return the records of a side output so far."""
        return list(self.captured.sides.get(tag if isinstance(tag, str) else tag.tag_id, ()))

    def take_output(self) -> list[Record]:
        """Return the records of the main output since the last call."""
        records, self.captured.records = self.captured.records, []
        return records

    @property
    def watermarks(self) -> list[int]:
        """Watermarks emitted so far."""
        return list(self.captured.watermarks)

    @property
    def idle_changes(self) -> list[bool]:
        """Changes of idleness emitted so far."""
        return list(self.captured.idle_changes)

    @property
    def counters(self) -> dict[str, int]:
        """The operator's named counters."""
        return dict(self.context.counters)


def _no_channels(channel: ChannelState, items: list[object]) -> None:
    raise WrongValueError(
        f"{channel.stored_name}: a harness has no channels to restore {len(items)} records in flight to"
    )


def _merged(snapshots: Sequence[bytes]) -> tuple[int, OperatorState]:
    """Merge the snapshots of an operator's subtasks; return the checkpoint's id and the operator's state."""
    checkpoints = [decode_metadata(snapshot, "a harness snapshot") for snapshot in snapshots]
    states = [checkpoint.operators[0] for checkpoint in checkpoints]
    first = states[0]
    if len({(s.parallelism, s.max_parallelism) for s in states}) != 1:
        raise WrongValueError("the snapshots are of different runs: their parallelism differs")
    subtasks = {subtask: state for s in states for subtask, state in s.subtasks.items()}
    watermarks = {subtask: marks for s in states for subtask, marks in s.watermarks.items()}
    return checkpoints[0].checkpoint_id, msgspec.structs.replace(first, subtasks=subtasks, watermarks=watermarks)


class TwoInputOperatorHarness(OneInputOperatorHarness):
    """A `OneInputOperatorHarness` with two inputs; event time is the minimum of both.

    `process` and `process_batch` feed the first input; `watermark` applies to both.

    Examples:
        >>> from functools import partial
        >>> from penstock.datastream import CoMapFunction
        >>> from penstock.runtime.operators.record.two_inputs import CoProcessOperator
        >>> from penstock.testing import TwoInputOperatorHarness
        >>> class Tell(CoMapFunction):
        ...     def map1(self, value):
        ...         return f"word {value}"
        ...     def map2(self, value):
        ...         return f"number {value}"
        >>> with TwoInputOperatorHarness(partial(CoProcessOperator, Tell(), "map")) as harness:
        ...     harness.process1("tea")
        ...     harness.process2(1)
        ...     harness.values
        ['word tea', 'number 1']
    """

    def open(self) -> None:
        """See the base class; each input starts without a watermark of its own."""
        super().open()
        self._valve = WatermarkValve(2, self._watermark)

    def process1(self, value: Any, timestamp: int | None = None) -> None:
        """Process one record of the first input."""
        self._process(0, value, timestamp)

    def process2(self, value: Any, timestamp: int | None = None) -> None:
        """Process one record of the second input."""
        self._process(1, value, timestamp)

    def _process(self, input_index: int, value: Any, timestamp: int | None) -> None:
        self.operator.process_batch(Batch([value], None if timestamp is None else [timestamp]), input_index)

    def watermark1(self, timestamp: int) -> None:
        """Advance the event time of the first input to `timestamp` (ms)."""
        self._on_watermark(0, timestamp)

    def watermark2(self, timestamp: int) -> None:
        """Advance the event time of the second input to `timestamp` (ms)."""
        self._on_watermark(1, timestamp)

    def watermark(self, timestamp: int) -> None:
        """Advance the event time of both inputs to `timestamp` (ms)."""
        self.watermark1(timestamp)
        self.watermark2(timestamp)

    def _on_watermark(self, input_index: int, timestamp: int) -> None:
        lowest = self._valve.on_watermark(input_index, timestamp).watermark
        if lowest is not None:
            self._advance(lowest)

    def end(self) -> None:
        """End both inputs: MAX_WATERMARK, end of each input, finish (F3)."""
        self.watermark(MAX_WATERMARK)
        self._drain()
        self.operator.end_input(0)
        self.operator.end_input(1)
        self.operator.quiesce_timers()
        self.operator.finish()


def operator_factory_for(function: Any, key_selector: Any = None) -> Callable[[], StreamOperator]:
    """Return a factory of the operator that runs a user-defined function; a plain callable is used as a map function.

    Asynchronous functions keep the order, have no timeout, and may have 100 calls in progress.

    Raises:
        TypeError: if a key selector is required and missing, or given and not accepted.

    Examples:
        >>> from penstock.testing import OneInputOperatorHarness, operator_factory_for
        >>> with OneInputOperatorHarness(operator_factory_for(str.upper), parallelism=2) as harness:
        ...     harness.process("tea")
        ...     harness.values
        ['TEA']
    """
    keyed = isinstance(function, functions.KeyedProcessFunction | functions.ReduceFunction)
    if keyed != (key_selector is not None):
        raise WrongTypeError(f"{type(function).__name__} {'needs a' if keyed else 'takes no'} key selector")
    if keyed:
        selector = method(key_selector, "get_key")
        operator = KeyedProcessOperator if isinstance(function, functions.KeyedProcessFunction) else KeyedReduceOperator
        return partial(operator, function, selector)
    if isinstance(function, functions.ProcessFunction):
        return partial(ProcessOperator, function)
    if isinstance(function, functions.FlatMapFunction):
        return partial(FlatMapOperator, function)
    if isinstance(function, functions.FilterFunction):
        return partial(FilterOperator, function)
    if is_asynchronous(function):
        return partial(AsyncWaitOperator, function, True, 0, 100)
    return partial(MapOperator, function)


def harness_for(function: Any, key_selector: Any = None, **arguments: Any) -> OneInputOperatorHarness:
    """Create a harness, not yet open, for a user-defined function.

    Args:
        function: a `KeyedProcessFunction`, `ReduceFunction`, `ProcessFunction`, `FlatMapFunction`, `FilterFunction`,
            `AsyncFunction` or `MapFunction`; a plain callable maps.
        key_selector: for keyed functions.
        **arguments: arguments of `OneInputOperatorHarness`, such as `parallelism`.

    Examples:
        >>> from penstock.testing import harness_for
        >>> with harness_for(str.upper) as harness:
        ...     harness.process_batch(["tea", "milk"])
        ...     harness.values
        ['TEA', 'MILK']
    """
    return OneInputOperatorHarness(operator_factory_for(function, key_selector), **arguments)
