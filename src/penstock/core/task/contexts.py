"""The runtime context that a task passes to each of its operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.operators.context import OperatorContext
from penstock.core.ports import Clock, Coroutines, KeyedBackends
from penstock.core.protocol import ClientOutput, DeployTask, ReportWatermark, RequestSplit
from penstock.core.task.program import ChainedOperator, VertexProgram
from penstock.state.latency import StateLatency
from penstock.state.operator_state import OperatorStateBackend


def operator_context(
    deployment: DeployTask,
    program: VertexProgram,
    chained: ChainedOperator,
    clock: Clock,
    backends: KeyedBackends,
    key_groups: tuple[int, int],
    tell: Callable[[Any], None],
    coroutines: Coroutines | None,
) -> OperatorContext:
    """Create the context of one operator, with empty state of its own; `tell` sends to the job master."""
    execution, settings = deployment.execution, deployment.settings
    operator_id = chained.operator_id  # the closures must not reference `chained`, which holds the user function
    return OperatorContext(
        job_id=deployment.job_id,
        operator_id=operator_id,
        operator_name=chained.name,
        task_name=deployment.task_name,
        subtask_index=execution.subtask,
        parallelism=deployment.parallelism,
        max_parallelism=deployment.max_parallelism,
        attempt=execution.attempt,
        clock=clock,
        checkpointing=settings.checkpointing,
        keyed=backends.make(execution, operator_id, chained.title, deployment.max_parallelism, key_groups),
        operator_state=OperatorStateBackend(chained.name),
        emit_to_client=lambda payload: tell(ClientOutput(execution, operator_id, payload)),
        request_split=lambda: tell(RequestSplit(execution, operator_id)),
        migrations=program.migrations,
        job_parameters=program.job_parameters,
        timers_after_end_max=program.timers_after_end_max,
        auto_watermark_interval_ms=settings.auto_watermark_interval_ms,
        report_watermark=lambda ms: tell(ReportWatermark(execution, operator_id, ms)),
        coroutines=coroutines,
        state_latency=StateLatency(*settings.state_latency, clock.steady_ns) if settings.state_latency else None,
    )
