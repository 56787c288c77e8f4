"""Runs Python's cycle collector once for each restart.

Penstock's tasks release their parts when they end, so they leave no cycles. User-defined functions may, for example
with `self.handlers = {"a": self.on_a}`. Python's collector runs after many allocations, so a few large objects, such as
a model that every attempt loads, may stay for hours. A collection takes about 0.1 s for 1,000,000 objects.
"""

from __future__ import annotations

import gc
from collections.abc import Callable


class EndedTasks:
    """Implements the port `CycleCollector`. The executors of a local cluster share one, so it runs once per restart.

    Args:
        collect: frees reference cycles.
    """

    def __init__(self, collect: Callable[[], object] = gc.collect) -> None:
        self._collect = collect
        self._has_ended_tasks = False

    def note(self) -> None:
        """Note that tasks have ended, which may have left cycles."""
        self._has_ended_tasks = True

    def collect(self) -> None:
        """Free cycles if tasks have ended since the last call."""
        if self._has_ended_tasks:
            self._has_ended_tasks = False
            self._collect()
