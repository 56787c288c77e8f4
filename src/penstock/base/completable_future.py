"""The future returned by asynchronous calls of the job client."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from typing import TypeVar

__all__ = ["CompletableFuture"]

T = TypeVar("T")


class CompletableFuture(Future[T]):
    """A `concurrent.futures.Future` that its creator completes; the first completion wins.

    Readers use `result(timeout_seconds)`, `exception`, `done`, `cancel`, `cancelled` as on any future.
    """

    def complete(self, value: T) -> bool:
        """Set the result; return False if the future was already done."""
        try:
            self.set_result(value)
        except InvalidStateError:
            return False
        return True

    def complete_exceptionally(self, error: BaseException) -> bool:
        """Set the error that `result` raises; return False if the future was already done."""
        try:
            self.set_exception(error)
        except InvalidStateError:
            return False
        return True
