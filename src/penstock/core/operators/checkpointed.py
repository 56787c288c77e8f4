"""Operator state of user functions: Flink's `CheckpointedFunction` (D2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from penstock.core.operators.context import OperatorContext
from penstock.core.operators.runtime_context import KeyedStateStore
from penstock.state.operator_state import OperatorStateStore


class FunctionInitializationContext:
    """What `CheckpointedFunction.initialize_state` is handed."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._store = OperatorStateStore(context.operator_state)

    def is_restored(self) -> bool:
        """Whether the job began from a checkpoint or savepoint; state is empty all the same if none was written."""
        return self._context.operator_state.is_restored

    def get_restored_checkpoint_id(self) -> int | None:
        """The number of that checkpoint, or None."""
        return self._context.operator_state.restored_checkpoint_id

    def get_operator_state_store(self) -> OperatorStateStore:
        """The operator states: lists, union lists and broadcast maps."""
        return self._store

    def get_keyed_state_store(self) -> KeyedStateStore:
        """The keyed states; they may be looked up here, and used while a key is current."""
        return KeyedStateStore(self._context)


class FunctionSnapshotContext:
    """What `CheckpointedFunction.snapshot_state` is handed."""

    def __init__(self, checkpoint_id: int) -> None:
        self._checkpoint_id = checkpoint_id

    def get_checkpoint_id(self) -> int:
        """The checkpoint's number; it rises from checkpoint to checkpoint of a job, savepoints included."""
        return self._checkpoint_id


class CheckpointedFunction(ABC):
    """A user function with state of its own subtask rather than of a key (D2, G10); PyFlink has none, Flink does.

    Inherit it beside any function class (a sink's writer has list state of its own, see `SinkWriter`):

        class Buffering(FlatMapFunction, CheckpointedFunction):
            def initialize_state(self, context):
                store = context.get_operator_state_store()
                self.state = store.get_list_state(ListStateDescriptor("buffered"))
                self.buffer = list(self.state.get())

            def snapshot_state(self, context):
                self.state.update(self.buffer)

            def flat_map(self, value): ...

    **What a restore gives.** At the same parallelism, and after every failure, each subtask gets back its own lists. At
    another parallelism the items of all subtasks are dealt out, each to exactly one subtask: make an item the smallest
    unit that may move alone. A union list gives every subtask the items of all, at every restore. Of a broadcast map
    each subtask gets one whole copy: its own when the parallelism is the same. The order of items means nothing.

    **The end of input.** A subtask that has come to its end leaves its last state in every later checkpoint, for as
    long as other subtasks go on. After a recovery or a rescaling that state is dealt out like any other, and the
    subtask may run and end again. So remove from the state at once what is emitted on the way to the end (by timers
    that MAX_WATERMARK fires), or it is emitted twice. Keep in the state what the subtasks that go on still need.
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Look up state, which holds what was restored; called once an attempt, before `open`."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """A checkpoint is about to capture all state: bring it up to date. Nothing may be emitted; no key is current.

        It runs between two records, and the subtask waits for it. What it raises fails the task.
        """


#: Calls user code, and names the method in what it raises.
Call = Callable[..., Any]


def initialize_functions(functions: Iterable[Any], context: OperatorContext, call: Call) -> None:
    """Call `initialize_state` of those that are a `CheckpointedFunction`."""
    for function in functions:
        if isinstance(function, CheckpointedFunction):
            call(function.initialize_state, FunctionInitializationContext(context), what="initialize_state()")


def snapshot_functions(functions: Iterable[Any], checkpoint_id: int, call: Call) -> None:
    """Call `snapshot_state` of those that are a `CheckpointedFunction`."""
    for function in functions:
        if isinstance(function, CheckpointedFunction):
            call(function.snapshot_state, FunctionSnapshotContext(checkpoint_id), what="snapshot_state()")
