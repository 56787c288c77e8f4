"""Gather-sum-apply iterations: gather a value for each edge, sum the values at each vertex, and apply the sum to it.

    distances = graph.run_gather_sum_apply_iteration(
        lambda neighbor: neighbor.neighbor_value + neighbor.edge_value,
        min,
        lambda new, current: new if new < current else None,
        100,
    )

In superstep 1 all vertices are neighbours; later only vertices whose value was set in the previous superstep.

`GatherSumApply` is the superstep; the other classes are the functions and settings of an iteration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import reduce
from typing import Any, NamedTuple, Self

from penstock.datastream.data_stream import DataStream
from penstock.gelly.base import EdgeDirection
from penstock.gelly.spargel import collect_neighbours
from penstock.gelly.supersteps import Box, Model, Partition, SuperstepFunction, WithDirection, each, merged
from penstock.runtime.operators.base import UserCodeError


class Neighbor(NamedTuple):
    """An edge as a gather function sees it: the value of the vertex at the other end, and the value of the edge.

    Examples:
        >>> from penstock.gelly.gsa import Neighbor
        >>> neighbor = Neighbor(4.0, 1.5)
        >>> neighbor.neighbor_value + neighbor.edge_value
        5.5
    """

    neighbor_value: Any
    edge_value: Any

    def get_neighbor_value(self) -> Any:
        """Return the value of the neighbour."""
        return self.neighbor_value

    def get_edge_value(self) -> Any:
        """Return the value of the edge."""
        return self.edge_value


class GatherFunction(SuperstepFunction, ABC):
    """Computes a value for each edge whose neighbour is active.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.gsa import GatherFunction
        >>> class Length(GatherFunction):
        ...     def gather(self, neighbor):
        ...         return neighbor.neighbor_value + neighbor.edge_value
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> vertices = [(1, 0.0), (2, 99.0), (3, 99.0)]
        >>> graph = Graph.from_collection([(1, 2, 4.0), (2, 3, 1.0)], env, vertices)
        >>> far = graph.run_gather_sum_apply_iteration(Length(), min, min, 10)
        >>> sorted(far.get_vertices_as_tuple2().collect())
        [(1, 0.0), (2, 4.0), (3, 5.0)]
    """

    @abstractmethod
    def gather(self, neighbor: Neighbor) -> Any:
        """Return the value of one edge."""


class SumFunction(SuperstepFunction, ABC):
    """Combines two gathered values, in any order.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.gsa import SumFunction
        >>> class Total(SumFunction):
        ...     def sum(self, first, second):
        ...         return first + second
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 3), (2, 3)], env, vertex_value_initializer=int)
        >>> totals = graph.run_gather_sum_apply_iteration(
        ...     lambda neighbor: neighbor.neighbor_value, Total(), lambda new, current: new, 1
        ... )
        >>> sorted(totals.get_vertices_as_tuple2().collect())
        [(1, 1), (2, 2), (3, 3)]
    """

    @abstractmethod
    def sum(self, first: Any, second: Any) -> Any:
        """Return the combination of two values."""


class ApplyFunction(SuperstepFunction, ABC):
    """Updates a vertex from the sum of its gathered values.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.gsa import ApplyFunction
        >>> class Less(ApplyFunction):
        ...     def apply(self, new_value, current_value):
        ...         if new_value < current_value:
        ...             self.set_result(new_value)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (2, 3)], env, vertex_value_initializer=int)
        >>> least = graph.run_gather_sum_apply_iteration(
        ...     lambda neighbor: neighbor.neighbor_value, min, Less(), 10
        ... )
        >>> sorted(least.get_vertices_as_tuple2().collect())
        [(1, 1), (2, 1), (3, 1)]
    """

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

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly import EdgeDirection
        >>> from penstock.gelly.gsa import GSAConfiguration
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2)], env, vertex_value_initializer=int)
        >>> configuration = GSAConfiguration().set_direction(EdgeDirection.IN)
        >>> against = graph.run_gather_sum_apply_iteration(
        ...     lambda neighbor: neighbor.neighbor_value, min, lambda new, current: new, 1, configuration
        ... )
        >>> sorted(against.get_vertices_as_tuple2().collect())
        [(1, 2), (2, 2)]
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


__all__ = ["ApplyFunction", "GSAConfiguration", "GatherFunction", "Neighbor", "SumFunction"]


class GatherSumApply(Model):
    """Gathers and sums in the partitions of the neighbours, then sums and applies in the partitions of the vertices."""

    name = "Gather-sum-apply Iteration"

    def __init__(self, gather: GatherFunction, sum_function: SumFunction, apply: ApplyFunction) -> None:
        self.functions = {"gather": gather, "sum": sum_function, "apply": apply}
        self._gather = gather
        self._sum = sum_function
        self._apply = apply

    def set_up(self, partition: Partition, direction: EdgeDirection) -> None:
        """Set up the model with a complete partition."""
        super().set_up(partition, direction)
        self._neighbours = collect_neighbours(partition, direction)

    def send(self) -> list[Box | None]:
        """Gather along the edges of active vertices, and sum."""
        gather, values, neighbours, send = (
            self._gather.gather,
            self.partition.values,
            self._neighbours,
            self.outboxes.send,
        )

        def call(position: int) -> None:
            value = values[position]
            for edge, target in neighbours[position]:
                send(target, gather(Neighbor(value, edge[2])))

        for function in (self._gather, self._sum):
            function.pre_superstep()
        each(call, self.active, self.operator_name, self.partition.vertex)
        self._gather.post_superstep()
        return self.outboxes.take(self._summed)

    def receive(self, boxes: list[Box | None]) -> None:
        """Sum the values gathered by all partitions, and apply the sums."""
        inbox = merged(boxes, self._summed)
        self._sum.post_superstep()
        apply, values, index = self._apply, self.partition.values, self.partition.index
        active: list[int] = []

        def call(target: Any) -> None:
            position = index.get(target)
            if position is None:
                return
            apply._result = None
            apply.apply(inbox[target][0], values[position])
            if apply._result is not None:
                values[position] = apply._result[0]
                active.append(position)

        apply.pre_superstep()
        each(call, inbox, self.operator_name, lambda target: target)
        apply.post_superstep()
        self.active = active

    def _summed(self, gathered: list[Any]) -> list[Any]:
        if len(gathered) == 1:
            return gathered
        try:
            return [reduce(self._sum.sum, gathered)]
        except Exception as error:
            raise UserCodeError(self.operator_name, gathered) from error
