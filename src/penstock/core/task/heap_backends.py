"""The backends of a worker that keeps all keyed state on the heap."""

from __future__ import annotations

from penstock.core.protocol import ExecutionId
from penstock.state.backend import KeyedStateBackend
from penstock.state.heap import HeapKeyedStateBackend


class HeapBackends:
    """Creates heap backends; implements the port `KeyedBackends`."""

    def make(
        self, execution: ExecutionId, operator_id: str, owner: str, max_parallelism: int, key_groups: tuple[int, int]
    ) -> KeyedStateBackend:
        """Create a backend on the heap."""
        return HeapKeyedStateBackend(max_parallelism, owner)
