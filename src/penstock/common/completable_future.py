"""The future that asynchronous calls of the job client return."""

from penstock.base.completable_future import (
    CompletableFuture,
)

__all__ = [
    "CompletableFuture",
]
