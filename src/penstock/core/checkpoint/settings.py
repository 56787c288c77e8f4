"""The checkpointing options, as the coordinator uses them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.options import (
    CHECKPOINT_RETENTION,
    CHECKPOINTING_DIR,
    CHECKPOINTING_INTERVAL_MS,
    CHECKPOINTING_MAX_CONCURRENT,
    CHECKPOINTING_MIN_PAUSE_MS,
    CHECKPOINTING_MODE,
    CHECKPOINTING_NUM_RETAINED,
    CHECKPOINTING_TIMEOUT_MS,
    CHECKPOINTING_TOLERABLE_FAILURES,
    RECOVERY_CLAIM_MODE,
    RECOVERY_FROM_LATEST,
    UNALIGNED_ENABLED,
)


@dataclass(frozen=True)
class CheckpointSettings:
    """Checkpointing settings; an `interval_ms` of None turns checkpointing off."""

    interval_ms: int | None
    timeout_ms: int
    min_pause_ms: int
    concurrent_max: int
    tolerable_failures: int
    retained: int
    retain_on_cancel: bool
    exactly_once: bool = True
    claims_initial: bool = False
    retain_on_failure: bool = True
    unaligned: bool = False

    @classmethod
    def of(cls, configuration: Configuration) -> CheckpointSettings:
        """Read the options; raise `ConfigurationError` if they contradict each other."""
        if configuration.read(UNALIGNED_ENABLED):
            if configuration.read(CHECKPOINTING_MODE) != "EXACTLY_ONCE":
                raise ConfigurationError(
                    "execution.checkpointing.unaligned.enabled needs execution.checkpointing.mode EXACTLY_ONCE"
                )
            if configuration.read(CHECKPOINTING_MAX_CONCURRENT) != 1:
                raise ConfigurationError(
                    "unaligned checkpoints run one at a time: set execution.checkpointing.max-concurrent-checkpoints "
                    "to 1"
                )
        if configuration.read(RECOVERY_FROM_LATEST) and configuration.read(CHECKPOINTING_DIR) is None:
            raise ConfigurationError(f"{RECOVERY_FROM_LATEST.key()} searches {CHECKPOINTING_DIR.key()}: set that too")
        return cls(
            configuration.read(CHECKPOINTING_INTERVAL_MS),
            configuration.read(CHECKPOINTING_TIMEOUT_MS),
            configuration.read(CHECKPOINTING_MIN_PAUSE_MS),
            configuration.read(CHECKPOINTING_MAX_CONCURRENT),
            configuration.read(CHECKPOINTING_TOLERABLE_FAILURES),
            configuration.read(CHECKPOINTING_NUM_RETAINED),
            configuration.read(CHECKPOINT_RETENTION) == "RETAIN_ON_CANCELLATION",
            configuration.read(CHECKPOINTING_MODE) == "EXACTLY_ONCE",
            configuration.read(RECOVERY_CLAIM_MODE) == "CLAIM",
            configuration.read(CHECKPOINT_RETENTION) != "NO_EXTERNALIZED_CHECKPOINTS",
            configuration.read(UNALIGNED_ENABLED),
        )
