"""Functions that wait for somebody else's answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
