"""The superstep of a vertex-centric iteration."""

from __future__ import annotations

from typing import Any

from penstock.gelly.base.elements import EdgeDirection
from penstock.gelly.pregel.functions import ComputeFunction, MessageCombiner
from penstock.gelly.supersteps.model import Model, each
from penstock.gelly.supersteps.partition import Box, Partition, merged


class VertexCentric(Model):
    """Computes, then sends. Messages belong to the next superstep."""

    name = "Vertex-centric Iteration"
    settles = False

    def __init__(self, compute: ComputeFunction, combiner: Any) -> None:
        self.functions = {"compute": compute}
        self._compute = compute
        self._combiner = combiner
        self._inbox: Box = {}

    def set_up(self, partition: Partition, direction: EdgeDirection) -> None:
        """Set up the model with a complete partition."""
        super().set_up(partition, direction)
        self._compute._outboxes = self.outboxes

    def send(self) -> list[Box | None]:
        """Compute each active vertex."""
        compute, partition, inbox = self._compute, self.partition, self._inbox
        edges, ids, values = partition.out_edges, partition.ids, partition.values

        def call(position: int) -> None:
            compute._edges = edges[position]
            compute._new_value = None
            compute.compute(partition.vertex(position), inbox.get(ids[position], ()))
            if compute._new_value is not None:
                values[position] = compute._new_value[0]

        compute.pre_superstep()
        each(call, self.active, self.operator_name, partition.vertex)
        compute.post_superstep()
        return self.outboxes.take(self._combine if self._combiner is not None else None)

    def receive(self, boxes: list[Box | None]) -> None:
        """Activate the vertices that received messages."""
        self._inbox = merged(boxes, self._combine if self._combiner is not None else None)
        index = self.partition.index
        self.active = [index[target] for target in self._inbox if target in index]

    def _combine(self, messages: list[Any]) -> list[Any]:
        combiner = self._combiner
        if not isinstance(combiner, MessageCombiner):
            return [combiner(messages)]
        combiner._combined = []
        combiner.combine_messages(messages)
        return combiner._combined
