"""How often Python looks for reference cycles in the processes that run tasks."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: The number of new objects after which Python looks for cycles.
GC_THRESHOLD = 200_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Make Python look for cycles less often: batches consist of many short-lived objects without cycles."""
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
