"""The functions and settings of vertex-centric iterations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Self

from penstock.base.errors import WrongTimeError
from penstock.datastream.data_stream import DataStream
from penstock.gelly.base.elements import Edge, Vertex
from penstock.gelly.supersteps.configuration import IterationConfiguration
from penstock.gelly.supersteps.function import SuperstepFunction
from penstock.gelly.supersteps.partition import Outboxes


class ComputeFunction(SuperstepFunction, ABC):
    """Computes an active vertex in a superstep."""

    _edges: list[Edge]
    _new_value: tuple[Any] | None = None
    _outboxes: Outboxes

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
    """Combines the messages to a vertex into one, before they are sent and after they arrive."""

    _combined: list[Any]

    @abstractmethod
    def combine_messages(self, messages: Iterable[Any]) -> None:
        """Combine messages, and call `send_combined_message`."""

    def send_combined_message(self, combined_message: Any) -> None:
        """Set the combined message."""
        self._combined.append(combined_message)


class VertexCentricConfiguration(IterationConfiguration):
    """Settings of a vertex-centric iteration."""

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
