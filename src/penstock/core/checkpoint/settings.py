"""The options of checkpointing, as the coordinator uses them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.configuration import Configuration
from penstock.common.options import (
    ALIGNED_TIMEOUT_MS,
    CHECKPOINT_RETENTION,
    CHECKPOINTING_INTERVAL_MS,
    CHECKPOINTING_MAX_CONCURRENT,
    CHECKPOINTING_MIN_PAUSE_MS,
    CHECKPOINTING_MODE,
    CHECKPOINTING_NUM_RETAINED,
    CHECKPOINTING_TIMEOUT_MS,
    CHECKPOINTING_TOLERABLE_FAILURES,
    RECOVERY_PATH,
    STATE_BACKEND,
    UNALIGNED_ENABLED,
)


@dataclass(frozen=True)
class CheckpointSettings:
    """`interval_ms` is None when checkpointing is off."""

    interval_ms: int | None
    timeout_ms: int
    min_pause_ms: int
    concurrent_max: int
    tolerable_failures: int
    retained: int
    retain_on_cancel: bool

    @classmethod
    def of(cls, configuration: Configuration) -> CheckpointSettings:
        """Read the options; raises `NotImplementedError` for modes that are not there yet."""
        if configuration.read(CHECKPOINTING_MODE) != "EXACTLY_ONCE":
            raise NotImplementedError("execution.checkpointing.mode: only EXACTLY_ONCE is available yet")
        if configuration.read(UNALIGNED_ENABLED) or configuration.read(ALIGNED_TIMEOUT_MS):
            raise NotImplementedError("unaligned checkpoints are not available yet: leave them switched off")
        if configuration.read(STATE_BACKEND) != "hashmap":
            raise NotImplementedError("state.backend.type: only hashmap is available yet")
        if configuration.read(RECOVERY_PATH) is not None:
            raise NotImplementedError("execution.state-recovery.path: starting from a savepoint is not available yet")
        return cls(
            configuration.read(CHECKPOINTING_INTERVAL_MS),
            configuration.read(CHECKPOINTING_TIMEOUT_MS),
            configuration.read(CHECKPOINTING_MIN_PAUSE_MS),
            configuration.read(CHECKPOINTING_MAX_CONCURRENT),
            configuration.read(CHECKPOINTING_TOLERABLE_FAILURES),
            configuration.read(CHECKPOINTING_NUM_RETAINED),
            configuration.read(CHECKPOINT_RETENTION) == "RETAIN_ON_CANCELLATION",
        )
