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
    """What a vertex does in a superstep."""

    _edges: list[Edge]
    _new_value: tuple[Any] | None = None
    _outboxes: Outboxes

    @abstractmethod
    def compute(self, vertex: Vertex, messages: Iterable[Any]) -> None:
        """Called for each active vertex, with the messages that it got; none in superstep 1."""

    def get_edges(self) -> Iterable[Edge]:
        """The edges that leave the vertex."""
        return self._edges

    def send_message_to(self, target: Any, message: Any) -> None:
        """Send a message to the vertex of an id, which gets it in the next superstep; lost if there is none."""
        self._outboxes.send(target, message)

    def send_message_to_all_neighbors(self, message: Any) -> None:
        """Send a message along each edge that leaves the vertex."""
        send = self._outboxes.send
        for edge in self._edges:
            send(edge[1], message)

    def set_new_vertex_value(self, new_value: Any) -> None:
        """Give the vertex another value; at most once a superstep.

        Raises:
            RuntimeError: if the value was set already.
        """
        if self._new_value is not None:
            raise WrongTimeError("set_new_vertex_value was called twice for one vertex in a superstep")
        self._new_value = (new_value,)


class MessageCombiner(ABC):
    """Makes one message of several for the same vertex, before they are sent and after they have come."""

    _combined: list[Any]

    @abstractmethod
    def combine_messages(self, messages: Iterable[Any]) -> None:
        """Combine messages; calls `send_combined_message`."""

    def send_combined_message(self, combined_message: Any) -> None:
        """What the messages came to."""
        self._combined.append(combined_message)


class VertexCentricConfiguration(IterationConfiguration):
    """Settings of a vertex-centric iteration."""

    functions = ("compute",)

    def add_broadcast_set(self, name: str, data: DataStream) -> Self:
        """Let `get_broadcast_set(name)` of the compute function give all records of a bounded stream."""
        return self._broadcast("compute", name, data)


class CalledCompute(ComputeFunction):
    """A plain callable as a compute function: it gets this object, the vertex, and the messages."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def compute(self, vertex: Vertex, messages: Iterable[Any]) -> None:
        """Call it."""
        self._function(self, vertex, messages)
