"""Restart strategies: whether, and after how long, a failed job restarts (G8). Pure: failures in, delays out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque

from penstock.base.configuration import Configuration
from penstock.base.options import (
    CHECKPOINTING_INTERVAL_MS,
    EXPONENTIAL_ATTEMPTS_MAX,
    EXPONENTIAL_INITIAL_BACKOFF_MS,
    EXPONENTIAL_JITTER_FACTOR,
    EXPONENTIAL_MAX_BACKOFF_MS,
    EXPONENTIAL_MULTIPLIER,
    EXPONENTIAL_RESET_THRESHOLD_MS,
    FAILURE_RATE_DELAY_MS,
    FAILURE_RATE_INTERVAL_MS,
    FAILURE_RATE_MAX_FAILURES,
    FIXED_DELAY_ATTEMPTS,
    FIXED_DELAY_MS,
    RESTART_STRATEGY,
)


class RestartStrategy(ABC):
    """Decides about restarts from the failures so far."""

    @abstractmethod
    def on_failure(self, now_ms: int) -> int | None:
        """Return the delay (ms) before the job restarts, or None if it must fail."""


class NoRestart(RestartStrategy):
    """Fails the job at the first failure."""

    def on_failure(self, now_ms: int) -> int | None:
        return None


class FixedDelayRestart(RestartStrategy):
    """Allows a number of restarts, each after the same delay."""

    def __init__(self, attempts: int, delay_ms: int) -> None:
        self._left = attempts
        self._delay_ms = delay_ms

    def on_failure(self, now_ms: int) -> int | None:
        if self._left <= 0:
            return None
        self._left -= 1
        return self._delay_ms


class FailureRateRestart(RestartStrategy):
    """Restarts unless there were too many failures within an interval."""

    def __init__(self, failures_max: int, interval_ms: int, delay_ms: int) -> None:
        self._interval_ms = interval_ms
        self._delay_ms = delay_ms
        self._failures_max = failures_max
        self._failures: deque[int] = deque()

    def on_failure(self, now_ms: int) -> int | None:
        failures = self._failures
        failures.append(now_ms)
        while failures[0] <= now_ms - self._interval_ms:
            failures.popleft()
        return self._delay_ms if len(failures) <= self._failures_max else None


class ExponentialDelayRestart(RestartStrategy):
    """Restarts after a delay that grows with each failure and is reset after a time without one."""

    def __init__(
        self, initial_ms: int, max_ms: int, multiplier: float, reset_ms: int, jitter: float, attempts_max: int
    ) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max_ms
        self._multiplier = multiplier
        self._reset_ms = reset_ms
        self._jitter = jitter
        self._attempts_max = attempts_max
        self._next_ms = float(initial_ms)
        self._attempts = 0
        self._last_restart_ms: int | None = None

    def on_failure(self, now_ms: int) -> int | None:
        if self._last_restart_ms is not None and now_ms - self._last_restart_ms >= self._reset_ms:
            self._next_ms, self._attempts = float(self._initial_ms), 0
        if self._attempts >= self._attempts_max:
            return None
        self._attempts += 1
        # Spread the restarts of many jobs without a random source: the time of the failure is random enough.
        spread = (now_ms * 2654435761 % 2001 - 1000) / 1000 * self._jitter
        delay_ms = int(min(self._next_ms, self._max_ms) * (1 + spread))
        self._next_ms = min(self._next_ms * self._multiplier, float(self._max_ms))
        self._last_restart_ms = now_ms + delay_ms
        return delay_ms


def make_restart_strategy(configuration: Configuration) -> RestartStrategy:
    """Return the configured strategy; by default exponential delay if checkpointing is on, otherwise none."""
    kind = configuration.read(RESTART_STRATEGY)
    if kind is None:
        kind = "none" if configuration.read(CHECKPOINTING_INTERVAL_MS) is None else "exponential-delay"
    if kind == "none":
        return NoRestart()
    if kind == "fixed-delay":
        return FixedDelayRestart(configuration.read(FIXED_DELAY_ATTEMPTS), configuration.read(FIXED_DELAY_MS))
    if kind == "failure-rate":
        return FailureRateRestart(
            configuration.read(FAILURE_RATE_MAX_FAILURES),
            configuration.read(FAILURE_RATE_INTERVAL_MS),
            configuration.read(FAILURE_RATE_DELAY_MS),
        )
    return ExponentialDelayRestart(
        configuration.read(EXPONENTIAL_INITIAL_BACKOFF_MS),
        configuration.read(EXPONENTIAL_MAX_BACKOFF_MS),
        configuration.read(EXPONENTIAL_MULTIPLIER),
        configuration.read(EXPONENTIAL_RESET_THRESHOLD_MS),
        configuration.read(EXPONENTIAL_JITTER_FACTOR),
        configuration.read(EXPONENTIAL_ATTEMPTS_MAX),
    )
