"""The base of all operators: state machines that take and emit batches and watermarks.

Rules. One thread drives an operator. The operator touches nothing but its context, its output and its state. It keeps
records past a call only in state that its snapshot covers. Everything that it has emitted belongs to the consumers.

The order of calls (F1, F2, F3, F4): `setup`, `initialize_state`, `open` (tail of the chain to its head), then batches,
watermarks and snapshots; on a true end `drain`, `end_input`, `quiesce_timers` and `finish` (head to tail); `close` on
every path.

`LockstepOperator` is the base of operators whose subtasks work in lockstep: after their input has ended, they exchange
messages, round after round. An operator says what to exchange, and the driver does it: `rounds` is a generator that
yields a `Round` and gets an `Answer`. All subtasks yield the same number of rounds. So a loop, such as the supersteps
of a graph algorithm, is written as a loop, and the operator's data stays in its memory from one round to the next.

For batch execution. A driver runs all subtasks of such an operator at the same time, and if one fails, all begin again.

`TailOperator` is the operator at the end of a superstep, see `runtime.supersteps`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, ClassVar, Final, Protocol

from penstock.base.accumulators import LongCounter
from penstock.base.errors import MisuseError, PenstockError, StopIterationRaised, short_repr
from penstock.runtime.columns import ColumnKey
from penstock.runtime.operators import function_context
from penstock.runtime.records import MAX_WATERMARK, Batch
from penstock.runtime.supersteps import RECORDS
from penstock.state.keys import KeyGuard, RefusedKeyError
from penstock.state.snapshot import StateCapture

#: The name of the key selector in errors.
KEY_SELECTOR: Final = "the key selector"
_KEY_CHARS_MAX: Final = 80


def call_all(function: Callable[[Any], Any], values: list[Any], results: list[Any]) -> None:
    """Append `function(value)` for all values. If it raises, it was called with `values[len(results)]`."""
    if isinstance(function, ColumnKey):
        function.extend(results, values)
    else:
        results.extend(map(function, values))
    if len(results) != len(values):
        raise StopIterationRaised


class UserCodeError(PenstockError, RuntimeError):
    """A user's function raised an error. Carries the operator's name and the function's record."""

    def __init__(self, operator_name: str, record: Any, what: str = "") -> None:
        super().__init__(operator_name, record, what)
        self.operator_name = operator_name
        self.record = record
        self.what = what


def select_keys(values: list[Any], key_selector: Callable[[Any], Any], operator_name: str) -> list[Any]:
    """Call the key selector for records, without checking that the results can be keys.

    Raises:
        UserCodeError: if the key selector raises.
    """
    keys: list[Any] = []
    try:
        call_all(key_selector, values, keys)
    except Exception as error:
        raise UserCodeError(operator_name, values[len(keys)], KEY_SELECTOR) from error
    return keys


def refused_key(operator_name: str, record: Any, key: Any, reason: Exception) -> UserCodeError:
    """Return the error for a value that cannot be a key. The error has its cause already: raise it without `from`."""
    key_text = f"{short_repr(key, _KEY_CHARS_MAX)} ({type(key).__name__})"
    error = UserCodeError(operator_name, record, KEY_SELECTOR)
    error.__cause__ = MisuseError(f"the key selector returned {key_text}, which cannot be a key: {reason}")
    return error


class Output(Protocol):
    """The destination of an operator's output: the next operators of the chain, result partitions, or both."""

    def collect(self, batch: Batch) -> None: ...

    def collect_side(self, tag_id: str, batch: Batch) -> None: ...

    def emit_watermark(self, timestamp: int) -> None: ...

    def emit_status(self, idle: bool) -> None: ...


class StreamOperator:
    """Base of all operators. Subclasses override the methods that they need."""

    context: function_context.OperatorContext
    output: Output
    #: The name, in errors, of the user code that it runs, if that is not the operator's own function.
    user_part: ClassVar[str] = ""
    #: Whether it holds something for each key, so that its input must come key by key in batch execution.
    is_keyed: ClassVar[bool] = False
    #: Whether it makes its own watermarks instead of passing on the watermarks of its input.
    makes_watermarks: ClassVar[bool] = False

    def setup(self, context: function_context.OperatorContext, output: Output) -> None:
        """Store the context and the output; nothing else is ready yet."""
        self.context = context
        self.output = output

    def fuse(self, behind: StreamOperator) -> None:
        """Prepare to do the work of the next operator, which is the only consumer of this one's output.

        This operator may then do the work of that one's `process_batch`, and emit into its output. All other calls
        reach both.
        """

    def at_work(self, codes: Collection[CodeType]) -> function_context.OperatorContext:
        """Return the context of the operator whose function runs, given all code that runs below this operator.

        This is the operator's own context unless others are fused.
        """
        return self.context

    def initialize_state(self) -> None:
        """Look up the state, which is available now (empty or restored)."""

    def recover_finished(self) -> None:
        """Recover from a checkpoint that was taken after all subtasks had finished; its state is available now.

        Called instead of all other methods, except `setup` before and `close` after it; must not emit anything.
        """

    def open(self) -> None:
        """Get ready for the first record; everything downstream is ready."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process records in order."""
        raise NotImplementedError

    def process_watermark(self, timestamp: int) -> None:
        """Advance event time (ms): fire everything that is due, then pass the watermark on."""
        self.output.emit_watermark(timestamp)

    def resume_event_time(self, watermark: int) -> None:
        """Resume event time (ms) after a restore, so that earlier records are late.

        Called once, after `open` and before everything else. The output drops watermarks that it passed on before.
        """
        self.process_watermark(watermark)

    def process_status(self, idle: bool) -> None:
        """Handle a change of idleness: all inputs became idle, or one became active again."""
        self.output.emit_status(idle)

    def measured(self) -> dict[str, int | float]:
        """Return the operator's own metrics by Flink's names; called at each report."""
        return {}

    def late_outputs(self) -> tuple[str, ...]:
        """Return the tags of the side outputs for late records, which are normally empty."""
        return ()

    def next_timer_ms(self) -> int | None:
        """Return when the earliest processing-time timer is due (ms), or None."""
        return None

    def on_processing_time(self, now_ms: int) -> None:
        """Fire the processing-time timers that are due."""

    def is_available(self) -> bool:
        """Return whether the task may take more input; called only if the operator overrides `process_completions`."""
        return True

    def process_completions(self) -> bool:
        """Handle the external calls that have returned, and start others; returns whether there was anything to do.

        Called at every step while the task processes, and only if the operator overrides it.
        """
        return False

    def drain(self) -> bool:
        """Complete external calls after all input has ended, before `end_input`; returns whether none is pending.

        Called again until it returns True; earlier operators of the chain have finished.
        """
        return True

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Emit everything that must precede the barrier; not called after `finish`."""

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture all current state; later changes must not affect the capture (G7)."""
        return [*self.context.keyed.capture(checkpoint_id), *self.context.operator_state.capture()]

    def on_savepoint(self, checkpoint_id: int) -> None:
        """Note that the state captured just now belongs to a savepoint, which may outlive the job."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Note that the checkpoint is complete, and that a recovery will begin from it."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Note that the checkpoint will not complete."""

    def end_input(self, input_index: int = 0) -> None:
        """Handle the end of one input; the others may go on. Called again after a recovery."""

    def end_keys(self) -> None:
        """Batch execution: end the keys so far, and fire everything that waits for time to pass.

        Then event time begins again for the next keys. The caller clears the state; no watermark goes out meanwhile.
        """
        self.process_watermark(MAX_WATERMARK)

    def advance_keys(self, timestamp: int) -> None:
        """Back-fill: end the keys so far, and fire everything that is due for them at that time (ms).

        Event time stays the same for the next keys; no watermark goes out meanwhile. An operator that does nothing here
        fires for all keys when the watermark comes.
        """

    def quiesce_timers(self) -> None:
        """Accept no more processing-time timers, and drop the pending ones; called before `finish` (F5)."""

    def finish(self) -> None:
        """Emit held-back data now that no more will come, and leave no trace of it in state (F4).

        The current state stays in later checkpoints while other subtasks go on. After a recovery the subtask may run
        again with it and end again.
        """

    def close(self) -> None:
        """Release resources; called on every path, perhaps before `open`."""

    def release(self) -> None:
        """Drop all fields after the task has ended. The operator cannot be used afterwards.

        An operator, its parts and the user's functions refer to each other in cycles. Reference counting never frees
        cycles, so they would keep the state of a failed attempt until Python's collector runs.
        """
        vars(self).clear()


class FunctionOperator(StreamOperator):
    """An operator around one user function, whose `open` and `close` it calls with its own.

    The state of a `CheckpointedFunction` is initialised before `open` and brought up to date at every capture.
    """

    _guard: KeyGuard | None = None

    def __init__(self, function: Any) -> None:
        self.function = function
        self._opened = False

    def user_functions(self) -> tuple[Any, ...]:
        """Return the functions that may be a `CheckpointedFunction` or a `CheckpointListener`."""
        return (self.function,)

    def initialize_state(self) -> None:
        """Let the user's function look up its operator state."""
        function_context.initialize_functions(self.user_functions(), self.context, self.call_user)

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Let the user's function bring its operator state up to date, and capture all state."""
        function_context.snapshot_functions(self.user_functions(), checkpoint_id, self.call_user)
        return super().snapshot_state(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify the user's functions that listen."""
        function_context.notify_complete(self.user_functions(), checkpoint_id, self.call_user)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Notify the user's functions that listen."""
        function_context.notify_aborted(self.user_functions(), checkpoint_id, self.call_user)

    def open(self) -> None:
        """Open the user's function with its runtime context."""
        opener = getattr(self.function, "open", None)
        self._opened = True
        if opener is not None:
            self.call_user(opener, self.runtime_context(), what="open()")

    def runtime_context(self) -> Any:
        """Return the user's view of this subtask."""
        return function_context.RuntimeContext(self.context)

    def close(self) -> None:
        """Close the user's function if it was opened."""
        closer = getattr(self.function, "close", None)
        if closer is not None and self._opened:
            self._opened = False
            self.call_user(closer, what="close()")

    def call_user(self, function: Callable[..., Any], *args: Any, what: str = "") -> Any:
        """Call user code; its errors become a `UserCodeError` that names this operator."""
        try:
            return function(*args)
        except Exception as error:
            raise UserCodeError(self.context.operator_name, None, what) from error

    def extract_keys(self, values: list[Any], key_selector: Callable[[Any], Any]) -> list[Any]:
        """Return the keys of records in the form that keyed state uses: NaN is one key, see `state.keys`."""
        keys = select_keys(values, key_selector, self.context.operator_name)
        guard = self._guard
        if guard is None:
            guard = self._guard = KeyGuard()
        try:
            return guard.admit(keys)
        except RefusedKeyError as error:
            at = error.index
            raise refused_key(self.context.operator_name, values[at], keys[at], error)  # noqa: B904 - it has its cause

    def failed(self, record: Any) -> UserCodeError:
        """Return the error to raise when user code fails on a record."""
        return UserCodeError(self.context.operator_name, record)


@dataclass(frozen=True)
class Round:
    """A subtask's contribution to a round.

    Attributes:
        payloads: something picklable for each subtask, this one included, or None for nothing. A subtask of the same
            process may get the very same object, so it must not be changed afterwards.
        report: something small and picklable that all subtasks get.
        progress: a line for the log; only the first subtask's line counts.
    """

    payloads: Sequence[Any]
    report: Any = None
    progress: str = ""


@dataclass(frozen=True)
class Answer:
    """The result of a round for a subtask: each subtask's payload for it and report, in the order of the subtasks."""

    payloads: Sequence[Any]
    reports: Sequence[Any]


class LockstepOperator(StreamOperator):
    """Base of these operators. It must be the head of its chain, which a partitioned input ensures."""

    def rounds(self) -> Generator[Round, Answer, None]:
        """Run the rounds between the last record and the end; may emit at any time."""
        raise NotImplementedError


def exchanged(rounds: Sequence[Round]) -> list[Answer]:
    """Return the answers to one round of all subtasks."""
    reports = [contribution.report for contribution in rounds]
    return [
        Answer([contribution.payloads[subtask] for contribution in rounds], reports) for subtask in range(len(rounds))
    ]


class TailOperator(StreamOperator):
    """The end of a superstep: forwards the records kept for the next one, and counts them."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._records = LongCounter()

    def open(self) -> None:
        """Register the counter, so that it leaves the task with the output."""
        self.context.accumulators[RECORDS + self._role] = self._records

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Count the records and forward them."""
        self._records.add(len(batch))
        self.output.collect(batch)
