"""Opens a task: creates contexts for its operators, and restores their initial state.

State is restored before any operator runs: keyed and operator state in the backends, records in flight in their
original channels. Records in flight of channels that no longer exist are partitioned again.

The settings of tasks, read from the configuration, and the barriers that follow from them.
"""

from __future__ import annotations

from typing import Any

from penstock.base.configuration import Configuration
from penstock.base.metric_options import (
    LATENCY_GRANULARITY,
    LATENCY_HISTORY_SIZE,
    LATENCY_INTERVAL_MS,
    STATE_LATENCY_ENABLED,
    STATE_LATENCY_HISTORY_SIZE,
    STATE_LATENCY_SAMPLE_INTERVAL,
)
from penstock.base.options import (
    ALIGNED_TIMEOUT_MS,
    ALIGNMENT_HELD_BACK_BYTES_MAX,
    AUTO_WATERMARK_INTERVAL_MS,
    BUFFER_TIMEOUT_MS,
    BUFFERS_PER_CHANNEL,
    CHECKPOINTING_INTERVAL_MS,
    CHECKPOINTING_MODE,
    NETWORK_BUFFER_RECORDS,
    SOURCE_BATCH_RECORDS,
    UNALIGNED_ENABLED,
)
from penstock.runtime.checkpoint.statistics import ChannelState
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.ports import StateStorage
from penstock.runtime.protocol import DeployTask, LatencySettings, TaskSettings, TriggerCheckpoint
from penstock.runtime.records import CheckpointBarrier, EndOfOutputChannelState
from penstock.runtime.task.channels.in_flight import partition_anew, recover_channel
from penstock.runtime.task.channels.input_gate import InputGate
from penstock.runtime.task.channels.result_partition import ResultPartition
from penstock.runtime.task.checkpoints import TaskSnapshots, restore_operator
from penstock.runtime.task.operator_chain import OperatorChain
from penstock.state.snapshot import read_operator


class Opening:
    """Restores a task from the state that its deployment names."""

    def __init__(
        self,
        deployment: DeployTask,
        storage: StateStorage,
        snapshots: TaskSnapshots,
        gate: InputGate,
        partitions: dict[int, ResultPartition],
    ) -> None:
        self._deployment = deployment
        self._storage = storage
        self._snapshots = snapshots
        self._gate = gate
        self._partitions = partitions

    def restore(self, chain: OperatorChain) -> None:
        """Load the state of all operators and the records in flight from the checkpoint that the task starts from."""
        deployment = self._deployment
        for context in chain.contexts:
            context.operator_state.restored_checkpoint_id = deployment.restored_checkpoint_id
            context.forerunners = deployment.forerunners
            self._restore_operator(context)
        for edge, files in deployment.taken_over:
            for file in files:
                partition_anew(read_operator(self._storage.read(file)), self._partitions[edge])
        for edge in deployment.sends_channel_state:
            self._partitions[edge].broadcast(EndOfOutputChannelState())

    def _restore_operator(self, context: OperatorContext) -> None:
        restored = self._deployment.restored.get(context.operator_id)
        if restored is not None:
            snapshots = self._snapshots
            histories = snapshots.histories if self._deployment.builds_on_restored else None
            restore_operator(restored, context, self._storage, snapshots.key_groups, histories, self._recover_channel)

    def _recover_channel(self, channel: ChannelState, items: list[Any]) -> None:
        recover_channel(channel, items, self._gate, self._partitions)


def task_settings(configuration: Configuration) -> TaskSettings:
    """Read the settings of tasks from the configuration."""
    read = configuration.read
    state_latency = read(STATE_LATENCY_SAMPLE_INTERVAL), read(STATE_LATENCY_HISTORY_SIZE)
    latency = LatencySettings(read(LATENCY_INTERVAL_MS), read(LATENCY_GRANULARITY), read(LATENCY_HISTORY_SIZE))
    return TaskSettings(
        checkpointing=read(CHECKPOINTING_INTERVAL_MS) is not None,
        exactly_once=read(CHECKPOINTING_MODE) == "EXACTLY_ONCE",
        unaligned=read(UNALIGNED_ENABLED),
        alignment_timeout_ms=read(ALIGNED_TIMEOUT_MS),
        held_back_bytes_max=read(ALIGNMENT_HELD_BACK_BYTES_MAX),
        buffer_timeout_ms=read(BUFFER_TIMEOUT_MS),
        buffers_per_channel=read(BUFFERS_PER_CHANNEL),
        buffer_records=read(NETWORK_BUFFER_RECORDS),
        source_batch_records=read(SOURCE_BATCH_RECORDS),
        auto_watermark_interval_ms=read(AUTO_WATERMARK_INTERVAL_MS),
        state_latency=state_latency if read(STATE_LATENCY_ENABLED) else None,
        latency=latency if latency.interval_ms > 0 else None,
    )


def build_barrier(trigger: TriggerCheckpoint, settings: TaskSettings) -> CheckpointBarrier:
    """Return the barrier that starts a checkpoint. Savepoints are always aligned, so they hold no records in flight."""
    timeout_ms = settings.alignment_timeout_ms
    unaligned = settings.exactly_once and settings.unaligned and trigger.savepoint_path is None
    return CheckpointBarrier(
        trigger.checkpoint_id,
        trigger.timestamp_ms,
        trigger.savepoint_path,
        is_unaligned=unaligned and timeout_ms == 0,
        alignment_timeout_ms=timeout_ms if unaligned and timeout_ms > 0 else None,
        completed_id=trigger.completed_id,
        ends_job=trigger.stop is not None,
        is_full=trigger.is_full,
    )
