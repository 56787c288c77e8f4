"""The checkpointing options of an environment, under PyFlink's names (G6)."""

from __future__ import annotations

import datetime

from penstock.common.configuration import Configuration
from penstock.common.options import (
    CHECKPOINT_RETENTION,
    CHECKPOINTING_DIR,
    CHECKPOINTING_INTERVAL_MS,
    CHECKPOINTING_MAX_CONCURRENT,
    CHECKPOINTING_MIN_PAUSE_MS,
    CHECKPOINTING_MODE,
    CHECKPOINTING_TIMEOUT_MS,
    CHECKPOINTING_TOLERABLE_FAILURES,
)
from penstock.common.time import Duration, to_millis
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention

DurationLike = int | Duration | datetime.timedelta


class CheckpointConfig:
    """Reads and writes the `execution.checkpointing.*` options of a `Configuration`. Durations in ms, or timedeltas."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def is_checkpointing_enabled(self) -> bool:
        """Whether an interval is set."""
        return self._configuration.read(CHECKPOINTING_INTERVAL_MS) is not None

    def get_checkpoint_interval(self) -> int:
        """The interval in ms; -1 when checkpointing is off."""
        interval = self._configuration.read(CHECKPOINTING_INTERVAL_MS)
        return -1 if interval is None else interval

    def set_checkpoint_interval(self, checkpoint_interval: DurationLike) -> CheckpointConfig:
        """How often a checkpoint begins."""
        self._configuration.write(CHECKPOINTING_INTERVAL_MS, to_millis(checkpoint_interval))
        return self

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The guarantee."""
        return CheckpointingMode(self._configuration.read(CHECKPOINTING_MODE))

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """The guarantee; only EXACTLY_ONCE is available yet."""
        self._configuration.write(CHECKPOINTING_MODE, checkpointing_mode.value)
        return self

    def get_checkpoint_timeout(self) -> int:
        """After how long (ms) a checkpoint is given up."""
        return self._configuration.read(CHECKPOINTING_TIMEOUT_MS)

    def set_checkpoint_timeout(self, checkpoint_timeout: DurationLike) -> CheckpointConfig:
        """After how long a checkpoint is given up."""
        self._configuration.write(CHECKPOINTING_TIMEOUT_MS, to_millis(checkpoint_timeout))
        return self

    def get_min_pause_between_checkpoints(self) -> int:
        """The least time (ms) from the end of one checkpoint to the beginning of the next."""
        return self._configuration.read(CHECKPOINTING_MIN_PAUSE_MS)

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: DurationLike) -> CheckpointConfig:
        """The least time from the end of one checkpoint to the beginning of the next."""
        self._configuration.write(CHECKPOINTING_MIN_PAUSE_MS, to_millis(min_pause_between_checkpoints))
        return self

    def get_max_concurrent_checkpoints(self) -> int:
        """How many checkpoints may be in the making at once."""
        return self._configuration.read(CHECKPOINTING_MAX_CONCURRENT)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """How many checkpoints may be in the making at once."""
        self._configuration.write(CHECKPOINTING_MAX_CONCURRENT, max_concurrent_checkpoints)
        return self

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """How many checkpoints in a row may fail before the job does."""
        return self._configuration.read(CHECKPOINTING_TOLERABLE_FAILURES)

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> CheckpointConfig:
        """How many checkpoints in a row may fail before the job does."""
        self._configuration.write(CHECKPOINTING_TOLERABLE_FAILURES, tolerable_checkpoint_failure_number)
        return self

    def set_externalized_checkpoint_retention(self, retention: ExternalizedCheckpointRetention) -> CheckpointConfig:
        """What becomes of checkpoints when the job is cancelled."""
        self._configuration.write(CHECKPOINT_RETENTION, retention.value)
        return self

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """What becomes of checkpoints when the job is cancelled."""
        return ExternalizedCheckpointRetention(self._configuration.read(CHECKPOINT_RETENTION))

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """The directory of checkpoints, on any fsspec file system that all workers reach."""
        self._configuration.write(CHECKPOINTING_DIR, checkpoint_path)
        return self
