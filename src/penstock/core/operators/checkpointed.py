"""Operator state of user functions: Flink's `CheckpointedFunction` (D2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from penstock.core.operators.context import OperatorContext
from penstock.core.operators.runtime_context import KeyedStateStore
from penstock.state.operator_state import OperatorStateStore


class FunctionInitializationContext:
    """The context passed to `CheckpointedFunction.initialize_state`."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._store = OperatorStateStore(context.operator_state)

    def is_restored(self) -> bool:
        """Return whether the job began from a checkpoint or savepoint, which may hold no state of this function."""
        return self._context.operator_state.is_restored

    def get_restored_checkpoint_id(self) -> int | None:
        """Return the number of that checkpoint, or None."""
        return self._context.operator_state.restored_checkpoint_id

    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the store of operator states: lists, union lists and broadcast maps."""
        return self._store

    def get_keyed_state_store(self) -> KeyedStateStore:
        """Return the store of keyed states; look them up here, and use them while a key is current."""
        return KeyedStateStore(self._context)


class FunctionSnapshotContext:
    """The context passed to `CheckpointedFunction.snapshot_state`."""

    def __init__(self, checkpoint_id: int) -> None:
        self._checkpoint_id = checkpoint_id

    def get_checkpoint_id(self) -> int:
        """Return the checkpoint's number; it increases with each checkpoint and savepoint of a job."""
        return self._checkpoint_id


class CheckpointedFunction(ABC):
    """A user function with state of its subtask rather than of a key (D2, G10). Flink has these, PyFlink does not.

    Inherit from it in addition to any function class (a sink's writer has its own list state, see `SinkWriter`):

        class Buffering(FlatMapFunction, CheckpointedFunction):
            def initialize_state(self, context):
                store = context.get_operator_state_store()
                self.state = store.get_list_state(ListStateDescriptor("buffered"))
                self.buffer = list(self.state.get())

            def snapshot_state(self, context):
                self.state.update(self.buffer)

            def flat_map(self, value): ...

    **Restored state.** At the same parallelism, and after every failure, each subtask gets its own lists back. At
    another parallelism the items of all subtasks are redistributed, each to exactly one subtask: make an item the
    smallest unit that may move alone. A union list gives every subtask the items of all, at every restore. Each subtask
    gets one whole copy of a broadcast map: its own if the parallelism is the same. The order of items means nothing.

    **The end of input.** A subtask that has ended leaves its last state in every later checkpoint, for as long as other
    subtasks go on. After a recovery or a rescaling that state is redistributed like any other, and the subtask may run
    and end again. So remove data from the state at once when it is emitted on the way to the end (by timers that
    MAX_WATERMARK fires), or it is emitted twice. Keep the data in the state that the other subtasks still need.
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Look up state, which holds the restored values; called once per attempt, before `open`."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Bring the state up to date before a checkpoint captures it. Nothing may be emitted; no key is current.

        It runs between two records, and the subtask waits for it. An error that it raises fails the task.
        """


#: Calls user code, and names the method in the errors that it raises.
Call = Callable[..., Any]


def initialize_functions(functions: Iterable[Any], context: OperatorContext, call: Call) -> None:
    """Call `initialize_state` of each `CheckpointedFunction`."""
    for function in functions:
        if isinstance(function, CheckpointedFunction):
            call(function.initialize_state, FunctionInitializationContext(context), what="initialize_state()")


def snapshot_functions(functions: Iterable[Any], checkpoint_id: int, call: Call) -> None:
    """Call `snapshot_state` of each `CheckpointedFunction`."""
    for function in functions:
        if isinstance(function, CheckpointedFunction):
            call(function.snapshot_state, FunctionSnapshotContext(checkpoint_id), what="snapshot_state()")
