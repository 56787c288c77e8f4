"""Vertex-centric iterations (Pregel): each active vertex receives its messages, may change, and sends more.

    class Least(ComputeFunction):
        def compute(self, vertex, messages):
            least = min(messages, default=vertex.value)
            if self.get_superstep_number() == 1 or least < vertex.value:
                self.set_new_vertex_value(least)
                self.send_message_to_all_neighbors(least)

    graph.run_vertex_centric_iteration(Least(), None, 100)

In superstep 1 all vertices are active, without messages; later only vertices that received messages. The iteration ends
when none did.

`VertexCentric` is the superstep; the other classes are the functions and settings of an iteration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Self

from penstock.base.errors import WrongTimeError
from penstock.datastream.data_stream import DataStream
from penstock.gelly import supersteps
from penstock.gelly.base import Edge, EdgeDirection, Vertex


class ComputeFunction(supersteps.SuperstepFunction, ABC):
    """Computes an active vertex in a superstep.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.pregel import ComputeFunction
        >>> class Nearest(ComputeFunction):
        ...     def compute(self, vertex, messages):
        ...         nearest = min(messages, default=vertex.value)
        ...         if self.get_superstep_number() == 1 or nearest < vertex.value:
        ...             self.set_new_vertex_value(nearest)
        ...             for edge in self.get_edges():
        ...                 self.send_message_to(edge.target, nearest + edge.value)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> vertices = [(1, 0.0), (2, 99.0), (3, 99.0)]
        >>> graph = Graph.from_collection([(1, 2, 4.0), (2, 3, 1.0)], env, vertices)
        >>> far = graph.run_vertex_centric_iteration(Nearest(), None, 10)
        >>> sorted(far.get_vertices_as_tuple2().collect())
        [(1, 0.0), (2, 4.0), (3, 5.0)]
    """

    _edges: list[Edge]
    _new_value: tuple[Any] | None = None
    _outboxes: supersteps.Outboxes

    @abstractmethod
    def compute(self, vertex: Vertex, messages: Iterable[Any]) -> None:
        """Process an active vertex and its messages. In superstep 1 these are empty."""

    def get_edges(self) -> Iterable[Edge]:
        """Return the outgoing edges of the vertex."""
        return self._edges

    def send_message_to(self, target: Any, message: Any) -> None:
        """Send a message to the vertex with an id, for the next superstep. It is lost if the vertex does not exist."""
        self._outboxes.send(target, message)

    def send_message_to_all_neighbors(self, message: Any) -> None:
        """Send a message along each outgoing edge of the vertex."""
        send = self._outboxes.send
        for edge in self._edges:
            send(edge[1], message)

    def set_new_vertex_value(self, new_value: Any) -> None:
        """Set the value of the vertex, at most once in a superstep.

        Raises:
            RuntimeError: if the value was already set.
        """
        if self._new_value is not None:
            raise WrongTimeError("set_new_vertex_value was called twice for one vertex in a superstep")
        self._new_value = (new_value,)


class MessageCombiner(ABC):
    """Combines the messages to a vertex into one, before they are sent and after they arrive.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.pregel import MessageCombiner
        >>> class Least(MessageCombiner):
        ...     def combine_messages(self, messages):
        ...         self.send_combined_message(min(messages))
        >>> def compute(function, vertex, messages):
        ...     if function.get_superstep_number() == 1:
        ...         function.send_message_to_all_neighbors(vertex.value)
        ...     else:
        ...         function.set_new_vertex_value(sum(messages))
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 3), (2, 3)], env, vertex_value_initializer=int)
        >>> sums = graph.run_vertex_centric_iteration(compute, Least(), 10)
        >>> sorted(sums.get_vertices_as_tuple2().collect())
        [(1, 1), (2, 2), (3, 1)]
    """

    _combined: list[Any]

    @abstractmethod
    def combine_messages(self, messages: Iterable[Any]) -> None:
        """Combine messages, and call `send_combined_message`."""

    def send_combined_message(self, combined_message: Any) -> None:
        """Set the combined message."""
        self._combined.append(combined_message)


class VertexCentricConfiguration(supersteps.IterationConfiguration):
    """Settings of a vertex-centric iteration.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.pregel import VertexCentricConfiguration
        >>> def compute(function, vertex, messages):
        ...     function.set_new_vertex_value(function.get_number_of_vertices())
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2)], env)
        >>> configuration = VertexCentricConfiguration().set_opt_num_vertices(True)
        >>> counted = graph.run_vertex_centric_iteration(compute, None, 1, configuration)
        >>> sorted(counted.get_vertices_as_tuple2().collect())
        [(1, 2), (2, 2)]
    """

    functions = ("compute",)

    def add_broadcast_set(self, name: str, data: DataStream) -> Self:
        """Make all records of a bounded stream available to the compute function as `get_broadcast_set(name)`."""
        return self._broadcast("compute", name, data)


class CalledCompute(ComputeFunction):
    """Wraps a plain callable as a compute function. It takes this object, the vertex, and the messages."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def compute(self, vertex: Vertex, messages: Iterable[Any]) -> None:
        """Call the function."""
        self._function(self, vertex, messages)


__all__ = ["ComputeFunction", "MessageCombiner", "VertexCentricConfiguration"]


class VertexCentric(supersteps.Model):
    """Computes, then sends. Messages belong to the next superstep."""

    name = "Vertex-centric Iteration"
    settles = False

    def __init__(self, compute: ComputeFunction, combiner: Any) -> None:
        self.functions = {"compute": compute}
        self._compute = compute
        self._combiner = combiner
        self._inbox: supersteps.Box = {}

    def set_up(self, partition: supersteps.Partition, direction: EdgeDirection) -> None:
        """Set up the model with a complete partition."""
        super().set_up(partition, direction)
        self._compute._outboxes = self.outboxes

    def send(self) -> list[supersteps.Box | None]:
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
        supersteps.each(call, self.active, self.operator_name, partition.vertex)
        compute.post_superstep()
        return self.outboxes.take(self._combine if self._combiner is not None else None)

    def receive(self, boxes: list[supersteps.Box | None]) -> None:
        """Activate the vertices that received messages."""
        self._inbox = supersteps.merged(boxes, self._combine if self._combiner is not None else None)
        index = self.partition.index
        self.active = [index[target] for target in self._inbox if target in index]

    def _combine(self, messages: list[Any]) -> list[Any]:
        combiner = self._combiner
        if not isinstance(combiner, MessageCombiner):
            return [combiner(messages)]
        combiner._combined = []
        combiner.combine_messages(messages)
        return combiner._combined
