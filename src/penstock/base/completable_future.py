"""The future that asynchronous calls of the job client return."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from typing import TypeVar

__all__ = ["CompletableFuture"]

T = TypeVar("T")


class CompletableFuture(Future[T]):
    """A `concurrent.futures.Future` that its maker completes; the first completion counts.

    Readers use `result(timeout_seconds)`, `exception`, `done`, `cancel`, `cancelled` as on any future.
    """

    def complete(self, value: T) -> bool:
        """Sets the result; False when the future was done already."""
        try:
            self.set_result(value)
        except InvalidStateError:
            return False
        return True

    def complete_exceptionally(self, error: BaseException) -> bool:
        """Sets the error that `result` raises; False when the future was done already."""
        try:
            self.set_exception(error)
        except InvalidStateError:
            return False
        return True
