"""Strategies for how often, and after which delay, asynchronous calls are repeated.

`max_attempts` counts the calls that may be followed by another one: with 3, a record's fourth call is its last. The
predicates select the calls to repeat; None means that calls are not repeated for that reason. If the reason persists
after the last call, the results of that call are used anyway, or its exception fails the job.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from penstock.base.errors import WrongValueError
from penstock.datastream.function import Subscripted

__all__ = [
    "ExponentialBackoffDelayRetryStrategy",
    "FixedDelayRetryStrategy",
    "NoRetryStrategy",
    "RetryPredicate",
]

_OfResult = Callable[[list[Any]], bool] | None
_OfException = Callable[[Exception], bool] | None


class AsyncRetryPredicate(Subscripted, ABC):
    """The results and exceptions that cause a call to be repeated.

    Examples:
        >>> from penstock.datastream import AsyncRetryPredicate
        >>> class IfEmpty(AsyncRetryPredicate):
        ...     def result_predicate(self):
        ...         return lambda results: not results
        ...     def exception_predicate(self):
        ...         return None
        >>> IfEmpty().result_predicate()([])
        True
    """

    @abstractmethod
    def result_predicate(self) -> Callable[[list[Any]], bool] | None:
        """Return the function that decides whether to repeat a call for its results; None: never."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """Return the function that decides whether to repeat a call for its exception; None: never."""


class AsyncRetryStrategy(Subscripted, ABC):
    """Decides how often a call is repeated, and after which delay. Attempts are counted from 1, the first call.

    Examples:
        >>> from penstock.datastream import AsyncRetryStrategy
        >>> thrice = AsyncRetryStrategy.fixed_delay(3, 100, lambda results: not results, None)
        >>> thrice.can_retry(3), thrice.can_retry(4), thrice.get_backoff_time_millis(1)
        (True, False, 100)
    """

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Return whether another attempt may follow `current_attempts` attempts."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return how long to wait after `current_attempts` attempts, in ms."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate:
        """Return the predicate that selects the calls to repeat."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy:
        """Create a strategy that never repeats a call."""
        return NoRetryStrategy()

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy:
        """Create a strategy that repeats calls after a fixed delay; see `FixedDelayRetryStrategy`."""
        return FixedDelayRetryStrategy(max_attempts, backoff_time_millis, result_predicate, exception_predicate)

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy:
        """Create a strategy that repeats calls after a growing delay; see `ExponentialBackoffDelayRetryStrategy`."""
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


class RetryPredicate(AsyncRetryPredicate):
    """A predicate made of two functions.

    Examples:
        >>> from penstock.datastream.async_retry_strategies import RetryPredicate
        >>> predicate = RetryPredicate(lambda results: not results, None)
        >>> predicate.result_predicate()([]), predicate.exception_predicate() is None
        (True, True)
    """

    def __init__(self, result_predicate: _OfResult, exception_predicate: _OfException) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> _OfResult:
        """Return the function that decides whether to repeat a call for its results; None: never."""
        return self._result_predicate

    def exception_predicate(self) -> _OfException:
        """Return the function that decides whether to repeat a call for its exception; None: never."""
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy):
    """Makes each call only once.

    Examples:
        >>> from penstock.datastream.async_retry_strategies import NoRetryStrategy
        >>> NoRetryStrategy().can_retry(1)
        False
    """

    def can_retry(self, current_attempts: int) -> bool:
        """Never."""
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return -1, because no call is repeated."""
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        """Return a predicate that repeats no call."""
        return RetryPredicate(None, None)


class _LimitedRetryStrategy(AsyncRetryStrategy):
    def __init__(self, max_attempts: int, result_predicate: _OfResult, exception_predicate: _OfException) -> None:
        _require_positive("max_attempts", max_attempts)
        self._max_attempts = max_attempts
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        """Return whether at most `max_attempts` attempts have been made."""
        return current_attempts <= self._max_attempts

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        """Return the two predicates passed to the strategy."""
        return self._predicate


class FixedDelayRetryStrategy(_LimitedRetryStrategy):
    """Repeats a call after a fixed delay.

    Args:
        max_attempts: how many calls of a record may be followed by another one.
        backoff_time_millis: how long to wait before that one, in ms.
        result_predicate: whether to repeat a call for its results.
        exception_predicate: whether to repeat a call for its exception.

    Raises:
        ValueError: if a number is not greater than 0.

    Examples:
        >>> from penstock.datastream.async_retry_strategies import FixedDelayRetryStrategy
        >>> strategy = FixedDelayRetryStrategy(3, 100, lambda results: not results, None)
        >>> strategy.can_retry(3), strategy.can_retry(4)
        (True, False)
    """

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: _OfResult,
        exception_predicate: _OfException,
    ) -> None:
        super().__init__(max_attempts, result_predicate, exception_predicate)
        _require_positive("backoff_time_millis", backoff_time_millis)
        self._backoff_time_millis = backoff_time_millis

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return the fixed delay."""
        return self._backoff_time_millis


class ExponentialBackoffDelayRetryStrategy(_LimitedRetryStrategy):
    """Repeats a call after a delay that grows with each attempt.

    Args:
        max_attempts: how many calls of a record may be followed by another one.
        initial_delay: how long to wait before the second call, in ms.
        max_retry_delay: the longest wait before any later call, in ms.
        multiplier: the factor from each delay to the next.
        result_predicate: whether to repeat a call for its results.
        exception_predicate: whether to repeat a call for its exception.

    Raises:
        ValueError: if a number is not greater than 0.

    Examples:
        >>> from penstock.datastream.async_retry_strategies import ExponentialBackoffDelayRetryStrategy
        >>> strategy = ExponentialBackoffDelayRetryStrategy(5, 100, 1_000, 2.0, None, lambda error: True)
        >>> [strategy.get_backoff_time_millis(attempt) for attempt in (1, 2, 3, 5)]
        [100, 200, 400, 1000]
    """

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: _OfResult,
        exception_predicate: _OfException,
    ) -> None:
        super().__init__(max_attempts, result_predicate, exception_predicate)
        _require_positive("initial_delay", initial_delay)
        _require_positive("max_retry_delay", max_retry_delay)
        _require_positive("multiplier", multiplier)
        self._initial_delay = initial_delay
        self._max_retry_delay = max_retry_delay
        self._multiplier = multiplier

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return the initial delay, multiplied once per attempt after the first and capped at the maximum."""
        if current_attempts <= 1:
            return self._initial_delay
        try:
            return int(min(self._initial_delay * self._multiplier ** (current_attempts - 1), self._max_retry_delay))
        except OverflowError:
            return self._max_retry_delay


def _require_positive(name: str, value: float) -> None:
    if value <= 0:
        raise WrongValueError(f"{name} must be above 0, not {value}")
