"""The superstep of a scatter-gather iteration."""

from __future__ import annotations

from typing import Any

from penstock.base.errors import WrongValueError
from penstock.gelly.base.elements import Edge, EdgeDirection
from penstock.gelly.spargel.functions import GatherFunction, ScatterFunction
from penstock.gelly.supersteps.model import Model, each
from penstock.gelly.supersteps.partition import Box, Partition, merged


class ScatterGather(Model):
    """Sends, then updates."""

    name = "Scatter-gather Iteration"

    def __init__(self, scatter: ScatterFunction, gather: GatherFunction, with_degrees: bool) -> None:
        self.functions = {"scatter": scatter, "gather": gather}
        self._scatter = scatter
        self._gather = gather
        self._with_degrees = with_degrees

    def set_up(self, partition: Partition, direction: EdgeDirection) -> None:
        """Set up the model with a complete partition."""
        super().set_up(partition, direction)
        self._scatter._outboxes = self.outboxes
        self._neighbours = collect_neighbours(partition, direction)

    def send(self) -> list[Box | None]:
        """Let the active vertices send."""
        scatter, partition, neighbours = self._scatter, self.partition, self._neighbours

        def call(position: int) -> None:
            scatter._neighbours = neighbours[position]
            self._tell_degrees(scatter, position)
            scatter.send_messages(partition.vertex(position))

        scatter.pre_superstep()
        each(call, self.active, self.operator_name, partition.vertex)
        scatter.post_superstep()
        return self.outboxes.take(None)

    def receive(self, boxes: list[Box | None]) -> None:
        """Update the vertices that received messages."""
        gather, partition, values = self._gather, self.partition, self.partition.values
        inbox, index = merged(boxes, None), self.partition.index
        active: list[int] = []

        def call(target: Any) -> None:
            position = index.get(target)
            if position is None:
                raise WrongValueError(f"a message was sent to vertex {target!r}, which is not in the graph")
            gather._new_value = None
            self._tell_degrees(gather, position)
            gather.update_vertex(partition.vertex(position), inbox[target])
            if gather._new_value is not None:
                values[position] = gather._new_value[0]
                active.append(position)

        gather.pre_superstep()
        each(call, inbox, self.operator_name, lambda target: target)
        gather.post_superstep()
        self.active = active

    def _tell_degrees(self, function: ScatterFunction | GatherFunction, position: int) -> None:
        if self._with_degrees:
            function._in_degree = len(self.partition.in_edges[position])
            function._out_degree = len(self.partition.out_edges[position])


def collect_neighbours(partition: Partition, direction: EdgeDirection) -> list[list[tuple[Edge, Any]]]:
    """Return the edges of each vertex in a direction, each with the id at its other end."""
    nothing: list[list[Edge]] = [[]] * len(partition)
    outgoing = partition.out_edges if direction is not EdgeDirection.IN else nothing
    incoming = partition.in_edges if direction is not EdgeDirection.OUT else nothing
    return [
        [(edge, edge[1]) for edge in leaving] + [(edge, edge[0]) for edge in coming]
        for leaving, coming in zip(outgoing, incoming, strict=True)
    ]
