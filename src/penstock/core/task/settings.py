"""The settings of tasks, read from the configuration, and the barriers that follow from them."""

from __future__ import annotations

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
from penstock.core.protocol import LatencySettings, TaskSettings, TriggerCheckpoint
from penstock.core.records import CheckpointBarrier


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
