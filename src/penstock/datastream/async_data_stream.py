"""Asynchronous functions on a stream: many concurrent calls to an external service (PyFlink's AsyncDataStream).

`docs/async.md` describes the guarantees, and the behaviour at timeouts, retries, checkpoints and the end of input.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.base.time import Duration, Time, to_millis
from penstock.base.typeinfo import TypeInformation
from penstock.datastream.async_retry_strategies import AsyncRetryStrategy, NoRetryStrategy
from penstock.datastream.data_stream import DataStream
from penstock.plan.transformation import Transformation, Upstream, declared
from penstock.runtime.operators.calls import AsyncWaitOperator

__all__ = ["AsyncDataStream"]


class AsyncDataStream:
    """Applies an `AsyncFunction`, or a plain `async def` function that returns a list, to a stream.

    In every method, `timeout` limits the time for a record, including its retries: a `Time`, a `Duration`, or ms. 0 or
    None means no limit. `capacity` limits the records of a subtask that may be in progress; a subtask that reaches it
    takes no more input.

    Raises:
        TypeError: if the function is not asynchronous.
        ValueError: if the capacity is below 1, the timeout below 0, or if there are retries but no timeout.

    Examples:
        >>> from penstock.datastream import AsyncDataStream, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> async def price(drink):
        ...     return [(drink, len(drink))]
        >>> drinks = env.from_elements("tea", "milk")
        >>> AsyncDataStream.ordered_wait(drinks, price, timeout=1_000).collect()
        [('tea', 3), ('milk', 4)]
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: Any,
        timeout: Time | Duration | int | None,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Emit results as they arrive, but never let one pass a watermark.

        Args:
            data_stream: the stream whose records the function gets.
            async_function: an `AsyncFunction`, or an `async def` function that returns a list.
            timeout: the longest time for a record: ms, a `Time` or a `Duration`; 0 or None for no limit.
            capacity: how many records of a subtask may be in progress, at least 1.
            output_type: the type of the results; None if it is not declared.

        Examples:
            >>> sorted(AsyncDataStream.unordered_wait(drinks, price, timeout=1_000, capacity=10).collect())
            [('milk', 4), ('tea', 3)]
        """
        return _transform(data_stream, async_function, False, timeout, NoRetryStrategy(), capacity, output_type)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: Any,
        timeout: Time | Duration | int | None,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Emit results in the order of their records: a slow call delays the results after it.

        Args:
            data_stream: the stream whose records the function gets.
            async_function: an `AsyncFunction`, or an `async def` function that returns a list.
            timeout: the longest time for a record: ms, a `Time` or a `Duration`; 0 or None for no limit.
            capacity: how many records of a subtask may be in progress, at least 1.
            output_type: the type of the results; None if it is not declared.

        Examples:
            >>> AsyncDataStream.ordered_wait(drinks, price, timeout=1_000).collect()
            [('tea', 3), ('milk', 4)]
        """
        return _transform(data_stream, async_function, True, timeout, NoRetryStrategy(), capacity, output_type)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: Any,
        timeout: Time | Duration | int | None,
        async_retry_strategy: AsyncRetryStrategy,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Like `unordered_wait`, but repeat the calls that the strategy's predicates select."""
        return _transform(data_stream, async_function, False, timeout, async_retry_strategy, capacity, output_type)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: Any,
        timeout: Time | Duration | int | None,
        async_retry_strategy: AsyncRetryStrategy,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Like `ordered_wait`, but repeat the calls that the strategy's predicates select."""
        return _transform(data_stream, async_function, True, timeout, async_retry_strategy, capacity, output_type)


def is_asynchronous(function: Any) -> bool:
    """Return whether calling the function, or its `async_invoke`, returns a coroutine."""
    called = getattr(function, "async_invoke", function)
    return inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(type(called).__call__)


def _transform(
    stream: DataStream,
    function: Any,
    is_ordered: bool,
    timeout: Time | Duration | int | None,
    strategy: AsyncRetryStrategy,
    capacity: int,
    output_type: TypeInformation | None,
) -> DataStream:
    if not is_asynchronous(function):
        named = getattr(function, "__name__", type(function).__name__)
        raise WrongTypeError(
            f"{named} is not asynchronous: write its async_invoke, or the function itself, as `async def`"
        )
    timeout_ms = 0 if timeout is None else to_millis(timeout)
    if timeout_ms < 0:
        raise WrongValueError(f"the timeout of an asynchronous function must be 0 (none) or above, not {timeout_ms} ms")
    if capacity < 1:
        raise WrongValueError(f"the capacity of an asynchronous function must be at least 1, not {capacity}")
    retries = None if isinstance(strategy, NoRetryStrategy) else strategy
    if retries is not None and not timeout_ms:
        raise WrongValueError(
            "retries of an asynchronous function need a timeout: it bounds how long a record may take"
        )
    factory = partial(AsyncWaitOperator, function, is_ordered, timeout_ms, capacity, retries)
    transformation = Transformation(
        "Async Wait", declared(factory, output_type), stream.upstreams, is_stateful=True, output_type=output_type
    )
    stream.get_execution_environment().add(transformation)
    return DataStream(stream.get_execution_environment(), (Upstream(transformation),))
