"""Base classes of user-defined functions: `Function`, and `AsyncFunction`, which waits for an external service."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import GenericAlias
from typing import Any

from penstock.base.errors import CallTimeoutError
from penstock.runtime.operators.function_context import RuntimeContext


class Function:
    """Base class of user-defined functions. `open` runs before the first record, `close` at the end on every path.

    Examples:
        >>> from penstock.datastream import MapFunction
        >>> from penstock.testing import harness_for
        >>> class Numbered(MapFunction):
        ...     def open(self, runtime_context):
        ...         self.subtask = runtime_context.get_index_of_this_subtask()
        ...     def map(self, value):
        ...         return self.subtask, value
        >>> with harness_for(Numbered()) as harness:
        ...     harness.process("tea")
        ...     harness.values
        [(0, 'tea')]
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Prepare the function: look up state, open connections. Runs on the worker, once per subtask and attempt."""

    def close(self) -> None:
        """Release the resources that `open` acquired."""


class Subscripted:
    """A class that accepts type arguments, like PyFlink's `AsyncFunction[Row, str]`, and ignores them."""

    __slots__ = ()

    def __class_getitem__(cls, types: Any) -> GenericAlias:
        return GenericAlias(cls, types)


class AsyncFunction(Subscripted, Function, ABC):
    """Queries an external service about each record, many records concurrently; for `AsyncDataStream`.

    `async_invoke` runs on the worker's event loop, one thread for all asynchronous functions there: a call that blocks
    that thread stops all of them. `open`, `close` and `timeout` run on the task's thread, which has no event loop.
    Create a client that belongs to an event loop in the first `async_invoke`.

    A record's call may be repeated, after a failure of the job or as a retry, so make it safe to repeat.

    Examples:
        >>> from penstock.datastream import AsyncFunction
        >>> from penstock.testing import harness_for
        >>> class Price(AsyncFunction):
        ...     async def async_invoke(self, value):
        ...         return [(value, len(value))]
        >>> with harness_for(Price()) as harness:
        ...     harness.process("tea")
        ...     harness.end()
        ...     harness.values
        [('tea', 3)]
    """

    @abstractmethod
    async def async_invoke(self, value: Any) -> list[Any] | None:
        """Return the records to emit for one record, in a list; None for no records.

        An exception fails the job unless the call is retried.
        """

    def timeout(self, value: Any) -> list[Any] | None:
        """Return the records to emit for a timed-out record, as above; by default, fail the job with a TimeoutError."""
        raise CallTimeoutError("the asynchronous call took too long; override timeout() to emit something instead")
