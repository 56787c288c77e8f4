"""The functions and settings of scatter-gather iterations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Self

from penstock.base.errors import WrongTimeError
from penstock.datastream.data_stream import DataStream
from penstock.gelly.base.elements import Edge, Vertex
from penstock.gelly.supersteps.configuration import WithDirection
from penstock.gelly.supersteps.function import SuperstepFunction
from penstock.gelly.supersteps.partition import Outboxes


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
    """Sends the messages of an active vertex."""

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
    """Updates a vertex from the messages that it received."""

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
    """Settings of a scatter-gather iteration."""

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
