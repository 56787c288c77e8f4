"""Scatter-gather iterations (signal/collect): active vertices send messages, and vertices that receive any may change.

    class Tell(ScatterFunction):
        def send_messages(self, vertex):
            for edge in self.get_edges():
                self.send_message_to(edge.target, vertex.value + edge.value)

    class TakeLeast(GatherFunction):
        def update_vertex(self, vertex, in_messages):
            least = min(in_messages)
            if least < vertex.value:
                self.set_new_vertex_value(least)

    graph.run_scatter_gather_iteration(Tell(), TakeLeast(), 100)

In superstep 1 all vertices send; later only vertices whose value was set in the previous superstep.

`ScatterGather` is the superstep; the other classes are the functions and settings of an iteration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Self

from penstock.base.errors import WrongTimeError, WrongValueError
from penstock.datastream.data_stream import DataStream
from penstock.gelly.base import Edge, EdgeDirection, Vertex
from penstock.gelly.supersteps import Box, Model, Outboxes, Partition, SuperstepFunction, WithDirection, each, merged


class _WithDegrees(SuperstepFunction):
    _in_degree = -1
    _out_degree = -1

    def get_in_degree(self) -> int:
        """Return the number of incoming edges, or -1 unless the configuration requests degrees (`set_opt_degrees`)."""
        return self._in_degree

    def get_out_degree(self) -> int:
        """Return the number of outgoing edges, or -1 unless the configuration requests degrees (`set_opt_degrees`)."""
        return self._out_degree


class ScatterFunction(_WithDegrees, ABC):
    """Sends the messages of an active vertex.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.spargel import GatherFunction, ScatterFunction
        >>> class Tell(ScatterFunction):
        ...     def send_messages(self, vertex):
        ...         for edge in self.get_edges():
        ...             self.send_message_to(edge.target, vertex.value + edge.value)
        >>> class Take(GatherFunction):
        ...     def update_vertex(self, vertex, in_messages):
        ...         nearest = min(in_messages)
        ...         if nearest < vertex.value:
        ...             self.set_new_vertex_value(nearest)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> vertices = [(1, 0.0), (2, 99.0), (3, 99.0)]
        >>> graph = Graph.from_collection([(1, 2, 4.0), (2, 3, 1.0)], env, vertices)
        >>> far = graph.run_scatter_gather_iteration(Tell(), Take(), 10)
        >>> sorted(far.get_vertices_as_tuple2().collect())
        [(1, 0.0), (2, 4.0), (3, 5.0)]
    """

    #: (the edge, the id at its other end)
    _neighbours: list[tuple[Edge, Any]]
    _outboxes: Outboxes

    @abstractmethod
    def send_messages(self, vertex: Vertex) -> None:
        """Send the messages of an active vertex."""

    def get_edges(self) -> Iterable[Edge]:
        """Return the edges of the vertex in the iteration's direction."""
        return [edge for edge, _ in self._neighbours]

    def send_message_to(self, target: Any, message: Any) -> None:
        """Send a message to the vertex with an id, which must be in the graph."""
        self._outboxes.send(target, message)

    def send_message_to_all_neighbors(self, message: Any) -> None:
        """Send a message along each edge of the vertex in the iteration's direction."""
        send = self._outboxes.send
        for _, neighbour in self._neighbours:
            send(neighbour, message)


class GatherFunction(_WithDegrees, ABC):
    """Updates a vertex from the messages that it received.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.spargel import GatherFunction
        >>> class Sum(GatherFunction):
        ...     def update_vertex(self, vertex, in_messages):
        ...         self.set_new_vertex_value(sum(in_messages))
        >>> def tell(function, vertex):
        ...     function.send_message_to_all_neighbors(vertex.value)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 3), (2, 3)], env, vertex_value_initializer=int)
        >>> sums = graph.run_scatter_gather_iteration(tell, Sum(), 1)
        >>> sorted(sums.get_vertices_as_tuple2().collect())
        [(1, 1), (2, 2), (3, 3)]
    """

    _new_value: tuple[Any] | None = None

    @abstractmethod
    def update_vertex(self, vertex: Vertex, in_messages: Iterable[Any]) -> None:
        """Update a vertex that received messages."""

    def set_new_vertex_value(self, new_value: Any) -> None:
        """Set the value of the vertex, at most once. It is active in the next superstep, even with the same value.

        Raises:
            RuntimeError: if the value was already set.
        """
        if self._new_value is not None:
            raise WrongTimeError("set_new_vertex_value was called twice for one vertex in a superstep")
        self._new_value = (new_value,)


class ScatterGatherConfiguration(WithDirection):
    """Settings of a scatter-gather iteration.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly import EdgeDirection
        >>> from penstock.gelly.spargel import ScatterGatherConfiguration
        >>> def tell(function, vertex):
        ...     function.send_message_to_all_neighbors(vertex.value)
        >>> def take(function, vertex, messages):
        ...     function.set_new_vertex_value(max(messages))
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2)], env, vertex_value_initializer=int)
        >>> configuration = ScatterGatherConfiguration().set_direction(EdgeDirection.IN)
        >>> against = graph.run_scatter_gather_iteration(tell, take, 1, configuration)
        >>> sorted(against.get_vertices_as_tuple2().collect())
        [(1, 2), (2, 2)]
    """

    functions = ("scatter", "gather")

    def add_broadcast_set_for_scatter_function(self, name: str, data: DataStream) -> Self:
        """Make all records of a bounded stream available to the scatter function as `get_broadcast_set(name)`."""
        return self._broadcast("scatter", name, data)

    def add_broadcast_set_for_gather_function(self, name: str, data: DataStream) -> Self:
        """Make all records of a bounded stream available to the gather function as `get_broadcast_set(name)`."""
        return self._broadcast("gather", name, data)

    def set_opt_degrees(self, opt_degrees: bool) -> Self:
        """Set whether `get_in_degree` and `get_out_degree` of the functions return the degrees, not -1."""
        self.wants_degrees = opt_degrees
        return self

    def is_opt_degrees(self) -> bool:
        """Return whether the functions return the degrees."""
        return self.wants_degrees


class CalledScatter(ScatterFunction):
    """Wraps a plain callable as a scatter function. It takes this object and the vertex."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def send_messages(self, vertex: Vertex) -> None:
        """Call the function."""
        self._function(self, vertex)


class CalledGather(GatherFunction):
    """Wraps a plain callable as a gather function. It takes this object, the vertex, and the messages."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def update_vertex(self, vertex: Vertex, in_messages: Iterable[Any]) -> None:
        """Call the function."""
        self._function(self, vertex, in_messages)


__all__ = ["GatherFunction", "ScatterFunction", "ScatterGatherConfiguration"]


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
