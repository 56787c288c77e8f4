"""The checkpointing options of an environment, under PyFlink's names (G6)."""

from __future__ import annotations

import datetime
import logging
from typing import Final

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.time import Duration, to_millis
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from penstock.drivers.logs import log_to_stderr_by_default

DurationLike = int | Duration | datetime.timedelta
#: Shorter intervals log a warning.
SHORT_INTERVAL_MS: Final = 10
_log = logging.getLogger("penstock.job")
_ANY_NUMBER = 2**31 - 1


class CheckpointConfig:
    """Reads and writes the `execution.checkpointing.*` options of a `Configuration`. Durations are ms or timedeltas.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> config = env.get_checkpoint_config().set_checkpoint_interval(10_000)
        >>> config.set_min_pause_between_checkpoints(500).get_checkpoint_interval()
        10000
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def is_checkpointing_enabled(self) -> bool:
        """Return whether an interval is set."""
        return self._configuration.read(options.CHECKPOINTING_INTERVAL_MS) is not None

    def get_checkpoint_interval(self) -> int:
        """Return the interval in ms; -1 if checkpointing is off."""
        interval = self._configuration.read(options.CHECKPOINTING_INTERVAL_MS)
        return -1 if interval is None else interval

    def set_checkpoint_interval(self, checkpoint_interval: DurationLike) -> CheckpointConfig:
        """Set the interval between the starts of checkpoints. An interval below 10 ms logs a warning."""
        interval_ms = to_millis(checkpoint_interval)
        self._configuration.write(options.CHECKPOINTING_INTERVAL_MS, interval_ms)
        if interval_ms < SHORT_INTERVAL_MS:
            log_to_stderr_by_default()
            _log.warning(
                "checkpoints every %d ms leave records little time: most take longer than that, and each interrupts "
                "all tasks; set the interval to %d ms or more",
                interval_ms,
                SHORT_INTERVAL_MS,
            )
        return self

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the guarantee of checkpoints."""
        return CheckpointingMode(self._configuration.read(options.CHECKPOINTING_MODE))

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Set the guarantee: after a failure, a record counts in state exactly once (default) or at least once."""
        self._configuration.write(options.CHECKPOINTING_MODE, checkpointing_mode.value)
        return self

    def get_checkpoint_timeout(self) -> int:
        """Return the time (ms) after which a checkpoint is aborted."""
        return self._configuration.read(options.CHECKPOINTING_TIMEOUT_MS)

    def set_checkpoint_timeout(self, checkpoint_timeout: DurationLike) -> CheckpointConfig:
        """Set the time after which a checkpoint is aborted."""
        self._configuration.write(options.CHECKPOINTING_TIMEOUT_MS, to_millis(checkpoint_timeout))
        return self

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the minimum time (ms) from the end of one checkpoint to the start of the next."""
        return self._configuration.read(options.CHECKPOINTING_MIN_PAUSE_MS)

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: DurationLike) -> CheckpointConfig:
        """Set the minimum time from the end of one checkpoint to the start of the next."""
        self._configuration.write(options.CHECKPOINTING_MIN_PAUSE_MS, to_millis(min_pause_between_checkpoints))
        return self

    def get_max_concurrent_checkpoints(self) -> int:
        """Return how many checkpoints may be in progress at once."""
        return self._configuration.read(options.CHECKPOINTING_MAX_CONCURRENT)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Set how many checkpoints may be in progress at once."""
        self._configuration.write(options.CHECKPOINTING_MAX_CONCURRENT, max_concurrent_checkpoints)
        return self

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Return how many consecutive checkpoints may fail before the job fails."""
        return self._configuration.read(options.CHECKPOINTING_TOLERABLE_FAILURES)

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> CheckpointConfig:
        """Set how many consecutive checkpoints may fail before the job fails."""
        self._configuration.write(options.CHECKPOINTING_TOLERABLE_FAILURES, tolerable_checkpoint_failure_number)
        return self

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set whether checkpoints are kept when the job is cancelled."""
        self._configuration.write(options.CHECKPOINT_RETENTION, retention_mode.value)
        return self

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Return whether checkpoints may outlive the job."""
        none = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return self.get_externalized_checkpoint_retention() is not none

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Let barriers overtake records, which then become part of the checkpoint (G5); savepoints stay aligned."""
        self._configuration.write(options.UNALIGNED_ENABLED, enabled)
        return self

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Let barriers wait for the records ahead of them."""
        return self.enable_unaligned_checkpoints(False)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return whether barriers overtake records."""
        return self._configuration.read(options.UNALIGNED_ENABLED)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: DurationLike) -> CheckpointConfig:
        """Set how long an unaligned checkpoint first tries to align; 0 skips that. Requires unaligned checkpoints."""
        self._configuration.write(options.ALIGNED_TIMEOUT_MS, to_millis(alignment_timeout))
        return self

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """Return how long an unaligned checkpoint first tries to align."""
        return Duration.of_millis(self._configuration.read(options.ALIGNED_TIMEOUT_MS))

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        """Take unaligned checkpoints even where Flink would not. No such case exists here, so this is only stored."""
        self._configuration.write(options.FORCE_UNALIGNED, force_unaligned_checkpoints)
        return self

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return whether unaligned checkpoints are forced."""
        return self._configuration.read(options.FORCE_UNALIGNED)

    def set_alignment_timeout(self, alignment_timeout: DurationLike) -> CheckpointConfig:
        """Older name of `set_aligned_checkpoint_timeout`."""
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def get_alignment_timeout(self) -> Duration:
        """Older name of `get_aligned_checkpoint_timeout`."""
        return self.get_aligned_checkpoint_timeout()

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Older form of `set_tolerable_checkpoint_failure_number`: tolerate no failures, or any number."""
        return self.set_tolerable_checkpoint_failure_number(0 if fail_on_checkpointing_errors else _ANY_NUMBER)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Return whether the first failed checkpoint fails the job."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """Return whether checkpoints are kept when the job is cancelled."""
        return ExternalizedCheckpointRetention(self._configuration.read(options.CHECKPOINT_RETENTION))

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """Set the directory of checkpoints, on any fsspec file system that all workers can reach."""
        self._configuration.write(options.CHECKPOINTING_DIR, checkpoint_path)
        return self
