"""Latency markers from sources of simulated jobs: where requested, half of the jobs send them.

Markers change the steps of a history, so a seed that once found a bug keeps its history without them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_asked = ContextVar("asked", default=False)


@contextmanager
def with_latency_markers(enabled: bool = True) -> Iterator[None]:
    """Make half of the jobs begun within the block send latency markers."""
    token = _asked.set(enabled)
    try:
        yield
    finally:
        _asked.reset(token)


def latency_interval_ms(world: str) -> int:
    """Return how often the sources of a world's jobs send a marker (ms); 0 for never."""
    own = random.Random(f"latency markers of {world}")
    return own.choice((1, 5, 50)) if _asked.get() and own.random() < 0.5 else 0
