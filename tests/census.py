"""Counts the objects of tasks that are alive in this process."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.runtime.batch.task import BatchTask
from penstock.runtime.epochs.task import EpochTask
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.task.channels.input_gate import InputGate
from penstock.runtime.task.channels.result_partition import ResultPartition
from penstock.runtime.task.operator_chain import ChainOutput, OperatorChain
from penstock.runtime.task.processing import ProcessingLoop
from penstock.runtime.task.stream_task import StreamTask
from penstock.state.backend import KeyedStateBackend, StateTable
from penstock.state.operator_state import OperatorStateBackend
from penstock.state.states import State

#: the parts of a task
KINDS = (
    BatchTask,
    ChainOutput,
    EpochTask,
    InputGate,
    KeyedStateBackend,
    OperatorChain,
    OperatorContext,
    OperatorStateBackend,
    ProcessingLoop,
    ResultPartition,
    State,
    StateTable,
    StreamOperator,
    StreamTask,
)


#: parts of earlier jobs of this process, by their ids: they are held, so no other object gets such an id
_earlier: dict[int, object] = {}


@contextmanager
def without_collector() -> Iterator[None]:
    """Disable Python's cycle collector, so objects in cycles stay alive and are counted.

    What is alive already is not counted: a function of an earlier test may still be running in a thread.
    """
    gc.collect()
    gc.disable()
    _earlier.update((id(part), part) for part in _parts())
    try:
        yield
    finally:
        _earlier.clear()
        gc.enable()
        gc.collect()


def live_parts() -> Counter[str]:
    """How many parts of tasks are alive, by class."""
    return Counter(type(part).__name__ for part in _parts() if id(part) not in _earlier)


def _parts() -> list[object]:
    return [found for found in gc.get_objects() if isinstance(found, KINDS)]
