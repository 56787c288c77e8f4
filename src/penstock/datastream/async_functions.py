"""Functions that wait for somebody else's answer, and when they ask again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from penstock.common.errors import CallTimeoutError
from penstock.datastream.function import Function


class AsyncFunction(Function, ABC):
    """Asks something outside of the job about each record, many records at a time; for `AsyncDataStream`.

    `async_invoke` runs on the worker's event loop, one thread for all asynchronous functions there: what blocks that
    thread stops all of them. `open`, `close` and `timeout` run on the thread of the task, where no event loop is, so
    a client that belongs to an event loop is made by the first `async_invoke`.

    A record's call may be made again: after a failure of the job, or as a retry. Let it be harmless.
    """

    @abstractmethod
    async def async_invoke(self, value: Any) -> list[Any]:
        """The records to emit for one record, none or many. Raising fails the job, unless it is retried."""

    def timeout(self, value: Any) -> list[Any]:
        """The records to emit for a record whose time is over; by default the job fails with a TimeoutError."""
        raise CallTimeoutError("the asynchronous call took too long; override timeout() to emit something instead")


class AsyncRetryPredicate(ABC):
    """When a call is made again: what its results, or its exception, must be like."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[Any]], bool] | None:
        """Whether to repeat a call for its results; None: never."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """Whether to repeat a call for its exception; None: never."""


class AsyncRetryStrategy(ABC):
    """How often a call is made again, and after how long. Attempts are counted from 1, the first call."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Whether another attempt may follow that many."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """How long to wait after that many attempts, in ms."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate:
        """Which calls are repeated at all."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy:
        """Never again."""
        from penstock.datastream.async_retry_strategies import NoRetryStrategy

        return NoRetryStrategy()

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy:
        """Always after the same time; see `FixedDelayRetryStrategy`."""
        from penstock.datastream.async_retry_strategies import FixedDelayRetryStrategy

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
        """After longer and longer; see `ExponentialBackoffDelayRetryStrategy`."""
        from penstock.datastream.async_retry_strategies import ExponentialBackoffDelayRetryStrategy

        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )
