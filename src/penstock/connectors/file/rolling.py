"""Rolling policies and names of a file sink's part files."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from penstock.base.errors import ConfigurationError
from penstock.base.time import Duration, Time, to_millis

PART_BYTES = 128 << 20
ROLLOVER_MS = 60_000
INACTIVITY_MS = 60_000


@dataclass(frozen=True, slots=True)
class RollingPolicy:
    """When to close a part file between two checkpoints. A checkpoint closes every part file in any case.

    Create one with `default_rolling_policy` or `on_checkpoint_rolling_policy`. Limits are checked once per batch,
    before and after it is written, so a file may exceed its size by one batch.

    Attributes:
        part_bytes: close a file that has this many bytes; None for no such limit.
        rollover_interval_ms: close a file that was begun this long ago; None for no such limit.
        inactivity_interval_ms: close a file to which nothing was written for this long; None for no such limit.
    """

    part_bytes: int | None = None
    rollover_interval_ms: int | None = None
    inactivity_interval_ms: int | None = None

    @staticmethod
    def default_rolling_policy(
        part_size: int = PART_BYTES,
        rollover_interval: Duration | Time | datetime.timedelta | int = ROLLOVER_MS,
        inactivity_interval: Duration | Time | datetime.timedelta | int = INACTIVITY_MS,
    ) -> DefaultRollingPolicy:
        """Return a policy that closes files by size (bytes), age and inactivity (ints count ms).

        Raises:
            ConfigurationError: if a limit is not positive.
        """
        limits = (part_size, to_millis(rollover_interval), to_millis(inactivity_interval))
        if min(limits) <= 0:
            raise ConfigurationError(f"the limits of a rolling policy must be positive, not {limits}")
        return DefaultRollingPolicy(*limits)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """Return a policy that closes files only at checkpoints."""
        return OnCheckpointRollingPolicy()

    def should_roll(self, size_bytes: int, begun_ms: int, written_ms: int, now_ms: int) -> bool:
        """Return whether to close a file of this size that was begun and last written to at these times."""
        return (
            (self.part_bytes is not None and size_bytes >= self.part_bytes)
            or (self.rollover_interval_ms is not None and now_ms - begun_ms >= self.rollover_interval_ms)
            or (self.inactivity_interval_ms is not None and now_ms - written_ms >= self.inactivity_interval_ms)
        )


@dataclass(frozen=True, slots=True)
class DefaultRollingPolicy(RollingPolicy):
    """Closes files by size, age and inactivity; see `RollingPolicy.default_rolling_policy`."""


@dataclass(frozen=True, slots=True)
class OnCheckpointRollingPolicy(RollingPolicy):
    """Closes files only at checkpoints; see `RollingPolicy.on_checkpoint_rolling_policy`."""


@dataclass(frozen=True, slots=True)
class OutputFileConfig:
    """The names of part files: `{prefix}-{subtask}-{counter}-{run}{suffix}`."""

    part_prefix: str = "part"
    part_suffix: str = ""

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        """Return a builder."""
        return OutputFileConfig.OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """Return the prefix of the names."""
        return self.part_prefix

    def get_part_suffix(self) -> str:
        """Return the suffix of the names."""
        return self.part_suffix

    class OutputFileConfigBuilder:
        """Collects the settings of an `OutputFileConfig`."""

        def __init__(self) -> None:
            self._prefix = "part"
            self._suffix = ""

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Set the prefix of the names.

            Raises:
                ConfigurationError: if it is empty, contains `/`, or begins with `.` or `_`, which would hide the files.
            """
            if not prefix or "/" in prefix or prefix[0] in "._":
                raise ConfigurationError(f"a part prefix must not be empty, contain / or begin with . or _: {prefix!r}")
            self._prefix = prefix
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Set the suffix of the names, such as `.csv`.

            Raises:
                ConfigurationError: if it contains a `/`.
            """
            if "/" in suffix:
                raise ConfigurationError(f"a part suffix must not contain /: {suffix!r}")
            self._suffix = suffix
            return self

        def build(self) -> OutputFileConfig:
            """Build the configuration."""
            return OutputFileConfig(self._prefix, self._suffix)
