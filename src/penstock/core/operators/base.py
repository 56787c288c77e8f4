"""What every operator is: a state machine that takes batches and watermarks and emits them.

Rules. One thread drives an operator. The operator touches nothing but its context, its output and its state. It keeps
records past a call only in state that its snapshot covers. Whatever it has emitted belongs to the consumers.

The order of calls (F1, F2, F3, F4): `setup`, `initialize_state`, `open` (tail of the chain to its head), then batches,
watermarks and snapshots; on a true end `drain`, `end_input`, `quiesce_timers` and `finish` (head to tail); `close` on
every path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import CodeType
from typing import Any, ClassVar, Final, Protocol

from penstock.base.errors import MisuseError, PenstockError, StopIterationRaised, short_repr
from penstock.core.columns.keys import ColumnKey
from penstock.core.operators.checkpoint_listener import notify_aborted, notify_complete
from penstock.core.operators.checkpointed import initialize_functions, snapshot_functions
from penstock.core.operators.context import OperatorContext
from penstock.core.operators.runtime_context import RuntimeContext
from penstock.core.records import MAX_WATERMARK, Batch
from penstock.state.captures import StateCapture
from penstock.state.keys import KeyGuard, RefusedKeyError

#: What the key selector is called in errors.
KEY_SELECTOR: Final = "the key selector"
_KEY_CHARS_MAX: Final = 80


def call_all(function: Callable[[Any], Any], values: list[Any], results: list[Any]) -> None:
    """Append `function(value)` for all values. When it raises, `values[len(results)]` is the one it was called with."""
    if isinstance(function, ColumnKey):
        function.extend(results, values)
    else:
        results.extend(map(function, values))
    if len(results) != len(values):
        raise StopIterationRaised


class UserCodeError(PenstockError, RuntimeError):
    """A user's function raised. Carries the operator's name and the record that it was given."""

    def __init__(self, operator_name: str, record: Any, what: str = "") -> None:
        super().__init__(operator_name, record, what)
        self.operator_name = operator_name
        self.record = record
        self.what = what


def select_keys(values: list[Any], key_selector: Callable[[Any], Any], operator_name: str) -> list[Any]:
    """What the key selector gives for records, without a check that these can be keys.

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
    """The error for a key that state cannot be kept for; it is raised without a cause of its own."""
    shown = f"{short_repr(key, _KEY_CHARS_MAX)} ({type(key).__name__})"
    error = UserCodeError(operator_name, record, KEY_SELECTOR)
    error.__cause__ = MisuseError(f"the key selector returned {shown}, which cannot be a key: {reason}")
    return error


class Output(Protocol):
    """Where an operator emits: the next operators of the chain, result partitions, or both."""

    def collect(self, batch: Batch) -> None: ...

    def collect_side(self, tag_id: str, batch: Batch) -> None: ...

    def emit_watermark(self, timestamp: int) -> None: ...

    def emit_status(self, idle: bool) -> None: ...


class StreamOperator:
    """Base of all operators. Subclasses override what they need."""

    context: OperatorContext
    output: Output
    #: What errors call the user's code that it runs, where that is not the operator's own function.
    user_part: ClassVar[str] = ""
    #: Whether it holds something for each key, so that in batch execution its input has to come key by key.
    is_keyed: ClassVar[bool] = False
    #: Whether its watermarks are its own, rather than those of its input.
    makes_watermarks: ClassVar[bool] = False

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Take the context and the output; nothing else is ready yet."""
        self.context = context
        self.output = output

    def fuse(self, behind: StreamOperator) -> None:
        """Only `behind` takes what this operator emits, so this one may do its work too.

        It may do the work of that operator's `process_batch`, and emit into its output. All other calls reach both.
        """

    def at_work(self, codes: Collection[CodeType]) -> OperatorContext:
        """Whose function runs, given the code of all that run below this operator: its own, unless others are fused."""
        return self.context

    def initialize_state(self) -> None:
        """State is there now (empty, or restored): look up what is needed."""

    def recover_finished(self) -> None:
        """All subtasks had finished before the restored checkpoint, whose state is there now.

        Called instead of everything else but `setup` before and `close` after; nothing may be emitted.
        """

    def open(self) -> None:
        """Get ready for the first record; everything downstream is."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process records in order."""
        raise NotImplementedError

    def process_watermark(self, timestamp: int) -> None:
        """Event time has advanced (ms): fire what is due, then pass it on."""
        self.output.emit_watermark(timestamp)

    def resume_event_time(self, watermark: int) -> None:
        """The operator was restored: event time (ms) is there already, so records before it are late.

        Called once, after `open` and ahead of everything else. The output drops watermarks that it passed on before.
        """
        self.process_watermark(watermark)

    def process_status(self, idle: bool) -> None:
        """All inputs became idle, or one became active again."""
        self.output.emit_status(idle)

    def measured(self) -> dict[str, int | float]:
        """What it measures of itself, by Flink's names; asked at each report."""
        return {}

    def late_outputs(self) -> tuple[str, ...]:
        """The tags of side outputs for late records, which are empty as a rule."""
        return ()

    def next_timer_ms(self) -> int | None:
        """When the earliest processing-time timer is due (ms), or None."""
        return None

    def on_processing_time(self, now_ms: int) -> None:
        """Fire the processing-time timers that are due."""

    def is_available(self) -> bool:
        """Whether the task may take more input; asked of operators that override `process_completions` only."""
        return True

    def process_completions(self) -> bool:
        """Handle calls out of the task that have returned, and start others; returns whether there was anything to do.

        Called at every step while the task processes, and only of operators that override it.
        """
        return False

    def drain(self) -> bool:
        """All input has ended for good, ahead of `end_input`: returns whether no call is out and the end may go on.

        Called again until that is so; operators ahead of this one in the chain have finished.
        """
        return True

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Emit what must be ahead of the barrier; not called after `finish`."""

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture all state as of now; later changes must not reach what was captured (G7)."""
        return [*self.context.keyed.capture(checkpoint_id), *self.context.operator_state.capture()]

    def on_savepoint(self, checkpoint_id: int) -> None:
        """What was captured just now is a savepoint's, which may outlive the job."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete and will be the one to recover from."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint will not complete."""

    def end_input(self, input_index: int = 0) -> None:
        """No record will ever follow on that input; the others may go on. Called again after a recovery."""

    def end_keys(self) -> None:
        """Batch execution: no record will follow for the keys so far. Fire all that waits for time to pass.

        Then event time begins again for the keys to come. The caller forgets the state; no watermark goes out
        meanwhile.
        """
        self.process_watermark(MAX_WATERMARK)

    def advance_keys(self, timestamp: int) -> None:
        """A back-fill: no record will follow for the keys so far. Fire what is due for them at that time (ms).

        For the keys to come event time stands where it was; no watermark goes out meanwhile. An operator that does
        nothing here fires for all keys when the watermark comes.
        """

    def quiesce_timers(self) -> None:
        """Ahead of `finish`: take no more processing-time timers, and drop those that have not fired (F5)."""

    def finish(self) -> None:
        """No data will ever come: emit what is held back, and leave no trace of it in state (F4).

        The state as of now stays in later checkpoints while other subtasks go on. After a recovery the subtask may run
        again with it, and come to its end again.
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
    """An operator around one user function, whose `open` and `close` it calls with the operator's own.

    The state of a `CheckpointedFunction` is initialised ahead of `open` and brought up to date at every capture.
    """

    _guard: KeyGuard | None = None

    def __init__(self, function: Any) -> None:
        self.function = function
        self._opened = False

    def user_functions(self) -> tuple[Any, ...]:
        """The functions that may be a `CheckpointedFunction` or a `CheckpointListener`."""
        return (self.function,)

    def initialize_state(self) -> None:
        """Let the user's function look up its operator state."""
        initialize_functions(self.user_functions(), self.context, self.call_user)

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Let the user's function bring its operator state up to date, and capture all state."""
        snapshot_functions(self.user_functions(), checkpoint_id, self.call_user)
        return super().snapshot_state(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify the user's functions that listen."""
        notify_complete(self.user_functions(), checkpoint_id, self.call_user)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Notify the user's functions that listen."""
        notify_aborted(self.user_functions(), checkpoint_id, self.call_user)

    def open(self) -> None:
        """Open the user's function with its runtime context."""
        opener = getattr(self.function, "open", None)
        self._opened = True
        if opener is not None:
            self.call_user(opener, self.runtime_context(), what="open()")

    def runtime_context(self) -> Any:
        """The user's view of this subtask."""
        return RuntimeContext(self.context)

    def close(self) -> None:
        """Close the user's function, when it was opened."""
        closer = getattr(self.function, "close", None)
        if closer is not None and self._opened:
            self._opened = False
            self.call_user(closer, what="close()")

    def call_user(self, function: Callable[..., Any], *args: Any, what: str = "") -> Any:
        """Call user code; what it raises becomes a `UserCodeError` that names this operator."""
        try:
            return function(*args)
        except Exception as error:
            raise UserCodeError(self.context.operator_name, None, what) from error

    def keys_of(self, values: list[Any], key_selector: Callable[[Any], Any]) -> list[Any]:
        """The keys of records, by which state may be kept: NaN is one key, see `state.keys`."""
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
        """The error to raise from an error that user code raised on a record."""
        return UserCodeError(self.context.operator_name, record)
