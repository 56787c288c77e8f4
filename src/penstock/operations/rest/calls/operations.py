"""Asynchronous operations: one request starts them, others poll them, until five minutes after they end."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from penstock.operations.rest.calls.errors import RestError, not_found

#: How long (s) the result of an operation is kept (Flink's `rest.async.store-duration`).
KEPT_SECONDS: Final = 300.0
#: The maximum number of operations, pending ones included.
OPERATIONS_MAX: Final = 1_000


@dataclass
class _Operation:
    future: Future[Any]
    #: when it was first seen to have ended (s)
    ended: float | None = None
    #: whether a client has fetched the outcome
    is_told: bool = False


class Operations:
    """Operations by kind, by their subject (a job or other thing), and by id."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._operations: dict[tuple[str, str, str], _Operation] = {}

    def begin(self, kind: str, about: str, begin: Callable[[], Future[Any]], trigger_id: str | None = None) -> str:
        """Start an operation, unless one with this id exists, and return its id.

        An error of `begin` becomes the operation's result, as in Flink: a savepoint of an unknown job is accepted, and
        polling it returns the failure.
        """
        trigger_id = (trigger_id or secrets.token_hex(16)).lower()
        key = (kind, about, trigger_id)
        with self._lock:
            self._forget()
            if key in self._operations:
                return trigger_id
            if len(self._operations) >= OPERATIONS_MAX:
                raise RestError(429, f"{OPERATIONS_MAX} operations are under way or kept; ask again in a few minutes")
            operation = self._operations[key] = _Operation(Future())
        try:
            future = begin()
        except Exception as error:  # noqa: BLE001 - it is told to whoever asks after the operation
            operation.future.set_exception(error)
        else:
            operation.future = future
        return trigger_id

    def find(self, kind: str, about: str, trigger_id: str) -> Future[Any]:
        """Return the operation's future; 404 if it is unknown or ended too long ago."""
        with self._lock:
            self._forget()
            operation = self._operations.get((kind, about, trigger_id))
        if operation is None:
            raise not_found(f"Operation not found under key: {trigger_id}")
        operation.is_told = operation.future.done()
        return operation.future

    def all_told(self) -> bool:
        """Return whether clients have fetched all outcomes. A server that ends waits briefly for this."""
        with self._lock:
            return all(operation.is_told for operation in self._operations.values())

    def _forget(self) -> None:
        now = self._now()
        for key, operation in list(self._operations.items()):
            if operation.ended is None and operation.future.done():
                operation.ended = now
            elif operation.ended is not None and now >= operation.ended + KEPT_SECONDS:
                del self._operations[key]
