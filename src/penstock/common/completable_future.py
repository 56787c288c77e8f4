"""The future that asynchronous calls of the job client return."""

from penstock.base.job import (
    CompletableFuture,
)

__all__ = [
    "CompletableFuture",
]
