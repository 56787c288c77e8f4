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
        """How many edges lead to the vertex; -1 unless the configuration asks for it (`set_opt_degrees`)."""
        return self._in_degree

    def get_out_degree(self) -> int:
        """How many edges leave the vertex; -1 unless the configuration asks for it (`set_opt_degrees`)."""
        return self._out_degree


class ScatterFunction(_WithDegrees, ABC):
    """What an active vertex sends."""

    #: (the edge, the id at its other end)
    _neighbours: list[tuple[Edge, Any]]
    _outboxes: Outboxes

    @abstractmethod
    def send_messages(self, vertex: Vertex) -> None:
        """Called for each active vertex."""

    def get_edges(self) -> Iterable[Edge]:
        """The edges of the vertex in the iteration's direction."""
        return [edge for edge, _ in self._neighbours]

    def send_message_to(self, target: Any, message: Any) -> None:
        """Send a message to the vertex of an id, which must be in the graph."""
        self._outboxes.send(target, message)

    def send_message_to_all_neighbors(self, message: Any) -> None:
        """Send a message along each edge of the vertex in the iteration's direction."""
        send = self._outboxes.send
        for _, neighbour in self._neighbours:
            send(neighbour, message)


class GatherFunction(_WithDegrees, ABC):
    """What a vertex makes of the messages that it got."""

    _new_value: tuple[Any] | None = None

    @abstractmethod
    def update_vertex(self, vertex: Vertex, in_messages: Iterable[Any]) -> None:
        """Called for each vertex that got a message."""

    def set_new_vertex_value(self, new_value: Any) -> None:
        """Give the vertex another value, or the same one: it is then active in the next superstep. At most once.

        Raises:
            RuntimeError: if the value was set already.
        """
        if self._new_value is not None:
            raise WrongTimeError("set_new_vertex_value was called twice for one vertex in a superstep")
        self._new_value = (new_value,)


class ScatterGatherConfiguration(WithDirection):
    """Settings of a scatter-gather iteration."""

    functions = ("scatter", "gather")

    def add_broadcast_set_for_scatter_function(self, name: str, data: DataStream) -> Self:
        """Let `get_broadcast_set(name)` of the scatter function give all records of a bounded stream."""
        return self._broadcast("scatter", name, data)

    def add_broadcast_set_for_gather_function(self, name: str, data: DataStream) -> Self:
        """Let `get_broadcast_set(name)` of the gather function give all records of a bounded stream."""
        return self._broadcast("gather", name, data)

    def set_opt_degrees(self, opt_degrees: bool) -> Self:
        """Let `get_in_degree` and `get_out_degree` of the functions say the degrees; otherwise they are -1."""
        self.wants_degrees = opt_degrees
        return self

    def is_opt_degrees(self) -> bool:
        """Whether they do."""
        return self.wants_degrees


class CalledScatter(ScatterFunction):
    """A plain callable as a scatter function: it gets this object and the vertex."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def send_messages(self, vertex: Vertex) -> None:
        """Call it."""
        self._function(self, vertex)


class CalledGather(GatherFunction):
    """A plain callable as a gather function: it gets this object, the vertex, and the messages."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def update_vertex(self, vertex: Vertex, in_messages: Iterable[Any]) -> None:
        """Call it."""
        self._function(self, vertex, in_messages)
