"""The functions and settings of gather-sum-apply iterations."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

from penstock.datastream.data_stream import DataStream
from penstock.gelly.supersteps.configuration import WithDirection
from penstock.gelly.supersteps.function import SuperstepFunction


class Neighbor(NamedTuple):
    """An edge, as a gather function sees it: the value of the vertex at its other end, and its own."""

    neighbor_value: Any
    edge_value: Any

    def get_neighbor_value(self) -> Any:
        """The value of the neighbour."""
        return self.neighbor_value

    def get_edge_value(self) -> Any:
        """The value of the edge."""
        return self.edge_value


class GatherFunction(SuperstepFunction, ABC):
    """A value for each edge whose neighbour is active."""

    @abstractmethod
    def gather(self, neighbor: Neighbor) -> Any:
        """The value of one edge."""


class SumFunction(SuperstepFunction, ABC):
    """Makes one of two gathered values, in any order."""

    @abstractmethod
    def sum(self, first: Any, second: Any) -> Any:
        """What two values come to."""


class ApplyFunction(SuperstepFunction, ABC):
    """What a vertex makes of the sum of what was gathered for it."""

    _result: tuple[Any] | None = None

    @abstractmethod
    def apply(self, new_value: Any, current_value: Any) -> None:
        """Called for each vertex for which anything was gathered; calls `set_result` to change its value."""

    def set_result(self, result: Any) -> None:
        """Give the vertex another value, or the same one: it is then active in the next superstep."""
        self._result = (result,)


class GSAConfiguration(WithDirection):
    """Settings of a gather-sum-apply iteration.

    The direction says along which of its edges the value of an active vertex is gathered: by default those that leave
    it, so that vertices gather from the sources of the edges that lead to them.
    """

    functions = ("gather", "sum", "apply")

    def add_broadcast_set_for_gather_function(self, name: str, data: DataStream) -> Self:
        """Let `get_broadcast_set(name)` of the gather function give all records of a bounded stream."""
        return self._broadcast("gather", name, data)

    def add_broadcast_set_for_sum_function(self, name: str, data: DataStream) -> Self:
        """Let `get_broadcast_set(name)` of the sum function give all records of a bounded stream."""
        return self._broadcast("sum", name, data)

    def add_broadcast_set_for_apply_function(self, name: str, data: DataStream) -> Self:
        """Let `get_broadcast_set(name)` of the apply function give all records of a bounded stream."""
        return self._broadcast("apply", name, data)


class CalledGather(GatherFunction):
    """A plain callable of a `Neighbor`."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def gather(self, neighbor: Neighbor) -> Any:
        """Call it."""
        return self._function(neighbor)


class CalledSum(SumFunction):
    """A plain callable of two values."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def sum(self, first: Any, second: Any) -> Any:
        """Call it."""
        return self._function(first, second)


class CalledApply(ApplyFunction):
    """A plain callable of the new and the current value; returns the vertex's value, or None to leave it unset."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def apply(self, new_value: Any, current_value: Any) -> None:
        """Call it."""
        result = self._function(new_value, current_value)
        if result is not None:
            self.set_result(result)
