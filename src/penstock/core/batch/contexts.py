"""Creates the operator contexts of tasks that run to an end, of a batch or of an epoch."""

from __future__ import annotations

from itertools import count
from typing import Protocol

from penstock.core.batch.rows import CLIENT, Rows
from penstock.core.operators.context import OperatorContext
from penstock.core.ports import Clock, Coroutines
from penstock.core.supersteps import Superstep, SuperstepContext
from penstock.core.task.program import VertexProgram
from penstock.state.backend import KeyedStateBackend
from penstock.state.operator_state import OperatorStateBackend


class Vertex(Protocol):
    """The attributes that `BatchVertex` and `EpochVertex` have in common."""

    @property
    def job_id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def parallelism(self) -> int: ...

    @property
    def max_parallelism(self) -> int: ...


def bounded_context(
    vertex: Vertex,
    subtask: int,
    program: VertexProgram,
    index: int,
    keyed: KeyedStateBackend,
    rows: Rows,
    sequences: count[int],
    clock: Clock,
    coroutines: Coroutines | None,
    attempt: int = 0,
    is_batch: bool = False,
    superstep: Superstep | None = None,
    run: str = "",
) -> OperatorContext:
    """Return the context of the operator at `index` in the chain; data that it emits to the client becomes a row."""
    chained = program.operators[index]
    return OperatorContext(
        job_id=vertex.job_id,
        operator_id=chained.operator_id,
        operator_name=chained.name,
        task_name=vertex.name,
        subtask_index=subtask,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        attempt=attempt,
        clock=clock,
        # With this, a sink leaves the commit to others.
        checkpointing=True,
        is_batch=is_batch,
        keyed=keyed,
        operator_state=OperatorStateBackend(chained.name),
        emit_to_client=lambda payload: rows.append(CLIENT, index, next(sequences), payload),
        request_split=lambda: None,
        migrations=program.migrations,
        job_parameters=program.job_parameters,
        timers_after_end_max=program.timers_after_end_max,
        coroutines=coroutines,
        superstep=None if superstep is None else SuperstepContext(superstep),
        run=run and f"{attempt}-{run}",
    )
