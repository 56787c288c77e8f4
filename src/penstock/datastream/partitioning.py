"""Partitioning: how records travel from the subtasks of one operator to the next operator's (A2, B1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.operators.record.stateless import method
from penstock.core.task.channels.custom_partitioner import CustomPartitioner
from penstock.core.task.channels.partitioners import (
    ForwardPartitioner,
    GlobalPartitioner,
    Partitioner,
    RebalancePartitioner,
    RescalePartitioner,
    ShufflePartitioner,
)
from penstock.datastream.environment import StreamT
from penstock.datastream.functions import Partitioner as PartitionerFunction
from penstock.datastream.stream import Stream


class Partitioning(Stream[StreamT]):
    """A stream that can be repartitioned for the next operator."""

    def _partitioned(self, partitioner: Partitioner) -> StreamT:
        return self._environment.build_stream(self._partition_upstreams(partitioner), self._type_info)

    def rebalance(self) -> StreamT:
        """Distribute records evenly, round robin."""
        return self._partitioned(RebalancePartitioner())

    def rescale(self) -> StreamT:
        """Distribute records round robin within groups: each subtask of the side with fewer subtasks has its own group.

        From parallelism 2 to 4, the first subtask feeds the first two subtasks and the second feeds the others; from 4
        to 2, each of the two reads from its own two. This is cheaper than `rebalance`, but balances the load within a
        group only.
        """
        return self._partitioned(RescalePartitioner())

    def shuffle(self) -> StreamT:
        """Send each record to a random subtask, uniformly. Each sender draws the same random numbers in every run."""
        return self._partitioned(ShufflePartitioner())

    def partition_custom(
        self, partitioner: PartitionerFunction | Callable[[Any, int], int], key_selector: Any
    ) -> StreamT:
        """Send each record to the subtask that a `Partitioner`, or a function of (key, number of subtasks), returns."""
        selector: Callable[[Any], Any] = method(key_selector, "get_key")
        return self._partitioned(CustomPartitioner(partitioner, selector))

    def forward(self) -> StreamT:
        """Send records from subtask i to subtask i; both sides must have the same parallelism."""
        return self._partitioned(ForwardPartitioner())

    def global_(self) -> StreamT:
        """Send every record to the first subtask."""
        return self._partitioned(GlobalPartitioner())
