"""How often Python looks for cycles among objects in the processes that run tasks."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: Objects made before Python looks for cycles among them.
GC_THRESHOLD = 200_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python look for cycles less often: batches are many objects that live for a moment, and hold none."""
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
