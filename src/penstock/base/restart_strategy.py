"""Restart strategies: frozen descriptions, written to and read from a `Configuration`.

>>> configuration = Configuration()
>>> RestartStrategies.fixed_delay_restart(3, Duration.of_seconds(10)).apply_to(configuration)
>>> read_restart_strategy(configuration).get_description()
'restart at most 3 times, 10 s after each failure'
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from dataclasses import dataclass

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.time import Duration, Time, format_duration, to_millis

__all__ = ["RestartStrategies", "RestartStrategyConfiguration", "read_restart_strategy"]


class RestartStrategyConfiguration(ABC):
    """Describes when a failed job is restarted; immutable.

    Examples:
        >>> from penstock.common import RestartStrategies
        >>> RestartStrategies.fixed_delay_restart(3, 10_000).get_description()
        'restart at most 3 times, 10 s after each failure'
    """

    @abstractmethod
    def get_description(self) -> str:
        """Return a short human-readable description."""

    @abstractmethod
    def apply_to(self, configuration: Configuration) -> None:
        """Write the strategy into a configuration.

        Raises:
            ConfigurationError: if a number of the strategy is out of range; nothing is written then.
        """


@dataclass(frozen=True)
class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
    """Never restarts: the first failure fails the job."""

    def get_description(self) -> str:
        """Return a short description."""
        return "no restart"

    def apply_to(self, configuration: Configuration) -> None:
        """Write the strategy into a configuration."""
        configuration.write(options.RESTART_STRATEGY, "none")


@dataclass(frozen=True)
class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
    """Keeps the configured strategy."""

    def get_description(self) -> str:
        """Return a short description."""
        return "as configured"

    def apply_to(self, configuration: Configuration) -> None:
        """Leave the configuration unchanged."""


@dataclass(frozen=True)
class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
    """A fixed number of restarts, each after the same delay."""

    restart_attempts: int
    delay_ms: int

    def get_restart_attempts(self) -> int:
        """Return the maximum number of restarts."""
        return self.restart_attempts

    def get_delay_between_attempts_interval(self) -> Duration:
        """Return the delay before each restart."""
        return Duration.of_millis(self.delay_ms)

    def get_description(self) -> str:
        """Return a short description."""
        return f"restart at most {self.restart_attempts} times, {format_duration(self.delay_ms)} after each failure"

    def apply_to(self, configuration: Configuration) -> None:
        """Write the strategy into a configuration."""
        part = Configuration()
        part.write(options.RESTART_STRATEGY, "fixed-delay")
        part.write(options.FIXED_DELAY_ATTEMPTS, self.restart_attempts)
        part.write(options.FIXED_DELAY_MS, Duration.of_millis(self.delay_ms))
        configuration.add_all(part)


@dataclass(frozen=True)
class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
    """Restarts as long as there are not too many failures within an interval."""

    max_failure_rate: int
    failure_interval_ms: int
    delay_ms: int

    def get_max_failure_rate(self) -> int:
        """Return how many failures within the interval lead to a restart."""
        return self.max_failure_rate

    def get_failure_interval(self) -> Duration:
        """Return the interval over which failures are counted."""
        return Duration.of_millis(self.failure_interval_ms)

    def get_delay_between_attempts_interval(self) -> Duration:
        """Return the delay before each restart."""
        return Duration.of_millis(self.delay_ms)

    def get_description(self) -> str:
        """Return a short description."""
        rate = f"{self.max_failure_rate} failures in {format_duration(self.failure_interval_ms)}"
        return f"restart up to {rate}, {format_duration(self.delay_ms)} after each failure"

    def apply_to(self, configuration: Configuration) -> None:
        """Write the strategy into a configuration."""
        part = Configuration()
        part.write(options.RESTART_STRATEGY, "failure-rate")
        part.write(options.FAILURE_RATE_MAX_FAILURES, self.max_failure_rate)
        part.write(options.FAILURE_RATE_INTERVAL_MS, Duration.of_millis(self.failure_interval_ms))
        part.write(options.FAILURE_RATE_DELAY_MS, Duration.of_millis(self.delay_ms))
        configuration.add_all(part)


@dataclass(frozen=True)
class ExponentialDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
    """Restarts after a delay that grows with each failure, until the job has run without failure for long enough."""

    initial_backoff_ms: int
    max_backoff_ms: int
    backoff_multiplier: float
    reset_backoff_threshold_ms: int
    jitter_factor: float
    attempts_before_reset_backoff: int

    def get_description(self) -> str:
        """Return a short description."""
        span = f"{format_duration(self.initial_backoff_ms)} to {format_duration(self.max_backoff_ms)}"
        return f"restart after {span}, times {self.backoff_multiplier} with each failure"

    def apply_to(self, configuration: Configuration) -> None:
        """Write the strategy into a configuration."""
        part = Configuration()
        part.write(options.RESTART_STRATEGY, "exponential-delay")
        part.write(options.EXPONENTIAL_INITIAL_BACKOFF_MS, Duration.of_millis(self.initial_backoff_ms))
        part.write(options.EXPONENTIAL_MAX_BACKOFF_MS, Duration.of_millis(self.max_backoff_ms))
        part.write(options.EXPONENTIAL_MULTIPLIER, self.backoff_multiplier)
        part.write(options.EXPONENTIAL_RESET_THRESHOLD_MS, Duration.of_millis(self.reset_backoff_threshold_ms))
        part.write(options.EXPONENTIAL_JITTER_FACTOR, self.jitter_factor)
        part.write(options.EXPONENTIAL_ATTEMPTS_MAX, self.attempts_before_reset_backoff)
        configuration.add_all(part)


class RestartStrategies:
    """Creates restart strategies. Delays and intervals are durations, or ints in milliseconds.

    Examples:
        >>> from penstock.common import Duration, RestartStrategies
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, Duration.of_seconds(10)))
        >>> env.get_configuration().get_integer("restart-strategy.fixed-delay.attempts", 0)
        3
    """

    NoRestartStrategyConfiguration = NoRestartStrategyConfiguration
    FallbackRestartStrategyConfiguration = FallbackRestartStrategyConfiguration
    FixedDelayRestartStrategyConfiguration = FixedDelayRestartStrategyConfiguration
    FailureRateRestartStrategyConfiguration = FailureRateRestartStrategyConfiguration
    ExponentialDelayRestartStrategyConfiguration = ExponentialDelayRestartStrategyConfiguration

    @staticmethod
    def no_restart() -> RestartStrategyConfiguration:
        """Never restart: the first failure fails the job."""
        return NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> RestartStrategyConfiguration:
        """Use the configured strategy."""
        return FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: Duration | Time | datetime.timedelta | int
    ) -> RestartStrategyConfiguration:
        """Restart at most `restart_attempts` times, each after the same delay."""
        return FixedDelayRestartStrategyConfiguration(restart_attempts, to_millis(delay_between_attempts))

    @staticmethod
    def failure_rate_restart(
        failure_rate: int,
        failure_interval: Duration | Time | datetime.timedelta | int,
        delay_interval: Duration | Time | datetime.timedelta | int,
    ) -> RestartStrategyConfiguration:
        """Restart after the same delay each time, up to `failure_rate` failures within the interval."""
        return FailureRateRestartStrategyConfiguration(
            failure_rate, to_millis(failure_interval), to_millis(delay_interval)
        )

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: Duration | Time | datetime.timedelta | int = 1_000,
        max_backoff: Duration | Time | datetime.timedelta | int = 60_000,
        backoff_multiplier: float = 1.5,
        reset_backoff_threshold: Duration | Time | datetime.timedelta | int = 3_600_000,
        jitter_factor: float = 0.1,
        attempts_before_reset_backoff: int = 2**31 - 1,
    ) -> RestartStrategyConfiguration:
        """Restart after a delay that grows to a maximum, and resets after enough time without failure.

        Args:
            initial_backoff: the first delay.
            max_backoff: the longest delay.
            backoff_multiplier: the factor by which the delay grows, at least 1.
            reset_backoff_threshold: how long the job must run without failure before the delay resets to the first.
            jitter_factor: the fraction of the delay by which it varies at random, 0 to 1.
            attempts_before_reset_backoff: how many restarts in a row before the job fails for good.
        """
        return ExponentialDelayRestartStrategyConfiguration(
            to_millis(initial_backoff),
            to_millis(max_backoff),
            backoff_multiplier,
            to_millis(reset_backoff_threshold),
            jitter_factor,
            attempts_before_reset_backoff,
        )


def read_restart_strategy(configuration: Configuration) -> RestartStrategyConfiguration:
    """Return the strategy that a configuration selects, never the fallback.

    Without `restart-strategy.type`, it is exponential delay if checkpointing is on, otherwise no restart.

    Raises:
        ConfigurationError: if an option of the strategy has an invalid value.
    """
    read = configuration.read
    kind = read(options.RESTART_STRATEGY)
    if kind is None:
        kind = "none" if read(options.CHECKPOINTING_INTERVAL_MS) is None else "exponential-delay"
    if kind == "fixed-delay":
        return RestartStrategies.fixed_delay_restart(read(options.FIXED_DELAY_ATTEMPTS), read(options.FIXED_DELAY_MS))
    if kind == "failure-rate":
        return RestartStrategies.failure_rate_restart(
            read(options.FAILURE_RATE_MAX_FAILURES),
            read(options.FAILURE_RATE_INTERVAL_MS),
            read(options.FAILURE_RATE_DELAY_MS),
        )
    if kind == "exponential-delay":
        return RestartStrategies.exponential_delay_restart(
            read(options.EXPONENTIAL_INITIAL_BACKOFF_MS),
            read(options.EXPONENTIAL_MAX_BACKOFF_MS),
            read(options.EXPONENTIAL_MULTIPLIER),
            read(options.EXPONENTIAL_RESET_THRESHOLD_MS),
            read(options.EXPONENTIAL_JITTER_FACTOR),
            read(options.EXPONENTIAL_ATTEMPTS_MAX),
        )
    return RestartStrategies.no_restart()
