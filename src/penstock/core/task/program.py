"""The program of a task: the operators of one job vertex, as sent to workers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.base.errors import PenstockError
from penstock.core.operators.base import StreamOperator
from penstock.core.operators.context import TIMERS_AFTER_END_MAX
from penstock.core.task.channels.partitioners import Partitioner


@dataclass(frozen=True)
class ChainedOperator:
    """One operator of a chain. `parent` is the index of the operator that feeds it, -1 at the head.

    `side_tag` is the side output of the parent that it reads, or None for the main output.
    """

    operator_id: str
    name: str
    factory: Callable[[], StreamOperator]
    parent: int = -1
    side_tag: str | None = None
    uid: str | None = None

    @property
    def title(self) -> str:
        """A human-readable name of the operator, with its uid if it has one."""
        return self.name if self.uid is None else f"{self.name} (uid {self.uid!r})"


@dataclass(frozen=True)
class OutEdge:
    """One outgoing network edge of a chain: the job graph's edge id, the operator that feeds it, and its consumer."""

    edge: int
    operator: int
    partitioner: Partitioner
    side_tag: str | None = None
    consumer_name: str = ""


@dataclass(frozen=True)
class VertexProgram:
    """The operators of a vertex, head first, and its edges. `migrations`: see `penstock.state.migrations`.

    `buffer_timeout_ms` applies to the buffers of its edges; None means the job's value. `job_parameters` are the user's
    own settings, for functions to read. `timers_after_end_max`: see `core.operators.timers`.
    """

    operators: tuple[ChainedOperator, ...]
    out_edges: tuple[OutEdge, ...]
    migrations: dict[str, Callable[..., Any]] = field(default_factory=dict)
    buffer_timeout_ms: int | None = None
    job_parameters: dict[str, str] = field(default_factory=dict)
    timers_after_end_max: int = TIMERS_AFTER_END_MAX


class ProgramError(PenstockError, RuntimeError):
    """Raised when a worker cannot load a program; another attempt would fail the same way."""

    suppresses_restart = True


def load_program(program: bytes, task_name: str) -> VertexProgram:
    """Unpickle the program of a task in the worker.

    Raises:
        ProgramError: if loading fails, with the reason: a missing module, for instance.
    """
    try:
        loaded: VertexProgram = pickle.loads(program)
    except Exception as error:  # unpickling imports the user's modules, which may raise anything
        raise ProgramError(
            f"the functions of task {task_name} cannot be loaded in the worker: {type(error).__name__}: {error}; "
            "install the modules that they import where workers run, or ship them with the job (add_python_file, "
            "python.files)"
        ) from error
    return loaded
