"""The functions and settings of gather-sum-apply iterations."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

from penstock.datastream.data_stream import DataStream
from penstock.gelly.supersteps.configuration import WithDirection
from penstock.gelly.supersteps.function import SuperstepFunction


class Neighbor(NamedTuple):
    """An edge as a gather function sees it: the value of the vertex at the other end, and the value of the edge."""

    neighbor_value: Any
    edge_value: Any

    def get_neighbor_value(self) -> Any:
        """Return the value of the neighbour."""
        return self.neighbor_value

    def get_edge_value(self) -> Any:
        """Return the value of the edge."""
        return self.edge_value


class GatherFunction(SuperstepFunction, ABC):
    """Computes a value for each edge whose neighbour is active."""

    @abstractmethod
    def gather(self, neighbor: Neighbor) -> Any:
        """Return the value of one edge."""


class SumFunction(SuperstepFunction, ABC):
    """Combines two gathered values, in any order."""

    @abstractmethod
    def sum(self, first: Any, second: Any) -> Any:
        """Return the combination of two values."""


class ApplyFunction(SuperstepFunction, ABC):
    """Updates a vertex from the sum of its gathered values."""

    _result: tuple[Any] | None = None

    @abstractmethod
    def apply(self, new_value: Any, current_value: Any) -> None:
        """Update a vertex that gathered values. Call `set_result` to change its value."""

    def set_result(self, result: Any) -> None:
        """Set the value of the vertex. The vertex is active in the next superstep, even if the value is the same."""
        self._result = (result,)


class GSAConfiguration(WithDirection):
    """Settings of a gather-sum-apply iteration.

    The direction selects the edges of an active vertex along which its value is gathered: by default its outgoing
    edges, so that vertices gather from the sources of their incoming edges.
    """

    functions = ("gather", "sum", "apply")

    def add_broadcast_set_for_gather_function(self, name: str, data: DataStream) -> Self:
        """Make all records of a bounded stream available to the gather function as `get_broadcast_set(name)`."""
        return self._broadcast("gather", name, data)

    def add_broadcast_set_for_sum_function(self, name: str, data: DataStream) -> Self:
        """Make all records of a bounded stream available to the sum function as `get_broadcast_set(name)`."""
        return self._broadcast("sum", name, data)

    def add_broadcast_set_for_apply_function(self, name: str, data: DataStream) -> Self:
        """Make all records of a bounded stream available to the apply function as `get_broadcast_set(name)`."""
        return self._broadcast("apply", name, data)


class CalledGather(GatherFunction):
    """Wraps a plain callable of a `Neighbor`."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def gather(self, neighbor: Neighbor) -> Any:
        """Call the function."""
        return self._function(neighbor)


class CalledSum(SumFunction):
    """Wraps a plain callable of two values."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def sum(self, first: Any, second: Any) -> Any:
        """Call the function."""
        return self._function(first, second)


class CalledApply(ApplyFunction):
    """Wraps a plain callable of the new and the current value. It returns the vertex's value, or None for no change."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def apply(self, new_value: Any, current_value: Any) -> None:
        """Call the function."""
        result = self._function(new_value, current_value)
        if result is not None:
            self.set_result(result)
