"""Functions that wait for the answer of an external service."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock.base.errors import CallTimeoutError
from penstock.datastream.function import Function, Subscripted


class AsyncFunction(Subscripted, Function, ABC):
    """Asks an external service about each record, many records at a time; for `AsyncDataStream`.

    `async_invoke` runs on the worker's event loop, one thread for all asynchronous functions there: a call that blocks
    that thread stops all of them. `open`, `close` and `timeout` run on the task's thread, which has no event loop.
    Create a client that belongs to an event loop in the first `async_invoke`.

    A record's call may be repeated, after a failure of the job or as a retry, so make it safe to repeat.
    """

    @abstractmethod
    async def async_invoke(self, value: Any) -> list[Any] | None:
        """The records to emit for one record, in a list; None for no records.

        An exception fails the job unless the call is retried.
        """

    def timeout(self, value: Any) -> list[Any] | None:
        """The records to emit for a record that timed out, as above; by default the job fails with a TimeoutError."""
        raise CallTimeoutError("the asynchronous call took too long; override timeout() to emit something instead")
