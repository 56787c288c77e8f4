"""Rate limits for sources that generate records: unlimited, a rate, or N records between checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

from penstock.base.errors import ConfigurationError

# How much a source that was delayed by its host may catch up, in ms of its rate.
_CATCH_UP_MS: Final = 1_000
#: How long (ms) a source waits before it checks again whether a checkpoint has completed.
_CHECKPOINT_POLL_MS: Final = 10


class RateLimiter(ABC):
    """Counts the records of one subtask; the reader reports time, records and checkpoints."""

    @abstractmethod
    def allowance(self, now_ms: int) -> int:
        """Return the number of records that may be emitted now."""

    @abstractmethod
    def spend(self, records: int) -> None:
        """Count emitted records."""

    @abstractmethod
    def retry_after_ms(self) -> int:
        """Return the time until a record may be emitted, in ms, at least 1."""

    @abstractmethod
    def share(self, factor: float) -> None:
        """Multiply the even share of the subtask by a factor, because it reads more or fewer splits than others."""

    def begin_at(self, time_ms: int) -> None:  # noqa: B027 - for limits by time
        """Count from an earlier time (ms): no records have been emitted since then."""

    def notify_checkpoint_complete(self) -> None:  # noqa: B027 - most limits do not care
        """Note that a checkpoint has completed."""


class RateLimit(RateLimiter):
    """Limits records to a rate, by a clock that the caller reads.

    Args:
        per_second: the records per second.
        now_ms: the time at which counting begins.
    """

    def __init__(self, per_second: float, now_ms: int) -> None:
        self._even_per_ms = self._per_ms = per_second / 1_000
        self._credit = 0.0
        self._credited_ms = now_ms

    def allowance(self, now_ms: int) -> int:
        """Return the number of records that may be emitted now, including the unused ones of the last second."""
        self._credit += max(now_ms - self._credited_ms, 0) * self._per_ms
        self._credit = min(self._credit, max(self._per_ms * _CATCH_UP_MS, 1.0))
        self._credited_ms = max(now_ms, self._credited_ms)
        return int(self._credit)

    def spend(self, records: int) -> None:
        """Count emitted records."""
        self._credit -= records

    def retry_after_ms(self) -> int:
        """Return the time until a record may be emitted, in ms, at least 1."""
        return max(int((1.0 - self._credit) / self._per_ms) + 1, 1)

    def share(self, factor: float) -> None:
        """See `RateLimiter`."""
        self._per_ms = self._even_per_ms * factor

    def begin_at(self, time_ms: int) -> None:
        """See `RateLimiter`."""
        self._credited_ms = min(self._credited_ms, time_ms)


class CheckpointLimit(RateLimiter):
    """Allows N records, and N more after each completed checkpoint; without checkpoints, it stops after the first N."""

    def __init__(self, per_checkpoint: int) -> None:
        self._even = self._per_checkpoint = per_checkpoint
        self._left = per_checkpoint

    def allowance(self, now_ms: int) -> int:
        """Return the number of records left until the next checkpoint."""
        return self._left

    def spend(self, records: int) -> None:
        """Count emitted records."""
        self._left -= records

    def retry_after_ms(self) -> int:
        """Return a short time: it is unknown when the checkpoint will complete, so the source checks again soon."""
        return _CHECKPOINT_POLL_MS

    def share(self, factor: float) -> None:
        """See `RateLimiter`; at least one record."""
        spent = self._per_checkpoint - self._left
        self._per_checkpoint = max(1, int(self._even * factor))
        self._left = self._per_checkpoint - spent

    def notify_checkpoint_complete(self) -> None:
        """Allow N records again."""
        self._left = self._per_checkpoint


@dataclass(frozen=True, slots=True)
class RateLimiterStrategy:
    """Creates the limiter of each subtask; the limit applies to all subtasks together. Use the static methods.

    Examples:
        >>> from penstock.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
        >>> limit = RateLimiterStrategy.per_second(100)
        >>> source = DataGeneratorSource(str, count=1_000, rate_limiter_strategy=limit)
    """

    records_per_second: float | None = None
    records_per_checkpoint: int | None = None

    @staticmethod
    def per_second(records_per_second: float) -> RateLimiterStrategy:
        """Allow at most this many records per second.

        Raises:
            ConfigurationError: if the rate is not positive.
        """
        if records_per_second <= 0:
            raise ConfigurationError(f"the rate must be positive: {records_per_second}")
        return RateLimiterStrategy(records_per_second=records_per_second)

    @staticmethod
    def per_checkpoint(records_per_checkpoint: int) -> RateLimiterStrategy:
        """Allow at most this many records between two completed checkpoints; they are divided among the subtasks.

        Raises:
            ConfigurationError: if the number is not positive; in the job, if it is below the source's parallelism.
        """
        if records_per_checkpoint <= 0:
            raise ConfigurationError(f"the records per checkpoint must be positive: {records_per_checkpoint}")
        return RateLimiterStrategy(records_per_checkpoint=records_per_checkpoint)

    @staticmethod
    def no_op() -> RateLimiterStrategy:
        """Set no limit."""
        return RateLimiterStrategy()

    def create_rate_limiter(self, parallelism: int, now_ms: int) -> RateLimiter | None:
        """Create the limiter of one of `parallelism` subtasks; None for no limit."""
        if self.records_per_second is not None:
            return RateLimit(self.records_per_second / parallelism, now_ms)
        if self.records_per_checkpoint is not None:
            if self.records_per_checkpoint < parallelism:
                raise ConfigurationError(
                    f"{self.records_per_checkpoint} records per checkpoint are too few for {parallelism} subtasks: "
                    "allow at least one per subtask, or lower the source's parallelism"
                )
            return CheckpointLimit(self.records_per_checkpoint // parallelism)
        return None
